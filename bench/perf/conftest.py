"""The race of an operation against its peers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[[], Any]


@pytest.fixture
def race(benchmark: Any) -> Callable[..., None]:
    """`race(ours, peer=..., rounds=...)`: times ours and every peer in turn, round by round.

    Interleaving spreads a slow moment of the machine over everybody. The medians of the peers go
    into the report beside ours. Everybody is called once before, so that no one pays for first-time
    work.
    """

    def run(ours: Call, *, rounds: int = 15, **peers: Call) -> None:
        for call in (ours, *peers.values()):
            call()
        seconds: dict[str, list[float]] = {name: [] for name in peers}

        def others() -> None:
            for name, call in peers.items():
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)

        benchmark.pedantic(ours, setup=others, rounds=rounds, iterations=1)
        benchmark.extra_info["peers_ms"] = {
            name: 1000 * statistics.median(values) for name, values in seconds.items()
        }

    return run
