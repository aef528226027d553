"""A cursor over the flat columns of a frame: cuts out the part of each row, row after row.

The cursors trust the counts; `check_columns` first holds the counts against the columns.
"""

import math
from collections.abc import Iterable, Sized
from operator import mul

from engines.errors import EngineFault, InvalidLogits
from engines.protocol import BatchEmbeddingOut, BatchStrOut, BatchTokenOut, Frame, TokenLogprobs
from processors.delta import Logprobs


def check_columns(frame: Frame) -> None:
    """EngineFault if the frame's columns contradict each other, so that no row of it can be told from the next."""
    rows = len(frame.request_ids)
    full: list[Sized] = [frame.finishes, frame.prompt_tokens]
    counts: list[Sized] = []
    fits = True
    if isinstance(frame, BatchEmbeddingOut):
        full.append(frame.embeddings)
    else:
        full.append(frame.completion_tokens)
        counts += [frame.token_counts, frame.cached_tokens, frame.accepted_draft_tokens]
        counts += [frame.verify_steps, frame.segments]
        fits = sum(frame.token_counts) == len(frame.token_ids)
        if isinstance(frame, BatchStrOut):
            full.append(frame.texts)
        if (logprobs := frame.logprobs) is not None:
            counts += [logprobs.counts, logprobs.top_counts, logprobs.chosen_counts]
            fits = fits and _logprobs_fit(logprobs)
    if (
        not fits
        or any(len(column) != rows for column in full)
        or any(len(column) not in {0, rows} for column in counts)
    ):
        raise EngineFault("The engine sent output whose columns do not fit together.")


def _logprobs_fit(columns: TokenLogprobs) -> bool:
    counts = columns.counts
    entries = sum(counts)
    tops = sum(map(mul, counts, columns.top_counts))
    chosen = sum(map(mul, counts, columns.chosen_counts))
    return (
        len(columns.values) == len(columns.ranks) == entries
        and len(columns.top_ids) == len(columns.top_values) == tops
        and len(columns.chosen_values) == len(columns.chosen_ranks) == chosen
    )


class TokenColumns:
    """Walks a frame's rows in order; every row must be taken, those of unknown requests too."""

    def __init__(self, frame: BatchTokenOut) -> None:
        self._counts = frame.token_counts or [0] * len(frame.request_ids)
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
        """The row's entries, None where it has none. InvalidLogits if one of them is NaN or positive infinity."""
        columns = self._columns
        count = columns.counts[row] if columns.counts else 0
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
        check_numbers(logprobs.values, logprobs.top_values, logprobs.chosen_values)
        return logprobs


def check_numbers(*columns: Iterable[float]) -> None:
    """InvalidLogits if a value is NaN or positive infinity; one of them in a sum shows in the sum."""
    if not sum(map(sum, columns)) < math.inf:
        raise InvalidLogits("The engine produced a logprob that is not a number.")
