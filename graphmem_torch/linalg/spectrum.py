"""Spectrum: the leading part of a kernel, and exactly how much was left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.rows import Rows

__all__ = [
    "Spectrum",
    "check_rank",
    "oriented",
    "reconstruction_error",
    "truncated",
]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The K leading eigenpairs of a kernel K = E Eᵀ / N (`docs/mathematics.md` 1.1 and 1.4).

    Attributes:
        values: [K] float64, largest first, not negative: the kernel's eigenvalues.
        right: [d, K], orthonormal: eigenvectors of Eᵀ E / N. The entry of largest magnitude of
            every column is positive. None for an implicit kernel.
        left: [N, K]: eigenvectors of the kernel, E right / sqrt(N values); a column whose value is
            0 to working precision is 0. None where they were not asked for.
        residual: [K] float64: |C u - value u|; an eigenvalue of the kernel lies within it. 0 where
            the decomposition is a full one.
        count: N.
        total_energy: Trace of the kernel: the mean squared length of a row. None for an implicit
            kernel that does not tell its trace.
        discarded_energy: Trace less the kept values: the mean squared error of the rows projected
            on `right`. By Eckart and Young (1936) no rank-K projection leaves less than the sum of
            the eigenvalues that follow, and a full decomposition leaves exactly that. None with
            `total_energy`.
    """

    values: Tensor
    right: Tensor | None
    left: Tensor | None
    residual: Tensor
    count: int
    total_energy: float | None
    discarded_energy: float | None


def oriented(vectors: Tensor) -> Tensor:  # [n, K] -> [n, K]
    """The same axes, each with its entry of largest magnitude positive."""
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -vectors, vectors)


def check_rank(rank: int, count: int, width: int) -> None:
    """Raises `InputError` where more eigenpairs are asked for than [count, width] has."""
    if rank > min(count, width):
        raise InputError(
            f"rank: expected at most min(N, d) = min({count}, {width}), got {rank}; ask for "
            f"{min(count, width)} or fewer"
        )


def truncated(spectrum: Spectrum, rank: int) -> Spectrum:
    """The first `rank` eigenpairs; what the others held counts as discarded."""
    kept = spectrum.values[:rank]
    total = spectrum.total_energy
    return replace(
        spectrum,
        values=kept,
        right=None if spectrum.right is None else spectrum.right[:, :rank].contiguous(),
        left=None if spectrum.left is None else spectrum.left[:, :rank].contiguous(),
        residual=spectrum.residual[:rank],
        discarded_energy=None if total is None else max(total - float(kept.sum()), 0.0),
    )


def reconstruction_error(x: Tensor, right: Tensor) -> float:
    """Mean squared distance of the rows from their projection on `right`, measured row by row.

    `Spectrum.discarded_energy` certifies it (`docs/mathematics.md` 1.4); this is the long way.

    Args:
        x: Rows [N, d], in any of the forms that `gram_svd` takes.
        right: [d, K], orthonormal.

    Raises:
        InputError: For rows or axes of the wrong shape or kind.
    """
    total, count = torch.zeros((), dtype=torch.float64, device=right.device), 0
    for tile in Rows(x):
        if tile.shape[1] != right.shape[0]:
            raise InputError(
                f"right: expected {tile.shape[1]} rows, one for each column of x, got "
                f"{list(right.shape)}; was it made from other rows?"
            )
        axes = right.to(tile.dtype)
        total += (tile - tile @ axes @ axes.T).square().sum(1).double().sum()
        count += tile.shape[0]
    return float(total) / max(count, 1)
