"""What prompt logprobs have to be: those of one plain forward pass over the prompt."""

import math

import torch

from engines.local.step_output import StepOutput
from engines.protocol import LogprobParams, PromptLogprobs


def join_pieces(rows: list[StepOutput]) -> PromptLogprobs:
    """A request's pieces as one, which they must be: in order, without gaps, before the second token."""
    pieces = [row.prompt for row in rows if row.prompt is not None]
    whole = PromptLogprobs(start=pieces[0].start, token_ids=[], values=[], ranks=[], top_k=pieces[0].top_k)
    for piece in pieces:
        assert piece.start == whole.start + len(whole.token_ids)
        assert 0 < len(piece.token_ids) <= 256
        assert piece.top_k == whole.top_k
        for name in ("token_ids", "values", "ranks", "top_ids", "top_values", "chosen_values", "chosen_ranks"):
            getattr(whole, name).extend(getattr(piece, name))
    places = [place for place, row in enumerate(rows) if row.prompt is not None]
    assert places == list(range(len(pieces)))
    assert all(row.token is None for row in rows[: len(pieces) - 1])
    return whole


def check_prompt(
    got: PromptLogprobs, prompt: list[int], wish: LogprobParams, logits: torch.Tensor, tolerance: float
) -> None:
    """Compare with logits [tokens, vocabulary] of the prompt; ranks where equals within `tolerance` may swap."""
    start = wish.prompt_start
    assert start is not None
    assert (got.start, got.top_k) == (start, wish.top_k)
    assert got.token_ids == prompt[start:]
    assert (got.values[0], got.ranks[0]) == (None, 0)
    expected = logits[start:-1].log_softmax(-1)
    count, chosen = len(prompt) - start - 1, list(wish.token_ids)
    values = torch.tensor([math.nan if value is None else value for value in got.values[1:]])
    tokens = torch.tensor(prompt[start + 1 :], dtype=torch.long)
    torch.testing.assert_close(values, expected.gather(1, tokens.unsqueeze(1)).squeeze(1), rtol=0, atol=tolerance)
    _check_ranks(expected, tokens.unsqueeze(1), torch.tensor(got.ranks[1:]).view(count, 1), tolerance)
    top_ids = torch.tensor(got.top_ids, dtype=torch.long).view(count, wish.top_k)
    top_values = torch.tensor(got.top_values).view(count, wish.top_k)
    assert all(len(set(row)) == wish.top_k for row in top_ids.tolist())
    torch.testing.assert_close(top_values, expected.topk(wish.top_k).values, rtol=0, atol=tolerance)
    torch.testing.assert_close(top_values, expected.gather(1, top_ids), rtol=0, atol=tolerance)
    chosen_ids = torch.tensor(chosen, dtype=torch.long).expand(count, -1)
    chosen_values = torch.tensor(got.chosen_values).view(count, len(chosen))
    torch.testing.assert_close(chosen_values, expected.gather(1, chosen_ids), rtol=0, atol=tolerance)
    _check_ranks(expected, chosen_ids, torch.tensor(got.chosen_ranks).view(count, len(chosen)), tolerance)


def _check_ranks(expected: torch.Tensor, ids: torch.Tensor, ranks: torch.Tensor, tolerance: float) -> None:
    values = expected.gather(1, ids).unsqueeze(-1)
    above = (expected.unsqueeze(1) > values + tolerance).sum(-1) + 1
    below = (expected.unsqueeze(1) > values - tolerance).sum(-1)
    assert bool(((above <= ranks) & (ranks <= below)).all())
