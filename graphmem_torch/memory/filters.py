"""Filters: what a caller says about the memories that may be hits, as masks over the atoms.

And where a question sets out beside what it finds by itself.
"""

from __future__ import annotations

import math
import operator
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import cached_property
from itertools import chain
from numbers import Real
from typing import Any, Literal, TypedDict, TypeVar, cast

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, CONCEPT, KINDS
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.exact import exact_value
from graphmem_torch.memory.assemble import Snapshot
from graphmem_torch.memory.validity import whole
from graphmem_torch.rank.hops import name_key
from graphmem_torch.results import QueryPlan
from graphmem_torch.store.reader import FieldName, StoreReader
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.times import TimeLike, parse_span, parse_time

__all__ = [
    "AtomFields",
    "Filters",
    "Instants",
    "PlanLike",
    "Scope",
    "TimelessFilters",
    "atom_masks",
    "concept_nodes",
    "entity_seeds",
    "over_moments",
]

T = TypeVar("T")

_META: FieldName = "meta"
_FIELDS: tuple[FieldName, ...] = ("kind", "speaker", "session", "time", "type", "id")
_JOINTS = ("$and", "$or", "$not")
_ORDER = ("$gt", "$gte", "$lt", "$lte")
_OPERATORS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$not")
_SHOWN = 16  # names of fields in a message
_NEAREST = 3  # names of concepts in a message

_TYPES = ("nothing", "null", "truth values", "numbers", "strings", "lists", "objects")
_MISSING, _NULL, _TRUTH, _NUMBER, _STRING, _LIST, _OBJECT = range(len(_TYPES))
_TYPE_OF = {
    type(None): _NULL,
    bool: _TRUTH,
    int: _NUMBER,
    float: _NUMBER,
    Decimal: _NUMBER,
    str: _STRING,
    list: _LIST,
    dict: _OBJECT,
}


Names = str | Sequence[str] | Sequence[Sequence[str]]
"""Texts for all questions, or a list of them for each."""


PlanLike = QueryPlan | bool | None
"""A plan, whether to choose one, or None for what the settings say."""


Instants = list[Any] | tuple[Any, ...]  # a list of one form of times is one of several, too
"""Moments of which the same questions are asked."""


class TimelessFilters(TypedDict, total=False):
    """`Filters` but for `as_of`."""

    k: int | None
    kinds: Sequence[str] | None
    between: tuple[TimeLike | None, TimeLike | None] | None
    valid_at: TimeLike | None
    asked: TimeLike | None
    where: Mapping[str, Any] | None
    exclude: Names
    seed_entities: Names
    namespaces: Sequence[str] | None
    plan: PlanLike | Sequence[PlanLike]


class Filters(TimelessFilters, total=False):
    """What a question may see, and how many hits it has; see `Memory.retrieve`."""

    as_of: TimeLike | None


@dataclass(frozen=True)
class Scope:
    """What questions may see and where they set out, as `Memory.retrieve` takes it."""

    kinds: Sequence[str] | None = None
    between: tuple[TimeLike | None, TimeLike | None] | None = None
    as_of: TimeLike | Instants | None = None
    where: Mapping[str, Any] | None = None
    asked: TimeLike | None = None
    exclude: Names = ()
    seed_entities: Names = ()
    valid_at: TimeLike | None = None
    plan: PlanLike | Sequence[PlanLike] = None

    @property
    def instants(self) -> list[float | None]:
        """The moments of `as_of`, seconds since the epoch UTC; None: now.

        Raises:
            InputError: A time that is none.
        """
        if isinstance(self.as_of, list | tuple):
            return [parse_time(each, "as_of") for each in self.as_of]
        return [None if self.as_of is None else parse_time(self.as_of, "as_of")]

    def take(self, places: Sequence[int], count: int) -> Scope:
        """The same for the questions at some places among `count`."""
        parts: dict[str, Any] = {}
        for name in ("exclude", "seed_entities"):
            if len(listed := self.names(name, count)) > 1:
                parts[name] = [listed[place] for place in places]
        if isinstance(self.plan, Sequence) and len(self.plan) == count:
            parts["plan"] = [self.plan[place] for place in places]
        return replace(self, **parts)

    def names(self, name: Literal["exclude", "seed_entities"], count: int) -> list[list[str]]:
        """One list of ids or names for each of `count` questions, or one for all of them.

        Raises:
            InputError: Neither.
        """
        given: Any = getattr(self, name)
        listed = _listed([given] if isinstance(given, str) else given)
        if all(isinstance(each, str) for each in listed):
            return [listed]
        parts = [_listed(None if isinstance(each, str) else each) for each in listed]
        if all(isinstance(own, str) for part in parts for own in part):
            if len(parts) == count:
                return parts
            got = f"{len(parts)} lists for {count} questions"
            raise InputError(f"{name}: expected one list for each, got {got}; give () for none")
        raise InputError(
            f"{name}: expected a list of texts, or a list of them for each question, got "
            f"{given!r:.80}; give one of these"
        )


def _listed(given: Any) -> list[Any]:
    """What is given as a list; one of None for what is no list."""
    return list(given) if isinstance(given, Iterable) else [None]


def atom_masks(
    snapshot: Snapshot,
    fields: AtomFields,
    scope: Scope,
    instants: Sequence[float | None],
    excluded: Sequence[Sequence[int]] = (),
    valid: Tensor | None = None,
) -> dict[str, Tensor]:
    """The filters of a retrieval as the masks `allowed` [1 or T, A] and `listed` [1 or B, A].

    `between`, `as_of` and `valid_at` say which atoms there are for the question, an aggregate only
    with all of its members; `kinds`, `where`
    and `exclude` only which of them are listed: a fact still leads to the turns it was derived
    from, an answer is found by the question before it, whoever asked it, and what an agent has read
    leads on to what it has not. Aggregates are listed only if `kinds` names them, or `where` speaks
    of `kind` or `id`.

    Args:
        snapshot: A atoms.
        fields: Of its store.
        scope: Kinds, span and conditions.
        instants: T moments of `as_of`, seconds since the epoch UTC; None: now.
        excluded: Nodes of the atoms that may not be hits, for each question or for all.
        valid: [1 or T, A] bool, the atoms that were true at the moment of `valid_at`; None: any.

    Raises:
        InputError: An unknown kind, a time that is none, a span that ends before it begins, a
            condition that cannot be decided.
    """
    index, masks = snapshot.index, {}
    kinds, between, where = scope.kinds, scope.between, scope.where
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else _listed(kinds)
        for kind in kinds:
            if kind not in snapshot.kinds and kind not in KINDS:
                known = sorted({*KINDS, *snapshot.kinds} - {CONCEPT})
                raise InputError(unknown("kinds", kind, known))
        there = [snapshot.kinds.index(kind) for kind in kinds if kind in snapshot.kinds]
        codes = torch.tensor(there, dtype=torch.int64)
        masks["listed"] = torch.isin(index.kind.long(), codes.to(index.kind.device))[None]
    elif AGGREGATE in snapshot.kinds and not _names_kind(where):
        masks["listed"] = (index.kind != snapshot.kinds.index(AGGREGATE))[None]
    if where is not None:
        listed = fields.where(snapshot, where)[None]
        masks["listed"] = listed & masks["listed"] if "listed" in masks else listed
    if any(excluded):
        rows = [snapshot.rows_of(nodes) for nodes in excluded]
        question = torch.arange(len(rows)).repeat_interleave(torch.tensor(list(map(len, rows))))
        listed = torch.ones(len(rows), index.num_atoms, dtype=torch.bool)
        listed[question, torch.cat(rows)] = False
        listed = listed.to(index.kind.device)
        masks["listed"] = listed & masks["listed"] if "listed" in masks else listed
    if between is not None or any(each is not None for each in instants):
        start, end = (-torch.inf, torch.inf) if between is None else parse_span(between)
        last = torch.tensor(
            [[end if each is None else min(end, each)] for each in instants],
            dtype=torch.float64,
            device=index.time.device,
        )
        # An unknown time is NaN, which is in no span.
        masks["allowed"] = (index.time >= start) & (index.time <= last)
        if between is not None:
            masks["allowed"] = whole(snapshot, masks["allowed"])
    if valid is not None:
        valid = valid.to(index.kind.device)
        masks["allowed"] = valid & masks["allowed"] if "allowed" in masks else valid
    return masks


def _names_kind(where: Mapping[str, Any] | None) -> bool:
    """Whether conditions speak of kinds or ids, which is how aggregates are asked for by them."""
    if not isinstance(where, Mapping):
        return False
    inner = chain.from_iterable(
        each if isinstance(each, list | tuple) else (each,)
        for name, each in where.items()
        if name in _JOINTS
    )
    return not {"kind", "id"}.isdisjoint(where) or any(map(_names_kind, inner))


def entity_seeds(
    snapshot: Snapshot, store: StoreReader, named: Sequence[Sequence[str]], count: int
) -> dict[str, Tensor]:
    """Concepts as the columns `seeds` and `seed_keys` [B, S] of a `QueryBatch`.

    Args:
        snapshot: Of the store.
        store: Where the concepts are.
        named: Their names, for each of the questions or for all.
        count: B.

    Raises:
        InputError: A name that no concept has, with the nearest that one has.
    """
    if not any(named):
        return {}
    plain = [list(map(plain_name, names)) for names in named]
    found = concept_nodes(store, [*chain(*named)], "seed_entities")
    there = {name: node for name, node in found.items() if node < snapshot.index.num_nodes}
    concepts = store.atoms(list(there.values()))  # their own names, where others are theirs, too
    terms, ends = snapshot.vocabulary.encode([concept.text for concept in concepts], grow=False)
    keys = dict(zip(there, map(name_key, terms.tensor_split(ends[1:-1])), strict=True))
    width = max(map(len, plain))
    nodes = [[there.get(name, -1) for name in names] for names in plain]
    columns = {"seeds": (nodes, -1)}
    columns["seed_keys"] = ([[keys.get(name, 0) for name in names] for names in plain], 0)
    device = snapshot.index.kind.device
    return {
        name: torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=device)
        .expand(count, -1)
        .contiguous()
        for name, (rows, pad) in columns.items()
    }


def over_moments(masks: Mapping[str, Tensor], questions: int, moments: int) -> dict[str, Tensor]:
    """Columns of a `QueryBatch` in which each of B questions has a row for each of T moments.

    Args:
        masks: Of the questions (`seeds`, `seed_keys` and `listed`, which may be [1, A] for all), or
            of the moments (the others, [T, A]).
        questions: B.
        moments: T.
    """
    if moments == 1:
        return dict(masks)
    rows = {}
    for name, each in masks.items():
        if name in ("seeds", "seed_keys") or (name == "listed" and len(each) > 1):
            rows[name] = each.repeat_interleave(moments, 0)
        else:
            rows[name] = each if name == "listed" else each.repeat(questions, 1)
    return rows


def concept_nodes(
    store: StoreReader, named: Sequence[str], argument: str, do: str = "leave it out"
) -> dict[str, int]:
    """The nodes of concepts by `plain_name`.

    Args:
        store: Has the concepts.
        named: Names.
        argument: Name of the argument that holds them.
        do: Remedy if none is like a name.

    Raises:
        InputError: A name that no concept has, with the nearest that one has.
    """
    found = store.concepts(list(dict.fromkeys(map(plain_name, named))))
    for given in named:
        if (name := plain_name(given)) not in found:
            raise InputError(_unknown_concept(given, name, store, argument, do))
    return found


def _unknown_concept(given: str, name: str, store: StoreReader, argument: str, do: str) -> str:
    known = [*store.texts(kind=CONCEPT), *(other for _, other, _ in store.aliases())]
    nearest = get_close_matches(name, known, n=_NEAREST, cutoff=0.5)
    if not nearest:
        return (
            f"{argument}: expected names of concepts, got {given!r:.80}, and none of "
            f"{len(known):,} is like it; {do}"
        )
    return unknown(argument, given, nearest, what="a name of a concept, such as")


_Exact = int | Fraction | float
"""The exact value of a number; infinite ones are floats."""


@dataclass(frozen=True, eq=False)
class _Column:
    """A field of A atoms.

    Attributes:
        type: [A] int8 place in `_TYPES`.
        code: [A] int32 place of a string in `names`, or in `odd` of a number that no float64 holds,
            0 or 1 of a truth value, else -1.
        number: [A] float64, the nearest to a number; NaN where there is none.
        names: Places of the strings; those of later atoms may be behind them.
        odd: Places of the numbers that no float64 holds.
    """

    type: Tensor
    code: Tensor
    number: Tensor
    names: dict[str, int]
    odd: dict[_Exact, int]

    @cached_property
    def held(self) -> list[int]:
        """The types of its values."""
        counts = torch.bincount(self.type.long(), minlength=len(_TYPES)).tolist()
        return [kind for kind, count in enumerate(counts) if count and kind > _NULL]

    @cached_property
    def ordered(self) -> tuple[list[str], Tensor]:
        """The strings in their order, and the place of each atom's in it [A], -1 = none."""
        names = list(self.names)
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = torch.empty(len(names) + 1, dtype=torch.int32)
        rank[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(order), dtype=torch.int32)
        rank[-1] = -1
        codes = torch.where(self.type == _STRING, self.code, -1).long()
        return [names[place] for place in order], rank.to(codes.device)[codes]

    @cached_property
    def odd_values(self) -> list[_Exact]:
        """The numbers that no float64 holds, by place."""
        return list(self.odd)

    def take(self, node: Tensor) -> _Column:  # [A] int64
        """Some of the atoms, in that order."""
        parts = self.type[node], self.code[node], self.number[node]
        return _Column(*parts, self.names, self.odd)

    def to(self, device: torch.device) -> _Column:
        """The same on another device."""
        type_, code, number = (part.to(device) for part in (self.type, self.code, self.number))
        return _Column(type_, code, number, self.names, self.odd)

    def equals(self, value: Any) -> Tensor:  # [A] bool
        """Where it is this; what is missing is null."""
        if value is None:
            return self.type <= _NULL
        if isinstance(value, str):
            return (self.type == _STRING) & (self.code == self.names.get(value, -2))
        if isinstance(value, bool):
            return (self.type == _TRUTH) & (self.code == int(value))
        exact, nearest = exact_value(value), _nearest(value)
        if not self.odd and exact == nearest:
            return self.number == nearest
        return (self.number == nearest) & (self.code == self._code_of(exact, nearest))

    def one_of(self, values: Sequence[Any]) -> Tensor:  # [A] bool
        """Where it is one of these; as `equals`, but all strings and all numbers in one pass."""
        strings = [self.names.get(value, -2) for value in values if isinstance(value, str)]
        numbers = [value for value in values if _type_of(value) == _NUMBER]
        sizes = [_nearest(value) for value in numbers]
        places = [
            self._code_of(exact_value(v), size) for v, size in zip(numbers, sizes, strict=True)
        ]
        sizes = [size for size, place in zip(sizes, places, strict=True) if place == -1]
        found = (self.type == _STRING) & self._code_in(strings)
        found |= torch.isin(self.number, self.number.new_tensor(sizes)) & (self.code == -1)
        if self.odd:
            found |= (self.type == _NUMBER) & self._code_in([p for p in places if p >= 0])
        for value in (None, False, True):
            if any(each is value for each in values):
                found |= self.equals(value)
        return found

    def compares(self, operator: str, value: Any) -> Tensor:  # [A] bool
        """Where it is greater or less; strings by code points, numbers by their exact values."""
        if isinstance(value, str):
            names, mine = self.ordered
            # Whole places on both sides of the string, which need not be among them.
            left, right = bisect_left(names, value), bisect_right(names, value)
            ends = {"$gt": right - 1, "$gte": left, "$lt": left, "$lte": right - 1}
            return _COMPARED[operator](mine, ends[operator]) & (self.type == _STRING)
        exact, nearest = exact_value(value), _nearest(value)
        # No float64 lies between a number and the one nearest to it, and where two numbers are
        # nearest to different ones, these compare as they do.
        beside = {} if exact == nearest else _ABOVE if exact > nearest else _BELOW
        found = _COMPARED[beside.get(operator, operator)](self.number, nearest)
        if self.odd:
            tied = (self.number == nearest) & (self.code >= 0)
            codes, place = self.code[tied].unique(return_inverse=True)
            fits = [_COMPARED[operator](self.odd_values[code], exact) for code in codes.tolist()]
            found[tied] = torch.tensor(fits, dtype=torch.bool, device=found.device)[place]
        return found

    def _code_of(self, exact: _Exact, nearest: float) -> int:
        """The code that a number has, where it is there; -1 of one that float64 holds."""
        return -1 if exact == nearest else self.odd.get(exact, -2)

    def _code_in(self, codes: Sequence[int]) -> Tensor:  # [A] bool
        return torch.isin(self.code, self.code.new_tensor(codes))


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
# How float64 compare with a number that lies above, or below, the one nearest to it.
_ABOVE = {"$gte": "$gt", "$lt": "$lte"}
_BELOW = {"$gt": "$gte", "$lte": "$lt"}


def _no_column() -> _Column:
    """A field of no atoms."""
    return _Column(
        torch.empty(0, dtype=torch.int8),
        torch.empty(0, dtype=torch.int32),
        torch.empty(0, dtype=torch.float64),
        {},
        {},
    )


class AtomFields:
    """The fields of the atoms of a store as columns; safe to share between threads.

    A field is read when a filter first asks for it, and after that only what was added: what an
    atom says never changes under its node number.
    """

    def __init__(self, store: StoreReader) -> None:
        """Nothing is read before it is asked for."""
        self._store = store
        self._lock = threading.RLock()
        self._read: dict[str, _Column] = {}  # by node number
        self._placed: tuple[object, dict[str, _Column]] = None, {}  # by row, of one state

    def where(self, snapshot: Snapshot, where: Mapping[str, Any]) -> Tensor:  # [A] bool
        """The atoms of a snapshot that fit, on its device; see `Memory.retrieve`.

        Raises:
            InputError: No condition, an unknown operator, a field that no atom has, values that do
                not compare with those of the field.
        """
        index = snapshot.index
        node, device = snapshot.node[: index.num_atoms], index.kind.device
        with self._lock:
            if self._placed[0] != (snapshot.state, device):
                self._placed = (snapshot.state, device), {}
            columns = self._placed[1]

        def column(field: str) -> _Column:
            with self._lock:
                if field not in columns:
                    columns[field] = self._column(field, node).to(device)
                return columns[field]

        every = torch.ones(len(node), dtype=torch.bool, device=device)
        try:
            return _Conditions(column, every).all(where)
        except RecursionError as error:
            raise InputError("where: expected fewer levels, got too many; flatten it") from error

    def _column(self, field: str, node: Tensor) -> _Column:
        """A field of the atoms `node` [A].

        Raises:
            InputError: No atom has it.
        """
        base, *keys = field.split(".")
        known = base in _FIELDS and not keys
        if known or (base == _META and keys):
            read = self._read.get(field) or _no_column()
            start = len(read.type)
            if len(node) and start <= int(node.max()):
                with self._store.reading():
                    stop = self._store.next_node
                    values = self._store.fields(cast(FieldName, base), start)
                    read = self._read[field] = _extended(read, _nested(values, keys), stop)
            column = read.take(node)
            if known or bool((column.type != _MISSING).any()):
                return column
        raise InputError(unknown("where", field, self._nearest(field), what="a field such as"))

    def _nearest(self, field: str) -> list[str]:
        """Fields that there are, that which is meant among them."""
        values = self._store.fields(_META)
        names = [*_FIELDS, *dict.fromkeys(name for _, meta in values for name in _leaves(meta))]
        nearest = get_close_matches(field, names, n=1, cutoff=0.5)
        return list(dict.fromkeys([*names[:_SHOWN], *nearest]))


def _nested(values: Iterable[tuple[int, Any]], keys: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """What lies under the keys, one in the other, where there is something."""
    for node, value in values:
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            yield node, value


def _leaves(meta: Mapping[str, Any]) -> Iterator[str]:
    """Names of the values in a mapping, with dots where it is nested."""
    inside: list[tuple[str, Any]] = [(_META, meta)]
    while inside:
        name, value = inside.pop()
        if isinstance(value, Mapping):
            inside += [(f"{name}.{key}", each) for key, each in value.items()]
        else:
            yield name


def _extended(column: _Column, values: Iterable[tuple[int, Any]], stop: int) -> _Column:
    """A column by node number with what the nodes up to `stop` - 1 have to say."""
    names, odd = column.names, column.odd  # what is new is behind what an older column knows
    nodes, types, codes, numbers = [], list[int](), list[int](), list[float]()
    for node, value in values:
        kind = _type_of(value)
        nodes.append(node)
        types.append(kind)
        number, code = _nearest(value) if kind == _NUMBER else math.nan, -1
        if kind == _STRING:
            code = names.setdefault(value, len(names))
        elif kind == _TRUTH:
            code = int(value)
        elif kind == _NUMBER and number != value:
            code = odd.setdefault(exact_value(value), len(odd))
        numbers.append(number)
        codes.append(code)
    start = len(column.type)
    place = torch.tensor(nodes, dtype=torch.int64) - start

    def behind(old: Tensor, new: Sequence[float], empty: float) -> Tensor:
        more = torch.full((stop - start,), empty, dtype=old.dtype)
        more[place] = torch.tensor(new, dtype=old.dtype)
        return torch.cat([old, more])

    return _Column(
        behind(column.type, types, _MISSING),
        behind(column.code, codes, -1),
        behind(column.number, numbers, math.nan),
        names,
        odd,
    )


@dataclass(frozen=True, eq=False)
class _Conditions:
    """Decides conditions on A atoms.

    Attributes:
        column: Gives the column of a field.
        every: [A] bool, True.
    """

    column: Callable[[str], _Column]
    every: Tensor

    def all(self, where: object, prefix: str = "") -> Tensor:  # [A] bool
        """Where every condition of a mapping holds; `prefix` is what its fields are nested in."""
        if not isinstance(where, Mapping):
            raise InputError(
                f"where: expected conditions by field, got {where!r:.80}; write "
                '{"speaker": "Nora", "meta.page": {"$gte": 3}}'
            )
        found = self.every
        for name, condition in where.items():
            if not isinstance(name, str) or (name.startswith("$") and name not in _JOINTS):
                raise InputError(unknown("where", name, (*_FIELDS, "meta.<key>", *_JOINTS)))
            if name == "$not":
                found = found & ~self.all(condition, prefix)
            elif name not in _JOINTS:
                found = found & self.field(prefix + name, condition)
            elif isinstance(condition, (list, tuple)) and condition:
                parts = torch.stack([self.all(part, prefix) for part in condition])
                found = found & (parts.all(0) if name == "$and" else parts.any(0))
            else:
                raise InputError(
                    f"where: {name}: expected a list of conditions, got {condition!r:.80}; give "
                    "at least one"
                )
        return found

    def field(self, field: str, condition: object) -> Tensor:  # [A] bool
        """Where the condition of one field holds."""
        if not isinstance(condition, Mapping):
            condition = {"$eq": condition}
        operators = [str(name).startswith("$") for name in condition]
        if operators and not any(operators) and field.partition(".")[0] == _META:
            return self.all(condition, f"{field}.")
        if not operators or not all(operators):
            raise InputError(
                f"where: {field}: expected a value or operators, got {condition!r:.80}; write "
                '{"$gte": 3}'
            )
        found = self.every
        for name, value in condition.items():
            if name == "$not":
                found = found & ~self.field(field, value)
            else:
                found = found & self.compared(field, name, value)
        return found

    def compared(self, field: str, operator: str, value: object) -> Tensor:  # [A] bool
        """Where a field compares so with a value."""
        if operator not in _OPERATORS:
            raise InputError(unknown(f"where: {field}", operator, _OPERATORS))
        column = self.column(field)
        if operator in _ORDER:
            return column.compares(operator, _operand(field, operator, value, column))
        if operator in ("$eq", "$ne"):
            same = column.equals(_operand(field, operator, value, column))
            return same if operator == "$eq" else ~same
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InputError(
                f"where: {field}: {operator}: expected a list of values, got {value!r:.80}; write "
                "[...]"
            )
        inside = column.one_of([_operand(field, operator, each, column) for each in value])
        return inside if operator == "$in" else ~inside


def _operand(field: str, operator: str, value: Any, column: _Column) -> Any:
    """The value that a field is compared with.

    Raises:
        InputError: It compares with none of the field's values.
    """
    if field == "time" and value is not None:
        return parse_time(value, "where: time")
    kind = _type_of(value)
    ordered = operator in _ORDER
    fits = {_NUMBER, _STRING} if ordered else {_NULL, _TRUTH, _NUMBER, _STRING}
    try:
        exact = exact_value(value) if kind == _NUMBER else 0
    except ValueError as error:
        raise InputError(f"where: {field}: {operator}: {error}; give a shorter one") from error
    if kind not in fits or exact != exact:  # NaN
        wanted = "a number or a string" if ordered else "a string, number, truth value or null"
        raise InputError(
            f"where: {field}: {operator}: expected {wanted}, got {value!r:.80}; for several values "
            "use $in"
        )
    if kind != _NULL and column.held and kind not in column.held:
        held = " and ".join(_TYPES[each] for each in column.held)
        raise InputError(
            f"where: {field}: expected what compares with its {held}, got {value!r:.80}; give one "
            "of these"
        )
    # A subclass, such as an enumeration of strings, may hash as something else.
    return str.__str__(value) if kind == _STRING else value


def _type_of(value: object) -> int:
    """The place of a value's type in `_TYPES`."""
    kind = _TYPE_OF.get(type(value))
    if kind is None:
        kind = _STRING if isinstance(value, str) else _OBJECT
        kind = _NUMBER if isinstance(value, Real) else kind
    return kind


def _nearest(value: Any) -> float:
    """The float64 nearest to a number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
