"""Wiping of the unused bytes of database pages in the file.

`secure_delete` overwrites deleted entries in place. But when SQLite moves entries between pages,
copies remain in the unused part of a page (https://sqlite.org/fileformat2.html 1.6) until it is
reused. SQLite never reads these bytes.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["MOST_PAGES", "Descriptors", "LogMark", "clear_unused"]

_HEADER = 100  # bytes of the file header, at the start of the first page
_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes of the headers of a log, and of each page in it

MOST_PAGES = 1 << 25
"""Maximum pages of a file in which no page number looks like the header of a tree page."""

_FRAMES = 1024  # frames read at once
_TABLE_LEAF, _INDEX_LEAF, _TABLE, _INDEX = _KINDS = 13, 10, 5, 2

FileNumber = tuple[int, int]  # device and inode


def clear_unused(file: int, pages: Iterable[int], *, follow: bool = True) -> int:
    """Zero the unused bytes of tree pages, between the entry list and the entries.

    The caller must hold a write transaction, with an empty log: otherwise a newer page may be in
    the log, and writing it back would restore the copies. Only unused bytes change, so a kill
    leaves every page valid.

    Args:
        file: Descriptor of a database.
        pages: Numbers of the root pages of tables and indexes, from 1.
        follow: Whether to visit the pages below those given. If False, any pages may be given, of a
            file of at most `MOST_PAGES` without `auto_vacuum`.

    Returns:
        Number of changed pages; on disk on return.

    Raises:
        OSError: The file cannot be read or written.
    """
    size = int.from_bytes(os.pread(file, 2, 16))
    size = 1 << 16 if size == 1 else size
    changed, left = 0, [*pages]
    while left:
        number = left.pop()
        page, base = os.pread(file, size, (number - 1) * size), _HEADER if number == 1 else 0
        if len(page) < size:
            continue  # the file has become shorter
        kind, _, count, content = struct.unpack_from(">BHHH", page, base)
        if kind not in _KINDS:
            continue  # no tree page; if it should be one, `check` reports it
        begin = base + (8 if kind in (_TABLE_LEAF, _INDEX_LEAF) else 12)
        end = begin + 2 * count
        if follow and kind in (_TABLE, _INDEX):
            entries = begin - 4, *struct.unpack_from(f">{count}H", page, begin)
            left += [int.from_bytes(page[at : at + 4]) for at in entries]
        unused = (content or 1 << 16) - end
        if unused > 0 and page.count(0, end, end + unused) < unused:
            os.pwrite(file, bytes(unused), (number - 1) * size + end)
            changed += 1
    if changed:
        os.fsync(file)
    return changed


@dataclass(frozen=True)
class LogMark:
    """Identity of a write-ahead log, until SQLite restarts it with a new salt.

    While the log is the same, it holds every write to the database
    (https://sqlite.org/fileformat2.html 4.1).

    Attributes:
        salt: Salt of the log's header and its valid pages; never reused.
    """

    salt: bytes

    @classmethod
    def of(cls, log: Path) -> LogMark | None:
        """Return the mark of a log; None if it is empty."""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
            header = file.read(_LOG_HEADER)
            if len(header) == _LOG_HEADER:
                return cls(header[16:24])
        return None

    def pages(self, log: Path) -> set[int] | None:
        """Return the numbers of the tree pages in a log; None if it is not the log of this mark.

        Raises:
            OSError: The log cannot be read.
        """
        if self.of(log) != self:
            return None
        found = set[int]()
        with log.open("rb") as file:
            step = _FRAME_HEADER + int.from_bytes(file.read(_LOG_HEADER)[8:12])
            while data := file.read(_FRAMES * step):
                frames = np.frombuffer(data[: len(data) // step * step], np.uint8).reshape(-1, step)
                valid = (frames[:, 8:16] == np.frombuffer(self.salt, np.uint8)).all(1)
                frames = frames[: len(frames) if valid.all() else valid.argmin()]
                number = np.ascontiguousarray(frames[:, :4]).view(">u4")[:, 0]
                # Most pages hold parts of large blobs.
                tree = np.isin(frames[:, _FRAME_HEADER], _KINDS) | (number == 1)
                found.update(number[tree].tolist())
                if not valid.all():
                    break
        return found


@dataclass(eq=False)
class _Held:
    connections: int = 0
    descriptor: int = -1


class Descriptors:
    """Shared descriptors of files that SQLite also has open in this process.

    Closing any descriptor of a file drops all locks of the process on it, including SQLite's
    (https://sqlite.org/howtocorrupt.html 2.2). So each file has at most one descriptor, which is
    closed after its last connection.
    """

    def __init__(self) -> None:
        """Start without descriptors."""
        self._held: dict[FileNumber, _Held] = {}
        self._lock = threading.Lock()

    def hold(self, file: FileNumber | None) -> None:
        """Count a connection to a file; None (no file) is ignored."""
        if file is not None:
            with self._lock:
                self._held.setdefault(file, _Held()).connections += 1

    def release(self, file: FileNumber | None) -> None:
        """Count the end of a connection; closes the descriptor after the last one."""
        if file is not None:
            with self._lock:
                held = self._held[file]
                held.connections -= 1
                if not held.connections:
                    del self._held[file]
                    if held.descriptor >= 0:
                        os.close(held.descriptor)

    @contextlib.contextmanager
    def holding(self, file: FileNumber | None) -> Iterator[None]:
        """Count a connection to a file for the duration of the `with` block."""
        self.hold(file)
        try:
            yield
        finally:
            self.release(file)

    def of(self, file: FileNumber | None, path: Path) -> int:
        """Return the descriptor of a held file, for reading and writing.

        Raises:
            OSError: The file cannot be opened, or another file has its path.
        """
        with self._lock:
            assert file is not None, "what is in memory has no descriptor"
            held = self._held[file]
            if held.descriptor < 0:
                there = os.stat(path)
                if (there.st_dev, there.st_ino) != file:
                    raise FileNotFoundError(f"{path} is another file than the one that was opened")
                held.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            return held.descriptor
