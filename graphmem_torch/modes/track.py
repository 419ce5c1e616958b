"""ModeTracker: modes that follow added and removed rows without a pass over the others."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import check_range
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import StreamingSpectrum
from graphmem_torch.linalg.spectrum import Rows, check_block
from graphmem_torch.modes.find import Modes, assembled, check_times

__all__ = ["ModeTracker"]
_TILE = 4096  # rows compared with all centroids at once


class ModeTracker:
    """`Modes` of rows that are added and removed (`docs/mathematics.md` 1.8).

    Always exact up to rounding: the eigenpairs (`StreamingSpectrum`), and size, centroid, variance
    and latest time of every mode for the current assignment. The assignment itself is incremental:
    a new row joins the mode of the nearest centroid, an old one stays. `drift` is the loss against
    a fresh start, as a share of the rows' energy. Beyond `tol`, `stale` says that modes should be
    found anew, as after a regime switch.

    Args:
        modes: Modes of the rows x, as returned by `find_modes`.
        x: Rows [N, d] of the modes.
        time: [N] float64, seconds since the epoch, NaN if unknown; as given to `find_modes`.
        tol: Drift up to which the modes are followed.
        share: `centroid_error` at the last full search, as a share of the energy; default: `modes`.

    Raises:
        InputError: x does not match `modes`, or `tol` is not in [0, 1].
    """

    def __init__(
        self,
        modes: Modes,
        x: Tensor,  # [N, d]
        *,
        time: Tensor | None = None,  # [N] float64
        tol: float = 0.05,
        share: float | None = None,
    ) -> None:
        check_range("tol", tol, 0.0, 1.0)
        self.tol = tol
        check_block(x, modes.centroid.shape[1])
        if len(x) != len(modes.label):
            raise InputError(
                f"x: expected the {len(modes.label)} rows that modes were found in, got {len(x)}; "
                "give the rows present, in their order"
            )
        assert modes.spectrum.right is not None
        self._axes = modes.spectrum.right.double()
        count, dim = self._axes.shape[1], x.shape[1]
        self._spectrum = StreamingSpectrum(min(count, dim), dim)
        self._label, self._time = modes.label.long(), _times(time, len(x))
        kinds = len(modes)
        self._size = modes.size.long()
        self._sums = torch.zeros(kinds, dim, dtype=torch.float64)
        self._squares = torch.zeros(kinds, dtype=torch.float64)
        self._captured = 0.0
        self._near = torch.empty(0, dtype=torch.float64)
        unit = torch.nn.functional.normalize(modes.centroid.double(), dim=1)
        start = 0
        for tile in Rows(x):
            label = self._label[start : start + len(tile)]
            self._count_in(tile.double(), label, 1)
            near = (tile.double() * unit[label]).sum(1)
            self._near = torch.cat([self._near, near])
            start += len(tile)
        fresh = self.centroid_error * len(self) / max(self._energy, 1e-300)
        self._fresh_share = fresh if share is None else share

    def __len__(self) -> int:
        """Number of rows present, N."""
        return len(self._label)

    def add(self, rows: Tensor, time: Tensor | None = None) -> Tensor:  # [n, d], [n] -> [n] int64
        """Append new rows and return the modes they join, as numbered at the start.

        Raises:
            InputError: Rows are not finite or have another width; nothing is then changed.
        """
        check_block(rows, self._sums.shape[1])
        times = _times(time, len(rows))
        if not bool(rows.isfinite().all()):
            raise InputError("rows: expected finite values, got NaN or infinity; check the encoder")
        centroid = self._sums / self._size.clamp(min=1)[:, None]
        unit = torch.nn.functional.normalize(centroid, dim=1)
        length = centroid.square().sum(1).masked_fill(self._size == 0, torch.inf)
        labels, near = [self._label], [self._near]
        for tile in rows.double().split(_TILE):
            labels.append((length - 2 * tile @ centroid.T).argmin(1))
            near.append((tile * unit[labels[-1]]).sum(1))
        label = torch.cat(labels[1:])
        self._count_in(rows.double(), label, 1)
        self._size = self._size + torch.bincount(label, minlength=len(self._size))
        self._label, self._near = torch.cat(labels), torch.cat(near)
        self._time = torch.cat([self._time, times])
        return label

    def remove(self, index: Tensor, rows: Tensor) -> None:  # [n] int64, [n, d]
        """Remove rows by their places among those present; later rows move up.

        Args:
            index: Places, each once.
            rows: Rows at these places, as they were added.

        Raises:
            InputError: A place does not exist or occurs twice, or the rows do not fit; nothing is
                then changed.
        """
        check_block(rows, self._sums.shape[1])
        inside = bool(((index >= 0) & (index < len(self))).all())
        if not inside or len(index.unique()) != len(rows) or len(index) != len(rows):
            raise InputError(
                f"index: expected {len(rows)} different places among the {len(self)} rows "
                f"present, got {len(index)}; give one for each row to remove"
            )
        if len(rows) == len(self):
            raise InputError(
                "rows to remove: expected at least one row to stay, got all; without rows there "
                "are no modes: start anew with the next ones"
            )
        self._count_in(rows.double(), self._label[index], -1)
        self._size = self._size - torch.bincount(self._label[index], minlength=len(self._size))
        kept = torch.ones(len(self), dtype=torch.bool)
        kept[index] = False
        self._label, self._time = self._label[kept], self._time[kept]
        self._near = self._near[kept]

    def _count_in(self, rows: Tensor, label: Tensor, sign: int) -> None:
        (self._spectrum.add if sign > 0 else self._spectrum.remove)(rows)
        self._sums.index_add_(0, label, rows, alpha=sign)
        self._squares.index_add_(0, label, rows.square().sum(1), alpha=sign)
        self._captured += sign * float((rows @ self._axes).square().sum())

    @property
    def _energy(self) -> float:
        return float(self._squares.sum())

    @property
    def centroid_error(self) -> float:
        """Mean squared distance of the rows from their centroids; exact."""
        kept = self._sums.square().sum(1) / self._size.clamp(min=1)
        return float((self._squares - kept).sum()) / max(1, len(self))

    @property
    def error_bound(self) -> float:
        """Maximum difference between an eigenvalue and that of a fresh decomposition."""
        return self._spectrum.error_bound

    @property
    def drift(self) -> float:
        """Loss by following, as a share of the rows' energy.

        The larger of two exact values: the energy in the best K axes of the present rows that the
        axes of the last full pass miss, and the growth of `centroid_error` since that pass. A fresh
        assignment gains more than the second only if it is better than the last full one was.
        """
        energy = max(self._energy, 1e-300)
        best = float(self._spectrum.values.sum()) * len(self)
        return max(
            0.0,
            (best - self._captured) / energy,
            self.centroid_error * len(self) / energy - self._fresh_share,
        )

    @property
    def stale(self) -> bool:
        """Return whether `drift` exceeds `tol`."""
        return self.drift > self.tol

    def modes(self) -> Modes:
        """Return the modes of the rows present, numbered by falling size; none is empty.

        `representative` uses the projections on the centroids when each row was added,
        `measured_error` running sums instead of rows, and `exponent` the K eigenvalues.
        """
        full = (self._size > 0).nonzero().flatten()
        falling = full[self._size[full].argsort(descending=True, stable=True)]
        number = torch.full_like(self._size, -1)
        number[falling] = torch.arange(len(falling))
        label, size = number[self._label], self._size[falling]
        centroid = self._sums[falling] / size[:, None]
        variance = self._squares[falling] / size - centroid.square().sum(1)
        spectrum = self._spectrum.spectrum()
        assert spectrum.discarded_energy is not None
        return assembled(
            label,
            size,
            centroid,
            variance,
            self._near,
            self._time,
            spectrum,
            eigenvalues=spectrum.values,
            epsilon=0.1,
            measured_error=spectrum.discarded_energy,
            centroid_error=self.centroid_error,
        )


def _times(time: Tensor | None, count: int) -> Tensor:  # [n] float64
    if time is None:
        return torch.full((count,), torch.nan, dtype=torch.float64)
    check_times(time, count)
    return time
