"""Segment traversal: from the most similar chunk along the edges of the segment graph.

`docs/mathematics.md` 3; Segment-Graph Retrieval Memory, sections 3.5 and 3.6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.rank.scope import Scope

__all__ = ["discounted", "hop_discount", "segment_candidates", "segment_seeds", "unweighted"]


def unweighted(graph: Graph) -> Graph:
    """The same edges, each of weight 1: a step is a step, whatever the cosine that made it."""
    return graph.with_weight(torch.ones_like(graph.weight))


def hop_discount(
    graph: Graph,  # N nodes, usable as directed
    seeds: Tensor,  # [B, s] int64, -1 = none
    *,
    hops: int,
    discount: float,
    mask: Tensor | None = None,  # [B, N] bool, the nodes that may be reached
) -> SparseRows:  # [B, N]
    """discount^d for the nodes whose shortest path from a seed has d <= hops edges; 0 elsewhere.

    Spreading that keeps the largest, on edges of weight 1. Work is in proportion to the edges
    of what is reached; nothing is N².

    Raises:
        InputError: A discount outside (0, 1], negative hops, or a mask that does not fit.
    """
    if not 0.0 < discount <= 1.0:
        raise InputError(
            f"discount must be above 0 and at most 1, got {discount}; 1 counts every hop alike"
        )
    return spread_activation(
        unweighted(graph),
        SparseRows.of(seeds, torch.ones(seeds.shape, device=seeds.device), graph.num_nodes),
        rounds=hops,
        retention=1.0,
        spread=discount,
        reduce="max",
        fan="none",
        inhibition=0.0,
        firing="linear",
        mask=mask,
    )


def discounted(similarity: Tensor, factor: Tensor) -> Tensor:
    """Similarity after the hops; a negative cosine must not gain by distance and stays as it is."""
    return similarity.clamp(min=0.0) * factor + similarity.clamp(max=0.0)


def segment_seeds(scope: Scope, count: int) -> tuple[Tensor, Tensor]:  # [B, s] int64, [B, s]
    """The atoms most similar to each question, and their cosine; -1 and 0 where there are fewer."""
    similarity = scope.memo("semantic").masked_fill(~scope.valid, -torch.inf)
    best = similarity.topk(min(count, similarity.shape[1]), dim=1)
    there = best.values > -torch.inf
    return torch.where(there, best.indices, -1), torch.where(there, best.values, 0.0)


def segment_candidates(scope: Scope, reach: SparseRows, m: int) -> Tensor:  # [B, <= m] int64
    """R_q: of what was reached, the m best by hop-discounted similarity; ascending, -1 first.

    Args:
        scope: The questions against every atom.
        reach: [B, A] `hop_discount` of the atoms.
        m: Atoms wanted of each question.
    """
    row, column = reach.row, reach.column
    value = discounted(scope.memo("semantic")[row, column], reach.value)
    if scope.query.listed is not None:
        inside = scope.listed.expand(len(scope.query), -1)[row, column]
        value = value.masked_fill(~inside, -torch.inf)
    values, place = SparseRows(reach.key, value, reach.shape).padded()
    values = values.masked_fill(place < 0, -torch.inf)
    best = values.topk(min(m, values.shape[1]), dim=1)
    place = place.gather(1, best.indices)
    found = best.values > -torch.inf
    return torch.where(found, column[place.clamp(min=0)], -1).sort(dim=1).values
