"""Detectors of topic switches under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.modes import EnergyDrift
from graphmem_torch.modes.detectors import Detector
from graphmem_torch.modes.regime import detector_of

__all__ = ["BASELINES", "CosineDrift", "System", "mean_cusum", "systems_of"]
_CUSUM = torch.linspace(0.25, 8.0, 32).tolist()


@dataclass(frozen=True)
class System:
    """Detector under test.

    Attributes:
        make: Function that makes a fresh detector for rows of d columns.
        learns: Whether it first reads other streams of the source, without their labels.
        placed: Whether marks count at the place it reports, `look_ahead` steps before the alarm;
            otherwise where the alarm is raised.
        look_ahead: Steps that it reads beyond a mark, see `placed`.
        abroad: Whether its thresholds are chosen on the other data sets.
        fixed: Fixed threshold, not chosen.
        sweep: Function from rows [n, d] and thresholds [G] to statistics [G, n], instead of `make`,
            for detectors whose recursion depends on the threshold.
        sweeps: Thresholds of `sweep`.
    """

    make: Callable[[int], Detector] | None = None
    learns: bool = False
    placed: bool = False
    look_ahead: int = 0
    abroad: bool = False
    fixed: float | None = None
    sweep: Callable[[Tensor, Tensor], Tensor] | None = None
    sweeps: Sequence[float] = ()


class _Chance(Detector):
    """Random alarms."""

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.Generator().manual_seed(len(rows))
        drawn = torch.rand(len(rows), generator=made, dtype=torch.float64)
        return drawn, torch.zeros_like(drawn, dtype=torch.int64)


class CosineDrift(Detector):
    """1 - cosine of the mean of the last `after` rows with that of the `before` rows before them.

    With `after` above 1 an alarm means a switch `after` - 1 steps ago; counting it there grants
    that look-ahead.

    Args:
        dim: Width of the rows, d.
        threshold: Threshold of the statistic, in [0, 2].
        before: Rows of the earlier window; fewer at the beginning.
        after: Rows of the later window.
    """

    def __init__(
        self, dim: int, *, threshold: float = 0.7, before: int = 1, after: int = 1
    ) -> None:
        super().__init__(dim, threshold=threshold)
        self.before, self.after, self.lag = before, after, after - 1

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        whole = self._recent("rows", rows, self.before + self.after - 1).double()
        total = torch.nn.functional.pad(whole.cumsum(0), (0, 0, 1, 0))
        end = torch.arange(len(whole) - len(rows), len(whole)) + 1
        cut = (end - self.after).clamp(min=0)
        early = total[cut] - total[(cut - self.before).clamp(min=0)]
        statistic = 1 - torch.cosine_similarity(early, total[end] - total[cut], dim=1)
        statistic = statistic.masked_fill(cut < 1, -torch.inf)
        return statistic, torch.full_like(statistic, self.after - 1, dtype=torch.int64)


def mean_cusum(
    rows: Tensor,  # [n, d]
    thresholds: Tensor,  # [G]
    slack: float = 0.25,
) -> Tensor:  # [G, n] float64
    """Compute g_t = max(0, g_{t-1} + (c_t - m) / s - slack); above a threshold g restarts at 0.

    c_t = 1 - cosine of the row with the mean of the rows since the last alarm; m and s are the mean
    and the standard deviation of all earlier c. -inf if there are too few.
    """
    count = len(thresholds)
    regime = torch.zeros(count, rows.shape[1], dtype=torch.float64)  # sum of its rows
    level = torch.zeros(count, dtype=torch.float64)
    number, total, square = torch.zeros(3, count, dtype=torch.float64)
    steps = []
    for row in rows.double():
        known = regime.any(1) & row.any()
        far = 1 - torch.cosine_similarity(row[None], regime, dim=1)
        mean = total / number.clamp(min=1)
        spread = (square / number.clamp(min=1) - mean**2).clamp(min=0).sqrt()
        ready = known & (number >= 2) & (spread > 1e-6)
        raised = level + (far - mean) / spread.clamp(min=1e-6) - slack
        level = torch.where(ready, raised.clamp(min=0), level)
        steps.append(torch.where(ready, level, -torch.inf))
        alarm = ready & (level > thresholds)
        number, total = number + known.double(), total + far * known
        square = square + far.square() * known
        regime = torch.where(alarm[:, None], row, regime + row)
        level = torch.where(alarm, 0.0, level)
    return torch.stack(steps, 1)


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
    "cusum": System(sweep=mean_cusum, sweeps=_CUSUM),
}
"""Baselines of `docs/mathematics.md` 1.7 and 8.5, and sanity checks.

`windows_ahead` is the windowed cosine drift of section 8.5, which knows the utterance after the
marked one; `windows_late` is the same counted at the alarm.
"""


def systems_of(config: Config) -> dict[str, System]:
    """Return the baselines, and the preset's detector, first under other conditions.

    `cold`: without reading other streams first. `foreign`: with thresholds chosen on the other data
    sets. `shipped`: with the preset's threshold. `cold_shipped`: both, as in a new memory.
    """
    regime = config.regime

    def make(dim: int) -> Detector:
        return detector_of(regime, dim) or _Chance(dim, threshold=2.0)

    systems = {f"{n}_baseline" if n == config.name else n: s for n, s in BASELINES.items()}
    shipped = make(1).threshold
    if regime.detector != "spectral":
        return systems | {config.name: System(make, fixed=shipped)}
    return systems | {
        "cold": System(make),
        "cold_shipped": System(make, fixed=shipped),
        "foreign": System(make, learns=True, abroad=True),
        "shipped": System(make, learns=True, fixed=shipped),
        config.name: System(make, learns=True),
    }
