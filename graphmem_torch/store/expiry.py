"""Expiry of atoms: which ones no read returns at a moment, and changes of the moment.

Expiry is not part of an atom's content, so a change makes no version and rebuilds no index.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphmem_torch.atoms import EdgeType
from graphmem_torch.store.arrays import Array, read_edges_of_type
from graphmem_torch.store.database import Database

__all__ = ["ExpiryRows"]

_NONE: frozenset[int] = frozenset()
_FIRST = "SELECT min(expires) FROM main.atom WHERE expires IS NOT NULL"
_INDEX = "SELECT 1 FROM main.sqlite_master WHERE name = 'atom_expires'"
_WRONG = """
SELECT id, expires, ttl FROM main.atom WHERE coalesce(expires, ttl) IS NOT NULL AND NOT (
    typeof(expires) IN ('integer', 'real') AND typeof(ttl) IN ('null', 'integer', 'real')
    AND coalesce(ttl, 1) > 0
) ORDER BY node"""
_LISTED = "(SELECT value FROM json_each(?))"


class ExpiryRows:
    """Expiry of a store, in columns of `atom` that older stores lack; safe for threads.

    Nothing is written when an atom expires: every read compares its moment with the clock.

    Attributes:
        clock: Function that returns now, in seconds since the epoch UTC.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """Read and write the columns of `database`; see `StoreReader.expiry`."""
        self._database, self.clock = database, clock
        self._lock = threading.Lock()
        self._known = not database.readonly  # whether the columns are known to exist
        self._derived: tuple[str, Array] | None = None  # state, edges [2, D]
        self._last: tuple[str, list[int], frozenset[int]] | None = None

    def hidden(self, when: float | None = None) -> frozenset[int]:
        """Return the nodes that have expired at a moment, and those derived from such nodes only.

        Args:
            when: Moment, seconds since the epoch UTC; None is now.
        """
        if not (gone := self.expired(when)):
            return _NONE
        state = self._database.value("store.state") or ""
        with self._lock:
            if self._last is not None and self._last[:2] == (state, gone):
                return self._last[2]
            derived = self._derived
        if derived is None or derived[0] != state:
            edges = read_edges_of_type(self._database, EdgeType.DERIVED_FROM)
            derived = state, np.stack([edges.source, edges.target])
        found = frozenset(_closed(gone, derived[1]))
        with self._lock:
            self._derived, self._last = derived, (state, gone, found)
        return found

    def expired(self, when: float | None = None) -> list[int]:
        """Return the nodes whose own `expires` is not later than a moment; None is now."""
        if not self._known:
            if not self._database.query(_INDEX):
                return []  # a store of an older release
            self._known = True
        first = self._database.query(_FIRST)[0][0]
        if first is None:
            return []  # the usual case, without asking for the time
        moment = self.clock() if when is None else when
        if first > moment:
            return []
        rows = self._database.query("SELECT node FROM main.atom WHERE expires <= ?", (moment,))
        return [row[0] for row in rows]

    def put(self, node: int, expires: float | None, ttl: float | None) -> None:
        """Set when an atom expires; on disk on return."""
        row = (expires, ttl, node)
        sql = "UPDATE atom SET expires = ?, ttl = ? WHERE node = ?"
        self._database.write(lambda: self._database.execute_many(sql, [row]))

    def later(self, nodes: Sequence[int], when: float) -> Mapping[int, float]:
        """Return the new `expires` of atoms that a read at a moment refreshes.

        Atoms without a `ttl`, expired ones, and those that expire later anyway are left out.
        """
        sql = (
            f"SELECT node, ttl + ? FROM atom WHERE node IN {_LISTED} AND expires > ? "
            "AND expires < ttl + ?"
        )
        return dict(self._database.query(sql, (when, json.dumps(list(nodes)), when, when)))

    def refresh(self, nodes: Sequence[int], when: float) -> None:
        """Move `expires` of atoms to a moment plus their `ttl`, never earlier; in the turn.

        A power failure may undo the newest of these writes.
        """

        def work() -> None:
            rows = [(expires, node) for node, expires in self.later(nodes, when).items()]
            self._database.execute_many("UPDATE atom SET expires = ? WHERE node = ?", rows)

        self._database.write(work, durable=False)

    def problems(self) -> list[str]:
        """Return sentences about values that no memory was given."""
        if not self._known and not self._database.query(_INDEX):
            return []
        rows = self._database.query(_WRONG)
        return [f"atom {id_!r} expires at {at!r} with a ttl of {ttl!r}" for id_, at, ttl in rows]


def _closed(gone: Sequence[int], derived: Array) -> set[int]:  # [2, D]
    """Return nodes, and those all of whose sources are among them, directly or indirectly."""
    hidden = np.array(gone, np.int64)
    while derived.size:
        source, target = derived
        left = source[~np.isin(target, hidden)]  # has a source that is visible
        fresh = np.setdiff1d(source[~np.isin(source, left)], hidden)
        if not fresh.size:
            break
        hidden = np.concatenate([hidden, fresh])
    return {*hidden.tolist()}
