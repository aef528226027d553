"""What a request changes about the model's logits before temperature: bias, penalties, tokens forbidden at first."""

import torch

from engines.protocol import SamplingParams


class TokenCounts:
    """How often each token occurred, as tensors of the distinct ids and their counts that grow in place."""

    def __init__(self, token_ids: list[int], device: torch.device) -> None:
        self._places: dict[int, int] = {}
        self._ids = torch.zeros(max(256, 2 * len(token_ids)), dtype=torch.long, device=device)
        self._counts = torch.zeros(len(self._ids), device=device)
        totals: dict[int, int] = {}
        for token in token_ids:
            totals[token] = totals.get(token, 0) + 1
        self._places = {token: place for place, token in enumerate(totals)}
        self._ids[: len(totals)] = torch.tensor(list(totals), dtype=torch.long)
        self._counts[: len(totals)] = torch.tensor(list(totals.values()), dtype=torch.float)

    @property
    def ids(self) -> torch.Tensor:
        """Distinct ids, int64 [n]."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> torch.Tensor:
        """Their counts, float32 [n]."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """Count one more occurrence."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)])
            self._counts = torch.cat([self._counts, torch.zeros_like(self._counts)])
        self._ids[place] = token
        self._counts[place] += 1


class LogitEdits:
    """One request's changes to its row of logits, in the order in which transformers applies them.

    `forbidden` are the ids that would end the output, masked until it has min_tokens. Repetition penalty looks at
    prompt and output (Keskar et al., CTRL, 2019, section 4.1); frequency and presence penalties at the output only
    (OpenAI: logit - count * frequency_penalty - (count > 0) * presence_penalty).
    """

    def __init__(
        self, params: SamplingParams, prompt: list[int], forbidden: list[int], vocab_size: int, device: torch.device
    ) -> None:
        self._params = params
        self._left = params.min_tokens
        self._forbidden = torch.tensor([id_ for id_ in forbidden if id_ < vocab_size], dtype=torch.long, device=device)
        self._biased = torch.tensor(list(params.logit_bias), dtype=torch.long, device=device)
        self._bias = torch.tensor(list(params.logit_bias.values()), dtype=torch.float, device=device)
        self._seen = TokenCounts(prompt, device) if params.repetition_penalty != 1.0 else None
        penalized = params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
        self._written = TokenCounts([], device) if penalized else None

    @property
    def active(self) -> bool:
        """Whether there is anything to change at the next position."""
        return bool(self._seen or self._written or len(self._biased) or (self._left > 0 and len(self._forbidden)))

    def apply(self, row: torch.Tensor) -> None:
        """Change a row of logits, float32 [vocabulary], in place."""
        if len(self._biased):
            row[self._biased] += self._bias
        if self._seen is not None:
            penalty = self._params.repetition_penalty
            values = row[self._seen.ids]
            row[self._seen.ids] = torch.where(values < 0, values * penalty, values / penalty)
        if self._written is not None:
            counts = self._written.counts
            row[self._written.ids] -= counts * self._params.frequency_penalty + self._params.presence_penalty
        if self._left > 0:
            row[self._forbidden] = -torch.inf

    def record(self, token: int) -> None:
        """Take note of a token that was put out."""
        self._left -= 1
        if self._seen is not None:
            self._seen.add(token)
        if self._written is not None:
            self._written.add(token)
