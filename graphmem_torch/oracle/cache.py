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
                    f"cache: expected a file of its own, got {self.path}, a database of something "
                    "else; name another"
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
        rows = self._run("SELECT answer FROM answers WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def put(self, key: str, answer: str) -> None:
        """Keeps an answer; the last one of a key counts."""
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?)", key, answer)

    def close(self) -> None:
        """Closes the file; what was put is in it."""
        self._works = False
        self._file.close()

    def _run(self, statement: str, *values: str) -> list[tuple[str]]:
        if not self._works:
            return []
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._works = False
            _log.warning(
                "The cache of answers %s failed (%s: %s); going on without it",
                self.path or "in memory",
                type(error).__name__,
                error,
            )
            return []
