"""Pages of a database as they lie in its file: what SQLite does not use of them is overwritten.

`secure_delete` overwrites what is deleted where it stands. But where SQLite moves entries between
pages, copies of them stay in the part of a page that holds none (https://sqlite.org/fileformat2.html
1.6), for as long as nothing else is written there. No one reads these bytes.
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

_HEADER = 100  # bytes of the file in front of its first page's own
_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes in front of a log, and of each page in it

MOST_PAGES = 1 << 25
"""Of a file in which no other page begins as one of a tree does: with the number of a page."""

_FRAMES = 1024  # that are read at once
_TABLE_LEAF, _INDEX_LEAF, _TABLE, _INDEX = _KINDS = 13, 10, 5, 2

FileNumber = tuple[int, int]  # of the device, and on it


def clear_unused(file: int, pages: Iterable[int], *, follow: bool = True) -> int:
    """Overwrites with zeros what the pages of trees hold between their entries' list and entries.

    Whoever calls has a write transaction, and no log: else a page may be another than in the file,
    and whoever keeps it writes the copies again. A kill leaves whole pages, as only bytes change
    that are none of theirs.

    Args:
        file: Descriptor of a database.
        pages: Numbers of the root pages of tables and indexes, from 1.
        follow: Whether the pages below those given are looked at too; else any may be given, of a
            file of at most `MOST_PAGES` that never moves pages to its front (`auto_vacuum`).

    Returns:
        How many pages had such bytes; on the disk when it returns.

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
            continue  # of no tree; if it should be, that is for `check` to say
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
    """A write-ahead log from its beginning on, which is begun anew with another one.

    All that is written to a database while its log is the same stands in that log
    (https://sqlite.org/fileformat2.html 4.1).

    Attributes:
        salt: What the log's header and its valid pages bear; never that of a log before.
    """

    salt: bytes

    @classmethod
    def of(cls, log: Path) -> LogMark | None:
        """That of a log; None: it is empty."""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
            header = file.read(_LOG_HEADER)
            if len(header) == _LOG_HEADER:
                return cls(header[16:24])
        return None

    def pages(self, log: Path) -> set[int] | None:
        """Numbers of the pages in a log that were of a tree; None where it is another than this.

        Raises:
            OSError: It cannot be read.
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
                # Most hold parts of large blobs.
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
    """Descriptors of files that SQLite has open in this process too.

    Closing any descriptor of a file gives up every lock of the process on it, those of SQLite among
    them (https://sqlite.org/howtocorrupt.html 2.2). So there is one of a file at most, which is
    closed behind the last connection.
    """

    def __init__(self) -> None:
        """None yet."""
        self._held: dict[FileNumber, _Held] = {}
        self._lock = threading.Lock()

    def hold(self, file: FileNumber | None) -> None:
        """Notes a connection to a file; None: to nothing that has one."""
        if file is not None:
            with self._lock:
                self._held.setdefault(file, _Held()).connections += 1

    def release(self, file: FileNumber | None) -> None:
        """Notes that a connection that was noted is closed."""
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
        """As if there was a connection, inside the `with` block."""
        self.hold(file)
        try:
            yield
        finally:
            self.release(file)

    def of(self, file: FileNumber | None, path: Path) -> int:
        """The descriptor of a file that is held, to read and write.

        Raises:
            OSError: It cannot be opened, or another one is at its place.
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
