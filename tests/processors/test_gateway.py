import asyncio
from pathlib import Path

import msgspec
import pytest

from engines.errors import (
    Aborted,
    ContextLengthExceeded,
    DeadlineExceeded,
    Draining,
    EngineDied,
    EngineFault,
    EngineUnavailable,
    InvalidLogits,
    TailraceError,
    UnsupportedFeature,
)
from engines.protocol import EngineRequest, Finish, FinishKind, LogprobParams
from engines.scripted.faults import Failure, Fault, Miscount, NotANumber
from engines.scripted.script import Script
from processors.text import TextParams
from tests.processors import toy_tokenizers
from tests.processors.gateway_scene import EOS, GUARD, GatewayScene, started
from tests.processors.toy_tokenizers import id_of, ids_of

HELLO = [*"hé🌟!".encode()]
ENDLESS = Script(token_ids=[ord("a")], cycle=True)


@pytest.mark.parametrize("grouping", [[1], [2], [3, 1], [0, 1], [100]], ids=str)
@pytest.mark.parametrize("finish_apart", [False, True])
async def test_law_1_the_answer_does_not_depend_on_the_engines_grouping(
    byte_level_dir: Path, grouping: list[int], finish_apart: bool
) -> None:
    script = Script(token_ids=[*HELLO, EOS], grouping=grouping, finish_apart=finish_apart)
    async with started(byte_level_dir, script) as scene:
        delta = await scene.answer(logprobs=LogprobParams(top_k=2))
        assert (delta.text, delta.token_ids) == ("hé🌟!", [*HELLO, EOS])
        assert delta.finish == Finish(FinishKind.STOP)
        assert sum(delta.lengths) == len(delta.text)
        assert delta.logprobs is not None
        assert len(delta.logprobs.values) == delta.completion_tokens == len(HELLO) + 1
        assert len(delta.logprobs.top_ids) == 2 * delta.completion_tokens
        assert scene.engine.aborted == []


async def test_collectors_come_in_the_order_of_the_requests(byte_level_dir: Path) -> None:
    scripts = [Script(token_ids=[*text]) for text in (b"one", b"two", b"three")]
    async with started(byte_level_dir, *scripts) as scene:
        requests = [await scene.prepare() for _ in range(3)]
        async with scene.gateway.open(requests) as collectors:
            texts = [(await scene.finish(collector)).text for collector in collectors]
        assert texts == ["on", "tw", "thre"]
        assert [request.id for request in scene.engine.submitted] == [r.engine_request.id for r in requests]


async def test_law_8_the_engines_load_is_nothing_once_all_left(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        requests = [await scene.prepare() for _ in range(2)]
        async with scene.gateway.open(requests):
            (late,) = scene.engine.step()
            assert scene.meter.load == {"scripted": (2, 0)}
        assert scene.meter.load == {"scripted": (0, 0)}
        scene.gateway.on_frame(late)
        assert scene.meter.load == {"scripted": (0, 0)}


async def test_law_8_leaving_aborts_what_has_not_ended_once(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, Script(token_ids=[*b"ab"]), ENDLESS) as scene:
        requests = [await scene.prepare() for _ in range(3)]
        async with scene.gateway.open(requests):
            scene.engine.step()
            scene.engine.step()
            assert scene.gateway.running == 2
        assert scene.engine.aborted == [request.engine_request.id for request in requests[1:]]
        assert scene.engine.live == []
        assert scene.gateway.running == 0
        assert sorted(record.reason for record in scene.meter.finished) == ["abort", "abort", "stop"]


@pytest.mark.parametrize("error", [RuntimeError("router broke"), EngineFault("x"), asyncio.CancelledError()])
async def test_law_8_leaving_by_an_error_aborts_too(byte_level_dir: Path, error: BaseException) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        request = await scene.prepare()
        with pytest.raises(type(error)):
            async with scene.gateway.open([request]):
                raise error
        assert scene.engine.aborted == [request.engine_request.id]


async def test_law_8_a_reader_that_is_cancelled_leaves_no_trace(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        request = await scene.prepare()
        entered = asyncio.Event()

        async def read() -> None:
            async with scene.gateway.open([request]) as [collector]:
                entered.set()
                await collector.whole()

        reader = asyncio.create_task(read())
        await entered.wait()
        reader.cancel()
        await asyncio.wait([reader])
        assert reader.cancelled()
        assert scene.engine.aborted == [request.engine_request.id]
        assert scene.gateway.running == 0


async def test_rows_that_come_after_an_abort_are_dropped_and_counted(byte_level_dir: Path) -> None:
    script = Script(token_ids=[ord("a")], cycle=True, frames_after_abort=2)
    async with started(byte_level_dir, script) as scene:
        async with scene.gateway.open([await scene.prepare()]):
            scene.engine.step()
        while scene.engine.running:
            scene.engine.step()
        assert [unknown for _, unknown, _ in scene.meter.frames] == [0, 1, 1]
        assert len(scene.engine.aborted) == 1


async def test_a_stop_string_tells_the_engine_once(byte_level_dir: Path) -> None:
    script = Script(token_ids=[*b"go STOP more"], grouping=[4], frames_after_abort=None)
    async with started(byte_level_dir, script) as scene:
        delta = await scene.answer(text=TextParams(stop=("STOP",)))
        assert (delta.text, delta.token_ids) == ("go ", [*b"go STOP"])
        assert delta.finish == Finish(FinishKind.STOP, matched="STOP")
        assert scene.engine.aborted == [scene.engine.submitted[0].id]


async def test_hidden_and_shown_ends(byte_level_dir: Path) -> None:
    end = id_of(toy_tokenizers.byte_level(), "<|im_end|>")
    script = Script(token_ids=[ord("a"), end])
    async with started(byte_level_dir, script, eos_token_ids=(end,)) as scene:
        assert (await scene.answer()).text == "a"
        assert (await scene.answer(text=TextParams(include_stop=True))).text == "a"
        shown = TextParams(include_stop=True, skip_special_tokens=False)
        assert (await scene.answer(text=shown)).text == "a<|im_end|>"
        assert (await scene.answer(text=TextParams(skip_special_tokens=False))).text == "a"


async def test_a_tokenizer_that_joins_by_context_reads_on_from_the_prompt(wordpiece_dir: Path) -> None:
    tokenizer = toy_tokenizers.wordpiece()
    said = ids_of(tokenizer, "worldly. hello")
    async with started(wordpiece_dir, Script(token_ids=said), vocab_size=15) as scene:
        delta = await scene.answer(ids_of(tokenizer, "hello"), max_tokens=len(said))
        assert delta.text == " worldly. hello"
        assert sum(delta.lengths) == len(delta.text)


async def test_law_11_prompt_logprobs_come_in_pieces_and_complete(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        wishes = LogprobParams(top_k=2, token_ids=(7,), prompt_start=1)
        delta = await scene.answer([3] * 600, max_tokens=2, logprobs=wishes)
        assert [(piece.start, len(piece.token_ids)) for piece in delta.prompt_logprobs] == [
            (1, 256),
            (257, 256),
            (513, 87),
        ]
        assert delta.prompt_logprobs[0].values[0] is None
        assert delta.logprobs is not None
        assert (delta.logprobs.chosen, len(delta.logprobs.chosen_values)) == (1, 2)


async def test_an_embedding_comes_through(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, Script(embedding=[0.5, -0.5])) as scene:
        assert (await scene.answer()).embedding == [0.5, -0.5]


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (NotANumber(at=1), InvalidLogits, True),
        (Miscount(at=1), EngineFault, True),
        (Failure(at=1, code="context_length_exceeded", message="m"), ContextLengthExceeded, False),
    ],
)
async def test_law_9_a_fault_of_the_engine_ends_one_request(
    byte_level_dir: Path, fault: Fault, kind: type[TailraceError], told: bool
) -> None:
    faulty = Script(token_ids=[*b"abc"], faults=[fault])
    async with started(byte_level_dir, faulty, Script(token_ids=[*b"abc"])) as scene:
        requests = [await scene.prepare(max_tokens=3, logprobs=LogprobParams()) for _ in range(2)]
        async with scene.gateway.open(requests) as [first, second]:
            assert (await scene.finish(second)).text == "abc"
            with pytest.raises(TailraceError) as raised:
                await first.whole()
            assert type(raised.value) is kind
        assert scene.engine.aborted == ([requests[0].engine_request.id] if told else [])


async def test_a_dead_engine_fails_every_request_and_is_not_told(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        async with scene.gateway.open([await scene.prepare() for _ in range(2)]) as collectors:
            scene.engine.step()
            scene.engine.kill("crash")
            for collector in collectors:
                assert (await collector.get()).text == "a"
                with pytest.raises(EngineDied):
                    await collector.get()
            assert not scene.gateway.ready
        assert scene.engine.aborted == []
        assert scene.meter.up == {"scripted": False}
        assert [record.code for record in scene.meter.finished] == ["engine_died"] * 2


async def test_an_engine_that_is_back_takes_requests(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, Script(token_ids=[*b"ab"])) as scene:
        request = await scene.prepare(max_tokens=2)
        scene.engine.kill("crash")
        with pytest.raises(EngineUnavailable):
            async with scene.gateway.open([request]):
                raise AssertionError("opened on a dead engine")
        assert scene.gateway.running == 0
        scene.engine.revive()
        assert scene.gateway.ready
        assert scene.meter.up == {"scripted": True}
        assert (await scene.answer(max_tokens=2)).text == "ab"


async def test_a_batch_that_cannot_be_submitted_as_a_whole_leaves_nothing(
    byte_level_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        requests = [await scene.prepare() for _ in range(3)]
        submit = scene.engine.submit

        def submit_one(request: EngineRequest) -> None:
            if scene.engine.submitted:
                raise EngineUnavailable("just died", retry_after=1)
            submit(request)

        monkeypatch.setattr(scene.engine, "submit", submit_one)
        with pytest.raises(EngineUnavailable):
            async with scene.gateway.open(requests):
                raise AssertionError("opened in part")
        assert scene.engine.aborted == [requests[0].engine_request.id]
        assert scene.engine.live == []
        assert scene.gateway.running == 0
        await scene.gateway.idle()


async def test_draining_refuses_new_requests_and_lets_live_ones_end(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, Script(token_ids=[*b"ab"])) as scene:
        late = await scene.prepare()
        async with scene.gateway.open([await scene.prepare(max_tokens=2)]) as [collector]:
            scene.gateway.begin_drain()
            assert scene.gateway.engine_ready
            assert not scene.gateway.ready
            with pytest.raises(Draining) as refused:
                async with scene.gateway.open([late]):
                    raise AssertionError("opened while draining")
            assert refused.value.retry_after is not None
            waiting = asyncio.create_task(scene.gateway.idle())
            await asyncio.sleep(0)
            assert not waiting.done()
            assert (await scene.finish(collector)).text == "ab"
            async with asyncio.timeout(GUARD):
                await waiting
        assert len(scene.engine.submitted) == 1


async def test_abort_all_ends_every_request_with_an_abort(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        requests = [await scene.prepare() for _ in range(2)]
        async with scene.gateway.open(requests) as collectors:
            scene.gateway.abort_all(Aborted("shutting down"))
            for collector in collectors:
                whole = await collector.whole()
                assert whole.finish == Finish(FinishKind.ABORT, message="shutting down")
            await scene.gateway.idle()
        assert scene.engine.aborted == [request.engine_request.id for request in requests]


async def test_a_failure_of_all_is_an_error_of_each(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        async with scene.gateway.open([await scene.prepare()]) as (collector,):
            scene.gateway.abort_all(DeadlineExceeded("too late"))
            with pytest.raises(DeadlineExceeded):
                await collector.whole()
        assert len(scene.engine.aborted) == 1


async def test_an_abort_by_name_is_exact_and_reaches_every_request_of_that_name(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        named = [msgspec.structs.replace(await scene.prepare(), names=(name,)) for name in ("1", "10", "1")]
        async with scene.gateway.open(named):
            assert scene.gateway.abort("1") == 2
            assert scene.engine.aborted == [named[0].engine_request.id, named[2].engine_request.id]
            assert scene.gateway.running == 1
            assert scene.gateway.abort("0") == 0


async def test_idle_returns_at_once_where_nothing_is_live(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS) as scene:
        async with asyncio.timeout(GUARD):
            await scene.gateway.idle()
        async with scene.gateway.open([await scene.prepare()]):
            pass
        async with asyncio.timeout(GUARD):
            await scene.gateway.idle()


async def test_before_the_start_nothing_is_taken(byte_level_dir: Path) -> None:
    scene = GatewayScene(byte_level_dir, [ENDLESS])
    assert not scene.gateway.ready
    for part in ("info", "input", "tokenizer"):
        with pytest.raises(EngineUnavailable):
            getattr(scene.gateway, part)


async def test_the_load_of_the_engine_is_measured(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS, max_running=1) as scene:
        requests = [await scene.prepare() for _ in range(3)]
        async with scene.gateway.open(requests):
            scene.engine.step()
            assert scene.meter.load == {"scripted": (1, 2)}


async def test_a_prompt_that_fills_the_context_is_scored(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS, max_model_len=8) as scene:
        delta = await scene.answer([1] * 8, max_tokens=0, logprobs=LogprobParams(top_k=1, prompt_start=0))
        assert (delta.text, delta.token_ids, delta.completion_tokens) == ("", [], 0)
        assert delta.finish == Finish(FinishKind.LENGTH)
        (piece,) = delta.prompt_logprobs
        assert len(piece.values) == 8


async def test_raw_token_mode_has_ids_and_logprobs_and_no_text(byte_level_dir: Path) -> None:
    """The tokenizer is never loaded: there is none at its place."""
    script = Script(token_ids=[*HELLO, EOS], grouping=[2])
    async with started(byte_level_dir / "none", script, skip_tokenizer=True) as scene:
        delta = await scene.answer(logprobs=LogprobParams(top_k=2, token_ids=(9,), prompt_start=1))
        assert (delta.text, delta.token_ids, delta.lengths) == ("", [*HELLO, EOS], [0] * (len(HELLO) + 1))
        assert delta.finish == Finish(FinishKind.STOP)
        assert delta.logprobs is not None
        assert len(delta.logprobs.values) == delta.completion_tokens == len(HELLO) + 1
        assert len(delta.logprobs.chosen_values) == delta.completion_tokens
        assert [len(piece.token_ids) for piece in delta.prompt_logprobs] == [2]
        assert scene.gateway.vocabulary is None
        with pytest.raises(UnsupportedFeature):
            scene.gateway.tokenizer.decode([1])
