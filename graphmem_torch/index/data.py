"""From the columns of a memory to the buffers of its index, and from these to what is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_tensor
from graphmem_torch.config import Config, ModesConfig, SpreadConfig
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph
from graphmem_torch.modes.find import (
    MODE_PARTS,
    Modes,
    find_modes,
    modes_from_tensors,
    modes_to_tensors,
)
from graphmem_torch.ops import pagerank
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.rank.candidates import MemoryTensors
from graphmem_torch.rank.hops import HOP_PARTS, HopParts, hop_parts

__all__ = [
    "OPTIONAL_PARTS",
    "REQUIRED_PARTS",
    "IndexInput",
    "conducting_graph",
    "graph_of",
    "index_tensors",
    "memory_tensors",
    "modes_by",
    "modes_in",
]

_BM25_PARTS = ("indptr", "docs", "scores", "idf", "count")
_GRAPH_PARTS = ("indptr", "source", "target", "weight", "type", "out_indptr", "out_edge")
# What is a tensor in `MemoryTensors` is a buffer of the same name.
_PLAIN = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor")
_OPTIONAL = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor | None")
REQUIRED_PARTS = (
    *("kind", "named", "time_bits"),
    *_PLAIN,
    *(f"{which}_{name}" for which in ("bm25", "session_bm25") for name in _BM25_PARTS),
    *(f"graph_{name}" for name in _GRAPH_PARTS),
)
OPTIONAL_PARTS = (*_OPTIONAL, *(f"modes_{name}" for name in MODE_PARTS), *HOP_PARTS)


def conducting_graph(
    edges: EdgeBlock,  # E edges between nodes
    time: Tensor,  # [N] float64 seconds, NaN where unknown
    config: SpreadConfig,
    concept: Tensor | None = None,  # [N] bool
) -> Graph:
    """Gains by type and direction, the decay of temporal edges, then the strongest of each node.

    w = gain * weight, times exp(-rho |dt|) with dt in hours for temporal edges
    (`docs/mathematics.md` 4). An edge of negative weight says that its ends conflict and conducts
    nothing; a contradiction conducts its |weight| where a preset gives the type a gain, for those
    who ask what speaks against something. Edges of gain 0 are left out. Of equal ones those to
    atoms are kept before those to concepts, and those to older nodes first.
    """
    source, target, type, weight = edges.source, edges.target, edges.type, edges.weight
    gains, reverse = _per_type(config.edges), _per_type(config.reverse)
    strength = torch.where(type == int(EdgeType.CONTRADICTS), weight.abs(), weight.clamp(min=0.0))
    hours = (time[source] - time[target]).abs().nan_to_num_(nan=0.0) / 3600.0
    decay = torch.exp(-config.temporal_decay * hours).to(torch.float32)
    strength = torch.where(type == int(EdgeType.TEMPORAL), strength * decay, strength)
    kind = type.long()
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    value = torch.cat([strength * gains[kind], strength * reverse[kind]])
    kinds = torch.cat([type, type])
    keep = value > 0
    graph = Graph.from_edges(both[:, keep], value[keep], type=kinds[keep], num_nodes=time.shape[0])
    # Edges lie in the order of their targets; the bits of a nonnegative float32 order like it.
    place = torch.arange(graph.num_edges)
    if concept is not None:
        place = torch.sort(concept[graph.target.long()], stable=True).indices
    bits = graph.weight[place].view(torch.int32).to(torch.int64)
    key = (graph.source[place].to(torch.int64) << 32) + (0x7FFFFFFF - bits)
    order = place[torch.sort(key, stable=True).indices]
    rank = torch.arange(len(order)) - graph.out_indptr[graph.source[order].long()]
    return graph.select(
        torch.zeros(len(order), dtype=torch.bool).scatter(0, order, rank < config.max_edges)
    )


def _per_type(gains: object) -> Tensor:
    table = torch.zeros(256)
    for name, gain in dict(gains).items():  # type: ignore[call-overload]
        table[EdgeType[name.upper()]] = gain
    return table


@dataclass(frozen=True, eq=False)
class IndexInput:
    """A memory as plain columns: A atoms that can be hits and K concepts among N nodes.

    Attributes:
        embeddings: [A, d] float32 unit rows.
        terms, term_offsets: [T] int64 and [A + 1] int64, the lexical terms of the atoms.
        vocab_size: Number of terms.
        kind, speaker: [A] int64 codes, -1 = none (speaker).
        num_speakers: S.
        session: [A] int64 codes, -1 = none.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        log_words: [A] float32, ln(1 + words).
        is_question, tells_time: [A] bool.
        edges: Between nodes 0..N-1.
        num_nodes: N.
        node: [A] int64, the node that each atom is, ascending; None: the first A.
        concept: [K] int64, likewise; None: those behind the atoms. A node may be neither.
        tokens, pieces, token_offsets: Packed token vectors and their word pieces, or None.
        num_pieces: Size of the word-piece vocabulary.
        duplicate: [A] int64, for each atom the first one of equal content; None where no atom is
            taken for another. Only modes read it.
        modes: Of the atoms, where they are known; else they are found if the settings ask for them.
        title: [A] int64, how many of its first terms are an atom's title, -1 = none; None where no
            atom has one.
        name_terms, name_offsets: int64 and [K + 1] int64, the terms of the names of the concepts.
    """

    embeddings: Tensor
    terms: Tensor
    term_offsets: Tensor
    vocab_size: int
    kind: Tensor
    speaker: Tensor
    num_speakers: int
    session: Tensor
    time: Tensor
    log_words: Tensor
    is_question: Tensor
    tells_time: Tensor
    edges: EdgeBlock
    num_nodes: int
    node: Tensor | None = None
    concept: Tensor | None = None
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    token_offsets: Tensor | None = None
    num_pieces: int = 0
    duplicate: Tensor | None = None
    modes: Modes | None = None
    title: Tensor | None = None
    name_terms: Tensor | None = None
    name_offsets: Tensor | None = None


def index_tensors(data: IndexInput, config: Config) -> dict[str, Tensor]:
    """Derives everything that retrieval needs: the buffers of `MemoryIndex` by name.

    Raises:
        InputError: For columns of different lengths.
    """
    _check(data)
    atoms = data.embeddings.shape[0]
    missing = data.session < 0
    sessions = int(data.session.max()) + 1 if atoms else 0
    session = torch.where(missing, sessions + missing.cumsum(0) - 1, data.session)
    bm25 = BM25.build(data.terms, data.term_offsets, data.vocab_size, b=0.3)
    by_session = _session_bm25(data, session)
    node = torch.arange(atoms) if data.node is None else data.node
    atom = torch.full((data.num_nodes,), -1).index_copy(0, node, torch.arange(atoms))
    time = data.time.new_full((data.num_nodes,), torch.nan).index_copy(0, node, data.time)
    graph = conducting_graph(data.edges, time, config.spread, atom < 0)
    month, day = _month_and_day(data.time)
    source, target = atom[data.edges.source], atom[data.edges.target]
    previous, following = _neighbours(data.edges, source, target, atoms)
    derived = (data.edges.type == int(EdgeType.DERIVED_FROM)) & (source >= 0) & (target >= 0)
    tensors = {
        "embeddings": data.embeddings,
        "node": node.to(torch.int32),
        "atom": atom.to(torch.int32),
        "kind": data.kind.to(torch.int16),
        "speaker": data.speaker.to(torch.int32),
        "named": torch.zeros(data.num_speakers, dtype=torch.uint8),
        "session": session.to(torch.int32),
        # As integers of the same bits: `.half()` must not round seconds since the epoch.
        "time_bits": data.time.to(torch.float64).contiguous().view(torch.int64),
        "month": month,
        "day": day,
        "log_words": data.log_words,
        "is_question": data.is_question.float(),
        "tells_time": data.tells_time.float(),
        "previous": previous,
        "next": following,
        "derived_source": source[derived].to(torch.int32),
        "derived_target": target[derived].to(torch.int32),
        "pagerank": _relative_pagerank(graph, node),
        **_prefixed("bm25", bm25),
        **_prefixed("session_bm25", by_session),
        **{f"graph_{name}": getattr(graph, name) for name in _GRAPH_PARTS},
    }
    if data.tokens is not None and data.pieces is not None and data.token_offsets is not None:
        tensors["tokens"] = data.tokens
        tensors["token_offsets"] = data.token_offsets
        tensors["piece_df"] = _document_frequency(
            data.pieces, data.token_offsets, max(1, data.num_pieces)
        )
    if config.modes.build and atoms:
        modes = data.modes or modes_by(config.modes, data.embeddings, data.time)
        tensors |= {f"modes_{name}": part for name, part in modes_to_tensors(modes).items()}
        if data.duplicate is not None:
            tensors["duplicate"] = data.duplicate.to(torch.int32)
    alone = (previous < 0) & (following < 0) & (data.speaker < 0)
    if (hops := _hops(data, alone, source)) is not None:
        tensors |= {name: getattr(hops, name.removeprefix("hop_")) for name in HOP_PARTS}
    return tensors


def _check(data: IndexInput) -> None:
    atoms = len(data.embeddings)
    lengths = {
        **dict.fromkeys(("kind", "speaker", "session", "time", "log_words"), atoms),
        **dict.fromkeys(("is_question", "tells_time", "duplicate", "title", "node"), atoms),
        **dict.fromkeys(("term_offsets", "token_offsets"), atoms + 1),
        "name_offsets": _concepts(data) + 1,
    }
    do = "give one entry for each atom of `embeddings` (offsets: one more, of concepts for names)"
    for name, length in lengths.items():
        if (column := getattr(data, name)) is not None:
            check_tensor(name, column, "", (length,), do)


def _concepts(data: IndexInput) -> int:
    return data.num_nodes - len(data.embeddings) if data.concept is None else len(data.concept)


def memory_tensors(parts: Mapping[str, Tensor]) -> MemoryTensors:
    """What ranking reads, from the buffers of an index by name."""
    values: dict[str, Any] = {name: parts[name] for name in _PLAIN}
    values |= {name: parts.get(name) for name in _OPTIONAL}
    hops = HopParts(*(parts[name] for name in HOP_PARTS)) if HOP_PARTS[0] in parts else None
    return MemoryTensors(
        **values,
        bm25=_bm25(parts, "bm25"),
        session_bm25=_bm25(parts, "session_bm25"),
        graph=graph_of(parts),
        modes=modes_in(parts),
        hops=hops,
    )


def graph_of(parts: Mapping[str, Tensor]) -> Graph:
    """The conducting graph among the buffers of an index."""
    part = {name: parts[f"graph_{name}"] for name in _GRAPH_PARTS}
    part["weight"] = part["weight"].float()
    return Graph(**part, num_nodes=len(part["indptr"]) - 1)


def modes_in(parts: Mapping[str, Tensor]) -> Modes | None:
    """The modes among the buffers of an index; None where it has none."""
    part = {name: parts[f"modes_{name}"] for name in MODE_PARTS if f"modes_{name}" in parts}
    return modes_from_tensors(part) if part else None


def _bm25(parts: Mapping[str, Tensor], prefix: str) -> BM25:
    indptr, docs, scores, idf, count = (parts[f"{prefix}_{name}"] for name in _BM25_PARTS)
    return BM25(indptr, docs, scores.float(), idf.float(), len(count))


def modes_by(
    settings: ModesConfig,
    embeddings: Tensor,  # [A, d]
    time: Tensor | None = None,  # [A] float64, NaN = unknown
    generator: torch.Generator | None = None,
) -> Modes:
    """The modes of atoms, as the settings say.

    A count above the number of atoms is no error here: a memory may be smaller than its preset.
    """
    count = min(settings.count, *embeddings.shape) or None
    return find_modes(
        embeddings,
        select=settings.select,
        count=count,
        epsilon=settings.epsilon,
        assign=settings.assign,
        time=time,
        generator=generator,
    )


def _hops(
    data: IndexInput,
    alone: Tensor,  # [A] bool
    source: Tensor,  # [E] int64, the atom that each edge leaves, -1 = none
) -> HopParts | None:
    """What hops read, where there are documents: atoms with a title that stand alone."""
    if data.title is None or not bool((title := data.title.where(alone, -1)).ge(0).any()):
        return None
    edges, concepts = data.edges, _concepts(data)
    concept = torch.arange(len(title), data.num_nodes) if data.concept is None else data.concept
    number = torch.full((data.num_nodes,), -1).index_copy(0, concept, torch.arange(concepts))
    target = number[edges.target]
    about = (edges.type == int(EdgeType.ABSTRACTION)) & (source >= 0) & (target >= 0)
    names, offsets = data.name_terms, data.name_offsets
    if names is None or offsets is None:
        names, offsets = title.new_empty(0), title.new_zeros(concepts + 1)
    return hop_parts(
        data.terms,
        data.term_offsets,
        title,
        (source[about], target[about]),
        names,
        offsets,
    )


def _prefixed(prefix: str, bm25: BM25) -> dict[str, Tensor]:
    # A count that survives .half(): the length of an empty-handed buffer.
    tensors = {"count": torch.zeros(bm25.num_docs, dtype=torch.uint8)}
    tensors |= {name: getattr(bm25, name) for name in _BM25_PARTS if name != "count"}
    return {f"{prefix}_{name}": tensor for name, tensor in tensors.items()}


def _session_bm25(data: IndexInput, session: Tensor) -> BM25:
    """Sessions as documents: the terms of their atoms one after another."""
    count = int(session.max()) + 1 if len(session) else 0
    lengths = data.term_offsets.diff()
    order = torch.sort(session.repeat_interleave(lengths), stable=True)
    offsets = offsets_of(torch.bincount(order.values, minlength=count))
    return BM25.build(data.terms[order.indices], offsets, data.vocab_size)


def _relative_pagerank(graph: Graph, node: Tensor) -> Tensor:  # [A] -> [A]
    if not len(node):
        return torch.zeros(0)
    values = pagerank(graph).values[node]
    return values / values.max().clamp(min=torch.finfo(values.dtype).tiny)


def _neighbours(
    edges: EdgeBlock,
    source: Tensor,  # [E] int64, the atom that each edge leaves, -1 = none
    target: Tensor,  # [E] int64
    atoms: int,
) -> tuple[Tensor, Tensor]:
    """The turn before and after each atom, from the temporal edges; -1 = none."""
    temporal = (edges.type == int(EdgeType.TEMPORAL)) & (source >= 0) & (target >= 0)
    source, target = source[temporal], target[temporal]
    previous = torch.full((atoms,), -1, dtype=torch.int64)
    following = previous.clone()
    previous[target], following[source] = source, target
    return previous.to(torch.int32), following.to(torch.int32)


def _month_and_day(time: Tensor) -> tuple[Tensor, Tensor]:
    """Month 0..11 and day of the month 0..30 in UTC, -1 where the time is unknown."""
    known = ~torch.isnan(time)
    stamps = time.nan_to_num(nan=0.0).numpy().astype("datetime64[s]")
    months = stamps.astype("datetime64[M]")
    month = torch.from_numpy(months.astype(np.int64) % 12)
    day = torch.from_numpy(
        (stamps.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
    )
    return (
        torch.where(known, month, -1).to(torch.int8),
        torch.where(known, day, -1).to(torch.int8),
    )


def _document_frequency(pieces: Tensor, offsets: Tensor, count: int) -> Tensor:  # [V] int32
    """In how many atoms each word piece occurs."""
    atom = torch.repeat_interleave(offsets.diff())
    seen = torch.unique(atom * count + pieces.long())
    return torch.bincount(seen % count, minlength=count).to(torch.int32)
