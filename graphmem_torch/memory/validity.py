"""When what atoms say was true: how it is stated, and as masks over the atoms of an index.

`docs/mathematics.md` 5.1. An atom is valid from `start` on until `stop`, not included.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.rank.plan import Events
from graphmem_torch.results import Validity
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.validity_log import StatedValidity
from graphmem_torch.text.times import TimeLike, parse_time

__all__ = [
    "NamedStatement",
    "Superseding",
    "ValiditySpans",
    "named_statements",
    "restore_statements",
    "set_validity",
    "spans_of",
    "statements_of",
    "supersede",
    "validity_of",
    "whole",
]

Superseding = tuple[str, str, TimeLike | None, TimeLike | None]
"""Ids of an old atom and of the one in its place, from when on, and when that was known."""

NamedStatement = tuple[str, float | None, float | None, str | None, float]
"""As `StatedValidity`, but with ids in place of nodes."""

_Named = Callable[[Iterable[str]], tuple[list[str], list[int]]]
_End = TimeLike | EllipsisType | None


class _Span(NamedTuple):
    """From when to when an atom is valid, infinite where open, and the statement in force."""

    start: float
    stop: float
    stated: StatedValidity | None

    @property
    def by(self) -> int | None:
        """Node of the atom that superseded it."""
        return None if self.stated is None else self.stated.by


def _own(atom: Atom) -> tuple[float, float]:
    """From when to when an atom says itself that it is valid."""
    # What days an aggregate tells of is no bound: it is as true as its members (`whole`).
    bounded = not atom.is_built
    start = atom.event_time if bounded and atom.event_time is not None else atom.time
    stop = atom.event_end if bounded and atom.event_end is not None else math.inf
    # What was over when it was said began nobody knows when.
    return (-math.inf if start is None or stop < start else start), stop


def _stated(atom: Atom, said: StatedValidity) -> _Span:
    """What is in force with a statement."""
    start, stop = _own(atom)
    return _Span(
        start if said.start is None else said.start,
        stop if said.stop is None else said.stop,
        said,
    )


def _in_force(
    store: StoreReader, atoms: Mapping[int, Atom], as_of: float | None = None
) -> dict[int, _Span]:
    """When atoms, by node, are valid as far as it was known at a moment; None: as of today."""
    spans = {node: _Span(*_own(atom), None) for node, atom in atoms.items()}
    for said in store.validity.stated(list(atoms)):
        if as_of is None or said.known <= as_of:
            spans[said.node] = _stated(atoms[said.node], said)
    return spans


def _results(store: StoreReader, spans: Mapping[str, _Span]) -> dict[str, Validity]:
    by = sorted({span.by for span in spans.values() if span.by is not None})
    ids = dict(zip(by, (atom.id for atom in store.atoms(by)), strict=True))
    return {
        name: Validity(
            span.start if span.start > -math.inf else None,
            span.stop if span.stop < math.inf else None,
            None if span.by is None else ids[span.by],
            None if span.stated is None else span.stated.known,
        )
        for name, span in spans.items()
    }


def validity_of(
    store: StoreReader, nodes: Mapping[str, int], as_of: float | None = None
) -> dict[str, Validity]:
    """See `Memory.validity`; inside `store.reading()`.

    Args:
        store: Store of the atoms.
        nodes: Node numbers by id.
        as_of: As far as was known at this moment, seconds since the epoch UTC; None: today.
    """
    atoms = dict(zip(nodes.values(), store.atoms(list(nodes.values())), strict=True))
    spans = _in_force(store, atoms, as_of)
    return _results(store, {name: spans[node] for name, node in nodes.items()})


def spans_of(
    store: StoreReader, nodes: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:  # [n] int64, [n], [n]
    """When atoms are valid, as of today, without reading them; inside `store.reading()`.

    Returns:
        node: Those of the numbers that are stored, ascending.
        start: From when on each is valid, seconds since the epoch UTC, -inf where that is open.
        stop: Until when, likewise.
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


def statements_of(store: StoreReader, node: int) -> list[Validity]:
    """What was in force of an atom after each statement on it, in the order of knowing."""
    (atom,) = store.atoms([node])
    stated = [_stated(atom, said) for said in store.validity.stated([node])]
    return [_results(store, {atom.id: span})[atom.id] for span in stated]


def supersede(
    store: MemoryStore, pairs: Sequence[Superseding], named: _Named, now: float
) -> list[Validity]:
    """States that atoms took the place of others, one after the other, all or none.

    See `Memory.supersede`.

    Args:
        store: Store of the atoms.
        pairs: What took the place of what.
        named: Node numbers of ids of stored atoms.
        now: Seconds since the epoch UTC.

    Returns:
        The validity of the old atom of each pair.

    Raises:
        InputError, StoreError: As `Memory.supersede`; nothing has changed then.
    """
    with store.turn():
        made = _Statements(store, named([name for pair in pairs for name in pair[:2]]), now)
        for old, new, when, known in pairs:
            made.supersede(
                old,
                new,
                None if when is None else parse_time(when, "when"),
                None if known is None else parse_time(known, "known"),
            )
        found = _results(store, {pair[0]: made.spans[made.node[pair[0]]] for pair in pairs})
        store.validity.state(made.statements)
    return [found[pair[0]] for pair in pairs]


def set_validity(
    store: MemoryStore,
    ids: str | Iterable[str],
    start: _End,
    stop: _End,
    known: TimeLike | None,
    named: _Named,
    now: float,
) -> dict[str, Validity]:
    """States when atoms are valid, all or none; see `Memory.set_validity`.

    Raises:
        InputError, StoreError: As `Memory.set_validity`; nothing has changed then.
    """
    ends = [
        each if isinstance(each, EllipsisType) else _end(each, name, bound)
        for each, name, bound in ((start, "start", -math.inf), (stop, "stop", math.inf))
    ]
    if all(isinstance(each, EllipsisType) for each in ends):
        raise InputError("set_validity: expected start or stop, got neither; name one")
    moment = None if known is None else parse_time(known, "known")
    with store.turn():
        made = _Statements(store, named([ids] if isinstance(ids, str) else ids), now)
        for node in made.node.values():
            made.set_validity(node, ends[0], ends[1], moment)
        store.validity.state(made.statements)
        return _results(store, {name: made.spans[node] for name, node in made.node.items()})


def _end(value: TimeLike | None, name: str, bound: float) -> float | None:
    """A time of `set_validity`; its own bound is infinite."""
    return value if value is None or value == bound else parse_time(value, name)  # type: ignore[return-value]


def named_statements(
    store: StoreReader, about: Collection[int] | None = None
) -> list[NamedStatement]:
    """The statements on nodes or by them, in the order in which they were known; None: all."""
    stated = [
        row
        for row in store.validity.stated()
        if about is None or row.node in about or row.by in about
    ]
    nodes = sorted({each for row in stated for each in (row.node, row.by) if each is not None})
    ids = dict(zip(nodes, (atom.id for atom in store.atoms(nodes)), strict=True))
    return [
        (ids[row.node], row.start, row.stop, None if row.by is None else ids[row.by], row.known)
        for row in stated
    ]


def restore_statements(
    store: MemoryStore, statements: Sequence[NamedStatement], kept: Collection[int] = ()
) -> None:
    """States again what `named_statements` gave, as far as the atoms are there.

    Args:
        store: Store of the atoms.
        statements: In order.
        kept: Nodes of which nothing is stated any more: they have statements of their own.
    """
    if not statements:
        return
    with store.turn():
        named = {each for one, _, _, other, _ in statements for each in (one, other) if each}
        node = {name: number for name, (number, _) in store.known(sorted(named)).items()}
        store.validity.state(
            [
                StatedValidity(node[one], start, stop, None if by is None else node[by], known)
                for one, start, stop, by, known in statements
                if one in node and (by is None or by in node) and node[one] not in kept
            ]
        )


class _Statements:
    """Statements that are to be stored together, each on top of those before; in a turn.

    Attributes:
        node: Node numbers of the ids.
        spans: What is in force of them, with what is to be stored.
        statements: Those, in order.
    """

    def __init__(
        self, store: MemoryStore, named: tuple[Sequence[str], Sequence[int]], now: float
    ) -> None:
        self._store, self._now = store, now
        self.node = dict(zip(*named, strict=True))
        self._atoms: dict[int, Atom] = {}
        self.spans: dict[int, _Span] = {}
        self.statements: list[StatedValidity] = []
        self._said: set[StatedValidity] = set()
        self._read(named[1])

    def _read(self, nodes: Sequence[int]) -> None:
        fresh = [node for node in dict.fromkeys(nodes) if node not in self.spans]
        atoms = dict(zip(fresh, self._store.atoms(fresh), strict=True))
        self._atoms |= atoms
        self.spans |= _in_force(self._store, atoms)
        self._said |= {*self._store.validity.stated(fresh)}

    def _state(
        self,
        node: int,
        start: float | None,
        stop: float | None,
        by: int | None,
        known: float,
    ) -> None:
        said = StatedValidity(node, start, stop, by, known)
        before = self.spans[node].stated
        again = before is not None and before[:4] == said[:4] and before.known <= known
        if said in self._said or again:
            return
        self._said.add(said)
        self.statements.append(said)
        if before is None or before.known <= known:  # else it was in force until then
            self.spans[node] = _stated(self._atoms[node], said)

    def _since(self, known: float | None, *nodes: int) -> float:
        """When a statement was known; a clock may go backwards, what is known may not."""
        if known is not None:
            return known
        stated = (self.spans[node].stated for node in nodes)
        return max([self._now, *(said.known for said in stated if said is not None)])

    def supersede(self, old: str, new: str, when: float | None, known: float | None) -> None:
        """Puts one atom in the place of another."""
        self._expect_no_cycle(old, new)
        one, other = self.node[old], self.node[new]
        before, after = self.spans[one], self.spans[other]
        since = self._since(known, one, other)
        moment = when
        if moment is None:
            begun = after.start if after.start > -math.inf else self._now
            moment = max(begun, before.start)
            if before.by is None:  # its end is its own, or was stated by hand
                moment = min(moment, before.stop)
        elif moment < before.start:
            raise InputError(
                f"when: expected no time before {old!r} began to be true ({before.start!r}), got "
                f"{moment!r}; give a later one, or state its beginning with `set_validity`"
            )
        if when is not None or after.start == -math.inf:
            if moment > after.stop:
                raise InputError(
                    f"when: expected no time after {new!r} ended ({after.stop!r}), got {moment!r}; "
                    "give an earlier one, or state its end with `set_validity`"
                )
            said = after.stated
            stop, by = (None, None) if said is None else (said.stop, said.by)
            self._state(other, moment, stop, by, since)
        start = None if before.stated is None else before.stated.start
        self._state(one, start, moment, other, since)

    def _expect_no_cycle(self, old: str, new: str) -> None:
        one = self.node[old]
        node: int | None = self.node[new]
        way: list[int] = []
        # What is deleted may bring back a statement that closes a circle elsewhere.
        while node is not None and node not in way:
            way.append(node)
            self._read([node])
            node = None if node == one else self.spans[node].by
        if way[-1] == one:
            shown = " by ".join(repr(self._atoms[each].id) for each in way)
            raise InputError(
                f"new: expected an atom that {old!r} did not supersede, got {new!r} ({shown}); "
                "swap the two, or add what is true again as an atom of its own"
                if old != new
                else f"new: expected another atom than {old!r}, got the same; name the newer one"
            )

    def set_validity(
        self,
        node: int,
        start: float | EllipsisType | None,
        stop: float | EllipsisType | None,
        known: float | None,
    ) -> None:
        """States one end or both; who superseded it stays only where its end does."""
        said = self.spans[node].stated
        by = None
        if isinstance(start, EllipsisType):
            start = None if said is None else said.start
        if isinstance(stop, EllipsisType):
            stop, by = (None, None) if said is None else (said.stop, said.by)
        atom, since = self._atoms[node], self._since(known, node)
        span = _stated(atom, StatedValidity(node, start, stop, by, since))
        if span.stop < span.start:
            raise InputError(
                f"stop: expected no time before {atom.id!r} began to be true ({span.start!r}), got "
                f"{span.stop!r}; give a later one, or its `start` as well"
            )
        self._state(node, start, stop, by, since)


class _Log(NamedTuple):
    """All statements as columns, NaN where an end is the atom's own.

    Attributes:
        node: [R] int64.
        by: [R] int64, node of what superseded it, -1 = none.
        start, stop, known: [R] float64.
        until: [R] float64, when the next one on the same atom was known; inf where it is the last.
    """

    node: Tensor
    by: Tensor
    start: Tensor
    stop: Tensor
    known: Tensor
    until: Tensor


class ValiditySpans:
    """The validity of all atoms as tensors, at many moments at once; safe to share between threads.

    What atoms say of themselves is read once by node number, statements when there are new ones.
    """

    def __init__(self, store: StoreReader) -> None:
        """Nothing is read before it is asked for."""
        self._store = store
        self._lock = threading.Lock()
        self._version = -1
        self._log: _Log | None = None
        self._stop = 0  # the first node whose times were not read
        self._events = torch.empty(0, 3, dtype=torch.float64)  # node, event_time, event_end
        self._placed: WeakKeyDictionary[Snapshot, tuple[Tensor, Tensor]] = WeakKeyDictionary()
        self._happened: WeakKeyDictionary[Snapshot, Events | None] = WeakKeyDictionary()
        self._endless: WeakSet[Snapshot] = WeakSet()  # of which no atom says when it ends

    def valid(
        self,
        snapshot: Snapshot,
        store: StoreReader,
        at: Sequence[float],
        known: Sequence[float | None],
    ) -> Tensor:  # [T, A] bool
        """Which atoms were true at T moments.

        Args:
            snapshot: A atoms.
            store: What it shows, as it is or with earlier versions.
            at: The moments, seconds since the epoch UTC.
            known: As far as was known at these moments; None: today.
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
        store: StoreReader,
        at: Sequence[float],
        known: Sequence[float | None],
    ) -> Tensor | None:  # [T, A] bool
        """Which atoms were true no longer at T moments; None where that is none of them.

        As `valid`.
        """
        log = self._statements()
        if log is None and store is self._store and self._none_ends(snapshot):
            return None  # the usual case, which costs nothing
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

    def events(self, snapshot: Snapshot, store: StoreReader) -> Events | None:
        """When what atoms tell of happened, of those that state it; None where none does.

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
        """Whether anything is said to have taken the place of another."""
        log = self._statements()
        return log is not None and bool((log.by >= 0).any())

    def successions(
        self, snapshot: Snapshot, store: StoreReader, known: Sequence[float | None]
    ) -> list[Tensor]:  # T of [2, S] int64
        """What was superseded and what was in its place, as it was known at T moments.

        Rows of the index, in the order in which the old ones began to be true.

        Args:
            snapshot: As for `valid`.
            store: Likewise.
            known: Likewise.
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
        """All of them; None where there are none."""
        # First, lest one of meanwhile passes unseen.
        version = self._store.validity.version
        with self._lock:
            if version == self._version:
                return self._log
        log = _log_of(self._store.validity.stated())
        with self._lock:
            self._version, self._log = version, log
        return log

    def _read_events(self, store: StoreReader) -> Tensor:  # [n, 3]
        """Node, event_time and event_end of the atoms that have one."""
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
        """Whether no atom says of itself when it ends; looked at once for a snapshot."""
        with self._lock:
            if snapshot in self._endless:
                return True
        if bool(self._read_events(self._store)[:, 2].isfinite().any()):
            return False
        with self._lock:
            self._endless.add(snapshot)
        return True

    def _own(self, snapshot: Snapshot, store: StoreReader) -> tuple[Tensor, Tensor]:  # [A], [A]
        """From when to when atoms say themselves that they are valid."""
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
    """Return the atoms found, less aggregates of which a member is not: they tell of it as well."""
    if AGGREGATE not in snapshot.kinds:
        return found
    index = snapshot.index
    source, target = (
        each.long().cpu() for each in (index.tensors.derived_source, index.tensors.derived_target)
    )
    made = index.kind.cpu()[source] == snapshot.kinds.index(AGGREGATE)
    source, target = source[made].to(found.device), target[made].to(found.device)
    found = found.clone()
    while True:  # they may be of aggregates
        which, edge = (found[:, source] & ~found[:, target]).nonzero(as_tuple=True)
        if not len(edge):
            return found
        found[which, source[edge]] = False


def _rows(snapshot: Snapshot, node: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m]
    """Rows of those nodes that are atoms of the index, and their places among the nodes."""
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
    """The statements in force at T moments: which of these, row of the log, row of the index.

    None of an atom twice for one moment.
    """
    moment = torch.tensor([math.inf if t is None else t for t in known], dtype=torch.float64)
    last = torch.where(moment[:, None].isinf(), log.until.isinf(), moment[:, None] < log.until)
    which, rows = ((log.known <= moment[:, None]) & last).nonzero().unbind(1)
    place, there = _rows(snapshot, log.node[rows])
    return which[there], rows[there], place
