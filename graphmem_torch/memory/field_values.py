"""Values of a field of many memories as columns, which compare with one value at a time.

A column has the value of each memory and, apart from these, the elements of those that are lists:
a comparison is one pass over the values, and one over the elements where there are any.
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
"""The exact value of a number; infinite ones are floats."""


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of n places of a field.

    Attributes:
        type: [n] int8 place in `_TYPES`.
        code: [n] int32 place of a string in `names`, or in `odd` of a number that no float64 holds,
            0 or 1 of a truth value, else -1.
        number: [n] float64, the nearest to a number; NaN where there is none.
        names: Places of the strings, in NFC; those of later atoms may be after them.
        odd: Places of the numbers that no float64 holds.
    """

    type: Tensor
    code: Tensor
    number: Tensor
    names: dict[str, int]
    odd: dict[_Exact, int]

    @classmethod
    def of(cls, values: Sequence[Any], names: dict[str, int], odd: dict[_Exact, int]) -> _Values:
        """Values of JSON; what is new among strings and odd numbers is appended to those known."""
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
        """The types of its values."""
        counts = torch.bincount(self.type.long(), minlength=len(_TYPES)).tolist()
        return {kind for kind, count in enumerate(counts) if count}

    @cached_property
    def ordered(self) -> tuple[list[str], Tensor]:
        """The strings in their order, and the place of each value in it [n], -1 = none."""
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

    def take(self, places: Tensor) -> _Values:  # [m] int64
        """Some of the places, in that order."""
        parts = self.type[places], self.code[places], self.number[places]
        return _Values(*parts, self.names, self.odd)

    def spread(self, places: Tensor, count: int) -> _Values:  # [n] int64
        """The same at some of `count` places, and nothing at the others."""

        def whole(part: Tensor, empty: float) -> Tensor:
            return torch.full((count,), empty, dtype=part.dtype).index_copy(0, places, part)

        type_, code = whole(self.type, MISSING), whole(self.code, -1)
        return _Values(type_, code, whole(self.number, math.nan), self.names, self.odd)

    def cat(self, other: _Values) -> _Values:
        """The places of both, one after the other; `other` shares the strings and odd numbers."""
        type_, code = torch.cat([self.type, other.type]), torch.cat([self.code, other.code])
        number = torch.cat([self.number, other.number])
        return _Values(type_, code, number, self.names, self.odd)

    def to(self, device: torch.device) -> _Values:
        """The same on another device."""
        type_, code, number = (part.to(device) for part in (self.type, self.code, self.number))
        return _Values(type_, code, number, self.names, self.odd)

    def equals(self, value: Any) -> Tensor:  # [n] bool
        """Where it is this; what is missing is null."""
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
        """Where it is one of these; as `equals`, but all strings and all numbers in one pass."""
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

    def _code_in(self, codes: Sequence[int]) -> Tensor:  # [n] bool
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


def type_of(value: object) -> int:
    """The place in `_TYPES` of the type of an operand, which may be a number of any library."""
    return _TYPE_OF.get(type(value), _NUMBER)


def _nearest(value: Any) -> float:
    """The float64 nearest to a number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, eq=False)
class FieldColumn:
    """A field of A atoms.

    Attributes:
        own: The value of each atom.
        owner: [E] int64 atoms of the elements, where a value is a list.
        element: The elements.
    """

    own: _Values
    owner: Tensor
    element: _Values

    @classmethod
    def empty(cls) -> FieldColumn:
        """A field of no atoms."""
        none = _Values.of([], {}, {})
        return cls(none, torch.empty(0, dtype=torch.int64), none)

    @cached_property
    def held(self) -> set[int]:
        """The types of what is compared: values, and elements of lists."""
        return self.own.held | self.element.held

    @property
    def is_held(self) -> bool:
        """Whether any atom has the field."""
        return bool(self.own.held - {MISSING})

    def extended(self, values: Iterable[tuple[int, list[Any], bool]], stop: int) -> FieldColumn:
        """The column by node number with what the nodes up to `stop` - 1 have to say.

        Args:
            values: Node number, what it has there, and whether that is a list by itself.
            stop: After the last node.
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
        """Some of the atoms, in that order."""
        if not len(self.owner):
            return FieldColumn(self.own.take(node), self.owner, self.element)
        row = torch.full((len(self.own.type),), -1, dtype=torch.int64)
        row[node] = torch.arange(len(node))
        owner = row[self.owner]
        kept = (owner >= 0).nonzero().squeeze(1)
        return FieldColumn(self.own.take(node), owner[kept], self.element.take(kept))

    def to(self, device: torch.device) -> FieldColumn:
        """The same on another device."""
        return FieldColumn(self.own.to(device), self.owner.to(device), self.element.to(device))

    def meets(self, comparison: Comparison) -> Tensor:  # [A] bool
        """Where a comparison holds."""
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
        """Where it holds of the value, or of one of the elements."""
        own = holds(self.own)
        return own | self._has(holds) if len(self.owner) else own

    def _has_one_of(self, values: Sequence[Any]) -> Tensor:  # [A] bool
        return self._has(lambda part: part.one_of(values))

    def _has(self, holds: Callable[[_Values], Tensor]) -> Tensor:  # [A] bool
        """Where it holds of one of the elements."""
        found = torch.zeros_like(self.own.type, dtype=torch.bool)
        found[self.owner[holds(self.element)]] = True
        return found


def _flat(found: Iterable[Any]) -> list[Any]:
    """The elements of lists, and what is no list."""
    return [part for each in found for part in (each if isinstance(each, list) else (each,))]


def names_of_types(held: Iterable[int]) -> str:
    """Names of the types of a field's values."""
    return " and ".join(_TYPES[kind] for kind in sorted(held) if kind > NULL)
