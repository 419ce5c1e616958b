"""Refinement in the background: a thread that consolidates a memory when something has changed."""

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

_LONGEST = 1e6  # seconds between two looks


class Refines(Protocol):
    """What is run again and again."""

    @property
    def news(self) -> object:
        """Name of all that a run looks at; None if it depends on the time as well."""

    def run(self, *, going: Callable[[], bool]) -> Consolidated:
        """Do what there is to do, for as long as `going` says."""


class Refining:
    """Consolidates again and again, until it is stopped; `Upkeep.in_background` starts it.

    It is a context manager, which stops at the end of its block. An error is logged, and the next
    turn tries again. Of several processes and threads that refine one store, one does at a time:
    the others pass their turn. Nobody who asks waits for it.

    Attributes:
        done: What the last run did that ended well; None before the first.
        error: Of the last run; None where it ended well.
    """

    def __init__(
        self,
        work: Refines,
        lock: WriterLock,
        every: float,
    ) -> None:
        """Start the thread.

        Args:
            work: What is run. Equal `news` as after the last run mean that there is nothing to do.
            lock: Lock of refining the store.
            every: Seconds from one look to the next.

        Raises:
            InputError: No time from one look to the next, or too long a one.
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
        """Whether it goes on."""
        return self._thread.is_alive() and not self._ending.is_set()

    def stop(self) -> None:
        """Ends it, once the step that it is in is done; once is enough."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops it."""
        self.stop()

    def _goes_on(self) -> bool:
        return not self._ending.is_set()

    def _live(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self._look()
                self.error = None
            except StoreLockedError as error:  # another one refines, or writes for long
                self.error = error
                _log.debug("refining waits for its turn: %s", error)
            except Exception as error:
                self.error = error
                if self._ending.is_set():
                    return
                level = logging.WARNING if isinstance(error, GraphMemError) else logging.ERROR
                _log.log(level, "refining failed, and is tried again: %s", error, exc_info=True)

    def _look(self) -> None:
        """Refines, where there is something new."""
        news = self._work.news
        if news is not None and news == self._seen:
            return
        with self._lock:
            self.done = self._work.run(going=self._goes_on)
        # What was written meanwhile, here or by others, is something new.
        self._seen = news if self.done == Consolidated() else None
