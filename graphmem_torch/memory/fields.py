"""Fields of memories as columns, read on the first filter, and the evaluation of filters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from graphmem_torch.atoms import FieldName
from graphmem_torch.errors import InputError, nearest_names
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.rank.field_values import (
    LISTS,
    MISSING,
    NULL,
    FieldColumn,
    names_of_types,
    type_of,
)
from graphmem_torch.rank.filters import (
    FIELDS,
    META,
    All,
    AnyOf,
    Comparison,
    Condition,
    Not,
    Where,
    parse_where,
)
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.unicode_forms import composed

__all__ = ["AtomFields", "one_warning"]

_log = logging.getLogger(__name__)

_COMPARED_NAMES = 2000  # maximum names of fields in a search for the nearest
_META_DOT = f"{META}."
_ASKED = 16  # memories whose fields are read for a warning


class AtomFields:
    """Fields of the atoms of a store as columns; safe to share between threads.

    The first filter on a field reads it; later ones read only new atoms, as the content of a node
    never changes.
    """

    def __init__(self, store: TensorReader) -> None:
        """Start empty; reads on demand."""
        self._store = store
        self._lock = threading.RLock()
        self._read: dict[str, FieldColumn] = {}  # by node number
        self._placed: tuple[object, dict[str, FieldColumn]] = None, {}  # by row, of one state
        self._names: dict[str, None] = {}  # names of fields in `meta`, up to a node
        self._named = 0

    def where(
        self, snapshot: Snapshot, where: Where, *, removing: bool = False
    ) -> Tensor:  # [A] bool
        """Return which atoms of a snapshot meet conditions, on its device; see `Memory.retrieve`.

        Warns of fields that no atom has, and of values of a type that the field never has.

        Args:
            snapshot: Snapshot of A atoms.
            where: Conditions, or the result of `parse_where`.
            removing: Whether the atoms are to be erased: then a missing field or another type must
                not be the only reason for a match.

        Raises:
            InputError: See `parse_where`; atoms would be erased for such a reason.
        """
        index = snapshot.index
        node, device = snapshot.node[: index.num_atoms], index.kind.device
        with self._lock:
            if self._placed[0] != (snapshot.state, device):
                self._placed = (snapshot.state, device), {}
            columns = self._placed[1]

        def column(name: str) -> FieldColumn:
            with self._lock:
                if name not in columns:
                    columns[name] = self._column(name, node).to(device)
                return columns[name]

        every = torch.ones(len(node), dtype=torch.bool, device=device)
        with one_warning() as notes:
            near = partial(self._near, node)
            return _Evaluation(column, every, notes, near, removing).mask(parse_where(where))

    def _column(self, name: str, node: Tensor) -> FieldColumn:
        """Return a field of the atoms `node` [A]."""
        base, _, keys = name.partition(".")
        with self._lock:
            read = self._read.get(name) or FieldColumn.empty()
            start = len(read.own.type)
            if len(node) and start <= int(node.max()):
                with self._store.reading():
                    stop = self._store.next_node
                    values = self._store.fields(cast(FieldName, base), start)
                    found = _nested(values, keys) if base == META else _single(values)
                    read = self._read[name] = read.extended(found, stop)
        return read.take(node)

    def _near(self, node: Tensor, name: str) -> list[str]:  # [A] int64
        """Return the field name in `meta` of the atoms `node` that is most like `name`, if any."""
        with self._lock, self._store.reading():
            stop = self._store.next_node
            for _, meta in self._store.fields(META, self._named):
                self._names |= dict.fromkeys(_leaves(meta))
            self._named = stop
            names = list(islice(self._names, _COMPARED_NAMES))
        near = _close(name, names, 3)  # the nearest may be of deleted atoms
        return [*islice((each for each in near if self._column(each, node).is_held), 1)]


def _single(values: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, list[Any], bool]]:
    """Yield the values of a built-in field for `FieldColumn.extended`."""
    return ((node, [value], False) for node, value in values)


def _nested(values: Iterable[tuple[int, Any]], keys: str) -> Iterator[tuple[int, list[Any], bool]]:
    """Yield the values under a path; its dots divide keys or are part of one.

    The elements of a list of mappings are searched one by one. Several finds make a list.
    """
    ways = _ways(keys.split("."))
    if len(ways) == 1 and keys.isascii():  # by far the most common case
        for node, meta in values:
            if keys in meta:
                yield node, [meta[keys]], False
        return
    for node, meta in values:
        found: list[Any] = []
        listed = _look(meta, ways, found, keys.isascii())
        if found:
            yield node, found, listed or len(found) > 1


_Ways = list[tuple[str, "_Ways"]]


def _ways(parts: Sequence[str]) -> _Ways:
    """Return the possible first keys of a split name, each with its possible rest; [] ends it."""
    after: list[_Ways] = [[]]
    for start in range(len(parts) - 1, -1, -1):
        count = len(parts) - start
        heads = [".".join(parts[start : start + n]) for n in range(1, count + 1)]
        after.insert(0, list(zip(heads, after, strict=True)))
    return after[0]


def _look(value: Any, ways: _Ways, found: list[Any], plain: bool) -> bool:
    """Append the values found in a mapping; returns whether any of them is in a list.

    Args:
        value: Mapping, or a list of mappings.
        ways: Keys to follow.
        found: List that receives the values.
        plain: Whether all keys are ASCII; else they are compared in NFC.
    """
    if isinstance(value, list):
        parts = [each for each in value if isinstance(each, dict)]
        before = len(found)
        for each in parts:
            _look(each, ways, found, plain)
        return len(found) > before
    if not isinstance(value, dict):
        return False
    if not plain:
        value = {composed(key): each for key, each in value.items()}
    listed = False
    for key, after in ways:
        if key in value:
            if after:
                listed |= _look(value[key], after, found, plain)
            else:
                found.append(value[key])
    return listed


def _leaves(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the values in a mapping, dotted if nested, also in lists."""
    inside: list[tuple[str, Any]] = [(META, meta)]
    while inside:
        name, value = inside.pop()
        if isinstance(value, Mapping):
            inside += [(f"{name}.{composed(key)}", each) for key, each in value.items()]
            continue
        yield name
        if isinstance(value, list):
            inside += [(name, each) for each in value if isinstance(each, Mapping)]


def _close(name: str, names: Iterable[str], count: int) -> list[str]:
    """Return the names most like another, compared without their common prefix."""
    keys = list(dict.fromkeys(each.removeprefix(_META_DOT) for each in names))
    near = nearest_names(name.removeprefix(_META_DOT), keys, count)
    return [_META_DOT + each for each in near]


@dataclass(eq=False)
class _Notes:
    """Collects warnings about the fields of a filter over several memories.

    Attributes:
        absent: For each missing field, functions that find similar names in the memories without
            it.
        other: For each field with values of another type than the operand, the warning.
        fine: Fields that some memory has with comparable values.
    """

    absent: dict[str, list[Callable[[str], list[str]]]] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    fine: set[str] = field(default_factory=set)

    def log(self) -> None:
        """Log one warning for each field that is not fine."""
        for name, said in self.other.items():
            if name not in self.fine:
                _log.warning("%s", said)
        for name, asked in self.absent.items():
            if name in self.fine or name in self.other:
                continue
            names = [each for near in asked[:_ASKED] for each in near(name)]
            close = _close(name, names, 1)
            do = f"did you mean {close[0]!r}?" if close else "check its name"
            _log.warning("where: expected a field of some memory, got %r; %s", name, do)


_NOTES: ContextVar[_Notes | None] = ContextVar("notes", default=None)


@contextmanager
def one_warning() -> Iterator[_Notes]:
    """Merge the warnings of all filters inside: at the end, one for each field in no memory."""
    notes = _NOTES.get()
    if notes is not None:
        yield notes
        return
    notes = _Notes()
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)
    notes.log()


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """Decides conditions on A atoms.

    Attributes:
        column: Function that returns the column of a field.
        every: [A] bool, all True.
        notes: Collector of warnings.
        near: Function that finds similar names of fields.
        removing: Whether matches are erased, as in `AtomFields.where`.
    """

    column: Callable[[str], FieldColumn]
    every: Tensor
    notes: _Notes
    near: Callable[[str], list[str]]
    removing: bool

    def mask(self, condition: Condition, negated: bool = False) -> Tensor:  # [A] bool
        """Return for which atoms a condition holds; `negated`: under an odd number of negations."""
        if isinstance(condition, Comparison):
            return self._compared(condition, negated)
        if isinstance(condition, Not):
            return ~self.mask(condition.part, not negated)
        found = self.every
        if isinstance(condition, AnyOf):
            found = ~found
        for part in condition.parts:
            own = self.mask(part, negated)
            found = found & own if isinstance(condition, All) else found | own
        return found

    def _compared(self, comparison: Comparison, negated: bool) -> Tensor:  # [A] bool
        name, column = comparison.field, self.column(comparison.field)
        found = column.meets(comparison)
        said = self._misfit(comparison, column)
        if said is None:
            self.notes.fine.add(name)
        elif said:
            self.notes.other.setdefault(name, said)
        elif not (comparison.operator == "$exists" and negated):
            self.notes.absent.setdefault(name, []).append(self.near)
        risky = self.removing and said is not None and comparison.operator != "$exists"
        if risky and len(found) and bool((found ^ negated).all()):
            has = f"holds {names_of_types(column.held)} only" if said else "is in no memory"
            raise InputError(
                f"where: {name}: expected a condition that tells memories apart, got one that all "
                f"meet, as the field {has}; correct it, or write "
                '{"$exists": False}'
            )
        return found

    def _misfit(self, comparison: Comparison, column: FieldColumn) -> str | None:
        """Return why no value is comparable: empty without values, None if one is."""
        name, operator, values = comparison.field, comparison.operator, comparison.values
        if name in FIELDS:
            return None
        if not column.is_held:
            return ""
        held, lists = column.held, operator.startswith("$contains")
        if lists and LISTS not in column.own.held:
            return (
                f"where: {name}: {operator}: expected lists, got {names_of_types(held)}; use $eq "
                "or $in"
            )
        fits = operator == "$exists" or any(
            each is None or type_of(each) in (column.element.held if lists else held)
            for each in values
        )
        if fits or not values or not held - {MISSING, NULL}:
            return None
        return (
            f"where: {name}: expected what the field holds, {names_of_types(held)}, got "
            f"{values[0]!r:.80}; give one of these"
        )
