"""Logprobs that were asked for are complete or the request fails; those that nobody asked for are dropped."""

from collections.abc import Sequence

from engines.errors import EngineFault
from engines.protocol import Finish, FinishKind, LogprobParams, PromptLogprobs
from processors.columns import check_numbers
from processors.delta import Logprobs


class LogprobCompleteness:
    """Holds what an engine sends of one request against the request's wishes."""

    def __init__(self, wishes: LogprobParams | None, prompt_tokens: int) -> None:
        self._wishes = wishes
        self._prompt_tokens = prompt_tokens
        self._position = prompt_tokens
        if wishes is not None and wishes.prompt_start is not None:
            self._position = wishes.prompt_start

    def of_tokens(self, token_ids: Sequence[int], logprobs: Logprobs | None) -> Logprobs | None:
        """The logprobs of a row's tokens, if they were asked for. EngineFault unless they are all there."""
        wishes = self._wishes
        if wishes is None or (not token_ids and logprobs is None):
            return None
        if (
            logprobs is None
            or len(logprobs.values) != len(token_ids)
            or logprobs.top_k != wishes.top_k
            or logprobs.chosen != len(wishes.token_ids)
        ):
            raise EngineFault("The engine did not send the logprobs that were asked for.")
        return logprobs

    def of_prompt(self, piece: PromptLogprobs | None, finish: Finish | None) -> PromptLogprobs | None:
        """The next piece of the prompt's logprobs, if they were asked for.

        EngineFault where a position is missing, doubled or incomplete, at the latest when the engine finishes.
        InvalidLogits for NaN.
        """
        wishes = self._wishes
        if wishes is None or wishes.prompt_start is None:
            return None
        if piece is not None:
            self._check_piece(piece, wishes)
            self._position += len(piece.token_ids)
        answered = finish is not None and finish.kind in {FinishKind.STOP, FinishKind.LENGTH}
        if self._position > self._prompt_tokens or (answered and self._position < self._prompt_tokens):
            raise EngineFault("The engine did not send the prompt logprobs that were asked for.")
        return piece

    def _check_piece(self, piece: PromptLogprobs, wishes: LogprobParams) -> None:
        valued = piece.values[1:] if piece.start == wishes.prompt_start else piece.values
        numbers = [value for value in valued if value is not None]
        if not (
            piece.start == self._position
            and len(piece.values) == len(piece.ranks) == len(piece.token_ids)
            and len(numbers) == len(valued)
            and (valued is piece.values or piece.values[:1] == [None])
            and piece.top_k == wishes.top_k
            and len(piece.top_ids) == len(piece.top_values) == len(numbers) * piece.top_k
            and len(piece.chosen_values) == len(piece.chosen_ranks) == len(numbers) * len(wishes.token_ids)
        ):
            raise EngineFault("The engine did not send the prompt logprobs that were asked for.")
        check_numbers(numbers, piece.top_values, piece.chosen_values)
