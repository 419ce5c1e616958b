"""Graph whose edges lie in lists that grow, so that the next graph shares their columns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, pointers
from graphmem_torch.graph import GRAPH_PARTS, Graph, Stored
from graphmem_torch.ops.ragged import ranges

__all__ = ["AppendableGraph"]


class AppendableGraph(Graph):
    """A graph as lists of the edges that leave each node, which lie anywhere in their columns.

    What follows a memory: the next one shares the columns, and has `first` and `count` of its own.
    The compressed arrays of `Graph` are made when one of them is first asked for.

    Attributes:
        first: [N] int64, where the edges that leave each node begin in `stored`.
        count: [N] int64, how many they are, in the order of target and type.
        stored: Edges, and what is none.
    """

    first: Tensor
    count: Tensor

    def __init__(self, first: Tensor, count: Tensor, stored: Stored) -> None:
        """Takes the lists as they are."""
        known = {"first": first, "count": count, "_stored": stored, "num_nodes": len(first)}
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Tensor:
        if name not in GRAPH_PARTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        part: Tensor = getattr(self.compact, name)
        return part

    @property
    def compact(self) -> Graph:
        """The same graph in compressed arrays; made once."""
        known: Graph | None = self.__dict__.get("_compact")
        if known is None:
            with torch.inference_mode(False):  # whoever asks first: others use it too
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
            out_indptr=offsets_of(self.count).to(torch.int32),
            out_edge=torch.empty_like(target).index_copy_(0, order, place),
            num_nodes=self.num_nodes,
        )

    @property
    def num_edges(self) -> int:
        """E."""
        known: int | None = self.__dict__.get("_num_edges")
        if known is None:
            known = self.__dict__["_num_edges"] = int(self.count.sum())
        return known

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.first.device

    @property
    def stored(self) -> Stored:
        """The columns that the lists lie in."""
        known: Stored = self.__dict__["_stored"]
        return known

    def spans(self, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:  # -> [n], [n] int64
        """Where the edges that leave some nodes, or each, begin, and how many they are."""
        if nodes is None:
            return self.first, self.count
        return self.first.index_select(0, nodes), self.count.index_select(0, nodes)

    def leaving(self, place: Tensor) -> Tensor:  # [n] int64 -> [n] int64
        """The edges at places of `spans`, which are their numbers."""
        return place

    def with_weight(self, weight: Tensor) -> Graph:  # [E]
        """As that of `Graph`, in whose order the weights are."""
        return self.compact.with_weight(weight)

    def unweighted(self) -> AppendableGraph:
        """The same edges, each of weight 1."""
        ones = torch.ones_like(self.stored.weight)
        return AppendableGraph(self.first, self.count, self.stored._replace(weight=ones))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> AppendableGraph:
        """The same graph of changed tensors, as `nn.Module.to` changes them."""
        return AppendableGraph(
            change(self.first), change(self.count), Stored(*map(change, self.stored))
        )
