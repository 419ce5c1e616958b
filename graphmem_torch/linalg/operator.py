"""SymmetricOperator: a symmetric matrix defined by its products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.coo import pointers
from graphmem_torch.errors import InputError
from graphmem_torch.ops.spmm import spmm

__all__ = ["NullSpace", "SymmetricOperator"]
_DENSE = 64  # null vectors up to which a dense product is fastest and most exact


@dataclass(frozen=True, eq=False)
class NullSpace:
    """Orthonormal vectors with disjoint supports: node i has entry `value[i]` in one of them.

    Attributes:
        label: `[N]` int64, vector of each node; -1 for none.
        value: `[N]`, entry of each node in its vector; 0 for none.
        count: Number of vectors.
    """

    label: Tensor
    value: Tensor
    count: int

    def vectors(self, first: int) -> Tensor:  # [N, first]
        """Return the first vectors as dense columns."""
        dense = self.value.new_zeros(self.value.shape[0], first)
        row = ((self.label >= 0) & (self.label < first)).nonzero().squeeze(1)
        dense[row, self.label[row]] = self.value[row]
        return dense

    def project(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """Return `x` without its part in the null space."""
        if self.count == 0:
            return x
        if self.count <= _DENSE:
            return torch.addmm(x, self._dense, self._dense.T @ x, alpha=-1)
        inside = (self.label >= 0)[:, None]
        for _ in range(2):  # long rows are summed in working precision: repeat for the remainder
            part = spmm(*self._rows, x.contiguous())
            x = x - torch.where(inside, self.value[:, None] * part[self.label], 0.0)
        return x

    @cached_property
    def _dense(self) -> Tensor:  # [N, count]
        return self.vectors(self.count)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the transposed vectors in compressed rows."""
        labels, nodes = torch.sort(self.label, stable=True)
        start = int((labels < 0).sum())
        column = nodes[start:]
        return pointers(labels[start:], self.count), column.to(torch.int32), self.value[column]


class SymmetricOperator(ABC):
    """Symmetric `[N, N]` matrix, as needed by eigensolvers and linear solvers.

    Attributes:
        shape: `(N, N)`.
        dtype: Type of its products.
        device: Device of its products.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def matmul(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """Return the product with the columns of `x`."""

    @abstractmethod
    def diagonal(self) -> Tensor:  # [N]
        """Return the diagonal entries."""

    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Return an interval that contains every eigenvalue."""

    def null_space(self) -> NullSpace | None:
        """Return the complete null space of a positive semidefinite operator, if exactly known."""
        return None

    def affine(self, scale: float, shift: float) -> Callable[[Tensor], Tensor]:
        """Return the product with `scale * self + shift * I`, as a function."""
        return lambda x: self.matmul(x).mul_(scale).add_(x, alpha=shift)

    def to_dense(self) -> Tensor:  # [N, N]
        """Return the dense matrix."""
        return self.matmul(torch.eye(self.shape[0], dtype=self.dtype, device=self.device))

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.matmul(x)

    def check_columns(self, x: Tensor) -> None:
        """Raise `InputError` unless `x` is `[N, b]` of this operator's dtype and device."""
        rows = self.shape[0]
        if x.dim() != 2 or x.shape[0] != rows or x.dtype != self.dtype or x.device != self.device:
            raise InputError(
                f"x: expected {self.dtype} of shape [{rows}, b] on {self.device}, got {x.dtype} "
                f"{list(x.shape)} on {x.device}; a single vector is x[:, None]"
            )
