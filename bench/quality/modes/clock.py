"""Times of alternatives, taken in turns so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["race"]


def race(
    calls: Mapping[str, Callable[[int], object]],
    rounds: int,
) -> dict[str, float]:
    """Median milliseconds of each call, which is given the number of the round.

    Every call is made once before, to warm up. The order is turned by one each round.

    Args:
        calls: By name.
        rounds: How often each is timed.
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
