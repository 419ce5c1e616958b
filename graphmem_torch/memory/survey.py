"""Survey: the structure of what a store holds, and of which state of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.config import StructureConfig
from graphmem_torch.graph import Graph
from graphmem_torch.memory.assemble import to_rows
from graphmem_torch.spectral.structure import Structure, structure_of
from graphmem_torch.store import MemoryStore

__all__ = ["Survey", "survey"]


@dataclass(frozen=True, eq=False)
class Survey:
    """A structure and where it is from.

    Attributes:
        structure: Its nodes are named by the ids of the atoms.
        state: Of the store.
        node: `[N]` int64, the store's number of every node.
    """

    structure: Structure
    state: str
    node: Tensor


def survey(
    store: MemoryStore,
    settings: StructureConfig,
    device: str,
    before: Survey | None = None,
) -> Survey:
    """Analyses the graph of a store: stated and derived edges, signed (`docs/mathematics.md` 2).

    Args:
        store: Atoms and edges; edges of atoms that are gone are left out.
        settings: Without `concepts` only the edges between memories count.
        device: Where it is computed.
        before: A survey of an earlier state, which is brought up to date instead.

    Raises:
        InputError: If a library for communities is missing.
    """
    with store.reading():
        state = store.state
        if before is not None and before.state == state:
            return before
        columns, ids, edges = store.columns(), store.ids(), store.edges()
    kept = torch.ones(len(ids), dtype=torch.bool)
    if not settings.concepts and CONCEPT in columns.kind.names:
        kept = columns.kind.codes.long() != columns.kind.names.index(CONCEPT)
    row = kept.nonzero().squeeze(1)
    node = columns.node[row]
    names = [ids[i] for i in row.tolist()]
    block = to_rows(edges, node) if len(node) else edges.empty()
    graph = Graph.from_edges(
        torch.stack([block.source, block.target]),
        block.weight,
        type=block.type,
        num_nodes=len(node),
    ).to(device)
    if before is None:
        return Survey(structure_of(graph, settings, names), state, node)
    # Node numbers of a store ascend and are never given again.
    at = torch.searchsorted(before.node, node).clamp(max=max(len(before.node) - 1, 0))
    known = before.node[at] == node if len(before.node) else torch.zeros_like(node).bool()
    place = torch.where(known, at, -1).to(graph.device)
    return Survey(before.structure.refreshed(graph, place, names), state, node)
