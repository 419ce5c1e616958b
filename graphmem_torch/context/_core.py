"""The core of a problem: the items that a better selection may still decide otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.context._bound import Relaxed
from graphmem_torch.context._instance import Instance, padded

__all__ = ["Core", "core_of"]


@dataclass(frozen=True, eq=False)
class Core:
    """A smaller problem, and how it lies in the one it was taken from.

    Attributes:
        problem: Of the `m` items left; rows with fewer are filled up with items outside.
        place: Where they are in the whole, `[B, m]` int64.
        taken: Items of the whole that are decided to be in, `[B, n]` bool.
        constant: Their value, where it is settled, `[B]`.
        settled: Rows in which nothing better is possible, `[B]` bool.
    """

    problem: Instance
    place: Tensor
    taken: Tensor
    constant: Tensor
    settled: Tensor

    def whole(self, mask: Tensor) -> Tensor:  # [B, m] -> [B, n]
        """A selection of the core as one of the whole."""
        return self.taken.scatter_reduce(1, self.place, mask, "amax")


def core_of(problem: Instance, relaxed: Relaxed, value: Tensor) -> Core:
    """Decides every item whose other side is worth no more than the value `[B]` at hand.

    A selection with an item on the other side than its profit says is worth at most
    `bound - |profit|` (Dembo and Hammer 1980).
    """
    sure = problem.free & ((relaxed.bound - value)[:, None] < relaxed.profit.abs())
    inside = problem.opened(problem.inside | (sure & (relaxed.profit > 0)))
    outside = problem.outside | (sure & (relaxed.profit < 0))
    needs_it = outside.gather(1, problem.need)
    outside = outside.scatter_reduce(1, problem.item, needs_it, "amax")
    whole = problem.decided(inside, outside)
    settled = (inside & outside).any(1) | (whole.room < 0)
    # An item that is in stays only if an undecided one may still take value from it.
    lesser = whole.share > 0
    touched = torch.zeros_like(inside).scatter_reduce_(1, whole.worse, lesser, "amax")
    kept = (whole.free | (inside & touched)) & ~settled[:, None]
    done = inside & ~kept
    constant = torch.where(done, whole.values, 0.0).sum(1)
    width = int(kept.sum(1).max())
    place = torch.argsort(~kept, dim=1, stable=True)[:, :width]
    number = kept.long().cumsum(1) - 1
    there = kept.gather(1, place)
    core = Instance(
        values=whole.values.gather(1, place),
        costs=whole.costs.gather(1, place),
        budget=(whole.budget - torch.where(done, whole.costs, 0).sum(1)).clamp(min=0),
        inside=inside.gather(1, place) & there,
        outside=~there,
        rank=whole.rank.gather(1, place),
        **_pairs(whole, kept, number),
    )
    return Core(core, place, inside & ~kept, constant, settled)


def _pairs(whole: Instance, kept: Tensor, number: Tensor) -> dict[str, Tensor]:
    """Requirements and near-duplicates between the kept items, by their new numbers."""
    rows = len(kept)
    free = kept & ~whole.inside
    both = free.gather(1, whole.item) & free.gather(1, whole.need) & (whole.item != whole.need)
    row, pair = both.nonzero(as_tuple=True)
    item, need = padded(
        row, (number[row, whole.item[row, pair]], number[row, whole.need[row, pair]]), rows
    )
    both = kept.gather(1, whole.worse) & kept.gather(1, whole.better) & (whole.share > 0)
    row, pair = both.nonzero(as_tuple=True)
    ends = (number[row, whole.worse[row, pair]], number[row, whole.better[row, pair]])
    worse, better, share = padded(row, (*ends, whole.share[row, pair]), rows)
    return {"item": item, "need": need, "worse": worse, "better": better, "share": share}
