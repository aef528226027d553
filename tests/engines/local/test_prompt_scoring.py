"""Logprobs of prompts, through the core over a tiny random model: against a plain pass, cold and from the cache."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.prompt_scoring import PromptScorer
from engines.local.scheduler import Piece
from engines.protocol import Finish, FinishKind, LogprobParams, LogprobsMode
from tests.engines.local.core_bench import PLAIN, A, Bench, generated
from tests.engines.local.prompt_truth import check_prompt, join_pieces
from tests.engines.local.requests import drawn, greedy, measured
from tests.engines.local.sequences import sequence
from tests.engines.local.tiny_models import VOCABULARY, plain_logits

TOLERANCE = 1e-4
PROMPT = [(11 * place + place // 7) % VOCABULARY for place in range(80)]
IDS = st.integers(0, VOCABULARY - 1)
WISHES = st.builds(
    LogprobParams,
    top_k=st.integers(0, 6) | st.just(VOCABULARY),
    token_ids=st.lists(IDS, max_size=3).map(tuple),
    prompt_start=st.integers(0, 59),
    mode=st.sampled_from(LogprobsMode),
)
REQUESTS = st.lists(
    st.tuples(st.lists(IDS, min_size=1, max_size=60), WISHES, st.integers(0, 3)), min_size=1, max_size=4
)


@given(requests=REQUESTS, prefill_tokens=st.integers(1, 200), kept_tokens=st.sampled_from([0, 60, 1000]))
@settings(max_examples=40, deadline=None)
def test_any_start_in_any_chunking_cold_and_cached_is_a_plain_pass(
    requests: list[tuple[list[int], LogprobParams, int]], prefill_tokens: int, kept_tokens: int
) -> None:
    bench = Bench(slots=3, prefill_tokens=prefill_tokens, kept_tokens=kept_tokens)
    for turn in ("cold", "again"):
        wishes = {}
        for number, (prompt, drawn_wish, max_tokens) in enumerate(requests):
            start = min(drawn_wish.prompt_start or 0, len(prompt) - 1)
            wish = LogprobParams(
                top_k=drawn_wish.top_k, token_ids=drawn_wish.token_ids, prompt_start=start, mode=drawn_wish.mode
            )
            wishes[f"{turn} {number}"] = prompt, wish, max_tokens
        bench.run(
            *(
                measured(name, prompt, max_tokens, wish, temperature=0.7, seed=1)
                for name, (prompt, wish, max_tokens) in wishes.items()
            )
        )
        for name, (prompt, wish, max_tokens) in wishes.items():
            rows = bench.rows[A, name]
            check_prompt(join_pieces(rows), prompt, wish, plain_logits(PLAIN, prompt), TOLERANCE)
            assert len(bench.tokens(name)) == max_tokens
            assert rows[-1].finish == Finish(FinishKind.LENGTH)
            assert {row.cached_tokens <= (wish.prompt_start or 0) for row in rows} == {True}


@pytest.mark.parametrize("start", [0, 1, 40, 78, 79, 80])
def test_a_repeat_computes_what_is_not_cached_and_gives_the_same_values(start: int) -> None:
    bench = Bench(kept_tokens=1000)
    wish = LogprobParams(top_k=4, token_ids=(7,), prompt_start=start)
    bench.run(measured("cold", PROMPT, 2, wish))
    assert bench.core.computed_tokens == bench.runner.ran == len(PROMPT) + 1
    bench.run(measured("again", PROMPT, 2, wish))
    cached = min(start, len(PROMPT) - 1)
    assert {row.cached_tokens for row in bench.rows[A, "again"]} == {cached}
    assert bench.core.computed_tokens == bench.runner.ran == 2 * (len(PROMPT) + 1) - cached
    if start == len(PROMPT):
        assert all(row.prompt is None for name in ("cold", "again") for row in bench.rows[A, name])
        return
    cold, again = (join_pieces(bench.rows[A, name]) for name in ("cold", "again"))
    assert (cold.token_ids, cold.ranks, cold.top_ids) == (again.token_ids, again.ranks, again.top_ids)
    for name in ("values", "top_values", "chosen_values"):
        ours, theirs = ([value or 0.0 for value in getattr(piece, name)] for piece in (cold, again))
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert bench.tokens("cold") == bench.tokens("again") == generated(PROMPT, 2)


def test_a_prompt_alone_is_scored_and_ends_by_length() -> None:
    bench = Bench(prefill_tokens=16)
    bench.run(measured("x", PROMPT, 0, LogprobParams(prompt_start=0)))
    rows = bench.rows[A, "x"]
    assert [len(row.prompt.token_ids) for row in rows if row.prompt is not None] == [9, *[8] * 8, 7]
    assert [row.finish for row in rows] == [None] * 9 + [Finish(FinishKind.LENGTH)]
    assert all((row.token, row.logprobs, row.completion_tokens) == (None, None, 0) for row in rows)
    assert sum(bench.runner.logits_rows) == len(PROMPT) - 1


def test_logits_come_in_bounded_blocks_that_prompts_share() -> None:
    bench = Bench(prefill_tokens=1000)
    prompts = [PROMPT[:30], PROMPT[5:], PROMPT[40:]]
    bench.run(*(measured(str(row), ids, 1, LogprobParams(prompt_start=0)) for row, ids in enumerate(prompts)))
    assert bench.runner.logits_rows == [64, 64, 14, 3]


def test_a_larger_vocabulary_makes_smaller_blocks() -> None:
    rows, vocabulary = list[int](), 1 << 20

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden))
        return torch.zeros(len(hidden), vocabulary)

    scored = sequence("x", PROMPT[:10], logprobs=LogprobParams(prompt_start=0))
    scores = PromptScorer(logits, vocabulary).score([Piece(scored, 10)], torch.zeros(10, 1))
    assert rows == [4, 4, 1]
    assert scores[0] is not None
    assert scores[0].logprobs.ranks == [0, *(id_ + 1 for id_ in PROMPT[1:10])]


def test_running_rows_are_in_every_step_while_a_prompt_is_scored() -> None:
    bench = Bench(prefill_tokens=8)
    bench.core.submit(A, greedy("running", [1, 2], 60))
    bench.step()
    bench.core.submit(A, measured("long", PROMPT, 1, LogprobParams(top_k=3, prompt_start=0)))
    before, steps = bench.runner.ran, 0
    while not bench.tokens("long"):
        assert "running" in {output.request_id for output in bench.step()}
        steps += 1
        assert bench.runner.ran - before <= 1 + 4
        before = bench.runner.ran
    assert steps == len(PROMPT) / 4


def test_an_abort_while_a_prompt_is_scored_leaves_what_serves_the_next() -> None:
    bench = Bench(prefill_tokens=8, kept_tokens=1000)
    wish = LogprobParams(prompt_start=0)
    bench.core.submit(A, measured("left", PROMPT, 1, wish))
    for _ in range(5):
        bench.step()
    bench.core.abort(A, ["left"])
    assert not bench.core.busy
    bench.run(greedy("next", PROMPT, 3))
    assert bench.rows[A, "next"][0].cached_tokens == 20
    assert bench.tokens("next") == generated(PROMPT, 3)


def test_invalid_logits_of_a_prompt_end_only_its_request_and_are_not_cached() -> None:
    bench = Bench(prefill_tokens=200, kept_tokens=1000)
    bench.runner.poisoned = [0]
    bench.core.submit(A, measured("bad", PROMPT[:20], 3, LogprobParams(prompt_start=0)))
    bench.step()
    bench.runner.poisoned = []
    finish = bench.finish("bad")
    assert finish is not None
    assert (finish.kind, finish.code) == (FinishKind.ERROR, "invalid_logits")
    assert bench.rows[A, "bad"][-1].prompt is None
    bench.run(measured("good", PROMPT[:20], 3, LogprobParams(prompt_start=0)), greedy("plain", PROMPT[:20], 3))
    assert bench.rows[A, "good"][0].cached_tokens == 0
    assert bench.tokens("good") == bench.tokens("plain") == generated(PROMPT[:20], 3)


def test_tokens_after_a_cached_prefix_are_those_of_a_cold_engine_in_any_company() -> None:
    bench = Bench(kept_tokens=1000)
    prompts = [PROMPT[: 10 + 8 * row] for row in range(8)]
    for turn in range(2):
        bench.run(
            *(greedy(f"{turn} {row}", ids, 6) for row, ids in enumerate(prompts)),
            *(drawn(f"drawn {turn} {row}", ids[1:], 9, seed=row) for row, ids in enumerate(prompts)),
        )
        for row, ids in enumerate(prompts):
            assert bench.tokens(f"{turn} {row}") == generated(ids, 6)
    assert sum(row.cached_tokens for row in bench.rows[A, "1 7"]) > 0
