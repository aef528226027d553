"""Which tokens may be drawn: top-k, top-p and min-p, each a least logit, applied one after another.

The definitions are those of transformers' warpers. Logits that are equal at a cut are all kept: what is kept does not
depend on an order of sorting.
"""

import torch

NUCLEUS_TIERS = (64, 512, 4096)


def keep_top_k(logits: torch.Tensor, top_k: torch.Tensor) -> None:
    """Set all but the k highest to -inf, in place: float32 [rows, vocabulary], int64 [rows], each at least 1."""
    counts = top_k.clamp(max=logits.shape[1])
    values = logits.topk(int(counts.max())).values
    _cut(logits, values.gather(1, (counts - 1).unsqueeze(1)))


def keep_top_p(logits: torch.Tensor, top_p: torch.Tensor) -> None:
    """Set all but the smallest set of the likeliest that holds top_p of the mass to -inf, in place.

    float32 [rows, vocabulary], float32 [rows].
    """
    _cut(logits, _nucleus_cuts(logits, top_p, torch.logsumexp(logits, -1, keepdim=True), NUCLEUS_TIERS))


def keep_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> None:
    """Set those less likely than min_p times the likeliest to -inf, in place: [rows, vocabulary], float32 [rows]."""
    _cut(logits, logits.amax(-1, keepdim=True) + min_p.log().unsqueeze(1))


def _nucleus_cuts(
    logits: torch.Tensor, top_p: torch.Tensor, total: torch.Tensor, tiers: tuple[int, ...]
) -> torch.Tensor:
    """Least logit of each row's nucleus [rows, 1], looked for among ever more of the highest logits.

    A token is inside while the mass before it is below top_p.
    """
    size = min(tiers[0], logits.shape[1]) if tiers else logits.shape[1]
    values = logits.topk(size).values
    mass = (values - total).double().exp()
    inside = mass.cumsum(-1) - mass < top_p.unsqueeze(1)
    cuts = values.gather(1, (inside.sum(-1, keepdim=True) - 1).clamp(min=0))
    wider = inside[:, -1].nonzero().squeeze(1)
    if size < logits.shape[1] and len(wider):
        cuts[wider] = _nucleus_cuts(logits[wider], top_p[wider], total[wider], tiers[1:])
    return cuts


def _cut(logits: torch.Tensor, least: torch.Tensor) -> None:
    torch.where(logits < least, logits.new_tensor(-torch.inf), logits, out=logits)
