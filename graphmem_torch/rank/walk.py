"""The walk of personalised PageRank that starts at the anchors of a question."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.config import WalkConfig
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, personalized_pagerank

__all__ = ["WALK_SIGNALS", "walk_from"]

WALK_SIGNALS = frozenset({"decayed_pagerank", "personalized_pagerank"})
"""Signals that read where a walk from the anchors is."""

_SMALL = 2048  # nodes up to which every node is ranked: the panel costs less than a ranking


def walk_from(
    graph: Graph,  # N nodes
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    share: Tensor,  # [B, K], how much each anchor stands for the question
    config: WalkConfig,
    mask: Tensor | None = None,  # [B or 1, N] bool, the nodes there are for the question
) -> SparseRows:  # [B, N]
    """Personalised PageRank of B questions (`mathematics.md` 6): probabilities, 0 where not ranked.

    In a large graph mass is pushed around the anchors only and `config.kept` nodes of a question
    are ranked, so that time and memory do not depend on N. A node that is not there for a question
    has no edges: nothing is reached through it.
    """
    seeds = SparseRows.of(anchors, share, graph.num_nodes)
    if mask is None or len(mask) == 0:
        return _walked(graph, seeds, config)
    # Questions asked of one moment share a graph; there are few moments in a batch.
    shared = mask[:1] if mask.stride(0) == 0 else mask
    kinds, group = torch.unique(shared, dim=0, return_inverse=True)
    group = group.expand(seeds.shape[0])
    parts = [
        _walked(_without(graph, ~there), seeds.select(group[seeds.row] == i), config)
        for i, there in enumerate(kinds)
    ]
    key, order = torch.cat([part.key for part in parts]).sort()
    value = torch.cat([part.value for part in parts])[order]
    return SparseRows(key, value, seeds.shape)


def _walked(graph: Graph, seeds: SparseRows, config: WalkConfig) -> SparseRows:
    if graph.num_nodes <= _SMALL:
        return SparseRows.from_dense(
            personalized_pagerank(graph, seeds.to_dense(), damping=config.damping).values
        )
    kept = min(config.kept, graph.num_nodes)
    found = personalized_pagerank(graph, seeds, damping=config.damping, k=kept)
    assert found.indices is not None
    return SparseRows.of(found.indices, found.values, graph.num_nodes)


def _without(graph: Graph, gone: Tensor) -> Graph:  # gone [N] bool
    cut = gone[graph.source.long()] | gone[graph.target.long()]
    return graph.with_weight(graph.weight.masked_fill(cut, 0.0))
