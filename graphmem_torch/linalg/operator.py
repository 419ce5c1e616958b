"""SymmetricOperator: a symmetric matrix known by its products."""

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


class SymmetricOperator(ABC):
    """What an eigensolver or a linear solver needs of a symmetric `[N, N]` matrix.

    Attributes:
        shape: `(N, N)`.
        dtype: Type of its products.
        device: Device on which its products are made.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def matmul(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """The product with the columns of `x`."""

    @abstractmethod
    def diagonal(self) -> Tensor:  # [N]
        """The diagonal entries."""

    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """An interval that contains every eigenvalue."""

    def null_space(self) -> NullSpace | None:
        """The complete null space where it is known exactly, for a positive semidefinite one."""
        return None

    def affine(self, scale: float, shift: float) -> Callable[[Tensor], Tensor]:
        """The product with `scale * self + shift * I`."""
        return lambda x: self.matmul(x).mul_(scale).add_(x, alpha=shift)

    def to_dense(self) -> Tensor:  # [N, N]
        """The matrix itself."""
        return self.matmul(torch.eye(self.shape[0], dtype=self.dtype, device=self.device))

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.matmul(x)

    def check_columns(self, x: Tensor) -> None:
        """Raises `InputError` unless `x` is `[N, b]` of this operator's dtype and device."""
        rows = self.shape[0]
        if x.dim() != 2 or x.shape[0] != rows or x.dtype != self.dtype or x.device != self.device:
            raise InputError(
                f"x: expected {self.dtype} of shape [{rows}, b] on {self.device}, got {x.dtype} "
                f"{list(x.shape)} on {x.device}; a single vector is x[:, None]"
            )
