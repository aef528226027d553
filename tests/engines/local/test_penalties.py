from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from engines.local.penalties import LogitEdits, TokenCounts
from engines.protocol import SamplingParams

VOCABULARY = 50
CPU = torch.device("cpu")
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=30)
PROMPTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)


def edited(params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
    edits = LogitEdits(params, prompt, [2, 7, VOCABULARY + 5], VOCABULARY, CPU)
    for token in output:
        edits.record(token)
    row = logits.clone()
    edits.apply(row)
    return row


def theirs(processor: Any, prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = processor(torch.tensor([prompt + output]), logits[None].clone())
    return result[0]


def random_logits() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(VOCABULARY) * 4


@given(prompt=PROMPTS, output=TOKENS, penalty=st.floats(0.1, 3.0))
@settings(deadline=None, max_examples=50)
def test_repetition_penalty_is_that_of_transformers(prompt: list[int], output: list[int], penalty: float) -> None:
    logits = random_logits()
    ours = edited(SamplingParams(max_tokens=1, repetition_penalty=penalty), prompt, output, logits)
    assert ours.equal(theirs(RepetitionPenaltyLogitsProcessor(penalty), prompt, output, logits))


@given(prompt=PROMPTS, output=TOKENS, frequency=st.floats(-2, 2), presence=st.floats(-2, 2))
@settings(deadline=None, max_examples=50)
def test_frequency_and_presence_penalties_follow_the_published_formula(
    prompt: list[int], output: list[int], frequency: float, presence: float
) -> None:
    logits = random_logits()
    params = SamplingParams(max_tokens=1, frequency_penalty=frequency, presence_penalty=presence)
    expected = logits.clone()
    for token, count in Counter(output).items():
        expected[token] -= count * frequency + presence
    torch.testing.assert_close(edited(params, prompt, output, logits), expected)


@given(bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100, width=32), min_size=1))
@settings(deadline=None, max_examples=50)
def test_logit_bias_is_the_sequence_bias_of_transformers(bias: dict[int, float]) -> None:
    logits = random_logits()
    ours = edited(SamplingParams(max_tokens=1, logit_bias=bias), [1], [], logits)
    processor = SequenceBiasLogitsProcessor([[[id_], value] for id_, value in bias.items()])
    assert ours.equal(theirs(processor, [1], [], logits))


@given(output=st.lists(st.integers(0, VOCABULARY - 1), max_size=8), least=st.integers(0, 8))
@settings(deadline=None, max_examples=50)
def test_endings_are_forbidden_until_min_tokens(output: list[int], least: int) -> None:
    logits = random_logits()
    ours = edited(SamplingParams(max_tokens=9, min_tokens=least), [1, 3], output, logits)
    assert ours.equal(theirs(MinNewTokensLengthLogitsProcessor(2, least, [2, 7]), [1, 3], output, logits))


@pytest.mark.parametrize(
    ("changes", "active"),
    [
        ({}, False),
        ({"min_tokens": 1}, True),
        ({"logit_bias": {3: 1.0}}, True),
        ({"repetition_penalty": 1.2}, True),
        ({"frequency_penalty": 0.5}, True),
        ({"presence_penalty": 0.5}, True),
    ],
)
def test_only_wishes_are_active(changes: dict[str, Any], active: bool) -> None:
    edits = LogitEdits(SamplingParams(max_tokens=5, **changes), [1], [2], VOCABULARY, CPU)
    assert edits.active is active


def test_min_tokens_is_over_once_reached() -> None:
    edits = LogitEdits(SamplingParams(max_tokens=5, min_tokens=1), [1], [2], VOCABULARY, CPU)
    edits.record(4)
    assert not edits.active


@given(first=TOKENS, later=st.lists(st.integers(0, 1000), max_size=600))
@settings(deadline=None, max_examples=50)
def test_counts_grow_with_the_tokens(first: list[int], later: list[int]) -> None:
    counts = TokenCounts(first, CPU)
    for token in later:
        counts.add(token)
    given_counts = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    assert given_counts == Counter(first + later)
