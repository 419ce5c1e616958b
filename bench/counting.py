"""Operators, host waits and passes over [B, A] of retrieval, by stage; needs no GPU.

A dispatch mode sees every operator that a call sends to the device. The host waits for a device
where an operator's result has a shape that depends on values, or where values are read. Both are
properties of the operator, so a CPU shows the waits that a GPU would have on the same path.

An operator of the package (`graphmem::`) counts as one call; its inside is not counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphmem_torch.index.retrieve import Stages
from graphmem_torch.rank.candidates import Candidates

__all__ = ["Counts", "StageCounts", "counted", "is_view", "waits_for_values"]

_PACKAGE = str(Path(__file__).resolve().parents[1] / "graphmem_torch")
_READ = {"tolist", "numpy", "cpu"}  # of `Tensor`; the dispatcher does not see these on a CPU
_HOST = {"promote_types"}  # read no tensor
_PICKING = {"gather", "take", "index", "index_select"}  # read only the entries that they return


@dataclass
class Counts:
    """Work of a stage.

    Attributes:
        calls: Operators that compute; views are free.
        waits: Operators whose result the host waits for.
        uploads: Tensors made from numbers of the host, which a CUDA graph cannot capture.
        passes: Operators that read or write a whole [B, A] matrix.
        places: Number of waits by line of the package.
    """

    calls: int = 0
    waits: int = 0
    uploads: int = 0
    passes: int = 0
    places: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counts) -> Counts:
        """Return the work of two stages together."""
        return Counts(
            self.calls + other.calls,
            self.waits + other.waits,
            self.uploads + other.uploads,
            self.passes + other.passes,
            self.places + other.places,
        )

    def report(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {**vars(self), "places": dict(self.places.most_common())}


class StageCounts(Stages):
    """`Stages` that collects the counts of each stage instead of its duration."""

    def __init__(self) -> None:
        """Start the first stage."""
        super().__init__()
        self.counts: dict[str, Counts] = {}
        self.running = Counts()

    def done(self, stage: str) -> None:
        """End a stage; a repeated one adds up."""
        self.counts[stage] = self.counts.get(stage, Counts()) + self.running
        self.running = Counts()

    def looked_at(self, found: Candidates) -> None:
        """Do nothing: reading how many atoms were activated would itself be counted."""


def counted(call: Callable[[StageCounts], Any], cells: int = 0) -> dict[str, Counts]:
    """Return the work of each stage of a call, which must pass the `stages` on.

    Args:
        call: Function to count, such as `lambda stages: index(query, stages=stages)`.
        cells: B x A, the elements of a matrix that `passes` counts; 0 counts none.

    Returns:
        Counts by stage, and after the last stage as `rest`; `all` is their sum.
    """
    stages = StageCounts()
    # Inference mode would not take composite operators apart.
    with torch.inference_mode(False), torch.no_grad(), _Reads(stages), _Operators(stages, cells):
        call(stages)
    stages.done("rest")
    return {**stages.counts, "all": sum(stages.counts.values(), Counts())}


class _Operators(TorchDispatchMode):
    """Counts operators as the device gets them."""

    def __init__(self, stages: StageCounts, cells: int) -> None:
        super().__init__()
        self._stages, self._cells = stages, cells

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        running, name = self._stages.running, func.name().partition("::")[2].partition(".")[0]
        if name == "lift_fresh":
            running.uploads += 1
        if is_view(func) or name in _HOST:
            return out
        running.calls += 1
        if waits_for_values(func, name, args, kwargs):
            running.waits += 1
            running.places[_line()] += 1
        if self._cells and name not in _PICKING:
            values = torch.utils._pytree.tree_leaves((args, kwargs, out))
            sizes = {each.numel() for each in values if isinstance(each, Tensor)}
            running.passes += self._cells in sizes
        return out


class _Reads(TorchFunctionMode):
    """Counts the methods of a tensor that read it to the host without an operator."""

    def __init__(self, stages: StageCounts) -> None:
        super().__init__()
        self._stages = stages

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _READ:
            self._stages.running.waits += 1
            self._stages.running.places[_line()] += 1
        return func(*args, **(kwargs or {}))


def is_view(func: Any) -> bool:
    """Return whether an operator only returns another view of its input."""
    returned = func._schema.returns
    aliases = [each.alias_info for each in returned]
    return bool(aliases) and all(each is not None and not each.is_write for each in aliases)


def waits_for_values(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the host needs a value of the result: a number or its shape."""
    tags = func.tags
    if name in ("index", "index_put", "index_put_"):  # only masks have a length of their own
        return any(
            isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        )
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


def _line() -> str:
    """Return the innermost line of the package that is running."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return "elsewhere"
    file = Path(frame.f_code.co_filename)
    return f"{file.parent.name}/{file.name}:{frame.f_lineno}"
