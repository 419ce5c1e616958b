"""MeanCusum: cumulative sums of how far rows lie from the mean of their regime (Page 1954)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._check import check_range
from graphmem_torch.spectral.detector import Detector

__all__ = ["MeanCusum"]


class MeanCusum(Detector):
    """g_t = max(0, g_{t-1} + (c_t - m) / s - slack); alarm and a new regime where g_t is high.

    c_t = 1 - cosine of the row with the mean of the rows since the last alarm; m and s are the mean
    and the standard deviation of all c before.

    Args:
        dim: d.
        threshold: h, in standard deviations. Being part of the recursion, it cannot be chosen
            afterwards: to compare several, give [S, 1] of them for S times the same stream.
        slack: k, in standard deviations.
        streams: S.
    """

    def __init__(
        self, dim: int, *, threshold: float | Tensor = 2.0, slack: float = 0.25, streams: int = 1
    ) -> None:
        super().__init__(dim, threshold=threshold, streams=streams)
        check_range("slack", slack, 0.0)
        self.slack = slack
        self.state |= {
            "regime": torch.zeros(streams, dim, dtype=torch.float64),  # sum of its rows
            "level": torch.zeros(streams, dtype=torch.float64),  # g
            "moments": torch.zeros(streams, 3, dtype=torch.float64),  # number, Σ c, Σ c²
        }

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        steps = [self._step(row) for row in rows.double().unbind(1)]
        statistic = torch.stack(steps, 1)
        return statistic, torch.zeros_like(statistic, dtype=torch.int64)

    def _step(self, row: Tensor) -> Tensor:  # [S, d] -> [S]
        regime, level, moments = (self.state[name] for name in ("regime", "level", "moments"))
        known = regime.any(1) & row.any(1)
        far = 1 - torch.cosine_similarity(row, regime, dim=1)
        number = moments[:, 0].clamp(min=1)
        mean = moments[:, 1] / number
        spread = (moments[:, 2] / number - mean**2).clamp(min=0).sqrt()
        ready = known & (moments[:, 0] >= 2) & (spread > 1e-6)
        raised = level + (far - mean) / spread.clamp(min=1e-6) - self.slack
        level = torch.where(ready, raised.clamp(min=0), level)
        alarm = ready & (level > torch.as_tensor(self.threshold).flatten())
        term = torch.stack([torch.ones_like(far), far, far.square()], 1)
        self.state["moments"] = moments + term * known[:, None]
        self.state["regime"] = torch.where(alarm[:, None], row, regime + row)
        self.state["level"] = torch.where(alarm, 0.0, level)
        return torch.where(ready, level, -torch.inf)

    def _wide(self) -> tuple[str, ...]:
        return ("regime",)
