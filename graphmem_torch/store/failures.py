"""Translation of errors of SQLite and the system into errors that say what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from graphmem_torch.errors import StoreDamagedError, StoreError, StoreLockedError

__all__ = ["closed_error", "damaged", "store_error"]

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ROOM_TEXT = ("no space left", "os error 28", "quota exceeded", "file too large")

_MEND = (
    "Restore the folder from a backup, or index the original files into a new folder; "
    '`sqlite3 memory.sqlite ".recover" | sqlite3 rescued.sqlite` saves what can still be read'
)


def damaged(place: str, what: str) -> StoreDamagedError:
    """Make the error for a store with inconsistent content."""
    return StoreDamagedError(f"{place}: the database is damaged ({what}). {_MEND}")


def store_error(error: Exception, place: str | Path) -> StoreError:
    """Translate a low-level error.

    Args:
        error: An `sqlite3.Error`, an `OSError`, or the error of a file writer.
        place: The store's folder or file, for the message.

    Returns:
        `StoreDamagedError` for corrupt files, `StoreLockedError` for a busy database, else
        `StoreError`.
    """
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        # The low byte is the primary code; the rest identifies the operation.
        primary = None if code is None else code & 0xFF
        # Invalid UTF-8 is found by Python, not SQLite, and has no code.
        if primary in _DAMAGED or "decode to UTF-8" in str(error):
            return damaged(str(place), str(error))
        if primary in _BUSY:
            return StoreLockedError(
                f"{place}: the database stays busy ({error}). Close the program that holds it, "
                "then try again"
            )
        if primary == sqlite3.SQLITE_READONLY:
            return StoreError(
                f"{place}: the store cannot be written ({error}). Open it with mode='r'"
            )
        if primary in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
            return _no_room(place, error)
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return closed_error(place)
        return StoreError(f"{place}: the database refused the operation ({error})")
    number = getattr(error, "errno", None)
    if number in _NO_ROOM or any(text in str(error).lower() for text in _NO_ROOM_TEXT):
        return _no_room(place, error)
    return StoreError(f"{place}: {error}")


def closed_error(place: str | Path) -> StoreError:
    """Return the error of a store that was closed."""
    return StoreError(f"{place}: expected an open memory, got one that was closed; open it")


def _no_room(place: str | Path, error: Exception) -> StoreError:
    return StoreError(
        f"{place}: the disk refused ({error}). Nothing that was acknowledged is lost, and a write "
        "that failed left no trace: free some disk space and repeat it"
    )
