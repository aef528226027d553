"""Log-probabilities as JSON numbers."""

from collections.abc import Sequence

import orjson

FLOOR = -9999.0
"""What stands for minus infinity: OpenAI's documented value for "not among the likely ones"."""


def floor(values: list[float]) -> list[float]:
    """Raise what lies below FLOOR, -inf too, to FLOOR."""
    if not values or min(values) >= FLOOR:
        return values
    return [max(value, FLOOR) for value in values]


def number_texts(values: Sequence[float]) -> list[bytes]:
    """Each value as the shortest decimal that reads back as the same double. No value may be NaN."""
    if len(values) == 1:
        return [orjson.dumps(max(values[0], FLOOR))]
    if not values:
        return []
    return orjson.dumps(floor(list(values)))[1:-1].split(b",")
