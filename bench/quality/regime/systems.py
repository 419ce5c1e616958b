"""The detectors that are judged on topic switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.modes import CosineDrift, EnergyDrift, MeanCusum
from graphmem_torch.modes.detectors import Detector
from graphmem_torch.modes.regime import detector_of

__all__ = ["BASELINES", "System", "systems_of"]
_CUSUM = torch.linspace(0.25, 8.0, 32).tolist()


@dataclass(frozen=True)
class System:
    """A detector under test.

    Attributes:
        make: A fresh detector for rows of d columns; for a sweep, of some `streams`.
        learns: Whether it reads other streams of the source first, without their labels.
        placed: Whether marks count where they are placed, which takes `look_ahead` steps more than
            has been read there; otherwise where the alarm is raised.
        look_ahead: See `placed`.
        abroad: Whether its thresholds are chosen on the other data sets.
        fixed: A threshold that is not to be chosen.
        sweeps: Thresholds to run side by side, as they are part of the recursion.
    """

    make: Callable[..., Detector]
    learns: bool = False
    placed: bool = False
    look_ahead: int = 0
    abroad: bool = False
    fixed: float | None = None
    sweeps: Sequence[float] = ()


class _Chance(Detector):
    """Alarms at random."""

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.Generator().manual_seed(int(rows.shape[1]))
        drawn = torch.rand(rows.shape[:2], generator=made, dtype=torch.float64)
        return drawn, torch.zeros_like(drawn, dtype=torch.int64)


def _windows(dim: int) -> Detector:
    return CosineDrift(dim, before=2, after=2)


BASELINES: Mapping[str, System] = {
    "silence": System(lambda dim: _Chance(dim, threshold=2.0), fixed=2.0),
    "chance": System(lambda dim: _Chance(dim, threshold=0.5)),
    "published": System(EnergyDrift, fixed=3.0),
    "published_tuned": System(EnergyDrift),
    "cosine": System(CosineDrift),
    "windows_1": System(lambda dim: CosineDrift(dim, before=2)),
    "windows_ahead": System(_windows, placed=True, look_ahead=1),
    "windows_late": System(_windows),
    "cusum": System(MeanCusum, sweeps=_CUSUM),
}
"""Peers of `docs/mathematics.md` 1.7 and 8.5, and sanity checks.

`windows_ahead` is the windowed cosine drift of section 8.5, which knows the utterance after the one
it marks; `windows_late` is the same one counted when it knows.
"""


def systems_of(config: Config) -> dict[str, System]:
    """The baselines, then the preset's detector, in other circumstances first.

    `cold`: without reading other streams first; `foreign`: with thresholds chosen on the other data
    sets; `shipped`: with the threshold of the preset.
    """
    regime = config.regime

    def make(dim: int) -> Detector:
        return detector_of(regime, dim) or _Chance(dim, threshold=2.0)

    systems = {f"{n}_baseline" if n == config.name else n: s for n, s in BASELINES.items()}
    if regime.detector != "spectral":
        fixed = regime.factor if regime.detector == "published" else 2.0
        return systems | {config.name: System(make, fixed=fixed)}
    return systems | {
        "cold": System(make),
        "foreign": System(make, learns=True, abroad=True),
        "shipped": System(make, learns=True, fixed=regime.threshold),
        config.name: System(make, learns=True),
    }
