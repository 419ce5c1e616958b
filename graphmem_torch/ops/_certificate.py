"""The largest k of a PageRank that is known up to a bound, and whether they are certain.

The bounds are L1 bounds, so for two nodes together they hold as well: a node outside overtakes one
inside only if their gap is at most the bound.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["certified_top", "ranked_tables", "spread_tables"]

_ROUNDINGS = 8  # relative errors that a value may carry besides those of its sum, over 1 - damping
_LONGEST = 1 << 20  # terms of the longest sum of a push, which adds up in float64


def certified_top(
    values: Tensor,  # [B, N]
    bound: Tensor,  # [B] of the L1 distance to the exact values
    k: int,
    damping: float,
    terms: Tensor,  # [] the most edges that enter and that leave a node, together
) -> tuple[Tensor, Tensor, Tensor]:  # [B, k], [B, k] int64, [B] bool
    """The k largest of each row, best first, their places (-1 for zeros), and the certificate."""
    best = values.topk(min(k + 1, values.shape[1]), dim=1)
    top, place = best.values[:, :k], best.indices[:, :k]
    lowest = top[:, -1]
    none = torch.where(lowest > 0, -torch.inf, 0.0)
    outside = best.values[:, k] if values.shape[1] > k else none
    certain = _overtaken_by_none(lowest, outside, bound, damping, terms)
    return top.contiguous(), place.masked_fill(top <= 0, -1), certain


def ranked_tables(
    node: Tensor,  # [B, H] int32, -1 = none
    settled: Tensor,  # [B, H] float64
    left: Tensor,  # [B, H] float64
    damping: float,
    k: int,
    background: Tensor | None,  # [N], the PageRank of the graph
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # [B, k], [B, k] int64, [B], [B] bool
    """The k largest after a push, their nodes, the L1 bound of the values, and the certificate.

    With y = settled + (1 - d) left, what the walk without returns would settle is y + z for some
    z >= 0 of total at most beta = d * sum(left): a residual keeps (1 - d) of itself where it is and
    sends on the rest. Mass that returns from nodes without edges only scales the result, so
    y / (sum(y) + beta) is a lower bound of every value and beta / (sum(y) + beta) bounds the L1
    distance. With the background b, which is (1 - d) / N + d P b, z is estimated as if the residual
    lay anywhere: z = sum(left) (b - (1 - d) / N), and what that adds is added to the bound.
    """
    known, beta, whole = _known(settled, left, damping)
    rank, added = known, torch.zeros_like(beta)
    if background is not None:
        share = background.to(known.dtype).index_select(0, node.clamp(min=0).flatten())
        share = share.sub_((1 - damping) / background.shape[0]).clamp_(min=0).view_as(known)
        rest = torch.where(node >= 0, share * left.sum(1, keepdim=True), 0.0)
        rank, added = known + rest, rest.sum(1)
    best = rank.topk(k, dim=1)
    inside = torch.zeros_like(node, dtype=torch.bool).scatter_(1, best.indices, True)
    lowest = known.gather(1, best.indices).amin(1)
    outside = known.masked_fill(inside, 0.0).amax(1)
    certain = _overtaken_by_none(lowest, outside, beta, damping, _LONGEST)
    nodes = node.gather(1, best.indices).to(torch.int64).masked_fill_(best.values <= 0, -1)
    bound = (beta + added) / whole
    return best.values / whole[:, None], nodes, bound, certain


def spread_tables(
    node: Tensor,  # [B, H] int32, -1 = none
    settled: Tensor,  # [B, H] float64
    left: Tensor,  # [B, H] float64
    damping: float,
    num_nodes: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # [B, N] of `dtype`, [B]
    """All values after a push, and their L1 bound; as `ranked_tables` without a background."""
    known, beta, whole = _known(settled, left, damping)
    values = known.new_zeros(node.shape[0], max(1, num_nodes), dtype=dtype)  # -1 goes to column 0
    share = (known / whole[:, None]).to(dtype)
    values.scatter_add_(1, node.clamp(min=0).to(torch.int64), share)
    return values[:, :num_nodes], beta / whole


def _known(settled: Tensor, left: Tensor, damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """The y `[B, H]`, beta `[B]` and sum(y) + beta `[B]` of `ranked_tables`."""
    known = settled + (1 - damping) * left
    beta = damping * left.sum(1)
    return known, beta, (known.sum(1) + beta).clamp(min=torch.finfo(known.dtype).tiny)


def _overtaken_by_none(
    lowest: Tensor, outside: Tensor, bound: Tensor, damping: float, terms: int | Tensor
) -> Tensor:
    """Whether the gap is larger than the bound and what rounding may add to a sum of `terms`."""
    rounding = (_ROUNDINGS + terms) * torch.finfo(lowest.dtype).eps / max(1 - damping, 1e-6)
    return lowest - outside >= bound + rounding * lowest
