"""Stop strings as requests write them: a text, a list of texts, or null."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_MOST_STOPS = 32
_LONGEST_STOP = 1024


def read_stops(value: Any) -> tuple[str, ...]:
    """The stop strings. ValueError for other types, an empty string, too many or too long ones."""
    stops = [value] if isinstance(value, str) else value
    if stops is None or stops == ():
        return ()
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise ValueError("must be a string or a list of strings")
    if len(stops) > _MOST_STOPS:
        raise ValueError(f"at most {_MOST_STOPS} stop strings are allowed")
    if not all(stops):
        raise ValueError("a stop string must not be empty")
    if max(map(len, stops), default=0) > _LONGEST_STOP:
        raise ValueError(f"a stop string may have at most {_LONGEST_STOP} characters")
    return tuple(stops)


_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": _LONGEST_STOP},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": _MOST_STOPS},
        {"type": "null"},
    ],
    "default": None,
}

Stops = Annotated[tuple[str, ...], BeforeValidator(read_stops), WithJsonSchema(_SCHEMA)]
