"""Search for the best selection where items need or repeat each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.context._bound import Relaxed, relax, relax_at
from graphmem_torch.context._core import core_of
from graphmem_torch.context._fill import filled, grounded
from graphmem_torch.context._instance import Instance
from graphmem_torch.ops import knapsack

__all__ = ["solve"]

_CELLS = 1 << 19  # items and pairs of the rows that are solved side by side, at several prices
_WIDTH = 8  # sub-problems of a row that are split at once
_FILLS = 2  # rounds in which a first selection is filled up
_ROUNDING = 1e-12  # of the bound: a selection better by less than this is no better


def solve(problem: Instance, work: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Mask, value, cost, upper bound and exactness of each row.

    The relaxation of `_bound` is solved as a knapsack. Where the items chosen there lack what they
    need, or repeat each other more than the relaxation knew, one such item is decided both ways:
    two sub-problems, each with its own bound. They are split in order of their bounds, those of all
    rows side by side, until none is above the best selection known or the work is spent.
    """
    width = problem.values.shape[1] + problem.item.shape[1] + problem.worse.shape[1]
    rows = torch.arange(len(problem.budget), device=problem.budget.device)
    parts = [
        _solve(problem.rows(tile), work) for tile in rows.split(max(1, _CELLS // max(1, width)))
    ]
    mask, value, bound = (torch.cat(column) for column in zip(*parts, strict=True))
    cost = torch.where(mask, problem.costs, 0).sum(1)
    exact = bound <= value + _rounding(bound)
    return mask, value, cost, torch.where(exact, value, bound), exact


def _solve(problem: Instance, work: int) -> tuple[Tensor, Tensor, Tensor]:
    reduced = problem.decided(problem.inside, problem.outside)
    relaxed, _ = relax(reduced, rounds=1)
    mask = grounded(reduced, relaxed)
    value = problem.worth(mask)
    core = core_of(reduced, relaxed, value)
    found, most = _search(core.problem, value - core.constant, work)
    better = core.whole(found)
    worth = problem.worth(better)
    gained = (worth > value) & ~core.settled
    mask = torch.where(gained[:, None], better, mask)
    value = torch.where(gained, worth, value)
    # A bound by the core holds of what is better than the value that made it.
    most = torch.where(core.settled, value, torch.maximum(most + core.constant, value))
    return mask, value, torch.minimum(relaxed.bound, most)


def _first_selection(problem: Instance, tried: Relaxed) -> Tensor:  # [B, n] bool
    """The best selection that the relaxations at several prices lead to."""
    rows, count = len(problem.budget), len(tried.price) // max(1, len(problem.budget))
    each = torch.arange(rows, device=problem.budget.device).repeat_interleave(count)
    several = problem.rows(each)
    masks = grounded(several, tried)
    best = several.worth(masks).view(rows, count).argmax(1)
    return masks.view(rows, count, -1)[torch.arange(rows, device=best.device), best]


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Sub-problems: the row they are of, what is decided, and what the relaxation says.

    Attributes:
        row: `[M]`.
        inside, outside: Decided so far, `[M, m]` bool.
        selection: A good one, `[M, m]` bool.
        bound: `[M]`.
        item: What to decide next, `[M]`; -1 where the relaxation and the truth agree.
    """

    row: Tensor
    inside: Tensor
    outside: Tensor
    selection: Tensor
    bound: Tensor
    item: Tensor

    def at(self, index: Tensor) -> _Nodes:
        """These of them."""
        return _Nodes(*(part[index] for part in vars(self).values()))

    def joined(self, other: _Nodes) -> _Nodes:
        """Both lists."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Nodes(*(torch.cat(both) for both in parts))


def _search(core: Instance, value: Tensor, work: int) -> tuple[Tensor, Tensor]:
    """The best selection found, and an upper bound on whatever is worth more than `value`."""
    relaxed, tried = relax(core)
    best = filled(core, _first_selection(core, tried), _FILLS)
    value = torch.maximum(value, core.worth(best))
    fresh = _look(core, relaxed)
    waiting = fresh.at(fresh.row[:0])
    unsplit = torch.full_like(value, -torch.inf)
    used = torch.zeros_like(core.budget)
    while True:
        _keep_best(core, fresh, best, value)
        waiting = waiting.joined(fresh)
        waiting = waiting.at(waiting.bound > (value + _rounding(value))[waiting.row])
        last = waiting.item < 0
        unsplit.scatter_reduce_(0, waiting.row[last], waiting.bound[last], "amax")
        waiting = waiting.at(~last)
        chosen = _first(waiting, _WIDTH) & (used < work)[waiting.row]
        if not bool(chosen.any()):
            most = unsplit.scatter_reduce(0, waiting.row, waiting.bound, "amax")
            return best, torch.maximum(most, value)
        fresh = _split(core, waiting.at(chosen), relaxed.price)
        waiting = waiting.at(~chosen)
        used += torch.bincount(fresh.row, minlength=len(used))


def _look(problem: Instance, relaxed: Relaxed, row: Tensor | None = None) -> _Nodes:
    """Solves the relaxation of each problem and finds where it is furthest from the truth."""
    values = torch.where(problem.outside, 0.0, relaxed.values)
    packed = knapsack(values, problem.costs, problem.budget, required=problem.inside)
    bound = relaxed.constant + packed.upper_bound
    doubt = _doubt(problem, relaxed, packed.mask)
    most, item = doubt.max(dim=1) if doubt.shape[1] else (bound * 0, bound.long() * 0)
    item = torch.where(most > _rounding(bound), item, -1)
    row = torch.arange(len(bound), device=bound.device) if row is None else row
    selection = problem.trimmed(problem.closed(packed.mask))
    return _Nodes(row, problem.inside, problem.outside, selection, bound, item)


def _doubt(problem: Instance, relaxed: Relaxed, mask: Tensor) -> Tensor:  # [B, n]
    """How much of the bound hangs on the undecided items that the relaxation got wrong."""
    zero = torch.zeros_like(problem.values)
    repeats = problem.share > 0
    both = repeats & mask.gather(1, problem.worse) & mask.gather(1, problem.better)
    twice = torch.where(both, problem.share * problem.values.gather(1, problem.worse), 0.0)
    doubt = zero.scatter_add(1, problem.worse, twice).scatter_add(1, problem.better, twice)
    # What a group was given above what its chosen items are worth.
    over = mask * (relaxed.alone - problem.values * (1.0 - problem.lost(mask)))
    over = relaxed.top.scatter_add(1, relaxed.group, over).gather(1, relaxed.group)
    paired = zero.scatter_add(1, problem.worse, repeats.double())
    paired = paired.scatter_add_(1, problem.better, repeats.double()) > 0
    doubt += torch.where(paired, over.clamp(min=0), 0.0)
    # Value that was handed on, and items without what they need.
    has, needs = mask.gather(1, problem.item), mask.gather(1, problem.need)
    wrong = torch.where(needs & ~has, relaxed.flow, 0.0)
    wrong += torch.where(has & ~needs, relaxed.alone.gather(1, problem.item), 0.0)
    doubt = doubt.scatter_add(1, problem.need, wrong)
    return torch.where(problem.free, doubt, 0.0)


def _split(core: Instance, nodes: _Nodes, price: Tensor) -> _Nodes:
    """Both sides of each sub-problem's item, without those that cannot be."""
    item = torch.zeros_like(nodes.inside).scatter_(1, nodes.item[:, None], True)
    problem = core.rows(nodes.row)
    inside = nodes.inside | problem.opened(item)
    needs_it = item.gather(1, problem.need)
    outside = (nodes.outside | item).scatter_reduce(1, problem.item, needs_it, "amax")
    inside, outside = torch.cat([inside, nodes.inside]), torch.cat([nodes.outside, outside])
    row, bound = nodes.row.repeat(2), nodes.bound.repeat(2)
    spent = torch.where(inside, core.costs[row], 0).sum(1)
    possible = (spent <= core.budget[row]) & ~(inside & outside).any(1)
    inside, outside, row, bound = (part[possible] for part in (inside, outside, row, bound))
    problem = core.rows(row).decided(inside, outside)
    found = _look(problem, relax_at(problem, price[row]), row)
    return replace(found, bound=torch.minimum(found.bound, bound))


def _keep_best(core: Instance, nodes: _Nodes, best: Tensor, value: Tensor) -> None:
    """Takes over, in place, the best selection of these sub-problems where it is better."""
    if not len(nodes.row):
        return
    problem = core.rows(nodes.row)
    mask = filled(problem, nodes.selection, 1)
    worth = problem.worth(mask)
    order = torch.argsort(worth, stable=True)
    winner = torch.full_like(core.budget, -1)
    place = torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )
    winner.scatter_reduce_(0, nodes.row, place, "amax")
    row = (winner >= 0).nonzero().squeeze(1)
    at = order[winner[row]]
    row, at = row[worth[at] > value[row]], at[worth[at] > value[row]]
    best[row], value[row] = mask[at], worth[at]


def _first(nodes: _Nodes, count: int) -> Tensor:  # [M] bool
    """The sub-problems of the highest bounds, so many of each row."""
    order = torch.argsort(nodes.bound, descending=True, stable=True)
    order = order[torch.argsort(nodes.row[order], stable=True)]
    row = nodes.row[order]
    place = torch.arange(len(row), device=row.device)
    first = torch.searchsorted(row, row)
    return torch.empty_like(row, dtype=torch.bool).scatter_(0, order, place - first < count)


def _rounding(bound: Tensor) -> Tensor:
    return _ROUNDING * bound.abs()
