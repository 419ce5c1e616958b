"""SparseRows: a [B, N] matrix that stores only its nonzero entries."""

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
    """B sparse rows of N values: the activation of a batch of questions.

    Operations take time and memory in proportion to the n entries, whatever N.

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
        """Build from lists of columns; if a row repeats a column, the larger value counts.

        Raises:
            InputError: Shapes or dtypes do not fit, or a column is `num_columns` or more.
        """
        check_matrix("values", values, "[B, K]")
        check_tensor("columns", columns, "int64", values.shape, "pad the columns with -1")
        if columns.numel() and (last := int(columns.max())) >= num_columns:
            raise InputError(
                f"columns: expected below {num_columns}, got {last}; drop larger columns"
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
        """Convert a dense matrix in one pass."""
        check_matrix("values", values, "[B, N]")
        flat = values.flatten()
        key = flat.nonzero().squeeze(1)
        return cls(key, flat.index_select(0, key), (values.shape[0], values.shape[1]))

    def to_dense(self) -> Tensor:  # [B, N]
        """Return the dense matrix."""
        rows, columns = self.shape
        out = self.value.new_zeros(rows * columns)
        return out.index_copy_(0, self.key, self.value).view(rows, columns)

    @property
    def row(self) -> Tensor:  # [n]
        """Row of each entry."""
        return self.key // max(1, self.shape[1])

    @property
    def column(self) -> Tensor:  # [n]
        """Column of each entry."""
        return self.key % max(1, self.shape[1])

    def __repr__(self) -> str:
        """Return a summary: shape, entries, type and device."""
        kind = str(self.value.dtype).removeprefix("torch.")
        size = f"shape={self.shape}, entries={len(self.key)}"
        return f"SparseRows({size}, value={kind}, device='{self.key.device}')"

    def select(self, mask: Tensor) -> SparseRows:  # [n] bool
        """Keep the entries where `mask` is true."""
        kept = mask.nonzero().squeeze(1)
        if kept.shape == mask.shape:
            return self
        return SparseRows(
            self.key.index_select(0, kept), self.value.index_select(0, kept), self.shape
        )

    def narrowed(self, num_columns: int) -> SparseRows:
        """Keep the first `num_columns` columns."""
        row, column = self.row, self.column
        inside = column < num_columns
        key = row[inside] * num_columns + column[inside]
        return SparseRows(key, self.value[inside], (self.shape[0], num_columns))

    def lookup(self, row: Tensor, column: Tensor) -> Tensor:
        """Return the values at (row, column), which broadcast; 0 for negative columns."""
        wanted = row * self.shape[1] + column
        entries = self.key.shape[0]
        if not entries:
            return self.value.new_zeros(wanted.shape)
        place = torch.searchsorted(self.key, wanted).clamp_(max=entries - 1)
        found = (self.key.take(place) == wanted).logical_and_(column >= 0)
        return torch.where(found, self.value.take(place), 0.0)

    def gather(self, columns: Tensor) -> Tensor:  # [B, C] int64 -> [B, C]
        """Return the values of each row at its own columns; 0 for negative columns."""
        return self.lookup(torch.arange(self.shape[0], device=columns.device)[:, None], columns)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64
        """Return the k largest entries of each row and their columns; 0 and -1 if missing.

        Best first. Among equal entries at the limit, the first columns win.
        """
        check_count("k", k)
        values, place = self.padded()
        values = values.masked_fill(place < 0, -torch.inf)
        _, best = stable_topk(values, min(k, values.shape[1]))
        chosen = torch.nn.functional.pad(place.gather(1, best), (0, k - best.shape[1]), value=_NONE)
        return self._taken(self.value, chosen, 0.0), self._taken(self.column, chosen, _NONE)

    def padded(self) -> tuple[Tensor, Tensor]:  # [B, L], [B, L] int64
        """Return the entries of each row side by side, and their places in `key`.

        Rows of fewer than L entries are padded with value 0 and place -1.
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
    """Raise `InputError` unless `value` is `[B, N]` for this graph, on the graph's device."""
    do = "give a matrix with a column for each node of the graph as it is, where it is"
    if not isinstance(value, SparseRows):
        axes = ("B", graph.num_nodes)
        check_tensor(name, value, "floating point", axes, do, device=graph.device)
    elif value.shape[1] != graph.num_nodes or value.key.device != graph.device:
        raise InputError(
            f"{name}: expected [B, {graph.num_nodes}] on {graph.device}, got {list(value.shape)} "
            f"on {value.key.device}; {do}"
        )
