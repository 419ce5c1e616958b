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

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_count

__all__ = ["Detector", "Steps", "alarms"]


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
        threshold: Of the statistic; [S, 1] for one of its own for each stream.
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
                f"x must be {shapes}: the next embedding or embeddings of the stream; got {got}. "
                "Was it made by another encoder?"
            )
        if not rows.is_floating_point():
            raise InputError(f"x must be floating point; got {rows.dtype}. Call .float().")
        rows = rows.detach().to("cpu", torch.float32)
        bad = ~rows.isfinite().all(2)
        if bool(bad.any()):
            stream, step = bad.nonzero()[0].tolist()
            raise InputError(
                f"x must be finite; got NaN or infinity at step {step} of stream {stream}. Check "
                "the encoder, or leave the step out."
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
                f"state must be that of a {type(self).__name__} of {self.streams} streams of width "
                f"{self.dim}; got the names {sorted(state)} and widths {sorted(width)}. Make the "
                "detector as it was."
            )
        self.state = {name: value.clone() for name, value in state.items()}

    def _wide(self) -> tuple[str, ...]:
        """Names of the parts of the state whose last axis is d."""
        return ("rows",)
