import math

from hypothesis import example, given
from hypothesis import strategies as st

from processors.dialects.numbers import FLOOR, number_texts
from tests.sse import strict_json


@given(st.lists(st.floats(allow_nan=False, max_value=0.0)))
@example(values=[-0.0, -5e-324, -1.7976931348623157e308, -0.1, -1e-7, -1e22, -1.3287749290466309])
def test_law_6_each_number_reads_back_as_the_same_double_or_the_floor(values: list[float]) -> None:
    texts = number_texts(values)
    assert [strict_json(text) for text in texts] == [max(value, -9999.0) for value in values]


@given(st.lists(st.floats(width=32, min_value=-50.0, max_value=0.0), min_size=1))
def test_law_5_a_value_is_written_the_same_whatever_stands_beside_it(values: list[float]) -> None:
    assert number_texts(values) == [number_texts([value])[0] for value in values]
    assert number_texts([*values, -math.inf])[:-1] == number_texts(values)


def test_minus_infinity_is_the_documented_sentinel() -> None:
    assert FLOOR == -9999.0
    assert number_texts([-math.inf, -9999.0, -10000.0, -1.0]) == [b"-9999.0"] * 3 + [b"-1.0"]
    assert number_texts([]) == []
