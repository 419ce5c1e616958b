"""Cache of encodings and concepts on disk, shared by all runs."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import text_hash
from graphmem_torch.text.embedder import Embedder

__all__ = ["Encodings", "Row", "TextCache"]
Row = tuple[Tensor, Tensor | None, Tensor | None]
"""Encoding of a text: pooled [d] float32, tokens [t, m] int8 and pieces [t] int32, or None."""

_Result = TypeVar("_Result")
_ASKED = 500  # keys of one query; SQLite takes at least 999
_PATIENCE = 60.0  # seconds to wait for another process that writes


class TextCache:
    """Cache of bytes by the hash of a text, in an SQLite file of a folder.

    Processes may share the folder. A damaged row counts as missing, and a damaged file is replaced.
    An unusable folder causes a warning and repeated work, never a failure.
    """

    def __init__(self, folder: Path, name: str, version: str) -> None:
        """Prepare the cache; the file is created by the first `put`.

        Args:
            folder: Path of the folder; created when needed.
            name: Name of the encoder or extractor.
            version: Everything else that the bytes depend on; part of the file name.
        """
        short = re.sub(r"[^A-Za-z0-9.-]+", "-", name)[-60:]
        self.path = folder / f"{short}-{text_hash(version)[:16]}.sqlite"
        self._usable = True

    def get(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Return the cached bytes of texts."""
        if not self.path.is_file():
            return {}
        keys = {text_hash(text): text for text in texts}
        return self._tried(lambda database: dict(_found(database, keys))) or {}

    def put(self, rows: Mapping[str, bytes]) -> None:
        """Store the bytes of some texts in one transaction."""
        records = [(text_hash(text), row, crc32(row)) for text, row in rows.items()]

        def write(database: sqlite3.Connection) -> None:
            with database:
                database.executemany("INSERT OR REPLACE INTO encoding VALUES (?, ?, ?)", records)

        self._tried(write)

    def _tried(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Return the result of `work`; None if the file is unusable. A damaged file is replaced."""
        for last in (False, True):
            if not self._usable:
                return None
            try:
                database = self._open()
                try:
                    return work(database)
                finally:
                    database.close()
            except (OSError, sqlite3.OperationalError) as error:
                self._give_up(error)
            except sqlite3.DatabaseError as error:
                if last:
                    self._give_up(error)
                else:
                    self.path.unlink(missing_ok=True)
        return None

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.path, timeout=_PATIENCE)
        try:
            # A power cut only costs encoding again, so do not wait for the disk.
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS encoding "
                "(key TEXT PRIMARY KEY, content BLOB NOT NULL, crc INTEGER NOT NULL)"
            )
        except BaseException:
            database.close()
            raise
        return database

    def _give_up(self, error: Exception) -> None:
        self._usable = False
        warnings.warn(
            f"cache: expected a file for encodings, got {self.path} ({error}); texts are encoded "
            f"anew, or name another folder (GRAPHMEM_CACHE)",
            stacklevel=5,
        )


class Encodings:
    """Cache of the encodings of one encoder, in a `TextCache`."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        """Prepare the cache.

        Args:
            folder: Path of the folder; created when needed.
            embedder: Encoder; its name and fingerprint name the file.
        """
        self.folder = folder
        self._cache = TextCache(folder, embedder.name, embedder.fingerprint)
        self._dim, self._token_dim = embedder.dim, embedder.token_dim

    def get(self, texts: Sequence[str]) -> dict[str, Row]:
        """Return the cached encodings of texts."""
        return {text: self._unpacked(row) for text, row in self._cache.get(texts).items()}

    def put(self, rows: Mapping[str, Row]) -> None:
        """Store the encodings of some texts in one transaction."""
        self._cache.put({text: _packed(row) for text, row in rows.items()})

    def _unpacked(self, content: bytes) -> Row:
        data = bytearray(content)  # tensors need writable memory
        pooled = torch.frombuffer(data, dtype=torch.float32, count=self._dim)
        if self._token_dim == 0:
            return pooled, None, None
        start = 4 * self._dim
        count = (len(data) - start) // (self._token_dim + 4)
        if count == 0:
            return (
                pooled,
                torch.empty(0, self._token_dim, dtype=torch.int8),
                torch.empty(0, dtype=torch.int32),
            )
        pieces = torch.frombuffer(data, dtype=torch.int32, count=count, offset=start)
        tokens = torch.frombuffer(data, dtype=torch.int8, offset=start + 4 * count)
        return pooled, tokens.view(count, self._token_dim), pieces


def _found(database: sqlite3.Connection, keys: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    asked = list(keys)
    for start in range(0, len(asked), _ASKED):
        part = asked[start : start + _ASKED]
        marks = ",".join("?" * len(part))
        rows = database.execute(f"SELECT * FROM encoding WHERE key IN ({marks})", part)
        for key, content, check in rows:
            if isinstance(content, bytes) and crc32(content) == check:
                yield keys[key], content


def _packed(row: Row) -> bytes:
    """Return the bytes of an encoding: pooled, pieces and tokens."""
    pooled, tokens, pieces = row
    parts: list[Any] = [pooled.numpy().astype(np.float32, copy=False)]
    if tokens is not None and pieces is not None:
        parts += [pieces.numpy(), tokens.numpy()]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
