"""Good selections: on what the relaxation pays for, and filled up with what still fits."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.context._bound import Relaxed
from graphmem_torch.context._instance import Instance
from graphmem_torch.ops import knapsack

__all__ = ["filled", "grounded"]


def grounded(problem: Instance, relaxed: Relaxed) -> Tensor:  # [B, n] bool, closed
    """The best selection from what the relaxation pays for.

    What is needed and got its price handed by those that need it is taken as given; the rest is a
    knapsack of the items that need nothing more.
    """
    none = torch.zeros_like(problem.inside)
    real = problem.item != problem.need
    paid = problem.free & ~relaxed.short
    given = problem.closed(none.scatter_reduce_(1, problem.need, real, "amax") & paid)
    given |= problem.inside
    fits = torch.where(given, problem.costs, 0).sum(1) <= problem.budget
    given = torch.where(fits[:, None], given, problem.inside)
    missing = real & ~given.gather(1, problem.need)
    ready = ~torch.zeros_like(given).scatter_reduce_(1, problem.item, missing, "amax")
    values = torch.where(ready & ~problem.outside, relaxed.alone, 0.0)
    packed = knapsack(values, problem.costs, problem.budget, required=given)
    return problem.trimmed(packed.mask)


def filled(
    problem: Instance,
    mask: Tensor,  # [B, n] bool, closed
    rounds: int,
) -> Tensor:  # [B, n] bool, closed
    """The selection with more items as long as its value grows.

    Each round is a knapsack over bundles, an item with what it needs and is not there yet, at what
    they would gain. Bundles that meet count what they share twice, so what is chosen always fits,
    and the next round spends what that left.
    """
    for _ in range(rounds):
        room = problem.budget - torch.where(mask, problem.costs, 0).sum(1)
        gain = torch.where(mask, 0.0, _gain(problem, mask))
        cost = torch.where(mask, 0, problem.costs)
        bundle = gain.scatter_add(1, problem.item, _beside(problem, gain))
        tokens = cost.scatter_add(1, problem.item, _beside(problem, cost))
        bundle = bundle.masked_fill(mask | problem.outside | (tokens > room[:, None]), 0.0)
        more = problem.opened(mask | knapsack(bundle, tokens, room).mask)
        grown = problem.worth(more) > problem.worth(mask)
        if not bool(grown.any()):
            break
        mask = torch.where(grown[:, None], more, mask)
    return mask


def _gain(problem: Instance, mask: Tensor) -> Tensor:  # [B, n]
    """Value of each item beside the chosen ones, less what those lose by it."""
    lost = problem.lost(mask)
    further = (problem.share - lost.gather(1, problem.worse)).clamp(min=0)
    harm = further * (problem.values * mask).gather(1, problem.worse)
    return (problem.values * (1.0 - lost)).scatter_add(1, problem.better, -harm)


def _beside(problem: Instance, each: Tensor) -> Tensor:  # [B, n] -> [B, R]
    """What the need of each requirement adds to its item."""
    return torch.where(problem.item != problem.need, each.gather(1, problem.need), 0)
