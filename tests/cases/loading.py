"""The cases that broke other servers, read from cases.jsonl.

A body may hold two shorthands that keep big inputs small on disk: `{"$repeat": x, "times": n}` is x n times, joined
(a string) or chained (a list); `{"$nest": x, "depth": n}` is n lists around x.
"""

from functools import cache
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

FILE = Path(__file__).parent / "cases.jsonl"


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One request, or what to do in words. `raw` is a body that is no JSON."""

    method: str = "POST"
    path: str = ""
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()
    raw: str = ""
    steps: str = ""

    @classmethod
    def of(cls, path: str, body: dict[str, Any]) -> Self:
        """A POST like those of the cases."""
        return cls(path=path, body=msgspec.Raw(msgspec.json.encode(body)))

    @property
    def json(self) -> dict[str, Json]:
        """The body, shorthands expanded. ValueError if the case has none."""
        value = expand(msgspec.json.decode(self.body)) if bytes(self.body) else None
        if not isinstance(value, dict):
            raise ValueError("the case has no JSON body")
        return value


class Inputs(Input, frozen=True, kw_only=True):
    """One request at the top level or several in `requests`."""

    requests: list[Input] = []


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An input that some server got wrong, and the right behaviour in words."""

    id: str
    theme: str
    symptom: str
    expected: str
    kind: str
    minimal_input: Inputs

    @property
    def requests(self) -> list[Input]:
        """The requests of the case; none if it is told in words only."""
        given = self.minimal_input
        return given.requests or ([given] if given.path else [])

    @property
    def request(self) -> Input:
        """The one request of a case that has one."""
        (only,) = self.requests
        return only


def expand(value: Json) -> Json:
    """Write out the shorthands, inner ones first."""
    if isinstance(value, list):
        return [expand(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$repeat", "times"}:
        return repeated(expand(value["$repeat"]), value["times"])
    if value.keys() == {"$nest", "depth"}:
        return nested(expand(value["$nest"]), value["depth"])
    return {key: expand(item) for key, item in value.items()}


def repeated(value: Json, times: Json) -> Json:
    """A string or a list, `times` times."""
    if not isinstance(times, int) or not isinstance(value, str | list):
        raise TypeError(f"$repeat takes a string or a list and a whole number, not {type(value)} and {type(times)}")
    return value * times


def nested(value: Json, depth: Json) -> Json:
    """A value inside `depth` lists."""
    if not isinstance(depth, int):
        raise TypeError(f"depth is a whole number, not {type(depth)}")
    for _ in range(depth):
        value = [value]
    return value


@cache
def load() -> dict[str, Case]:
    """All cases by id, in the order of the file."""
    cases = [msgspec.json.decode(line, type=Case) for line in FILE.read_bytes().splitlines()]
    by_id = {case.id: case for case in cases}
    if len(by_id) != len(cases):
        raise ValueError("a case id stands twice in cases.jsonl")
    return by_id
