"""Validity: when the content of atoms was true, how it is stated, and what is in force.

`docs/mathematics.md` 5.1. An atom is valid from `start` until `stop`, exclusive.
`memory.validity_spans` has the same as masks over the atoms of an index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.results import Validity
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.validity_log import StatedValidity
from graphmem_torch.text.times import TimeLike, parse_time

if TYPE_CHECKING:
    from graphmem_torch.store import MemoryStore

__all__ = [
    "NamedStatement",
    "Superseding",
    "named_statements",
    "restore_statements",
    "set_validity",
    "statements_of",
    "supersede",
    "validity_of",
]

Superseding = tuple[str, str, TimeLike | None, TimeLike | None]
"""Ids of an old atom and its successor, the time of the change, and when it was known."""

NamedStatement = tuple[str, float | None, float | None, str | None, float]
"""Fields of `StatedValidity`, with ids in place of nodes."""

_Named = Callable[[Iterable[str]], tuple[list[str], list[int]]]
_End = TimeLike | EllipsisType | None


class _Span(NamedTuple):
    """Validity of an atom, infinite where open, and the statement in force."""

    start: float
    stop: float
    stated: StatedValidity | None

    @property
    def by(self) -> int | None:
        """Node of the atom that superseded it."""
        return None if self.stated is None else self.stated.by


def _own(atom: Atom) -> tuple[float, float]:
    """Return the validity that an atom states itself."""
    # The days that an aggregate mentions are no bounds: it is as true as its members (`whole`).
    bounded = not atom.is_built
    start = atom.event_time if bounded and atom.event_time is not None else atom.time
    stop = atom.event_end if bounded and atom.event_end is not None else math.inf
    # A fact that was over when it was said began at an unknown time.
    return (-math.inf if start is None or stop < start else start), stop


def _stated(atom: Atom, said: StatedValidity) -> _Span:
    """Return the validity of an atom with a statement on it."""
    start, stop = _own(atom)
    return _Span(
        start if said.start is None else said.start,
        stop if said.stop is None else said.stop,
        said,
    )


def _in_force(
    store: StoreReader, atoms: Mapping[int, Atom], as_of: float | None = None
) -> dict[int, _Span]:
    """Return the validity of atoms, by node, as known at a moment; None: now."""
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
    """Return the validity of atoms by id; see `Facts.validity`; inside `store.reading()`.

    Args:
        store: Store of the atoms.
        nodes: Node numbers by id.
        as_of: Moment whose knowledge counts, seconds since the epoch UTC; None: now.
    """
    atoms = dict(zip(nodes.values(), store.atoms(list(nodes.values())), strict=True))
    spans = _in_force(store, atoms, as_of)
    return _results(store, {name: spans[node] for name, node in nodes.items()})


def statements_of(store: StoreReader, node: int) -> list[Validity]:
    """Return the validity of an atom after each statement on it, in the order of knowing."""
    (atom,) = store.atoms([node])
    stated = [_stated(atom, said) for said in store.validity.stated([node])]
    return [_results(store, {atom.id: span})[atom.id] for span in stated]


def supersede(
    store: MemoryStore, pairs: Sequence[Superseding], named: _Named, now: float
) -> list[Validity]:
    """State that atoms superseded others, one after the other, all or none.

    See `Facts.supersede`.

    Args:
        store: Store of the atoms.
        pairs: Pairs of an old atom and its successor.
        named: Function that returns the node numbers of ids of stored atoms.
        now: Seconds since the epoch UTC.

    Returns:
        The validity of the old atom of each pair.

    Raises:
        InputError, StoreError: See `Facts.supersede`; nothing has changed.
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
    """State when atoms are valid, all or none; see `Facts.set_validity`.

    Raises:
        InputError, StoreError: See `Facts.set_validity`; nothing has changed.
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
    """Return a time of `set_validity`; the value `bound` itself is infinite."""
    return value if value is None or value == bound else parse_time(value, name)  # type: ignore[return-value]


def named_statements(
    store: StoreReader, about: Collection[int] | None = None
) -> list[NamedStatement]:
    """Return the statements on nodes or by them, in the order of knowing; None: all."""
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
    """State again what `named_statements` returned, as far as the atoms are stored.

    Args:
        store: Store of the atoms.
        statements: Statements in order.
        kept: Nodes that get no statements, as they have their own.
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
    """Statements that are stored together, each on top of those before; in a turn.

    Attributes:
        node: Node numbers of the ids.
        spans: Validity of the nodes, with the statements applied.
        statements: Statements to store, in order.
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
        if before is None or before.known <= known:  # else the later one stays in force
            self.spans[node] = _stated(self._atoms[node], said)

    def _since(self, known: float | None, *nodes: int) -> float:
        """Return when a statement was known, never before an earlier one: clocks may go back."""
        if known is not None:
            return known
        stated = (self.spans[node].stated for node in nodes)
        return max([self._now, *(said.known for said in stated if said is not None)])

    def supersede(self, old: str, new: str, when: float | None, known: float | None) -> None:
        """Supersede one atom by another."""
        self._expect_no_cycle(old, new)
        one, other = self.node[old], self.node[new]
        before, after = self.spans[one], self.spans[other]
        since = self._since(known, one, other)
        moment = when
        if moment is None:
            begun = after.start if after.start > -math.inf else self._now
            moment = max(begun, before.start)
            if before.by is None:  # its end is its own, or was set by a caller
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
        # Deleting an atom may bring back a statement that closes a circle elsewhere.
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
        """State one end or both; the successor stays only if its end does."""
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
