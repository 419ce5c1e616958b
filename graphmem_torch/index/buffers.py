"""Buffers of an index by name, and the values that ranking reads from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.config import ModesConfig
from graphmem_torch.graph import GRAPH_PARTS, Graph
from graphmem_torch.modes.find import (
    MODE_PARTS,
    Modes,
    find_modes,
    modes_from_tensors,
)
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.postings import ListedBM25, PostingLists
from graphmem_torch.rank.hops import HOP_PARTS, HopParts
from graphmem_torch.rank.memory_tensors import MemoryTensors

__all__ = [
    "BM25_PARTS",
    "OPTIONAL_PARTS",
    "REQUIRED_PARTS",
    "Listed",
    "graph_of",
    "graph_tensors",
    "lexical_parts",
    "memory_parts",
    "memory_tensors",
    "modes_by",
    "modes_in",
    "same_buffers",
    "same_state",
]

BM25_PARTS = ("indptr", "docs", "counts", "norm", "idf")
# A tensor in `MemoryTensors` is a buffer of the same name.
_PLAIN = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor")
_OPTIONAL = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor | None")
REQUIRED_PARTS = (
    *("kind", "named"),
    *_PLAIN,
    *(f"{which}_{name}" for which in ("bm25", "session_bm25") for name in BM25_PARTS),
    *(f"graph_{name}" for name in GRAPH_PARTS),
)
OPTIONAL_PARTS = (*_OPTIONAL, *(f"modes_{name}" for name in MODE_PARTS), *HOP_PARTS)


class Listed(NamedTuple):
    """Parts of an index that changed since its first build and are no buffers; None if they are.

    Attributes:
        graph: The conducting graph.
        bm25, session_bm25: The postings of the lexical indexes.
    """

    graph: AppendableGraph | None = None
    bm25: PostingLists | None = None
    session_bm25: PostingLists | None = None

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the equivalent buffers."""
        parts = {} if self.graph is None else graph_tensors(self.graph)
        for name, lists in (("bm25", self.bm25), ("session_bm25", self.session_bm25)):
            if lists is not None:
                columns = zip(BM25_PARTS, lists.compact(), strict=False)
                parts |= {f"{name}_{part}": column for part, column in columns}
        return parts

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Listed:
        """Apply a change to every tensor, as `nn.Module.to` does."""
        graph, *postings = self
        return Listed(
            graph and graph.mapped(change),
            *(lists and PostingLists(*map(change, lists)) for lists in postings),
        )


def memory_tensors(parts: Mapping[str, Tensor], listed: Listed | None = None) -> MemoryTensors:
    """Build the tensors of ranking from the buffers of an index and its changed parts."""
    listed = Listed() if listed is None else listed
    values: dict[str, Any] = {name: parts[name] for name in _PLAIN}
    values |= {name: parts.get(name) for name in _OPTIONAL}
    hops = HopParts(*(parts[name] for name in HOP_PARTS)) if HOP_PARTS[0] in parts else None
    return MemoryTensors(
        **values,
        bm25=_bm25(parts, "bm25", listed.bm25),
        session_bm25=_bm25(parts, "session_bm25", listed.session_bm25),
        graph=graph_of(parts) if listed.graph is None else listed.graph,
        modes=modes_in(parts),
        hops=hops,
    )


def memory_parts(memory: MemoryTensors) -> dict[str, Tensor]:
    """Return the buffers of a memory without modes, by name; lists are compressed."""
    columns = {name: getattr(memory, name) for name in (*_PLAIN, *_OPTIONAL)}
    found = {name: part for name, part in columns.items() if part is not None}
    for prefix, lexical in (("bm25", memory.bm25), ("session_bm25", memory.session_bm25)):
        found |= {f"{prefix}_{name}": getattr(lexical, name) for name in BM25_PARTS}
    if memory.hops is not None:
        found |= {name: getattr(memory.hops, name.removeprefix("hop_")) for name in HOP_PARTS}
    return found | graph_tensors(memory.graph)


def graph_tensors(graph: Graph) -> dict[str, Tensor]:
    """Return the buffers that store a conducting graph, by name."""
    return {f"graph_{name}": getattr(graph, name).detach() for name in GRAPH_PARTS}


def graph_of(parts: Mapping[str, Tensor]) -> Graph:
    """Return the conducting graph in the buffers of an index."""
    part = {name: parts[f"graph_{name}"] for name in GRAPH_PARTS}
    part["weight"] = part["weight"].to(torch.promote_types(part["weight"].dtype, torch.float32))
    return Graph(**part, num_nodes=len(part["indptr"]) - 1)


def modes_in(parts: Mapping[str, Tensor]) -> Modes | None:
    """Return the modes in the buffers of an index; None without modes."""
    part = {name: parts[f"modes_{name}"] for name in MODE_PARTS if f"modes_{name}" in parts}
    return modes_from_tensors(part) if part else None


def _bm25(parts: Mapping[str, Tensor], prefix: str, lists: PostingLists | None) -> BM25:
    norm, idf = (parts[f"{prefix}_{name}"].float() for name in ("norm", "idf"))
    if lists is not None:
        return ListedBM25(lists, norm, idf)
    indptr, docs, counts = (parts[f"{prefix}_{name}"] for name in BM25_PARTS[:3])
    return BM25(indptr, docs, counts, norm, idf)


def lexical_parts(prefix: str, bm25: BM25) -> dict[str, Tensor]:
    """Return the buffers that `_bm25` reads; without the postings if they are lists."""
    listed = isinstance(bm25, ListedBM25)
    names = ("norm", "idf") if listed else BM25_PARTS
    return {f"{prefix}_{name}": getattr(bm25, name) for name in names}


def modes_by(
    settings: ModesConfig,
    embeddings: Tensor,  # [A, d]
    time: Tensor | None = None,  # [A] float64, NaN = unknown
    generator: torch.Generator | None = None,
) -> Modes:
    """Find the modes of atoms by the settings.

    A count above the number of atoms is allowed, because a memory may be smaller than its preset.
    """
    count = min(settings.count, *embeddings.shape) or None
    return find_modes(
        embeddings,
        select=settings.select,
        count=count,
        time=time,
        generator=generator,
    )


def same_buffers(parts: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Return whether both have the same tensors under the same names."""
    return parts.keys() == others.keys() and all(parts[name] is others[name] for name in parts)


def same_state(state: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether both have one memory and the same versions of the same parameters."""
    return state[0] is other[0] and all(
        one is two and before == now
        for (one, before), (two, now) in zip(state[1:], other[1:], strict=True)
    )
