"""Log-probabilities of prompts, computed along with the prompts, in pieces as they come.

They always describe the model's own distribution, also where a request asks for processed logprobs: nothing is sampled
at these positions, and SGLang's input logprobs and vLLM's prompt logprobs are raw as well.

Logits exist for one block of positions at a time: memory doesn't grow with the prompt. A block takes rows of all the
step's prompts, as many as their logits may take, so that short prompts share it.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from itertools import islice

import torch

from engines.local.logprobs import PositionLogprobs, measure
from engines.local.scheduler import Piece
from engines.protocol import LogprobParams, PromptLogprobs

BLOCK_ROWS = 64
BLOCK_LOGITS = 1 << 22


@dataclass(frozen=True, slots=True)
class PromptScore:
    """What a piece of a prompt brought; `valid` unless the model gave no numbers at one of its positions."""

    logprobs: PromptLogprobs
    valid: bool


class PromptScorer:
    """Scores prompts with `logits`, which takes hidden states [rows, hidden] to float32 [rows, vocabulary]."""

    def __init__(self, logits: Callable[[torch.Tensor], torch.Tensor], vocab_size: int) -> None:
        self._logits = logits
        self._block_rows = max(1, min(BLOCK_ROWS, BLOCK_LOGITS // vocab_size))

    def score(self, pieces: Rows[Piece], hidden: torch.Tensor) -> list[PromptScore | None]:
        """Logprobs that the pieces give, from their hidden states [tokens, hidden], before they count as computed."""
        rows: list[int] = []
        tokens: list[int] = []
        wishes: list[LogprobParams] = []
        offset = 0
        for piece in pieces:
            sequence = piece.sequence
            positions, wish = sequence.scored(piece.count), sequence.request.logprobs
            if wish is not None:
                rows += [offset + position - sequence.computed for position in positions]
                tokens += sequence.request.prompt_token_ids[positions.start + 1 : positions.stop + 1]
                wishes += [wish] * len(positions)
            offset += piece.count
        measured = self._measure(hidden, rows, tokens, wishes)
        return [build_score(piece, list(islice(measured, len(piece.sequence.scored(piece.count))))) for piece in pieces]

    def _measure(
        self, hidden: torch.Tensor, rows: list[int], tokens: list[int], wishes: list[LogprobParams]
    ) -> Iterator[PositionLogprobs | None]:
        """Block by block; None where the logits are no numbers."""
        for start in range(0, len(rows), self._block_rows):
            block = slice(start, start + self._block_rows)
            logits = self._logits(hidden[torch.tensor(rows[block], device=hidden.device)])
            valid = logits.amax(-1).isfinite().tolist()
            positions = measure(logits, torch.tensor(tokens[block], device=hidden.device), wishes[block])
            for position, number in zip(positions, valid, strict=True):
                yield position if number else None


def build_score(piece: Piece, measured: list[PositionLogprobs | None]) -> PromptScore | None:
    """The columns of a piece's positions, of which the request's first one has no value; None if it has none."""
    sequence = piece.sequence
    first, wish = sequence.prompt_start, sequence.request.logprobs
    if first is None or wish is None:
        return None
    begins = sequence.computed <= first < sequence.computed + piece.count
    start = first if begins else sequence.scored(piece.count).start + 1
    token_ids = sequence.request.prompt_token_ids[start : start + begins + len(measured)]
    if not token_ids:
        return None
    positions = [position for position in measured if position is not None]
    logprobs = PromptLogprobs(
        start=start,
        token_ids=token_ids,
        values=[None] * begins + [position.value for position in positions],
        ranks=[0] * begins + [position.rank for position in positions],
        top_k=wish.top_k,
        top_ids=[id_ for position in positions for id_ in position.top_ids],
        top_values=[value for position in positions for value in position.top_values],
        chosen_values=[value for position in positions for value in position.chosen_values],
        chosen_ranks=[rank for position in positions for rank in position.chosen_ranks],
    )
    return PromptScore(logprobs, len(positions) == len(measured))
