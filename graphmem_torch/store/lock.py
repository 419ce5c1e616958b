"""WriterLock: one writer at a time, between threads and processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import logging
import os
import random
import shlex
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmem_torch.errors import StoreError, StoreLockedError
from graphmem_torch.store.failures import store_error

__all__ = ["WriterLock"]

_PAUSE, _LONGEST_PAUSE = 0.0005, 0.008  # seconds between attempts to take the lock
_NAMED = 1024  # bytes of the lock file that name its holder
_NOTICE, _AGAIN = 2.0, 60.0  # seconds until the first warning about the holder, and between them
_LOOK = 0.25  # seconds between reads of the holder
_LATEST = 2.0**37  # seconds since the epoch; later times are invalid
_log = logging.getLogger(__name__)


class WriterLock:
    """Lock for writing to a store, held by one thread of one process at a time.

    `with lock:` waits for it, and nests. Between processes it is an `flock` on a file in the
    store's folder. The kernel releases it when the process ends, so there are no stale locks. The
    file stays: after a removal, two writers could lock two files of the same name.
    """

    wait = 30.0
    """Seconds that one holder may keep the lock before waiting fails; a commit takes ms."""

    def __init__(
        self,
        folder: Path | None,
        name: str = "writer.lock",
        *,
        create: bool = True,
        wait: float | None = None,
    ) -> None:
        """Make the lock of a folder.

        Args:
            folder: Folder of the store; None: a lock between the threads of this process only.
            name: Name of the lock file.
            create: Whether to create a missing folder.
            wait: Value of `wait` for this lock.

        Raises:
            StoreError: The folder cannot be made.
        """
        self._folder, self._name = folder, name
        if wait is not None:
            self.wait = wait
        self._mutex = threading.RLock()
        self._depth, self._file = 0, -1  # nesting depth and descriptor of the locked file
        if folder is None or not create:
            return
        if folder.exists() and not folder.is_dir():
            raise StoreError(
                f"{folder}: expected a folder for the store, got a file. Name a folder"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> None:
        """Wait for the lock; logs a warning that names the holder if that takes seconds.

        Raises:
            StoreLockedError: Another writer holds it; the message names its pid, host and command.
            StoreError: The lock file cannot be written, or is a link to another file.
        """
        until = time.monotonic() + self.wait
        if not self._mutex.acquire(timeout=min(self.wait, threading.TIMEOUT_MAX)):
            raise self._locked(_process(os.getpid()))
        try:
            if self._depth == 0 and self._folder is not None:
                self._take(self._folder / self._name, until)
        except BaseException:
            self.close()
            self._mutex.release()
            raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        # Ctrl-C may come after any call: the remaining steps must still run.
        try:
            if self._depth == 1:
                self.close()
        finally:
            self._depth -= 1
            self._mutex.release()

    def close(self) -> None:
        """Release the file lock, also one left by an interrupt inside `with`."""
        file, self._file = self._file, -1
        if file < 0:
            return
        try:
            # Explicitly, because a forked child shares the lock and would keep it past our close.
            fcntl.flock(file, fcntl.LOCK_UN)
        except OSError:
            pass
        finally:
            os.close(file)

    __del__ = close

    def _take(self, path: Path, until: float) -> None:
        try:
            # A link could lead to any file, which naming the holder would overwrite.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._refused(error) from error
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise self._refused(OSError(errno.ELOOP, "no regular file"))
        start = look = time.monotonic()
        pause, notice = _PAUSE, start + _NOTICE
        holder: dict[str, Any] | None = None
        while not _try_lock(self._file):
            now = time.monotonic()
            if now >= look:
                # A new holder, or a new turn of the same one, is progress: restart the wait.
                look, before = now + _LOOK, holder
                holder = _read(self._file)
                until = max(until, now + self.wait) if before not in (None, holder) else until
            if now > until:
                raise self._locked(_read(self._file))
            if now >= notice:
                notice = now + _AGAIN
                told = _describe(_read(self._file))
                _log.warning("%s: waiting for %s, which is at work", self._folder, told)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
        # If the holder's name cannot be written (full disk), the lock is still held.
        with contextlib.suppress(OSError):
            named = json.dumps({**_process(os.getpid()), "since": time.time()})
            os.pwrite(self._file, named.ljust(_NAMED).encode(), 0)

    def _locked(self, holder: Mapping[str, Any]) -> StoreLockedError:
        return StoreLockedError(
            f"{self._folder or '<memory>'}: {_describe(holder)} is writing to this store, and has "
            f"been for {self.wait:g} seconds. Wait until it is done, or open it with mode='r' to "
            "read"
        )

    def _refused(self, error: OSError) -> StoreError:
        if error.errno == errno.ELOOP:
            return StoreError(
                f"{self._folder}: expected a file {self._name}, got a link or a device; it is none "
                "of the store's: remove it"
            )
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            return store_error(error, str(self._folder))
        return StoreError(
            f"{self._folder}: the store cannot be opened for writing ({error.strerror}). Open it "
            "with mode='r', or make the folder writable"
        )


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@functools.cache
def _process(pid: int) -> dict[str, Any]:  # the pid changes after a fork
    command = shlex.join(sys.orig_argv)
    return {"pid": pid, "host": socket.gethostname(), "command": command[:500]}


def _read(file: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe(holder: Mapping[str, Any]) -> str:
    if not {"pid", "host", "command"} <= holder.keys():
        return "another process"
    named = f"process {holder['pid']} on {holder['host']} ({holder['command']})"
    since = holder.get("since")
    if not isinstance(since, (int, float)) or not 0 <= since < _LATEST:
        return named
    return f"{named}, since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
