"""Records about stored atoms that can change: pins, found memory types and removals.

None is part of an atom's content, so none changes the state of the store or rebuilds an index.
Uses are in `store.uses`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from graphmem_torch.store.database import Database
from graphmem_torch.store.schema import VERSION_COLUMNS

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PinsAndTypes"]

_VERSION = "store.types"
_REMOVALS = "store.removals"
_FOUND = """
INSERT INTO found_type SELECT own.* FROM (SELECT ? AS node, ?, ?, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE
SET type = excluded.type, decay_factor = excluded.decay_factor, source = excluded.source
WHERE source IS NOT ?"""
_PIN = """
INSERT INTO pin SELECT own.* FROM (SELECT ? AS node, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE SET pinned = excluded.pinned"""


class PinsAndTypes:
    """Pins, found types and storing times, by node number; older stores may lack the tables."""

    def __init__(self, database: Database) -> None:
        """Read and write the tables of `database`; see `MemoryStore.life`."""
        self._database = database
        self._scanned: tuple[object, list[int]] | None = None

    def pinned(self, hidden: Collection[int] = ()) -> list[str]:
        """Return the ids of pinned atoms, and of procedural atoms that are not unpinned.

        Leaves out the nodes in `hidden`.
        """
        nodes = [node for node in self.pinned_nodes() if node not in hidden]
        sql = "SELECT id FROM atom WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(nodes),))]

    def pinned_nodes(self) -> list[int]:
        """Return the node numbers of `pinned`, ascending."""
        named = self.pins()
        pinned = {node for node, value in named if value}.union(self._procedural())
        return sorted(pinned.difference(node for node, value in named if not value))

    def _procedural(self) -> Iterable[int]:
        """Return the nodes of stated type `procedural`; a reader scans once a state."""
        if not self._database.readonly:
            return self._scan()
        state = self._database.value("store.state")
        if self._scanned is None or self._scanned[0] != state:
            self._scanned = state, list(self._scan())
        return self._scanned[1]

    def _scan(self) -> Iterable[int]:
        sql = "SELECT node FROM atom WHERE type = 'procedural'"
        return (row[0] for row in self._database.query(sql))

    def pins(self) -> list[tuple[int, int]]:
        """Return the nodes that were explicitly pinned (1) or unpinned (0)."""
        return (
            self._database.query("SELECT node, pinned FROM pin")
            if self._database.has("pin")
            else []
        )

    def set_pins(self, nodes: Iterable[int], pinned: bool) -> None:
        """Pin or unpin the nodes that still exist; on disk on return."""
        rows = [(node, int(pinned)) for node in nodes]
        if rows:
            self._database.write(lambda: self._database.execute_many(_PIN, rows))

    @property
    def types_version(self) -> int:
        """Number that changes with every effective `set_found_types`."""
        return int(self._database.value(_VERSION) or 0)

    @property
    def removals(self) -> int:
        """Number of removals so far."""
        return int(self._database.value(_REMOVALS) or 0)

    def note_removal(self, when: float, atoms: int) -> None:
        """Count a removal, and note how many atoms it deleted; only inside a write."""
        row, run = (_REMOVALS, str(self.removals + 1)), self._database.execute_many
        run("INSERT OR REPLACE INTO meta VALUES (?, ?)", [row])
        if atoms:
            run("INSERT INTO removal (time, atoms) VALUES (?, ?)", [(when, atoms)])

    def removed(self, since: float) -> list[tuple[float, int]]:
        """Return time and number of deleted atoms of each removal from `since` on.

        Older releases noted no removals.
        """
        if not self._database.has("removal"):
            return []
        sql = "SELECT time, atoms FROM removal WHERE time >= ? ORDER BY entry"
        return self._database.query(sql, (since,))

    def keep_version(self, old: int, new: int, until: float) -> None:
        """Keep an atom as the version that was current until `until`; only inside a write."""
        run, query = self._database.execute_many, self._database.query
        # A clock may go back; the order of versions may not.
        last = query("SELECT max(until) FROM version WHERE current = ?", (old,))[0][0]
        until = until if last is None else max(until, last)
        run("UPDATE version SET current = ? WHERE current = ?", [(new, old)])
        run(
            f"INSERT INTO version (node, current, until, {VERSION_COLUMNS}) "
            f"SELECT node, ?, ?, {VERSION_COLUMNS} FROM atom WHERE node = ?",
            [(new, until, old)],
        )

    def pass_on(self, old: int, new: int, *, same: bool) -> None:
        """Move the pin of node `old` to `new`; only inside a write of the database.

        If `same` (the text is unchanged), the found type moves too.
        """
        for table in ("pin", "found_type") if same else ("pin",):
            self._database.execute_many(f"UPDATE {table} SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, listed: str) -> None:
        """Delete pins, types and uses of nodes (a JSON list); only inside a write."""
        for table in ("pin", "found_type", "use"):
            sql = f"DELETE FROM {table} WHERE node IN (SELECT value FROM json_each(?))"
            self._database.execute_many(sql, [(listed,)])

    def latest(self, stop: int) -> float:
        """Return the latest time of the nodes below `stop`; -inf if none has a time."""
        rows = self._database.query("SELECT max(time) FROM atom WHERE node < ?", (stop,))
        return -math.inf if rows[0][0] is None else float(rows[0][0])

    def found_types(self, start: int = 0) -> list[tuple[int, str, float | None, str]]:
        """Return the memory types found for atoms that state none, from node `start` on.

        Each row has node number, type, decay factor per hour (None: that of the type) and source.
        """
        if not self._database.has("found_type"):
            return []
        sql = "SELECT node, type, decay_factor, source FROM found_type WHERE node >= ?"
        return self._database.query(sql, (start,))

    def set_found_types(
        self,
        found: Mapping[int, tuple[str, float | None]],
        source: str,
        *,
        keep: str | None = None,
        durable: bool = True,
    ) -> None:
        """Store the types that `source` found.

        Args:
            found: Type and decay factor per hour (None: that of the type) by node.
            source: Name of the finder.
            keep: Source whose types are not overwritten; None: none.
            durable: Whether they are on disk on return; False for types that can be found again.
        """
        rows = [(node, kind, factor, source, keep) for node, (kind, factor) in found.items()]

        def work() -> None:
            version = [(_VERSION, str(self.types_version + 1))]
            put = self._database.execute_many
            put(_FOUND, rows)
            put("INSERT OR REPLACE INTO meta VALUES (?, ?)", version)

        if rows:
            self._database.write(work, durable=durable)

    def stored_at(self, node: Tensor) -> Tensor:  # [N] int64 -> [N] float64
        """Return storing times, seconds since the epoch UTC; NaN if an old release stored them."""
        import torch

        sql = "SELECT start, count, time FROM stored_at ORDER BY start"
        rows = self._database.query(sql) if self._database.has("stored_at") else []
        if not rows or not len(node):
            return torch.full(node.shape, torch.nan, dtype=torch.float64)
        columns = torch.tensor(rows, dtype=torch.float64)  # seconds do not fit into float32
        start, count, time = columns[:, 0].long(), columns[:, 1].long(), columns[:, 2]
        place = torch.searchsorted(start, node, right=True) - 1
        inside = (place >= 0) & (node < (start + count)[place.clamp(min=0)])
        return torch.where(inside, time[place.clamp(min=0)], torch.nan)

    def note_stored(self, start: int, count: int, when: float) -> None:
        """Note when a batch is stored; only inside a write of the database."""
        row = (start, count, when)
        self._database.execute_many("INSERT OR REPLACE INTO stored_at VALUES (?, ?, ?)", [row])
