"""The machine under the benchmarks: threads, clock, memory, description."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["PEERS", "copy_speed", "describe", "limited", "queued_seconds", "synchronize"]

# Distributions whose versions are reported: the extra `bench`, and those torch installs.
PEERS = (
    "bm25s",
    "cupy",
    "faiss-cpu",
    "hnswlib",
    "igraph",
    "networkit",
    "networkx",
    "numba",
    "numpy",
    "ortools",
    "pyamg",
    "scikit-learn",
    "scikit-network",
    "scipy",
    "tantivy",
    "triton",
)


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit the CPU threads of all contenders: torch, BLAS and OpenMP, faiss, numba."""
    with ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(threads))
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        stack.callback(torch.set_num_threads, before)
        if (faiss := sys.modules.get("faiss")) is not None:
            stack.callback(faiss.omp_set_num_threads, faiss.omp_get_max_threads())
            faiss.omp_set_num_threads(threads)
        if (numba := sys.modules.get("numba")) is not None:
            stack.callback(numba.set_num_threads, numba.get_num_threads())
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        yield


def synchronize(device: str) -> None:
    """Wait for the work queued on the device; returns at once on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def queued_seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Return CUDA seconds of a call queued behind itself, which hides its launch."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / repeats


@functools.cache
def copy_speed(device: str, threads: int, clock: Callable[[], float]) -> float:
    """Return bytes a second of a plain copy, read and written, in the current thread limit.

    `threads` only distinguishes the cached figures of different limits.
    """
    values = torch.empty(2**28 if device == "cuda" else 2**25, device=device)
    other = torch.empty_like(values)

    def copy() -> Tensor:
        return other.copy_(values)

    copy()
    if device == "cuda":
        seconds = min(queued_seconds(copy) for _ in range(3))
    else:
        seconds = math.inf
        for _ in range(7):
            start = clock()
            copy()
            seconds = min(seconds, clock() - start)
    return 2 * values.numel() * values.element_size() / seconds


def describe() -> dict[str, Any]:
    """Return processor, cores, memory, device and the versions of all installed peers."""
    versions = {}
    for name in PEERS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "versions": versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
