"""What changes of atoms once they are stored: pins, memory types that were found, and removals.

None of it is part of an atom's content, so none of it changes the state of the store, and no index
is rebuilt for it. Uses: `store.uses`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
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
    """Pins, found types and times of storing, read and written by node number.

    A reader of a store from before these tables finds nothing in them.
    """

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.life`."""
        self._database = database
        self._scanned: tuple[object, list[int]] | None = None

    def pinned(self) -> list[str]:
        """Ids of the atoms that are pinned, and of the procedural ones that are not unpinned."""
        sql = "SELECT id FROM atom WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(self.pinned_nodes()),))]

    def pinned_nodes(self) -> list[int]:
        """Their node numbers, ascending."""
        named = self.pins()
        pinned = {node for node, value in named if value}.union(self._procedural())
        return sorted(pinned.difference(node for node, value in named if not value))

    def _procedural(self) -> Iterable[int]:
        """Nodes of stated type `procedural`; where no index knows them one scan a state does."""
        if not self._database.readonly:
            return self._scan()
        state = self._database.query("SELECT value FROM meta WHERE key = 'store.state'")
        if self._scanned is None or self._scanned[0] != state:
            self._scanned = state, list(self._scan())
        return self._scanned[1]

    def _scan(self) -> Iterable[int]:
        sql = "SELECT node FROM atom WHERE type = 'procedural'"
        return (row[0] for row in self._database.query(sql))

    def pins(self) -> list[tuple[int, int]]:
        """Nodes that were pinned (1) or unpinned (0) by name."""
        return (
            self._database.query("SELECT node, pinned FROM pin")
            if self._database.has("pin")
            else []
        )

    def set_pins(self, nodes: Iterable[int], pinned: bool) -> None:
        """Pins or unpins those nodes that are there still; on the disk when it returns."""
        rows = [(node, int(pinned)) for node in nodes]
        if rows:
            self._database.write(lambda: self._database.execute_many(_PIN, rows))

    @property
    def types_version(self) -> int:
        """Changes whenever `set_found_types` did something."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_VERSION,))
        return int(rows[0][0]) if rows else 0

    @property
    def removals(self) -> int:
        """How often atoms were taken away."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_REMOVALS,))
        return int(rows[0][0]) if rows else 0

    def note_removal(self, when: float, atoms: int) -> None:
        """Counts one, with how many atoms went for good; only inside a write of the database."""
        row, run = (_REMOVALS, str(self.removals + 1)), self._database.execute_many
        run("INSERT OR REPLACE INTO meta VALUES (?, ?)", [row])
        if atoms:
            run("INSERT INTO removal (time, atoms) VALUES (?, ?)", [(when, atoms)])

    def removed(self, since: float) -> list[tuple[float, int]]:
        """When atoms went for good, from a moment on, and how many; as an older release did not."""
        if not self._database.has("removal"):
            return []
        sql = "SELECT time, atoms FROM removal WHERE time >= ? ORDER BY entry"
        return self._database.query(sql, (since,))

    def keep_version(self, old: int, new: int, until: float) -> None:
        """Puts an atom aside as it was up to a moment; only inside a write of the database."""
        run, query = self._database.execute_many, self._database.query
        # A clock may go backwards, the order of versions may not.
        last = query("SELECT max(until) FROM version WHERE current = ?", (old,))[0][0]
        until = until if last is None else max(until, last)
        run("UPDATE version SET current = ? WHERE current = ?", [(new, old)])
        run(
            f"INSERT INTO version (node, current, until, {VERSION_COLUMNS}) "
            f"SELECT node, ?, ?, {VERSION_COLUMNS} FROM atom WHERE node = ?",
            [(new, until, old)],
        )

    def pass_on(self, old: int, new: int, *, same: bool) -> None:
        """Makes the pin of a node that of another; only inside a write of the database.

        Its found type goes along where the text is the same.
        """
        for table in ("pin", "found_type") if same else ("pin",):
            self._database.execute_many(f"UPDATE {table} SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, listed: str) -> None:
        """Takes away pins, types and uses of nodes (a JSON list); only inside a write."""
        for table in ("pin", "found_type", "use"):
            sql = f"DELETE FROM {table} WHERE node IN (SELECT value FROM json_each(?))"
            self._database.execute_many(sql, [(listed,)])

    def latest(self, stop: int) -> float:
        """The latest time of the nodes below `stop`; -inf where none has one."""
        rows = self._database.query("SELECT max(time) FROM atom WHERE node < ?", (stop,))
        return -math.inf if rows[0][0] is None else float(rows[0][0])

    def found_types(self, start: int = 0) -> list[tuple[int, str, float | None, str]]:
        """Memory types that were found for atoms that state none, from node `start` on.

        Node number, type, decay factor per hour (None: that of the type), and who found it.
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
        """Keeps types that `source` found.

        Args:
            found: Type and decay factor per hour (None: that of the type) by node.
            source: Who found them.
            keep: Whose finds stay as they are; None: no one's.
            durable: On the disk when it returns; False for what can be found again.
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
        """When nodes were stored, seconds since the epoch UTC; NaN where an old version did it."""
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
        """Notes when a batch is stored; only inside a write of the database."""
        if count:
            row = (start, count, when)
            self._database.execute_many("INSERT OR REPLACE INTO stored_at VALUES (?, ?, ?)", [row])
