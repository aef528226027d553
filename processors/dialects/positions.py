"""A run of positions with logprobs as the renderers of text dialects take it, of output and of prompts alike."""

from collections.abc import Sequence

import msgspec

from engines.protocol import PromptLogprobs
from processors.delta import Logprobs
from processors.dialects.numbers import number_texts
from processors.limits import WHOLE_VOCABULARY


class Shown(msgspec.Struct, frozen=True):
    """Which alternatives are shown: the `top_k` most likely of those that the engine sent, or the chosen ids.

    A top_k of WHOLE_VOCABULARY shows all that the engine sent.

    ordered: chosen ids come most likely first, instead of in the order that they were asked for.
    """

    top_k: int
    chosen: tuple[int, ...] = ()
    ordered: bool = False

    def width(self, sent: int) -> int:
        """Alternatives a position, of which the engine sent so many."""
        if self.chosen:
            return len(self.chosen)
        return sent if self.top_k == WHOLE_VOCABULARY else self.top_k


class Positions(msgspec.Struct, gc=False):
    """Numbers are JSON texts. ids, numbers: `width` alternatives a position, flat, in the order they are shown."""

    token_ids: Sequence[int]
    values: Sequence[bytes]
    ranks: Sequence[int]
    width: int
    ids: Sequence[int]
    numbers: Sequence[bytes]


def output_positions(token_ids: Sequence[int], logprobs: Logprobs, shown: Shown) -> Positions:
    """Positions of generated tokens."""
    width = shown.width(logprobs.top_k)
    if shown.chosen:
        ids, values = _chosen(logprobs.chosen_values, shown)
    elif width == logprobs.top_k:
        ids, values = logprobs.top_ids, logprobs.top_values
    else:
        ids, values = _narrowed(logprobs.top_ids, logprobs.top_values, logprobs.top_k, width)
    return Positions(token_ids, number_texts(logprobs.values), logprobs.ranks, width, ids, number_texts(values))


def prompt_positions(piece: PromptLogprobs, shown: Shown) -> tuple[int, Positions]:
    """How many positions of a piece lead without logprobs (0 or 1), and the others."""
    known = [value for value in piece.values if value is not None]
    absent = len(piece.values) - len(known)
    width = shown.width(piece.top_k)
    if shown.chosen:
        ids, values = _chosen(piece.chosen_values, shown)
    else:
        ids, values = _narrowed(piece.top_ids, piece.top_values, piece.top_k, width)
    return absent, Positions(
        piece.token_ids[absent:], number_texts(known), piece.ranks[absent:], width, ids, number_texts(values)
    )


def _chosen(values: Sequence[float], shown: Shown) -> tuple[Sequence[int], Sequence[float]]:
    width = len(shown.chosen)
    ids = list(shown.chosen) * (len(values) // width)
    if not shown.ordered:
        return ids, values
    places = [
        place
        for start in range(0, len(values), width)
        for place in sorted(range(start, start + width), key=lambda place: -values[place])
    ]
    return [ids[place] for place in places], [values[place] for place in places]


def _narrowed(
    ids: Sequence[int], values: Sequence[float], width: int, wanted: int
) -> tuple[Sequence[int], Sequence[float]]:
    """The first `wanted` of every `width`: an engine is asked once for the most that any block of an answer shows."""
    if wanted >= width:
        return ids, values
    places = [start + place for start in range(0, len(ids), width) for place in range(wanted)]
    return [ids[place] for place in places], [values[place] for place in places]
