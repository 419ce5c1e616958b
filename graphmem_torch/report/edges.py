"""The edges of the picture: which are sent, in what order, and links in bundles."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.graph import Graph

__all__ = ["MOST_EDGES", "edges_of", "packed", "types_of"]

MOST_EDGES = 150_000
"""Edges on a page at most."""

_BUNDLES = 400


def edges_of(graph: Graph, label: Tensor) -> tuple[dict[str, Any], list[list[int]], list[str]]:
    """The edges to send, links between communities in bundles, and what is left out.

    An edge that runs both ways is sent once. They come by rank: each node's strongest, then each
    node's second strongest, ...; so any beginning of the list is a fair picture.
    """
    source, target = graph.source.long(), graph.target.long()
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    size = graph.weight.abs()
    order = torch.argsort(size, descending=True, stable=True)
    key = ((low * graph.num_nodes + high) * 256 + graph.type.long())[order]
    _, where = torch.unique(key, return_inverse=True)
    head = torch.full((int(where.max()) + 1 if len(where) else 0,), len(where), dtype=torch.int64)
    head.scatter_reduce_(0, where, torch.arange(len(where)), "amin")
    kept = order[head.sort().values]  # still the strongest first
    rank = _rank(torch.stack([source[kept], target[kept]], 1).flatten()).view(-1, 2).amin(1)
    # What contradicts is rare and must not be lost.
    rank = torch.where(graph.weight[kept] < 0, -1, rank)
    kept = kept[torch.argsort(rank, stable=True)]
    notes = []
    if len(kept) > MOST_EDGES:
        notes.append(
            f"{MOST_EDGES:,} of {len(kept):,} edges are on this page: each node's strongest."
        )
    sent = kept[:MOST_EDGES]
    names = {int(code): i for i, code in enumerate(graph.type.unique().tolist())}
    types = torch.zeros(256, dtype=torch.int64)
    types[list(names)] = torch.tensor(list(names.values()), dtype=torch.int64)
    data = {
        "count": len(sent),
        "source": packed(source[sent], np.uint32),
        "target": packed(target[sent], np.uint32),
        "type": packed(types[graph.type[sent].long()], np.uint8),
        "weight": packed(graph.weight[sent], np.float32),
    }
    return data, _bundles(label[source[kept]], label[target[kept]]), notes


def _rank(node: Tensor) -> Tensor:  # [M] -> [M]
    """How many edges of the same node come before each."""
    order = torch.argsort(node, stable=True)
    counts = torch.bincount(node)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(node)) - (counts.cumsum(0) - counts)[node[order]]
    return rank


def _bundles(first: Tensor, second: Tensor) -> list[list[int]]:  # rows of community, community, n
    apart = first != second
    low, high = torch.minimum(first, second)[apart], torch.maximum(first, second)[apart]
    base = int(high.max()) + 1 if len(high) else 1
    key, count = torch.unique(low * base + high, return_counts=True)
    best = torch.argsort(count, descending=True, stable=True)[:_BUNDLES]
    key, count = key[best], count[best]
    return torch.stack([key // base, key % base, count], 1).tolist()


def types_of(graph: Graph) -> list[dict[str, Any]]:
    """The types of edges there are, as the page switches them."""
    found = []
    for code, count in zip(
        *(t.tolist() for t in graph.type.unique(return_counts=True)), strict=True
    ):
        negative = bool((graph.weight[graph.type == code] < 0).all())
        name = EdgeType(code).name.lower().replace("_", " ")
        found.append({"code": code, "name": name, "count": count, "negative": negative, "on": True})
    return found


def packed(values: Tensor, kind: type[np.generic]) -> str:
    """Little-endian bytes of the values in base 64."""
    array = values.detach().cpu().numpy().astype(np.dtype(kind).newbyteorder("<"))
    return b64encode(array.tobytes()).decode("ascii")
