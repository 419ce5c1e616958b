"""Labels: when and where a memory was said, in as few tokens as tell it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from graphmem_torch.atoms import Atom

__all__ = ["day_of", "instant_of", "label_of"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_SECONDS = 2.0**62  # beyond, a time is no number of seconds that a calendar knows


def label_of(atom: Atom) -> str | None:
    """What stands over a memory: its day, and for a piece of a document the document's name.

    A session without a day gives its name; None where nothing is known.
    """
    day = day_of(atom.time)
    if atom.session is None or (day is not None and atom.kind != "chunk"):
        return day
    name = " ".join(atom.session.split())
    return name if day is None else f"{name}, {day}"


@lru_cache(maxsize=8192)
def day_of(time: float | None) -> str | None:
    """A time as `8 May 2023`, UTC; None where it is unknown.

    In words, because it takes fewer tokens than in digits, and tells the month from the day.
    """
    instant = instant_of(time)
    if instant is None:
        return None
    year, month, day = instant[: instant.index("T")].rsplit("-", 2)
    return f"{int(day)} {_MONTHS[int(month) - 1]} {year}"


def instant_of(time: float | None) -> str | None:
    """A time as `2023-05-08T13:56:00Z`; None where it is unknown."""
    if time is None or not math.isfinite(time) or abs(time) > _SECONDS:
        return None
    return f"{np.datetime64(math.floor(time), 's')}Z"
