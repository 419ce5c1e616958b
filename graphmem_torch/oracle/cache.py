"""Answers of a language model, kept under the hash of what was asked."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from graphmem_torch.errors import InputError

__all__ = ["AnswerCache"]

_log = logging.getLogger(__name__)

_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"


class AnswerCache:
    """Key -> answer, in memory or in an SQLite file that several processes may share.

    A file that stops working (full disk, damage) costs a warning and then only its use.

    Args:
        path: Path of the file, made where there is none; None keeps the answers in memory.

    Raises:
        InputError: The file is something else, or cannot be opened.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        try:
            # Whoever opens it need not be the thread that uses it; only one ever does at a time.
            self._file = sqlite3.connect(
                self.path or ":memory:", isolation_level=None, check_same_thread=False
            )
            tables = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = {name for (name,) in tables}
            if names - {"answers"}:
                raise InputError(
                    f"cache: {self.path} is a database of something else; name a file of its own"
                )
            if self.path is not None:
                self._file.execute("PRAGMA journal_mode = WAL")
                self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_TABLE)
        except sqlite3.Error as error:
            raise InputError(
                f"cache: expected an SQLite file or the name of a new one, got {self.path} "
                f"({error}); name another, or None to keep the answers in memory"
            ) from error
        self._works = True

    def get(self, key: str) -> str | None:
        """The answer that was kept, None where there is none."""
        if not self._works:
            return None
        try:
            row = self._file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
            return None
        return None if row is None else str(row[0])

    def put(self, key: str, answer: str) -> None:
        """Keeps an answer; the last one of a key counts."""
        if not self._works:
            return
        try:
            self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))
        except sqlite3.Error as error:
            self._fail(error)

    def close(self) -> None:
        """Closes the file; what was put is in it."""
        self._works = False
        self._file.close()

    def _fail(self, error: sqlite3.Error) -> None:
        self._works = False
        _log.warning(
            "The cache of answers %s failed (%s: %s); going on without it",
            self.path or "in memory",
            type(error).__name__,
            error,
        )
