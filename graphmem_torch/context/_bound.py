"""An upper bound on every selection that a plain knapsack can use: one new value for each item."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.context._instance import Instance

__all__ = ["Relaxed", "relax", "relax_at"]

_PUSHES = 4  # rounds in which surplus is handed to what it needs
_PAID = 1e-9  # of a price: what is short of less is paid for
# Of the room, to be filled at a first price; the last is without end: a token then costs nothing.
_PARTS = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.5, 3.0, 1e18)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Values u and a constant with f(S) <= constant + sum of u over S for every allowed S.

    Attributes:
        values: `[B, n]` float64, of any sign.
        constant: `[B]`.
        price: Value of a token at which they were chosen, `[B]`.
        bound: No selection is worth more (the Lagrangian bound at the price), `[B]`.
        profit: `values - price * costs`, `[B, n]`; a selection that differs from its sign at an
            undecided item is worth at most `bound - |profit|` there.
        group: The better item that each near-duplicate stands with, `[B, n]` places.
        top: What the groups hold in common, `[B, n]`, at the place that names the group.
        alone: The values before requirements changed them, `[B, n]`.
        flow: What each requirement's item hands to its need, `[B, R]`.
        short: Items that could not be handed their price, `[B, n]` bool.
    """

    values: Tensor
    constant: Tensor
    price: Tensor
    bound: Tensor
    profit: Tensor
    group: Tensor
    top: Tensor
    alone: Tensor
    flow: Tensor
    short: Tensor

    def rows(self, at: Tensor) -> Relaxed:
        """Those of these rows."""
        return Relaxed(*(part[at] for part in vars(self).values()))


def relax(problem: Instance, rounds: int = 2) -> tuple[Relaxed, Relaxed]:
    """The least bound that a search over prices of a token finds, and those around it.

    Near-duplicates: items are grouped around their best, and item i of a group loses at least its
    least share s_i with a better member when one is in. So the group is worth at most
    sum v_i (1 - s_i) + max v_i s_i, and that maximum at most theta + sum (v_i s_i - theta)^+ for
    any theta >= 0. At price p the best is the group's second largest min(v_i s_i, v_i - p c_i).

    Requirements: an item that is only in with what it needs may hand it value (x_need - x_item >= 0
    times any multiplier); what is worth its price hands its surplus to what is not, as in a maximum
    flow (Picard 1976).
    """
    group, shared = _groups(problem)
    prices = _first_prices(problem)
    for _ in range(rounds):
        tried = _tried(problem, group, shared, prices)
        least, prices = _least(tried)
    return tried.rows(least), tried


def relax_at(problem: Instance, price: Tensor) -> Relaxed:  # [B]
    """The bound at these prices."""
    return _priced(problem, *_groups(problem), price)


def _first_prices(problem: Instance) -> Tensor:  # [B, G] descending
    """Densities at which the items as they stand would fill parts and multiples of the room."""
    free = problem.free
    density = torch.where(free, problem.values / problem.costs.clamp(min=1), 0.0)
    ranked, order = density.sort(dim=1, descending=True)
    ranked = torch.cat([ranked, ranked.new_zeros(len(ranked), 1)], 1)
    spent = torch.where(free, problem.costs, 0).gather(1, order).cumsum(1).double()
    parts = torch.tensor(_PARTS, dtype=spent.dtype, device=spent.device)
    aim = problem.room[:, None] * parts
    return ranked.gather(1, torch.searchsorted(spent, aim, right=True))


def _tried(problem: Instance, group: Tensor, shared: Tensor, prices: Tensor) -> Relaxed:
    """The bounds at several prices `[B, G]`, G rows for each problem."""
    each = torch.arange(len(prices), device=prices.device).repeat_interleave(prices.shape[1])
    return _priced(problem.rows(each), group[each], shared[each], prices.flatten())


def _least(tried: Relaxed) -> tuple[Tensor, Tensor]:  # [B], [B, G]
    """The row of the least bound of each problem, and prices around the one it was found at."""
    bound, prices = (part.view(-1, len(_PARTS)) for part in (tried.bound, tried.price))
    rows, count = prices.shape
    least = bound.argmin(1, keepdim=True)
    above = prices.gather(1, (least - 1).clamp(min=0))
    below = prices.gather(1, (least + 1).clamp(max=count - 1))
    steps = torch.linspace(0.0, 1.0, count, dtype=prices.dtype, device=prices.device)
    row = torch.arange(rows, device=prices.device) * count + least[:, 0]
    return row, above + (below - above) * steps


def _priced(problem: Instance, group: Tensor, shared: Tensor, price: Tensor) -> Relaxed:
    asked = price[:, None] * problem.costs
    top = _second(problem, group, shared, asked)
    alone = problem.values - shared + (shared - top.gather(1, group)).clamp(min=0)
    flow, short = _flow(problem, alone - asked)
    values = alone.scatter_add(1, problem.item, -flow).scatter_add(1, problem.need, flow)
    profit = values - asked
    constant = top.sum(1)
    gained = torch.where(problem.free, profit.clamp(min=0), values * problem.inside).sum(1)
    bound = constant + gained + price * problem.room
    return Relaxed(values, constant, price, bound, profit, group, top, alone, flow, short)


def _groups(problem: Instance) -> tuple[Tensor, Tensor]:
    """The group of each item, and the part of its value that it shares with all better members."""
    values, worse, better = problem.values, problem.worse, problem.better
    place = torch.arange(values.shape[1], device=values.device).expand_as(values)
    live = problem.share > 0
    if not bool(live.any()):
        return place, values
    leads = torch.ones_like(problem.inside)
    while True:  # as many rounds as the longest chain of ever better near-duplicates
        led = live & leads.gather(1, better)
        again = ~torch.zeros_like(leads).scatter_reduce_(1, worse, led, "amax")
        if torch.equal(again, leads):
            break
        leads = again
    # A near-duplicate joins the leader it shares most with, the first of equals.
    share = torch.where(led, problem.share, 0.0)
    most = torch.zeros_like(values).scatter_reduce_(1, worse, share, "amax")
    joined = led & (share == most.gather(1, worse))
    none = values.shape[1]
    group = torch.full_like(place, none).scatter_reduce_(
        1, worse, torch.where(joined, better, none), "amin"
    )
    group = torch.where(group < none, group, place)
    return group, values * _least_share(problem, group, live)


def _least_share(problem: Instance, group: Tensor, live: Tensor) -> Tensor:  # [B, n]
    """Least share with a better member; 0 where one shares nothing, 1 where there is none."""
    width = group.shape[1]
    together = live & (group.gather(1, problem.worse) == group.gather(1, problem.better))
    met = torch.zeros_like(group).scatter_add_(1, problem.worse, together.long())
    share = torch.where(together, problem.share, 1.0)
    least = torch.ones_like(problem.values).scatter_reduce_(1, problem.worse, share, "amin")
    # Better members of an item: its place in its group by rank.
    order = torch.argsort(group * width + problem.rank, dim=1)
    ranked = group.gather(1, order)
    place = torch.arange(width, device=group.device).expand_as(group)
    first = torch.full_like(group, width).scatter_reduce_(1, ranked, place, "amin")
    ahead = torch.empty_like(group).scatter_(1, order, place - first.gather(1, ranked))
    return torch.where(met == ahead, least, 0.0)


def _second(problem: Instance, group: Tensor, shared: Tensor, asked: Tensor) -> Tensor:
    """The group's second largest min(shared value, profit), at the place that names it."""
    claim = torch.minimum(shared, problem.values - asked).clamp(min=0)
    claim = torch.where(problem.inside, shared, claim).masked_fill(problem.outside, 0.0)
    zero = torch.zeros_like(claim)
    largest = zero.scatter_reduce(1, group, claim, "amax").gather(1, group)
    place = torch.arange(claim.shape[1], device=claim.device).expand_as(group)
    none = claim.shape[1]
    holder = torch.full_like(group, none).scatter_reduce_(
        1, group, torch.where(claim == largest, place, none), "amin"
    )
    rest = claim.masked_fill(holder.gather(1, group) == place, 0.0)
    return zero.scatter_reduce(1, group, rest, "amax")


def _flow(problem: Instance, profit: Tensor) -> tuple[Tensor, Tensor]:  # [B, R] >= 0, [B, n]
    """What is worth its price hands to what it needs and is not, and what is short even so."""
    item, need = problem.item, problem.need
    free = problem.free
    usable = (item != need) & free.gather(1, item) & free.gather(1, need)
    flow = torch.zeros_like(usable, dtype=profit.dtype)
    if not item.shape[1]:
        return flow, profit < 0
    slack = _PAID * profit.abs()
    for _ in range(_PUSHES):
        surplus, short = profit.clamp(min=0), (-profit).clamp(min=0)
        wanted = torch.where(usable, short.gather(1, need), 0.0)
        total = torch.zeros_like(profit).scatter_add_(1, item, wanted)
        offered = wanted * (surplus / total.clamp(min=1e-300)).clamp(max=1.0).gather(1, item)
        met = torch.zeros_like(profit).scatter_add_(1, need, offered)
        step = offered * (short / met.clamp(min=1e-300)).clamp(max=1.0).gather(1, need)
        if not bool((step > 0).any()):
            break
        flow += step
        profit = profit.scatter_add(1, item, -step).scatter_add_(1, need, step)
    # What is still short takes the rest from those that gave all: alone they are no bargain.
    given = torch.zeros_like(profit).scatter_add_(1, need, flow)
    rest = ((-profit).clamp(min=0) / given.clamp(min=1e-300)).masked_fill(given == 0, 0.0)
    return flow * (1.0 + rest.gather(1, need)), profit < -slack
