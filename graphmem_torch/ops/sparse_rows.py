"""SparseRows: a [B, N] matrix of which only the entries that are not 0 are kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_matrix, check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.tiles import stable_topk

__all__ = ["SparseRows", "check_node_rows"]

_NONE = -1


@dataclass(frozen=True, eq=False)
class SparseRows:
    """B rows of N values, few of them not 0: the activation of a batch of questions.

    What is done with it takes time and memory in proportion to its n entries, whatever N.

    Attributes:
        key: `[n]` int64, row * N + column, strictly ascending.
        value: `[n]` floating point.
        shape: (B, N).
    """

    key: Tensor
    value: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(
        cls,
        columns: Tensor,  # [B, K] int64, -1 = none
        values: Tensor,  # [B, K]
        num_columns: int,
    ) -> SparseRows:
        """Of lists of columns; where a row names a column twice the larger value counts.

        Raises:
            InputError: If the shapes or dtypes do not fit, or a column is not below
                `num_columns`.
        """
        check_matrix("values", values, "[B, K]")
        check_tensor("columns", columns, "int64", values.shape, "pad the columns with -1")
        if columns.numel() and (last := int(columns.max())) >= num_columns:
            raise InputError(
                f"columns: expected below {num_columns}, got {last}; drop what is another row's"
            )
        row = torch.arange(len(columns), device=columns.device)[:, None]
        key = (row * num_columns + columns).flatten()
        there = ((columns >= 0) & (values != 0)).flatten().nonzero().squeeze(1)
        key, slot = torch.unique(key.index_select(0, there), return_inverse=True)
        given = values.flatten().index_select(0, there)
        value = values.new_full(key.shape, -torch.inf).scatter_reduce_(0, slot, given, "amax")
        return cls(key, value, (len(columns), num_columns))

    @classmethod
    def from_dense(cls, values: Tensor) -> SparseRows:  # [B, N]
        """Of a matrix; takes a pass over it."""
        check_matrix("values", values, "[B, N]")
        flat = values.flatten()
        key = flat.nonzero().squeeze(1)
        return cls(key, flat.index_select(0, key), (values.shape[0], values.shape[1]))

    def to_dense(self) -> Tensor:  # [B, N]
        """The whole matrix."""
        rows, columns = self.shape
        out = self.value.new_zeros(rows * columns)
        return out.index_copy_(0, self.key, self.value).view(rows, columns)

    @property
    def row(self) -> Tensor:  # [n]
        """The row of each entry."""
        return self.key // max(1, self.shape[1])

    @property
    def column(self) -> Tensor:  # [n]
        """The column of each entry."""
        return self.key % max(1, self.shape[1])

    def __repr__(self) -> str:
        """What is there: shape, entries, type and device."""
        kind = str(self.value.dtype).removeprefix("torch.")
        size = f"shape={self.shape}, entries={len(self.key)}"
        return f"SparseRows({size}, value={kind}, device='{self.key.device}')"

    def select(self, mask: Tensor) -> SparseRows:  # [n] bool
        """The entries where `mask` is true."""
        kept = mask.nonzero().squeeze(1)
        if kept.shape == mask.shape:
            return self
        return SparseRows(
            self.key.index_select(0, kept), self.value.index_select(0, kept), self.shape
        )

    def narrowed(self, num_columns: int) -> SparseRows:
        """The first columns only."""
        row, column = self.row, self.column
        inside = column < num_columns
        key = row[inside] * num_columns + column[inside]
        return SparseRows(key, self.value[inside], (self.shape[0], num_columns))

    def lookup(self, row: Tensor, column: Tensor) -> Tensor:
        """The values at (row, column), of one shape after broadcasting; 0 for columns below 0."""
        wanted = row * self.shape[1] + column
        entries = self.key.shape[0]
        if not entries:
            return self.value.new_zeros(wanted.shape)
        place = torch.searchsorted(self.key, wanted).clamp_(max=entries - 1)
        found = (self.key.take(place) == wanted).logical_and_(column >= 0)
        return torch.where(found, self.value.take(place), 0.0)

    def gather(self, columns: Tensor) -> Tensor:  # [B, C] int64 -> [B, C]
        """The values of each row at its own columns; 0 for columns below 0."""
        return self.lookup(torch.arange(self.shape[0], device=columns.device)[:, None], columns)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64
        """The k largest entries of each row and their columns; 0 and -1 where there are fewer.

        Best first, and of equal ones at the end those of the first columns.
        """
        check_count("k", k)
        values, place = self.padded()
        values = values.masked_fill(place < 0, -torch.inf)
        _, best = stable_topk(values, min(k, values.shape[1]))
        chosen = torch.nn.functional.pad(place.gather(1, best), (0, k - best.shape[1]), value=_NONE)
        return self._taken(self.value, chosen, 0.0), self._taken(self.column, chosen, _NONE)

    def padded(self) -> tuple[Tensor, Tensor]:  # [B, L], [B, L] int64
        """The entries of each row side by side, and their places in `key`.

        Rows of fewer than L entries end with values 0 and places -1.
        """
        count = torch.bincount(self.row, minlength=self.shape[0])
        position = torch.arange(int(count.max()) if len(count) else 0, device=self.key.device)
        place = offsets_of(count)[:-1, None] + position
        place = place.masked_fill_(position >= count[:, None], _NONE)
        return self._taken(self.value, place, 0.0), place

    def _taken(self, source: Tensor, place: Tensor, missing: float) -> Tensor:
        if not len(source):
            return source.new_full(place.shape, missing)
        return torch.where(place >= 0, source.take(place.clamp(min=0)), missing)


def check_node_rows(name: str, value: Tensor | SparseRows, graph: Graph) -> None:
    """Raises `InputError` unless `value` is `[B, N]` for this graph, on the graph's device."""
    do = "give a matrix with a column for each node of the graph as it is, where it is"
    if not isinstance(value, SparseRows):
        axes = ("B", graph.num_nodes)
        check_tensor(name, value, "floating point", axes, do, device=graph.device)
    elif value.shape[1] != graph.num_nodes or value.key.device != graph.device:
        raise InputError(
            f"{name}: expected [B, {graph.num_nodes}] on {graph.device}, got {list(value.shape)} "
            f"on {value.key.device}; {do}"
        )
