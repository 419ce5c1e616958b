"""Validity as tensors: of some atoms, or as masks over those of an index.

`docs/mathematics.md` 5.1. An atom is valid from `start` until `stop`, exclusive.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.rank.plan import Events
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.store.validity_log import StatedValidity

__all__ = ["ValiditySpans", "spans_of", "whole"]


def spans_of(
    store: TensorReader, nodes: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:  # [n] int64, [n], [n]
    """Return when atoms are valid, as known now, without reading them; inside `store.reading()`.

    Returns:
        node: Stored ones among the numbers, ascending.
        start: Start of the validity of each, seconds since the epoch UTC, -inf where open.
        stop: End of the validity of each, inf where open.
    """
    node, time, begun, ended = store.times(nodes).unbind(1)
    node = node.long()
    start = torch.where(begun.isnan(), time, begun).nan_to_num(nan=-torch.inf)
    stop = ended.nan_to_num(nan=torch.inf)
    start = torch.where(stop < start, -torch.inf, start)
    last = {said.node: said for said in store.validity.stated(node.tolist())}
    if last:
        place = torch.searchsorted(node, torch.tensor([*last]))
        for column, said in (
            (start, [each.start for each in last.values()]),
            (stop, [each.stop for each in last.values()]),
        ):
            values = torch.tensor([math.nan if v is None else v for v in said], dtype=torch.float64)
            column[place] = torch.where(values.isnan(), column[place], values)
    return node, start, stop


class _Log(NamedTuple):
    """All statements as columns, NaN where an end is the atom's own.

    Attributes:
        node: [R] int64.
        by: [R] int64, node of what superseded it, -1 = none.
        start, stop, known: [R] float64.
        until: [R] float64, when the next one on the same atom was known; inf for the last.
    """

    node: Tensor
    by: Tensor
    start: Tensor
    stop: Tensor
    known: Tensor
    until: Tensor


class ValiditySpans:
    """Validity of all atoms as tensors, at many moments at once; safe for threads.

    The atoms' own times are read once by node number, statements when there are new ones.
    """

    def __init__(self, store: TensorReader) -> None:
        """Create without reading; the first use reads."""
        self._store = store
        self._lock = threading.Lock()
        self._version = -1
        self._log: _Log | None = None
        self._stop = 0  # first node whose times are not read yet
        self._events = torch.empty(0, 3, dtype=torch.float64)  # node, event_time, event_end
        self._placed: WeakKeyDictionary[Snapshot, tuple[Tensor, Tensor]] = WeakKeyDictionary()
        self._happened: WeakKeyDictionary[Snapshot, Events | None] = WeakKeyDictionary()
        self._endless: WeakSet[Snapshot] = WeakSet()  # no atom of these states its end

    def valid(
        self,
        snapshot: Snapshot,
        store: TensorReader,
        at: Sequence[float],
        known: Sequence[float | None],
    ) -> Tensor:  # [T, A] bool
        """Return which atoms were true at T moments.

        Args:
            snapshot: A atoms.
            store: Store of the snapshot, with present or earlier versions.
            at: T moments, seconds since the epoch UTC.
            known: Moments whose knowledge counts; None: now.
        """
        own = self._own(snapshot, store)
        start, stop = (each.expand(len(at), -1).clone() for each in own)
        log = self._statements()
        if log is not None:
            which, rows, place = _in_force_at(log, snapshot, known)
            for column, said in ((start, log.start[rows]), (stop, log.stop[rows])):
                column[which, place] = torch.where(said.isnan(), column[which, place], said)
        moment = torch.tensor(at, dtype=torch.float64)[:, None]
        return whole(snapshot, (start <= moment) & (moment < stop))

    def ended(
        self,
        snapshot: Snapshot,
        store: TensorReader,
        at: Sequence[float],
        known: Sequence[float | None],
    ) -> Tensor | None:  # [T, A] bool
        """Return which atoms were no longer true at T moments; None if there are none.

        The arguments are those of `valid`.
        """
        log = self._statements()
        if log is None and store is self._store and self._none_ends(snapshot):
            return None  # the usual case, for free
        own = self._own(snapshot, store)[1]
        if log is None and not bool(own.isfinite().any()):
            return None
        stop = own.expand(len(at), -1).clone()
        if log is not None:
            which, rows, place = _in_force_at(log, snapshot, known)
            said = log.stop[rows]
            stop[which, place] = torch.where(said.isnan(), stop[which, place], said)
        found = stop <= torch.tensor(at, dtype=torch.float64)[:, None]
        return found if bool(found.any()) else None

    def events(self, snapshot: Snapshot, store: TensorReader) -> Events | None:
        """Return the event times of the atoms that state one; None if none does.

        Args:
            snapshot: A atoms.
            store: Store of the snapshot.
        """
        with self._lock:
            if snapshot in self._happened:
                return self._happened[snapshot]
        events = self._read_events(store)
        row, there = _rows(snapshot, events[:, 0].long())
        begun, ended = events[there, 1:].unbind(1)
        span = [torch.where(one.isnan(), two, one) for one, two in ((begun, ended), (ended, begun))]
        found = Events(row, torch.stack(span, dim=1)) if len(row) else None
        with self._lock:
            self._happened[snapshot] = found
        return found

    def superseded(self) -> bool:
        """Return whether any atom is superseded."""
        log = self._statements()
        return log is not None and bool((log.by >= 0).any())

    def successions(
        self, snapshot: Snapshot, store: TensorReader, known: Sequence[float | None]
    ) -> list[Tensor]:  # T of [2, S] int64
        """Return superseded atoms and their successors, as known at T moments.

        The result has rows of the index, in the order in which the old ones began to be true.

        Args:
            snapshot: A atoms.
            store: Store of the snapshot, with present or earlier versions.
            known: Moments whose knowledge counts; None: now.
        """
        log = self._statements()
        if log is None:
            return [torch.empty(2, 0, dtype=torch.int64) for _ in known]
        start = self._own(snapshot, store)[0]
        which, rows, old = _in_force_at(log, snapshot, known)
        new, there = _rows(snapshot, log.by[rows])
        which, rows, old = which[there], rows[there], old[there]
        begun = torch.where(log.start[rows].isnan(), start[old], log.start[rows])
        order = begun.argsort(stable=True)
        pairs, which = torch.stack([old, new])[:, order], which[order]
        return [pairs[:, which == moment] for moment in range(len(known))]

    def _statements(self) -> _Log | None:
        """Return all statements; None if there are none."""
        # Read first, so that a concurrent statement is not missed.
        version = self._store.validity.version
        with self._lock:
            if version == self._version:
                return self._log
        log = _log_of(self._store.validity.stated())
        with self._lock:
            self._version, self._log = version, log
        return log

    def _read_events(self, store: TensorReader) -> Tensor:  # [n, 3]
        """Return node, event_time and event_end of the atoms that have one."""
        if store is not self._store:
            return store.events()
        with self._lock:
            stop = self._stop
        end = store.next_node
        fresh = store.events(stop)
        with self._lock:
            if stop == self._stop:
                self._events = torch.cat([self._events, fresh[fresh[:, 0] < end]])
                self._stop = end
            return self._events

    def _none_ends(self, snapshot: Snapshot) -> bool:
        """Return whether no atom states its own end; computed once for each snapshot."""
        with self._lock:
            if snapshot in self._endless:
                return True
        if bool(self._read_events(self._store)[:, 2].isfinite().any()):
            return False
        with self._lock:
            self._endless.add(snapshot)
        return True

    def _own(self, snapshot: Snapshot, store: TensorReader) -> tuple[Tensor, Tensor]:  # [A], [A]
        """Return the start and end that atoms state themselves."""
        with self._lock:
            known = self._placed.get(snapshot)
        if known is not None:
            return known
        start = snapshot.index.time.cpu().double().nan_to_num(nan=-torch.inf)
        stop = torch.full_like(start, torch.inf)
        events = self._read_events(store)
        place, there = _rows(snapshot, events[:, 0].long())
        begun, ended = events[there, 1:].unbind(1)
        start[place] = torch.where(begun.isnan(), start[place], begun)
        stop[place] = ended.nan_to_num(nan=torch.inf)
        start = torch.where(stop < start, -torch.inf, start)
        with self._lock:
            self._placed[snapshot] = start, stop
        return start, stop


def whole(snapshot: Snapshot, found: Tensor) -> Tensor:  # [T, A] bool
    """Return the atoms found, without aggregates that have a member not found."""
    if AGGREGATE not in snapshot.kinds:
        return found
    index = snapshot.index
    source, target = (
        each.long().cpu() for each in (index.tensors.derived_source, index.tensors.derived_target)
    )
    made = index.kind.cpu()[source] == snapshot.kinds.index(AGGREGATE)
    source, target = source[made].to(found.device), target[made].to(found.device)
    found = found.clone()
    while True:  # members may be aggregates themselves
        which, edge = (found[:, source] & ~found[:, target]).nonzero(as_tuple=True)
        if not len(edge):
            return found
        found[which, source[edge]] = False


def _rows(snapshot: Snapshot, node: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m]
    """Return the rows of those nodes that are in the index, and their positions."""
    if not len(snapshot.node):
        return node[:0], node[:0]
    place = torch.searchsorted(snapshot.node, node).clamp(max=len(snapshot.node) - 1)
    there = (snapshot.node[place] == node).nonzero().squeeze(1)
    return place[there], there


def _log_of(stated: Sequence[StatedValidity]) -> _Log | None:
    if not stated:
        return None
    rows = [[math.nan if each is None else each for each in row[:3]] for row in stated]
    node, start, stop = torch.tensor(rows, dtype=torch.float64).unbind(1)
    known = torch.tensor([row.known for row in stated], dtype=torch.float64)
    order = node.argsort(stable=True)
    until = torch.full_like(known, torch.inf)
    same = node[order[1:]] == node[order[:-1]]
    until[order[:-1][same]] = known[order[1:][same]]
    by = torch.tensor([-1 if row.by is None else row.by for row in stated])
    return _Log(node.long(), by, start, stop, known, until)


def _in_force_at(
    log: _Log, snapshot: Snapshot, known: Sequence[float | None]
) -> tuple[Tensor, Tensor, Tensor]:  # [m], [m], [m]
    """Return the statements in force at T moments: moment, row of the log, row of the index.

    Each atom has at most one for each moment.
    """
    moment = torch.tensor([math.inf if t is None else t for t in known], dtype=torch.float64)
    last = torch.where(moment[:, None].isinf(), log.until.isinf(), moment[:, None] < log.until)
    which, rows = ((log.known <= moment[:, None]) & last).nonzero().unbind(1)
    place, there = _rows(snapshot, log.node[rows])
    return which[there], rows[there], place
