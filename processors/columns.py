"""A cursor over the flat columns of a frame: cuts out the part of each row, row after row."""

import math

from engines.errors import InvalidLogits
from engines.protocol import BatchTokenOut, TokenLogprobs
from processors.delta import Logprobs


class TokenColumns:
    """Walks a frame's rows in order; every row must be taken, those of unknown requests too."""

    def __init__(self, frame: BatchTokenOut) -> None:
        self._counts = frame.token_counts
        self._token_ids = frame.token_ids
        self._at = 0

    def take(self, row: int) -> list[int]:
        """The row's token ids, a list of its own."""
        start, self._at = self._at, self._at + self._counts[row]
        return self._token_ids[start : self._at]


class LogprobColumns:
    """The same over the logprob columns."""

    def __init__(self, columns: TokenLogprobs) -> None:
        self._columns = columns
        self._entry_at = 0
        self._top_at = 0
        self._chosen_at = 0

    def take(self, row: int) -> Logprobs | None:
        """The row's entries, None where it has none. InvalidLogits if one of them is NaN."""
        columns = self._columns
        count = columns.counts[row]
        top_k = columns.top_counts[row] if columns.top_counts else 0
        chosen = columns.chosen_counts[row] if columns.chosen_counts else 0
        entry, self._entry_at = self._entry_at, self._entry_at + count
        top, self._top_at = self._top_at, self._top_at + count * top_k
        chosen_start, self._chosen_at = self._chosen_at, self._chosen_at + count * chosen
        if count == 0:
            return None
        logprobs = Logprobs(
            values=columns.values[entry : self._entry_at],
            ranks=columns.ranks[entry : self._entry_at],
            top_k=top_k,
            top_ids=columns.top_ids[top : self._top_at],
            top_values=columns.top_values[top : self._top_at],
            chosen=chosen,
            chosen_values=columns.chosen_values[chosen_start : self._chosen_at],
            chosen_ranks=columns.chosen_ranks[chosen_start : self._chosen_at],
        )
        if math.isnan(sum(logprobs.values) + sum(logprobs.top_values) + sum(logprobs.chosen_values)):
            raise InvalidLogits("The engine produced a logprob that is not a number.")
        return logprobs
