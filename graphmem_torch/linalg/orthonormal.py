"""Orthonormal blocks: full reorthogonalisation by products of blocks alone, or by reflections."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["extension", "orthonormal", "project_out"]


def project_out(x: Tensor, basis: Tensor) -> Tensor:  # [N, b], [N, m] orthonormal -> [N, b]
    """`x` without its part in the span of `basis`."""
    if basis.shape[1] == 0:
        return x
    return torch.addmm(x, basis, basis.T @ x, alpha=-1)


def orthonormal(x: Tensor, purge: Callable[[Tensor], Tensor]) -> Tensor:  # [N, b] -> [N, <= b]
    """An orthonormal basis of the span of `x` after `purge`, which is a projection.

    SVQB (Stathopoulos and Wu 2002): columns of unit length, then the eigenvectors of their small
    Gram matrix; directions that are rounding alone are dropped. Both are done twice, which makes
    the result orthogonal to working precision. Only products of tall blocks, so it runs at the
    speed of a matrix product on any device; one look at the data for each pass.
    """
    eps = torch.finfo(x.dtype).eps
    before = x.norm(dim=0)
    for _ in range(2):
        x = purge(x)
        gram = x.T @ x
        # A column that vanished under the projection leaves noise; it must not be scaled up.
        alive = gram.diagonal().sqrt() > 10 * eps * before
        scale = torch.where(alive, gram.diagonal().rsqrt(), 0.0)
        spread, turn = torch.linalg.eigh((scale[:, None] * gram * scale).double())
        kept = spread > 10 * eps * spread[-1:].clamp(min=0.5)
        spread, turn = spread[kept], turn[:, kept]
        x = x @ (scale[:, None] * (turn * spread.rsqrt()).to(x.dtype))
        before = torch.ones_like(x[0])
    return x


def extension(basis: Tensor, panel: Tensor) -> Tensor:  # [N, m], [N, b] -> [N, min(b, N - m)]
    """Orthonormal columns beyond the basis that span, together with it, the panel too.

    Householder reflections of both at once: where the panel has nothing outside of the basis, or
    only rounding, the columns are any others, but orthogonal to it all the same and never fewer.
    """
    return torch.linalg.qr(torch.cat([basis, panel], 1)).Q[:, basis.shape[1] :]
