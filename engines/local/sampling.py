"""From logits to tokens: every row by its own request's parameters.

Order of steps: bias, penalties, forbidden tokens (penalties.py), temperature, top-k, top-p, min-p (truncation.py), as
in transformers. Rows without wishes are never copied: they take the best id of the model's own logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from engines.local.penalties import LogitEdits
from engines.local.ranking import blocks_of, top_ids
from engines.local.row_selection import select_rows
from engines.local.truncation import keep_min_p, keep_top_k, keep_top_p
from engines.protocol import SamplingParams

LEAST_TEMPERATURE = 1e-5
SEED_BITS = 0xFFFF_FFFF_FFFF_FFFF

Value = TypeVar("Value", int, float)


@dataclass(frozen=True)
class SamplingState:
    """What sampling keeps of one request from step to step."""

    params: SamplingParams
    edits: LogitEdits
    generator: torch.Generator

    @property
    def neutral(self) -> bool:
        """Whether the next token is the best of the model's own logits."""
        return self.params.greedy and not self.edits.active


@dataclass(frozen=True)
class Sampled:
    """One token a row, int64 [rows]; those of invalid rows (NaN or nothing left to choose) mean nothing.

    `processed`: float32 [rows, vocabulary], the logits that the tokens were chosen by.
    """

    token_ids: torch.Tensor
    valid: torch.Tensor
    processed: torch.Tensor


class Sampler:
    """Chooses tokens for all rows of a step."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._unseeded = torch.Generator()
        self._unseeded.seed()

    def start(self, params: SamplingParams, prompt: list[int], ending_ids: list[int]) -> SamplingState:
        """Begin a request; `ending_ids` would end it. Its random numbers come from its own seed, if given."""
        generator = self._unseeded
        if params.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(params.seed & SEED_BITS)
        edits = LogitEdits(params, prompt, ending_ids, self._vocab_size, self._device)
        return SamplingState(params, edits, generator)

    def sample(self, logits: torch.Tensor, states: Sequence[SamplingState]) -> Sampled:
        """Choose one token for each row of float32 [rows, vocabulary], which is left as it is."""
        finite = logits.amax(-1).isfinite()
        if all(state.neutral for state in states):
            return Sampled(top_ids(logits, 1).squeeze(1), finite, logits)
        processed = process(logits, [state.params for state in states], [state.edits for state in states])
        tokens = torch.empty(len(states), dtype=torch.long, device=logits.device)
        greedy = [row for row, state in enumerate(states) if state.params.greedy]
        drawn = [row for row, state in enumerate(states) if not state.params.greedy]
        if greedy:
            tokens[greedy] = top_ids(select_rows(processed, greedy), 1).squeeze(1)
        if drawn:
            numbers = [torch.rand(1, generator=states[row].generator, dtype=torch.double) for row in drawn]
            tokens[drawn] = draw(select_rows(processed, drawn), torch.cat(numbers).to(logits.device))
        return Sampled(tokens, finite & processed.amax(-1).isfinite(), processed)


def process(logits: torch.Tensor, params: Sequence[SamplingParams], edits: Sequence[LogitEdits]) -> torch.Tensor:
    """Logits [rows, vocabulary] after every step, themselves if none changes them. Greedy rows are only edited."""
    if not any(edit.active or _shapes(wish) for edit, wish in zip(edits, params, strict=True)):
        return logits
    result = logits.clone()
    for row, edit in zip(result, edits, strict=True):
        if edit.active:
            edit.apply(row)
    drawn = [None if wish.greedy else wish for wish in params]
    temperatures = [max(wish.temperature, LEAST_TEMPERATURE) if wish else 1.0 for wish in drawn]
    if any(temperature != 1.0 for temperature in temperatures):
        result /= torch.tensor(temperatures, device=logits.device).unsqueeze(1)
    _truncate(result, [wish.top_k if wish else 0 for wish in drawn], lambda top_k: top_k > 0, keep_top_k)
    _truncate(result, [wish.top_p if wish else 1.0 for wish in drawn], lambda top_p: top_p < 1.0, keep_top_p)
    _truncate(result, [wish.min_p if wish else 0.0 for wish in drawn], lambda min_p: min_p > 0.0, keep_min_p)
    return result


def draw(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Draw one id a row from softmax(logits) by inverting the cumulative distribution over ids.

    logits: float32 [rows, vocabulary]; uniform: float64 [rows] in [0, 1). Mass is summed over blocks first, the
    sums run in double precision: a token of probability 0 is never drawn.
    """
    blocked = blocks_of(torch.softmax(logits, -1), 0.0)
    sums = blocked.sum(-1).double()
    ends = sums.cumsum(-1)
    wanted = uniform.unsqueeze(1) * ends[:, -1:]
    block = torch.searchsorted(ends, wanted, right=True).clamp(max=ends.shape[1] - 1)
    inner = blocked.gather(1, block.unsqueeze(-1).expand(-1, -1, blocked.shape[2])).squeeze(1).double().cumsum(-1)
    rest = (wanted - (ends.gather(1, block) - sums.gather(1, block))).clamp(min=0.0)
    last_possible = torch.searchsorted(inner, inner[:, -1:].contiguous())
    place = torch.minimum(torch.searchsorted(inner, rest, right=True), last_possible)
    return (block * blocked.shape[2] + place).squeeze(1).clamp(max=logits.shape[1] - 1)


def _shapes(params: SamplingParams) -> bool:
    """Whether temperature or truncation change the distribution drawn from."""
    return not params.greedy and (params.temperature, params.top_k, params.top_p, params.min_p) != (1.0, 0, 1.0, 0.0)


def _truncate(
    logits: torch.Tensor,
    values: list[Value],
    wanted: Callable[[Value], bool],
    keep: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    rows = [row for row, value in enumerate(values) if wanted(value)]
    if rows:
        part = select_rows(logits, rows)
        keep(part, torch.tensor([values[row] for row in rows], device=logits.device))
        if part is not logits:
            logits[rows] = part
