"""Graph whose edges lie in lists that grow, so that its successor shares their columns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.coo import int32_offsets, pointers
from graphmem_torch.graph import GRAPH_PARTS, Graph, Stored
from graphmem_torch.ops.ragged import ranges

__all__ = ["AppendableGraph"]


class AppendableGraph(Graph):
    """Graph as lists of the edges that leave each node, anywhere in shared columns.

    After an addition, the next graph shares the columns and has its own `first` and `count`. The
    compressed arrays of `Graph` are built at first access.

    Attributes:
        first: [N] int64, place in `stored` of the first edge that leaves each node.
        count: [N] int64, number of edges that leave each node, ordered by target and type.
        stored: Columns that hold the edges, with unused entries between them.
    """

    first: Tensor
    count: Tensor

    def __init__(self, first: Tensor, count: Tensor, stored: Stored) -> None:
        """Keep the lists without copying them."""
        known = {"first": first, "count": count, "_stored": stored, "num_nodes": len(first)}
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Tensor:
        if name not in GRAPH_PARTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        part: Tensor = getattr(self.compact, name)
        return part

    @property
    def compact(self) -> Graph:
        """Return the same graph in compressed arrays, built once."""
        known: Graph | None = self.__dict__.get("_compact")
        if known is None:
            with torch.inference_mode(False):  # cached, so usable outside it too
                known = self.__dict__["_compact"] = self._compressed()
        return known

    def _compressed(self) -> Graph:
        source, entry = ranges(self.first, self.count)
        target, weight, type = (column.index_select(0, entry) for column in self.stored[1:])
        order = torch.sort(target, stable=True).indices
        place = torch.arange(len(order), dtype=torch.int32, device=order.device)
        return Graph(
            indptr=pointers(target, self.num_nodes),
            source=source.index_select(0, order).to(torch.int32),
            target=target.index_select(0, order),
            weight=weight.index_select(0, order),
            type=type.index_select(0, order),
            out_indptr=int32_offsets(self.count),
            out_edge=torch.empty_like(target).index_copy_(0, order, place),
            num_nodes=self.num_nodes,
        )

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        known: int | None = self.__dict__.get("_num_edges")
        if known is None:
            known = self.__dict__["_num_edges"] = int(self.count.sum())
        return known

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.first.device

    @property
    def stored(self) -> Stored:
        """Columns that contain the lists."""
        known: Stored = self.__dict__["_stored"]
        return known

    def spans(self, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:  # -> [n], [n] int64
        """Return first place and number of the edges that leave each of `nodes`, or each node."""
        if nodes is None:
            return self.first, self.count
        return self.first.index_select(0, nodes), self.count.index_select(0, nodes)

    def leaving(self, place: Tensor) -> Tensor:  # [n] int64 -> [n] int64
        """Return the numbers of the edges at places of `spans`: the places themselves."""
        return place

    def with_weight(self, weight: Tensor) -> Graph:  # [E]
        """Return the same edges with other weights, in the order of `compact`."""
        return self.compact.with_weight(weight)

    def zeroed(self, mask: Tensor) -> Graph:  # [E] bool
        """Return a compact graph with weight 0 where `mask` is true; see `Graph.zeroed`."""
        return self.compact.zeroed(mask)

    def unweighted(self) -> AppendableGraph:
        """Return the same edges, each with weight 1."""
        ones = torch.ones_like(self.stored.weight)
        return AppendableGraph(self.first, self.count, self.stored._replace(weight=ones))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> AppendableGraph:
        """Return the graph with changed tensors, as `nn.Module.to` changes them."""
        return AppendableGraph(
            change(self.first), change(self.count), Stored(*map(change, self.stored))
        )
