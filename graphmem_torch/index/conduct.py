"""The edges that conduct, and how they follow the edges of a memory.

Which edges of a node conduct depends on all of its edges, and on no others: where edges come and
go, only the nodes at their ends are looked at again. The rest of the graph is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import SpreadConfig
from graphmem_torch.coo import offsets_of, without_once
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph
from graphmem_torch.ops.growing import GrowingLists
from graphmem_torch.ops.pagerank import RunningPageRank
from graphmem_torch.ops.ragged import array_ranges, array_row_entries, lower_bounds, splice

__all__ = ["ConductingGraph", "conducting_graph"]

_BLOCK_BITS = 8
_MANY = 1 << 16  # numbers
_BLOCK = 1 << _BLOCK_BITS  # edges whose numbers are looked up together


def conducting_graph(
    edges: EdgeBlock,  # E edges between nodes
    time: Tensor,  # [N] float64 seconds, NaN where unknown
    config: SpreadConfig,
    concept: Tensor | None = None,  # [N] bool
) -> Graph:
    """Gains by type and direction, the decay of temporal edges, then the strongest of each node.

    w = gain * weight, times exp(-rho |dt|) with dt in hours for temporal edges, a step where the
    times are equal or unknown (`docs/mathematics.md` 4). An edge of negative weight says that its
    ends conflict and conducts nothing; a contradiction conducts its |weight| where a preset gives
    the type a gain, for those who ask what speaks against something. Edges of gain 0 are left out.
    Only types that are `capped` are chosen from; of equal ones those to atoms are kept before those
    to concepts, and those to older nodes first.
    """
    conducting = ConductingGraph(config)
    if concept is None:
        concept = torch.zeros(time.shape, dtype=torch.bool)
    order = torch.where(concept, torch.arange(len(time)), -1)
    conducting.follow(edges, EdgeBlock.empty(), time, order)
    return conducting.graph


class _Arcs(NamedTuple):
    """Edges in the direction in which they conduct: [n] each; `type` as of the stored edge."""

    source: np.ndarray  # int64
    target: np.ndarray  # int64
    type: np.ndarray  # uint8
    weight: np.ndarray  # float32

    def take(self, at: np.ndarray) -> _Arcs:  # [m] integers or [n] bool
        return _Arcs(*(column[at] for column in self))

    def key(self, nodes: int) -> np.ndarray:  # [n] int64
        """What orders arcs by source, then target, then type."""
        return (self.source * nodes + self.target) * 256 + self.type

    def strongest(
        self,
        order: np.ndarray,  # [N] int64
        cap: int,
        capped: np.ndarray,  # [256] bool
    ) -> _Arcs:
        """The `cap` strongest arcs of each source of the types that are `capped`, and all others.

        In the order of source, target and type; of equal ones those to targets that come first in
        `order` are kept.
        """
        if not len(self.source):
            return self
        key = self.key(len(order))
        place = _stable_order(key)
        # Parallel arcs are one, of their largest weight, the first of equal ones.
        fresh = np.diff(key[place], prepend=-1) != 0
        if not fresh.all():
            begin, run = fresh.nonzero()[0], fresh.cumsum() - 1
            weight = self.weight[place]
            largest = weight == np.maximum.reduceat(weight, begin)[run]
            at = np.where(largest, np.arange(len(place)), len(place))
            place = place[np.minimum.reduceat(at, begin)]
        arcs = self.take(place)
        kept = ~capped[arcs.type]
        (drawn,) = (~kept).nonzero()
        # The bits of a nonnegative float32 order like it; equal ones keep the order of targets.
        place = drawn[_stable_order(order[arcs.target[drawn]])]
        bits = arcs.weight[place].view(np.int32).astype(np.int64)
        ranked = _stable_order((arcs.source[place] << 32) + (0x7FFFFFFF - bits))
        place = place[ranked]
        own = arcs.source[place]
        kept[place] = np.arange(len(place)) - own.searchsorted(own) < cap
        return arcs.take(kept)


class ConductingGraph:
    """The conducting graph of a memory that grows; one writer at a time.

    Holds every arc that may conduct, of each node, so that the strongest can be chosen again.

    Attributes:
        graph: As it is; what is added later does not show in it.
        rank: Its PageRank; None where nobody asks for it.
    """

    def __init__(self, config: SpreadConfig, *, rank: bool = False) -> None:
        """Without nodes; `rank` says whether PageRank is carried along."""
        self._config = config
        self._gains, self._reverse = _per_type(config.edges), _per_type(config.reverse)
        self._capped = _per_type(dict.fromkeys(config.capped, 1.0)).numpy() > 0
        self._arcs = GrowingLists(
            {"target": torch.int32, "type": torch.uint8, "weight": torch.float32}
        )
        self.graph = _empty_graph()
        self.rank = RunningPageRank() if rank else None

    def to_tensors(self) -> dict[str, Tensor]:
        """What `graph` does not say of it."""
        counts, columns = self._arcs.compact()
        parts = {f"arc_{name}": column for name, column in columns.items()}
        parts["arc_indptr"] = offsets_of(counts)
        if self.rank is not None:
            parts |= {"rank": self.rank.values, "rank_residual": self.rank.residual}
        return parts

    @classmethod
    def from_tensors(
        cls, config: SpreadConfig, graph: Graph, parts: Mapping[str, Tensor]
    ) -> ConductingGraph:
        """Goes on from a graph and `to_tensors`."""
        conducting = cls(config, rank="rank" in parts)
        columns = {name: parts[f"arc_{name}"] for name in ("target", "type", "weight")}
        conducting._arcs = GrowingLists.of(parts["arc_indptr"].diff(), columns)
        conducting.graph = graph
        if conducting.rank is not None:
            conducting.rank.values, conducting.rank.residual = parts["rank"], parts["rank_residual"]
        return conducting

    def follow(
        self,
        added: EdgeBlock,
        cut: EdgeBlock,
        time: Tensor,  # [N] float64 seconds, NaN where unknown
        order: Tensor,  # [N] int64
        moved: Tensor | None = None,  # [m] int64
    ) -> None:
        """Takes in edges, and takes out others, which are among those that were taken in.

        Args:
            added: Those that come.
            cut: Those that go.
            time: Of the nodes.
            order: In which nodes are kept where their edges are of one strength; -1 for atoms.
            moved: Nodes that were there and have another place in it than before.
        """
        fresh, gone = self._directed(added, time), self._directed(cut, time)
        nodes = len(time)
        self._arcs.resize(nodes)
        if len(fresh.source):
            own = fresh.take(_stable_order(fresh.source))
            columns = {"target": own.target, "type": own.type, "weight": own.weight}
            self._arcs.append(own.source, columns)
        touched = _distinct(np.concatenate([fresh.source, gone.source]))
        if len(gone.source):
            self._take_out(gone)
        if moved is not None and len(moved):
            row, entry = self._arcs.entries(np.arange(nodes))
            near = row[np.isin(self._arcs.columns["target"][entry], moved.numpy())]
            touched = np.unique(np.concatenate([touched, near]))
        row, entry = self._arcs.entries(touched)
        column = self._arcs.columns
        arcs = _Arcs(
            touched[row],
            column["target"][entry].astype(np.int64),
            column["type"][entry],
            column["weight"][entry],
        )
        kept = arcs.strongest(order.numpy(), self._config.max_edges, self._capped)
        self._replace(touched, kept, nodes)

    def _directed(self, edges: EdgeBlock, time: Tensor) -> _Arcs:
        """Both directions of edges, as far as they conduct."""
        source, target, type, weight = (column.numpy() for column in edges.columns)
        strength = np.maximum(weight, 0.0)
        if (conflict := type == int(EdgeType.CONTRADICTS)).any():
            strength = np.where(conflict, np.abs(weight), strength)
        if (turns := type == int(EdgeType.TEMPORAL)).any():
            when = time.numpy()
            apart = np.abs(when[source] - when[target])
            hours = torch.from_numpy(np.nan_to_num(apart, nan=0.0) / 3600.0)
            hours = torch.where(hours > 0, hours, self._config.temporal_step)
            decay = torch.exp(-self._config.temporal_decay * hours).to(torch.float32).numpy()
            strength = np.where(turns, strength * decay, strength)
        gains, reverse = self._gains.numpy()[type], self._reverse.numpy()[type]
        value = np.concatenate([strength * gains, strength * reverse])
        ends = np.concatenate([source, target]), np.concatenate([target, source])
        return _Arcs(*ends, np.concatenate([type, type]), value).take(value > 0)

    def _take_out(self, gone: _Arcs) -> None:
        """Takes each of these arcs out of the list of its source, once."""
        lists = np.unique(gone.source)
        row, entry = self._arcs.entries(lists)
        columns = {name: column[entry] for name, column in self._arcs.columns.items()}
        held, leaving = (
            torch.from_numpy(np.stack([list_, target, type, weight.view(np.int32)]))
            for list_, target, type, weight in (
                (row, *columns.values()),
                (lists.searchsorted(gone.source), gone.target, gone.type, gone.weight),
            )
        )
        kept = without_once(held, leaving).numpy()
        counts = np.bincount(row[kept], minlength=len(lists))
        self._arcs.replace(lists, counts, {k: column[kept] for k, column in columns.items()})

    def _replace(self, sources: np.ndarray, arcs: _Arcs, nodes: int) -> None:
        """Has `arcs`, in the order of source, target and type, leave these nodes and no others."""
        old = self.graph
        if not old.num_edges:
            edges = torch.from_numpy(np.stack([arcs.source, arcs.target]))
            columns = torch.from_numpy(arcs.weight), torch.from_numpy(arcs.type)
            self.graph = Graph.from_edges(edges, columns[0], type=columns[1], num_nodes=nodes)
            if self.rank is not None:
                self.rank = RunningPageRank.of(self.graph)
            return
        was = _Compressed.of(old, nodes)
        there = array_row_entries(was.out_indptr, sources)[1]
        leaving = was.out_edge[there]
        before = _Arcs(
            was.source[leaving].astype(np.int64),
            was.target[leaving].astype(np.int64),
            was.type[leaving],
            was.weight[leaving],
        )
        # Both lie in the order of source, target and type.
        key, known = arcs.key(nodes), before.key(nodes)
        same, place = np.zeros(len(key), dtype=bool), known.searchsorted(key)
        if len(known):
            place = place.clip(max=len(known) - 1)
            same = (known[place] == key) & (before.weight[place] == arcs.weight)
        stays = np.zeros(len(known), dtype=bool)
        stays[place[same]] = True
        fresh, lost = arcs.take(~same), leaving[~stays]
        # The rows of the targets anew: what stays of them, and what comes.
        rows = np.unique(np.concatenate([fresh.target, was.target[lost]]))
        row, entry = array_row_entries(was.indptr, rows)
        if len(lost):
            kept = ~np.isin(entry, lost)
            row, entry = row[kept], entry[kept]
        inside = np.concatenate([row, rows.searchsorted(fresh.target)])
        source = np.concatenate([was.source[entry], fresh.source])
        type = np.concatenate([was.type[entry], fresh.type])
        weight = np.concatenate([was.weight[entry], fresh.weight])
        order = ((inside * nodes + source) * 256 + type).argsort()
        counts = np.bincount(inside, minlength=len(rows))
        first, last = was.indptr[rows], was.indptr[rows + 1]
        new = was.indptr + _offsets(rows, counts - (last - first), nodes)
        # Where each edge of before is now, and where the new ones are.
        position = np.empty(len(order), dtype=np.int32)
        position[order] = array_ranges(new[rows], counts)[1]
        shifts = np.concatenate([[0], (counts - (last - first)).cumsum()]).astype(np.int32)
        out_edge = was.shifted(last, shifts)
        out_edge[was.left_at(entry)] = position[: len(entry)]
        leaves = np.empty(len(key), dtype=np.int32)
        leaves[same] = out_edge[there[place[same]]]
        leaves[~same] = position[len(entry) :]
        begin, end = was.out_indptr[sources], was.out_indptr[sources + 1]
        out_counts = np.bincount(sources.searchsorted(arcs.source), minlength=len(sources))
        span = first, last, counts
        parts = {
            "indptr": new,
            "source": splice(was.source, *span, source[order].astype(np.int32)),
            "target": splice(was.target, *span, rows[inside[order]].astype(np.int32)),
            "weight": splice(was.weight, *span, weight[order]),
            "type": splice(was.type, *span, type[order]),
            "out_indptr": was.out_indptr + _offsets(sources, out_counts - (end - begin), nodes),
            "out_edge": splice(out_edge, begin, end, out_counts, leaves),
        }
        tensors = {name: torch.from_numpy(column) for name, column in parts.items()}
        self.graph = Graph(**tensors, num_nodes=nodes)
        if self.rank is not None:
            changed = np.unique(np.concatenate([fresh.source, before.source[~stays]]))
            self.rank.follow(old, self.graph, torch.from_numpy(changed))


class _Compressed(NamedTuple):
    """The arrays of a graph, with empty rows behind for the nodes that it has not."""

    indptr: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    type: np.ndarray
    out_indptr: np.ndarray
    out_edge: np.ndarray

    @classmethod
    def of(cls, graph: Graph, nodes: int) -> _Compressed:
        """Of `nodes` nodes, at least as many as the graph has."""
        parts = {name: getattr(graph, name).numpy() for name in cls._fields}
        for name in ("indptr", "out_indptr"):
            more = np.full(nodes - graph.num_nodes, graph.num_edges, dtype=np.int32)
            parts[name] = np.concatenate([parts[name], more])
        return cls(**parts)

    def shifted(
        self,
        bounds: np.ndarray,  # [m] integers, ascending
        shifts: np.ndarray,  # [m + 1] int32
    ) -> np.ndarray:  # [E] int32
        """`out_edge` where each edge has moved by the shift of its place among the bounds.

        A table by blocks of edges stays in the cache, which one of all edges does not; edges of a
        block with a bound in it are looked at one by one.
        """
        edges = len(self.out_edge)
        begins = np.arange(0, edges + _BLOCK, _BLOCK)
        table = shifts[bounds.searchsorted(begins, side="right")]
        moved = table.take(self.out_edge >> _BLOCK_BITS)
        moved += self.out_edge
        split = np.unique(bounds >> _BLOCK_BITS) << _BLOCK_BITS
        edge = (split[:, None] + np.arange(_BLOCK)).ravel()
        edge = edge[: edge.searchsorted(edges)]
        shift = shifts[bounds.searchsorted(edge, side="right")]
        moved[self.left_at(edge)] = edge + shift
        return moved

    def left_at(self, edge: np.ndarray) -> np.ndarray:  # [n] -> [n] int64
        """Where edges stand in `out_edge`, in which those of a node ascend."""
        return lower_bounds(self.out_indptr, self.out_edge, self.source[edge], edge)


@cache
def _empty_graph() -> Graph:
    """A graph without nodes, for all memories that have none yet."""
    with torch.inference_mode(False):
        return Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=0)


def _stable_order(keys: np.ndarray) -> np.ndarray:  # [n] int64 -> [n]
    """The order of numbers, equal ones as they stand; many are sorted faster by torch."""
    if len(keys) < _MANY:
        return keys.argsort(kind="stable")
    order: np.ndarray = torch.sort(torch.from_numpy(keys), stable=True).indices.numpy()
    return order


def _distinct(nodes: np.ndarray) -> np.ndarray:  # [n] int64 -> [m], ascending
    """Each node once; many are marked, few sorted."""
    return np.unique(nodes) if len(nodes) < _MANY else np.flatnonzero(np.bincount(nodes))


def _offsets(rows: np.ndarray, change: np.ndarray, nodes: int) -> np.ndarray:  # [N + 1] int32
    """By how much rows begin later where some of them, ascending, have so many entries more."""
    more = np.zeros(nodes + 1, dtype=np.int32)
    more[rows + 1] = change
    return more.cumsum(dtype=np.int32)


def _per_type(gains: object) -> Tensor:
    table = torch.zeros(256)
    for name, gain in dict(gains).items():  # type: ignore[call-overload]
        table[EdgeType[name.upper()]] = gain
    return table
