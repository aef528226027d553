import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases.loading import Input, Json, expand, load

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
).filter(lambda value: expand(value) == value)


@given(plain)
def test_what_holds_no_shorthand_stays(value: Json) -> None:
    assert expand({"a": [value]}) == {"a": [value]}


@given(st.text(max_size=5) | st.lists(st.integers(), max_size=5), st.integers(0, 20))
def test_repeat_joins_strings_and_chains_lists(value: str | list[int], times: int) -> None:
    expanded = expand({"prompt": {"$repeat": list(value) if isinstance(value, list) else value, "times": times}})
    assert expanded == {"prompt": value * times}


@given(plain, st.integers(0, 50))
def test_nest_wraps_in_lists(value: Json, depth: int) -> None:
    expanded = expand({"$nest": value, "depth": depth})
    for _ in range(depth):
        assert isinstance(expanded, list)
        (expanded,) = expanded
    assert expanded == value


def test_shorthands_stand_in_one_another() -> None:
    assert expand({"$repeat": [{"$repeat": "ab", "times": 2}], "times": 2}) == ["abab", "abab"]
    assert expand({"$nest": {"$repeat": "x", "times": 3}, "depth": 1}) == ["xxx"]


@pytest.mark.parametrize(
    "value", [{"$repeat": 1, "times": 2}, {"$repeat": "a", "times": "2"}, {"$nest": 1, "depth": None}]
)
def test_a_shorthand_of_wrong_types_is_refused(value: Json) -> None:
    with pytest.raises(TypeError):
        expand(value)


def test_every_line_is_a_case_with_a_promise() -> None:
    cases = load()
    assert len(cases) == 49
    assert all(case.expected and case.symptom for case in cases.values())
    assert all(case.requests or case.minimal_input.steps for case in cases.values())


def test_a_case_gives_its_requests_expanded() -> None:
    cases = load()
    assert cases["LP-15"].request.json["prompt"] == "a " * 6000
    assert [request.method for request in cases["SE-06"].requests] == ["OPTIONS", "POST", "POST", "POST"]
    assert cases["SE-01"].requests[2].raw.endswith('"temperature":NaN}')
    assert cases["LP-17"].requests == []
    with pytest.raises(ValueError, match="no JSON body"):
        _ = Input(path="/").json
