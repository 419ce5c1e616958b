"""block_krylov: the leading eigenpairs of a symmetric operator from a few block products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.spectral._orthonormal import extension

__all__ = ["Ritz", "block_krylov"]


@dataclass(frozen=True, eq=False)
class Ritz:
    """Rayleigh-Ritz approximations from a subspace of m dimensions.

    Attributes:
        values: [m] float64, largest first.
        vectors: [n, rank], orthonormal.
        residual: [rank] float64: |A v - value v|.
        asymmetry: |Vᵀ A V - (Vᵀ A V)ᵀ| relative to the largest value: rounding, or a product that
            is not of a symmetric operator.
    """

    values: Tensor
    vectors: Tensor
    residual: Tensor
    asymmetry: float


def block_krylov(
    product: Callable[[Tensor], Tensor],  # [n, b] -> [n, b]
    start: Tensor,  # [n, b]
    depth: int,
    rank: int,
) -> Ritz:
    """Rayleigh-Ritz on the span of V, A V, ..., A^(depth - 1) V.

    `depth` products, every one of them used: the power method with as many ends in a subspace of
    this one. The error falls like a Chebyshev polynomial of that degree (Musco and Musco 2015,
    algorithm 2, theorem 1). Every block is orthogonalised against all before it.

    Args:
        product: A times a block; symmetric.
        start: V, of full rank with probability 1 where it is Gaussian.
        depth: Products made; fewer where the blocks fill the whole space before.
        rank: Vectors wanted, at most b.
    """
    size, block = start.shape
    width = min(depth * block, size)
    basis = start.new_empty(size, width)
    small = torch.zeros(width, width, dtype=torch.float64, device=start.device)
    skew = small.new_zeros(())
    fresh, done = torch.linalg.qr(start).Q, 0
    while True:
        stop = done + fresh.shape[1]
        basis[:, done:stop] = fresh
        known = basis[:, :stop]
        image = product(fresh)
        seen = known.T @ image
        rest = torch.addmm(image, known, seen, alpha=-1)
        part = seen.double()
        own = part[done:]
        skew = torch.maximum(skew, (own - own.T).abs().max())
        part[done:] = (own + own.T) / 2
        small[:stop, done:stop] = part
        small[done:stop, :stop] = part.T
        if stop == width:
            break
        fresh, done = extension(known, rest)[:, : width - stop], stop
    values, weights = torch.linalg.eigh(small)
    values, weights = values.flip(0), weights.flip(1)[:, :rank]
    vectors = basis @ weights.to(basis.dtype)
    residual = (rest.double() @ weights[done:]).norm(dim=0)
    return Ritz(values, vectors, residual, float(skew / values.abs().max().clamp(min=1e-300)))
