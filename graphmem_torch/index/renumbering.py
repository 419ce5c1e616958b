"""Renumbering: the codes that are left after a removal, by their numbers of before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Renamed", "first_met", "inverse"]


class Renamed(NamedTuple):
    """What the codes that are left were before, in the order of the new ones.

    Attributes:
        terms, kinds, speakers, sessions: int64; None: all terms are what they were.
    """

    terms: Tensor | None
    kinds: Tensor
    speakers: Tensor
    sessions: Tensor


def first_met(codes: Tensor) -> Tensor:  # [n] int64, -1 = none -> [m] int64
    """The codes that there are, in the order of where each comes first."""
    if not len(codes):
        return codes
    place = np.full(int(codes.max()) + 2, len(codes))
    # Of equal ones the last that is written stays: the first.
    place[codes.numpy()[::-1] + 1] = np.arange(len(codes))[::-1]
    first = torch.from_numpy(place[1:])
    found = (first < len(codes)).nonzero().squeeze(1)
    return found[first[found].argsort()]


def inverse(old: Tensor, size: int | None = None) -> Tensor:  # [m] int64 -> [size + 1] int64
    """Where each number stands among `old`; -1 for others, and, at the end, for none."""
    size = int(old.max()) + 1 if size is None and len(old) else size or 0
    place = torch.full((size + 1,), -1)
    place[old] = torch.arange(len(old))
    return place
