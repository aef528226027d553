"""The engine as it is started: the small real model against transformers, and what options do."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.local.engine_core import EngineCore
from engines.local.load_error import ModelLoadError
from engines.local.options import CONTEXT_CAP, LocalEngineOptions
from engines.local.start_up import build_core, context_length
from engines.local.step_output import StepOutput
from engines.protocol import Finish, FinishKind, LogprobParams
from tests.engines.local.prompt_truth import check_prompt, join_pieces
from tests.engines.local.requests import drawn, greedy, measured
from tests.engines.local.tiny_models import CONTEXT, loaded, tiny_config, tiny_model

TEXTS = [
    "The capital of France is",
    "In 1969, the first",
    "def fibonacci(n):\n    ",
    "Water boils at 100",
    "Once upon a time there was a",
    "1, 2, 3, 4,",
    "The three primary colours are",
    "naïve café — 🙂 means",
]
CHOSEN = (0, 28, 260, 5000)


def test_the_context_is_the_models_own_up_to_a_cap_or_what_is_asked() -> None:
    tiny = loaded(tiny_model(tiny_config()))
    assert context_length(tiny, LocalEngineOptions()) == CONTEXT <= CONTEXT_CAP
    assert context_length(tiny, LocalEngineOptions(max_model_len=5)) == 5
    with pytest.raises(ModelLoadError, match="context"):
        context_length(tiny, LocalEngineOptions(max_model_len=CONTEXT + 1))


@pytest.fixture(scope="module")
def core(small_model_dir: Path) -> EngineCore:
    options = LocalEngineOptions(model=str(small_model_dir), dtype="float32", threads=1)
    return build_core(options, lambda line: None)[0]


@pytest.fixture(scope="module")
def plain(small_model_dir: Path) -> Any:
    build: Any = AutoModelForCausalLM
    return build.from_pretrained(small_model_dir, dtype=torch.float32)


@pytest.fixture(scope="module")
def prompts(small_model_dir: Path) -> list[list[int]]:
    build: Any = AutoTokenizer
    tokenizer = build.from_pretrained(small_model_dir)
    return [tokenizer(text)["input_ids"] for text in TEXTS]


def run(core: EngineCore) -> dict[str, list[StepOutput]]:
    rows: dict[str, list[StepOutput]] = defaultdict(list)
    while core.busy:
        for output in core.step():
            rows[output.request_id].append(output)
    return rows


def tokens_of(rows: list[StepOutput]) -> list[int]:
    return [row.token for row in rows if row.token is not None]


@pytest.mark.model
@pytest.mark.parametrize("company", [0, 7])
def test_tokens_and_logprobs_are_those_of_transformers(
    core: EngineCore, plain: Any, prompts: list[list[int]], company: int
) -> None:
    prompt, wish = prompts[0], LogprobParams(top_k=20, token_ids=CHOSEN)
    core.submit(b"a", measured("x", prompt, 24, wish))
    for other in range(company):
        core.submit(b"a", drawn(str(other), prompts[other + 1], 30, seed=other))
    rows = run(core)["x"]
    ids = tokens_of(rows)
    with torch.inference_mode():
        logits = plain(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    expected = logits.float().log_softmax(-1)
    for place, (row, here) in enumerate(zip(rows, expected, strict=True)):
        position = row.logprobs
        assert position is not None
        assert row.token is not None
        best = here.topk(2).values
        if best[0] - best[1] > 1e-3:
            assert row.token == here.argmax(), f"position {place}"
        torch.testing.assert_close(torch.tensor(position.top_values), here.topk(20).values, rtol=0, atol=1e-3)
        named = [row.token, *position.top_ids, *CHOSEN]
        values = torch.tensor([position.value, *position.top_values, *position.chosen_values])
        torch.testing.assert_close(values, here[named], rtol=0, atol=1e-3)
        for id_, rank in zip(CHOSEN, position.chosen_ranks, strict=True):
            above, below = ((here > here[id_] + sign * 1e-3).sum() + 1 for sign in (1, -1))
            assert above <= rank <= below
    made = plain.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
    gaps = expected.topk(2).values
    if (gaps[:, 0] - gaps[:, 1]).min() > 1e-3:
        assert ids == made[0, len(prompt) :].tolist()


@pytest.mark.model
def test_prompt_logprobs_are_those_of_transformers_cold_and_cached(
    core: EngineCore, plain: Any, prompts: list[list[int]]
) -> None:
    prompt = [id_ for ids in prompts for id_ in ids] * 3
    with torch.inference_mode():
        logits = plain(torch.tensor([prompt])).logits[0].float()
    for start, cached in ((0, 0), (0, 0), (len(prompt) // 2, len(prompt) // 2), (7, 7), (len(prompt) - 1,) * 2):
        wish, before = LogprobParams(top_k=20, token_ids=CHOSEN, prompt_start=start), core.computed_tokens
        core.submit(b"a", measured("x", prompt, 0, wish))
        rows = run(core)["x"]
        check_prompt(join_pieces(rows), prompt, wish, logits, 1e-3)
        assert rows[-1].finish == Finish(FinishKind.LENGTH)
        assert rows[-1].cached_tokens == cached
        assert core.computed_tokens - before == len(prompt) - cached


@pytest.mark.model
def test_running_rows_are_in_every_step_of_a_prefill_of_4000_tokens(core: EngineCore, prompts: list[list[int]]) -> None:
    core.submit(b"a", greedy("running", prompts[0], 40))
    core.step()
    core.submit(b"a", greedy("long", (prompts[1] * 1000)[:4000], 1))
    steps = 0
    while core.busy:
        ids = {output.request_id for output in core.step()}
        steps += 1
        assert "running" in ids
        if "long" in ids:
            break
    assert steps == 16
    core.drop(b"a")


@pytest.mark.model
def test_a_seed_gives_the_same_tokens_alone_and_among_7_others(core: EngineCore, prompts: list[list[int]]) -> None:
    results = []
    for company in (0, 7):
        for other in range(company):
            core.submit(b"a", drawn(str(other), prompts[other], 20, seed=None))
        core.submit(b"a", drawn("x", prompts[7], 20, seed=11, temperature=0.8, top_p=0.95))
        results.append(tokens_of(run(core)["x"]))
    assert results[0] == results[1]
