"""From hidden states to the next tokens of a step's sequences, and their logprobs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engines.local.logprobs import PositionLogprobs, measure
from engines.local.row_selection import select_rows
from engines.local.sampling import Sampled, Sampler
from engines.local.sequence import Sequence
from engines.protocol import LogprobsMode


@dataclass(frozen=True, slots=True)
class Choice:
    """A sequence's next token; `valid` unless the model gave no numbers to choose by. Logprobs where wanted."""

    token: int
    valid: bool
    logprobs: PositionLogprobs | None


class TokenChooser:
    """Chooses tokens by `logits`, which takes hidden states [rows, hidden] to float32 [rows, vocabulary]."""

    def __init__(self, logits: Callable[[torch.Tensor], torch.Tensor], sampler: Sampler) -> None:
        self._logits = logits
        self._sampler = sampler

    def choose(self, sequences: list[Sequence], hidden: torch.Tensor) -> list[Choice]:
        """The sequences' next tokens, from the hidden states [sequences, hidden] of their last ones."""
        if not sequences:
            return []
        logits = self._logits(hidden)
        sampled = self._sampler.sample(logits, [sequence.sampling for sequence in sequences])
        logprobs = self._measure(sequences, logits, sampled)
        columns = zip(sampled.token_ids.tolist(), sampled.valid.tolist(), logprobs, strict=True)
        return [Choice(*column) for column in columns]

    def _measure(
        self, sequences: list[Sequence], logits: torch.Tensor, sampled: Sampled
    ) -> list[PositionLogprobs | None]:
        """Logprobs of the rows that want them, those of one mode together."""
        result: list[PositionLogprobs | None] = [None] * len(sequences)
        for mode, source in ((LogprobsMode.RAW, logits), (LogprobsMode.PROCESSED, sampled.processed)):
            wishes = {
                row: sequence.request.logprobs
                for row, sequence in enumerate(sequences)
                if sequence.request.logprobs is not None and sequence.request.logprobs.mode is mode
            }
            if not wishes:
                continue
            rows = list(wishes)
            logits_part, tokens = select_rows(source, rows), select_rows(sampled.token_ids, rows)
            for row, position in zip(rows, measure(logits_part, tokens, list(wishes.values())), strict=True):
                result[row] = position
        return result
