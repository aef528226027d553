"""A reader of event streams as strict as the strictest client: what it accepts, all clients accept."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

DONE = b"[DONE]"


class BrokenStream(AssertionError):
    """The bytes are no stream of events in the form that clients survive."""


class Event(msgspec.Struct, frozen=True):
    """One block of a stream: the data of a `data:` line, or the text of a comment."""

    data: bytes | None = None
    comment: str | None = None

    @property
    def done(self) -> bool:
        """Whether this is the end mark."""
        return self.data == DONE

    @property
    def json(self) -> Any:
        """The data, read strictly."""
        if self.data is None:
            raise BrokenStream(f"a comment, not data: {self.comment!r}")
        return strict_json(self.data)


def strict_json(data: bytes) -> Any:
    """Parse JSON as RFC 8259 has it: UTF-8, no NaN, no Infinity, no key twice, no lone surrogate."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise BrokenStream(f"a key stands twice: {keys}")
        return dict(pairs)

    def refuse(literal: str) -> NoReturn:
        raise BrokenStream(f"{literal} is no JSON")

    text = data.decode("utf-8")
    value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def event_of(block: bytes) -> Event:
    """Read one block, without its closing blank line."""
    text = block.decode("utf-8")
    if text.splitlines() != [text]:
        raise BrokenStream(f"an event is one line for every line splitter: {text!r}")
    if text.startswith("data: "):
        return Event(data=block[len(b"data: ") :])
    if text.startswith(":"):
        return Event(comment=text[1:].strip())
    raise BrokenStream(f"neither data nor a comment: {text!r}")


class EventReader:
    """Cuts bytes, in whatever pieces they come, into events."""

    def __init__(self) -> None:
        self._pending = b""
        self._done = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that `data` completes. BrokenStream if anything follows the end mark."""
        *blocks, self._pending = (self._pending + data).split(b"\n\n")
        for block in blocks:
            if self._done:
                raise BrokenStream(f"after the end: {block!r}")
            event = event_of(block)
            self._done = event.done
            yield event

    def close(self) -> None:
        """Take note that the body ended. BrokenStream if that was within an event or before the end mark."""
        if self._pending:
            raise BrokenStream(f"cut within an event: {self._pending!r}")
        if not self._done:
            raise BrokenStream("the stream ended without its end mark")
