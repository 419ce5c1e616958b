"""Memories of other programs as atoms: what a reader of one format collects.

Nothing that a program holds is dropped silently: what an atom cannot carry is counted by kind.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.text.surrogates import HALVES, replace_surrogates
from graphmem_torch.text.times import parse_time

__all__ = ["EMBEDDING", "MovedMemories", "StatedEnd", "columns_of", "sqlite_copy"]

EMBEDDING = "embedding of another encoder"
"""Kind of a vector that a program holds; the memory's own encoder makes new ones."""

_MAGIC = b"SQLite format 3\0"
_BESIDE = ("-wal", "-journal")  # files that belong to a database while it is in use
_TRIES = 5  # copies of a database that is being written


class StatedEnd(NamedTuple):
    """End of a fact, as it became known.

    Attributes:
        id: Id of the atom.
        stop: When it stopped being true, seconds since the epoch UTC.
        known: When that was noted, in the same unit.
    """

    id: str
    stop: float
    known: float


class MovedMemories:
    """Memories of another program's file.

    Attributes:
        spaces: Atoms by namespace; None is the memory itself.
        ends: Ends of facts that became known after the facts.
        losses: Counts of what the atoms cannot carry, by kind.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.spaces: dict[str | None, list[Atom]] = {}
        self.ends: list[StatedEnd] = []
        self.losses: Counter[str] = Counter()

    def add(
        self,
        id: str,
        text: object,
        *,
        space: str | None = None,
        links: Sequence[tuple[str, EdgeType]] = (),
        **fields: Any,
    ) -> Atom | None:
        """Add a memory, and return it; None for one without text, which is counted.

        Args:
            id: Id of the memory, unique in its namespace.
            text: Its text.
            space: Namespace; None is the memory itself.
            links: Ids and types of stated edges.
            fields: Other fields of the atom; `time`, `event_time`, `event_end` and `expires` in any
                form of a time. What is no time is counted.
        """
        if not isinstance(text, str) or not text.strip():
            self.losses["memory without text"] += 1
            return None
        for name in ("time", "event_time", "event_end", "expires"):
            if name in fields:
                fields[name] = self.moment(fields[name])
        if _ends_early(fields):
            self.losses["end of a fact before its beginning"] += 1
            fields["event_end"] = None
        mended, halves = replace_surrogates({"id": id, "text": text, **fields})
        if halves:
            self.losses[HALVES] += halves
        mended["meta"] = {
            key: own for key, own in mended.get("meta", {}).items() if own is not None
        }
        edges = tuple(Link(target, kind) for target, kind in links)
        atom = Atom(**mended, edges=edges)
        self.spaces.setdefault(space, []).append(atom)
        return atom

    def moment(self, value: object) -> float | None:
        """Return a time in seconds since the epoch UTC; None for none. Counts what is no time."""
        if value is None or value == "":
            return None
        try:
            return parse_time(value)  # type: ignore[arg-type]
        except InputError:
            self.losses["time that cannot be read"] += 1
            return None


def _ends_early(fields: Mapping[str, Any]) -> bool:
    start, stop = fields.get("event_time"), fields.get("event_end")
    return start is not None and stop is not None and stop < start


@contextmanager
def sqlite_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a private copy of an SQLite database with the files beside it; never writes the source.

    Copies the write-ahead log or journal too, so that the copy is the last committed state,
    whatever program holds the source open or has locked it.

    Raises:
        InputError: The file is no whole database, or it changes all the time.
    """
    with TemporaryDirectory(prefix="graphmem-") as folder:
        copy = Path(folder, "copy.sqlite")
        for _ in range(_TRIES):
            before = _stamps(path)
            for beside in ("", *_BESIDE):
                source = path.with_name(path.name + beside)
                target = copy.with_name(copy.name + beside)
                target.unlink(missing_ok=True)
                if source.exists():
                    shutil.copyfile(source, target)
            if _stamps(path) == before:
                break
        else:
            raise InputError(
                "expected a database at rest, got one that is written all the time; stop the "
                "program that writes it",
                where=str(path),
            )
        _expect_whole(copy, path)
        try:
            with closing(sqlite3.connect(copy)) as connection:
                (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if said != "ok":  # rows of a damaged page would be missing silently
                    raise sqlite3.DatabaseError(" ".join(said.split()))
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(
                f"expected a whole SQLite database, got one that cannot be read ({error}); copy it "
                "again",
                where=str(path),
            ) from error


def _stamps(path: Path) -> list[tuple[int, int] | None]:
    """Return size and time of change of a database and of the files beside it."""
    found: list[tuple[int, int] | None] = []
    for beside in ("", *_BESIDE):
        try:
            own = path.with_name(path.name + beside).stat()
        except OSError:
            found.append(None)
        else:
            found.append((own.st_size, own.st_mtime_ns))
    return found


def _expect_whole(copy: Path, path: Path) -> None:
    """Raise InputError if a database is shorter than its header says."""
    with copy.open("rb") as file:
        header = file.read(100)
    size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    length, wanted = copy.stat().st_size, (65536 if size == 1 else size) * pages
    if len(header) < 100 or not header.startswith(_MAGIC) or length < wanted:
        raise InputError(
            f"expected a whole SQLite database, got one that was cut off: {length:,} of {wanted:,} "
            "bytes; copy it again",
            where=str(path),
        )


def columns_of(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the names of the columns of each table of a database."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    listed = "SELECT name FROM pragma_table_info(?)"
    return {name: {row[0] for row in connection.execute(listed, (name,))} for (name,) in tables}
