"""The writer's lock: one process at a time writes to a store, and a second one is told who does."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

from graphmem_torch.errors import StoreError, StoreLockedError
from graphmem_torch.store.faults import store_error

__all__ = ["WriterLock"]


class WriterLock:
    """An exclusive `flock` on `writer.lock` in a store's folder, from `__init__` to `release`.

    The kernel drops the lock when the process ends, however it ends, so there are no stale locks to
    clean up. The file stays: removing it would let two writers lock two files of one name.

    Raises:
        StoreLockedError: Another writer holds it; the message names its pid, host and command.
        StoreError: The folder or the lock file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, making the folder when it is missing."""
        if folder.exists() and not folder.is_dir():
            raise StoreError(
                f"{folder}: expected a folder for the store, got a file. Name a folder"
            )
        path = folder / "writer.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise store_error(error, folder) from error
            raise StoreError(
                f"{folder}: the store cannot be opened for writing ({error.strerror}). Open it "
                "with mode='r', or make the folder writable"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(_read(self._file))
            self._close()
            raise StoreLockedError(
                f"{folder}: {holder} is writing to this store. Wait until it closes it, "
                "or open it with mode='r' to read"
            ) from None
        except OSError as error:
            self._close()
            raise store_error(error, folder) from error
        # A holder that cannot be named (full disk) still holds the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(_this_process()).encode(), 0)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
            # Explicitly, because a forked child shares the lock and would keep it past our close.
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _this_process() -> dict[str, Any]:
    command = shlex.join(sys.orig_argv)
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command[:500]}


def _read(file: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    if not {"pid", "host", "command"} <= holder.keys():
        return "another process"
    return f"process {holder['pid']} on {holder['host']} ({holder['command']})"
