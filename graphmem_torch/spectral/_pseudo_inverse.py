"""The dense pseudo-inverse of a small Laplacian."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.spectral.laplacian import Laplacian

__all__ = ["SMALL", "pseudo_inverse"]

_log = logging.getLogger(__name__)

SMALL = 1024
"""Nodes up to which the dense form is the method of choice."""

_LIMIT = 20_000  # 3.2 GB a matrix


def pseudo_inverse(operator: Laplacian, tol: float) -> tuple[Tensor, float]:  # [N, N] float64
    """L^+ of a balanced Laplacian: (L + V V')^-1 - V V' with its null vectors V.

    Warns where its relative error is above `tol`.

    Returns:
        L^+, and its relative error by rounding: the unit of float64 times |L^+|_1, which is at
        least 1 / μ_2.

    Raises:
        InputError: Above 20,000 nodes, or where weights are so unlike that parts of the graph hang
            together by less than rounding.
    """
    nodes = operator.shape[0]
    if nodes > _LIMIT:
        raise InputError(
            f"method='exact' is dense and takes at most {_LIMIT} nodes; got {nodes}. Use 'cg' or "
            "'sketch'."
        )
    null = operator.null_space()
    basis = null.vectors(null.count)
    kernel = basis @ basis.T
    factor, info = torch.linalg.cholesky_ex(operator.to_dense() + kernel)
    if bool(info):
        low, high = (float(w) for w in operator.weight.aminmax())
        raise InputError(
            "graph must hang together by more than float64 resolves for method='exact'; got "
            f"weights from {low:.1e} to {high:.1e}. Drop edges that are nothing beside the others."
        )
    inverse = torch.cholesky_inverse(factor) - kernel
    reach = float(inverse.abs().sum(0).max()) if nodes else 0.0
    error = torch.finfo(torch.float64).eps * reach
    if error > tol:
        _log.warning(
            "The dense pseudo-inverse has a relative error of %.2e > %.2e by rounding: parts of "
            "the graph hardly hang together",
            error,
            tol,
        )
    return inverse, error
