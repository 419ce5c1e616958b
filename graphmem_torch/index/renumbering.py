"""Renumbering: maps from the codes after a removal to the codes before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Renamed", "first_met", "inverse"]


class Renamed(NamedTuple):
    """Old codes of those that remain, in the order of the new ones.

    Attributes:
        terms, kinds, speakers, sessions: int64; None: terms are unchanged.
    """

    terms: Tensor | None
    kinds: Tensor
    speakers: Tensor
    sessions: Tensor


def first_met(codes: Tensor) -> Tensor:  # [n] int64, -1 = none -> [m] int64
    """Return the codes that occur, in the order of their first occurrence."""
    if not len(codes):
        return codes
    place = np.full(int(codes.max()) + 2, len(codes))
    # The last write wins, so reversed order keeps the first occurrence.
    place[codes.numpy()[::-1] + 1] = np.arange(len(codes))[::-1]
    first = torch.from_numpy(place[1:])
    found = (first < len(codes)).nonzero().squeeze(1)
    return found[first[found].argsort()]


def inverse(old: Tensor, size: int | None = None) -> Tensor:  # [m] int64 -> [size + 1] int64
    """Return the place of each number in `old`; -1 for others and, at the end, for -1."""
    size = int(old.max()) + 1 if size is None and len(old) else size or 0
    place = torch.full((size + 1,), -1)
    place[old] = torch.arange(len(old))
    return place
