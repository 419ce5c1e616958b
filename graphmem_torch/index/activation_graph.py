"""The conducting edges of a memory, and their updates when edges are added or removed.

The conducting edges of a node depend on all of its edges, and on no others. When edges change, only
the nodes at their ends are recomputed; the rest of the graph stays in place.
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
from graphmem_torch.coo import edge_keys, offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph, Stored
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.growing import GrowingLists
from graphmem_torch.ops.pagerank import RunningPageRank
from graphmem_torch.ops.ragged import runs

__all__ = ["ActivationGraph", "activation_graph"]

_MANY = 1 << 16  # length from which torch sorts faster


def activation_graph(
    edges: EdgeBlock,  # E edges between nodes
    time: Tensor,  # [N] float64 seconds, NaN where unknown
    config: SpreadConfig,
    concept: Tensor | None = None,  # [N] bool
) -> Graph:
    """Apply gains by type and direction, decay temporal edges, then keep each node's strongest.

    w = gain * weight, times exp(-rho |dt|) with dt in hours for temporal edges, or one step if the
    times are equal or unknown (`docs/mathematics.md` 4). An edge of negative weight marks a
    conflict and conducts nothing. A contradiction conducts its |weight| if a preset gives its type
    a gain. Edges of gain 0 are dropped. Only types in `capped` are limited; on a tie, edges to
    atoms come before those to concepts, then those to lower node numbers.
    """
    conducting = ActivationGraph(config)
    if concept is None:
        concept = torch.zeros(time.shape, dtype=torch.bool)
    conducting.follow(edges, EdgeBlock.empty(), time, concept.long())
    return conducting.graph


class _Arcs(NamedTuple):
    """Edges in the direction in which they conduct: [n] each; `type` of the stored edge."""

    source: np.ndarray  # int64
    target: np.ndarray  # int64
    type: np.ndarray  # uint8
    weight: np.ndarray  # float32

    def take(self, at: np.ndarray) -> _Arcs:  # [m] integers or [n] bool
        return _Arcs(*(column[at] for column in self))

    @property
    def entries(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Entries of the lists of their sources: sources, and columns in that order."""
        own = self.take(_stable_order(self.source))
        return own.source, {"target": own.target, "type": own.type, "weight": own.weight}

    def key(self, nodes: int) -> np.ndarray:  # [n] int64
        """Return the sort key of arcs; see `edge_keys`."""
        return edge_keys(self.source, self.target, self.type, nodes)

    def strongest(
        self,
        lot: np.ndarray,  # [N] int64
        cap: int,
        capped: np.ndarray,  # [256] bool
    ) -> _Arcs:
        """Return the `cap` strongest arcs of each source for `capped` types, and all others.

        They are in the order of source, target and type. On a tie, arcs to targets of a lower `lot`
        are kept.
        """
        if not len(self.source):
            return self
        key = self.key(len(lot))
        place = _stable_order(key)
        # Merge parallel arcs into one of their largest weight, the first on a tie.
        begin, size = runs(key[place])
        if len(begin) < len(place):
            weight = self.weight[place]
            largest = weight == np.maximum.reduceat(weight, begin).repeat(size)
            at = np.where(largest, np.arange(len(place)), len(place))
            place = place[np.minimum.reduceat(at, begin)]
        arcs = self.take(place)
        kept = ~capped[arcs.type]
        (drawn,) = (~kept).nonzero()
        # The bits of a nonnegative float32 order like it; equal ones keep the order of targets.
        place = drawn[_stable_order(lot[arcs.target[drawn]])]
        bits = arcs.weight[place].view(np.int32).astype(np.int64)
        ranked = _stable_order((arcs.source[place] << 32) + (0x7FFFFFFF - bits))
        place = place[ranked]
        own = arcs.source[place]
        kept[place] = np.arange(len(place)) - own.searchsorted(own) < cap
        return arcs.take(kept)


class ActivationGraph:
    """The conducting graph of a growing memory; one writer at a time.

    Stores every arc of each node that may conduct, so that the strongest can be chosen again.

    Attributes:
        graph: Current graph; later additions do not change this object.
        rank: Its PageRank, updated with it; None unless requested.
    """

    def __init__(self, config: SpreadConfig, *, rank: bool = False) -> None:
        """Create a graph without nodes; `rank` says whether to maintain PageRank."""
        self._config = config
        self._gains, self._reverse = _per_type(config.edges), _per_type(config.reverse)
        self._capped = _per_type(dict.fromkeys(config.capped, 1.0)).numpy() > 0
        self._arcs = GrowingLists(
            {"target": torch.int32, "type": torch.uint8, "weight": torch.float32}
        )
        self.graph = _empty_graph()
        self._strongest: GrowingLists | None = None  # arcs of `graph`, after its first update
        self.rank = RunningPageRank() if rank else None

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the state that `graph` does not contain."""
        counts, columns = self._arcs.compact()
        parts = {f"arc_{name}": column for name, column in columns.items()}
        parts["arc_indptr"] = offsets_of(counts)
        if self.rank is not None:
            parts |= {"rank": self.rank.values, "rank_residual": self.rank.residual}
        return parts

    @classmethod
    def from_tensors(
        cls, config: SpreadConfig, graph: Graph, parts: Mapping[str, Tensor]
    ) -> ActivationGraph:
        """Continue from a graph and the result of `to_tensors`."""
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
        lot: Tensor,  # [N] int64
    ) -> None:
        """Add edges, and remove others that were added before.

        Args:
            added: Edges to add.
            cut: Edges to remove.
            time: Times of the nodes.
            lot: Tie-breaker of the nodes: of equally strong edges, those to lower ones are kept.
        """
        fresh, gone = self._directed(added, time), self._directed(cut, time)
        nodes = len(time)
        self._arcs.resize(nodes)
        if len(fresh.source):
            self._arcs.append(*fresh.entries)
        touched = _distinct(np.concatenate([fresh.source, gone.source]))
        self._arcs.discard(*gone.entries)
        row, entry = self._arcs.entries(touched)
        column = self._arcs.columns
        arcs = _Arcs(
            touched[row],
            column["target"][entry].astype(np.int64),
            column["type"][entry],
            column["weight"][entry],
        )
        kept = arcs.strongest(lot.numpy(), self._config.max_edges, self._capped)
        self._replace(touched, kept, nodes)

    def _directed(self, edges: EdgeBlock, time: Tensor) -> _Arcs:
        """Return both directions of edges, as far as they conduct."""
        source, target, type, weight = (column.numpy() for column in edges.columns)
        if not len(source):
            return _Arcs(source, target, type, weight)
        strength = np.maximum(weight, 0.0)
        if (conflict := type == int(EdgeType.CONTRADICTS)).any():
            strength = np.where(conflict, np.abs(weight), strength)
        if len(turns := (type == int(EdgeType.TEMPORAL)).nonzero()[0]):
            when = time.numpy()
            hours = np.abs(when[source[turns]] - when[target[turns]]) / 3600.0
            hours[~(hours > 0)] = self._config.temporal_step_hours  # also where a time is unknown
            decay = torch.exp(torch.from_numpy(-self._config.temporal_decay_per_hour * hours))
            strength[turns] *= decay.to(torch.float32).numpy()
        gains, reverse = self._gains.numpy()[type], self._reverse.numpy()[type]
        value = np.concatenate([strength * gains, strength * reverse])
        ends = np.concatenate([source, target]), np.concatenate([target, source])
        return _Arcs(*ends, np.concatenate([type, type]), value).take(value > 0)

    def _replace(self, sources: np.ndarray, arcs: _Arcs, nodes: int) -> None:
        """Replace the arcs of some sources by `arcs`, ordered by source, target and type."""
        old = self.graph
        if not old.num_edges:
            edges = torch.from_numpy(np.stack([arcs.source, arcs.target]))
            columns = torch.from_numpy(arcs.weight), torch.from_numpy(arcs.type)
            self.graph = Graph.from_edges(edges, columns[0], type=columns[1], num_nodes=nodes)
            self._strongest = None
            if self.rank is not None:
                self.rank = RunningPageRank.of(self.graph)
            return
        if self._strongest is None:
            parts = {
                name: column.index_select(0, old.out_edge)
                for name, column in old.stored._asdict().items()
            }
            self._strongest = GrowingLists.of(old.out_indptr.diff().long(), parts)
        lists = self._strongest
        lists.resize(nodes)
        row, entry = lists.entries(sources)
        own = sources.searchsorted(arcs.source)
        counts, before = (np.bincount(each, minlength=len(sources)) for each in (own, row))
        # Both are in the order of source, target and type.
        same = counts == before
        mine, theirs = same[own], same[row]
        other = np.zeros(int(mine.sum()), dtype=bool)
        for name, column in lists.columns.items():
            other |= column[entry[theirs]] != getattr(arcs, name)[mine]
        same[own[mine][other]] = False
        fresh = arcs.take(~same[own])
        lists.replace(
            sources[~same], counts[~same], {name: getattr(fresh, name) for name in Stored._fields}
        )
        self.graph = AppendableGraph(
            lists.first.clone(), lists.count.clone(), Stored(**lists.tensors)
        )
        if self.rank is not None:
            self.rank.follow(old, self.graph, torch.from_numpy(sources[~same]))


@cache
def _empty_graph() -> Graph:
    """Return a graph without nodes, shared by all memories without any."""
    with torch.inference_mode(False):
        return Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=0)


def _stable_order(keys: np.ndarray) -> np.ndarray:  # [n] int64 -> [n]
    """Return the stable sort order of numbers; torch sorts long arrays faster."""
    if len(keys) < _MANY:
        return keys.argsort(kind="stable")
    order: np.ndarray = torch.sort(torch.from_numpy(keys), stable=True).indices.numpy()
    return order


def _distinct(nodes: np.ndarray) -> np.ndarray:  # [n] int64 -> [m], ascending
    """Return each node once: long arrays are marked, short ones sorted."""
    return np.unique(nodes) if len(nodes) < _MANY else np.flatnonzero(np.bincount(nodes))


def _per_type(gains: object) -> Tensor:
    table = torch.zeros(256)
    for name, gain in dict(gains).items():  # type: ignore[call-overload]
        table[EdgeType[name.upper()]] = gain
    return table
