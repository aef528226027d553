"""The order of a vocabulary at one position: by logit, highest first; among equal logits the lower id comes first.

It is a total order, so ranks are distinct, the k best ids don't depend on how many were asked for, and the first
maximum, which greedy decoding takes, has rank 1.
"""

import torch

BLOCK = 64
COUNTED_RANKS = 128


def top_ids(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Ids of the k best of each row, best first: float32 [rows, vocabulary] -> int64 [rows, k].

    The k best elements lie in the k blocks with the best maxima, so only these are looked at closely.
    """
    rows, vocabulary = logits.shape
    blocks = -(-vocabulary // BLOCK)
    if 4 * k > blocks:
        every = torch.arange(vocabulary, device=logits.device).expand(rows, -1)
        return every.gather(1, _keys(logits, every).topk(k).indices)
    blocked = blocks_of(logits)
    maxima = blocked.amax(-1)
    order = torch.arange(blocks, device=logits.device).expand(rows, -1)
    best = _keys(maxima, order).topk(k, sorted=False).indices
    ids = (best.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=logits.device)).flatten(1)
    values = blocked.gather(1, best.unsqueeze(-1).expand(-1, -1, BLOCK)).flatten(1)
    # Where a row has NaN, the filling of the last block may come out on top.
    return ids.gather(1, _keys(values, ids).topk(k).indices).clamp(max=vocabulary - 1)


def ranks_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Ranks, from 1, of some ids in each row: float32 [rows, vocabulary], int64 [rows, n] -> int64 [rows, n]."""
    if ids.shape[1] <= COUNTED_RANKS:
        return torch.stack([_count_ranks(logits, column) for column in ids.unbind(1)], 1) if ids.shape[1] else ids
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    places = torch.arange(1, logits.shape[1] + 1, device=logits.device).expand(len(logits), -1)
    return torch.empty_like(order).scatter_(1, order, places).gather(1, ids)


def blocks_of(values: torch.Tensor, fill: float = -torch.inf) -> torch.Tensor:
    """View rows in blocks, the last one filled up: [rows, vocabulary] -> [rows, blocks, BLOCK]."""
    missing = -values.shape[1] % BLOCK
    if missing:
        values = torch.nn.functional.pad(values, (0, missing), value=fill)
    return values.view(len(values), -1, BLOCK)


def _count_ranks(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Ranks by counting what is better, [rows]. Comparing into floats sums several times faster than into booleans."""
    values = logits.gather(1, ids.unsqueeze(1))
    marks = torch.empty_like(logits)
    above = torch.gt(logits, values, out=marks).sum(-1).long()
    tied = (torch.eq(logits, values, out=marks).sum(-1) > 1).nonzero().squeeze(1)
    if len(tied):
        equal = logits[tied] == values[tied]
        earlier = torch.arange(logits.shape[1], device=logits.device) < ids[tied].unsqueeze(1)
        above[tied] += (equal & earlier).sum(-1)
    return 1 + above


def _keys(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Integers that order as (value, lower id): the float's bits made monotone, then the id's complement.

    Adding 0.0 makes the two zeros one.
    """
    bits = (values + 0.0).view(torch.int32).long()
    monotone = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (monotone << 32) + (0xFFFFFFFF - ids)
