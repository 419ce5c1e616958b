"""Progress of long work, as a bar on a terminal and as lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Self

__all__ = ["Progress"]


class Progress:
    """Progress bar on standard error if that is a terminal, else a log line now and then.

    Iterate over it, or call `update` in a `with`. Work shorter than `every` logs nothing.

    Attributes:
        done: Number of items done.
    """

    def __init__(
        self,
        items: Iterable[Any] = (),
        what: str = "",
        *,
        shown: bool = True,
        total: int | None = None,
        unit: str = "",
        every: float = 10.0,
        note: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the display; nothing is shown yet.

        Args:
            items: Items to iterate over; without them, `update` counts.
            what: Name of the work.
            shown: Whether to show anything.
            total: Total number, if the items have no length.
            unit: Name of an item.
            every: Seconds between two log lines.
            note: Function that returns what else to say, such as which stage is waited for.
            clock: Monotonic clock, in seconds.
        """
        known = len(items) if isinstance(items, Sized) and items else None
        self._items, self._what, self._unit = items, what, unit
        self._total = known if total is None else total
        self._every, self._clock, self._note = every, clock, note
        self._start = self._last = clock()
        self.done, self._told = 0.0, 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._bar: Any = None
        # Avoid even a disabled bar of tqdm: it takes a lock shared by all forks of a process, and a
        # fork killed at that moment would block the others for ever.
        self._lines = shown and not sys.stderr.isatty()
        if shown and not self._lines:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc=what, unit=f" {unit}" if unit else "it")

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in self._items:
                yield item
                self.update(1)

    def __enter__(self) -> Self:
        if self._lines and self._every > 0:
            threading.Thread(target=self._tick, name="progress", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.close()
        elif self._told and kind is None and self.done > self._told:
            self._tell()

    def update(self, n: float) -> None:
        """Count n more."""
        self.done += n
        if self._bar is not None:
            self._bar.update(n)
            if self._clock() - self._last >= self._every:
                self._last = self._clock()
                self._bar.set_postfix_str(self._note(), refresh=False)
        elif self._lines:
            self._tell_in_time()

    def _tick(self) -> None:
        """Write lines while one item takes long."""
        while not self._ended.wait(self._every):
            self._tell_in_time()

    def _tell_in_time(self) -> None:
        with self._lock:
            if not self._ended.is_set() and self._clock() - self._last >= self._every:
                self._tell()

    def expect(self, total: int) -> None:
        """Set the total number, once it is known."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total
            self._bar.refresh()

    def _pace(self, seconds: float) -> str:
        """Return the rate, and the time left if the total is known."""
        rate = self.done / seconds if seconds > 0 else 0.0
        if not rate:
            return ""
        told = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        left = "" if self._total is None else _left(max(0.0, self._total - self.done) / rate)
        return f", {told} a second{left}"

    def _tell(self) -> None:
        self._last, self._told = self._clock(), self.done
        of = "" if self._total is None else f" of {self._total:,}"
        unit = f" {self._unit}" if self._unit else ""
        seconds = self._last - self._start
        line = f"{self._what}: {self.done:,.0f}{of}{unit}, {seconds:.0f} s{self._pace(seconds)}"
        line += "".join(f"; {note}" for note in [self._note()] if note)
        print(f"graphmem: {line}", file=sys.stderr, flush=True)


def _left(seconds: float) -> str:
    """Return the time left in words; nothing at the end."""
    if not seconds:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f", {minutes} min left" if minutes >= 10 else f", {minutes}:{rest:02} min left"
