"""Whole columns of atoms as tensors: kinds, speakers, sessions, types and times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.text.unicode_forms import composed

__all__ = ["Coded", "Columns", "columns_from_rows"]


@dataclass(frozen=True, eq=False)
class Coded:
    """Dictionary-encoded column of strings.

    Attributes:
        codes: [N] int32 index into `names`, -1 where there is no value.
        names: Distinct values, in the order of their first node.
    """

    codes: Tensor
    names: list[str]

    def values(self) -> list[str | None]:
        """Decode the column, one value a node."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    def equals(self, name: str) -> Tensor:  # [N] bool
        """Return a mask of the rows equal to `name` in any Unicode form."""
        name = composed(name)
        same = [code for code, each in enumerate(self.names) if composed(each) == name]
        return torch.isin(self.codes, torch.tensor(same, dtype=torch.int32))


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of every atom that an index needs besides its text, by node number.

    Attributes:
        node: [N] int64 node numbers.
        kind, speaker, session, type: Fields of `Atom`.
        time: [N] float64 seconds since the epoch, UTC; NaN where there is none.
    """

    node: Tensor
    kind: Coded
    speaker: Coded
    session: Coded
    type: Coded
    time: Tensor

    @property
    def is_concept(self) -> Tensor:  # [N] bool
        """Mask of the concepts made by linking, which are not memories."""
        return self.kind.equals(CONCEPT)


def columns_from_rows(rows: list[tuple[Any, ...]]) -> Columns:
    """Build columns from rows `(node, kind, speaker, session, type, time)`."""
    node, kind, speaker, session, type_, time = zip(*rows, strict=True) if rows else ((),) * 6
    return Columns(
        node=torch.tensor(node, dtype=torch.int64),
        kind=_coded(kind),
        speaker=_coded(speaker),
        session=_coded(session),
        type=_coded(type_),
        time=torch.tensor([math.nan if t is None else t for t in time], dtype=torch.float64),
    )


def _coded(values: Iterable[str | None]) -> Coded:
    number: dict[str | None, int] = {None: -1}
    names: list[str] = []
    codes = []
    for value in values:
        code = number.get(value)
        if code is None:
            code = number[value] = len(names)
            names.append(str(value))
        codes.append(code)
    return Coded(torch.tensor(codes, dtype=torch.int32), names)
