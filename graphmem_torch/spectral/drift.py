"""Drift: detectors that compare what came last with what came before it.

`EnergyDrift` is the published rule (`mathematics.md` section 1.7), `CosineDrift` what it is held
against: the cosine of neighbouring embeddings, or of the means of two windows as in TextTiling
(Hearst 1997). Both look at a bounded window, so that all steps of a call are done at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._check import check_count
from graphmem_torch.spectral.detector import Detector

__all__ = ["CosineDrift", "EnergyDrift"]

_FLOOR = 1e-3  # of the median drift: a stream that stands still would alarm at any breath


class CosineDrift(Detector):
    """1 - cosine of the mean of the last `after` rows with that of the `before` rows before them.

    With `after` above 1 an alarm means a switch `after` - 1 steps ago: whoever counts it there
    grants so many steps of look-ahead.

    Args:
        dim: d.
        threshold: Of the statistic, in [0, 2].
        before: Rows of the earlier window; fewer at the beginning.
        after: Rows of the later window.
        streams: S.
    """

    def __init__(
        self,
        dim: int,
        *,
        threshold: float = 0.7,
        before: int = 1,
        after: int = 1,
        streams: int = 1,
    ) -> None:
        super().__init__(dim, threshold=threshold, streams=streams)
        check_count("before", before)
        check_count("after", after)
        self.before, self.after, self.lag = before, after, after - 1

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        count = rows.shape[1]
        whole = self._recent("rows", rows, self.before + self.after - 1).double()
        total = torch.nn.functional.pad(whole.cumsum(1), (0, 0, 1, 0))
        end = torch.arange(whole.shape[1] - count, whole.shape[1]) + 1
        cut = (end - self.after).clamp(min=0)
        early = total[:, cut] - total[:, (cut - self.before).clamp(min=0)]
        late = total[:, end] - total[:, cut]
        statistic = 1 - torch.cosine_similarity(early, late, dim=2)
        statistic = statistic.masked_fill(cut < 1, -torch.inf)
        return statistic, torch.full_like(statistic, self.after - 1, dtype=torch.int64)


class EnergyDrift(Detector):
    """The published rule: d_t above 3 times the median of the drifts before it.

    E_k = λ_k n_k of the last `window` rows, λ the eigenvalues of their kernel and n_k the rows that
    lie nearest to axis k; d_t = |E_t - E_{t-1}| / |E_{t-1}|. The statistic is d_t over the median
    of the ten drifts before, which is not taken below 0.001.

    Args:
        dim: d.
        threshold: The rule's 3.
        window: Rows whose modes are watched.
        modes: K of them.
        memory: Drifts the median is taken of.
        streams: S.
    """

    def __init__(
        self,
        dim: int,
        *,
        threshold: float = 3.0,
        window: int = 16,
        modes: int = 8,
        memory: int = 10,
        streams: int = 1,
    ) -> None:
        super().__init__(dim, threshold=threshold, streams=streams)
        check_count("window", window, 2)
        check_count("modes", modes)
        check_count("memory", memory)
        self.window, self.modes, self.memory = window, min(modes, window), memory
        self.state["energy"] = torch.full((streams, 1, self.modes), torch.nan, dtype=torch.float64)
        self.state["drift"] = torch.full((streams, memory), torch.nan, dtype=torch.float64)

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        count = rows.shape[1]
        whole = self._recent("rows", rows, self.window - 1)
        # Before the stream began there were rows of no length.
        missing = self.window - 1 + count - whole.shape[1]
        whole = torch.nn.functional.pad(whole, (0, 0, missing, 0))
        energy = self._energy(whole.unfold(1, self.window, 1).mT)
        energy[:, : max(0, self.window - 1 - self.count)] = torch.nan
        pairs = torch.cat([self.state["energy"], energy], 1)
        self.state["energy"] = pairs[:, -1:].clone()
        before = pairs[:, :-1].norm(dim=2).clamp(min=1e-12)
        drift = pairs.diff(dim=1).norm(dim=2) / before
        drifts = torch.cat([self.state["drift"], drift], 1)
        self.state["drift"] = drifts[:, drifts.shape[1] - self.memory :].clone()
        usual = drifts.unfold(1, self.memory, 1)[:, :count].median(2).values
        statistic = drift / usual.clamp(min=_FLOOR)
        statistic = statistic.nan_to_num(nan=-torch.inf)
        return statistic, torch.zeros_like(statistic, dtype=torch.int64)

    def _energy(self, windows: Tensor) -> Tensor:  # [S, n, W, d] -> [S, n, K]
        kernel = (windows @ windows.mT).double() / self.window
        values, vectors = torch.linalg.eigh(kernel)
        values = values.flip(-1)[..., : self.modes].clamp(min=0)
        vectors = vectors.flip(-1)[..., : self.modes]
        nearest = (vectors * values[..., None, :].sqrt()).abs().argmax(-1)
        sizes = torch.zeros_like(values).scatter_add_(2, nearest, values.new_ones(nearest.shape))
        return values * sizes
