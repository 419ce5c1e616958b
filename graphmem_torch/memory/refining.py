"""Refining: a background thread that consolidates a memory when something has changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol, Self

from graphmem_torch.checks import check_range
from graphmem_torch.errors import GraphMemError, StoreLockedError
from graphmem_torch.results import Consolidated
from graphmem_torch.store.lock import WriterLock

__all__ = ["Refining"]

_log = logging.getLogger(__name__)

_LONGEST = 1e6  # maximum seconds between two checks


class Refines(Protocol):
    """Work that is repeated."""

    @property
    def news(self) -> object:
        """Name of the state that a run reads; None if it also depends on the time."""

    def run(self, *, going: Callable[[], bool]) -> Consolidated:
        """Do what there is to do, as long as `going` returns True."""


class Refining:
    """Thread that consolidates repeatedly until it is stopped; started by `Upkeep.in_background`.

    A context manager, which stops at the end of its block. An error is logged, and the next
    turn tries again. One process or thread refines a store at a time; the others skip their
    turn. Questions never wait for it.

    Attributes:
        done: Result of the last successful run; None before the first.
        error: Error of the last run; None if it succeeded.
    """

    def __init__(
        self,
        work: Refines,
        lock: WriterLock,
        every: float,
    ) -> None:
        """Start the thread.

        Args:
            work: Work to repeat; unchanged `news` since the last run mean that there is none.
            lock: Lock of refining the store.
            every: Seconds between two checks.

        Raises:
            InputError: `every` is no time, or too long.
        """
        check_range("every", every, 1e-3, _LONGEST)
        self.done: Consolidated | None = None
        self.error: Exception | None = None
        self._work, self._lock, self._every = work, lock, every
        self._seen: object = None
        self._ending = threading.Event()
        lock.wait = 0.0
        self._thread = threading.Thread(target=self._live, name="graphmem-refining", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Return whether the thread is running."""
        return self._thread.is_alive() and not self._ending.is_set()

    def stop(self) -> None:
        """Stop after the current step; further calls do nothing."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        """Return the thread."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread."""
        self.stop()

    def _goes_on(self) -> bool:
        return not self._ending.is_set()

    def _live(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self._look()
                self.error = None
            except StoreLockedError as error:  # another process refines, or writes for long
                self.error = error
                _log.debug("refining waits for its turn: %s", error)
            except Exception as error:
                self.error = error
                if self._ending.is_set():
                    return
                level = logging.WARNING if isinstance(error, GraphMemError) else logging.ERROR
                _log.log(level, "refining failed, and is tried again: %s", error, exc_info=True)

    def _look(self) -> None:
        """Refine, if there is something new."""
        news = self._work.news
        if news is not None and news == self._seen:
            return
        with self._lock:
            self.done = self._work.run(going=self._goes_on)
        # What was written during the run, here or by others, is new.
        self._seen = news if self.done == Consolidated() else None
