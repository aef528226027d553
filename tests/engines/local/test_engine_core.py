"""The step, with the real runner over a tiny random model."""

import pytest
import torch

from engines.protocol import Finish, FinishKind, LogprobParams, LogprobsMode
from tests.engines.local.core_bench import PLAIN, PROMPTS, A, B, Bench, generated
from tests.engines.local.requests import drawn, greedy, measured
from tests.engines.local.tiny_models import CONTEXT, plain_logits


def test_greedy_tokens_are_those_of_the_plain_model_in_any_company() -> None:
    bench = Bench()
    bench.run(*(greedy(str(row), prompt, 12) for row, prompt in enumerate(PROMPTS)))
    for row, prompt in enumerate(PROMPTS):
        assert bench.tokens(str(row)) == generated(prompt, 12)
        assert bench.finish(str(row)) == Finish(FinishKind.LENGTH)
        totals = [(out.prompt_tokens, out.completion_tokens, out.cached_tokens) for out in bench.rows[A, str(row)]]
        assert totals == [(len(prompt), count, 0) for count in range(1, 13)]
    assert not bench.runner.held


def test_staggered_requests_share_their_steps() -> None:
    bench = Bench()
    for row in range(8):
        bench.core.submit(A, greedy(str(row), PROMPTS[row][:10], 32))
        for _ in range(3):
            bench.step()
    while bench.core.busy:
        bench.step()
    assert all(len(bench.tokens(str(row))) == 32 for row in range(8))
    assert bench.core.steps <= 60


def test_running_rows_are_in_every_step_of_a_long_prefill() -> None:
    bench = Bench(prefill_tokens=4)
    bench.core.submit(A, greedy("running", [1, 2], 60))
    bench.step()
    bench.core.submit(A, greedy("long", [3] * 80, 1))
    for _ in range(20):
        assert "running" in {output.request_id for output in bench.step()}
    assert len(bench.tokens("long")) == 1


@pytest.mark.parametrize("mode", list(LogprobsMode))
def test_logprobs_are_those_of_a_plain_forward_pass_alone_and_among_others(mode: LogprobsMode) -> None:
    wish = LogprobParams(top_k=5, token_ids=(3, 60), mode=mode)
    request = measured("x", PROMPTS[2], 10, wish, logit_bias={9: 2.5})
    alone, among = Bench(), Bench()
    alone.run(request)
    among.run(*(drawn(str(row), PROMPTS[row], 14, row) for row in range(7)), request)
    logits = plain_logits(PLAIN, PROMPTS[2] + alone.tokens("x"))[len(PROMPTS[2]) - 1 : -1].clone()
    logits[:, 9] += 2.5 if mode is LogprobsMode.PROCESSED else 0.0
    expected = logits.log_softmax(-1)
    for bench in (alone, among):
        assert bench.tokens("x") == alone.tokens("x")
        for row, output in enumerate(bench.rows[A, "x"]):
            position = output.logprobs
            assert position is not None
            assert position.top_ids == expected[row].topk(5).indices.tolist()
            ids = [output.token, *position.top_ids, 3, 60]
            values = torch.tensor([position.value, *position.top_values, *position.chosen_values])
            torch.testing.assert_close(values, expected[row, ids], rtol=0, atol=1e-4)


def test_a_seed_gives_the_same_tokens_alone_and_among_others() -> None:
    request = drawn("x", PROMPTS[1], 30, seed=5, temperature=1.3, top_p=0.95)
    alone, among = Bench(), Bench()
    alone.run(request)
    among.run(*(drawn(str(row), PROMPTS[row], 30 - row, seed=row or None) for row in range(7)), request)
    assert alone.tokens("x") == among.tokens("x")


def test_an_abort_takes_effect_before_the_next_step() -> None:
    bench = Bench(slots=1)
    bench.core.submit(A, greedy("x", PROMPTS[0], 50))
    bench.core.submit(A, greedy("waiting", PROMPTS[0], 50))
    bench.step()
    bench.core.abort(A, ["x", "waiting", "unknown"])
    assert not bench.core.busy
    assert not bench.runner.held
    assert bench.step() == []


def test_gateways_do_not_touch_each_other() -> None:
    bench = Bench()
    bench.core.submit(A, greedy("x", PROMPTS[0], 5))
    bench.core.submit(B, greedy("x", PROMPTS[1], 5))
    bench.core.submit(A, greedy("y", [], 5))
    bench.core.drop(A)
    bench.run()
    assert (A, "x") not in bench.rows
    assert (A, "y") not in bench.rows
    assert bench.tokens("x", B) == generated(PROMPTS[1], 5)


def test_stop_ids_end_a_request_and_are_counted() -> None:
    tokens = generated(PROMPTS[3], 6)
    stop = next(token for token in tokens if tokens.index(token) >= 2)
    bench = Bench()
    bench.run(greedy("x", PROMPTS[3], 20, stop_token_ids=(stop,)))
    assert bench.tokens("x") == tokens[: tokens.index(stop) + 1]
    assert bench.finish("x") == Finish(FinishKind.STOP, matched=stop)


def test_the_models_end_is_obeyed_forbidden_or_ignored() -> None:
    force = {"logit_bias": {0: 100.0}}
    bench = Bench()
    bench.run(
        greedy("obeyed", PROMPTS[0], 5, ignore_eos=False, **force),
        greedy("forbidden", PROMPTS[0], 5, ignore_eos=False, min_tokens=3, **force),
        greedy("ignored", PROMPTS[0], 5, **force),
    )
    assert (bench.tokens("obeyed"), bench.finish("obeyed")) == ([0], Finish(FinishKind.STOP))
    assert len(bench.tokens("forbidden")) == 4
    assert bench.tokens("forbidden").index(0) == 3
    assert (bench.tokens("ignored"), bench.finish("ignored")) == ([0] * 5, Finish(FinishKind.LENGTH))


def test_the_context_and_zero_tokens_are_ends_of_length() -> None:
    bench = Bench(prefill_tokens=1000)
    bench.run(greedy("long", [1] * (CONTEXT - 3), 50), greedy("zero", [1, 2], 0))
    assert len(bench.tokens("long")) == 3
    assert bench.finish("long") == bench.finish("zero") == Finish(FinishKind.LENGTH)
    assert bench.tokens("zero") == []


def test_refusals_are_rows() -> None:
    bench = Bench(slots=1, queue_limit=1)
    for name in ("running", "queued", "one too many"):
        bench.core.submit(A, greedy(name, [1], 2))
    bench.core.submit(A, greedy("running", [1], 2))
    bench.core.submit(A, greedy("empty", [], 2))
    bench.run()
    codes = {name: finish.code if (finish := bench.finish(name)) else None for _, name in bench.rows}
    assert codes["one too many"] == "overloaded"
    assert codes["empty"] == "invalid_value"
    assert codes["queued"] == ""
    assert bench.rows[A, "running"][0].finish is not None


def test_invalid_logits_end_only_their_request() -> None:
    bench = Bench()
    for name in ("bad", "good"):
        bench.core.submit(A, measured(name, PROMPTS[0], 6, LogprobParams(top_k=2)))
    bench.step()
    bench.runner.poisoned = [0]
    bench.step()
    bench.runner.poisoned = []
    bench.run()
    finish = bench.finish("bad")
    assert finish is not None
    assert (finish.kind, finish.code) == (FinishKind.ERROR, "invalid_logits")
    assert bench.rows[A, "bad"][-1].logprobs is None
    assert len(bench.tokens("bad")) == 1
    assert bench.tokens("good") == generated(PROMPTS[0], 6)


def test_a_step_that_raises_ends_its_requests_and_the_next_one_works() -> None:
    bench = Bench(slots=2)
    for row in range(3):
        bench.core.submit(A, greedy(str(row), PROMPTS[row], 6))
    bench.step()
    bench.runner.raises = True
    bench.step()
    bench.runner.raises = False
    for name in ("0", "1"):
        finish = bench.finish(name)
        assert finish is not None
        assert (finish.kind, finish.code) == (FinishKind.ERROR, "engine_fault")
        assert "kernel" not in finish.message
    bench.run()
    assert bench.tokens("2") == generated(PROMPTS[2], 6)
    assert not bench.runner.held


def test_a_prefix_that_cannot_be_copied_ends_what_is_in_slots_and_the_next_one_works() -> None:
    bench = Bench(slots=2)
    bench.core.submit(A, greedy("running", PROMPTS[4], 60))
    bench.step()
    bench.step()
    for name in ("copying", "waiting"):
        bench.core.submit(A, greedy(name, PROMPTS[4], 6))
    bench.runner.raises = True
    bench.step()
    bench.runner.raises = False
    for name in ("running", "copying"):
        finish = bench.finish(name)
        assert finish is not None
        assert finish.code == "engine_fault"
    bench.run()
    assert bench.tokens("waiting") == generated(PROMPTS[4], 6)
    assert bench.rows[A, "waiting"][0].cached_tokens == 0
    assert not bench.runner.held
