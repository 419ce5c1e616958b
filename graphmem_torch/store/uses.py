"""Counts and times of uses of memories, written after the answers.

Retrieval must not wait for a disk or fail with it. So a use is noted in memory, where it is visible
at once, and written later. Each atom has a count and its last `KEPT` times, so that neither disk
nor memory grows with the number of questions.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphmem_torch.errors import StoreError
from graphmem_torch.store.arrays import Array
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

__all__ = ["KEPT", "Uses"]

KEPT = 8
"""Maximum number of times of use kept an atom; earlier ones are unknown."""

_SECONDS = 5.0  # maximum delay from a note to the write
_MANY = 4096  # number of noted atoms that triggers a write at once
_BYTES = 8 * (KEPT - 1)  # of the times before the last
_COUNTER = "store.uses"
_PUT = """
INSERT INTO use SELECT own.* FROM (SELECT ? AS node, ?, ?, ?, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE SET count = count + excluded.count, last = excluded.last,
earlier = excluded.earlier, entry = excluded.entry"""

_log = logging.getLogger(__name__)


class Uses:
    """Uses of a store's atoms by node number; safe to share between threads.

    No lock is held while waiting for the database, because a caller may already hold it. Reading
    the same rows twice changes nothing.
    """

    def __init__(self, database: Database, *, deferred: bool) -> None:
        """Read and write the uses of `database`; with `deferred`, a timer writes the notes."""
        self._database, self._deferred = database, deferred
        self._lock = threading.Lock()
        self._times = np.empty((0, KEPT))  # newest first, then -inf
        self._newest = -math.inf
        self._read_to = 0, 0  # entries of the tables `use` and `access`
        self._pending: dict[int, int] = {}  # unwritten uses by node
        self._behind: list[Callable[[], object]] = []  # other pending writes
        self._timer: threading.Timer | None = None
        self._warned = False

    @property
    def pending(self) -> bool:
        """Return whether there are unwritten notes."""
        return bool(self._pending or self._behind)

    def note(self, nodes: Sequence[int], when: float) -> None:
        """Note that atoms were used at `when`, seconds since the epoch UTC; writes nothing yet."""
        if not nodes:
            return
        self._fold(np.array(list(nodes), np.int64), np.full(len(nodes), float(when)))
        with self._lock:
            for number in nodes:
                self._pending[number] = self._pending.get(number, 0) + 1
            self._wait(due=len(self._pending) >= _MANY)

    def write_behind(self, work: Callable[[], object]) -> None:
        """Schedule another write in the transaction of the uses."""
        with self._lock:
            self._behind.append(work)
            self._wait(due=len(self._behind) >= _MANY)
        if not self._deferred:
            self.flush()

    def _wait(self, *, due: bool) -> None:
        """Schedule the next write; at once if `due`."""
        if self._deferred and (self._timer is None or due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(0.0 if due else _SECONDS, self.settle)
            self._timer.daemon = True
            self._timer.start()

    def drop(self, nodes: Sequence[int], heirs: Mapping[int, int]) -> None:
        """Drop the noted uses of removed atoms; those of `heirs` move to their new nodes."""
        if not nodes:
            return
        self._read()  # written uses of the heirs
        for old, new in heirs.items():
            with self._lock:
                times = self._times[old : old + 1].flatten()
            self._fold(np.full(times.shape, new), times)
        with self._lock:
            for number in nodes:
                count = self._pending.pop(number, 0)
                if number in heirs and count:
                    self._pending[heirs[number]] = count
            gone = np.array(list(nodes), np.int64)
            self._times[gone[gone < len(self._times)]] = -np.inf

    def pass_on(self, old: int, new: int) -> None:
        """Move the stored uses of node `old` to `new`; only inside a write of the database."""
        counter, run = self._next_entry(), self._database.execute_many
        run("UPDATE use SET node = ?, entry = ? WHERE node = ?", [(new, counter, old)])

    def reread(self) -> None:
        """Read all stored uses again at the next query, after a rollback."""
        self._read_to = 0, 0

    def settle(self) -> None:
        """Write the notes if possible now; otherwise they stay pending."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        if self._database.gone:
            return
        try:
            self.flush(wait=False)
        except StoreError as error:
            if not self._warned:
                _log.warning("uses of memories are not kept for now: %s", error)
            self._warned = True

    def flush(self, *, wait: bool = True) -> None:
        """Write the notes, and merge the log of older releases into the counts.

        A killed process loses no written use; a power failure may lose the newest.

        Args:
            wait: Whether to wait for another process that writes; if False, raise instead.

        Raises:
            StoreError: The notes cannot be written; they stay pending.
        """
        log = bool(self._database.query("SELECT 1 FROM access LIMIT 1"))
        with self._lock:
            taken, self._pending = self._pending, {}
            behind, self._behind = self._behind, []

        def work() -> None:
            if taken or log:
                self._write(taken)
            for each in behind:
                each()

        try:
            if taken or log or behind:
                self._database.write(work, durable=False, wait=wait)
        except BaseException:
            with self._lock:
                self._behind = behind + self._behind
                for node, count in taken.items():
                    self._pending[node] = self._pending.get(node, 0) + count
            raise

    def last(self, nodes: Tensor, until: float) -> Tensor:  # [n] int64 -> [n] float64
        """Return the time of each node's last use up to `until`; -inf if none is known.

        Exact while at most `KEPT` - 1 uses are later than `until`.
        """
        import torch

        self._read()
        asked = nodes.numpy()
        with self._lock:
            known = asked < len(self._times)
            found = np.full(asked.shape, -np.inf)
            if until >= self._newest:
                found[known] = self._times[:, 0][asked[known]]
            else:
                rows = self._times[asked[known]]
                found[known] = np.where(rows > until, -np.inf, rows).max(1)
        return torch.from_numpy(found)

    def counts(self) -> tuple[Tensor, Tensor]:  # [n] int64, [n] int64
        """Return the used nodes and their counts, without logs of older releases not yet merged."""
        import torch

        counts = self._counts()
        return torch.tensor(list(counts)), torch.tensor(list(counts.values()))

    def _counts(self) -> Counter[int]:
        counts = Counter(self._pending.copy())
        if self._database.has("use"):
            counts.update(dict(self._database.query("SELECT node, count FROM use")))
        return counts

    def of(self, nodes: Sequence[int]) -> dict[int, tuple[int, list[float]]]:
        """Return count and last times, newest first, of the nodes that were used."""
        self._read()
        counts = self._counts()
        used = [node for node in nodes if counts.get(node)]
        with self._lock:
            rows = {node: self._times[node] for node in used if node < len(self._times)}
        return {
            node: (counts[node], times[times > -np.inf].tolist()) for node, times in rows.items()
        }

    def raise_to(self, uses: Mapping[int, tuple[int, Sequence[float]]]) -> None:
        """Raise the uses of atoms to those of another store (`of`); on disk on return.

        Raises:
            StoreError: The uses cannot be written.
        """
        nodes, times = [], list[float]()
        counts = self._counts()
        missing = {n: count - counts.get(n, 0) for n, (count, _) in uses.items()}
        for node, (_, last) in uses.items():
            nodes += [node] * len(last)
            times += last
        self._fold(np.array(nodes, np.int64), np.array(times, np.float64))
        with self._lock:
            for node, count in missing.items():
                if count > 0:
                    self._pending[node] = self._pending.get(node, 0) + count
        self.flush()

    def total(self) -> int:
        """Count the uses of all atoms."""
        noted = sum(self._pending.copy().values())
        sql = "SELECT coalesce(sum(length(nodes)), 0) / 8 FROM access"
        logged = int(self._database.query(sql)[0][0])
        if not self._database.has("use"):
            return noted + logged
        sql = "SELECT coalesce(sum(count), 0) FROM use"
        return noted + logged + int(self._database.query(sql)[0][0])

    def _read(self) -> None:
        """Read uses written since the last read, by any process."""
        query, (used, logged) = self._database.query, self._read_to
        if self._database.has("use"):
            sql = "SELECT node, last, earlier, entry FROM use WHERE entry > ?"
            if rows := query(sql, (used,)):
                node, last, earlier, entry = zip(*rows, strict=True)
                self._fold_stored(np.array(node, np.int64), np.array(last, np.float64))
                self._fold_stored(*self._unpacked(node, earlier, np.float64))
                used = max(entry)
        if rows := query("SELECT entry, time, nodes FROM access WHERE entry > ?", (logged,)):
            entry, time, blobs = zip(*rows, strict=True)
            when, nodes = self._unpacked(time, blobs, np.int64)
            self._fold_stored(nodes, when)
            logged = max(entry)
        self._read_to = used, logged

    def _write(self, taken: Mapping[int, int]) -> None:
        """Add uses to the stored counts; only inside a write of the database."""
        database, counts = self._database, Counter(taken)
        if logs := database.query("SELECT nodes FROM access"):
            _, nodes = self._unpacked([0.0] * len(logs), [row[0] for row in logs], np.int64)
            node, count = np.unique(nodes, return_counts=True)
            counts.update(dict(zip(node.tolist(), count.tolist(), strict=True)))
        self._read()
        entry = self._next_entry()
        with self._lock:
            known = [node for node in counts if 0 <= node < len(self._times)]  # a log may be wrong
            times = self._times[np.array(known, np.int64)]
        blobs, sizes = times[:, 1:].tobytes(), (times > -np.inf).sum(1) - 1
        rows = [
            (node, counts[node], last, blobs[i * _BYTES : i * _BYTES + 8 * size], entry)
            for i, (node, last, size) in enumerate(
                zip(known, times[:, 0].tolist(), sizes.tolist(), strict=True)
            )
            if size >= 0
        ]
        database.execute_many(_PUT, rows)
        database.execute_many("DELETE FROM access", [()])

    def _next_entry(self) -> int:
        """Return the number of the next change of the counts; only inside a write."""
        database = self._database
        entry = int(database.value(_COUNTER) or 0) + 1
        put = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        database.execute_many(put, [(_COUNTER, str(entry))])
        return entry

    def _unpacked(
        self, labels: Sequence[float], blobs: Sequence[bytes], dtype: npt.DTypeLike
    ) -> tuple[Array, Array]:  # [T], [T]
        """Decode blobs of 8-byte numbers; return each number's label (of its blob), and itself."""
        sizes = np.array([len(blob) for blob in blobs])
        if (sizes % 8).any():
            raise damaged(self._database.place, "a list of uses has the wrong length")
        return np.repeat(np.array(labels), sizes // 8), np.frombuffer(b"".join(blobs), dtype)

    def _fold_stored(self, nodes: Array, times: Array) -> None:
        """Merge uses read from the database, ignoring impossible nodes and times."""
        rows = self._database.query("SELECT seq FROM sqlite_sequence WHERE name = 'atom'")
        last = int(rows[0][0]) if rows else -1
        sound = (nodes >= 0) & (nodes <= last) & np.isfinite(times)
        self._fold(nodes[sound], times[sound].astype(np.float64))

    def _fold(self, nodes: Array, times: Array) -> None:  # [A] int64, [A] float64
        """Merge uses into the last times; known uses change nothing, times of -inf are ignored."""
        nodes, times = nodes[times > -np.inf], times[times > -np.inf]
        if not len(nodes):
            return
        touched, group = np.unique(nodes, return_inverse=True)
        group = np.concatenate([group, np.repeat(np.arange(len(touched)), KEPT)])
        with self._lock:
            if (size := int(touched[-1]) + 1) > len(self._times):
                grown = np.full((max(size, 2 * len(self._times)), KEPT), -np.inf)
                grown[: len(self._times)] = self._times
                self._times = grown
            times = np.concatenate([times, self._times[touched].flatten()])
            order = np.lexsort((-times, group))
            group, times = group[order], times[order]
            fresh = times > -np.inf
            fresh[1:] &= (np.diff(group) != 0) | (times[1:] != times[:-1])
            group, times = group[fresh], times[fresh]
            place = np.arange(len(group)) - np.searchsorted(group, group)
            inside = place < KEPT
            rows = np.full((len(touched), KEPT), -np.inf)
            rows[group[inside], place[inside]] = times[inside]
            self._times[touched] = rows
            self._newest = max(self._newest, float(times.max()))
