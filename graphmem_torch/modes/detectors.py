"""Detector: what online detectors of regime switches have in common, and the published one.

A detector reads a stream of embeddings once, in order, and says for each one whether it raises an
alarm there and then; nothing that comes later is looked at.
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
    """What a detector says about n steps of a stream.

    Attributes:
        statistic: [n] float64, the larger, the more a switch; -inf where there is too little to
            go by: at the beginning, and at rows that are zero.
        alarm: [n] bool: the statistic exceeds the threshold, and there was no alarm one step
            before, for two in a row are one switch.
        position: [n] int64: the step, counted from the first one ever, at which the new regime
            has begun if there is an alarm; at most `lag` before the alarm.
    """

    statistic: Tensor
    alarm: Tensor
    position: Tensor


def alarms(
    above: Tensor,  # [..., n] bool: the statistic exceeds the threshold
    streak: Tensor,  # [...] int64: how many steps in a row did so just before
) -> tuple[Tensor, Tensor]:  # [..., n] bool, [...] int64
    """Every second step of a run above the threshold, from its first on; and the streak after."""
    if above.shape[-1] == 0:
        return above, streak
    place = torch.arange(above.shape[-1])
    last = torch.where(above, -1, place).cummax(-1).values
    run = torch.where(above, place - last + torch.where(last < 0, streak[..., None], 0), 0)
    return above & (run % 2 == 1), run[..., -1].clone()


class Detector(ABC):
    """Reads a stream step by step; see `Steps` for what it answers.

    Args:
        dim: d.
        threshold: Threshold of the statistic.

    Attributes:
        lag: Steps that an alarm may come after the switch it means.
    """

    lag = 0

    def __init__(self, dim: int, *, threshold: float) -> None:
        check_count("dim", dim)
        self.dim, self.threshold = dim, threshold
        self.state: dict[str, Tensor] = {
            "count": torch.zeros((), dtype=torch.int64),
            # How many steps in a row, up to the last one, were above the threshold.
            "streak": torch.zeros((), dtype=torch.int64),
        }

    @property
    def count(self) -> int:
        """Steps read so far."""
        return int(self.state["count"])

    def update(self, x: Tensor) -> Steps:  # [d] or [n, d]
        """Reads the next step, or the next n steps, and answers for each.

        How a stream is cut into calls does not matter.

        Raises:
            InputError: If x has another shape, is not floating point or not finite; the detector
                has read nothing then.
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
        """Statistic [n] float64 of the rows, and how many steps before each it points."""

    def _checked(self, x: Tensor) -> Tensor:  # -> [n, d] float32
        if not isinstance(x, Tensor) or x.dim() not in (1, 2) or x.shape[-1] != self.dim:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"x: expected [{self.dim}] or [n, {self.dim}], the next embedding or embeddings of "
                f"the stream, got {got}; was it made by another encoder?"
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
        """The rows with up to `keep` before them, which the state holds under `name`."""
        before = self.state.get(name)
        whole = rows if before is None else torch.cat([before, rows])
        self.state[name] = whole[max(0, len(whole) - keep) :].clone()
        return whole

    def state_dict(self) -> dict[str, Tensor]:
        """All that has to be kept to go on later, as tensors of bounded size."""
        return {name: value.clone() for name, value in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on where the detector that gave `state` had stopped.

        Raises:
            InputError: If the state is of another kind of detector or other sizes.
        """
        width = {v.shape[-1] for k, v in state.items() if k in self._wide()}
        # A detector that has read nothing may keep no rows.
        lacking = self.state.keys() - state.keys() - {"rows"}
        if lacking or state["streak"].dim() or width - {self.dim}:
            raise InputError(
                f"state: expected that of a {type(self).__name__} of width {self.dim}, got the "
                f"names {sorted(state)} and widths {sorted(width)}; make the detector as it was"
            )
        self.state = {name: value.clone() for name, value in state.items()}

    def _wide(self) -> tuple[str, ...]:
        """Names of the parts of the state whose last axis is d."""
        return ("rows",)


_FLOOR = 1e-3  # of the median drift: a stream that stands still would alarm at any breath
_WINDOW, _MODES = 16, 8  # rows that are watched, and modes of theirs
_MEMORY = 10  # drifts the median is taken of


class EnergyDrift(Detector):
    """The published rule: d_t above 3 times the median of the drifts before it.

    E_k = λ_k n_k of the last 16 rows, λ the 8 leading eigenvalues of their kernel and n_k the rows
    that lie nearest to axis k; d_t = |E_t - E_{t-1}| / |E_{t-1}|. The statistic is d_t over the
    median of the ten drifts before, which is not taken below 0.001.

    Args:
        dim: d.
        threshold: The rule's 3.
    """

    def __init__(self, dim: int, *, threshold: float = 3.0) -> None:
        super().__init__(dim, threshold=threshold)
        self.state["energy"] = torch.full((1, _MODES), torch.nan, dtype=torch.float64)
        self.state["drift"] = torch.full((_MEMORY,), torch.nan, dtype=torch.float64)

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        count = len(rows)
        whole = self._recent("rows", rows, _WINDOW - 1)
        # Before the stream began there were rows of no length.
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
