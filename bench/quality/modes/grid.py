"""Compared settings of mode retrieval, and the size of an index of modes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.modes import Modes, find_modes

__all__ = [
    "ASSIGNMENTS",
    "PER_MODE",
    "RULES",
    "SEARCHED",
    "Setting",
    "depths",
    "index_bytes",
    "partition",
]
ASSIGNMENTS: tuple[str, ...] = ("kmeans", "sign", "varimax")
"""Methods that assign atoms to modes (`docs/mathematics.md` 1.3)."""

RULES: Mapping[str, Mapping[str, Any]] = {
    "energy": {"select": "energy", "epsilon": 0.1},
    "energy_half": {"select": "energy", "epsilon": 0.5},
    "gcv": {"select": "gcv"},
    "gap": {"select": "gap"},
    "root": {},
    "50": {"count": 50},
}
"""Rules for the number of modes (`docs/mathematics.md` 1.2); `root`: sqrt(N), 50: the paper's."""

SEARCHED: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of modes searched for a question."""

PER_MODE: tuple[int, ...] = (1, 3, 10, 50)
"""Maximum atoms taken of each mode."""


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Setting of retrieval by modes: a row of `RULES`, an assignment, and the search effort."""

    rule: str
    assign: str
    modes: int
    atoms: int

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def partition(
    x: Tensor,  # [N, d]
    rule: str,
    assign: str,
    *,
    seed: int = 0,
) -> Modes:
    """Return the modes of some rows by a rule of `RULES`, or as many as a number in its place.

    Raises:
        InputError: Unknown rule.
    """
    arguments = RULES.get(rule)
    if arguments is None:
        if not rule.isdecimal():
            raise InputError(
                f"rule: expected one of {', '.join(RULES)} or a number, got {rule!r}; choose one"
            )
        arguments = {"count": int(rule)}
    elif rule == "root":
        arguments = {"count": math.isqrt(len(x))}
    # The number must not exceed the rows: a short conversation has fewer than 50.
    if "count" in arguments:
        arguments = {"count": max(1, min(arguments["count"], *x.shape))}
    generator = torch.Generator().manual_seed(seed)
    return find_modes(x, assign=assign, generator=generator, **arguments)


def depths(modes: int) -> list[int]:
    """Return the numbers of modes searched along a curve, up to all of them."""
    return [*(number for number in SEARCHED if number < modes), modes]


def index_bytes(modes: Modes, x: Tensor) -> dict[str, int]:
    """Return the bytes of an index, from smallest to largest; `flat` is the rows themselves.

    `centroids` finds modes and no atom. `statistics` adds variance, time, size and the ids of three
    typical atoms, as in the paper. `representatives` adds the vectors of these atoms. `whole` keeps
    all rows and their order, so that every atom can be found.
    """
    rows = x.shape[0] * x.shape[1] * x.element_size()
    centroids = modes.centroid.numel() * modes.centroid.element_size()
    columns = (modes.variance, modes.latest, modes.size, modes.representative)
    statistics = centroids + sum(column.numel() * column.element_size() for column in columns)
    typical = int((modes.representative >= 0).sum()) * x.shape[1] * x.element_size()
    lists = sum(column.numel() * column.element_size() for column in (modes.order, modes.offsets))
    return {
        "flat": rows,
        "centroids": centroids,
        "statistics": statistics,
        "representatives": statistics + typical,
        "whole": statistics + lists + rows,
    }
