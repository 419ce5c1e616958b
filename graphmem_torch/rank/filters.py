"""Filter operators: conditions on memories (`where`), parsed and checked before any is read.

Whether a filter is valid depends on the filter alone, so one filter serves memories and namespaces
of any content. `rank.field_values` compares with the values. Semantics are MongoDB's: a condition
on a list holds if one element meets it. `$ne`, `$nin` and `$not` hold if their opposite does not.
Null also matches a missing field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from graphmem_torch.atoms import FieldName
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.exact import exact_value
from graphmem_torch.plain import plain_value
from graphmem_torch.text.times import parse_time
from graphmem_torch.text.unicode_forms import composed

__all__ = [
    "FIELDS",
    "META",
    "ORDER",
    "All",
    "AnyOf",
    "Comparison",
    "Condition",
    "Not",
    "Where",
    "fields_of",
    "parse_where",
]

META: FieldName = "meta"
FIELDS: tuple[FieldName, ...] = ("kind", "speaker", "session", "time", "type", "id", "title")
"""Fields of every memory, besides those in `meta`."""

ORDER = ("$gt", "$gte", "$lt", "$lte")
"""Operators that need an order."""

_JOINTS = ("$and", "$or", "$not")
_LISTS = ("$contains", "$containsAny", "$containsAll")
_OPERATORS = ("$eq", "$ne", *ORDER, "$in", "$nin", *_LISTS, "$exists", "$not")
_SEVERAL = ("$in", "$containsAny", "$containsAll")  # operators that take a list
_OPPOSITE = {"$ne": "$eq", "$nin": "$in"}
_DEEPEST = 64  # maximum nesting of keys


@dataclass(frozen=True, slots=True)
class Comparison:
    """Condition on one field.

    Attributes:
        field: `kind`, `speaker`, ... or `meta.` and keys with dots between them; NFC.
        operator: `$eq`, one of `ORDER`, `$in`, `$contains`, `$containsAny`, `$containsAll` or
            `$exists`.
        values: Values to compare with: None, truth values, strings in NFC, numbers.
    """

    field: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class All:
    """Condition that holds if all parts hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Condition that holds if one of the parts holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Condition that holds if the part does not."""

    part: Condition


Condition = Comparison | All | AnyOf | Not
Where = Mapping[str, Any] | Condition | None
"""Conditions as a caller writes them, or already parsed."""


def parse_where(where: Where) -> Condition:
    """Parse conditions as `Memory.retrieve` takes them.

    Raises:
        InputError: There is no condition, an operator or built-in field is unknown, or a value does
            not suit its operator or field.
    """
    if isinstance(where, Condition):
        return where
    try:
        return _mapping(where, "")
    except RecursionError as error:
        raise InputError("where: expected fewer levels, got too many; flatten it") from error


def fields_of(condition: Condition) -> set[str]:
    """Return the fields that conditions name."""
    if isinstance(condition, Comparison):
        return {condition.field}
    parts = (condition.part,) if isinstance(condition, Not) else condition.parts
    return set().union(*map(fields_of, parts))


def _mapping(where: object, prefix: str) -> Condition:
    """Return the conditions of a mapping; `prefix` is the path of its fields."""
    if not isinstance(where, Mapping):
        raise InputError(
            f"where: expected conditions by field, got {where!r:.80}; write "
            '{"speaker": "Nora", "meta.page": {"$gte": 3}}'
        )
    parts: list[Condition] = []
    for name, condition in where.items():
        if not isinstance(name, str) or (name.startswith("$") and name not in _JOINTS):
            raise InputError(unknown("where", name, (*FIELDS, "meta.<key>", *_JOINTS)))
        if name == "$not":
            parts.append(Not(_mapping(condition, prefix)))
        elif name not in _JOINTS:
            parts.append(_field(prefix + name, condition))
        elif isinstance(condition, (list, tuple)) and condition:
            inner = tuple(_mapping(part, prefix) for part in condition)
            parts.append(All(inner) if name == "$and" else AnyOf(inner))
        else:
            raise InputError(
                f"where: {name}: expected a list of conditions, got {condition!r:.80}; give "
                "at least one"
            )
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _field(field: str, condition: object) -> Condition:
    """Return the condition on one field, or on those nested in it."""
    if not isinstance(condition, Mapping):
        condition = {"$eq": condition}
    operators = [str(name).startswith("$") for name in condition]
    if operators and not any(operators) and field.partition(".")[0] == META:
        return _mapping(condition, f"{field}.")
    if not operators or not all(operators):
        raise InputError(
            f"where: {field}: expected a value or operators, got {condition!r:.80}; write "
            '{"$gte": 3}'
        )
    _expect_field(field)
    parts = tuple(_comparison(field, name, value) for name, value in condition.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _expect_field(field: str) -> None:
    """Raise `InputError` unless memories may have a field of this name."""
    base, dot, keys = field.partition(".")
    if (base == META and dot) or field in FIELDS:
        if keys.count(".") < _DEEPEST:
            return
        raise InputError(
            f"where: expected at most {_DEEPEST} keys with dots between them, got {field!r:.80}; "
            "name fewer"
        )
    # An unknown field may be meant as a key of meta.
    key = "meta.<key>" if base in (*FIELDS, META) else f"meta.{field:.80}"
    raise InputError(unknown("where", field, (*FIELDS, key), what="a field such as"))


def _comparison(field: str, operator: str, value: Any) -> Condition:
    """Return the condition of one operator."""
    if operator not in _OPERATORS:
        raise InputError(unknown(f"where: {field}", operator, _OPERATORS))
    if operator == "$not":
        return Not(_field(field, value))
    if operator in _OPPOSITE:
        return Not(_comparison(field, _OPPOSITE[operator], value))
    if operator == "$exists":
        if not isinstance(value, bool):
            raise InputError(
                f"where: {field}: $exists: expected True or False, got {value!r:.80}; give one"
            )
        there = Comparison(composed(field), "$exists", ())
        return there if value else Not(there)
    if operator in _LISTS and field in FIELDS:
        raise InputError(
            f"where: {field}: {operator}: expected a field of meta, which may hold lists, got "
            f"{field!r}; use $eq or $in"
        )
    if operator not in _SEVERAL:
        values = [value]
    elif isinstance(value, (list, tuple, set, frozenset)):
        values = list(value)
    else:
        raise InputError(
            f"where: {field}: {operator}: expected a list of values, got {value!r:.80}; write [...]"
        )
    if operator == "$containsAll" and not values:
        raise InputError(
            f"where: {field}: {operator}: expected at least one value, got {value!r}; for any list "
            'write {"$exists": True}'
        )
    return Comparison(
        composed(field), operator, tuple(_operand(field, operator, each) for each in values)
    )


def _operand(field: str, operator: str, value: Any) -> Any:
    """Return a value to compare a field with, normalised.

    Raises:
        InputError: No memory can have it there.
    """
    if field == "time" and value is not None:
        return parse_time(value, "where: time")
    ordered, several = operator in ORDER, isinstance(value, (list, tuple, set, frozenset))
    place = f"where: {field}"
    if not (several or isinstance(value, Mapping)):
        value = plain_value(value, place)
    kinds = (str, Real, Decimal) if ordered else (str, Real, Decimal, bool, type(None))
    try:
        fits = isinstance(value, kinds) and not (ordered and isinstance(value, bool))
        number = fits and isinstance(value, Real | Decimal)
        fits = fits and not (number and (exact := exact_value(value)) != exact)  # NaN
    except ValueError as error:
        raise InputError(f"where: {field}: {operator}: {error}; give a shorter one") from error
    if not fits:
        wanted = "a number or a string" if ordered else "a string, number, truth value or null"
        raise InputError(
            f"where: {field}: {operator}: expected {wanted}, got {value!r:.80}; for several values "
            "use $in, for elements of a list $contains or $containsAll"
        )
    if field in FIELDS and not isinstance(value, str | None):
        raise InputError(f"where: {field}: expected a string or None, got {value!r:.80}; give one")
    return composed(value) if isinstance(value, str) else value
