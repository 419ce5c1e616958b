"""NullSpace: the known null vectors of a Laplacian, one for each balanced component."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.coo import pointers
from graphmem_torch.ops.spmm import spmm

__all__ = ["NullSpace"]

_DENSE = 64  # null vectors up to which a dense product is the fastest and most exact


@dataclass(frozen=True, eq=False)
class NullSpace:
    """Orthonormal vectors with disjoint supports: node i has entry `value[i]` in one of them.

    Attributes:
        label: `[N]` int64, the vector that a node belongs to; -1 where it is in none.
        value: `[N]`, the node's entry in it; 0 where it is in none.
        count: How many vectors there are.
    """

    label: Tensor
    value: Tensor
    count: int

    def vectors(self, first: int) -> Tensor:  # [N, first]
        """The first so many vectors as dense columns."""
        dense = self.value.new_zeros(self.value.shape[0], first)
        row = ((self.label >= 0) & (self.label < first)).nonzero().squeeze(1)
        dense[row, self.label[row]] = self.value[row]
        return dense

    def project(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """`x` without its part in the null space."""
        if self.count == 0:
            return x
        if self.count <= _DENSE:
            return torch.addmm(x, self._dense, self._dense.T @ x, alpha=-1)
        inside = (self.label >= 0)[:, None]
        for _ in range(2):  # long rows are summed in working precision: what is left, again
            part = spmm(*self._rows, x.contiguous())
            x = x - torch.where(inside, self.value[:, None] * part[self.label], 0.0)
        return x

    @cached_property
    def _dense(self) -> Tensor:  # [N, count]
        return self.vectors(self.count)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """The transposed vectors in compressed rows."""
        labels, nodes = torch.sort(self.label, stable=True)
        start = int((labels < 0).sum())
        column = nodes[start:]
        return pointers(labels[start:], self.count), column.to(torch.int32), self.value[column]
