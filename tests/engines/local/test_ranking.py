import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.ranking import COUNTED_RANKS, ranks_of, top_ids


def random_logits(seed: int, rows: int, vocabulary: int, levels: int) -> torch.Tensor:
    """Logits of few distinct values, both zeros among them: nearly every place is tied."""
    torch.manual_seed(seed)
    logits = torch.randint(-levels, levels + 1, (rows, vocabulary)).float() / 4
    return torch.where(torch.rand(rows, vocabulary) < 0.5, logits, logits * -1)


def order_of(row: torch.Tensor) -> list[int]:
    values = row.tolist()
    return sorted(range(len(values)), key=lambda id_: (-values[id_], id_))


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 4),
    vocabulary=st.integers(1, 1200),
    levels=st.integers(0, 40),
    data=st.data(),
)
@settings(deadline=None, max_examples=50)
def test_the_best_ids_are_those_of_a_full_sort(
    seed: int, rows: int, vocabulary: int, levels: int, data: st.DataObject
) -> None:
    logits = random_logits(seed, rows, vocabulary, levels)
    k = data.draw(st.integers(1, min(vocabulary, 5)) | st.just(vocabulary))
    assert top_ids(logits, k).tolist() == [order_of(row)[:k] for row in logits]


@given(seed=st.integers(0, 2**32), vocabulary=st.integers(1, 700), levels=st.integers(0, 40))
@settings(deadline=None, max_examples=50)
def test_ranks_are_places_in_that_order(seed: int, vocabulary: int, levels: int) -> None:
    logits = random_logits(seed, 2, vocabulary, levels)
    places = [{id_: place for place, id_ in enumerate(order_of(row), 1)} for row in logits]
    ranks = torch.tensor([[of[id_] for id_ in range(vocabulary)] for of in places])
    few = torch.randint(vocabulary, (2, 3))
    many = torch.randint(vocabulary, (2, COUNTED_RANKS + 1))
    assert ranks_of(logits, few).equal(ranks.gather(1, few))
    assert ranks_of(logits, many).equal(ranks.gather(1, many))


def test_masked_tokens_come_last_and_nan_stays_within_the_vocabulary() -> None:
    logits = torch.full((3, 1000), -torch.inf)
    logits[1] = torch.nan
    logits[2] = -torch.tensor(torch.nan).abs()
    logits[0, 999] = 1.0
    assert top_ids(logits[:1], 3).tolist() == [[999, 0, 1]]
    assert top_ids(logits, 3).max() < 1000


@pytest.mark.parametrize("count", [0, 1])
def test_no_ids_have_no_ranks(count: int) -> None:
    assert ranks_of(torch.zeros(2, 5), torch.zeros(2, count, dtype=torch.long)).tolist() == [[1] * count] * 2
