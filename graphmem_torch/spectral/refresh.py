"""refreshed: eigenpairs of a matrix that changed a little, from those it had before."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.spectral._orthonormal import extension
from graphmem_torch.spectral.gram_svd import leading_eigenpairs

__all__ = ["refreshed"]

# Narrower than this, a full `eigh` costs no more than the steps and their proof.
_SMALL = 512
_STEPS = 6
# Vectors kept beyond `rank`: the error falls with the gap behind them.
_SPARE = 16


def refreshed(
    matrix: Tensor,  # [n, n] float64, symmetric positive semidefinite
    rank: int,
    start: Tensor | None,  # [n, m], orthonormal, m >= rank
    tol: float,
) -> tuple[Tensor, Tensor, Tensor]:  # values [rank], vectors [n, m], bound []
    """The `rank` leading eigenpairs, each value proven to be within `bound` of its eigenvalue.

    Rayleigh-Ritz on the span of the old vectors U and of C U, a few times over. Proof: in the basis
    [U, U_perp], C differs from diag(Θ, C_perp) by the residual, of norm r. If β I - C + U Θ Uᵀ has
    a Cholesky factorisation, no eigenvalue of C_perp exceeds β, here halfway from θ_m up to θ_K.
    With the gap η = θ_K - β, no value is off by more than 2 r² / (η + sqrt(η² + 4 r²)) (Li and Li
    2005, "A note on eigenvalues of perturbed Hermitian matrices", theorem 2). The factorisation
    takes n³/3 operations where `eigh` takes about 13 n³; when the proof fails, `eigh` it is.

    Args:
        matrix: C.
        rank: K.
        start: U, the leading vectors first, or None.
        tol: The bound asked for, absolute.
    """
    width = min(len(matrix), rank + _SPARE)
    if start is not None and start.shape[1] == width and len(matrix) >= max(_SMALL, 3 * width):
        basis, before = start, matrix.new_full((), torch.inf)
        image = matrix @ basis
        for step in range(_STEPS + 1):
            values, weights = leading_eigenpairs(basis.T @ image, width)
            basis, image = basis @ weights, image @ weights
            rest = image - basis * values
            square = torch.linalg.eigvalsh(rest.T @ rest)[-1].clamp(min=0)  # r²
            gap = (values[rank - 1] - values[-1]) / 2
            bound = 2 * square / (gap + (gap.square() + 4 * square).sqrt())
            if bool(bound <= tol):
                if not _nothing_above(matrix, basis, values, values[rank - 1] - gap):
                    break
                return values[:rank], basis, bound
            # Steps that would not get there are not begun.
            if bool(bound * (bound / before) ** (_STEPS - step) > tol):
                break
            before = bound
            fresh = extension(basis, rest)
            basis = torch.cat([basis, fresh], 1)
            image = torch.cat([image, matrix @ fresh], 1)
    values, vectors = leading_eigenpairs(matrix, width)
    return values[:rank], vectors, matrix.new_zeros(())


def _nothing_above(matrix: Tensor, basis: Tensor, values: Tensor, limit: Tensor) -> bool:
    """Whether every eigenvalue of what the basis leaves is below the limit."""
    rest = (basis * values) @ basis.T - matrix
    rest.diagonal().add_(limit)
    return bool(torch.linalg.cholesky_ex(rest).info == 0)
