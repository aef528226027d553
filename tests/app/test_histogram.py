import math

from hypothesis import given
from hypothesis import strategies as st

from app.histogram import Histogram

EDGES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20, unique=True).map(sorted)
VALUES = st.lists(st.floats(0, 1e7), max_size=50)


def test_an_edge_closes_its_bucket() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert histogram.total == 7.5


@given(EDGES, VALUES)
def test_each_bucket_counts_the_values_up_to_its_edge(edges: list[float], values: list[float]) -> None:
    histogram = Histogram(edges)
    for value in values:
        histogram.observe(value)
    buckets = histogram.buckets()
    assert [float(name) for name, _ in buckets] == [*edges, math.inf]
    assert [count for _, count in buckets] == [sum(value <= edge for value in values) for edge in [*edges, math.inf]]
    assert math.isclose(histogram.total, math.fsum(values), abs_tol=1e-6)


@given(EDGES, st.floats(0, 1e7), st.integers(1, 20))
def test_many_at_once_are_many_one_by_one(edges: list[float], value: float, times: int) -> None:
    at_once, one_by_one = Histogram(edges), Histogram(edges)
    at_once.observe_many(value, times)
    for _ in range(times):
        one_by_one.observe(value)
    assert at_once.buckets() == one_by_one.buckets()
    assert math.isclose(at_once.total, one_by_one.total, rel_tol=1e-9)
