"""Options of the speed benchmarks, the choice of sizes, and the fixture `race`."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest
import torch

from bench.perf.contest import Race, Size
from bench.perf.machine import describe, limited


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("speed")
    group.addoption("--smoke", action="store_true", help="only the tiny size of every benchmark")
    group.addoption(
        "--contenders", metavar="NAMES", help="only these beside ours: ours,igraph,scipy"
    )
    group.addoption(
        "--device", choices=["cpu", "cuda"], default="cpu", help="which sizes: `sizes` or `cuda`"
    )
    group.addoption(
        "--cpu-time",
        action="store_true",
        help="CPU time of the process, one thread only: for a machine that is busy",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a device that is not there."""
    if config.getoption("--device") == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda: torch sees no CUDA device; leave it out")


def _size(item: Any) -> Size | None:
    found = item.callspec.params.get("size") if hasattr(item, "callspec") else None
    return found if isinstance(found, Size) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the sizes that the run does not include."""
    smoke, device = config.getoption("--smoke"), config.getoption("--device")
    cpu_time = config.getoption("--cpu-time")

    def wanted(item: pytest.Item) -> bool:
        size = _size(item)
        if size is None:
            return True
        threads = item.callspec.params.get("race")  # type: ignore[attr-defined]
        if threads not in size.threads or (cpu_time and threads > 1):
            return False
        return size.smoke if smoke else size.name != "smoke" and size.device == device

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generate runs for all numbers of threads, next to each other, so that inputs are reused."""
    if "race" not in metafunc.fixturenames:
        return
    found = [
        value.threads
        for mark in metafunc.definition.iter_markers("parametrize")
        for value in mark.args[1]
        if isinstance(value, Size)
    ]
    threads = sorted({count for counts in found for count in counts}) or [1]
    metafunc.parametrize("race", threads, indirect=True, ids=lambda count: f"{count}t")


@pytest.fixture
def race(request: pytest.FixtureRequest, benchmark: Any) -> Any:
    """Return the race of this test, at its size and number of threads; see `Race`."""
    size = _size(request.node)
    assert size is not None, "parametrize the benchmark with `size` from `sizes(...)`"
    names = request.config.getoption("--contenders")
    chosen = frozenset(name.strip() for name in names.split(",")) if names else None
    title = (request.function.__doc__ or request.function.__name__).strip().splitlines()[0]
    clock = time.process_time if request.config.getoption("--cpu-time") else time.perf_counter
    with limited(request.param):
        yield Race(benchmark, size, request.param, title, chosen, clock)


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Add the machine to the report."""
    machine_info["described"] = describe()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """Keep the measurements of an interrupted run.

    Otherwise the report fails on the interrupted benchmark, which has no data.
    """
    measured = getattr(session.config, "_benchmarksession", None)
    if measured is not None:
        measured.benchmarks[:] = [one for one in measured.benchmarks if one.stats.data]
    return (yield)
