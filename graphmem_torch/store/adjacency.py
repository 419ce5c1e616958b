"""In-memory index of a store's edges by their end nodes.

Removing atoms needs the edges of a few nodes and their blocks, without a scan of all edges.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphmem_torch.coo import isin, offsets_of, without_once
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.ops.growing import GrowingRows
from graphmem_torch.ops.ragged import row_entries

__all__ = ["Adjacency"]

_LEFT = 8  # an eighth of the edges may be removed, or unsorted
_FEW = 1 << 14


class Adjacency:
    """Edges in stored order; 21 bytes an edge.

    Edges are sorted once by each end. Later edges are scanned linearly until there are enough of
    them to sort everything again.

    Attributes:
        state: State of the store that the edges belong to.
    """

    def __init__(self, edges: EdgeBlock, state: str, *, few: int = _FEW) -> None:
        """Index all edges stored at a state.

        Args:
            edges: The edges, in stored order.
            state: State of the store.
            few: Number of removed or unsorted edges that never triggers a rebuild.
        """
        self.state, self._few = state, few
        self._hold(edges)

    def _hold(self, edges: EdgeBlock) -> None:
        source, target = edges.source.int(), edges.target.int()
        # Bits, as NaN is equal to nothing.
        self._columns = [
            GrowingRows(column)
            for column in (source, target, edges.type, edges.weight.view(torch.int32))
        ]
        self._there = GrowingRows(torch.ones(len(edges), dtype=torch.bool))
        self._gone = torch.empty(0, dtype=torch.int64)  # positions of removed edges, ascending
        self._sorted = len(edges)
        self._order = [end.argsort(stable=True).int() for end in (source, target)]
        self._first = [offsets_of(end.bincount()) for end in (source, target)]

    def edges(self, nodes: Tensor, by: Literal["source", "target"]) -> EdgeBlock:
        """Return the edges whose source (or target) is one of the nodes [n], without repeats."""
        return self._at(self._places(nodes, ("source", "target").index(by)))

    def touching(self, nodes: Tensor) -> EdgeBlock:
        """Return the edges with either end in the nodes [n]."""
        return self._at(self._touching(nodes))

    def ranks(self, gone: Tensor, cut: EdgeBlock) -> Tensor:  # [r] int64, ascending
        """Return the stored positions of edges that touch `gone` or may match `cut`.

        An edge may match if it joins the same two nodes as an edge of `cut`.
        """
        near = self._places(cut.source, 0)
        ends = (self._columns[1].view[near]).long()
        near = torch.cat([near[isin(ends, cut.target)], self._touching(gone)]).unique()
        return near - torch.searchsorted(self._gone, near)

    def append(self, edges: EdgeBlock) -> None:
        """Add edges that are stored after the others."""
        weight = edges.weight.view(torch.int32)
        for column, new in zip(
            self._columns, (edges.source.int(), edges.target.int(), edges.type, weight), strict=True
        ):
            column.append(new)
        self._there.append(torch.ones(len(edges), dtype=torch.bool))
        self._tidy()

    def remove(self, edges: EdgeBlock) -> None:
        """Remove edges; of equal edges the first ones."""
        near = self._places(edges.source, 0)
        held = torch.stack([column.view[near].long() for column in self._columns])
        gone = torch.stack([column.long() for column in edges.columns[:3]])
        gone = torch.cat([gone, edges.weight.view(torch.int32).long()[None]])
        lost = near[~without_once(held, gone)]
        self._there.view[lost] = False
        self._gone = torch.cat([self._gone, lost]).sort().values
        self._tidy()

    def _tidy(self) -> None:
        most = max(self._few, len(self._there) // _LEFT)
        if len(self._gone) > most or len(self._there) - self._sorted > most:
            self._hold(self._at(self._there.view.nonzero().squeeze(1)))

    def _at(self, places: Tensor) -> EdgeBlock:
        source, target, kind, weight = (column.view[places] for column in self._columns)
        return EdgeBlock(source.long(), target.long(), kind, weight.view(torch.float32))

    def _touching(self, nodes: Tensor) -> Tensor:
        return torch.cat([self._places(nodes, 0), self._places(nodes, 1)]).unique()

    def _places(self, nodes: Tensor, end: int) -> Tensor:  # [p] int64, ascending
        """Return the positions of the remaining edges with a given end in `nodes`."""
        nodes, first = nodes.unique(), self._first[end]
        entry = row_entries(first, nodes[nodes < len(first) - 1])[1]
        late = isin(self._columns[end].view[self._sorted :], nodes).nonzero().squeeze(1)
        places = torch.cat([self._order[end][entry].long(), late + self._sorted])
        return places[self._there.view[places]].sort().values
