"""From when to when what an atom says was true, as it was stated: a log by node number.

Two times of their own (bi-temporal): `start` and `stop` say when the content was true, `known` when
that was noted. A later statement on an atom stands in place of the one before, which is kept, so
that what was known at any moment can be told. What an atom says of itself is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from graphmem_torch.store.database import Database

__all__ = ["StatedValidity", "ValidityRows"]

_VERSION = "store.validity"
_COLUMNS = "node, start, stop, by, known"
_OF = "WHERE {0} IN (SELECT value FROM json_each(?))"


class StatedValidity(NamedTuple):
    """A statement on when what an atom says was true.

    Attributes:
        node: Of the atom.
        start: From when on, seconds since the epoch UTC, -inf: always; None: as the atom says.
        stop: Until when, not included, inf: open; None: as the atom says.
        by: Node of the atom that superseded it; None: none did.
        known: When that was noted, seconds since the epoch UTC.
    """

    node: int
    start: float | None
    stop: float | None
    by: int | None
    known: float


class ValidityRows:
    """The statements of a store, in the table `validity`.

    They change no state of the store, as pins: no index is rebuilt. A reader of a store from before
    this table finds nothing in it.
    """

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.validity`."""
        self._database = database

    @property
    def version(self) -> int:
        """Changes whenever a statement came or went."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_VERSION,))
        return int(rows[0][0]) if rows else 0

    def stated(self, nodes: Sequence[int] | None = None) -> list[StatedValidity]:
        """The statements on some atoms, or all, in the order in which they were known.

        Of those known at one moment, in the order in which they were made.
        """
        if not self._database.has("validity"):
            return []
        which = "" if nodes is None else _OF.format("node")
        rows = self._database.query(
            f"SELECT {_COLUMNS} FROM validity {which} ORDER BY known, entry",
            () if nodes is None else (json.dumps(list(nodes)),),
        )
        return [StatedValidity(*row) for row in rows]

    def superseded_by(self, nodes: Sequence[int]) -> list[int]:
        """Atoms on which a statement, not always the last one, names one of these."""
        if not self._database.has("validity"):
            return []
        sql = f"SELECT DISTINCT node FROM validity {_OF.format('by')} ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def state(self, statements: Sequence[StatedValidity]) -> None:
        """Adds statements, all or none; on the disk when it returns.

        Raises:
            StoreError: Read-only store or full disk.
        """

        def work() -> None:
            put = f"INSERT INTO validity ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"
            self._database.execute_many(put, statements)
            self._note()

        if statements:
            self._database.write(work)

    def retract(self, statements: Sequence[StatedValidity]) -> None:
        """Takes statements back as if they had never been made, all or none.

        Raises:
            StoreError: Read-only store or full disk.
        """

        def work() -> None:
            same = " AND ".join(f"{name} IS ?" for name in StatedValidity._fields)
            self._database.execute_many(f"DELETE FROM validity WHERE {same}", statements)
            self._note()

        if statements:
            self._database.write(work)

    def pass_on(self, old: int, new: int) -> None:
        """Makes what is stated of a node that of another; only inside a write of the database."""
        run = self._database.execute_many
        run("UPDATE validity SET node = ? WHERE node = ?", [(new, old)])
        run("UPDATE validity SET by = ? WHERE by = ?", [(new, old)])
        self._note()

    def remove(self, listed: str) -> None:
        """Takes away what is stated of nodes (a JSON list), or follows from them.

        What one of them superseded is valid as it was before; only inside a write of the database.
        """
        run = self._database.execute_many
        for column in ("node", "by"):
            run(f"DELETE FROM validity {_OF.format(column)}", [(listed,)])
        self._note()

    def problems(self) -> list[str]:
        """What does not fit, in sentences."""
        if not self._database.has("validity"):
            return []
        found = []
        for column in ("node", "by"):
            rows = self._database.query(
                f"SELECT DISTINCT {column} FROM validity WHERE {column} IS NOT NULL "
                f"AND {column} NOT IN (SELECT node FROM atom) ORDER BY 1"
            )
            found += [f"{column} {row[0]} is no atom" for row in rows]
        rows = self._database.query("SELECT DISTINCT node FROM validity WHERE start > stop")
        return found + [f"that of node {row[0]} ends before it begins" for row in rows]

    def _note(self) -> None:
        row = (_VERSION, str(self.version + 1))
        self._database.execute_many("INSERT OR REPLACE INTO meta VALUES (?, ?)", [row])
