"""A script's logprobs in columns: of the output, computed once and then only copied, and of a prompt, in pieces."""

from collections.abc import Iterator

from engines.protocol import LogprobParams, PromptLogprobs, TokenLogprobs
from engines.scripted.script import Script
from engines.scripted.values import Values

PIECE = 256


class LogprobRows:
    """The columns of one script for one wish, shared by all requests that have both in common.

    Grows as far as it is read. Values depend on the place in the script, so a cycled script repeats them.
    """

    def __init__(self, script: Script, wishes: LogprobParams, vocab_size: int) -> None:
        self.script = script
        self.top_k = min(wishes.top_k, vocab_size)
        self.chosen_ids = wishes.token_ids
        self._vocab_size = vocab_size
        self._columns = TokenLogprobs(counts=[], values=[], ranks=[])

    def copy(self, start: int, stop: int, target: TokenLogprobs) -> None:
        """Append the entries of output tokens start .. stop to the target's columns, without its counts."""
        period = len(self.script.token_ids)
        columns, k, chosen = self._columns, self.top_k, len(self.chosen_ids)
        while start < stop:
            at = start % period
            end = min(at + stop - start, period)
            self._grow(end)
            target.values += columns.values[at:end]
            target.ranks += columns.ranks[at:end]
            if k:
                target.top_ids += columns.top_ids[at * k : end * k]
                target.top_values += columns.top_values[at * k : end * k]
            if chosen:
                target.chosen_values += columns.chosen_values[at * chosen : end * chosen]
                target.chosen_ranks += columns.chosen_ranks[at * chosen : end * chosen]
            start += end - at

    def _grow(self, length: int) -> None:
        columns = self._columns
        for place in range(len(columns.values), length):
            token_id = self.script.token_ids[place]
            distribution = self.script.values.at(place, token_id, self._vocab_size)
            columns.values.append(distribution.value(token_id))
            columns.ranks.append(distribution.rank(token_id))
            if self.top_k:
                ids, values = distribution.top(self.top_k)
                columns.top_ids += ids
                columns.top_values += values
            for chosen_id in self.chosen_ids:
                columns.chosen_values.append(distribution.value(chosen_id))
                columns.chosen_ranks.append(distribution.rank(chosen_id))


def prompt_pieces(
    values: Values, prompt: list[int], wishes: LogprobParams, vocab_size: int
) -> Iterator[PromptLogprobs]:
    """The logprobs of a prompt from the asked position on, in pieces of at most 256 positions."""
    first = wishes.prompt_start
    if first is None:
        return
    top_k = min(wishes.top_k, vocab_size)
    for start in range(first, len(prompt), PIECE):
        piece = PromptLogprobs(start=start, token_ids=prompt[start : start + PIECE], values=[], ranks=[], top_k=top_k)
        for position, token_id in enumerate(piece.token_ids, start):
            if position == first:
                piece.values.append(None)
                piece.ranks.append(0)
                continue
            distribution = values.at(position, token_id, vocab_size, prompt=True)
            piece.values.append(distribution.value(token_id))
            piece.ranks.append(distribution.rank(token_id))
            if top_k:
                ids, top_values = distribution.top(top_k)
                piece.top_ids += ids
                piece.top_values += top_values
            piece.chosen_values += [distribution.value(chosen_id) for chosen_id in wishes.token_ids]
            piece.chosen_ranks += [distribution.rank(chosen_id) for chosen_id in wishes.token_ids]
        yield piece
