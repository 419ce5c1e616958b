"""Growth of the time and peak memory of an operation: points, measurements, slopes."""

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

_FEWEST, _ENOUGH, _MUCH = 3, 0.2, 4.0  # of a point: minimum calls, CPU seconds at least and at most


@dataclass(frozen=True)
class Operation:
    """Row of the table of operations.

    Attributes:
        name: Name in the result.
        make: Function from parameters to the call to measure, with its inputs built. It may store
            the resulting number of edges in the parameters.
        base: Base parameters, of which one at a time grows.
        grow: Parameters that grow together ("n e"), with factors on their base.
        tiny: Parameters of a warm-up call, and of a trial run.
    """

    name: str
    make: Callable[[dict[str, int]], Callable[[], Any]]
    base: Mapping[str, int]
    grow: Mapping[str, tuple[float, ...]]
    tiny: Mapping[str, int]


def grown(operation: Operation, *, trial: bool = False) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the growing parameters and those of each point; a trial has two tiny points."""
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
    """Return CPU seconds and peak bytes of one call, in a fresh process because peaks persist.

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
    """Return p of the fit y ~ x^p by least squares of logs; NaN if undetermined."""
    if len(x) < 2 or min(x) <= 0 or min(y) <= 0:
        return math.nan
    u, v = [math.log(value) for value in x], [math.log(value) for value in y]
    if len(set(u)) < 2:
        return math.nan
    return statistics.linear_regression(u, v).slope


def _peak(call: Callable[[], Any]) -> int:
    """Return the bytes by which resident memory rises during a call, including its result."""
    gc.collect()
    _give_back()
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        result = call()
        peak = _status("VmHWM") - before
    except OSError:
        # Other systems report only the maximum of the whole process.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = call()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    del result
    return 1024 * max(0, peak)


def _give_back() -> None:
    """Release freed pages that are still resident, which would hide the needs of the call."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def _status(name: str) -> int:
    """Return kilobytes of this process, as counted by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))
