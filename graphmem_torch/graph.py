"""Graph: a directed, typed, weighted graph as tensors, compressed by target and by source.

Row i of the compressed form lists the edges that come *into* node i, because that is how
propagation reads them; `out_indptr` and `out_edge` list the edges that leave a node, for frontiers
and for gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphmem_torch.coo import (
    MAX_TYPE,
    check_edge_index,
    check_num_nodes,
    check_type,
    column,
    pointers,
    pyg_columns,
    strongest_of_equal,
)
from graphmem_torch.errors import InputError

if TYPE_CHECKING:
    from networkx import DiGraph
    from torch_geometric.data import Data, HeteroData

__all__ = ["Graph"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph of `num_nodes` nodes and E edges; immutable, on one device.

    Make one with `from_edges`, which validates; the constructor takes the derived arrays as they
    are.

    Attributes:
        indptr: `[N + 1]` int32; edges `indptr[i]:indptr[i + 1]` come into node i.
        source: `[E]` int32, where each edge starts; ascending inside a row.
        target: `[E]` int32, where each edge ends; ascending.
        weight: `[E]` float32, signed.
        type: `[E]` uint8, an `EdgeType`.
        out_indptr: `[N + 1]` int32; `out_edge[out_indptr[j]:out_indptr[j + 1]]` leave node j.
        out_edge: `[E]` int32, positions in the arrays above, ordered by source.
        num_nodes: N.
        time: `[E]` float64, seconds since the epoch, UTC, NaN where unknown; None when no edge has
            one.
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
        """Builds the graph of a list of edges, in any order.

        Parallel edges of one (source, target, type) become the one of largest |weight| (the first
        on a tie).

        Args:
            edge_index: `[2, E]`, row 0 the sources, row 1 the targets (the convention of PyG).
            weight: `[E]`; ones when omitted. A gradient flows back to it.
            type: `[E]` in 0..255; zeros when omitted.
            time: `[E]`, seconds since the epoch, UTC.
            num_nodes: N; the largest id + 1 when omitted.

        Raises:
            InputError: For a wrong shape, dtype or device, an id outside 0..N-1, a type outside
                0..255, or a weight that is not finite.
        """
        check_edge_index(edge_index)
        device, count = edge_index.device, edge_index.shape[1]
        nodes = check_num_nodes(edge_index, num_nodes)
        weight = column("weight", weight, count, device, torch.float32, 1.0)
        if not bool(weight.isfinite().all()):
            bad = int((~weight.isfinite()).nonzero()[0])
            raise InputError(
                f"weight must be finite; got {float(weight[bad])} at edge {bad}. Drop or repair "
                "that edge."
            )
        kind = column("type", type, count, device, torch.uint8, 0)
        check_type(type)
        when = None if time is None else column("time", time, count, device, torch.float64, 0.0)

        source, target = edge_index.to(torch.int64)
        key = (target * nodes + source) * (MAX_TYPE + 1) + kind
        key, order = torch.sort(key, stable=True)
        order = strongest_of_equal(key, order, weight)
        return cls._from_sorted(
            source[order].to(torch.int32),
            target[order].to(torch.int32),
            weight[order],
            kind[order],
            nodes,
            None if when is None else when[order],
        )

    @classmethod
    def _from_sorted(
        cls,
        source: Tensor,
        target: Tensor,
        weight: Tensor,
        kind: Tensor,
        nodes: int,
        time: Tensor | None,
    ) -> Graph:
        out_edge = torch.sort(source, stable=True).indices.to(torch.int32)
        return cls(
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
        """E, after parallel edges were merged."""
        return self.source.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.source.device

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]` int64: sources and targets, in the order of `weight`."""
        return torch.stack([self.source, self.target]).to(torch.int64)

    @property
    def out_degree(self) -> Tensor:
        """`[N]` float32, the number of edges that leave each node: its fan."""
        return self.out_indptr.diff().to(torch.float32)

    @property
    def in_degree(self) -> Tensor:
        """`[N]` float32, the number of edges that come into each node."""
        return self.indptr.diff().to(torch.float32)

    def by_source(self) -> tuple[Tensor, Tensor]:
        """The transpose: `out_indptr` `[N + 1]` and `out_edge` `[E]`, which indexes `weight`."""
        return self.out_indptr, self.out_edge

    def with_weight(self, weight: Tensor) -> Graph:  # [E]
        """The same edges with other weights, which may require a gradient.

        Raises:
            InputError: If the shape, the device or the dtype does not fit.
        """
        if weight.shape != self.weight.shape or not weight.is_floating_point():
            raise InputError(
                f"weight must be floating point of shape [{self.num_edges}]; got {weight.dtype} "
                f"{list(weight.shape)}. Give one weight for each edge, in the order of "
                "`edge_index`."
            )
        if weight.device != self.device:
            raise InputError(
                f"weight must be on {self.device} like the graph; got {weight.device}. Move it "
                "first."
            )
        return replace(self, weight=weight)

    def select(self, mask: Tensor) -> Graph:  # [E] bool
        """The graph of the same nodes and the edges where `mask` is true.

        Raises:
            InputError: If the mask is not a boolean `[E]`.
        """
        if mask.dtype != torch.bool or mask.shape != self.source.shape:
            raise InputError(
                f"mask must be bool of shape [{self.num_edges}]; got {mask.dtype} "
                f"{list(mask.shape)}. "
                "Compare an edge attribute, e.g. graph.type == EdgeType.TEMPORAL."
            )
        keep = mask.nonzero().squeeze(1)
        return self._from_sorted(
            self.source[keep],
            self.target[keep],
            self.weight[keep],
            self.type[keep],
            self.num_nodes,
            None if self.time is None else self.time[keep],
        )

    def capped(self, k: int) -> Graph:
        """Keeps the k edges of largest |weight| that leave each node (on a tie the smaller target).

        Raises:
            InputError: If k is negative.
        """
        if k < 0:
            raise InputError(f"k must be at least 0; got {k}. Give the number of edges to keep.")
        # The bits of a nonnegative float32 order like its value, so one sort of nonnegative
        # integers does, which on the CPU is a radix sort.
        bits = self.weight.detach().float().abs().view(torch.int32).to(torch.int64)
        source = self.source.to(torch.int64)
        order = torch.sort((source << 32) + (0x7FFFFFFF - bits), stable=True).indices
        first = self.out_indptr.to(torch.int64)[source[order]]
        rank = torch.arange(self.num_edges, device=self.device) - first
        kept = order[rank < k]
        mask = torch.zeros(self.num_edges, dtype=torch.bool, device=self.device)
        mask[kept] = True
        return self.select(mask)

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on another device."""
        moved = {f.name: _moved(getattr(self, f.name), device) for f in fields(self)}
        return Graph(**moved)

    def to_pyg(self) -> Data:
        """As `torch_geometric.data.Data` with `edge_index`, `edge_weight` and `edge_type`."""
        from torch_geometric.data import Data

        return Data(
            edge_index=self.edge_index,
            edge_weight=self.weight,
            edge_type=self.type,
            edge_time=self.time,
            num_nodes=self.num_nodes,
        )

    @classmethod
    def from_pyg(cls, data: Data | HeteroData) -> Graph:
        """From a PyG graph; of a heterogeneous one, edge type i is the i-th of `data.edge_types`.

        Weights are `edge_weight`, else a one-dimensional `edge_attr`, else ones; times are
        `edge_time`, NaN in an edge type that has none.

        Raises:
            InputError: If there is no `edge_index`, or as for `from_edges`.
        """
        flat = data.to_homogeneous() if hasattr(data, "edge_types") else data
        if flat.edge_index is None:
            raise InputError("data must have an edge_index; got none. Set it, [2, 0] for no edges.")
        weight, time = pyg_columns(data.edge_stores)
        kind, nodes = flat.get("edge_type"), flat.num_nodes
        return cls.from_edges(flat.edge_index, weight, type=kind, time=time, num_nodes=nodes)

    @classmethod
    def from_networkx(cls, graph: DiGraph, *, weight: str = "weight", type: str = "type") -> Graph:
        """From a networkx graph; nodes are numbered in its order, undirected edges go both ways."""
        number = {node: i for i, node in enumerate(graph.nodes)}
        edges = list(graph.to_directed(as_view=True).edges(data=True))
        index = torch.tensor([[number[u] for u, _, _ in edges], [number[v] for _, v, _ in edges]])
        return cls.from_edges(
            index.reshape(2, -1).to(torch.int64),
            torch.tensor([float(d.get(weight, 1.0)) for _, _, d in edges]),
            type=torch.tensor([int(d.get(type, 0)) for _, _, d in edges], dtype=torch.int64),
            num_nodes=len(number),
        )


def _moved(value: Any, device: torch.device | str) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
