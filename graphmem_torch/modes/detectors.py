"""Detector: the base of online detectors of regime switches, and the published detector.

A detector reads a stream of embeddings once, in order, and decides at each step whether to raise an
alarm, without looking ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError

__all__ = ["Detector", "EnergyDrift", "Steps", "alarms"]


class Steps(NamedTuple):
    """Output of a detector for n steps of a stream.

    Attributes:
        statistic: [n] float64, larger for a more likely switch; -inf without enough data, at the
            beginning and at rows of zeros.
        alarm: [n] bool, whether the statistic exceeds the threshold without an alarm one step
            before; two in a row are one switch.
        position: [n] int64, first step of the new regime if there is an alarm, counted over the
            whole stream; at most `lag` before the alarm.
    """

    statistic: Tensor
    alarm: Tensor
    position: Tensor


def alarms(
    above: Tensor,  # [..., n] bool: the statistic exceeds the threshold
    streak: Tensor,  # [...] int64: number of steps in a row that did so just before
) -> tuple[Tensor, Tensor]:  # [..., n] bool, [...] int64
    """Return every second step of a run above the threshold, from its first on, and the streak."""
    if above.shape[-1] == 0:
        return above, streak
    place = torch.arange(above.shape[-1])
    last = torch.where(above, -1, place).cummax(-1).values
    run = torch.where(above, place - last + torch.where(last < 0, streak[..., None], 0), 0)
    return above & (run % 2 == 1), run[..., -1].clone()


class Detector(ABC):
    """Base of detectors that read a stream step by step and return `Steps`.

    Args:
        dim: d.
        threshold: Threshold of the statistic.

    Attributes:
        lag: Maximum steps from a switch to its alarm.
    """

    lag = 0

    def __init__(self, dim: int, *, threshold: float) -> None:
        check_count("dim", dim)
        self.dim, self.threshold = dim, threshold
        self.state: dict[str, Tensor] = {
            "count": torch.zeros((), dtype=torch.int64),
            # Number of latest steps in a row above the threshold.
            "streak": torch.zeros((), dtype=torch.int64),
        }

    @property
    def count(self) -> int:
        """Number of steps read."""
        return int(self.state["count"])

    def update(self, x: Tensor) -> Steps:  # [d] or [n, d]
        """Read the next step, or the next n steps, and return the decision for each.

        Results do not depend on how a stream is divided into calls.

        Raises:
            InputError: x has another shape, is not floating point or not finite; reads nothing.
        """
        rows, begin = self._checked(x), self.count
        if len(rows) == 0:
            statistic, back = torch.empty(0, dtype=torch.float64), torch.empty(0).long()
        else:
            statistic, back = self._read(rows)
        statistic = statistic.masked_fill(~rows.any(1), -torch.inf)
        alarm, self.state["streak"] = alarms(statistic > self.threshold, self.state["streak"])
        steps = torch.arange(begin, begin + len(rows))
        self.state["count"] = self.state["count"] + len(rows)
        answer = Steps(statistic, alarm, (steps - back).clamp(min=0))
        return Steps(*(part[0] for part in answer)) if x.dim() == 1 else answer

    @abstractmethod
    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [n, d] float32, n >= 1
        """Return the statistic [n] float64 of the rows, and the steps back that each points to."""

    def _checked(self, x: Tensor) -> Tensor:  # -> [n, d] float32
        if not isinstance(x, Tensor) or x.dim() not in (1, 2) or x.shape[-1] != self.dim:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"x: expected [{self.dim}] or [n, {self.dim}], the next embedding or embeddings of "
                f"the stream, got {got}; use the encoder of the stream"
            )
        if not x.is_floating_point():
            raise InputError(f"x: expected a floating point type, got {x.dtype}; call .float()")
        rows = x.reshape(-1, self.dim).detach().to("cpu", torch.float32)
        bad = ~rows.isfinite().all(1)
        if bool(bad.any()):
            raise InputError(
                f"x: expected finite values, got NaN or infinity at step {int(bad.nonzero()[0])}; "
                "check the encoder, or leave the step out"
            )
        return rows

    def _recent(self, name: str, rows: Tensor, keep: int) -> Tensor:  # [<= keep + n, d]
        """Return the rows after up to `keep` earlier ones, kept in the state under `name`."""
        before = self.state.get(name)
        whole = rows if before is None else torch.cat([before, rows])
        self.state[name] = whole[max(0, len(whole) - keep) :].clone()
        return whole

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state needed to continue later, as tensors of bounded size."""
        return {name: value.clone() for name, value in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue where the detector that returned `state` stopped.

        Raises:
            InputError: The state is from another kind of detector or has other sizes.
        """
        width = {v.shape[-1] for k, v in state.items() if k in self._wide()}
        # A detector that has read nothing may have no rows.
        lacking = self.state.keys() - state.keys() - {"rows"}
        if lacking or state["streak"].dim() or width - {self.dim}:
            raise InputError(
                f"state: expected that of a {type(self).__name__} of width {self.dim}, got the "
                f"names {sorted(state)} and widths {sorted(width)}; create the detector with "
                "its old settings"
            )
        self.state = {name: value.clone() for name, value in state.items()}

    def _wide(self) -> tuple[str, ...]:
        """Return the names of state tensors whose last axis is d."""
        return ("rows",)


_FLOOR = 1e-3  # of the median drift; without it, a constant stream would alarm at any change
_WINDOW, _MODES = 16, 8  # rows of the window, and its modes
_MEMORY = 10  # drifts of the median


class EnergyDrift(Detector):
    """Published rule: alarm if d_t exceeds 3 times the median of the drifts before it.

    E_k = λ_k n_k of the last 16 rows, with λ the 8 leading eigenvalues of their kernel and n_k the
    number of rows nearest to axis k; d_t = |E_t - E_{t-1}| / |E_{t-1}|. The statistic is d_t over
    the median of the ten drifts before, or over 0.001 if that is larger.

    Args:
        dim: d.
        threshold: Threshold of the rule.
    """

    def __init__(self, dim: int, *, threshold: float = 3.0) -> None:
        super().__init__(dim, threshold=threshold)
        self.state["energy"] = torch.full((1, _MODES), torch.nan, dtype=torch.float64)
        self.state["drift"] = torch.full((_MEMORY,), torch.nan, dtype=torch.float64)

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        count = len(rows)
        whole = self._recent("rows", rows, _WINDOW - 1)
        # The stream is preceded by rows of zeros.
        missing = _WINDOW - 1 + count - len(whole)
        whole = torch.nn.functional.pad(whole, (0, 0, missing, 0))
        energy = _energy(whole.unfold(0, _WINDOW, 1).mT)
        energy[: max(0, _WINDOW - 1 - self.count)] = torch.nan
        pairs = torch.cat([self.state["energy"], energy])
        self.state["energy"] = pairs[-1:].clone()
        drift = pairs.diff(dim=0).norm(dim=1) / pairs[:-1].norm(dim=1).clamp(min=1e-12)
        drifts = torch.cat([self.state["drift"], drift])
        self.state["drift"] = drifts[-_MEMORY:].clone()
        usual = drifts.unfold(0, _MEMORY, 1)[:count].median(1).values
        statistic = (drift / usual.clamp(min=_FLOOR)).nan_to_num(nan=-torch.inf)
        return statistic, torch.zeros_like(statistic, dtype=torch.int64)


def _energy(windows: Tensor) -> Tensor:  # [n, W, d] -> [n, K]
    values, vectors = torch.linalg.eigh((windows @ windows.mT).double() / _WINDOW)
    values = values.flip(-1)[:, :_MODES].clamp(min=0)
    vectors = vectors.flip(-1)[..., :_MODES]
    nearest = (vectors * values[:, None].sqrt()).abs().argmax(-1)
    sizes = torch.zeros_like(values).scatter_add_(1, nearest, values.new_ones(nearest.shape))
    return values * sizes
