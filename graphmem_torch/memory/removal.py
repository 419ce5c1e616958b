"""What goes with atoms that are deleted, and what closes where they were."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.reader import LINKED_BY

__all__ = ["removal"]


def removal(store: MemoryStore, nodes: Sequence[int]) -> Batch:
    """The batch that takes atoms away; inside the turn in which it is written.

    In a store that linking filled, the turns around them become neighbours, and concepts that no
    other atom mentions go with them.
    """
    none = torch.empty(0, store.dim or 0)
    if not nodes or store.meta_get(LINKED_BY) is None:
        return Batch([], none, gone=nodes)
    joined, parted = store.rejoined_turns(nodes)
    weight = DEFAULT_EDGE_WEIGHT[EdgeType.TEMPORAL]
    edges = EdgeBlock.of(joined[0], joined[1], EdgeType.TEMPORAL, weight)
    gone = [*nodes, *_left_concepts(store, nodes)]
    return Batch([], none, edges=edges, cut=parted, gone=gone)


def _left_concepts(store: MemoryStore, nodes: Sequence[int]) -> list[int]:
    """Concepts that these atoms mention, and no other."""
    edges = store.edges()
    # A mention ties its own turn by the whole weight, the turns before it by less.
    whole = torch.tensor(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])
    mention = edges.take((edges.type == int(EdgeType.ABSTRACTION)) & (edges.weight == whole))
    own = _among(mention.source, nodes, store.next_node)
    alone = mention.target[own].unique()
    alone = alone[~torch.isin(alone, mention.target[~own])].tolist()
    kept = zip(alone, store.atoms(alone), strict=True)
    return [node for node, atom in kept if atom.kind == CONCEPT]


def _among(values: Tensor, nodes: Sequence[int], stop: int) -> Tensor:  # [n] int64 -> [n] bool
    """Which values are some of the nodes below `stop`."""
    there = torch.zeros(stop, dtype=torch.bool)
    there[torch.tensor(list(nodes), dtype=torch.int64)] = True
    return there[values]
