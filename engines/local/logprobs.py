"""Log-probabilities of positions: of the sampled token, of the k best, of ids that a request names.

One logsumexp a row gives them all, as `logit - logsumexp`; the same id has the same value wherever it stands. Ranks and
the order of the best are those of `ranking`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engines.local.ranking import ranks_of, top_ids
from engines.local.row_selection import select_rows
from engines.protocol import LogprobParams

SHARED_TOP_K = 64


@dataclass(slots=True)
class PositionLogprobs:
    """Log-probabilities of one position: `value` and `rank` of its token, the k best, the ids asked for."""

    value: float
    rank: int
    top_ids: list[int] = field(default_factory=list)
    top_values: list[float] = field(default_factory=list)
    chosen_values: list[float] = field(default_factory=list)
    chosen_ranks: list[int] = field(default_factory=list)


def measure(logits: torch.Tensor, tokens: torch.Tensor, wishes: Sequence[LogprobParams]) -> list[PositionLogprobs]:
    """Log-probabilities at each row of float32 [rows, vocabulary] for its token, int64 [rows], and its wishes."""
    totals = torch.logsumexp(logits, -1, keepdim=True)
    values = (logits.gather(1, tokens.unsqueeze(1)) - totals).squeeze(1).tolist()
    positions = [PositionLogprobs(value, 0) for value in values]
    by_width: dict[int, list[int]] = defaultdict(list)
    by_chosen: dict[int, list[int]] = defaultdict(list)
    for row, wish in enumerate(wishes):
        by_width[_width(min(wish.top_k, logits.shape[1]))].append(row)
        by_chosen[len(wish.token_ids)].append(row)
    for rows in by_width.values():
        _measure_top(
            select_rows(logits, rows),
            select_rows(totals, rows),
            select_rows(tokens, rows),
            [wishes[row] for row in rows],
            [positions[row] for row in rows],
        )
    for count, rows in by_chosen.items():
        if count:
            _measure_chosen(
                select_rows(logits, rows),
                select_rows(totals, rows),
                [wishes[row] for row in rows],
                [positions[row] for row in rows],
            )
    return positions


def _measure_top(
    logits: torch.Tensor,
    totals: torch.Tensor,
    tokens: torch.Tensor,
    wishes: list[LogprobParams],
    positions: list[PositionLogprobs],
) -> None:
    """Fill in the k best and the token's rank: its place among them, counted only for a token that isn't there."""
    width = max(1, *(min(wish.top_k, logits.shape[1]) for wish in wishes))
    best = top_ids(logits, width)
    same = best == tokens.unsqueeze(1)
    ranks = 1 + same.int().argmax(1)
    outside = (~same.any(1)).nonzero().squeeze(1)
    if len(outside):
        ranks[outside] = ranks_of(logits[outside], tokens[outside].unsqueeze(1)).squeeze(1)
    ids, values = best.tolist(), (logits.gather(1, best) - totals).tolist()
    for row, (wish, position, rank) in enumerate(zip(wishes, positions, ranks.tolist(), strict=True)):
        position.rank = rank
        position.top_ids = ids[row][: wish.top_k]
        position.top_values = values[row][: wish.top_k]


def _measure_chosen(
    logits: torch.Tensor, totals: torch.Tensor, wishes: list[LogprobParams], positions: list[PositionLogprobs]
) -> None:
    chosen = torch.tensor([wish.token_ids for wish in wishes], device=logits.device)
    values = (logits.gather(1, chosen) - totals).tolist()
    for position, row_values, ranks in zip(positions, values, ranks_of(logits, chosen).tolist(), strict=True):
        position.chosen_values = row_values
        position.chosen_ranks = ranks


def _width(top_k: int) -> int:
    """Rows of one width are sorted together: a wish for the whole vocabulary costs no other row anything."""
    return max(SHARED_TOP_K, top_k)
