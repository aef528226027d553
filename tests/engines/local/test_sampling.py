from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engines.local.penalties import LogitEdits
from engines.local.sampling import Sampler, draw, process
from engines.protocol import SamplingParams

CPU = torch.device("cpu")
VOCABULARY = 300
EOS = 2
PROMPT = [5, 6, 7, 5]
PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.just(9),
    min_tokens=st.integers(0, 2),
    temperature=st.floats(0.2, 2.0),
    top_p=st.just(1.0) | st.floats(0.1, 0.99),
    top_k=st.just(0) | st.integers(1, 80),
    min_p=st.just(0.0) | st.floats(0.01, 0.5),
    repetition_penalty=st.just(1.0) | st.floats(0.5, 2.0),
    logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-5, 5), max_size=3),
)


def chain_of_transformers(params: SamplingParams) -> LogitsProcessorList:
    """In the order in which `generate` applies them."""
    chain: list[Any] = []
    if params.logit_bias:
        chain.append(SequenceBiasLogitsProcessor([[[id_], bias] for id_, bias in params.logit_bias.items()]))
    chain.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    chain.append(MinNewTokensLengthLogitsProcessor(len(PROMPT), params.min_tokens, [EOS]))
    chain.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        chain.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        chain.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        chain.append(MinPLogitsWarper(params.min_p))
    return LogitsProcessorList(chain)


def edits_of(params: SamplingParams) -> LogitEdits:
    return LogitEdits(params, PROMPT, [EOS], VOCABULARY, CPU)


@given(wishes=st.lists(PARAMS, min_size=1, max_size=4), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_processed_logits_are_those_of_transformers_in_any_company(wishes: list[SamplingParams], seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(len(wishes), VOCABULARY) * 3
    before = logits.clone()
    ours = process(logits, wishes, [edits_of(params) for params in wishes])
    assert logits.equal(before)
    for params, row, result in zip(wishes, logits, ours, strict=True):
        ids: Any = torch.tensor([PROMPT])
        expected = chain_of_transformers(params)(ids, row[None].clone())[0]
        torch.testing.assert_close(result, expected)


def test_rows_without_wishes_are_not_copied() -> None:
    logits = torch.randn(2, VOCABULARY)
    params = [SamplingParams(max_tokens=1, temperature=0.0, top_k=3), SamplingParams(max_tokens=1)]
    assert process(logits, params, [edits_of(wish) for wish in params]) is logits


def test_greedy_takes_the_first_maximum_after_edits() -> None:
    sampler = Sampler(5, CPU)
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0, 2.0]] * 3)
    wishes = [
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, temperature=0.0, logit_bias={3: 9.0}),
        SamplingParams(max_tokens=1, temperature=0.0, min_tokens=1),
    ]
    sampled = sampler.sample(logits, [sampler.start(wish, [4], [1]) for wish in wishes])
    assert sampled.token_ids.tolist() == [1, 3, 2]
    assert sampled.valid.all()


def test_draws_follow_the_distribution() -> None:
    torch.manual_seed(3)
    logits = torch.randn(1, 200)
    logits[0, ::3] = -torch.inf
    probabilities = logits.softmax(-1)[0]
    drawn = draw(logits.expand(20_000, -1), torch.rand(20_000, dtype=torch.double))
    counts = torch.bincount(drawn, minlength=200)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    assert (
        chisquare(counts[possible].numpy(), (probabilities[possible] * 20_000).double().numpy(), sum_check=False).pvalue
        > 1e-4
    )


@given(
    values=st.lists(st.sampled_from([-torch.inf, -90.0, -3.0, 0.0, 4.0]), min_size=1, max_size=300),
    number=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None, max_examples=50)
def test_the_impossible_is_never_drawn(values: list[float], number: float) -> None:
    logits = torch.tensor([[*values, 4.0]])
    token = int(draw(logits, torch.tensor([number], dtype=torch.double)))
    assert logits.softmax(-1)[0, token] > 0


@pytest.mark.parametrize("seed", [0, 17, 2**64 - 1, -1])
def test_a_seed_gives_the_same_tokens_alone_and_among_others(seed: int) -> None:
    sampler = Sampler(VOCABULARY, CPU)
    torch.manual_seed(0)
    steps = torch.randn(20, 8, VOCABULARY)
    seeded = SamplingParams(max_tokens=20, seed=seed, top_p=0.9)
    alone, among = sampler.start(seeded, PROMPT, []), sampler.start(seeded, PROMPT, [])
    others = [sampler.start(SamplingParams(max_tokens=20, seed=other), PROMPT, []) for other in range(100, 106)]
    company = [*others[:3], among, *others[3:], sampler.start(SamplingParams(max_tokens=20), PROMPT, [])]
    first = [int(sampler.sample(step[3:4], [alone]).token_ids) for step in steps]
    second = [int(sampler.sample(step, company).token_ids[3]) for step in steps]
    assert first == second
    assert len(Counter(first)) > 5


def test_unseeded_requests_differ() -> None:
    logits = torch.zeros(1, VOCABULARY)
    runs = []
    for _ in range(2):
        sampler = Sampler(VOCABULARY, CPU)
        state = sampler.start(SamplingParams(max_tokens=20), PROMPT, [])
        runs.append([int(sampler.sample(logits, [state]).token_ids) for _ in range(10)])
    assert runs[0] != runs[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_rows_without_valid_numbers_are_marked(temperature: float, poison: float) -> None:
    sampler = Sampler(VOCABULARY, CPU)
    logits = torch.randn(3, VOCABULARY)
    logits[1, EOS] = poison
    logits[2] = -torch.inf
    params = SamplingParams(max_tokens=5, min_tokens=1, temperature=temperature)
    sampled = sampler.sample(logits, [sampler.start(params, PROMPT, [EOS]) for _ in range(3)])
    assert sampled.valid.tolist() == [True, False, False]
    assert sampled.token_ids.max() < VOCABULARY
