"""Missing links: which stated edges a store probably lacks, by the pattern of those it has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graphmem_torch.atoms import CONCEPT, EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.memory.assemble import to_rows
from graphmem_torch.spectral.link_prediction import predict_links
from graphmem_torch.store import MemoryStore

__all__ = ["MissingLink", "missing_links"]


@dataclass(frozen=True, slots=True)
class MissingLink:
    """An edge that is not there.

    Attributes:
        source, target: Ids of the atoms.
        probability: Of being as much an edge as those that are there.
    """

    source: str
    target: str
    probability: float


def missing_links(
    store: MemoryStore, k: int = 10, *, type: EdgeType = EdgeType.DEPENDENCY, seed: int = 0
) -> list[MissingLink]:
    """The k likeliest absent edges of one type (`spectral.predict_links`), likeliest first.

    Embeddings and the order in which the memories were added count beside the edges; where every
    edge leads to an older memory, so does every suggestion.

    Args:
        store: Atoms, embeddings and edges; at most 20,000 atoms beside concepts.
        k: How many at most.
        type: Of the edges looked at.
        seed: Of the draws in which the pattern is learned.

    Raises:
        InputError: Fewer than 2 such edges, too many atoms, or k below 1.
    """
    with store.reading():
        columns, ids, edges, vectors = (
            store.columns(),
            store.ids(),
            store.edges(),
            store.embeddings(),
        )
    kept = torch.ones(len(ids), dtype=torch.bool)
    if CONCEPT in columns.kind.names:
        kept = columns.kind.codes.long() != columns.kind.names.index(CONCEPT)
    row = kept.nonzero().squeeze(1)
    block = to_rows(edges, columns.node[row]) if len(row) else edges.empty()
    ends = torch.stack([block.source, block.target])[:, block.type == int(type)]
    if ends.shape[1] < 2:
        raise InputError(
            f"type: expected at least 2 edges of type {type.name.lower()} to learn from, got "
            f"{ends.shape[1]}; index a graph, or name another type"
        )
    place = torch.arange(len(row))
    found = predict_links(
        Graph.from_edges(ends, num_nodes=len(row)),
        [vectors[row].float()],
        k,
        order=place if bool((ends[0] > ends[1]).all()) else None,
        place=place,
        generator=torch.Generator().manual_seed(seed),
    )
    names = [ids[i] for i in row.tolist()]
    return [
        MissingLink(names[source], names[target], probability)
        for source, target, probability in zip(
            *found.pairs.tolist(), found.probability.tolist(), strict=True
        )
    ]
