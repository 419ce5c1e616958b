"""find_modes: the modes of a memory, their statistics, and the error of keeping only them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.linalg.low_rank import decompose
from graphmem_torch.linalg.spectrum import (
    Rows,
    Spectrum,
    check_block,
    reconstruction_error,
    truncated,
)
from graphmem_torch.modes.assign import (
    ASSIGNMENTS,
    assign_modes,
    check_epsilon,
    numerical_rank,
    predicted_counts,
    select_count,
    spectral_exponent,
)
from graphmem_torch.ops.ragged import segment_topk

__all__ = [
    "MODE_PARTS",
    "Modes",
    "assembled",
    "check_times",
    "find_modes",
    "modes_from_tensors",
    "modes_of",
    "modes_to_tensors",
]
_log = logging.getLogger(__name__)

_TYPICAL = 3  # representative atoms of a mode
_WHOLE = 1024  # columns up to which all eigenvalues are computed, whatever K


@dataclass(frozen=True, eq=False)
class Modes:
    """A hard assignment of N atoms to M modes, none of them empty (`docs/mathematics.md` 1.3).

    Attributes:
        label: [N] int32, mode of each atom; larger modes have lower numbers.
        centroid: [M, d] float32, mean of a mode's rows.
        variance: [M] float32, mean squared distance of a mode's rows to its centroid.
        latest: [M] float64, latest known time, NaN if none is known.
        size: [M] int32, number of atoms.
        order: [N] int32, atoms sorted by mode, ascending inside a mode.
        offsets: [M + 1] int32, begin of each mode in `order`.
        representative: [M, 3] int64, atoms of largest projection on the centroid; -1 = none.
        spectrum: The K kept eigenpairs; K is not M.
        exponent: s of the power law fitted to the eigenvalues; NaN if there are too few.
        predicted: Orders of K that s predicts for the ε of `find_modes`: by the tail, and as
            published (`predicted_counts`).
        bound: Certified mean squared error of the rows projected on the K eigenvectors: the sum of
            the other eigenvalues (Eckart and Young; `docs/mathematics.md` 1.4).
        measured_error: The same error measured row by row.
        centroid_error: Mean squared distance of the rows from their centroids; not certified.
    """

    label: Tensor
    centroid: Tensor
    variance: Tensor
    latest: Tensor
    size: Tensor
    order: Tensor
    offsets: Tensor
    representative: Tensor
    spectrum: Spectrum
    exponent: float
    predicted: tuple[float, float]
    bound: float
    measured_error: float
    centroid_error: float

    def __len__(self) -> int:
        """Number of modes M."""
        return len(self.size)

    @property
    def energy(self) -> Tensor:  # [M] float64
        """Share of the rows' squared length that each centroid keeps: n_k |μ_k|² / (N total).

        Sums to 1 - `centroid_error` / total energy.
        """
        kept = self.size.double() * self.centroid.double().square().sum(1)
        return kept / (self.spectrum.count * (self.spectrum.total_energy or 1.0))


def find_modes(
    x: Tensor,  # [N, d]
    *,
    select: str = "energy",
    count: int | None = None,
    epsilon: float = 0.1,
    assign: str = "kmeans",
    time: Tensor | None = None,  # [N] float64 seconds since the epoch, NaN = unknown
    generator: torch.Generator | None = None,
) -> Modes:
    """Find the spectral modes of rows (`docs/mathematics.md` 1.1 to 1.4).

    Keeps K eigenpairs of E Eᵀ / N, by a rule or a given number. K is at most the rank of the rows;
    a lower K than given is logged. Reads the rows tile by tile, at most five times; beside them it
    holds K d numbers and the labels.

    Args:
        x: Finite rows, of unit length if they are to be searched by cosine.
        select: Rule for K: "energy", "gcv" or "gap" (`select_count`).
        count: K, instead of a rule.
        epsilon: Share of the energy that "energy" may discard.
        assign: "kmeans", "sign" or "varimax" (`assign_modes`).
        time: Time of each row; only for `Modes.latest`.
        generator: Random generator for eigenpairs and assignment; by default on the CPU, seeded
            with 0.

    Raises:
        InputError: x is not a finite floating-point matrix, is empty or all zero, requires a
            gradient, or an argument is out of range.
    """
    _check(x, time)
    check_epsilon(epsilon)
    if count is not None:
        check_count("count", count)
    check_choice("assign", assign, ASSIGNMENTS)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    shape = (x.shape[0], x.shape[1])
    if count is None or shape[1] <= _WHOLE:
        whole = gram_svd(x, min(shape))
    else:
        whole = decompose(x, min(count, *shape), generator=generator)
    rank = numerical_rank(whole.values, torch.promote_types(x.dtype, torch.float32))
    if rank == 0:
        raise InputError("x: expected a row that is not zero, got only zeros; check the embedder")
    known = whole.values[:rank]
    if count is None:
        total = whole.total_energy or 0.0
        count = select_count(known, total, shape, select=select, epsilon=epsilon)
    elif count > rank:
        _log.warning(
            "%d modes were asked for, but the rows have rank %d: %d are kept", count, rank, rank
        )
    spectrum = truncated(whole, min(count, rank))
    assert spectrum.right is not None
    label = assign_modes(x, spectrum, assign=assign, generator=generator)
    return modes_of(x, label, spectrum, time=time, eigenvalues=known, epsilon=epsilon)


def modes_of(
    x: Tensor,  # [N, d]
    label: Tensor,  # [N] integer, any numbers
    spectrum: Spectrum,
    *,
    time: Tensor | None = None,  # [N] float64, NaN = unknown
    eigenvalues: Tensor | None = None,  # [r]
    epsilon: float = 0.1,
) -> Modes:
    """Compute the statistics of a given assignment.

    Args:
        x: Labelled rows.
        label: Any labels; they are renumbered by falling size.
        spectrum: Kept eigenpairs of the rows.
        time: Time of each row.
        eigenvalues: Eigenvalues to fit the exponent; by default those of `spectrum`.
        epsilon: Share of the energy, for `Modes.predicted`.

    Raises:
        InputError: See `find_modes`.
    """
    _check(x, time)
    check_tensor("label", label, "integers", x.shape[:1], "give one for each row")
    _, label, size = label.unique(return_inverse=True, return_counts=True)
    falling = size.argsort(descending=True, stable=True)
    label = falling.argsort()[label]
    size = size[falling]
    centroid = torch.zeros(len(size), x.shape[1], dtype=torch.float64, device=x.device)
    start = 0
    for tile in Rows(x):
        centroid.index_add_(0, label[start : start + len(tile)], tile.double())
        start += len(tile)
    centroid /= size[:, None]
    distance, projection = _against(x, label, centroid)
    spread = torch.zeros_like(centroid[:, 0]).index_add_(0, label, distance)
    assert spectrum.right is not None
    return assembled(
        label,
        size,
        centroid,
        spread / size,
        projection,
        time,
        spectrum,
        eigenvalues=spectrum.values if eigenvalues is None else eigenvalues,
        epsilon=epsilon,
        measured_error=reconstruction_error(x, spectrum.right),
        centroid_error=float(spread.sum()) / len(x),
    )


def assembled(
    label: Tensor,  # [N] int64, by falling size
    size: Tensor,  # [M] int64, >= 1
    centroid: Tensor,  # [M, d] float64
    variance: Tensor,  # [M] float64
    projection: Tensor,  # [N]
    time: Tensor | None,  # [N] float64
    spectrum: Spectrum,
    *,
    eigenvalues: Tensor,  # [r]
    epsilon: float,
    measured_error: float,
    centroid_error: float,
) -> Modes:
    """Build `Modes` from known statistics, in the precision of their fields."""
    latest = torch.full((len(size),), -torch.inf, dtype=torch.float64, device=label.device)
    if time is not None:
        known = time.to(label.device).nan_to_num(nan=-torch.inf)
        latest.scatter_reduce_(0, label, known, "amax")
    exponent = spectral_exponent(eigenvalues)
    assert spectrum.discarded_energy is not None
    return Modes(
        label=label.to(torch.int32),
        centroid=centroid.float(),
        variance=variance.clamp(min=0).float(),
        latest=latest.masked_fill(latest == -torch.inf, torch.nan),
        size=size.to(torch.int32),
        order=label.argsort(stable=True).to(torch.int32),
        offsets=offsets_of(size).to(torch.int32),
        representative=segment_topk(projection, label, size, _TYPICAL),
        spectrum=spectrum,
        exponent=exponent,
        predicted=predicted_counts(exponent, epsilon),
        bound=spectrum.discarded_energy,
        measured_error=measured_error,
        centroid_error=centroid_error,
    )


def _check(x: Tensor, time: Tensor | None) -> None:
    if not isinstance(x, Tensor):
        raise InputError(
            f"x: expected a tensor [N, d], which is read several times, got {type(x).__name__}; "
            "stack the rows"
        )
    check_block(x, None)
    if len(x) == 0:
        raise InputError("x: expected at least one row, got none; add atoms first")
    if time is not None and not isinstance(time, Tensor):
        raise InputError(
            f"time: expected a tensor [{len(x)}], got {type(time).__name__}; convert it"
        )
    if time is not None:
        check_times(time, len(x))


def check_times(time: Tensor, count: int) -> None:
    """Raise `InputError` unless there are `count` float64 times."""
    do = "NaN stands for unknown; float32 cannot hold seconds since 1970"
    check_tensor("time", time, "float64", (count,), do)


def _against(x: Tensor, label: Tensor, centroid: Tensor) -> tuple[Tensor, Tensor]:  # [N], [N]
    """Return the squared distance of every row to its centroid, and its projection on it."""
    distance = torch.empty(len(x), dtype=torch.float64, device=x.device)
    projection = torch.empty(len(x), dtype=torch.float64, device=x.device)
    axis = torch.nn.functional.normalize(centroid, dim=1)
    start = 0
    for tile in Rows(x):
        part = slice(start, start + len(tile))
        own, rows = label[part], tile.double()
        distance[part] = (rows - centroid[own]).square().sum(1)
        projection[part] = (rows * axis[own]).sum(1)
        start += len(tile)
    return distance, projection


_PLAIN = ("label", "centroid", "variance", "size", "order", "offsets", "representative")
_EXACT = ("latest_bits", "values_bits", "residual_bits", "figures_bits")

MODE_PARTS = (*_PLAIN, *_EXACT, "right")
"""Names of the tensors of `modes_to_tensors`."""


def modes_to_tensors(modes: Modes) -> dict[str, Tensor]:
    """Return everything in a `Modes` as tensors.

    Values that `.half()` must not round, seconds since the epoch and the figures of the spectrum,
    are stored as integers of the same bits.
    """
    spectrum = modes.spectrum
    assert spectrum.right is not None
    figures = [
        modes.exponent,
        *modes.predicted,
        modes.bound,
        modes.measured_error,
        modes.centroid_error,
        spectrum.total_energy or 0.0,
        spectrum.discarded_energy or 0.0,
    ]
    exact = {
        "latest_bits": modes.latest,
        "values_bits": spectrum.values,
        "residual_bits": spectrum.residual,
        "figures_bits": torch.tensor(figures, dtype=torch.float64),
    }
    return {
        **{name: getattr(modes, name) for name in _PLAIN},
        **{name: value.double().contiguous().view(torch.int64) for name, value in exact.items()},
        "right": spectrum.right,
    }


def modes_from_tensors(part: Mapping[str, Tensor]) -> Modes:
    """Rebuild the modes from the result of `modes_to_tensors`."""
    exact = {name: part[name].view(torch.float64) for name in _EXACT}
    exponent, tail, one, bound, measured, centroid, total, discarded = exact[
        "figures_bits"
    ].tolist()
    return Modes(
        **{name: part[name] for name in _PLAIN},
        latest=exact["latest_bits"],
        spectrum=Spectrum(
            values=exact["values_bits"],
            right=part["right"],
            left=None,
            residual=exact["residual_bits"],
            count=len(part["label"]),
            total_energy=total,
            discarded_energy=discarded,
        ),
        exponent=exponent,
        predicted=(tail, one),
        bound=bound,
        measured_error=measured,
        centroid_error=centroid,
    )
