"""Selection of the most valuable memories within a token budget, with an upper bound."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.context.problem import (
    Overlap,
    Problem,
    check_overlap,
    check_problem,
    largest,
    lay_out,
    padded,
)
from graphmem_torch.ops import knapsack
from graphmem_torch.ops.knapsack import Packing

__all__ = ["Selection", "select"]

_STEPS, _GUESSES = 16, 4  # prices of a token to try; the first of them by densities
_BEYOND = 1.5  # factor on the tokens left by a price, so that the next guess passes the best one
_SETTLED = 1e-5  # relative: stop when no other price can lower the bound by more
_PUSHES = 3  # rounds in which surplus is handed to needed items
_PAID = 1e-9  # relative: an item short of less of its profit counts as paid
_PRICES = (0.5, 1.0, 2.0)  # factors of the best price, for the first selections
_FILLS = 2  # rounds of filling a selection up
_EXCHANGED, _EXCHANGES = 16, 2  # items of a row to drop in turn, and rounds
_TRIED = ((4, 8), (8, 32))  # headers in doubt, and sets of them to try: first, then
_ROUNDING = 1e-12  # relative to the bound: a smaller gain is none


@dataclass(frozen=True, eq=False)
class Selection(Packing):
    """Choice of `select` for each of B questions.

    Its value excludes the losses of near-duplicates; its cost includes the headers.
    """


def select(
    values: Tensor,  # [B, n] >= 0
    costs: Tensor,  # [B, n] int64 tokens, >= 0
    budget: Tensor,  # [B] int64 tokens, >= 0
    *,
    pinned: Tensor | None = None,  # [B, n] bool
    requires: Tensor | None = None,  # [3, R] int64: row, item, needed item
    overlap: Overlap | None = None,
    header: Tensor | None = None,  # [B, n] int64 in -1..h-1
    header_costs: Tensor | None = None,  # [B, h] int64 tokens, >= 0
    work: int = 64,
    gap: float = 0.0,
    tile: int = 1 << 18,
) -> Selection:
    """Select the most valuable items within the budget (`docs/mathematics.md` 6).

    Maximises f(S) = sum over i in S of v_i (1 - max share_ij), where the maximum is over the items
    j of S that rank above i: pinned and required items first, then by value, then by place. So the
    best of several near-duplicates keeps its value, and each other one loses once. S holds the
    pinned items, and everything that its items require, directly or not. Items that require each
    other are all in or all out. Items under one header pay for it once.

    Without these it is the 0/1 knapsack, solved exactly (`ops.knapsack`). Otherwise a price of a
    token gives a bound (Lagrange; Geoffrion 1974) and a new value for each item. A knapsack of
    these values, under the headers that pay for themselves, makes a selection. If it may miss the
    optimum by more than `gap`, other sets of headers are tried, those that lower the bound least
    first. All rows are solved together; for a budget curve, expand the rows of a question.

    Args:
        values: Values of the items, finite.
        costs: Costs of the items, at most 2^40 / n tokens.
        budget: Budget of each row.
        pinned: Items that are in regardless of their value, with everything they require.
        requires: Requirements; self-requirements are ignored.
        overlap: Near-duplicates; for a repeated pair the larger share counts.
        header: Place of the header of each item, -1 = none.
        header_costs: Cost of each header.
        work: Maximum number of header sets to try for a row; 0 keeps the first selection and bound.
        gap: Relative gap to the optimum that is accepted without further trials.
        tile: Number of items and pairs that are solved together; more exceed the cache.

    Raises:
        InputError: Shapes, dtypes, devices or places do not fit, values are negative or not finite,
            costs or budgets are negative, or shares are outside of [0, 1]. Also if a budget does
            not hold the pinned items, what they require and their headers.
    """
    if pinned is None:
        pinned = torch.zeros_like(values, dtype=torch.bool)
    if requires is None:
        requires = torch.zeros(3, 0, dtype=torch.int64, device=values.device)
    check_problem(values, costs, budget, pinned, requires)
    if overlap is not None:
        check_overlap(overlap, values)
    check_count("work", work, 0)
    check_count("tile", tile)
    if header is None or header_costs is None:
        header, header_costs = torch.full_like(costs, -1, dtype=torch.int64), costs[:, :0]
    count, more = values.shape[1], header_costs.shape[1]
    values, costs, budget = values.double(), costs.long(), budget.long()
    if requires.shape[1] and more:  # treats headers as needed items
        row, item = (header >= 0).nonzero(as_tuple=True)
        under = torch.stack([row, item, count + header[row, item]])
        requires = torch.cat([requires, under], dim=1)
        values, pinned = (torch.nn.functional.pad(part, (0, more)) for part in (values, pinned))
        costs = torch.cat([costs, header_costs], dim=1)
        header, header_costs = torch.full_like(costs, -1), header_costs[:, :0]
    problem, inside = lay_out(
        values, costs, budget, pinned, requires, overlap, header, header_costs
    )
    if problem.plain and not header_costs.shape[1]:
        best = knapsack(problem.values, problem.costs, problem.room)
        mask, bound = best.mask, best.upper_bound
    else:
        width = values.shape[1] + problem.item.shape[1] + problem.worse.shape[1]
        height = max(1, tile // max(1, width))
        if len(values) <= height:
            mask, bound = _solve(problem, work, gap)
        else:
            tiles = torch.arange(len(values), device=values.device).split(height)
            parts = [_solve(problem.rows(at), work, gap) for at in tiles]
            mask, bound = (torch.cat(column) for column in zip(*parts, strict=True))
    cost = budget - problem.room + problem.cost(mask)
    value = problem.constant + problem.worth(mask)
    bound = torch.maximum(problem.constant + bound, value)
    exact = bound <= value + _ROUNDING * bound
    bound = torch.where(exact, value, bound)
    return Selection((mask | inside)[:, :count], value, cost, bound, exact)


@dataclass(frozen=True, eq=False)
class _RelaxedSelection:
    """Relaxation at a price of a token: f(S) <= constant + sum of u over S for every S.

    Attributes:
        values: u, `[B, n]` float64, of any sign.
        constant: Constant of the bound, `[B]`.
        profit: u minus the price of the item's tokens, `[B, n]`.
        surplus: Profit of the items under each header minus its own price, `[B, h + 1]`. Deviating
            from the headers above 0 lowers the bound by the |surplus| of each changed header.
        bound: Upper bound of the value of any selection, `[B]`.
        price: Price of a token, `[B]`.
        paid: Items that are worth their price, alone or with what they were handed, `[B, n]` bool.
    """

    values: Tensor
    constant: Tensor
    profit: Tensor
    surplus: Tensor
    bound: Tensor
    price: Tensor
    paid: Tensor

    def rows(self, at: Tensor) -> _RelaxedSelection:
        """Return the relaxations of these rows."""
        return _RelaxedSelection(*(part[at] for part in vars(self).values()))


def _solve(problem: Problem, work: int, gap: float) -> tuple[Tensor, Tensor]:
    """Return mask and upper bound of each row."""
    relaxed = _relax(problem)
    full, headers = relaxed.bound, problem.header_costs.shape[1] - 1
    base = relaxed.surplus > 0
    base[:, headers] = True
    fits = torch.where(base, problem.header_costs, 0).sum(1) <= problem.room
    none = torch.zeros_like(base)
    none[:, headers] = True
    opened = torch.where(fits[:, None], base, none)
    every = torch.arange(len(full), device=full.device)
    keep = (problem.values > 0) | (relaxed.values > 0)
    mask, most = _packed(problem, relaxed, every, opened, keep)
    if not problem.plain:
        mask = _improved(problem, relaxed, opened, mask, work)
    value = problem.worth(mask)
    off = relaxed.surplus[:, :headers].abs()
    left = off.amin(1) if headers else torch.full_like(full, torch.inf)
    most = torch.where(fits, torch.maximum(most, full - left), full)
    bound = torch.maximum(torch.minimum(full, most), value)
    for few, sets in _TRIED if headers else ():
        at = (bound > value * (1.0 + gap) + _ROUNDING * bound).nonzero()[:, 0]
        sets = min(sets, work)
        if not sets or not len(at):
            break
        some, relaxation = problem.rows(at), relaxed.rows(at)
        short = full[at] - value[at]
        row, opened, left = _doubted(off[at], base[at], short, few, sets)
        fitting = torch.where(opened, some.header_costs[row], 0).sum(1) <= some.room[row]
        row, opened = row[fitting], opened[fitting]
        # An item of negative profit lowers the bound by as much.
        keep = relaxation.profit >= -short[:, None] - _ROUNDING * full[at, None]
        found, most = _packed(some, relaxation, row, opened, keep)
        worth = some.rows(row).worth(found)
        nothing = torch.full_like(short, -torch.inf)
        best = nothing.scatter_reduce(0, row, worth, "amax")
        won = ((worth == best[row]) & (worth > value[at][row])).nonzero()[:, 0]
        mask[at[row[won]]] = found[won]
        value[at] = torch.maximum(value[at], best)
        # Tried sets are bounded by what was found, all others by what they are off.
        tried = nothing.scatter_reduce(0, row, most, "amax")
        most = torch.maximum(torch.maximum(tried, full[at] - left), value[at])
        bound[at] = torch.minimum(bound[at], most)
    return mask, bound


def _relax(problem: Problem) -> _RelaxedSelection:
    """Find the price of the lowest bound, and return the relaxation there.

    The bound is convex in the price, so the next price is where the tangents at both ends meet. The
    first ones are densities instead: down to them, items use the tokens the last price left over.
    """
    room = problem.room.double()
    density, order = (problem.values / problem.costs.clamp(min=1)).sort(
        dim=1, descending=True, stable=True
    )
    if not order.shape[1]:
        return _priced(problem, torch.zeros_like(room))

    def tangent(price: Tensor) -> Tensor:  # [B] -> [4, B]: price, bound, slope, where it meets 0
        at = _priced(problem, price)
        headed = at.surplus > 0
        chosen = problem.opened((at.profit > 0) & headed.gather(1, problem.header))
        spent = (problem.costs * chosen).sum(1) + (problem.header_costs * headed).sum(1)
        slope = room - spent
        return torch.stack([price, at.bound, slope, at.bound - slope * price])

    spent, target = problem.costs.gather(1, order).cumsum(1).double(), room
    none, high = torch.zeros_like(room), density[:, 0]
    low, high = tangent(none), torch.stack([high, high * room, room, none])
    best = low[:2]
    for step in range(_STEPS):
        (cheap, _, falling, left), (dear, _, rising, right) = low.unbind(), high.unbind()
        meet = (left - right) / (rising - falling)
        # With needs the bound is only nearly convex: the price is kept in the interval.
        price = meet = torch.where((meet > cheap) & (meet < dear), meet, (cheap + dear) / 2)
        if step < _GUESSES:
            place = torch.searchsorted(spent, target[:, None]).clamp_(max=order.shape[1] - 1)
            guess = density.gather(1, place)[:, 0]
            price = torch.where((guess > cheap) & (guess < dear), guess, meet)
        at = tangent(price)
        best = torch.where(at[1] < best[1], at[:2], best)
        near = best[1] * (1.0 - _SETTLED) <= left + falling * meet
        if bool((near | (falling >= 0)).all()):
            break
        target, over = target + _BEYOND * at[2], at[2] < 0
        low, high = torch.where(over, at, low), torch.where(over, high, at)
    return _priced(problem, best[0])


def _priced(problem: Problem, price: Tensor) -> _RelaxedSelection:
    """Return the relaxation at a price of a token `[B]`.

    Near-duplicates: items are grouped around their best. Item i of a group loses at least its
    minimum share s_i with the better members if one is in. So the group is worth at most
    sum v_i (1 - s_i) + max v_i s_i, and that maximum at most theta + sum (v_i s_i - theta)^+ for
    any theta >= 0. At price p the best is the group's second largest min(v_i s_i, v_i - p c_i).

    Requirements: an item may hand value to what it needs (x_need - x_item >= 0 times any
    multiplier). Items worth their price hand their surplus to needs that are not, as in a maximum
    flow (Picard 1976).
    """
    asked, alone, constant = price[:, None] * problem.costs, problem.values, torch.zeros_like(price)
    if problem.worse.shape[1]:
        claim = torch.minimum(problem.shared, alone - asked).clamp(min=0)
        top = _second(claim, problem.group)
        above = (problem.shared - top.gather(1, problem.group)).clamp(min=0)
        alone, constant = alone - problem.shared + above, top.sum(1)
    values, paid = alone, alone >= asked
    if problem.item.shape[1]:
        flow, paid = _handed(problem, alone - asked)
        values = alone.scatter_add(1, problem.item, -flow).scatter_add(1, problem.need, flow)
    profit = values - asked
    surplus = -price[:, None] * problem.header_costs
    surplus = surplus.scatter_add(1, problem.header, profit.clamp(min=0))
    bound = constant + surplus.clamp(min=0).sum(1) + price * problem.room
    return _RelaxedSelection(values, constant, profit, surplus, bound, price, paid)


def _second(claim: Tensor, group: Tensor) -> Tensor:  # [B, n], [B, n] -> [B, n]
    """Return the second largest claim of each group, at the place that names the group."""
    width = claim.shape[1]
    place = torch.arange(width, device=claim.device).expand_as(group)
    most = claim == largest(group, claim, claim).gather(1, group)
    holder = torch.full_like(group, width)
    holder.scatter_reduce_(1, group, torch.where(most, place, width), "amin")
    return largest(group, claim.masked_fill(holder.gather(1, group) == place, 0.0), claim)


def _handed(problem: Problem, profit: Tensor) -> tuple[Tensor, Tensor]:  # [B, R] >= 0, [B, n]
    """Return the value each requirement hands from item to need, and the items paid for then."""
    item, need = problem.item, problem.need
    none, slack = torch.zeros_like(profit), _PAID * profit.abs()
    flow = torch.zeros_like(item, dtype=profit.dtype)
    for _ in range(_PUSHES):
        surplus, short = profit.clamp(min=0), (-profit).clamp(min=0)
        wanted = short.gather(1, need).masked_fill(item == need, 0.0)
        rate = surplus / none.scatter_add(1, item, wanted).clamp(min=1e-300)
        offered = wanted * rate.clamp(max=1.0).gather(1, item)
        rate = short / none.scatter_add(1, need, offered).clamp(min=1e-300)
        step = offered * rate.clamp(max=1.0).gather(1, need)
        flow += step
        profit = profit.scatter_add(1, item, -step).scatter_add_(1, need, step)
    # Needs still short take the rest from their givers, which are not worth it without them.
    given = none.scatter_add(1, need, flow)
    rest = ((-profit).clamp(min=0) / given.clamp(min=1e-300)).masked_fill(given == 0, 0.0)
    return flow * (1.0 + rest.gather(1, need)), profit >= -slack


def _packed(
    problem: Problem,
    relaxed: _RelaxedSelection,
    row: Tensor,  # [M]
    opened: Tensor,  # [M, h + 1] bool, headers that fit
    keep: Tensor,  # [B, n] bool
) -> tuple[Tensor, Tensor]:  # [M, n], [M]
    """Return the best selections of rows under given headers, and bounds of all others there."""
    at, column = keep.nonzero(as_tuple=True)
    place, there = padded(at, (column, torch.ones_like(column)), len(keep))
    values = relaxed.values.gather(1, place).masked_fill(there == 0, 0.0)[row]
    values *= opened.gather(1, problem.header.gather(1, place)[row])
    left = problem.room[row] - torch.where(opened, problem.header_costs[row], 0).sum(1)
    found = knapsack(values, problem.costs.gather(1, place)[row], left)
    mask = torch.zeros(len(row), keep.shape[1], dtype=torch.bool, device=row.device)
    mask.scatter_reduce_(1, place[row], found.mask, "amax")
    mask = mask if problem.plain else problem.rows(row).closed(mask)
    return mask, relaxed.constant[row] + found.upper_bound


def _improved(
    problem: Problem, relaxed: _RelaxedSelection, opened: Tensor, mask: Tensor, work: int
) -> Tensor:  # [B, n] closed -> [B, n] closed
    """Improve a selection by those at other prices, by filling, and by exchanges.

    An exchange drops one of the items of lowest profit, with the items that need it, and fills the
    room with others.
    """
    none = torch.zeros_like(mask)
    for factor in _PRICES:
        other = _grounded(problem, _priced(problem, factor * relaxed.price), opened)
        mask = _better(problem, mask, _filled(problem, other, none))
    mask = _filled(problem, mask, none)
    count = min(work, _EXCHANGED, mask.shape[1])
    for _ in range(_EXCHANGES if count else 0):
        profit = relaxed.profit.masked_fill(~mask, torch.inf)
        item = profit.topk(count, dim=1, largest=False)[1].flatten()[:, None]
        row = torch.arange(len(mask), device=mask.device).repeat_interleave(count)
        some, dropped = problem.rows(row), torch.zeros_like(mask[row]).scatter_(1, item, True)
        dropped |= largest(some.item, dropped.gather(1, some.need), dropped)
        other = _filled(some, some.closed(mask[row] & ~dropped), dropped)
        best = some.worth(other).view(-1, count).argmax(1)
        other = other.view(-1, count, mask.shape[1])[torch.arange(len(best)), best]
        mask = _better(problem, mask, other)
    return mask


def _better(problem: Problem, mask: Tensor, other: Tensor) -> Tensor:  # [B, n] each
    """Return the more valuable of two selections for each row."""
    return torch.where((problem.worth(other) > problem.worth(mask))[:, None], other, mask)


def _grounded(
    problem: Problem, relaxed: _RelaxedSelection, opened: Tensor
) -> Tensor:  # [B, n], closed
    """Return the best selection from the items that the relaxation pays for.

    Needed items whose price was handed over are fixed. The rest is a knapsack of the items that
    need nothing more. The best of several near-duplicates represents them.
    """
    real = problem.item != problem.need
    given = largest(problem.need, real, relaxed.paid) & relaxed.paid
    given &= ~largest(problem.item, ~given.gather(1, problem.need) & real, given)
    opened = opened | problem.headed(given)
    left = problem.room - torch.where(opened, problem.header_costs, 0).sum(1)
    fits = (torch.where(given, problem.costs, 0).sum(1) <= left)[:, None]
    given &= fits
    ready = ~largest(problem.item, ~given.gather(1, problem.need) & real, given) & fits
    place = torch.arange(problem.group.shape[1], device=ready.device)
    values = torch.where(problem.group == place, problem.values, problem.values - problem.shared)
    values = values * (ready & opened.gather(1, problem.header))
    found = knapsack(values, problem.costs, left.clamp(min=0), required=given)
    return problem.closed(found.mask)


def _filled(problem: Problem, mask: Tensor, barred: Tensor) -> Tensor:  # [B, n] each -> closed
    """Add items that are not barred to a selection while its value grows.

    Each round is a knapsack over bundles: an item with its missing needs, valued by their gain.
    Overlapping bundles count shared needs twice, so the choice always fits. The next round spends
    the tokens left over.
    """
    real = problem.item != problem.need
    for _ in range(_FILLS):
        lost = problem.lost(mask)
        further = (problem.share - lost.gather(1, problem.worse)).clamp(min=0)
        harm = further * (problem.values * mask).gather(1, problem.worse)
        gain = (problem.values * (1.0 - lost)).scatter_add(1, problem.better, -harm)
        headers = torch.where(problem.headed(mask), 0, problem.header_costs)
        cost = problem.costs + headers.gather(1, problem.header)
        gain, cost = gain.masked_fill(mask, 0.0), cost.masked_fill(mask, 0)
        bundle, tokens = (
            each.scatter_add(1, problem.item, torch.where(real, each.gather(1, problem.need), 0))
            for each in (gain, cost)
        )
        room = problem.room - problem.cost(mask)
        bundle = bundle.masked_fill(mask | barred | (tokens > room[:, None]), 0.0)
        more = problem.closed(problem.opened(mask | knapsack(bundle, tokens, room).mask))
        grown = _better(problem, mask, more)
        if torch.equal(grown, mask):
            break
        mask = grown
    return mask


def _doubted(
    off: Tensor,  # [B, h] decrease of the bound if a header is decided otherwise
    base: Tensor,  # [B, h + 1] bool
    short: Tensor,  # [B]
    few: int,
    sets: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [M] rows, [M, h + 1] bool, [B]
    """Return the sets of headers that could be better, and the minimum decrease of all others.

    There are at most `sets` for a row, from the `few` headers of smallest decrease.
    """
    least, which = off.topk(min(few + 1, off.shape[1]), dim=1, largest=False)
    beyond = least[:, few] if least.shape[1] > few else torch.full_like(short, torch.inf)
    least, which = least[:, :few], which[:, :few]
    code = torch.arange(1 << least.shape[1], device=off.device)[:, None]
    flips = (code >> torch.arange(least.shape[1], device=off.device)) % 2 == 1  # [2^u, u]
    total = torch.where(flips, least[:, None], 0.0).sum(2)  # [B, 2^u]
    ranked, order = total.topk(min(sets + 1, total.shape[1]), dim=1, largest=False)
    if ranked.shape[1] > sets:
        beyond = torch.minimum(beyond, ranked[:, sets])
    row, place = (ranked[:, :sets] < short[:, None]).nonzero(as_tuple=True)
    toggled = torch.zeros_like(base[row]).scatter(1, which[row], flips[order[row, place]])
    return row, base[row] ^ toggled, beyond
