"""What a dialect's renderer does: neutral deltas in, bytes of the wire out; the same pieces streamed and whole."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from engines.errors import TailraceError
from processors.delta import Delta


class PromptView(msgspec.Struct, frozen=True):
    """A prompt as answers show it: `text` is the given string, or the decoded ids.

    lengths: code points of `text` that each token stands for; needed where an echo has logprobs.
    """

    text: str
    token_ids: list[int]
    lengths: list[int] = []


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """What all events of one answer share. created: Unix time in seconds."""

    id: str
    created: int
    model: str
    fingerprint: str


class Renderer(Protocol):
    """Renders one answer with one or more choices. Events are whole: `data:` line and blank line.

    reports_aborts: whether an abort by the engine is an answer in this dialect; else it is an error.
    """

    @property
    def reports_aborts(self) -> bool:
        """Whether aborts are answers."""

    def start(self) -> bytes:
        """What goes out before the first delta."""

    def delta(self, index: int, delta: Delta) -> bytes:
        """The event of a choice's next delta."""

    def end(self) -> bytes:
        """What follows the last choice's finish, the end mark included."""

    def error(self, error: TailraceError) -> bytes:
        """The event of a failure amid the stream, the end mark included."""

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """The body of the answer that is not streamed, from each choice's merged delta."""
