"""An event loop in a thread of its own.

With it a call can be given up for good when its time is over, whatever the server does, and the
caller may be a notebook, which has a running loop already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Thread, current_thread
from typing import Any, TypeVar

__all__ = ["BackgroundLoop"]

_T = TypeVar("_T")


class BackgroundLoop:
    """Runs coroutines for callers in other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._serve, name="oracle", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Starts a coroutine; whoever gives its result up cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Ends what is still running, runs `last`, and ends the thread."""
        self.submit(self._end(last))
        # The garbage collector may call from the thread itself, which cannot wait for itself.
        if current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self, last: Coroutine[Any, Any, object]) -> None:
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            await last
        finally:
            self._loop.stop()
