"""Modes as named tensors and back: how an index keeps them, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphmem_torch.spectral.modes import Modes
from graphmem_torch.spectral.spectrum import Spectrum

__all__ = ["MODE_PARTS", "modes_from_tensors", "modes_to_tensors"]

_PLAIN = ("label", "centroid", "variance", "size", "order", "offsets", "representative")
_EXACT = ("latest_bits", "values_bits", "residual_bits", "figures_bits")

MODE_PARTS = (*_PLAIN, *_EXACT, "right")
"""Names of the tensors of `modes_to_tensors`."""


def modes_to_tensors(modes: Modes) -> dict[str, Tensor]:
    """Everything that a `Modes` holds.

    What must not be rounded by `.half()`, seconds since the epoch and the figures of the spectrum,
    is kept as integers of the same bits.
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
    """The modes that `modes_to_tensors` took apart."""
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
