"""When memories were used: counts of a bounded size an atom, written behind the answers.

Asking must not wait for a disk, nor fail with it: a use is noted in memory, seen at once by whoever
asks this object, and written later. Of each atom the number of uses and the times of the last
`KEPT` are held, so that neither the disk nor the memory grows with the number of questions.
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
"""Times of use that are kept of an atom; of a moment before all of them none is known."""

_SECONDS = 5.0  # from a note to the disk at most
_MANY = 4096  # atoms whose uses are written without waiting for that
_BYTES = 8 * (KEPT - 1)  # of the times before the last
_COUNTER = "store.uses"
_PUT = """
INSERT INTO use SELECT own.* FROM (SELECT ? AS node, ?, ?, ?, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE SET count = count + excluded.count, last = excluded.last,
earlier = excluded.earlier, entry = excluded.entry"""

_log = logging.getLogger(__name__)


class Uses:
    """The uses of a store's atoms by node number; safe between threads.

    No lock is held while the database is waited for, because a caller may hold that already: what
    is read from it twice changes nothing.
    """

    def __init__(self, database: Database, *, deferred: bool) -> None:
        """Of a store: `MemoryStore.uses`; `deferred` says whether notes are written by and by."""
        self._database, self._deferred = database, deferred
        self._lock = threading.Lock()
        self._times = np.empty((0, KEPT))  # newest first, then -inf
        self._newest = -math.inf
        self._read_to = 0, 0  # entries of the tables `use` and `access`
        self._pending: dict[int, int] = {}  # uses by node that no one has written
        self._behind: list[Callable[[], object]] = []  # what else is written with them
        self._timer: threading.Timer | None = None
        self._warned = False

    @property
    def pending(self) -> bool:
        """Whether there are notes that no one has written."""
        return bool(self._pending or self._behind)

    def note(self, nodes: Sequence[int], when: float) -> None:
        """Notes that atoms were used at `when`, seconds since the epoch UTC; writes nothing yet."""
        if not nodes:
            return
        self._fold(np.array(list(nodes), np.int64), np.full(len(nodes), float(when)))
        with self._lock:
            for number in nodes:
                self._pending[number] = self._pending.get(number, 0) + 1
            self._wait(due=len(self._pending) >= _MANY)

    def write_behind(self, work: Callable[[], object]) -> None:
        """Has something else written with the uses, by and by, in their transaction."""
        with self._lock:
            self._behind.append(work)
            self._wait(due=len(self._behind) >= _MANY)
        if not self._deferred:
            self.flush()

    def _wait(self, *, due: bool) -> None:
        """Sets the time of the next writing; at once where it is due."""
        if self._deferred and (self._timer is None or due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(0.0 if due else _SECONDS, self.settle)
            self._timer.daemon = True
            self._timer.start()

    def drop(self, nodes: Sequence[int], heirs: Mapping[int, int]) -> None:
        """Forgets the uses of atoms that are gone, so that none of them is written any more.

        Those of `heirs` go on as uses of other nodes.
        """
        if not nodes:
            return
        self._read()  # of the heirs, what is written
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
        """Makes the uses of one node those of another; only inside a write of the database."""
        counter, run = self._next_entry(), self._database.execute_many
        run("UPDATE use SET node = ?, entry = ? WHERE node = ?", [(new, counter, old)])

    def reread(self) -> None:
        """Reads anew what is written, where a transaction was undone."""
        self._read_to = 0, 0

    def settle(self) -> None:
        """Writes what was noted, if that can be done now; what cannot be written stays noted."""
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
        """Writes what was noted, and folds in the log that older releases wrote.

        A killed process loses none of what was written; a power failure may lose the newest.

        Args:
            wait: For another process that is writing; False: an error then.

        Raises:
            StoreError: It cannot be written; it stays noted.
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
        """Seconds of the last use up to a moment; -inf where none is known.

        Exact while no more than `KEPT` - 1 uses are later than the moment.
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
        """Nodes that were used, and how often; those of an older release once they are folded."""
        import torch

        counts = self._counts()
        return torch.tensor(list(counts)), torch.tensor(list(counts.values()))

    def _counts(self) -> Counter[int]:
        counts = Counter(self._pending.copy())
        if self._database.has("use"):
            counts.update(dict(self._database.query("SELECT node, count FROM use")))
        return counts

    def of(self, nodes: Sequence[int]) -> dict[int, tuple[int, list[float]]]:
        """How often atoms were used, and when at last, newest first; those that were, by node."""
        self._read()
        counts = self._counts()
        used = [node for node in nodes if counts.get(node)]
        with self._lock:
            rows = {node: self._times[node] for node in used if node < len(self._times)}
        return {
            node: (counts[node], times[times > -np.inf].tolist()) for node, times in rows.items()
        }

    def raise_to(self, uses: Mapping[int, tuple[int, Sequence[float]]]) -> None:
        """Has atoms as many uses as they have elsewhere (`of`), where they have less; on the disk.

        Raises:
            StoreError: They cannot be written.
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
        """How many uses there were, of all atoms together."""
        noted = sum(self._pending.copy().values())
        sql = "SELECT coalesce(sum(length(nodes)), 0) / 8 FROM access"
        logged = int(self._database.query(sql)[0][0])
        if not self._database.has("use"):
            return noted + logged
        sql = "SELECT coalesce(sum(count), 0) FROM use"
        return noted + logged + int(self._database.query(sql)[0][0])

    def _read(self) -> None:
        """Takes in what was written since, here or elsewhere."""
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
        """Adds to the counts; only inside a write of the database."""
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
        """Number of a change of the counts; only inside a write of the database."""
        database = self._database
        counter = database.query("SELECT value FROM meta WHERE key = ?", (_COUNTER,))
        entry = int(counter[0][0]) + 1 if counter else 1
        put = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        database.execute_many(put, [(_COUNTER, str(entry))])
        return entry

    def _unpacked(
        self, labels: Sequence[float], blobs: Sequence[bytes], dtype: npt.DTypeLike
    ) -> tuple[Array, Array]:  # [T], [T]
        """The 8-byte numbers of blobs, and the label of the blob that each is from."""
        sizes = np.array([len(blob) for blob in blobs])
        if (sizes % 8).any():
            raise damaged(self._database.place, "a list of uses has the wrong length")
        return np.repeat(np.array(labels), sizes // 8), np.frombuffer(b"".join(blobs), dtype)

    def _fold_stored(self, nodes: Array, times: Array) -> None:
        """Takes in what the database says, but for what no atom can have."""
        rows = self._database.query("SELECT seq FROM sqlite_sequence WHERE name = 'atom'")
        last = int(rows[0][0]) if rows else -1
        sound = (nodes >= 0) & (nodes <= last) & np.isfinite(times)
        self._fold(nodes[sound], times[sound].astype(np.float64))

    def _fold(self, nodes: Array, times: Array) -> None:  # [A] int64, [A] float64
        """Takes in uses; those that are known change nothing, and times of -inf are none."""
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
