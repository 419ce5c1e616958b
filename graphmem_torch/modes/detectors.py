"""Detector: what every online detector of regime switches has in common.

A detector reads a stream of embeddings once, in order, and says for each one whether it raises an
alarm there and then; nothing that comes later is looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.errors import InputError

__all__ = ["CosineDrift", "Detector", "EnergyDrift", "MeanCusum", "Steps", "alarms"]


class Steps(NamedTuple):
    """What a detector says about n steps of S streams; a stream given alone has no S axis.

    Attributes:
        statistic: [S, n] float64, the larger, the more a switch; -inf where there is too little to
            go by: at the beginning, and at rows that are zero.
        alarm: [S, n] bool: the statistic exceeds the threshold, and there was no alarm one step
            before, for two in a row are one switch.
        position: [S, n] int64: the step, counted from the first one ever, at which the new regime
            has begun if there is an alarm; at most `lag` before the alarm.
    """

    statistic: Tensor
    alarm: Tensor
    position: Tensor


def alarms(
    above: Tensor,  # [S, n] bool: the statistic exceeds the threshold
    streak: Tensor,  # [S] int64: how many steps in a row did so just before
) -> tuple[Tensor, Tensor]:  # [S, n] bool, [S] int64
    """Every second step of a run above the threshold, from its first on; and the streak after."""
    if above.shape[1] == 0:
        return above, streak
    place = torch.arange(above.shape[1]).expand_as(above)
    last = torch.where(above, -1, place).cummax(1).values
    run = torch.where(above, place - last + torch.where(last < 0, streak[:, None], 0), 0)
    return above & (run % 2 == 1), run[:, -1].clone()


class Detector(ABC):
    """Reads S streams step by step; see `Steps` for what it answers.

    Args:
        dim: d.
        threshold: Threshold of the statistic; [S, 1] for one of its own for each stream.
        streams: S, of one length each call.

    Attributes:
        lag: Steps that an alarm may come after the switch it means.
    """

    lag = 0

    def __init__(self, dim: int, *, threshold: float | Tensor, streams: int = 1) -> None:
        check_count("dim", dim)
        check_count("streams", streams)
        self.dim, self.streams, self.threshold = dim, streams, threshold
        self.state: dict[str, Tensor] = {
            "count": torch.zeros((), dtype=torch.int64),
            # How many steps in a row, up to the last one, were above the threshold.
            "streak": torch.zeros(streams, dtype=torch.int64),
        }

    @property
    def count(self) -> int:
        """Steps read so far."""
        return int(self.state["count"])

    def update(self, x: Tensor) -> Steps:  # [d], [n, d] or [S, n, d]
        """Reads the next step, or the next n steps, and answers for each.

        How a stream is cut into calls does not matter.

        Raises:
            InputError: If x has another shape, is not floating point or not finite; the detector
                has read nothing then.
        """
        rows = self._checked(x)
        begin = self.count
        if rows.shape[1] == 0:
            statistic = torch.empty(self.streams, 0, dtype=torch.float64)
            back = torch.empty(self.streams, 0, dtype=torch.int64)
        else:
            statistic, back = self._read(rows)
        statistic = statistic.masked_fill(~rows.any(2), -torch.inf)
        alarm, self.state["streak"] = alarms(statistic > self.threshold, self.state["streak"])
        steps = torch.arange(begin, begin + rows.shape[1])
        self.state["count"] = self.state["count"] + rows.shape[1]
        answer = Steps(statistic, alarm, (steps - back).clamp(min=0))
        if x.dim() == 3:
            return answer
        return Steps(*(part[0, 0] if x.dim() == 1 else part[0] for part in answer))

    @abstractmethod
    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [S, n, d] float32, n >= 1
        """Statistic [S, n] float64 of the rows, and how many steps before each it points."""

    def _checked(self, x: Tensor) -> Tensor:  # -> [S, n, d] float32
        shapes = f"[{self.dim}], [n, {self.dim}]"
        if self.streams > 1:
            shapes = f"[{self.streams}, n, {self.dim}]"
        rows = x
        if isinstance(x, Tensor) and x.dim() in (1, 2):
            rows = x.reshape(1, -1, self.dim) if x.shape[-1] == self.dim else x
        if (
            not isinstance(rows, Tensor)
            or rows.dim() != 3
            or (rows.shape[0], rows.shape[2]) != (self.streams, self.dim)
        ):
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"x: expected {shapes}: the next embedding or embeddings of the stream, got "
                f"{got}; was it made by another encoder?"
            )
        if not rows.is_floating_point():
            raise InputError(f"x: expected a floating point type, got {rows.dtype}; call .float()")
        rows = rows.detach().to("cpu", torch.float32)
        bad = ~rows.isfinite().all(2)
        if bool(bad.any()):
            stream, step = bad.nonzero()[0].tolist()
            raise InputError(
                f"x: expected finite values, got NaN or infinity at step {step} of stream "
                f"{stream}; check the encoder, or leave the step out"
            )
        return rows

    def _recent(self, name: str, rows: Tensor, keep: int) -> Tensor:  # [S, <= keep + n, d]
        """The rows with up to `keep` before them, which the state holds under `name`."""
        before = self.state.get(name)
        whole = rows if before is None else torch.cat([before, rows], 1)
        self.state[name] = whole[:, max(0, whole.shape[1] - keep) :].clone()
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
        if lacking or state["streak"].shape != (self.streams,) or width - {self.dim}:
            raise InputError(
                f"state: expected that of a {type(self).__name__} of {self.streams} streams of "
                f"width {self.dim}, got the names {sorted(state)} and widths {sorted(width)}; "
                "make the detector as it was"
            )
        self.state = {name: value.clone() for name, value in state.items()}

    def _wide(self) -> tuple[str, ...]:
        """Names of the parts of the state whose last axis is d."""
        return ("rows",)


_FLOOR = 1e-3  # of the median drift: a stream that stands still would alarm at any breath


class CosineDrift(Detector):
    """1 - cosine of the mean of the last `after` rows with that of the `before` rows before them.

    With `after` above 1 an alarm means a switch `after` - 1 steps ago: whoever counts it there
    grants so many steps of look-ahead.

    Args:
        dim: d.
        threshold: Threshold of the statistic, in [0, 2].
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
