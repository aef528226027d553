"""A script's logprobs in columns: of the output, computed once and then only copied, and of a prompt, in pieces."""

from engines.protocol import EngineRequest, LogprobParams, PromptLogprobs, TokenLogprobs
from engines.scripted.script import Script

PIECE = 256


class ScriptLogprobs:
    """The logprobs of one script for some top_k and chosen ids, shared by all requests that have these in common.

    The output's columns grow as far as they are read. Values depend on the place in the script, so that a cycled
    script repeats them.
    """

    def __init__(self, script: Script, wishes: LogprobParams, vocab_size: int) -> None:
        self.top_k = min(wishes.top_k, vocab_size)
        self.chosen = len(wishes.token_ids)
        self._script = script
        self._chosen_ids = wishes.token_ids
        self._vocab_size = vocab_size
        self._columns = TokenLogprobs(counts=[], values=[], ranks=[])

    def copy(self, start: int, stop: int, target: TokenLogprobs) -> None:
        """Append the entries of output tokens start .. stop to the target's columns, without its counts."""
        period = len(self._script.token_ids)
        columns, k, chosen = self._columns, self.top_k, self.chosen
        while start < stop:
            at = start % period
            end = min(at + stop - start, period)
            if end > len(columns.values):
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
            token_id = self._script.token_ids[place]
            distribution = self._script.values.at(place, token_id, self._vocab_size)
            columns.values.append(distribution.value(token_id))
            columns.ranks.append(distribution.rank(token_id))
            if self.top_k:
                ids, values = distribution.top(self.top_k)
                columns.top_ids += ids
                columns.top_values += values
            for chosen_id in self._chosen_ids:
                columns.chosen_values.append(distribution.value(chosen_id))
                columns.chosen_ranks.append(distribution.rank(chosen_id))

    def prompt_piece(self, prompt: list[int], start: int, first: int | None) -> PromptLogprobs:
        """The logprobs of at most 256 prompt positions; that of `first`, the first asked position, is None."""
        values, chosen_ids = self._script.values, self._chosen_ids
        piece = PromptLogprobs(
            start=start, token_ids=prompt[start : start + PIECE], values=[], ranks=[], top_k=self.top_k
        )
        for position, token_id in enumerate(piece.token_ids, start):
            if position == first:
                piece.values.append(None)
                piece.ranks.append(0)
                continue
            distribution = values.at(position, token_id, self._vocab_size, prompt=True)
            piece.values.append(distribution.value(token_id))
            piece.ranks.append(distribution.rank(token_id))
            if self.top_k:
                ids, top_values = distribution.top(self.top_k)
                piece.top_ids += ids
                piece.top_values += top_values
            piece.chosen_values += [distribution.value(chosen_id) for chosen_id in chosen_ids]
            piece.chosen_ranks += [distribution.rank(chosen_id) for chosen_id in chosen_ids]
        return piece


def pieces_of(request: EngineRequest) -> list[int]:
    """Where the pieces of a request's prompt logprobs start; none where it wants none."""
    if request.logprobs is None or request.logprobs.prompt_start is None:
        return []
    return list(range(request.logprobs.prompt_start, len(request.prompt_token_ids), PIECE))
