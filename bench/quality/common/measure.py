"""Measure a run: wall time, peak memory, code version, and the frame of a report."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from graphmem_torch import version
from graphmem_torch.config import Config, config_to_dict

__all__ = [
    "Peak",
    "Stopwatch",
    "code_version",
    "framed",
    "interleaved_medians",
    "latencies",
    "peak_memory",
    "percentiles",
]
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Stopwatch:
    """Time spent in named parts of the work.

    Attributes:
        seconds: Wall seconds by part.
        cpu: Seconds of all threads of the process by part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._watched = ExitStack()

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        start, busy = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu[part] = self.cpu.get(part, 0.0) + time.process_time() - busy
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Add the time of every call of a method or function to a part, until `stop`."""
        original = getattr(owner, name)
        self._watched.callback(setattr, owner, name, original)

        @wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.running(part):
                return original(*args, **kwargs)

        setattr(owner, name, timed)

    def stop(self) -> None:
        """Restore everything that was watched."""
        self._watched.close()


@dataclass(slots=True)
class Peak:
    """Peak resident memory within a block, in MB (10^6 bytes); None where unknown."""

    megabytes: float | None = None


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure the peak resident memory of the block, plus device memory on CUDA.

    Linux keeps the peak and lets a process reset its own; elsewhere only the peak of the whole
    process is known.
    """
    peak = Peak()
    _reset()
    yield peak
    peak.megabytes = _high_water()


def _reset() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def _high_water() -> float | None:
    device = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        import resource

        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + device) / 1e6
    for line in lines:
        if line.startswith("VmHWM:"):
            return (int(line.split()[1]) * 1024 + device) / 1e6
    return None


def latencies(call: Callable[[list[str]], object], questions: Sequence[str]) -> list[float]:
    """Return the seconds of `call` for each question alone, after one warm-up call."""
    if not questions:
        return []
    call([questions[0]])
    seconds = []
    for question in questions:
        start = time.perf_counter()
        call([question])
        _wait()
        seconds.append(time.perf_counter() - start)
    return seconds


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return median and 95th percentile in milliseconds."""
    if not seconds:
        return {"p50": None, "p95": None}
    ends = torch.tensor([0.5, 0.95], dtype=torch.float64)
    p50, p95 = torch.tensor(seconds, dtype=torch.float64).quantile(ends).tolist()
    return {"p50": 1000 * p50, "p95": 1000 * p95}


def framed(
    dataset: str,
    config: Config | Sequence[Config],
    seed: int,
    *,
    n: Mapping[str, Any],
    **figures: Any,
) -> dict[str, Any]:
    """Return a report: what was measured, on how many, by which code, settings and seed.

    With several presets `config` is that of the first, and `configs` has all by name.
    """
    presets = [config] if isinstance(config, Config) else config
    every = {each.name: config_to_dict(each) for each in presets}
    return {
        "dataset": dataset,
        "preset": presets[0].name,
        "commit": code_version(),
        "n": n,
        **figures,
        "config": config_to_dict(presets[0]),
        **({"configs": every} if len(presets) > 1 else {}),
        "seed": seed,
    }


def code_version() -> str:
    """Return the commit of the checkout (`+` if files differ), else the package's version."""
    root = Path(version.__file__).resolve().parents[1]
    released = f"v{version.__version__}"
    if not (root / ".git").exists():
        return released
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return released
    return f"{commit}+" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()


def interleaved_medians(
    calls: Mapping[str, Callable[[int], object]],
    rounds: int,
) -> dict[str, float]:
    """Return the median milliseconds of each call, which receives the number of the round.

    Every call runs once before, to warm up. The order rotates each round.

    Args:
        calls: Calls by name.
        rounds: Timed runs of each.
    """
    names = list(calls)
    for name in names:
        calls[name](0)
    seconds = torch.zeros(len(names), rounds, dtype=torch.float64)
    for number in range(rounds):
        for place in range(len(names)):
            which = (place + number) % len(names)
            _wait()
            start = time.perf_counter()
            calls[names[which]](number)
            _wait()
            seconds[which, number] = time.perf_counter() - start
    middle = seconds.median(dim=1).values if rounds else seconds.new_full((len(names),), torch.nan)
    return dict(zip(names, (1000 * middle).tolist(), strict=True))


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
