"""Bi-temporal log of statements about the validity of atoms, by node number.

`start` and `stop` bound the time in which the content was true; `known` is when that was noted. A
later statement on an atom overrides earlier ones, which are kept, so that the knowledge of any time
can be queried. Validity stated by the atom itself is not in the log.
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
    """Statement about when the content of an atom was true.

    Attributes:
        node: Node number of the atom.
        start: Start, seconds since the epoch UTC; -inf: always; None: the atom's own start.
        stop: End (exclusive), seconds since the epoch UTC; inf: open; None: the atom's own end.
        by: Node of the atom that superseded it; None: none did.
        known: Time of the statement, seconds since the epoch UTC.
    """

    node: int
    start: float | None
    stop: float | None
    by: int | None
    known: float


class ValidityRows:
    """Statements of a store, in the table `validity`; older stores may lack it.

    Statements, like pins, do not change the state of the store, so no index is rebuilt.
    """

    def __init__(self, database: Database) -> None:
        """Read and write the table of `database`; see `MemoryStore.validity`."""
        self._database = database

    @property
    def version(self) -> int:
        """Number that changes when statements are added or removed."""
        return int(self._database.value(_VERSION) or 0)

    def stated(self, nodes: Sequence[int] | None = None) -> list[StatedValidity]:
        """Return the statements on some atoms, or all, by `known` and then by order of entry."""
        if not self._database.has("validity"):
            return []
        which = "" if nodes is None else _OF.format("node")
        rows = self._database.query(
            f"SELECT {_COLUMNS} FROM validity {which} ORDER BY known, entry",
            () if nodes is None else (json.dumps(list(nodes)),),
        )
        return [StatedValidity(*row) for row in rows]

    def superseded_by(self, nodes: Sequence[int]) -> list[int]:
        """Return the atoms that, by any statement on them, one of `nodes` superseded."""
        if not self._database.has("validity"):
            return []
        sql = f"SELECT DISTINCT node FROM validity {_OF.format('by')} ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def state(self, statements: Sequence[StatedValidity]) -> None:
        """Add statements in one transaction; on disk on return.

        Raises:
            StoreError: The store is read-only or the disk is full.
        """

        def work() -> None:
            put = f"INSERT INTO validity ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"
            self._database.execute_many(put, statements)
            self._note()

        if statements:
            self._database.write(work)

    def retract(self, statements: Sequence[StatedValidity]) -> None:
        """Delete statements in one transaction, as if they had never been made.

        Raises:
            StoreError: The store is read-only or the disk is full.
        """

        def work() -> None:
            same = " AND ".join(f"{name} IS ?" for name in StatedValidity._fields)
            self._database.execute_many(f"DELETE FROM validity WHERE {same}", statements)
            self._note()

        if statements:
            self._database.write(work)

    def pass_on(self, old: int, new: int) -> None:
        """Move the statements on and by node `old` to `new`; only inside a write."""
        run = self._database.execute_many
        run("UPDATE validity SET node = ? WHERE node = ?", [(new, old)])
        run("UPDATE validity SET by = ? WHERE by = ?", [(new, old)])
        self._note()

    def remove(self, listed: str) -> None:
        """Delete the statements on and by nodes (a JSON list); only inside a write of the database.

        Atoms that they superseded get back their earlier validity.
        """
        run = self._database.execute_many
        for column in ("node", "by"):
            run(f"DELETE FROM validity {_OF.format(column)}", [(listed,)])
        self._note()

    def problems(self) -> list[str]:
        """Return sentences about inconsistent statements."""
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
