"""Inputs and measures shared by the benchmarks of nearest neighbours."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

__all__ = ["clustered_rows", "ids_of", "recall"]

_SHAPES = 64  # topics that share their wide directions
_INNER = 24  # wide directions of a topic


@functools.lru_cache(maxsize=2)
def clustered_rows(count: int, width: int, *, seed: int = 0) -> Tensor:  # [count, width] float32
    """Return unit rows around topics of 200, each wide in 24 directions, with noise in all.

    Isotropic rows have no neighbours to find; embeddings of text have about this many directions
    around a row. Rows come in random order of topics.
    """
    generator = torch.Generator().manual_seed(seed)
    topics = max(1, count // 200)
    centre = torch.randn(topics, width, generator=generator) / width**0.5
    basis = torch.randn(_SHAPES, _INNER, width, generator=generator) / width**0.5
    topic = torch.randint(topics, (count,), generator=generator)
    within = torch.randn(count, _INNER, generator=generator) / _INNER**0.5
    rows = torch.randn(count, width, generator=generator).mul_(0.25 / width**0.5)
    for shape in range(_SHAPES):
        members = (topic % _SHAPES == shape).nonzero()[:, 0]
        rows[members] += centre[topic[members]] + 0.8 * (within[members] @ basis[shape])
    return torch.nn.functional.normalize(rows, dim=1)


def ids_of(result: Any) -> Tensor:  # [B, k] int64
    """Return the ids of a result (ids, (values, ids) or (ids, values)) of torch or numpy."""
    parts = [torch.as_tensor(p) for p in (result if isinstance(result, tuple) else (result,))]
    return next(p for p in parts if not p.is_floating_point()).long()


def recall(result: Any, truth: Tensor) -> float:  # truth [B, k] int64
    """Return the share of the true neighbours found, in any order."""
    found = ids_of(result).to(truth.device)
    parts = [
        (theirs[:, :, None] == own[:, None, :]).any(2).sum()
        for own, theirs in zip(found.split(4096), truth.split(4096), strict=True)
    ]
    return float(sum(parts)) / max(1, truth.numel())
