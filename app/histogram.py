"""A histogram as a bare array of counts: an observation costs a bisection and two additions, and no label look-up."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """Counts of values by rising upper edges, the last bucket without one. Written by one thread, read by any."""

    __slots__ = ("_counts", "_edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = tuple(edges)
        self._counts = [0] * (len(self._edges) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; an edge belongs to the bucket that it closes."""
        self._counts[bisect_left(self._edges, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Count a value that was seen `times` times."""
        self._counts[bisect_left(self._edges, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by edge as the exposition formats want them, `+Inf` last."""
        names = [*map(repr, self._edges), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts.copy())), strict=True))
