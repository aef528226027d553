import itertools
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.scripted.values import Distribution, ListedValues, Values, ZipfValues


def check_total_order(distribution: Distribution, vocab_size: int) -> None:
    ids, values = distribution.top(vocab_size)
    assert sorted(ids) == list(range(vocab_size))
    assert [distribution.rank(token_id) for token_id in ids] == list(range(1, vocab_size + 1))
    assert [distribution.value(token_id) for token_id in ids] == values
    assert values == sorted(values, reverse=True)
    for k in {0, 1, 2, vocab_size // 2, vocab_size + 3}:
        assert distribution.top(k) == (ids[:k], values[:k])


@given(
    vocab_size=st.integers(1, 300),
    seed=st.integers(0, 2**70),
    position=st.integers(0, 10**6),
    prompt=st.booleans(),
    data=st.data(),
)
def test_zipf_is_a_normalized_total_order(
    vocab_size: int, seed: int, position: int, prompt: bool, data: st.DataObject
) -> None:
    token_id = data.draw(st.integers(0, vocab_size - 1))
    distribution = ZipfValues(seed=seed).at(position, token_id, vocab_size, prompt=prompt)
    check_total_order(distribution, vocab_size)
    total = math.fsum(math.exp(distribution.value(other)) for other in range(vocab_size))
    assert total == pytest.approx(1.0)


def test_zipf_ranks_of_sampled_ids_spread() -> None:
    ranks = [ZipfValues().at(position, 7, 50_000).rank(7) for position in range(2000)]
    assert ranks.count(1) == pytest.approx(1000, abs=150)
    assert sum(rank > 20 for rank in ranks) == pytest.approx(2000 / 21, abs=40)


def test_zipf_depends_on_seed_position_and_side() -> None:
    def columns(seed: int, prompt: bool) -> list[float]:
        return [ZipfValues(seed=seed).at(place, 7, 1000, prompt=prompt).value(7) for place in range(50)]

    variants = [columns(0, False), columns(1, False), columns(0, True)]
    assert columns(0, False) == variants[0]
    assert all(one != other for one, other in itertools.combinations(variants, 2))
    assert len(set(variants[0])) > 10


LISTED = st.floats(-20, 0) | st.just(-math.inf) | st.sampled_from([-1.0, -2.0])


@given(data=st.data(), vocab_size=st.integers(1, 30), rest=LISTED)
def test_listed_values_are_a_total_order_with_ties(data: st.DataObject, vocab_size: int, rest: float) -> None:
    listed = data.draw(st.dictionaries(st.integers(0, vocab_size - 1), LISTED))
    distribution = ListedValues([listed], rest=rest).at(0, 0, vocab_size)
    check_total_order(distribution, vocab_size)
    whole = [listed.get(token_id, rest) for token_id in range(vocab_size)]
    assert distribution.top(vocab_size)[0] == sorted(range(vocab_size), key=lambda token_id: -whole[token_id])


def test_listed_positions_begin_again_and_prompts_may_have_their_own() -> None:
    values = ListedValues([{1: -1.0}, {1: -2.0}])
    assert [values.at(place, 1, 9).value(1) for place in range(4)] == [-1.0, -2.0, -1.0, -2.0]
    assert values.at(1, 1, 9, prompt=True).value(1) == -2.0
    apart = ListedValues([{1: -1.0}], prompt=[{1: -5.0}])
    assert apart.at(3, 1, 9, prompt=True).value(1) == -5.0
    assert apart.at(3, 1, 9).value(1) == -1.0


@pytest.mark.parametrize("values", [lambda: ListedValues([]), lambda: ListedValues([{1: math.nan}])])
def test_listed_values_are_numbers_and_some(values: object) -> None:
    assert callable(values)
    with pytest.raises(ValueError, match="listed values"):
        values()


def test_values_travel_as_json() -> None:
    for values in (ZipfValues(seed=3), ListedValues([{4: -0.5}], rest=-9.0)):
        assert msgspec.json.decode(msgspec.json.encode(values), type=Values) == values
