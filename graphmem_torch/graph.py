"""Graph: a directed, typed, weighted graph as tensors, compressed by target and by source.

Row i of the compressed form lists the edges into node i, the order in which propagation reads them.
`out_indptr` and `out_edge` list the edges that leave a node, for frontiers and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_tensor
from graphmem_torch.coo import (
    check_edge_index,
    check_finite,
    column,
    edge_keys,
    pointers,
    strongest_of_equal,
)
from graphmem_torch.errors import InputError, interruptible, located

if TYPE_CHECKING:
    from networkx import DiGraph

__all__ = ["GRAPH_PARTS", "Graph", "Stored", "graph_from_columns"]

GRAPH_PARTS = ("indptr", "source", "target", "weight", "type", "out_indptr", "out_edge")
"""Names of the tensors of a graph."""


_FORMAT = "graphmem_torch.Graph 1"  # the mark by which `load` recognises a file of `save`
_MIX = -7046029254386353131  # 2^64 over the golden ratio, as int64


class Stored(NamedTuple):
    """Edges as columns, [n] each: `source` and `target` int32, `weight` float32, `type` uint8."""

    source: Tensor
    target: Tensor
    weight: Tensor
    type: Tensor


@dataclass(frozen=True, eq=False)
class Graph:
    """Directed graph of `num_nodes` nodes and E edges; immutable, on one device.

    Build it with `from_edges`, which validates; the constructor takes the derived arrays unchecked.

    Attributes:
        indptr: `[N + 1]` int32; edges `indptr[i]:indptr[i + 1]` come into node i.
        source: `[E]` int32, source node of each edge; ascending inside a row.
        target: `[E]` int32, target node of each edge; ascending.
        weight: `[E]` float32, signed.
        type: `[E]` uint8, `EdgeType` of each edge.
        out_indptr: `[N + 1]` int32; `out_edge[out_indptr[j]:out_indptr[j + 1]]` leave node j.
        out_edge: `[E]` int32, positions in the arrays above, ordered by source.
        num_nodes: N.
        time: `[E]` float64, seconds since the epoch, UTC, NaN if unknown; None if all are unknown.
    """

    indptr: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    type: Tensor
    out_indptr: Tensor
    out_edge: Tensor
    num_nodes: int
    time: Tensor | None = None

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,  # [2, E] integers: sources, targets
        weight: Tensor | None = None,  # [E]
        *,
        type: Tensor | None = None,  # [E]
        time: Tensor | None = None,  # [E] seconds
        num_nodes: int | None = None,
    ) -> Graph:
        """Build a graph from a list of edges in any order.

        Of parallel edges with one (source, target, type), the first of largest |weight| stays.

        Args:
            edge_index: `[2, E]`, row 0 the sources, row 1 the targets (the convention of PyG).
            weight: `[E]`; ones when omitted. Gradients flow back to it.
            type: `[E]` in 0..255; zeros when omitted.
            time: `[E]`, seconds since the epoch, UTC.
            num_nodes: N; the largest id + 1 when omitted.

        Raises:
            InputError: A shape, dtype or device is wrong, an id is outside 0..N-1, a type is
                outside 0..255, or a weight is not finite.
        """
        nodes = check_edge_index(edge_index, num_nodes)
        device, count = edge_index.device, edge_index.shape[1]
        given, weight = weight, column("weight", weight, count, device, torch.float32, 1.0)
        check_finite(weight, given)
        kind = column("type", type, count, device, torch.uint8, 0)
        when = None if time is None else column("time", time, count, device, torch.float64, 0.0)

        source, target = edge_index.to(torch.int64)
        key, order = torch.sort(edge_keys(target, source, kind, nodes), stable=True)
        order = strongest_of_equal(key, order, weight)
        return cls._from_sorted(
            source[order].to(torch.int32),
            target[order].to(torch.int32),
            weight[order],
            kind[order],
            nodes,
            None if when is None else when[order],
        )

    @staticmethod
    def _from_sorted(
        source: Tensor,
        target: Tensor,
        weight: Tensor,
        kind: Tensor,
        nodes: int,
        time: Tensor | None,
    ) -> Graph:
        out_edge = torch.sort(source, stable=True).indices.to(torch.int32)
        return Graph(
            indptr=pointers(target, nodes),
            source=source,
            target=target,
            weight=weight,
            type=kind,
            out_indptr=pointers(source, nodes),
            out_edge=out_edge,
            num_nodes=nodes,
            time=time,
        )

    @property
    def num_edges(self) -> int:
        """Number of edges E, after merging parallel ones."""
        return self.source.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.source.device

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]` int64: sources and targets, in the order of `weight`."""
        return torch.stack([self.source, self.target]).to(torch.int64)

    @property
    def out_degree(self) -> Tensor:
        """`[N]` float32, number of edges that leave each node (its fan)."""
        return self.out_indptr.diff().to(torch.float32)

    @property
    def in_degree(self) -> Tensor:
        """`[N]` float32, number of edges into each node."""
        return self.indptr.diff().to(torch.float32)

    @property
    def stored(self) -> Stored:
        """Edges as columns, numbered as in `leaving`."""
        return Stored(self.source, self.target, self.weight, self.type)

    def fan(self, nodes: Tensor | None = None) -> Tensor:  # [n] integers -> [n], or [N]
        """Return the number of edges that leave each of `nodes`, or each node."""
        return self.spans(nodes)[1]

    def spans(self, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:  # -> [n], [n] integers
        """Return first place and number of the edges that leave each of `nodes`, or each node."""
        if nodes is None:
            return self.out_indptr[:-1], self.out_indptr.diff()
        first = self.out_indptr.index_select(0, nodes)
        return first, self.out_indptr.index_select(0, nodes + 1) - first

    def leaving(self, place: Tensor) -> Tensor:  # [n] int64 -> [n] integers
        """Return the numbers in `stored` of edges at places of `spans`: by target, then type."""
        return self.out_edge.index_select(0, place)

    def unweighted(self) -> Graph:
        """Return the same edges, each with weight 1."""
        return replace(self, weight=torch.ones_like(self.weight))

    def by_source(self) -> tuple[Tensor, Tensor]:
        """Return the transpose: `out_indptr` `[N + 1]`, `out_edge` `[E]` into `weight`."""
        return self.out_indptr, self.out_edge

    def with_weight(self, weight: Tensor) -> Graph:  # [E]
        """Return the same edges with other weights, which may require a gradient.

        Waits for the device to check the values, except in `torch.compile`.

        Raises:
            InputError: The shape, device or dtype does not match, or a weight is not finite.
        """
        do = "give one weight for each edge, in the order of `edge_index`"
        shape = (self.num_edges,)
        check_tensor("weight", weight, "floating point", shape, do, device=self.device)
        check_finite(weight)
        return replace(self, weight=weight)

    def zeroed(self, mask: Tensor) -> Graph:  # [E] bool
        """Return the same edges with weight 0 where `mask` is true; waits for no device.

        Raises:
            InputError: The mask is not a boolean `[E]`.
        """
        check_tensor("mask", mask, "bool", (self.num_edges,), "give one value for each edge")
        return replace(self, weight=self.weight.masked_fill(mask, 0.0))

    def select(self, mask: Tensor) -> Graph:  # [E] bool
        """Return the same nodes with only the edges where `mask` is true.

        Raises:
            InputError: The mask is not a boolean `[E]`.
        """
        do = "compare an edge attribute, e.g. graph.type == EdgeType.TEMPORAL"
        check_tensor("mask", mask, "bool", (self.num_edges,), do)
        keep = mask.nonzero().squeeze(1)
        return self._from_sorted(
            self.source[keep],
            self.target[keep],
            self.weight[keep],
            self.type[keep],
            self.num_nodes,
            None if self.time is None else self.time[keep],
        )

    def topk_edges(
        self,
        k: int,
        *,
        by: Literal["source", "target"] = "source",
        ties: Literal["fair", "first"] = "fair",
    ) -> Graph:
        """Keep the k edges of largest |weight| of each node.

        Args:
            k: Number of edges to keep.
            by: Node that an edge belongs to: its source, or its target.
            ties: Choice between equal weights. "fair": by a hash of both ends and the type; favours
                no node, and is the same in every run. "first": the edge whose other end has the
                smaller number.

        Raises:
            InputError: k is negative, or a name is unknown.
        """
        check_count("k", k, 0)
        check_choice("by", by, ("source", "target"))
        check_choice("ties", ties, ("fair", "first"))
        source, target = self.source.to(torch.int64), self.target.to(torch.int64)
        node, indptr = (source, self.out_indptr) if by == "source" else (target, self.indptr)
        # The bits of nonnegative float32 numbers are ordered like their values, so one sort of
        # nonnegative integers suffices; on the CPU that is a radix sort.
        bits = self.weight.detach().float().abs().view(torch.int32).to(torch.int64)
        key = (node << 32) + (0x7FFFFFFF - bits)
        if ties == "fair":
            mixed = ((source * _MIX + target) * _MIX + self.type) * _MIX
            drawn = (mixed ^ (mixed >> 32)).mul_(_MIX).argsort(stable=True)
            order = drawn[torch.sort(key[drawn], stable=True).indices]
        else:
            order = torch.sort(key, stable=True).indices
        rank = torch.arange(self.num_edges, device=self.device) - indptr[node[order]]
        mask = torch.zeros(self.num_edges, dtype=torch.bool, device=self.device)
        mask[order[rank < k]] = True
        return self.select(mask)

    def to(
        self,
        device: torch.device | torch.dtype | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> Graph:
        """Return the graph on another device, or with weights of another floating-point type.

        Takes both arguments in either order, like `Tensor.to`. Only weights change their type.

        Raises:
            InputError: The dtype is not a floating-point type, or a weight is beyond its range.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        if dtype is not None and not dtype.is_floating_point:
            raise InputError(
                f"dtype: expected a floating-point type, got {dtype}; give torch.float32"
            )
        graph = self._mapped(lambda part: part if device is None else part.to(device))
        if dtype is None:
            return graph
        weight = graph.weight.to(dtype)
        check_finite(weight, graph.weight)
        return replace(graph, weight=weight)

    def cpu(self) -> Graph:
        """Return the graph on the CPU."""
        return self._mapped(Tensor.cpu)

    def cuda(self, device: torch.device | str | int | None = None) -> Graph:
        """Return the graph on a CUDA device; the current one by default."""
        return self._mapped(lambda part: part.cuda(device))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Graph:
        parts = {each.name: getattr(self, each.name) for each in fields(Graph)}
        moved: dict[str, Any] = {
            name: change(part) if isinstance(part, Tensor) else part for name, part in parts.items()
        }
        return Graph(**moved)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the columns, from which `graph_from_columns` makes the graph again."""
        columns = self.source, self.target, self.weight, self.type, self.num_nodes, self.time
        return graph_from_columns, columns

    def save(self, path: str | Path) -> None:
        """Write the graph to one safetensors file, atomically."""
        from safetensors.torch import save_file

        tensors = {"edge_index": self.edge_index, "weight": self.weight.detach(), "type": self.type}
        if self.time is not None:
            tensors["time"] = self.time
        path = Path(path)
        unfinished = path.with_name(path.name + ".unfinished")
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            unfinished,
            metadata={"format": _FORMAT, "num_nodes": str(self.num_nodes)},
        )
        unfinished.replace(path)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Graph:
        """Load a graph written by `save`; checks the contents and runs no code from the file.

        Raises:
            InputError: The file is truncated, is not a graph, or was changed after `save`.
            FileNotFoundError: The file does not exist.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with interruptible(), safe_open(str(path), framework="pt") as file:
                said = file.metadata() or {}
                part = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise InputError(
                f"path: expected a whole safetensors file, got {path} ({error}); save it again"
            ) from error
        if said.get("format") != _FORMAT or not {"edge_index", "weight", "type"} <= part.keys():
            raise InputError(
                f"path: expected a file of Graph.save ({_FORMAT}), got {path} with "
                f"{said.get('format', 'no format')}; give a file that Graph.save wrote"
            )
        columns = part["weight"], part["type"], int(said["num_nodes"]), part.get("time")
        with located(str(path)):
            source, target = part["edge_index"]
            return graph_from_columns(source, target, *columns).to(device)

    def __repr__(self) -> str:
        """Return a summary: sizes, edges of each type, range of the weights, times, device."""
        said = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        if self.num_edges:
            count = torch.bincount(self.type.to(torch.int64))
            kinds = count.nonzero().squeeze(1).tolist()
            low, high = (float(end) for end in self.weight.detach().aminmax())
            said += [
                "types={" + ", ".join(f"{kind}: {int(count[kind])}" for kind in kinds) + "}",
                f"weight={str(self.weight.dtype).removeprefix('torch.')} in [{low:g}, {high:g}]",
            ]
        if self.time is not None:
            said.append(f"timed={int(self.time.isfinite().sum())}")
        return f"Graph({', '.join(said)}, device='{self.device}')"

    @classmethod
    def from_networkx(cls, graph: DiGraph, *, weight: str = "weight", type: str = "type") -> Graph:
        """Convert a networkx graph; nodes keep its order, undirected edges become two.

        Args:
            graph: Graph, also an undirected one or one with parallel edges.
            weight: Attribute of the edges that is their weight; 1 where it is missing.
            type: Attribute of the edges that is their type; 0 where it is missing.

        Raises:
            InputError: A weight is not a number or a type not a whole number, or as for
                `from_edges`.
        """
        number = {node: i for i, node in enumerate(graph.nodes)}
        edges = list(graph.to_directed(as_view=True).edges(data=True))
        index = torch.tensor([[number[u] for u, _, _ in edges], [number[v] for _, v, _ in edges]])
        return cls.from_edges(
            index.reshape(2, -1).to(torch.int64),
            torch.tensor([_attribute(each, weight, float, 1.0) for each in edges]),
            type=torch.tensor([_attribute(e, type, int, 0) for e in edges], dtype=torch.int64),
            num_nodes=len(number),
        )


def _attribute(
    edge: tuple[Any, Any, dict[str, Any]], name: str, kind: type[int] | type[float], missing: float
) -> float:
    """Return a numeric attribute of a networkx edge."""
    value = edge[2].get(name, missing)
    try:
        found = kind(value)
        if kind is float or found == value:
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    what = "a number" if kind is float else "a whole number"
    raise InputError(
        f"{name}: expected {what}, got {value!r:.60} at the edge {edge[:2]!r:.80}; repair that edge"
    )


def graph_from_columns(
    source: Tensor,  # [E] integers
    target: Tensor,  # [E] integers
    weight: Tensor,  # [E]
    type: Tensor,  # [E]
    num_nodes: int,
    time: Tensor | None = None,  # [E] seconds
) -> Graph:
    """Return the graph of columns in the order of a `Graph`, whose weights keep their dtype.

    `copy`, `pickle` and `torch.save` store a graph as these columns. A file cannot bring other
    arrays, so `torch.load(weights_only=True)` may call it.

    Raises:
        InputError: Columns do not fit each other, or are not those of a graph.
    """
    edges = torch.stack([source, target]).to(torch.int64)
    graph = Graph.from_edges(edges, type=type, time=time, num_nodes=num_nodes)
    if not torch.equal(graph.edge_index, edges):
        raise InputError("edge_index: expected sorted edges, each once, got others; save it again")
    return graph.with_weight(weight)


torch.serialization.add_safe_globals([graph_from_columns])
