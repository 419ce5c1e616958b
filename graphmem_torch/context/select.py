"""Selection: the most valuable memories that fit a token budget, with a bound on what is missed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.context._branch import solve
from graphmem_torch.context._checks import check_overlap, check_problem, check_room
from graphmem_torch.context._closure import closure_of, reachable
from graphmem_torch.context._instance import Instance, padded
from graphmem_torch.ops import knapsack
from graphmem_torch.ops.knapsack import Packing

__all__ = ["Overlap", "Selection", "select"]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Near-duplicates: pairs of items that say in part the same.

    Attributes:
        row, item, other: The question and its two items, in either order, `[P]` int64.
        share: Part of the value of the lesser one that the other one already brings, `[P]` in
            [0, 1]. Pairs that are not named share nothing.
    """

    row: Tensor
    item: Tensor
    other: Tensor
    share: Tensor


@dataclass(frozen=True, eq=False)
class Selection(Packing):
    """What `select` chose for each of B questions; its value is less what near-duplicates lose."""


def select(
    values: Tensor,  # [B, n] >= 0
    costs: Tensor,  # [B, n] int64 tokens, >= 0
    budget: Tensor,  # [B] int64 tokens, >= 0
    *,
    pinned: Tensor | None = None,  # [B, n] bool
    requires: Tensor | None = None,  # [3, R] int64: row, item, needed item
    overlap: Overlap | None = None,
    work: int = 32,
) -> Selection:
    """The most valuable selection whose costs fit the budget (`docs/mathematics.md` 6).

    Maximises f(S) = sum over i in S of v_i (1 - max share_ij), where the maximum is over the items
    j of S that are better than i: what is in anyway before the rest, then by value, then by place;
    so of near-duplicates the best keeps its value, and each other one loses once. S holds the
    pinned items, and with an item everything it requires, directly or not; items that require each
    other are all in or all out.

    Without requirements and overlap that is the 0/1 knapsack, solved exactly (`ops.knapsack`).
    With them it is NP-hard beyond that: the bound of `_bound` and the search of `_branch` prove the
    optimum where few pairs matter, and give a selection and a certified gap elsewhere. All rows are
    solved side by side; for a budget curve, expand the rows of one question.

    Args:
        values: Finite.
        costs: At most 2^40 / n tokens.
        budget: Of any size.
        pinned: Items that are in whatever they are worth; with what they require.
        requires: Requirements of an item of itself are ignored.
        overlap: Near-duplicates; of a pair that is named twice the larger share counts.
        work: Sub-problems that a row may be split into; 0 takes the first selection and bound.

    Raises:
        InputError: For shapes, dtypes, devices or places that do not fit; values that are negative
            or not finite, negative costs or budgets, shares outside of [0, 1]; or a budget that
            does not hold the pinned items and what they require.
    """
    check_problem(values, costs, budget, pinned, requires)
    if overlap is not None:
        check_overlap(overlap.row, overlap.item, overlap.other, overlap.share, values)
    check_count("work", work, 0)
    if pinned is None:
        pinned = torch.zeros(values.shape, dtype=torch.bool, device=values.device)
    source, target = _edges(requires, values.shape[1], values.device)
    inside = reachable(pinned.flatten(), source, target).view(pinned.shape)
    check_room(costs, budget, inside, pinned)
    if not len(source) and (overlap is None or not len(overlap.row)):
        best = knapsack(values.double(), costs, budget, required=inside)
        return Selection(best.mask, best.value, best.cost, best.upper_bound, best.exact)
    problem = _instance(
        values.double(), costs.long(), budget.long(), inside, source, target, overlap
    )
    return Selection(*solve(problem, work))


def _edges(requires: Tensor | None, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The requirements between places of the flattened rows."""
    if requires is None:
        none = torch.zeros(0, dtype=torch.int64, device=device)
        return none, none
    row, item, need = requires
    return row * width + item, row * width + need


def _instance(
    values: Tensor,
    costs: Tensor,
    budget: Tensor,
    inside: Tensor,
    source: Tensor,
    target: Tensor,
    overlap: Overlap | None,
) -> Instance:
    rows, width = values.shape
    room = (budget - torch.where(inside, costs, 0).sum(1))[:, None].expand_as(costs).flatten()
    free = ~inside.flatten()
    undecided = free[source] & free[target]
    extra = torch.where(free, costs.flatten(), 0)
    item, need, impossible = closure_of(source[undecided], target[undecided], extra, room)
    outside = impossible.view(values.shape)
    item, need = padded(item // width, (item % width, need % width), rows)
    rank = _rank(values, inside)
    worse, better, share = _near_duplicates(overlap, rank, outside)
    return Instance(
        values=values,
        costs=costs,
        budget=budget,
        inside=inside,
        outside=outside,
        rank=rank,
        item=item,
        need=need,
        worse=worse,
        better=better,
        share=share,
    )


def _rank(values: Tensor, inside: Tensor) -> Tensor:  # [B, n] int64
    """Place of each item: what is in anyway first, then by value, then by place."""
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    decided = inside.gather(1, order)
    order = order.gather(1, torch.argsort(~decided, dim=1, stable=True))
    place = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, place)


def _near_duplicates(
    overlap: Overlap | None,
    rank: Tensor,  # [B, n]
    outside: Tensor,  # [B, n]
) -> tuple[Tensor, ...]:  # of [B, P]: worse, better, share
    """The pairs that can both be in, each once, by row, the better item told from the worse."""
    rows, width = rank.shape
    if overlap is None:
        none = torch.zeros(rows, 0, dtype=torch.int64, device=rank.device)
        return none, none, none.double()
    row, first, second, share = overlap.row, overlap.item, overlap.other, overlap.share.double()
    apart = (first != second) & (share > 0) & ~outside[row, first] & ~outside[row, second]
    row, first, second, share = (part[apart] for part in (row, first, second, share))
    ahead = rank[row, first] < rank[row, second]
    worse, better = torch.where(ahead, second, first), torch.where(ahead, first, second)
    key, slot = torch.unique((row * width + worse) * width + better, return_inverse=True)
    share = share.new_zeros(len(key)).scatter_reduce_(0, slot, share, "amax")
    pair = key % (width * width)
    return padded(key // (width * width), (pair // width, pair % width, share), rows)
