"""What changes about an atom after it was stored: pins, memory types that were found, accesses.

None of it is part of an atom's content, so none of it changes the state of the store, and no index
is rebuilt for it. A reader of a store from before these tables finds nothing in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from graphmem_torch.store.database import Database

__all__ = ["Life"]

_VERSION = "store.types"
_FOUND = """
INSERT INTO found_type VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
SET type = excluded.type, decay_factor = excluded.decay_factor, source = excluded.source
WHERE source IS NOT ?"""


class Life:
    """The tables of this file, read and written by node number."""

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
        return self._database.query("SELECT node, pinned FROM pin") if self._has("pin") else []

    def set_pins(self, nodes: Iterable[int], pinned: bool) -> None:
        """Pins or unpins nodes; on the disk when it returns."""
        rows = [(node, int(pinned)) for node in nodes]
        sql = "INSERT INTO pin VALUES (?, ?) ON CONFLICT DO UPDATE SET pinned = excluded.pinned"
        if rows:
            self._database.write(lambda: self._database.execute_many(sql, rows))

    @property
    def types_version(self) -> int:
        """Changes whenever `set_found_types` did something."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_VERSION,))
        return int(rows[0][0]) if rows else 0

    def found_types(self, start: int = 0) -> list[tuple[int, str, float | None, str]]:
        """Memory types that were found for atoms that state none, from node `start` on.

        Node number, type, decay factor per hour (None: that of the type), and who found it.
        """
        if not self._has("found_type"):
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
        sql = "SELECT start, count, time FROM stored_at ORDER BY start"
        rows = self._database.query(sql) if self._has("stored_at") else []
        if not rows or not len(node):
            return torch.full(node.shape, torch.nan, dtype=torch.float64)
        start, count, time = (torch.tensor(column) for column in zip(*rows, strict=True))
        place = torch.searchsorted(start, node, right=True) - 1
        inside = (place >= 0) & (node < (start + count)[place.clamp(min=0)])
        return torch.where(inside, time.double()[place.clamp(min=0)], torch.nan)

    def note_stored(self, start: int, count: int, when: float) -> None:
        """Notes when a batch is stored; only inside a write of the database."""
        if count:
            row = (start, count, when)
            self._database.execute_many("INSERT OR REPLACE INTO stored_at VALUES (?, ?, ?)", [row])

    def accesses(self, after: int = 0) -> tuple[Tensor, Tensor, int]:
        """The access log behind the entry number `after`, oldest first.

        Node numbers [A] int64 and times [A] float64, one for every node of every entry, and the
        number of the last entry.
        """
        sql = "SELECT time, nodes, entry FROM access WHERE entry > ? ORDER BY entry"
        rows = self._database.query(sql, (after,))
        data = bytearray().join(row[1] for row in rows)
        # frombuffer refuses an empty buffer.
        nodes = torch.frombuffer(data or bytearray(8), dtype=torch.int64)[: len(data) // 8]
        times = torch.tensor([row[0] for row in rows], dtype=torch.float64)
        counts = torch.tensor([len(row[1]) // 8 for row in rows], dtype=torch.int64)
        return nodes, times.repeat_interleave(counts), rows[-1][2] if rows else after

    def _has(self, table: str) -> bool:
        there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return not self._database.readonly or bool(self._database.query(there, (table,)))
