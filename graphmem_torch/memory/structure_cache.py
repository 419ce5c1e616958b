"""Structure of a store's graph, kept up to date, and the edges that are missing from it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import StructureConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.memory.index_builder import to_rows
from graphmem_torch.store import MemoryStore

if TYPE_CHECKING:
    from graphmem_torch.spectral.structure import Structure

__all__ = ["MissingLink", "StructureCache", "missing_links"]


@dataclass(frozen=True, slots=True)
class MissingLink:
    """An edge that is predicted but not stored.

    Attributes:
        source, target: Ids of the atoms.
        probability: Probability that it is an edge as much as the stored ones are.
    """

    source: str
    target: str
    probability: float


@dataclass(frozen=True, eq=False)
class _StoredGraph:
    """The graph of a store at one of its states."""

    state: object
    node: Tensor  # [N] int64, numbers of the nodes in the store, ascending
    names: list[str]  # their ids
    edges: EdgeBlock  # between rows 0..N-1
    embeddings: Tensor | None  # [N, d]


class StructureCache:
    """Structure of a store, updated when the store changes; safe for threads."""

    def __init__(self, store: MemoryStore) -> None:
        """Create without reading; the first use reads."""
        self._store = store
        self._lock = threading.RLock()
        self._kept: tuple[object, bool, Tensor, Structure] | None = None  # and node numbers

    def expire(self) -> None:
        """Drop the analysis, so that the next use computes it again after a regime switch."""
        with self._lock:
            self._kept = None

    def get(self, settings: StructureConfig, device: str, *, concepts: bool = False) -> Structure:
        """Return the structure of all stated and derived edges, signed (`docs/mathematics.md` 2).

        Args:
            settings: Settings of the analyses.
            device: Device to compute on.
            concepts: Whether concepts are nodes; otherwise only edges between memories count.

        Raises:
            InputError: A library for communities is missing.
        """
        from graphmem_torch.spectral.structure import structure_of

        with self._lock:
            kept = self._kept
            if kept is not None and (kept[1], kept[3].settings) != (concepts, settings):
                kept = None
            if kept is not None and kept[0] == _state_of(self._store):
                return kept[3]
            there = _stored_graph(self._store, concepts=concepts)
            block = there.edges
            graph = Graph.from_edges(
                torch.stack([block.source, block.target]),
                block.weight,
                type=block.type,
                num_nodes=len(there.node),
            ).to(device)
            start = None
            if kept is not None:  # the iteration starts at the eigenvectors of the previous state
                known = kept[3].vectors
                vectors = torch.cat([known, known.new_zeros(1, known.shape[1])])
                start = vectors[_places(kept[2], there.node).to(vectors.device)]  # of new nodes: 0
            found = structure_of(graph, settings, there.names, start=start)
            self._kept = there.state, concepts, there.node, found
            return found


def missing_links(
    store: MemoryStore, k: int = 10, *, type: EdgeType = EdgeType.DEPENDENCY
) -> list[MissingLink]:
    """Return the k likeliest absent edges of one type (`spectral.predict_links`), likeliest first.

    Embeddings and the order of adding count besides the edges: where every edge leads to an
    older memory, so does every suggestion.

    Raises:
        InputError: Fewer than 2 such edges, too many atoms, or k below 1.
    """
    from graphmem_torch.spectral.link_prediction import predict_links

    there = _stored_graph(store, concepts=False, embeddings=True)
    block, count = there.edges, len(there.node)
    ends = torch.stack([block.source, block.target])[:, block.type == int(type)]
    if ends.shape[1] < 2:
        raise InputError(
            f"type: expected at least 2 edges of type {type.name.lower()} to learn from, got "
            f"{ends.shape[1]}; index a graph, or name another type"
        )
    assert there.embeddings is not None
    place = torch.arange(count)
    found = predict_links(
        Graph.from_edges(ends, num_nodes=count),
        [there.embeddings.float()],
        k,
        order=place if bool((ends[0] > ends[1]).all()) else None,
        place=place,
        generator=torch.Generator().manual_seed(0),
    )
    names = there.names
    return [
        MissingLink(names[source], names[target], probability)
        for source, target, probability in zip(
            *found.pairs.tolist(), found.probability.tolist(), strict=True
        )
    ]


def _state_of(store: MemoryStore) -> tuple[str, frozenset[int]]:
    """Return the state of a store, and what of it has expired."""
    return store.state, store.expiry.hidden()


def _stored_graph(store: MemoryStore, *, concepts: bool, embeddings: bool = False) -> _StoredGraph:
    """Return the nodes that have not expired, or the memories among them, with their edges."""
    with store.reading():
        state, columns, ids, edges = _state_of(store), store.columns(), store.ids(), store.edges()
        vectors = store.embeddings() if embeddings else None
    hidden = torch.tensor([*state[1]], dtype=torch.int64)
    there = (~columns.is_concept | concepts) & ~torch.isin(columns.node, hidden)
    row = there.nonzero().squeeze(1)
    node = columns.node[row]
    block = to_rows(edges, node) if len(node) else edges.empty()
    names = [ids[i] for i in row.tolist()]
    return _StoredGraph(state, node, names, block, None if vectors is None else vectors[row])


def _places(before: Tensor, node: Tensor) -> Tensor:  # [M], [N] int64 ascending -> [N] int64
    """Return the previous positions of nodes, -1 = new; node numbers are never reused."""
    if not len(before):
        return torch.full_like(node, -1)
    at = torch.searchsorted(before, node).clamp(max=len(before) - 1)
    return torch.where(before[at] == node, at, -1)
