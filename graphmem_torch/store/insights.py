"""Derived importance of stored atoms, and what an oracle says about them.

Neither is part of an atom's content, so neither changes the state of the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.store.database import Database

__all__ = ["InsightRows", "StoredImportance"]

_LISTED = "(SELECT value FROM json_each(?))"
_PUT = """
INSERT OR REPLACE INTO {0} SELECT own.* FROM (SELECT ? AS node, {1}) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)"""


class StoredImportance(NamedTuple):
    """Importance of an atom at some time.

    Attributes:
        node: Node number of the atom.
        value: Importance in [0, 1].
        time: Time of the value, seconds since the epoch UTC.
        uses: Number of uses that the value includes.
    """

    node: int
    value: float
    time: float
    uses: int


class InsightRows:
    """Tables `importance` and `insight` of a store; older stores may lack them."""

    def __init__(self, database: Database) -> None:
        """Read and write the tables of `database`; see `MemoryStore.insights`."""
        self._database = database

    def importance(self) -> list[StoredImportance]:
        """Return all stored importances, by ascending node."""
        if not self._database.has("importance"):
            return []
        sql = "SELECT node, value, time, uses FROM importance ORDER BY node"
        return [StoredImportance(*row) for row in self._database.query(sql)]

    def set_importance(self, rows: Sequence[StoredImportance]) -> None:
        """Store the importance of atoms that still exist, replacing earlier values."""
        if rows:
            put = _PUT.format("importance", "?, ?, ?")
            self._database.write(lambda: self._database.execute_many(put, rows))

    def said(self, nodes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return what an oracle said about atoms, by node."""
        if not self._database.has("insight"):
            return {}
        sql = f"SELECT node, said FROM insight WHERE node IN {_LISTED}"
        rows = self._database.query(sql, (json.dumps(list(nodes)),))
        return {node: json.loads(said) for node, said in rows}

    def said_importance(self) -> list[tuple[int, float]]:
        """Return the importance that an oracle gave to atoms, as pairs (node, importance)."""
        if not self._database.has("insight"):
            return []
        return self._database.query("SELECT node, json_extract(said, '$.importance') FROM insight")

    def unsaid(self) -> list[int]:
        """Return the atoms without a statement of an oracle, ascending; no concepts."""
        there = "AND node NOT IN (SELECT node FROM insight)" * self._database.has("insight")
        sql = f"SELECT node FROM atom WHERE kind != ? {there} ORDER BY node"
        return [row[0] for row in self._database.query(sql, (CONCEPT,))]

    def say(self, said: Mapping[int, Mapping[str, Any]]) -> None:
        """Store what an oracle said about atoms that still exist."""
        rows = [(node, json.dumps(each)) for node, each in said.items()]
        if rows:
            put = _PUT.format("insight", "?")
            self._database.write(lambda: self._database.execute_many(put, rows))

    def pass_on(self, old: int, new: int, *, same: bool) -> None:
        """Move the importance of node `old` to `new`; only inside a write of the database.

        If `same` (the text is unchanged), what an oracle said moves too.
        """
        for table in ("importance", "insight") if same else ("importance",):
            self._database.execute_many(f"UPDATE {table} SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, listed: str) -> None:
        """Delete the rows of nodes (a JSON list); only inside a write of the database."""
        for table in ("importance", "insight"):
            self._database.execute_many(f"DELETE FROM {table} WHERE node IN {_LISTED}", [(listed,)])
