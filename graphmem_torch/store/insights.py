"""What is found out about stored atoms: how important they have become, and what an oracle says.

None of it is part of an atom's content, so none of it changes the state of the store.
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
    """The importance that an atom had at a moment.

    Attributes:
        node: Of the atom.
        value: In [0, 1].
        time: When, seconds since the epoch UTC.
        uses: How many uses of it are in the value.
    """

    node: int
    value: float
    time: float
    uses: int


class InsightRows:
    """The tables `importance` and `insight` of a store; a store from before has none of them."""

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.insights`."""
        self._database = database

    def importance(self) -> list[StoredImportance]:
        """Of all atoms that have one, by ascending node."""
        if not self._database.has("importance"):
            return []
        sql = "SELECT node, value, time, uses FROM importance ORDER BY node"
        return [StoredImportance(*row) for row in self._database.query(sql)]

    def set_importance(self, rows: Sequence[StoredImportance]) -> None:
        """Keeps the importance of atoms that are there still, in place of what was kept."""
        if rows:
            put = _PUT.format("importance", "?, ?, ?")
            self._database.write(lambda: self._database.execute_many(put, rows))

    def said(self, nodes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """What an oracle said of atoms, by node."""
        if not self._database.has("insight"):
            return {}
        sql = f"SELECT node, said FROM insight WHERE node IN {_LISTED}"
        rows = self._database.query(sql, (json.dumps(list(nodes)),))
        return {node: json.loads(said) for node, said in rows}

    def said_importance(self) -> list[tuple[int, float]]:
        """How important an oracle said that atoms are, by node."""
        if not self._database.has("insight"):
            return []
        return self._database.query("SELECT node, json_extract(said, '$.importance') FROM insight")

    def unsaid(self) -> list[int]:
        """Atoms of which no oracle has said anything, by ascending node; concepts are none."""
        there = "AND node NOT IN (SELECT node FROM insight)" * self._database.has("insight")
        sql = f"SELECT node FROM atom WHERE kind != ? {there} ORDER BY node"
        return [row[0] for row in self._database.query(sql, (CONCEPT,))]

    def say(self, said: Mapping[int, Mapping[str, Any]]) -> None:
        """Keeps what an oracle said of atoms that are there still."""
        rows = [(node, json.dumps(each)) for node, each in said.items()]
        if rows:
            put = _PUT.format("insight", "?")
            self._database.write(lambda: self._database.execute_many(put, rows))

    def pass_on(self, old: int, new: int, *, same: bool) -> None:
        """Makes the importance of a node that of another; only inside a write of the database.

        What was said of it goes along where the text is the same.
        """
        for table in ("importance", "insight") if same else ("importance",):
            self._database.execute_many(f"UPDATE {table} SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, listed: str) -> None:
        """Takes away what is kept of nodes (a JSON list); only inside a write of the database."""
        for table in ("importance", "insight"):
            self._database.execute_many(f"DELETE FROM {table} WHERE node IN {_LISTED}", [(listed,)])
