"""What every engine client owes the gateway, as tests: subclass `EngineContract` and give it engines.

Greedy output is expected to repeat. Request ids are never used twice, so that an engine that is slow to start may be
shared by all tests, by overriding the fixture `started` with one of a wider scope.
"""

import abc
import itertools
import math
from collections.abc import AsyncIterator, Sequence

import pytest

from engines.errors import EngineUnavailable, Overloaded
from engines.protocol import (
    EngineClient,
    EngineRequest,
    EngineState,
    Finish,
    FinishKind,
    LogprobParams,
    SamplingParams,
)
from tests.engines.recorder import Answer, FrameRecorder
from tests.engines.started_engine import StartedEngine


class EngineContract(abc.ABC):
    """The checks. `tolerance`: how far values of one request may lie apart from run to run."""

    tolerance = 0.0

    @abc.abstractmethod
    def make_engine(self) -> EngineClient:
        """An engine that runs at least four requests at once and drives itself, not started."""

    @abc.abstractmethod
    def make_small_engine(self) -> EngineClient:
        """One that runs one request at once and lets one wait; pytest.skip where that can't be set."""

    @pytest.fixture
    async def fresh(self) -> AsyncIterator[EngineClient]:
        client = self.make_engine()
        yield client
        await client.close()

    @pytest.fixture
    async def started(self, fresh: EngineClient) -> AsyncIterator[StartedEngine]:
        started = await StartedEngine.start(fresh)
        yield started
        check_rows(started.recorder)

    async def test_ready_engine_says_what_it_is(self, started: StartedEngine) -> None:
        info = started.client.info
        assert started.client.state is EngineState.READY
        assert started.recorder.ups == [info]
        assert all([info.engine_id, info.model, info.tokenizer, info.weight_version])
        assert info.max_model_len > 0
        assert info.vocab_size > 0
        assert "max_tokens" in info.capabilities.sampling
        assert all(0 <= token_id < info.vocab_size for token_id in info.eos_token_ids)

    async def test_engine_that_was_not_started_takes_nothing(self, fresh: EngineClient) -> None:
        assert fresh.state is EngineState.STARTING
        with pytest.raises(EngineUnavailable):
            assert fresh.info
        with pytest.raises(EngineUnavailable):
            fresh.submit(EngineRequest(id="early", prompt_token_ids=[1], sampling=SamplingParams(max_tokens=1)))

    async def test_max_tokens_is_the_length(self, started: StartedEngine) -> None:
        for max_tokens in (1, 2, 17):
            answer = await started.ask(max_tokens)
            assert len(answer.token_ids) == max_tokens
            assert answer.finish == Finish(FinishKind.LENGTH)
            assert answer.values == []

    async def test_rows_are_deltas_with_totals(self, started: StartedEngine) -> None:
        answer = await started.ask(20)
        again = await started.ask(20)
        assert answer.token_ids == again.token_ids
        check_rows(started.recorder)

    async def test_stop_token_ends_and_is_part_of_the_output(self, started: StartedEngine) -> None:
        free = (await started.ask(12)).token_ids
        stop = free[5]
        answer = await started.ask(12, stop_token_ids=(stop,))
        assert answer.token_ids == free[: free.index(stop) + 1]
        assert answer.finish == Finish(FinishKind.STOP, matched=stop)

    async def test_min_tokens_come_before_a_stop_token(self, started: StartedEngine) -> None:
        free = (await started.ask(12)).token_ids
        answer = await started.ask(12, stop_token_ids=tuple(set(free)), min_tokens=6)
        assert len(answer.token_ids) > 6

    async def test_logprobs_agree_with_each_other(self, started: StartedEngine) -> None:
        top_k = self._top_k(started, 20)
        size = started.client.info.vocab_size
        chosen = (size - 1, 0, size // 2) if started.client.info.capabilities.chosen_logprobs else ()
        answer = await started.ask(16, LogprobParams(top_k=top_k, token_ids=chosen))
        check_logprobs(answer, top_k, chosen)

    async def test_values_do_not_depend_on_how_many_are_asked_for(self, started: StartedEngine) -> None:
        widest = await started.ask(12, LogprobParams(top_k=self._top_k(started, 20)))
        for top_k in (0, 1, self._top_k(started, 5)):
            answer = await started.ask(12, LogprobParams(top_k=top_k))
            check_logprobs(answer, top_k, ())
            assert answer.token_ids == widest.token_ids
            assert answer.ranks == widest.ranks
            assert answer.values == pytest.approx(widest.values, abs=self.tolerance)
            for top, wide_top in zip(answer.top, widest.top, strict=True):
                assert [token_id for token_id, _ in top] == [token_id for token_id, _ in wide_top[:top_k]]
                values = [value for _, value in wide_top[:top_k]]
                assert [value for _, value in top] == pytest.approx(values, abs=self.tolerance)

    async def test_chosen_ids_come_in_the_asked_order(self, started: StartedEngine) -> None:
        if not started.client.info.capabilities.chosen_logprobs:
            pytest.skip("the engine gives no logprobs of chosen ids")
        free = (await started.ask(6, LogprobParams())).token_ids
        chosen = tuple(dict.fromkeys([started.client.info.vocab_size - 1, *free]))
        forward = await started.ask(6, LogprobParams(token_ids=chosen))
        backward = await started.ask(6, LogprobParams(token_ids=chosen[::-1]))
        check_logprobs(forward, 0, chosen)
        for one, other in zip(forward.chosen, backward.chosen, strict=True):
            assert [rank for _, rank in one] == [rank for _, rank in other[::-1]]
            assert [value for value, _ in one] == pytest.approx([value for value, _ in other[::-1]], abs=self.tolerance)

    @pytest.mark.parametrize("first", [0, 3, 255, 256])
    async def test_prompt_logprobs_come_in_pieces_before_the_output(self, started: StartedEngine, first: int) -> None:
        if not started.client.info.capabilities.prompt_logprobs:
            pytest.skip("the engine gives no logprobs of prompts")
        length = min(600, started.room)
        wishes = LogprobParams(top_k=3, prompt_start=first)
        answer = await started.ask(2, wishes, prompt=length)
        check_prompt(answer, started.prompt(length), first, top_k=3)
        whole = await started.ask(0, LogprobParams(top_k=3, prompt_start=0), prompt=length)
        assert whole.finish == Finish(FinishKind.LENGTH)
        assert whole.token_ids == []
        check_prompt(whole, started.prompt(length), 0, top_k=3)
        values = [value for piece in answer.prompt for value in piece.values]
        all_values = [value for piece in whole.prompt for value in piece.values]
        assert values[1:] == pytest.approx(all_values[first + 1 :], abs=self.tolerance)

    async def test_aborted_request_gets_no_more_rows(self, started: StartedEngine) -> None:
        left, kept = started.submit(started.room), started.submit(24)
        await started.recorder.tokens(left, 1)
        started.client.abort([left])
        await started.recorder.finish(kept)
        await started.ask(2)
        rows = len(started.recorder.rows[left])
        await started.ask(2)
        assert len(started.recorder.rows[left]) == rows
        assert started.recorder.finish_of(left) in {None, Finish(FinishKind.ABORT)}
        assert started.recorder.frames[-1].running == 0

    async def test_abort_of_unknown_ids_is_ignored(self, started: StartedEngine) -> None:
        started.client.abort(["never seen"])
        request_id = started.submit(8)
        started.client.abort(["never seen"])
        assert await started.recorder.finish(request_id) == Finish(FinishKind.LENGTH)
        started.client.abort([request_id])
        assert len((await started.ask(3)).token_ids) == 3

    async def test_requests_share_frames(self, started: StartedEngine) -> None:
        request_ids = [started.submit(32) for _ in range(4)]
        for request_id in request_ids:
            await started.recorder.finish(request_id)
        assert any(set(request_ids) <= set(frame.request_ids) for frame in started.recorder.frames)

    async def test_request_over_the_queue_limit_gets_an_error_row(self) -> None:
        client = self.make_small_engine()
        try:
            small = await StartedEngine.start(client)
            running = small.submit(small.room)
            await small.recorder.tokens(running, 1)
            waiting, refused = small.submit(4), small.submit(4)
            finish = await small.recorder.finish(refused)
            assert finish.kind is FinishKind.ERROR
            assert finish.code == Overloaded.code
            assert finish.message
            assert small.recorder.answer(refused).token_ids == []
            client.abort([running])
            assert await small.recorder.finish(waiting) == Finish(FinishKind.LENGTH)
        finally:
            await client.close()

    async def test_close_ends_it_for_good(self, fresh: EngineClient) -> None:
        started = await StartedEngine.start(fresh)
        await started.recorder.tokens(started.submit(started.room), 1)
        await fresh.close()
        await fresh.close()
        assert fresh.state is EngineState.DOWN
        assert started.recorder.downs == []
        with pytest.raises(EngineUnavailable):
            started.submit(1)

    def _top_k(self, started: StartedEngine, wanted: int) -> int:
        limit = started.client.info.capabilities.max_top_logprobs
        return min(wanted, started.client.info.vocab_size, wanted if limit is None else limit)


def check_rows(recorder: FrameRecorder) -> None:
    """Totals are sums of deltas, the finish is the last row, and frames come in the order of their steps."""
    for rows in recorder.rows.values():
        counts = itertools.accumulate(len(row.token_ids) for row in rows)
        assert [row.completion_tokens for row in rows] == list(counts)
        assert all(row.finish is None for row in rows[:-1])
        assert len({row.prompt_tokens for row in rows}) == 1
    for one, other in itertools.pairwise(recorder.frames):
        assert one.step <= other.step
        assert one.timestamp <= other.timestamp
        assert one.engine_id == other.engine_id


def check_logprobs(answer: Answer, top_k: int, chosen: Sequence[int]) -> None:
    """One entry a token; sampled token, alternatives and chosen ids have the same value and rank wherever they meet."""
    length = len(answer.token_ids)
    assert len(answer.values) == len(answer.ranks) == len(answer.top) == len(answer.chosen) == length
    columns = zip(answer.token_ids, answer.values, answer.ranks, answer.top, answer.chosen, strict=True)
    for token_id, value, rank, top, chosen_entries in columns:
        ids = [top_id for top_id, _ in top]
        assert len(ids) == len(set(ids)) == top_k
        assert [top_value for _, top_value in top] == sorted((top_value for _, top_value in top), reverse=True)
        assert len(chosen_entries) == len(chosen)
        entries = [(token_id, value, rank)]
        entries += [(chosen_id, *entry) for chosen_id, entry in zip(chosen, chosen_entries, strict=True)]
        for entry_id, entry_value, entry_rank in entries:
            assert entry_value <= 0.0
            assert entry_rank >= 1
            if entry_rank <= top_k:
                assert top[entry_rank - 1] == (entry_id, entry_value)
            else:
                assert entry_id not in ids
                assert not top or entry_value <= top[-1][1]


def check_prompt(answer: Answer, prompt: list[int], first: int, top_k: int) -> None:
    """The pieces, joined, are the prompt from the first asked position on; only that position has no value."""
    place = first
    for piece in answer.prompt:
        valued = len(piece.token_ids) - (piece.start == first)
        assert piece.start == place
        assert 0 < len(piece.token_ids) <= 256
        assert len(piece.values) == len(piece.ranks) == len(piece.token_ids)
        assert piece.top_k == top_k
        assert len(piece.top_ids) == len(piece.top_values) == valued * top_k
        place += len(piece.token_ids)
    assert [token_id for piece in answer.prompt for token_id in piece.token_ids] == prompt[first:]
    values = [value for piece in answer.prompt for value in piece.values]
    ranks = [rank for piece in answer.prompt for rank in piece.ranks]
    assert values[0] is None
    assert ranks[0] == 0
    assert all(value is not None and value <= 0.0 and not math.isnan(value) for value in values[1:])
    assert all(rank >= 1 for rank in ranks[1:])
