"""SGLang's logprobs: lists of `[logprob, id, text]`, side by side for the token, the alternatives and the chosen ids.

The text is null unless it was asked for. A position without logprobs has null in the place of its number or list.
"""

from collections.abc import Sequence

import msgspec

from engines.protocol import PromptLogprobs
from processors.delta import Logprobs
from processors.dialects.numbers import number_texts
from processors.limits import WHOLE_VOCABULARY
from processors.vocabulary import Vocabulary


class TupleColumns(msgspec.Struct):
    """Rendered positions of one side, input or output: of the token itself, its alternatives, the chosen ids."""

    token: list[bytes] = []
    top: list[bytes] = []
    chosen: list[bytes] = []

    def extend(self, other: "TupleColumns") -> None:
        """Append later positions."""
        self.token += other.token
        self.top += other.top
        self.chosen += other.chosen

    def json(self, side: str, *, with_chosen: bool) -> bytes:
        """The members of meta_info, each with a comma before it; `side` is `input` or `output`."""
        members = b',"%b_token_logprobs":[%b],"%b_top_logprobs":[%b]' % (
            side.encode(),
            b",".join(self.token),
            side.encode(),
            b",".join(self.top),
        )
        if with_chosen:
            members += b',"%b_token_ids_logprobs":[%b]' % (side.encode(), b",".join(self.chosen))
        return members


class TupleLogprobs:
    """Renders positions into columns.

    top_k: alternatives to show, WHOLE_VOCABULARY for all that the engine sent; chosen: the ids that the request chose.
    """

    def __init__(
        self, vocabulary: Vocabulary | None, *, top_k: int, chosen: Sequence[int] = (), with_text: bool = False
    ) -> None:
        self._vocabulary = vocabulary if with_text else None
        self._top_k = top_k
        self._chosen = list(chosen)

    def output(self, token_ids: Sequence[int], logprobs: Logprobs) -> TupleColumns:
        """Columns of generated tokens."""
        columns = TupleColumns(token=self._tuples(token_ids, number_texts(logprobs.values)))
        if self._top_k:
            columns.top = self._lists(logprobs.top_ids, logprobs.top_values, logprobs.top_k)
        if self._chosen:
            columns.chosen = self._chosen_lists(logprobs.chosen_values)
        return columns

    def prompt(self, piece: PromptLogprobs) -> TupleColumns:
        """Columns of prompt positions."""
        known = [value for value in piece.values if value is not None]
        without = len(piece.values) - len(known)
        numbers = [b"null"] * without + number_texts(known)
        columns = TupleColumns(token=self._tuples(piece.token_ids, numbers))
        nulls = [b"null"] * without
        if self._top_k:
            columns.top = nulls + self._lists(piece.top_ids, piece.top_values, piece.top_k)
        if self._chosen:
            columns.chosen = nulls + self._chosen_lists(piece.chosen_values)
        return columns

    def _tuples(self, token_ids: Sequence[int], numbers: Sequence[bytes]) -> list[bytes]:
        if self._vocabulary is None:
            return [b"[%b,%d,null]" % pair for pair in zip(numbers, token_ids, strict=True)]
        display = self._vocabulary.display
        return [
            b"[%b,%d,%b]" % (number, token_id, display(token_id))
            for number, token_id in zip(numbers, token_ids, strict=True)
        ]

    def _chosen_lists(self, values: Sequence[float]) -> list[bytes]:
        width = len(self._chosen)
        return self._rows(self._tuples(self._chosen * (len(values) // width), number_texts(values)), width, width)

    def _lists(self, ids: Sequence[int], values: Sequence[float], width: int) -> list[bytes]:
        """One list of alternatives a position, of which the columns hold `width`."""
        shown = width if self._top_k == WHOLE_VOCABULARY else min(width, self._top_k)
        return self._rows(self._tuples(ids, number_texts(values)), width, shown)

    def _rows(self, tuples: Sequence[bytes], width: int, shown: int) -> list[bytes]:
        return [
            b"[" + b",".join(tuples[start : start + shown]) + b"]" for start in range(0, len(tuples), max(width, 1))
        ]
