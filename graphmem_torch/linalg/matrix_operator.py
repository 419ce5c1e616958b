"""as_operator: what a solver takes as a symmetric operator: an operator, a graph, or a matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import all_finite
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.laplacians import laplacian
from graphmem_torch.linalg.operator import SymmetricOperator

__all__ = ["MatrixOperator", "as_operator"]

_ROUNDING = 100  # units of the dtype by which two mirrored entries may differ


def as_operator(given: SymmetricOperator | Graph | Tensor) -> SymmetricOperator:
    """Return an operator itself, the default `laplacian` of a graph, or a matrix as an operator.

    Raises:
        InputError: None of these, a graph whose weights require a gradient, or a matrix that
            `MatrixOperator` refuses.
    """
    if isinstance(given, SymmetricOperator):
        return given
    if isinstance(given, Graph):
        return laplacian(given)
    if isinstance(given, Tensor):
        return MatrixOperator(given)
    raise InputError(
        "operator: expected a SymmetricOperator, a Graph or a symmetric tensor [N, N], got "
        f"{type(given).__name__}; convert it, as with torch.as_tensor"
    )


class MatrixOperator(SymmetricOperator):
    """Symmetric matrix, dense or sparse, as an operator."""

    def __init__(self, matrix: Tensor) -> None:  # [N, N]
        """Check the matrix, and keep it.

        Raises:
            InputError: It is not square, not float32 or float64, not finite, not symmetric, or
                requires a gradient.
        """
        self._check_kind(matrix)
        self.shape, self.dtype = (len(matrix), len(matrix)), matrix.dtype
        self.device, self._matrix = matrix.device, matrix
        dense = matrix.layout == torch.strided
        entries = matrix if dense else matrix.to_sparse_coo().coalesce()
        if not all_finite(entries if dense else entries.values()):
            raise InputError("operator: expected finite entries, got others; repair them")
        skew = entries - entries.mT if dense else (entries - entries.mT).coalesce().values()
        values = entries if dense else entries.values()
        most = float(values.abs().max()) if values.numel() else 0.0
        apart = float(skew.abs().max()) if skew.numel() else 0.0
        if apart > _ROUNDING * torch.finfo(self.dtype).eps * most:
            raise InputError(
                "operator: expected a symmetric matrix, got entries that differ from the mirrored "
                f"ones by up to {apart:.2g}; give (A + A.T) / 2, or laplacian(graph) of a graph"
            )
        if dense:
            self._diagonal, total = entries.diagonal(), entries.abs().sum(1)
        else:
            row, column = entries.indices()
            own = values.new_zeros(len(matrix))
            self._diagonal = own.index_add(0, row, torch.where(row == column, values, 0.0))
            total = own.index_add(0, row, values.abs())
        self._radius = total - self._diagonal.abs()  # of Gershgorin's circles

    @staticmethod
    def _check_kind(matrix: Tensor) -> None:
        square = matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1] and len(matrix)
        if not square or matrix.dtype not in (torch.float32, torch.float64):
            raise InputError(
                "operator: expected float32 or float64 [N, N] with N of at least 1, got "
                f"{matrix.dtype} {list(matrix.shape)}; convert it"
            )
        if matrix.requires_grad:
            raise InputError(
                "operator: expected no gradient, because these solvers have no backward, got a "
                "matrix that requires one; call .detach()"
            )

    def matmul(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """Return the product with the columns of `x`."""
        self.check_columns(x)
        return self._matrix @ x

    def diagonal(self) -> Tensor:  # [N]
        """Return the diagonal entries."""
        return self._diagonal

    def bounds(self) -> tuple[float, float]:
        """Return the interval of Gershgorin's circles."""
        low, high = self._diagonal - self._radius, self._diagonal + self._radius
        return float(low.min()), float(high.max())
