from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from engines.local.truncation import keep_min_p, keep_top_k, keep_top_p

SEEDS = st.integers(0, 2**32)
SCALES = st.sampled_from([0.1, 1.0, 3.0, 8.0])
NO_IDS: Any = torch.zeros(1, 1, dtype=torch.long)


def random_logits(seed: int, rows: int, scale: float, vocabulary: int = 6000) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(rows, vocabulary) * scale


def support_of(logits: torch.Tensor) -> list[int]:
    return [int(count) for count in (logits > -torch.inf).sum(-1)]


@given(seed=SEEDS, scale=SCALES, top_k=st.lists(st.integers(1, 7000), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_top_k_is_that_of_transformers(seed: int, scale: float, top_k: list[int]) -> None:
    logits = random_logits(seed, len(top_k), scale)
    expected = torch.cat([TopKLogitsWarper(k)(NO_IDS, row[None]) for k, row in zip(top_k, logits, strict=True)])
    keep_top_k(logits, torch.tensor(top_k))
    assert logits.equal(expected)


@given(seed=SEEDS, scale=SCALES, top_p=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_top_p_is_that_of_transformers(seed: int, scale: float, top_p: list[float]) -> None:
    logits = random_logits(seed, len(top_p), scale).double()
    expected = torch.cat([TopPLogitsWarper(p)(NO_IDS, row[None]) for p, row in zip(top_p, logits, strict=True)])
    ours = logits.clone()
    keep_top_p(ours, torch.tensor(top_p, dtype=torch.double))
    assert ours.equal(expected)


def test_top_p_keeps_one_token_and_all_that_tie_with_the_last() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0], [9.0, 0.0, 0.0, 0.0, 0.0]])
    keep_top_p(logits, torch.tensor([0.7, 0.001]))
    assert (logits > -torch.inf).tolist() == [[False, True, True, True, False], [True, False, False, False, False]]


@pytest.mark.parametrize("spread", [0.0, 1e-6])
def test_a_flat_distribution_is_followed_to_its_end(spread: float) -> None:
    logits = torch.linspace(0, spread, 6000).repeat(2, 1)
    keep_top_p(logits, torch.tensor([0.999, 0.5]))
    whole = 6000 if spread == 0.0 else 5994
    assert support_of(logits)[0] == pytest.approx(whole, abs=200)


@given(seed=SEEDS, scale=SCALES, min_p=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_min_p_is_that_of_transformers(seed: int, scale: float, min_p: list[float]) -> None:
    logits = random_logits(seed, len(min_p), scale).double()
    expected = torch.cat([MinPLogitsWarper(p)(NO_IDS, row[None]) for p, row in zip(min_p, logits, strict=True)])
    keep_min_p(logits, torch.tensor(min_p, dtype=torch.double))
    assert logits.equal(expected)
