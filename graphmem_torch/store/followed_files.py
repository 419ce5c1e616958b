"""Files that a store follows: their last read state, and the atoms made from them.

An atom belongs to every source that contains it. An atom that no source contains any more belongs
to `NOBODY` until it is deleted, so the next run completes an interrupted one. Atoms that callers
add belong to no source, and following files never changes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from graphmem_torch.store.database import Database

__all__ = ["NOBODY", "Held", "SourceRow", "Sources"]

NOBODY = 0
"""Source number that stands for no source."""

_COLUMNS = "source, name, label, digest, stamp, reading, next"
_PUT = f"""
INSERT INTO source ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source) DO UPDATE SET
name = excluded.name, label = excluded.label, digest = excluded.digest, stamp = excluded.stamp,
reading = excluded.reading, next = excluded.next"""


@dataclass(frozen=True)
class SourceRow:
    """A followed file, at its last reading.

    Attributes:
        number: Number in the store, from 1.
        name: Path relative to the folder that the store names its sources from; absolute if the
            file is outside it.
        label: First name of the file, which is the prefix of its chunks' ids.
        digest: SHA-256 of the content read; None: not all of it is stored.
        stamp: Size and times of the file; while they are unchanged, it is not read.
        reading: Settings that it was read with.
        next: Number of its next new chunk.
    """

    number: int
    name: str
    label: str
    digest: str | None
    stamp: str
    reading: str
    next: int


class Held(NamedTuple):
    """Node number and digest of an atom of a source."""

    node: int
    digest: str


class Sources:
    """The sources of a store; a store of an older release has none."""

    def __init__(self, database: Database) -> None:
        """Read and write the tables of `database`; see `MemoryStore.sources`."""
        self._database = database

    def rows(self) -> list[SourceRow]:
        """Return all sources, by number."""
        if not self._database.has("source"):
            return []
        sql = f"SELECT {_COLUMNS} FROM source ORDER BY source"
        return [SourceRow(*row) for row in self._database.query(sql)]

    def put(self, row: SourceRow) -> SourceRow:
        """Store a source, and return it; `NOBODY` as its number requests a new number."""
        last = "SELECT ifnull(max(source), 0) FROM source"

        def work() -> SourceRow:
            number = row.number or 1 + int(self._database.query(last)[0][0])
            self._database.execute_many(_PUT, [(number, *astuple(row)[1:])])
            return replace(row, number=number)

        return self._database.write(work)

    def move(self, moved: Mapping[int, str]) -> None:
        """Rename sources, by number; no source may have a new name yet."""
        # Its atoms still name the old path: until they are rewritten, not all of it is stored.
        sql = "UPDATE source SET name = ?, digest = NULL WHERE source = ?"
        named = [(name, number) for number, name in moved.items()]
        self._database.write(lambda: self._database.execute_many(sql, named))

    def held(self, number: int) -> dict[str, Held]:
        """Return the atoms of a source by id, in the order of storing of their first versions."""
        first = "atom.node"
        if self._database.has("version"):
            first = "ifnull((SELECT min(node) FROM version WHERE current = atom.node), atom.node)"
        sql = (
            "SELECT atom.id, atom.node, atom.digest FROM source_atom JOIN atom ON atom.id = "
            f"source_atom.id WHERE source = ? ORDER BY {first}"
        )
        found = self._database.query(sql, (number,))
        return {name: Held(node, digest.hex()) for name, node, digest in found}

    def counts(self) -> dict[int, int]:
        """Count the atoms of each source, by number."""
        if not self._database.has("source"):
            return {}
        sql = (
            "SELECT source, count(*) FROM source_atom JOIN atom ON atom.id = source_atom.id "
            "GROUP BY source"
        )
        return dict(self._database.query(sql))

    def holders(self, ids: Sequence[str]) -> dict[str, set[int]]:
        """Return the sources of each id; ids without a source are left out."""
        sql = "SELECT id, source FROM source_atom WHERE id IN (SELECT value FROM json_each(?))"
        found: dict[str, set[int]] = {}
        for name, number in self._database.query(sql, (json.dumps(list(ids)),)):
            found.setdefault(name, set()).add(number)
        return found

    def labelled(self, ids: Iterable[str]) -> set[int]:
        """Return the sources whose label is a prefix of some chunk ids, stored or not."""
        labels = {label for name in ids if (label := name.rpartition("#")[0])}
        if not self._database.has("source"):
            return set()
        sql = "SELECT source FROM source WHERE label IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self._database.query(sql, (json.dumps([*labels]),))}

    def hold(self, number: int, ids: Iterable[str]) -> None:
        """Record that a source contains atoms, which need not be stored yet."""
        rows = [(number, name) for name in ids]

        def work() -> None:
            self._database.execute_many("INSERT OR IGNORE INTO source_atom VALUES (?, ?)", rows)
            self._database.execute_many(
                f"DELETE FROM source_atom WHERE source = {NOBODY} AND id = ?",
                [(name,) for _, name in rows if number != NOBODY],
            )

        if rows:
            self._database.write(work)

    def release(self, number: int, ids: Iterable[str]) -> None:
        """Remove atoms from a source; atoms without another source become `NOBODY`'s."""
        rows = [(name, number) for name in ids]

        def work() -> None:
            run = self._database.execute_many
            run("DELETE FROM source_atom WHERE id = ? AND source = ?", rows)
            run(
                f"INSERT INTO source_atom SELECT {NOBODY}, own.id FROM (SELECT ? AS id) AS own "
                "WHERE NOT EXISTS (SELECT 1 FROM source_atom AS other WHERE other.id = own.id)",
                [(name,) for name, _ in rows],
            )

        if rows:
            self._database.write(work)

    def drop(self, number: int) -> None:
        """Stop following a source; atoms without another source become `NOBODY`'s."""
        self._database.write(lambda: self._drop(number))

    def drop_empty(self, numbers: Iterable[int]) -> None:
        """Stop following those of the sources that have no atoms; only inside a write."""
        none = "NOT EXISTS (SELECT 1 FROM source_atom WHERE source_atom.source = source.source)"
        sql = f"DELETE FROM source WHERE source = ? AND {none}"
        self._database.execute_many(sql, [(number,) for number in numbers])

    def _drop(self, number: int) -> None:
        run = self._database.execute_many
        run(
            f"INSERT INTO source_atom SELECT {NOBODY}, id FROM source_atom AS own WHERE "
            "source = ? AND NOT EXISTS (SELECT 1 FROM source_atom AS other "
            "WHERE other.id = own.id AND other.source != own.source)",
            [(number,)],
        )
        run("DELETE FROM source_atom WHERE source = ?", [(number,)])
        run("DELETE FROM source WHERE source = ?", [(number,)])
