"""Contest of an operation with its peers: who computes the same thing, and how fast."""

from __future__ import annotations

import importlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.perf.contender import Call, Contender, verdict
from bench.perf.machine import copy_speed, limited, queued_seconds, synchronize
from bench.perf.sizes import Size, sizes

__all__ = ["Call", "Race", "Size", "peer", "sizes"]

_TOO_LONG = 600.0  # seconds of one call; a slower peer is absent
_ONCE = 60.0  # seconds of one call from which it is timed only once
_SHARE = 30.0  # seconds that a contender may spend in all rounds, after three of them
_QUICK = 0.5  # minimum seconds of all rounds of fast calls
_MOST = 101  # maximum number of rounds


def peer(module: str) -> Any:
    """Import a peer's module; None if it is not installed, to be passed as "not installed"."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


@dataclass
class Race:
    """Time ours and every peer in turn, round by round, with the same number of threads.

    Interleaving spreads a slow moment of the machine over all contenders. Each is called once
    before, to warm up and for the accuracy of its result. Ours is the entry of pytest-benchmark;
    the rest is in its `extra_info`.

    Attributes:
        benchmark: Fixture of pytest-benchmark.
        size: Size of the run.
        threads: Number of CPU threads.
        title: Title in the table.
        chosen: Names (or their first words) of the peers and floors to run; None: all.
        clock: Clock in seconds; `time.process_time` on a busy machine, with one thread.
    """

    benchmark: Any
    size: Size
    threads: int = 1
    title: str = ""
    chosen: frozenset[str] | None = None
    clock: Callable[[], float] = time.perf_counter

    def __call__(
        self,
        ours: Call,
        *,
        accuracy: Callable[[Any], float],
        measure: str,
        peers: Mapping[str, Call | str] | None = None,
        floors: Mapping[str, Call | str] | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
        target: float | Mapping[str, float] | None = None,
        against: str | None = None,
        bytes_moved: float | None = None,
    ) -> None:
        """Run the race.

        Args:
            ours: Measured call.
            accuracy: Function from the result of a call to a number, for ours and every peer.
            measure: Name of that number, e.g. "recall@30" or "largest error".
            peers: Mapping from name to call, or to the reason for absence ("not installed").
            floors: Lower bounds, timed beside; they compute less and do not compete.
            at_least: Minimum accuracy; a peer below it is shown, not compared.
            at_most: Maximum of the accuracy measure; one of the two is needed.
            target: Maximum of ours / other (1/8: eight times as fast); a mapping gives one for each
                of several others.
            against: Name of the other; the fastest accurate peer when omitted.
            bytes_moved: Bytes that must be read and written once, for the bandwidth.

        Raises:
            AssertionError: Ours is not accurate.
        """
        if (at_least is None) == (at_most is None):
            raise ValueError("expected one of at_least and at_most; give the other None")
        field = self._line_up(ours, peers or {}, floors or {})
        targets = target if isinstance(target, Mapping) else {against or "": target}
        for name in targets:
            if name and name not in {"ours", *(peers or {}), *(floors or {})}:
                raise ValueError(f"against: expected a peer or a floor, got {name!r}; name one")

        def fit(value: float) -> bool:
            return value >= at_least if at_least is not None else value <= (at_most or 0.0)

        bar = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
        with limited(self.threads):
            for contender in field.values():
                self._warm_up(contender, accuracy, fit)
            if not field["ours"].fit:
                raise AssertionError(
                    f"ours: {measure} is {field['ours'].accuracy:g}, expected {bar}"
                )
            self._time(field)
            bandwidth = self._bandwidth(field["ours"], bytes_moved)
        self.benchmark.extra_info.update(
            operation=self.size.operation,
            title=self.title,
            size={"name": self.size.name, **self.size},
            threads=self.threads,
            clock="cpu" if self.clock is time.process_time else "wall",
            device=self.size.device,
            measure=f"{measure} {bar}",
            contenders={name: one.report() for name, one in field.items()},
            # A tiny size times the overhead of calls; targets apply to the other sizes.
            verdicts=[
                verdict(field, name, None if self.size.smoke else value)
                for name, value in targets.items()
            ],
            bandwidth=bandwidth,
        )

    def _line_up(
        self, ours: Call, peers: Mapping[str, Call | str], floors: Mapping[str, Call | str]
    ) -> dict[str, Contender]:
        entered = {"ours": Contender("ours", "ours", ours)}
        for kind, others in (("peer", peers), ("floor", floors)):
            for name, call in others.items():
                if self.chosen is not None and not {name, name.split()[0]} & self.chosen:
                    continue
                why = call if isinstance(call, str) else self.size.beyond(name)
                runs = None if why or isinstance(call, str) else call
                entered[name] = Contender(name, kind, runs, absent=why)
        return entered

    def _once(self, one: Contender) -> tuple[Any, float]:
        synchronize(self.size.device)
        start = self.clock()
        result = one.run()
        synchronize(self.size.device)
        return result, self.clock() - start

    def _warm_up(
        self,
        one: Contender,
        accuracy: Callable[[Any], float],
        fit: Callable[[float], bool],
    ) -> None:
        if one.absent is not None:
            return
        try:
            result, one.first = self._once(one)
            if one.first < _QUICK / 10:  # the first call of all includes other work
                one.first = self._once(one)[1]
        except Exception as error:
            # No smoke size is too large, so a failure there is one of the benchmark.
            if one.kind == "ours" or self.size.smoke:
                raise
            message = (str(error) or "no message").splitlines()[0][:120]
            one.absent = f"{type(error).__name__}: {message}"
            return
        if one.kind != "ours" and one.first > _TOO_LONG:
            one.absent = f"over 10 minutes ({one.first:.0f} s)"
            return
        if one.kind != "floor":
            one.accuracy = float(accuracy(result))
            one.fit = not math.isnan(one.accuracy) and fit(one.accuracy)

    def _time(self, field: dict[str, Contender]) -> None:
        ours = field["ours"]
        others = deque(one for one in field.values() if one is not ours and one.absent is None)
        once = [one for one in others if one.first > _ONCE or self.size.smoke]
        for one in once:
            one.seconds.append(one.first)

        def round_of_others() -> None:
            others.rotate()  # so that the order changes
            for one in others:
                spent = sum(one.seconds)
                if one in once or (len(one.seconds) >= 3 and spent > _SHARE):
                    continue
                one.seconds.append(self._once(one)[1])

        def ours_timed() -> None:
            ours.seconds.append(self._once(ours)[1])

        rounds = self.size.rounds
        if not self.size.smoke:
            whole = sum(one.first for one in (ours, *others))
            quick = min(_MOST, int(_QUICK / whole)) if whole else rounds
            slow = max(3, int(_SHARE / ours.first)) if ours.first else rounds
            rounds = min(max(rounds, quick), slow)
        self.benchmark.pedantic(ours_timed, setup=round_of_others, rounds=rounds, iterations=1)

    def _bandwidth(self, ours: Contender, bytes_moved: float | None) -> dict[str, float] | None:
        if bytes_moved is None or self.size.smoke:
            return None
        device = self.size.device
        # Queued, because launching is not limited by the memory of a device.
        seconds = queued_seconds(ours.run) if device == "cuda" else ours.median
        speed, copied = bytes_moved / seconds, copy_speed(device, self.threads, self.clock)
        return {"gb_s": speed / 1e9, "copy_gb_s": copied / 1e9, "share": speed / copied}
