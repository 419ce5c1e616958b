"""How the time and the peak memory of an operation grow: points, their measures, their slopes."""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Operation", "grown", "measure", "slope"]

_FEWEST, _ENOUGH, _MUCH = 3, 0.2, 4.0  # calls and CPU seconds of a point


@dataclass(frozen=True)
class Operation:
    """One row of the table of operations.

    Attributes:
        name: What the result calls it.
        make: Parameters -> the call to measure, its inputs made. It may put the number of edges
            that came out into the parameters.
        base: The parameters around which one at a time grows.
        grow: Parameters that grow together ("n e") -> the factors on their base.
        tiny: Parameters of a call that only warms up, and of a trial run.
    """

    name: str
    make: Callable[[dict[str, int]], Callable[[], Any]]
    base: Mapping[str, int]
    grow: Mapping[str, tuple[float, ...]]
    tiny: Mapping[str, int]


def grown(operation: Operation, *, trial: bool = False) -> Iterator[tuple[str, dict[str, int]]]:
    """What grows, and the parameters of each point; a trial takes two tiny points."""
    for names, factors in operation.grow.items():
        for factor in (1, 2) if trial else factors:
            start = operation.tiny if trial else operation.base
            yield (
                names,
                {
                    name: round(value * factor) if name in names.split() else value
                    for name, value in start.items()
                },
            )


def measure(
    operation: Operation, parameters: dict[str, int], *, trial: bool = False
) -> dict[str, Any]:
    """CPU seconds and peak bytes of one call; in a fresh process, as peaks leave traces.

    A trial calls it once.
    """
    operation.make(dict(operation.tiny))()
    point = dict(parameters)
    call = operation.make(point)
    peak = _peak(call)
    seconds: list[float] = []
    while True:
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
        spent = sum(seconds)
        if trial or spent > _MUCH or (len(seconds) >= _FEWEST and spent > _ENOUGH):
            break
    return {"parameters": point, "seconds": statistics.median(seconds), "bytes": peak}


def slope(x: list[float], y: list[float]) -> float:
    """Least squares of log y on log x: y grows as x to this power; NaN where it cannot be told."""
    if len(x) < 2 or min(x) <= 0 or min(y) <= 0:
        return math.nan
    u, v = [math.log(value) for value in x], [math.log(value) for value in y]
    if len(set(u)) < 2:
        return math.nan
    return statistics.linear_regression(u, v).slope


def _peak(call: Callable[[], Any]) -> int:
    """Bytes by which the resident memory rises above where it stands, the result included."""
    gc.collect()
    _give_back()
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        result = call()
        peak = _status("VmHWM") - before
    except OSError:
        # Elsewhere only the highest mark of the whole life can be read.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = call()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    del result
    return 1024 * max(0, peak)


def _give_back() -> None:
    """Pages that were freed but kept would hide what the call needs."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def _status(name: str) -> int:
    """Kilobytes of this process, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))
