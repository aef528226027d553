"""Stop strings over a stream of text pieces.

The match that completes first in reading order wins, at the same end the longest; text is held back only while it is
a proper prefix of a stop string. Each stop string runs as a Knuth-Morris-Pratt automaton: constant work per
character, whatever the strings are.
"""

from collections.abc import Sequence

import msgspec


class StopMatch(msgspec.Struct, frozen=True):
    """A stop string found: `text` to release, the string, and where it ended in the piece fed."""

    text: str
    stop: str
    end: int


class StopMatcher:
    """Feeds pieces of text, releases what can't be part of a stop string any more.

    With include_stop the stop string itself is released too.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        self._stops = list(dict.fromkeys(stops))
        self._failures = [_failures(stop) for stop in self._stops]
        self._progress = [0] * len(self._stops)
        self._first = frozenset(stop[0] for stop in self._stops)
        self._include_stop = include_stop
        self._held = ""

    def feed(self, piece: str, *, armed: bool = True) -> str | StopMatch:
        """Take a piece; return the text to release, or the match that ends the stream.

        While not `armed` (min_tokens not reached) a complete match is passed over.
        """
        if not self._held and self._first.isdisjoint(piece):
            return piece
        for place, character in enumerate(piece):
            stop = self._advance(character)
            if stop is not None and armed:
                seen = self._held + piece[: place + 1]
                self._held = ""
                return StopMatch(seen if self._include_stop else seen[: len(seen) - len(stop)], stop, place + 1)
        text = self._held + piece
        kept = max(self._progress)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        """Release what is held: the stream ended without a match."""
        held, self._held = self._held, ""
        self._progress = [0] * len(self._stops)
        return held

    def _advance(self, character: str) -> str | None:
        """Move all automata by one character; return the longest stop string that it completes."""
        found: str | None = None
        for index, stop in enumerate(self._stops):
            failures = self._failures[index]
            matched = self._progress[index]
            while matched and stop[matched] != character:
                matched = failures[matched - 1]
            if stop[matched] == character:
                matched += 1
            if matched == len(stop):
                if found is None or len(stop) > len(found):
                    found = stop
                matched = failures[matched - 1]
            self._progress[index] = matched
        return found


def _failures(stop: str) -> list[int]:
    """For each prefix of the string, the length of its longest proper prefix that is also its suffix."""
    table = [0] * len(stop)
    matched = 0
    for place in range(1, len(stop)):
        while matched and stop[place] != stop[matched]:
            matched = table[matched - 1]
        if stop[place] == stop[matched]:
            matched += 1
        table[place] = matched
    return table
