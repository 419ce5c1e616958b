"""Files that a store follows: what each was when it was last read, and which atoms are of it.

An atom belongs to as many sources as say it. One that no source says any more belongs to none
(`NOBODY`) until it is deleted, so that a run that was cut short is ended by the next. What callers
add themselves belongs to no source and is never theirs to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

from graphmem_torch.store.database import Database

__all__ = ["NOBODY", "Held", "SourceRow", "Sources"]

NOBODY = 0
"""Number that stands for no source."""

_COLUMNS = "source, name, label, digest, stamp, reading, next"
_PUT = f"""
INSERT INTO source ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source) DO UPDATE SET
name = excluded.name, label = excluded.label, digest = excluded.digest, stamp = excluded.stamp,
reading = excluded.reading, next = excluded.next"""


@dataclass(frozen=True)
class SourceRow:
    """A file as it was last read.

    Attributes:
        number: Its own in the store, from 1.
        name: The path, relative to the folder that the store names its sources from where it is
            inside that, else absolute.
        label: What the ids of its chunks begin with: its first name.
        digest: SHA-256 of what was read; None: not all of it is stored.
        stamp: Size and times of the file; what has not changed by it is not read.
        reading: By what settings it was read.
        next: Number that its next new chunk gets.
    """

    number: int
    name: str
    label: str
    digest: str | None
    stamp: str
    reading: str
    next: int


class Held(NamedTuple):
    """An atom of a source: its node number, and its digest."""

    node: int
    digest: str


class Sources:
    """The sources of a store; a store of an older release has none."""

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.sources`."""
        self._database = database

    def rows(self) -> list[SourceRow]:
        """All sources by number."""
        if not self._database.has("source"):
            return []
        sql = f"SELECT {_COLUMNS} FROM source ORDER BY source"
        return [SourceRow(*row) for row in self._database.query(sql)]

    def put(self, row: SourceRow) -> SourceRow:
        """Keeps a source, new where its number is `NOBODY`; as it is kept."""
        last = "SELECT ifnull(max(source), 0) FROM source"

        def work() -> SourceRow:
            number = row.number or 1 + int(self._database.query(last)[0][0])
            self._database.execute_many(_PUT, [(number, *astuple(row)[1:])])
            return replace(row, number=number)

        return self._database.write(work)

    def move(self, moved: Mapping[int, str]) -> None:
        """Gives sources names that no source has, by number."""
        # Its atoms still say where it was: until they are put anew, not all of it is stored.
        sql = "UPDATE source SET name = ?, digest = NULL WHERE source = ?"
        named = [(name, number) for number, name in moved.items()]
        self._database.write(lambda: self._database.execute_many(sql, named))

    def held(self, number: int) -> dict[str, Held]:
        """The atoms of a source by id, in the order in which their first versions were stored."""
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
        """How many atoms each source has, by number."""
        if not self._database.has("source"):
            return {}
        sql = (
            "SELECT source, count(*) FROM source_atom JOIN atom ON atom.id = source_atom.id "
            "GROUP BY source"
        )
        return dict(self._database.query(sql))

    def holders(self, ids: Sequence[str]) -> dict[str, set[int]]:
        """The sources of those ids that have any."""
        sql = "SELECT id, source FROM source_atom WHERE id IN (SELECT value FROM json_each(?))"
        found: dict[str, set[int]] = {}
        for name, number in self._database.query(sql, (json.dumps(list(ids)),)):
            found.setdefault(name, set()).add(number)
        return found

    def labelled(self, ids: Iterable[str]) -> set[int]:
        """The sources whose label the ids of some chunks have, stored or not."""
        labels = {label for name in ids if (label := name.rpartition("#")[0])}
        if not self._database.has("source"):
            return set()
        sql = "SELECT source FROM source WHERE label IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self._database.query(sql, (json.dumps([*labels]),))}

    def hold(self, number: int, ids: Iterable[str]) -> None:
        """Notes that atoms, which may be still to come, are of a source."""
        rows = [(number, name) for name in ids]

        def work() -> None:
            self._database.execute_many("INSERT OR IGNORE INTO source_atom VALUES (?, ?)", rows)
            self._database.execute_many(
                f"DELETE FROM source_atom WHERE source = {NOBODY} AND id = ?",
                _each(name for _, name in rows if number != NOBODY),
            )

        if rows:
            self._database.write(work)

    def release(self, number: int, ids: Iterable[str]) -> None:
        """Notes that atoms are not of a source any more; those of no other are `NOBODY`'s."""
        rows = [(name, number) for name in ids]

        def work() -> None:
            run = self._database.execute_many
            run("DELETE FROM source_atom WHERE id = ? AND source = ?", rows)
            run(
                f"INSERT INTO source_atom SELECT {NOBODY}, own.id FROM (SELECT ? AS id) AS own "
                "WHERE NOT EXISTS (SELECT 1 FROM source_atom AS other WHERE other.id = own.id)",
                _each(name for name, _ in rows),
            )

        if rows:
            self._database.write(work)

    def drop(self, number: int) -> None:
        """Follows a source no longer; atoms of no other are `NOBODY`'s."""
        self._database.write(lambda: self._drop(number))

    def drop_empty(self, numbers: Iterable[int]) -> None:
        """Follows those sources no longer that have no atoms; only inside a write."""
        none = "NOT EXISTS (SELECT 1 FROM source_atom WHERE source_atom.source = source.source)"
        sql = f"DELETE FROM source WHERE source = ? AND {none}"
        self._database.execute_many(sql, _each(numbers))

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


def _each(values: Iterable[Any]) -> list[tuple[Any]]:
    return [(value,) for value in values]
