"""Log of recent removals, so that an index of an earlier state can catch up.

Additions of a commit follow from node numbers and the order of the edge blocks; removals do not.
The log holds numbers, never content, and its size is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

__all__ = [
    "KEPT",
    "Changes",
    "CutEdges",
    "Remembered",
    "commits_since",
    "note_change",
    "read_changes",
]

KEPT = 1024
"""Maximum number of commits in the log; an index from before them must read the store again."""

_FEW = 1 << 14  # removed edges of a commit that are always logged
_HELD = 1 << 24  # maximum bytes of edges in the log
_CUT = (torch.int64, torch.int64, torch.uint8, torch.float32, torch.int64)
_BYTES = sum(dtype.itemsize for dtype in _CUT)


_PRUNE_LONG = """
DELETE FROM change WHERE entry <= (SELECT max(entry) FROM (
    SELECT entry, sum(coalesce(length(cut), 0)) OVER (ORDER BY entry DESC) AS held FROM change
) WHERE held > ?)"""


class CutEdges(NamedTuple):
    """Removed edges, in the order of removal.

    Attributes:
        edges: The edges.
        place: [E] int64, number of remaining edges stored before each when it was removed.
    """

    edges: EdgeBlock
    place: Tensor

    @classmethod
    def cat(cls, parts: Sequence[CutEdges]) -> CutEdges:
        """Concatenate removals."""
        places = [torch.empty(0, dtype=torch.int64), *(part.place for part in parts)]
        return cls(EdgeBlock.cat([part.edges for part in parts]), torch.cat(places))


class Changes(NamedTuple):
    """Removals between two states.

    Attributes:
        cut: Removed edges of the earlier state.
        kept: Number of edges of the earlier state that remain, before those added since.
        gone: [n] int64, removed nodes.
    """

    cut: EdgeBlock
    kept: int
    gone: Tensor


def note_change(
    database: Database,
    state: str,
    cut: CutEdges,
    gone: Sequence[int] = (),
    *,
    kept: int = KEPT,
) -> None:
    """Log the removals of the commit that leads to `state`; only inside `Database.write`.

    The log keeps the last `kept` commits.
    """
    if len(cut.edges) > _FEW and len(cut.edges) > _most(database):
        database.execute_many("DELETE FROM change", [()])
        cut = CutEdges.cat([])
    blob = b"".join(part.numpy().tobytes() for part in (*cut.edges.columns, cut.place)) or None
    nodes = torch.tensor(gone, dtype=torch.int64).numpy().tobytes() or None
    put = "INSERT INTO change (state, cut, gone) VALUES (?, ?, ?)"
    database.execute_many(put, [(state, blob, nodes)])
    prune = "DELETE FROM change WHERE entry <= (SELECT max(entry) FROM change) - ?"
    database.execute_many(prune, [(kept,)])
    if blob is not None:
        database.execute_many(_PRUNE_LONG, [(_HELD,)])


def _most(database: Database) -> int:
    """Return the maximum number of edges to log for a commit.

    Beyond it, reading the remaining edges again is no slower, or the log takes too much memory.
    """
    left = database.query("SELECT coalesce(sum(count), 0) FROM edge_block")[0][0]
    return min(int(left), _HELD // _BYTES)


class Remembered:
    """Log entries removed by `forget_changes`, held only in the memory of this process."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, bytes | None, bytes | None]] = []  # as in the log

    def forget_changes(self, database: Database) -> None:
        """Clear the log, keeping only the name of the last state; only inside a write."""
        rows = database.query("SELECT state, cut, gone FROM change ORDER BY entry")
        last = rows[-1][0]
        known = self._rows if self._rows and self._rows[-1][0] == rows[0][0] else []
        database.execute_many("DELETE FROM change", [()])
        database.execute_many("INSERT INTO change (state) VALUES (?)", [(last,)])
        kept, held = [*known, *rows[1 if known else 0 :]][-KEPT:], 0
        for place in range(len(kept) - 1, -1, -1):
            held += len(kept[place][1] or b"")
            if held > _HELD:
                kept = kept[place + 1 :]
                break
        self._rows = kept

    def before(
        self, database: Database, state: str
    ) -> list[tuple[bytes | None, bytes | None]] | None:
        """Return the removals between a state and the first of the log; None if not known."""
        first = database.query("SELECT state FROM change ORDER BY entry LIMIT 1")
        rows = self._rows
        place = next((i for i, row in enumerate(rows) if row[0] == state), None)
        if place is None or not first or rows[-1][0] != first[0][0]:
            return None
        return [(cut, gone) for _, cut, gone in rows[place + 1 :]]


def read_changes(
    database: Database, state: str, edges: int, remembered: Remembered
) -> Changes | None:
    """Return the removals since a state with `edges` edges; None if the log no longer has it.

    Raises:
        StoreDamagedError: An entry has the wrong length.
    """
    if not database.has("change"):
        return None
    found = database.query("SELECT entry FROM change WHERE state = ?", (state,))
    earlier = [] if found else remembered.before(database, state)
    if earlier is None:
        return None
    since = "SELECT cut, gone FROM change WHERE entry > ? ORDER BY entry"
    rows = earlier + database.query(since, found[0] if found else (0,))
    cut, blobs = EdgeBlock.empty(), [blob for blob, _ in rows if blob is not None]
    if blobs:
        every, own = CutEdges.cat([_cut_edges(database, blob) for blob in blobs]), list[bool]()
        for place in every.place.tolist():
            own.append(place < edges)
            edges -= own[-1]
        cut = every.edges.take(torch.tensor(own, dtype=torch.bool))
    gone = b"".join(nodes for _, nodes in rows if nodes is not None)
    if len(gone) % 8:
        raise damaged(database.place, "the log of changes has an entry of the wrong length")
    # A copy, because frombuffer warns about read-only memory, and rejects an empty buffer.
    nodes = torch.frombuffer(bytearray(gone or bytes(8)), dtype=torch.int64)[: len(gone) // 8]
    return Changes(cut, edges, nodes)


def commits_since(database: Database, state: str) -> int | None:
    """Return the number of commits since a state; None if the log no longer has it."""
    if not database.has("change"):
        return None
    sql = "SELECT (SELECT max(entry) FROM change) - entry FROM change WHERE state = ?"
    rows = database.query(sql, (state,))
    return int(rows[0][0]) if rows else None


def _cut_edges(database: Database, blob: bytes) -> CutEdges:
    count, left = divmod(len(blob), _BYTES)
    if left or not count:
        raise damaged(database.place, "the log of changes has an entry of the wrong length")
    columns, begin = [], 0
    for dtype in _CUT:
        end = begin + count * dtype.itemsize
        columns.append(torch.frombuffer(bytearray(blob[begin:end]), dtype=dtype))
        begin = end
    return CutEdges(EdgeBlock(*columns[:4]), columns[4])
