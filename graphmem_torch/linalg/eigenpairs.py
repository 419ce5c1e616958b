"""lanczos: eigenpairs at one end of a symmetric operator, with correct multiplicities."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.matrix_operator import as_operator
from graphmem_torch.linalg.operator import NullSpace, SymmetricOperator
from graphmem_torch.linalg.thick_restart import RitzPairs, block_width, lowest_pairs
from graphmem_torch.ops.solution import Solution

__all__ = ["lanczos", "pairs_beyond_null"]
_log = logging.getLogger(__name__)

_DENSE = 256  # rows up to which the dense solver is faster
_LARGEST_DENSE = 8192  # rows up to which it is used for a large share of the spectrum


def lanczos(
    operator: SymmetricOperator | Graph | Tensor,  # [N, N]
    k: int,
    *,
    which: str = "smallest",
    tol: float = 1e-6,
    generator: torch.Generator | None = None,
    max_iter: int = 2000,
) -> Solution:  # values [k], vectors [N, k]
    """Return the k smallest or largest eigenvalues and their eigenvectors.

    Block Lanczos with full reorthogonalisation and thick restart, Chebyshev-filtered
    (`docs/mathematics.md` 2.3; Zhou and Saad 2007; Golub and Underwood 1977). The operator's known
    null vectors are deflated exactly and returned with value 0, so a disconnected graph has all its
    zeros. The block is wider than k, so every multiple eigenvalue has all its copies. Small
    problems, and those for a large share of the spectrum, are solved densely.

    Args:
        operator: Symmetric operator or matrix, dense or sparse; a graph stands for its
            `spectral.laplacian`, normalised and signed.
        k: Number of eigenpairs, 1 to N.
        which: "smallest" or "largest".
        tol: A pair has converged if ‖A x - value x‖ is at most `tol` times half the width of
            `operator.bounds()`; for a normalised Laplacian, that is `tol` itself.
        generator: Random generator for the start vectors; the global one when omitted.
        max_iter: Maximum block products with the operator (about k + 50% columns each).

    Returns:
        `values` ascending for "smallest", descending for "largest"; `vectors` orthonormal;
        `residual` `[k]` the norms above; `iterations` the block products. An eigenvalue lies within
        its residual of each value. `converged` is False, with a warning, in two cases: a residual
        exceeds the tolerance, or a smallest value beyond the known zeros does not exceed its
        residual, so this precision cannot tell it from 0.

    Raises:
        InputError: k is not in 1..N, another argument is out of range, squares of the
            eigenvalues may leave the range of the dtype, or the operator is none
            (`linalg.matrix_operator.as_operator`).
    """
    operator = as_operator(operator)
    check_choice("which", which, ("smallest", "largest"))
    check_count("k", k)
    check_range("tol", tol, 0.0)
    check_count("max_iter", max_iter)
    rows = operator.shape[0]
    if k > rows:
        raise InputError(
            f"k: expected at most {rows}, the rows of the operator, got {k}; request fewer"
        )
    low, high = operator.bounds()
    # Squares of values of this size must stay in the range of the dtype.
    most = torch.finfo(operator.dtype).max ** 0.4
    if not (high == low or 1 / most <= high - low <= most):
        raise InputError(
            f"operator: expected eigenvalues of a size in {1 / most:.0e}..{most:.0e} for "
            f"{operator.dtype}, got bounds {low:.1e}..{high:.1e}; scale it, or take float64"
        )
    null = operator.null_space()
    zeros = min(k, null.count) if null is not None and which == "smallest" else 0
    found = _pairs(
        operator,
        k - zeros,
        null if zeros else None,
        sign=1.0 if which == "smallest" else -1.0,
        tol=tol,
        generator=generator,
        max_iter=max_iter,
    )
    if zeros and null is not None:
        values = torch.cat([found.values.new_zeros(zeros), found.values])
        vectors = torch.cat([null.vectors(zeros), found.vectors], 1)
        found = replace(found, values=values, vectors=vectors)
    return _judged(operator, found, tol, zeros, positive=zeros > 0)


def pairs_beyond_null(
    operator: SymmetricOperator,
    count: int,
    null: NullSpace,
    *,
    tol: float,
    generator: torch.Generator | None,
    max_iter: int,
    start: Tensor | None = None,  # [N, m]
) -> Solution:  # values [count], vectors [N, count]
    """Return the `count` lowest pairs outside `null`, judged as by `lanczos`, without null vectors.

    A graph may have as many null vectors as nodes, which must not become dense columns. `start` are
    vectors near the wanted ones, such as those before a small change of the graph. Random vectors
    beside them find the rest.
    """
    found = _pairs(
        operator,
        count,
        null,
        sign=1.0,
        tol=tol,
        generator=generator,
        max_iter=max_iter,
        start=start,
    )
    return _judged(operator, found, tol, 0, positive=True)


def _goal(operator: SymmetricOperator, tol: float) -> float:
    """Return the largest accepted norm of a residual: `tol` of half the width of the spectrum."""
    low, high = operator.bounds()
    return tol * max((high - low) / 2, torch.finfo(operator.dtype).tiny)


def _judged(
    operator: SymmetricOperator, found: RitzPairs, tol: float, zeros: int, *, positive: bool
) -> Solution:
    """Recompute the residuals, and warn if they do not confirm the values.

    Args:
        operator: Operator of the pairs.
        found: Pairs to check.
        tol: Tolerance, as for `lanczos`.
        zeros: Number of first pairs that are known to be exact.
        positive: Whether the other values are known to be above 0.
    """
    values, vectors, goal = found.values, found.vectors, _goal(operator, tol)
    residual = (operator.matmul(vectors) - vectors * values).norm(dim=0)
    beyond = int((~(residual <= goal)).sum())
    if beyond:
        _log.warning(
            "Lanczos stopped after %d block products with residual %.2e > %.2e at %d of %d pairs: "
            "raise max_iter or tol, or take a float64 operator",
            found.products,
            float(residual.max()),
            goal,
            beyond,
            len(values),
        )
    unclear = int((~(values > residual))[zeros:].sum()) if positive else 0
    if unclear:
        _log.warning(
            "%d of the smallest eigenvalues beside the exact zeros are not larger than their "
            "residuals (up to %.2e): take a float64 operator and a smaller tol to tell them from 0",
            unclear,
            float(residual[zeros:].max()),
        )
    return Solution(values, vectors, residual, found.products, not beyond and not unclear)


def _pairs(
    operator: SymmetricOperator,
    count: int,
    null: NullSpace | None,
    *,
    sign: float,
    tol: float,
    generator: torch.Generator | None,
    max_iter: int,
    start: Tensor | None = None,
) -> RitzPairs:
    """Return the `count` lowest pairs of `sign * operator` outside `null`, without the sign."""
    rows = operator.shape[0]
    room = rows - (null.count if null is not None else 0)
    if count == 0:
        empty = torch.empty(rows, 0, dtype=operator.dtype, device=operator.device)
        return RitzPairs(empty.new_empty(0), empty, 0)
    small = rows <= _DENSE or (4 * block_width(count, room) > rows and rows <= _LARGEST_DENSE)
    if small:
        return _dense(operator, count, null, sign)
    found = lowest_pairs(
        operator,
        count,
        sign=sign,
        tol=_goal(operator, tol),
        generator=generator,
        max_iter=max_iter,
        null=null,
        start=start,
    )
    return replace(found, values=found.values * sign)


def _dense(
    operator: SymmetricOperator, count: int, null: NullSpace | None, sign: float
) -> RitzPairs:
    """Solve densely; null vectors are lifted above the rest of the spectrum."""
    matrix = operator.to_dense().double() * sign
    if null is not None and null.count:
        basis = null.vectors(null.count).double()
        low, high = operator.bounds()
        matrix += 2 * (high - low + 1.0) * (basis @ basis.T)
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values[:count] * sign, vectors[:, :count]
    return RitzPairs(values.to(operator.dtype), vectors.to(operator.dtype), 0)
