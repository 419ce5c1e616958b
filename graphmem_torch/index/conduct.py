"""The edges that conduct, and how they follow the edges of a memory.

Which edges of a node conduct depends on all of its edges, and on no others: where edges come and
go, only the nodes at their ends are looked at again. The rest of the graph is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import SpreadConfig
from graphmem_torch.coo import offsets_of, strongest_of_equal, without_once
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph
from graphmem_torch.ops.growing import GrowingLists
from graphmem_torch.ops.pagerank import RunningPageRank
from graphmem_torch.ops.ragged import lower_bounds, ranges, row_entries, splice

__all__ = ["ConductingGraph", "conducting_graph"]

_BLOCK_BITS = 8
_BLOCK = 1 << _BLOCK_BITS  # edges whose numbers are looked up together


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
    conducting = ConductingGraph(config)
    if concept is None:
        concept = torch.zeros(time.shape, dtype=torch.bool)
    order = torch.where(concept, torch.arange(len(time)), -1)
    conducting.follow(edges, EdgeBlock.empty(), time, order)
    return conducting.graph


class _Arcs(NamedTuple):
    """Edges in the direction in which they conduct: [n] each; `type` as of the stored edge."""

    source: Tensor  # int64
    target: Tensor  # int64
    type: Tensor  # uint8
    weight: Tensor  # float32

    def take(self, at: Tensor) -> _Arcs:  # [m] int64 or [n] bool
        return _Arcs(*(column[at] for column in self))

    def strongest(self, order: Tensor, cap: int) -> _Arcs:  # [N] int64
        """The `cap` strongest arcs of each source, in the order of source, target and type.

        Of equal ones those to targets that come first in `order`.
        """
        nodes = len(order)
        # Parallel arcs are one, of their largest weight; the key orders by target inside a source.
        key, place = torch.sort((self.source * nodes + self.target) * 256 + self.type, stable=True)
        arcs = self.take(strongest_of_equal(key, place, self.weight))
        # The bits of a nonnegative float32 order like it; equal ones keep the order of targets.
        place = torch.sort(order[arcs.target], stable=True).indices
        bits = arcs.weight[place].view(torch.int32).to(torch.int64)
        ranked = torch.sort((arcs.source[place] << 32) + (0x7FFFFFFF - bits), stable=True).indices
        place = place[ranked]
        own = arcs.source[place]
        rank = torch.arange(len(place)) - torch.searchsorted(own, own)
        kept = torch.zeros(len(place), dtype=torch.bool).scatter(0, place, rank < cap)
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
        self._arcs = GrowingLists(
            {"target": torch.int32, "type": torch.uint8, "weight": torch.float32}
        )
        self.graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=0)
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
            own = fresh.take(torch.sort(fresh.source, stable=True).indices)
            columns = {"target": own.target, "type": own.type, "weight": own.weight}
            self._arcs.append(own.source, columns)
        touched = torch.cat([fresh.source, gone.source]).unique()
        if len(gone.source):
            self._take_out(gone)
        if moved is not None and len(moved):
            row, entry = self._arcs.entries(torch.arange(nodes))
            near = row[torch.isin(self._arcs.columns["target"][entry].long(), moved)]
            touched = torch.cat([touched, near]).unique()
        row, entry = self._arcs.entries(touched)
        column = self._arcs.columns
        arcs = _Arcs(
            touched[row],
            column["target"][entry].long(),
            column["type"][entry],
            column["weight"][entry],
        )
        self._replace(touched, arcs.strongest(order, self._config.max_edges), nodes)

    def _directed(self, edges: EdgeBlock, time: Tensor) -> _Arcs:
        """Both directions of edges, as far as they conduct."""
        source, target, type, weight = edges.source, edges.target, edges.type, edges.weight
        conflict = type == int(EdgeType.CONTRADICTS)
        strength = torch.where(conflict, weight.abs(), weight.clamp(min=0.0))
        hours = (time[source] - time[target]).abs().nan_to_num_(nan=0.0) / 3600.0
        decay = torch.exp(-self._config.temporal_decay * hours).to(torch.float32)
        strength = torch.where(type == int(EdgeType.TEMPORAL), strength * decay, strength)
        kind = type.long()
        value = torch.cat([strength * self._gains[kind], strength * self._reverse[kind]])
        ends = torch.cat([source, target]), torch.cat([target, source])
        return _Arcs(*ends, torch.cat([type, type]), value).take(value > 0)

    def _take_out(self, gone: _Arcs) -> None:
        """Takes each of these arcs out of the list of its source, once."""
        lists = gone.source.unique()
        row, entry = self._arcs.entries(lists)
        columns = {name: column[entry] for name, column in self._arcs.columns.items()}
        held, leaving = (
            torch.stack([list_, target.long(), type.long(), weight.view(torch.int32).long()])
            for list_, target, type, weight in (
                (row, *columns.values()),
                (torch.searchsorted(lists, gone.source), gone.target, gone.type, gone.weight),
            )
        )
        kept = without_once(held, leaving)
        counts = torch.bincount(row[kept], minlength=len(lists))
        self._arcs.replace(lists, counts, {k: column[kept] for k, column in columns.items()})

    def _replace(self, sources: Tensor, arcs: _Arcs, nodes: int) -> None:
        """Has `arcs`, in the order of source, target and type, leave these nodes and no others."""
        old = self.graph
        if not old.num_edges:
            edges = torch.stack([arcs.source, arcs.target])
            self.graph = Graph.from_edges(edges, arcs.weight, type=arcs.type, num_nodes=nodes)
            if self.rank is not None:
                self.rank = RunningPageRank.of(self.graph)
            return
        indptr = _extended(old.indptr, nodes)
        out_indptr = _extended(old.out_indptr, nodes)
        there = row_entries(out_indptr, sources)[1]
        leaving = old.out_edge[there].long()
        before = _Arcs(
            old.source[leaving].long(),
            old.target[leaving].long(),
            old.type[leaving],
            old.weight[leaving],
        )
        # Both lie in the order of source, target and type.
        key, known = _key(arcs, nodes), _key(before, nodes)
        place = torch.searchsorted(known, key).clamp(max=max(len(known) - 1, 0))
        same = torch.zeros(len(key), dtype=torch.bool)
        if len(known):
            same = (known[place] == key) & (before.weight[place] == arcs.weight)
        stays = torch.zeros(len(known), dtype=torch.bool).index_fill(0, place[same], True)
        fresh, lost = arcs.take(~same), leaving[~stays]
        # The rows of the targets anew: what stays of them, and what comes.
        rows = torch.cat([fresh.target, old.target[lost].long()]).unique()
        row, entry = row_entries(indptr, rows)
        kept = ~torch.isin(entry, lost)
        row, entry = row[kept], entry[kept]
        inside = torch.cat([row, torch.searchsorted(rows, fresh.target)])
        source = torch.cat([old.source[entry].long(), fresh.source])
        type = torch.cat([old.type[entry], fresh.type])
        weight = torch.cat([old.weight[entry], fresh.weight])
        order = torch.sort((inside * nodes + source) * 256 + type).indices
        counts = torch.bincount(inside, minlength=len(rows))
        first, last = indptr[rows].long(), indptr[rows + 1].long()
        change = torch.zeros(nodes, dtype=torch.int64).index_copy(0, rows, counts - (last - first))
        new = indptr + offsets_of(change).to(torch.int32)
        # Where each edge of before is now, and where the new ones are.
        position = torch.empty(len(order), dtype=torch.int32)
        position[order] = ranges(new[rows].long(), counts)[1].to(torch.int32)
        shifts = offsets_of(counts - (last - first)).to(torch.int32)
        out_edge = _shifted(old, out_indptr, last, shifts)
        out_edge[_left_at(old, out_indptr, entry)] = position[: len(entry)]
        leaves = torch.empty(len(key), dtype=torch.int32)
        leaves[same] = out_edge[there[place[same]]]
        leaves[~same] = position[len(entry) :]
        begin, end = out_indptr[sources].long(), out_indptr[sources + 1].long()
        out_counts = torch.bincount(
            torch.searchsorted(sources, arcs.source), minlength=len(sources)
        )
        change = torch.zeros(nodes, dtype=torch.int64).index_copy(
            0, sources, out_counts - (end - begin)
        )
        span = first, last, counts
        self.graph = Graph(
            indptr=new,
            source=splice(old.source, *span, source[order].to(torch.int32)),
            target=splice(old.target, *span, rows[inside[order]].to(torch.int32)),
            weight=splice(old.weight, *span, weight[order]),
            type=splice(old.type, *span, type[order]),
            out_indptr=out_indptr + offsets_of(change).to(torch.int32),
            out_edge=splice(out_edge, begin, end, out_counts, leaves),
            num_nodes=nodes,
        )
        if self.rank is not None:
            changed = torch.cat([fresh.source, before.source[~stays]]).unique()
            self.rank.follow(old, self.graph, changed)


def _shifted(
    graph: Graph,
    out_indptr: Tensor,  # [>= N + 1]
    bounds: Tensor,  # [m] int64, ascending
    shifts: Tensor,  # [m + 1] int32
) -> Tensor:  # [E] int32
    """`out_edge` where each edge has moved by the shift of its place among the bounds.

    A table by blocks of edges stays in the cache, which one of all edges does not; edges of a block
    with a bound in it are looked at one by one.
    """
    begins = torch.arange(0, graph.num_edges + _BLOCK, _BLOCK)
    table = shifts[torch.searchsorted(bounds, begins, right=True)]
    moved = table.index_select(0, graph.out_edge >> _BLOCK_BITS).add_(graph.out_edge)
    split = bounds.div(_BLOCK, rounding_mode="floor").unique() * _BLOCK
    edge = (split[:, None] + torch.arange(_BLOCK)).flatten()
    edge = edge[: torch.searchsorted(edge, graph.num_edges)]
    shift = shifts[torch.searchsorted(bounds, edge, right=True)]
    moved[_left_at(graph, out_indptr, edge)] = edge.to(torch.int32) + shift
    return moved


def _left_at(graph: Graph, out_indptr: Tensor, edge: Tensor) -> Tensor:  # [n] -> [n] int64
    """Where edges stand in `out_edge`, in which those of a node ascend."""
    return lower_bounds(out_indptr, graph.out_edge, graph.source[edge].long(), edge)


def _key(arcs: _Arcs, nodes: int) -> Tensor:
    return (arcs.source * nodes + arcs.target) * 256 + arcs.type


def _extended(indptr: Tensor, nodes: int) -> Tensor:
    """The same rows, and empty ones behind them."""
    return torch.cat([indptr, indptr[-1:].expand(nodes + 1 - len(indptr))])


def _per_type(gains: object) -> Tensor:
    table = torch.zeros(256)
    for name, gain in dict(gains).items():  # type: ignore[call-overload]
        table[EdgeType[name.upper()]] = gain
    return table
