"""Contender of a race: its times, its accuracy, and its comparison with another."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "Contender", "verdict"]

Call = Callable[[], Any]


@dataclass
class Contender:
    """Our operation, a peer or a floor.

    Attributes:
        name: Name in the table.
        kind: "ours", "peer" or "floor".
        call: Timed call; None if it is absent from the start.
        absent: Reason why it is not timed.
        accuracy: Accuracy of its result; a floor has none.
        fit: Whether it is accurate enough to be compared with.
        first: Seconds of the warm-up call.
        seconds: Seconds of every round.
    """

    name: str
    kind: str
    call: Call | None
    absent: str | None = None
    accuracy: float | None = None
    fit: bool = True
    first: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def run(self) -> Any:
        """Return the result of one call."""
        assert self.call is not None, f"{self.name} is absent: {self.absent}"
        return self.call()

    @property
    def median(self) -> float:
        """Return the median seconds of the rounds."""
        return statistics.median(self.seconds)

    def report(self) -> dict[str, Any]:
        """Return its entry of the report, in milliseconds."""
        if self.absent is not None:
            return {"kind": self.kind, "absent": self.absent}
        low, high = self.seconds[0], self.seconds[0]
        if len(self.seconds) > 1:
            low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return {
            "kind": self.kind,
            "median_ms": 1000 * self.median,
            "min_ms": 1000 * min(self.seconds),
            "iqr_ms": 1000 * (high - low),
            "rounds": len(self.seconds),
            "accuracy": self.accuracy,
            "fit": self.fit,
        }


def verdict(field: Mapping[str, Contender], against: str, target: float | None) -> dict[str, Any]:
    """Compare ours with the named contender or, without a name, the fastest accurate peer."""
    timed = {name: one for name, one in field.items() if one.absent is None and one.fit}
    if not against:
        peers = [one for one in timed.values() if one.kind == "peer"]
        best = min(peers, key=lambda one: one.median, default=None)
        against = best.name if best else ""
    ratio = field["ours"].median / timed[against].median if against in timed else None
    met = None if ratio is None or target is None else ratio <= target
    return {"against": against or None, "ratio": ratio, "target": target, "met": met}
