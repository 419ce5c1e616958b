"""Store the values of a field as columns, and compare a column with a value in one pass.

A column has the value of each memory and, apart from these, the elements of lists. A comparison is
one pass over the values, and one over the elements if there are any.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.exact import exact_value
from graphmem_torch.rank.filters import ORDER, Comparison
from graphmem_torch.text.unicode_forms import composed

__all__ = ["LISTS", "MISSING", "NULL", "FieldColumn", "names_of_types", "type_of"]

_TYPES = ("nothing", "null", "truth values", "numbers", "strings", "lists", "objects")
MISSING, NULL, _TRUTH, _NUMBER, _STRING, LISTS, _OBJECT = range(len(_TYPES))
_TYPE_OF = {
    type(None): NULL,
    bool: _TRUTH,
    int: _NUMBER,
    float: _NUMBER,
    Decimal: _NUMBER,
    str: _STRING,
    list: LISTS,
    dict: _OBJECT,
}
_Exact = int | Fraction | float
"""Exact value of a number; infinite ones are floats."""


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of n places of a field.

    Attributes:
        type: [n] int8 place in `_TYPES`.
        code: [n] int32: for a string its place in `names`, for a number that no float64 equals its
            place in `odd`, for a truth value 0 or 1, else -1.
        number: [n] float64 nearest to a number, else NaN.
        names: Places of the strings, in NFC; later atoms may have added more.
        odd: Places of the numbers that no float64 equals.
    """

    type: Tensor
    code: Tensor
    number: Tensor
    names: dict[str, int]
    odd: dict[_Exact, int]

    @classmethod
    def of(cls, values: Sequence[Any], names: dict[str, int], odd: dict[_Exact, int]) -> _Values:
        """Return values of JSON; new strings and odd numbers are appended to the known ones."""
        types, codes, numbers = list[int](), list[int](), list[float]()
        for value in values:
            kind = _TYPE_OF[type(value)]
            number, code = math.nan, -1
            if kind == _NUMBER:
                number = _nearest(value)
                if number != value:
                    code = odd.setdefault(exact_value(value), len(odd))
            elif kind == _STRING:
                code = names.setdefault(composed(value), len(names))
            elif kind == _TRUTH:
                code = int(value)
            types.append(kind)
            codes.append(code)
            numbers.append(number)
        return cls(
            torch.tensor(types, dtype=torch.int8),
            torch.tensor(codes, dtype=torch.int32),
            torch.tensor(numbers, dtype=torch.float64),
            names,
            odd,
        )

    @cached_property
    def held(self) -> set[int]:
        """Types of the values."""
        counts = torch.bincount(self.type.long(), minlength=len(_TYPES)).tolist()
        return {kind for kind, count in enumerate(counts) if count}

    @cached_property
    def ordered(self) -> tuple[list[str], Tensor]:
        """Sorted strings, and the rank of each value among them [n], -1 for no string."""
        names = list(self.names)
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = torch.empty(len(names) + 1, dtype=torch.int32)
        rank[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(order), dtype=torch.int32)
        rank[-1] = -1
        codes = torch.where(self.type == _STRING, self.code, -1).long()
        return [names[place] for place in order], rank.to(codes.device)[codes]

    @cached_property
    def odd_values(self) -> list[_Exact]:
        """Numbers that no float64 equals, by place."""
        return list(self.odd)

    def take(self, places: Tensor) -> _Values:  # [m] int64
        """Return the values of some places, in that order."""
        parts = self.type[places], self.code[places], self.number[places]
        return _Values(*parts, self.names, self.odd)

    def spread(self, places: Tensor, count: int) -> _Values:  # [n] int64
        """Return `count` places with these values at `places`, and missing values elsewhere."""

        def whole(part: Tensor, empty: float) -> Tensor:
            return torch.full((count,), empty, dtype=part.dtype).index_copy(0, places, part)

        type_, code = whole(self.type, MISSING), whole(self.code, -1)
        return _Values(type_, code, whole(self.number, math.nan), self.names, self.odd)

    def cat(self, other: _Values) -> _Values:
        """Return the places of both in sequence; `other` shares the strings and odd numbers."""
        type_, code = torch.cat([self.type, other.type]), torch.cat([self.code, other.code])
        number = torch.cat([self.number, other.number])
        return _Values(type_, code, number, self.names, self.odd)

    def to(self, device: torch.device) -> _Values:
        """Return a copy on another device."""
        type_, code, number = (part.to(device) for part in (self.type, self.code, self.number))
        return _Values(type_, code, number, self.names, self.odd)

    def equals(self, value: Any) -> Tensor:  # [n] bool
        """Return which values equal `value`; missing ones equal null."""
        if value is None:
            return self.type <= NULL
        if isinstance(value, str):
            return (self.type == _STRING) & (self.code == self.names.get(value, -2))
        if isinstance(value, bool):
            return (self.type == _TRUTH) & (self.code == int(value))
        exact, nearest = exact_value(value), _nearest(value)
        if not self.odd and exact == nearest:
            return self.number == nearest
        return (self.number == nearest) & (self.code == self._code_of(exact, nearest))

    def one_of(self, values: Sequence[Any]) -> Tensor:  # [n] bool
        """Return which values equal one of `values`; one pass for strings, one for numbers."""
        strings = [self.names.get(value, -2) for value in values if isinstance(value, str)]
        numbers = [value for value in values if type_of(value) == _NUMBER]
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

    def compares(self, operator: str, value: Any) -> Tensor:  # [n] bool
        """Return which values are greater or less; strings by code points, numbers exactly."""
        if isinstance(value, str):
            names, mine = self.ordered
            # The string may be absent, so compare with the ranks on both sides.
            left, right = bisect_left(names, value), bisect_right(names, value)
            ends = {"$gt": right - 1, "$gte": left, "$lt": left, "$lte": right - 1}
            return _COMPARED[operator](mine, ends[operator]) & (self.type == _STRING)
        exact, nearest = exact_value(value), _nearest(value)
        # No float64 lies between a number and its nearest float64. Numbers with different nearest
        # float64 compare as these do.
        beside = {} if exact == nearest else _ABOVE if exact > nearest else _BELOW
        found = _COMPARED[beside.get(operator, operator)](self.number, nearest)
        if self.odd:
            tied = (self.number == nearest) & (self.code >= 0)
            codes, place = self.code[tied].unique(return_inverse=True)
            fits = [_COMPARED[operator](self.odd_values[code], exact) for code in codes.tolist()]
            found[tied] = torch.tensor(fits, dtype=torch.bool, device=found.device)[place]
        return found

    def _code_of(self, exact: _Exact, nearest: float) -> int:
        """Return the code of a number: -1 if a float64 equals it, -2 if it is an unknown one."""
        return -1 if exact == nearest else self.odd.get(exact, -2)

    def _code_in(self, codes: Sequence[int]) -> Tensor:  # [n] bool
        return torch.isin(self.code, self.code.new_tensor(codes))


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
# Operators for float64 values if the exact number lies above, or below, its nearest float64.
_ABOVE = {"$gte": "$gt", "$lt": "$lte"}
_BELOW = {"$gt": "$gte", "$lte": "$lt"}


def type_of(value: object) -> int:
    """Return the place in `_TYPES` of an operand's type; numbers may be of any library."""
    return _TYPE_OF.get(type(value), _NUMBER)


def _nearest(value: Any) -> float:
    """Return the float64 nearest to a number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, eq=False)
class FieldColumn:
    """Field of A atoms.

    Attributes:
        own: Value of each atom.
        owner: [E] int64 atom of each list element.
        element: List elements.
    """

    own: _Values
    owner: Tensor
    element: _Values

    @classmethod
    def empty(cls) -> FieldColumn:
        """Return a field of no atoms."""
        none = _Values.of([], {}, {})
        return cls(none, torch.empty(0, dtype=torch.int64), none)

    @cached_property
    def held(self) -> set[int]:
        """Types of the compared values and list elements."""
        return self.own.held | self.element.held

    @property
    def is_held(self) -> bool:
        """Return whether any atom has the field."""
        return bool(self.own.held - {MISSING})

    def extended(self, values: Iterable[tuple[int, list[Any], bool]], stop: int) -> FieldColumn:
        """Return the column by node number, extended to the nodes before `stop`.

        Args:
            values: Node number, its values, and whether these are a list in the atom.
            stop: Node after the last one.
        """
        nodes, owns, owners, elements = list[int](), list[Any](), list[int](), list[Any]()
        for node, found, listed in values:
            own = found if listed else found[0]
            nodes.append(node)
            owns.append(own)
            if isinstance(own, list):
                parts = _flat(found) if listed else own
                owners += [node] * len(parts)
                elements += parts
        start, known = len(self.own.type), (self.own.names, self.own.odd)
        places = torch.tensor(nodes, dtype=torch.int64) - start
        return FieldColumn(
            self.own.cat(_Values.of(owns, *known).spread(places, stop - start)),
            torch.cat([self.owner, torch.tensor(owners, dtype=torch.int64)]),
            self.element.cat(_Values.of(elements, *known)),
        )

    def take(self, node: Tensor) -> FieldColumn:  # [A] int64, distinct
        """Return the column of some atoms, in that order."""
        if not len(self.owner):
            return FieldColumn(self.own.take(node), self.owner, self.element)
        row = torch.full((len(self.own.type),), -1, dtype=torch.int64)
        row[node] = torch.arange(len(node))
        owner = row[self.owner]
        kept = (owner >= 0).nonzero().squeeze(1)
        return FieldColumn(self.own.take(node), owner[kept], self.element.take(kept))

    def to(self, device: torch.device) -> FieldColumn:
        """Return a copy on another device."""
        return FieldColumn(self.own.to(device), self.owner.to(device), self.element.to(device))

    def meets(self, comparison: Comparison) -> Tensor:  # [A] bool
        """Return for which atoms a comparison holds."""
        operator, values = comparison.operator, comparison.values
        if operator == "$exists":
            return self.own.type != MISSING
        if operator == "$eq":
            return self._either(lambda part: part.equals(values[0]))
        if operator == "$in":
            return self._either(lambda part: part.one_of(values))
        if operator in ORDER:
            return self._either(lambda part: part.compares(operator, values[0]))
        if operator == "$containsAll":
            return torch.stack([self._has_one_of((each,)) for each in values]).all(0)
        return self._has_one_of(values)

    def _either(self, holds: Callable[[_Values], Tensor]) -> Tensor:  # [A] bool
        """Return for which atoms it holds of the value or of a list element."""
        own = holds(self.own)
        return own | self._has(holds) if len(self.owner) else own

    def _has_one_of(self, values: Sequence[Any]) -> Tensor:  # [A] bool
        return self._has(lambda part: part.one_of(values))

    def _has(self, holds: Callable[[_Values], Tensor]) -> Tensor:  # [A] bool
        """Return for which atoms it holds of a list element."""
        found = torch.zeros_like(self.own.type, dtype=torch.bool)
        found[self.owner[holds(self.element)]] = True
        return found


def _flat(found: Iterable[Any]) -> list[Any]:
    """Return all values, with lists replaced by their elements."""
    return [part for each in found for part in (each if isinstance(each, list) else (each,))]


def names_of_types(held: Iterable[int]) -> str:
    """Return the names of the types of a field's values."""
    return " and ".join(_TYPES[kind] for kind in sorted(held) if kind > NULL)
