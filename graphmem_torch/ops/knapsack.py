"""knapsack: the most valuable items that fit a budget of tokens, exactly."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_entries, check_matrix, check_tensor
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register

__all__ = ["Packing", "knapsack", "knapsack_reference"]

_log = logging.getLogger(__name__)

_TOKENS = 1 << 40  # costs of a row: sums of two rows' worth stay whole numbers in float64
_ROWS, _CELLS = 1024, 1 << 24  # rows and items solved side by side: 128 MB an intermediate
_TABLE = 1 << 27  # cells of the tables that are held at once: 128 MB
_START, _STARTS = 11, 3  # items of least loss whose subsets are all made at the start; how often
_CORE = 32  # items of the first table
_NEVER = 1e300  # loss of an item that is not to be moved; finite, so that 0 times it is 0
_ROUNDING = 1e-13  # of the bound: a selection better by less than this is no better
_WHOLE, _SLIP = 2.0**36, 1e-3  # whole values up to here are told apart, with this much rounding


@dataclass(frozen=True, eq=False)
class Packing:
    """What `knapsack` chose for each of B questions.

    Attributes:
        mask: The chosen items, `[B, n]` bool.
        value: Their value, `[B]` float64.
        cost: Their cost, `[B]` int64 tokens, never above the budget.
        upper_bound: No selection is worth more, `[B]` float64; equals `value` where exact.
        exact: Whether the selection is proven to be the best, `[B]` bool.
    """

    mask: Tensor
    value: Tensor
    cost: Tensor
    upper_bound: Tensor
    exact: Tensor

    @property
    def gap(self) -> Tensor:  # [B]
        """Value that a better selection could have more at most; 0 where exact."""
        return self.upper_bound - self.value


def knapsack(
    values: Tensor,  # [B, n]
    costs: Tensor,  # [B, n] integer tokens, >= 0
    budget: Tensor,  # [B] integer tokens, >= 0
    *,
    required: Tensor | None = None,  # [B, n] bool
    work: int = 100_000_000,
) -> Packing:
    """The most valuable items of each row whose costs fit its budget (`docs/mathematics.md` 6).

    Items that cost nothing and are worth something are always chosen, items worth nothing or less
    only where they are required. The fractional optimum decides nearly all items; of those that it
    decides least surely all subsets are made, and where that proves nothing a table over tokens of
    the core decides (Balas and Zemel 1980); all rows side by side. For many budgets of one
    question, expand it: `knapsack(values.expand(B, -1), costs.expand(B, -1), budgets)`.

    Args:
        values: Finite, far below 1e300. Computed in float64: a selection counts as best if none
            is better by more than 1e-13 of the bound.
        costs: At most 2^40 / n tokens.
        budget: Of any size.
        required: Items that are chosen whatever they are worth.
        work: Table cells (a byte each, some nanoseconds) that a row may need. Where it needs more,
            the best selection found is returned with its bound, `exact` False and a warning.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, values that are not finite,
            negative costs or budgets, values that require a gradient, or required items that alone
            exceed the budget of their row.
    """
    _check(values, costs, budget, required)
    check_count("work", work, 0)
    mask, value, cost, bound, exact = _knapsack(values, costs, budget, required, work)
    if not torch.compiler.is_compiling() and not bool(exact.all()):
        gap = ((bound - value) / bound.abs())[~exact].max()
        _log.warning(
            "knapsack left %d of %d questions unproven, up to %.1e of the value short: raise work",
            int((~exact).sum()),
            len(exact),
            float(gap),
        )
    return Packing(mask, value, cost, bound, exact)


def knapsack_reference(
    values: Tensor,  # [B, n]
    costs: Tensor,  # [B, n] int64
    budget: Tensor,  # [B] int64
    required: Tensor | None = None,  # [B, n] bool
) -> Tensor:  # [B, n] bool
    """`knapsack` as the table over items and tokens that textbooks give; n * B * max budget cells.

    best(j, w) = max(best(j - 1, w), best(j - 1, w - c_j) + v_j) (Bellman 1957).
    """
    if required is None:
        required = torch.zeros_like(costs, dtype=torch.bool)
    left = budget - torch.where(required, costs, 0).sum(1)
    room = torch.arange(int(left.max()) + 1 if len(left) else 0, device=values.device)
    best = values.new_zeros((len(left), len(room)), dtype=torch.float64)
    taken = []
    for value, cost, always in zip(values.T, costs.T, required.T, strict=True):
        before = (room - cost[:, None]).clamp(min=0)
        joined = best.gather(1, before) + value[:, None]
        better = (room >= cost[:, None]) & (joined > best) & ~always[:, None]
        best = torch.where(better, joined, best)
        taken.append(better)
    mask = required.clone()
    for at in reversed(range(len(taken))):
        chosen = taken[at].gather(1, left[:, None])[:, 0]
        mask[:, at] |= chosen
        left = left - torch.where(chosen, costs[:, at], 0)
    return mask


def _check(values: Tensor, costs: Tensor, budget: Tensor, required: Tensor | None) -> None:
    check_matrix("values", values, "[B, n]")
    shape, device = values.shape, values.device
    do = "round costs up and the budget down, a row each, where the values are"
    check_tensor("costs", costs, "integers", shape, do, device=device)
    check_tensor("budget", budget, "integers", shape[:1], do, device=device)
    if required is not None:
        do = "compare or call .bool(), where the values are"
        check_tensor("required", required, "bool", shape, do, device=device)


def _run(
    values: Tensor, costs: Tensor, budget: Tensor, required: Tensor | None, work: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    worth, tokens = values.double(), costs.double()
    _check_data(worth, tokens, budget)
    room = budget
    if required is not None:
        needed = torch.where(required, costs, 0).sum(1)
        room = budget - needed
        if bool((room < 0).any()):
            row = int((room < 0).nonzero()[0])
            raise InputError(
                f"budget: expected {int(needed[row])} tokens for the required items of row {row}, "
                f"got {int(budget[row])}; raise it or require fewer"
            )
    room = room.double().clamp(max=_TOKENS)
    fixed = (worth <= 0).logical_or_(tokens > room[:, None])
    if required is not None:
        fixed |= required
    if values.numel() == 0:
        mask, bound, exact = fixed, room * 0, room >= 0
    else:
        height = max(1, min(_ROWS, _CELLS // values.shape[1]))
        tiles = (part.split(height) for part in (worth, tokens, fixed, room))
        parts = [_solve(w, t, f, r, work) for w, t, f, r in zip(*tiles, strict=True)]
        mask, bound, exact = (torch.cat(column) for column in zip(*parts, strict=True))
    if required is not None:
        bound += (worth * required).sum(1)
        mask |= required
    value, cost = (worth * mask).sum(1), (costs * mask).sum(1, dtype=torch.int64)
    return mask, value, cost, torch.where(exact, value, torch.maximum(bound, value)), exact


def _check_data(worth: Tensor, tokens: Tensor, budget: Tensor) -> None:
    if len(budget) and int(budget.amin()) < 0:
        raise InputError(
            f"budget: expected at least 0, got {int(budget.amin())}; clamp it or give a larger one"
        )
    if not worth.numel():
        return
    if not isfinite(float(worth.sum())):  # the sum of anything infinite or NaN is no number
        raise InputError("values: expected finite numbers, got others; drop or repair those items")
    do = "repair them or count in a coarser unit"
    check_entries("costs", tokens, 0, _TOKENS // tokens.shape[1], do)


@dataclass(frozen=True, eq=False)
class _Relaxed:
    """The fractional optimum, seen from the whole items in it (the split solution).

    A selection that differs from the split solution in a set F of items is worth
    `bound - sum of loss over F - price * (what it leaves of the room)`: to find the best one is to
    find the F of least loss that fits, and every item whose loss alone exceeds that of a known
    selection keeps its side. Dantzig 1957; Dembo and Hammer 1980.

    Attributes:
        inside: The split solution, `[B, n]` bool.
        change: Tokens that moving an item takes, below 0 where it gives some back, `[B, n]`
            float64 (whole numbers); 0 where it is never moved.
        loss: |value - price * cost|, `[B, n]`; `_NEVER` where the item is never moved.
        price: Value of one more token at the fractional optimum, `[B]`.
        slack: Tokens the split solution leaves, `[B]`.
        bound: Value of the fractional optimum, `[B]`.
    """

    inside: Tensor
    change: Tensor
    loss: Tensor
    price: Tensor
    slack: Tensor
    bound: Tensor


@dataclass(frozen=True, eq=False)
class _Best:
    """The best selection so far of every row; written to as better ones are found.

    Attributes:
        moved: Where it differs from the split solution, `[B, n]` bool.
        loss: What it falls short of the fractional bound, `[B]`.
        room: Tokens it leaves, `[B]`; not kept beyond the start.
        target: How much less the loss of a better one must be, `[B]`.
    """

    moved: Tensor
    loss: Tensor
    room: Tensor
    target: Tensor

    def wanted(self, rows: Tensor) -> Tensor:
        """A better selection of these rows loses less than this."""
        return self.loss[rows] - self.target[rows]


def _solve(
    worth: Tensor, tokens: Tensor, fixed: Tensor, room: Tensor, work: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask, bound and exactness of some rows."""
    relaxed = _relax(worth, tokens, fixed, room)
    # Between whole values lies nothing: a better selection is better by 1.
    whole = (worth == worth.floor()).all(1) & (relaxed.bound < _WHOLE)
    best = _Best(
        moved=torch.zeros_like(relaxed.inside),
        loss=relaxed.price * relaxed.slack,
        room=relaxed.slack.clone(),
        target=relaxed.bound * _ROUNDING + (1 - _SLIP) * whole,
    )
    rows = _start(relaxed, best)
    exact = torch.ones_like(whole)
    exact[_tabulate(relaxed, best, rows, work)] = False
    bound = torch.where(whole, (relaxed.bound + _SLIP).floor(), relaxed.bound)
    return relaxed.inside ^ best.moved, bound, exact


def _relax(
    values: Tensor,  # [B, n] float64
    costs: Tensor,  # [B, n] float64, whole numbers
    fixed: Tensor,  # [B, n] bool: never taken, or decided elsewhere
    room: Tensor,  # [B] float64
) -> _Relaxed:
    """Takes items by falling value / cost as long as they fit, and a part of the next."""
    # What is worth something and costs nothing has an infinite density and comes first.
    density = (values / costs).masked_fill_(fixed, -1.0)
    costs = costs.masked_fill(fixed, 0.0)
    ranked, order = density.sort(dim=1, descending=True)
    ordered = costs.gather(1, order)
    spent = ordered.cumsum(1)
    count = torch.searchsorted(spent, room[:, None], right=True)  # [B, 1] whole items that fit
    place = torch.arange(spent.shape[1], device=spent.device)
    inside = torch.empty_like(fixed).scatter_(1, order, place < count).logical_and_(~fixed)
    last = count.clamp(max=spent.shape[1] - 1)
    price = ranked.gather(1, last).masked_fill_(count > last, 0.0)  # 0: all of them fit
    slack = room - (spent.gather(1, last) - ordered.gather(1, last))[:, 0]
    loss = torch.addcmul(values, costs, price, value=-1).abs_().masked_fill_(costs == 0, _NEVER)
    price = price[:, 0]
    bound = torch.addcmul((values * inside).sum(1), price, slack)
    return _Relaxed(inside, torch.where(inside, -costs, costs), loss, price, slack, bound)


def _start(relaxed: _Relaxed, best: _Best) -> Tensor:  # [R]
    """Tries all subsets of the items of least loss; returns the rows where that proves nothing.

    There the next items follow, as many of the split solution as beside it.
    """
    width, device = relaxed.loss.shape[1], relaxed.loss.device
    loss, item = relaxed.loss.topk(min(_START + 1, width), dim=1, largest=False)
    beyond = loss[:, -1] if width > _START else torch.full_like(best.loss, _NEVER)
    loss, item = loss[:, :_START], item[:, :_START]
    untried, rows = relaxed.loss, torch.arange(len(loss), device=device)
    for turn in range(_STARTS):
        if turn:
            half, inside = min(_START // 2, width), relaxed.inside[rows]
            sides = [
                untried.masked_fill(other, _NEVER).topk(half, dim=1, largest=False)
                for other in (inside, ~inside)
            ]
            loss, item = (torch.cat(both, dim=1) for both in zip(*sides, strict=True))
        subsets = _subsets(item.shape[1], device)
        weights = subsets.T.double()
        price, before = relaxed.price[rows], best.room[rows]
        room = before[:, None] - relaxed.change[rows[:, None], item] @ weights
        total = (best.loss[rows] - price * before)[:, None] + loss @ weights + price[:, None] * room
        best.loss[rows], code = total.masked_fill_(room < 0, _NEVER).min(1)
        best.room[rows] = room.gather(1, code[:, None])[:, 0]
        moved = best.moved[rows]
        best.moved[rows] = moved.scatter(1, item, moved.gather(1, item) | subsets[code])
        open_ = best.wanted(rows) > beyond[rows]
        if not bool(open_.any()):
            return rows[open_]
        untried, rows = untried.scatter(1, item, _NEVER)[open_], rows[open_]
    return rows


@cache
def _subsets(count: int, device: torch.device) -> Tensor:  # [2^count, count] bool
    code = torch.arange(1 << count, device=device)[:, None]
    return ((code >> torch.arange(count, device=device)) & 1).bool()


def _tabulate(
    relaxed: _Relaxed,
    best: _Best,
    rows: Tensor,  # [R]
    work: int,
) -> Tensor:  # [Q]
    """Proves the best selection of these rows; returns those that need over `work` cells.

    Cell (item, room) says whether moving the item is the cheapest way to leave that room. Items of
    the split solution go out first, so the room never falls below 0; how far it can grow before
    the losses exceed the best selection's is a fractional knapsack again, and far less than the
    budget. The core, the items of least loss, grows fourfold until what lies outside loses more
    than the best selection.
    """
    unproven = [rows[:0]]
    count, width = _CORE, relaxed.loss.shape[1]
    while rows.numel():
        loss, item = relaxed.loss[rows].topk(min(count, width), dim=1, largest=False)
        change, wanted = relaxed.change[rows].gather(1, item), best.wanted(rows)
        beyond = torch.full_like(wanted, _NEVER) if count >= width else loss[:, -1]
        size = relaxed.slack[rows] + _most_room(loss, change, wanted) + 1
        affordable = size * (loss < wanted[:, None]).sum(1) <= work
        unproven.append(rows[~affordable])
        at = affordable.nonzero()[:, 0]
        if at.numel():
            cells = int(size[at].max()) * loss.shape[1]
            for part in at.split(max(1, _TABLE // cells)):
                extent = int(size[part].max())
                _table(relaxed, best, rows[part], loss[part], change[part], item[part], extent)
        at = at[best.wanted(rows[at]) > beyond[at]]
        rows = rows[at]
        count *= 4
    return torch.cat(unproven)


def _most_room(loss: Tensor, change: Tensor, wanted: Tensor) -> Tensor:  # [R]
    """Tokens that can be freed before the loss reaches `wanted`: a fractional knapsack."""
    usable = (change < 0) & (loss < wanted[:, None])
    freed = torch.where(usable, -change, 0.0)
    rate, order = torch.where(usable, loss / freed, _NEVER).sort(dim=1)
    loss = torch.where(usable, loss, 0.0).gather(1, order).cumsum(1)
    pad = torch.nn.functional.pad
    freed = pad(freed.gather(1, order).cumsum(1), (1, 0))
    fit = torch.searchsorted(loss, wanted[:, None], right=True)
    left = wanted[:, None] - pad(loss, (1, 0)).gather(1, fit)
    part = left / pad(rate, (0, 1), value=_NEVER).gather(1, fit)
    return (freed.gather(1, fit) + part)[:, 0].clamp(max=freed[:, -1]).ceil()


def _table(
    relaxed: _Relaxed,
    best: _Best,
    rows: Tensor,  # [R]
    loss: Tensor,  # [R, K]
    change: Tensor,  # [R, K]
    item: Tensor,  # [R, K]
    size: int,
) -> None:
    """The best moves within the core, for rooms below `size`."""
    usable = (loss < best.wanted(rows)[:, None]) & (change.abs() < size)
    order = torch.where(usable, change, torch.inf).argsort(dim=1)  # what frees room goes first
    order = order[:, : int(usable.sum(1).max())]
    usable, item = usable.gather(1, order), item.gather(1, order)
    change = torch.where(usable, change.gather(1, order), 0.0).long()
    loss = torch.where(usable, loss.gather(1, order), _NEVER)
    length, height, device = order.shape[1], len(rows), rows.device
    margin = int(change.abs().max()) if length else 0
    least = loss.new_full((height, size + 2 * margin), torch.inf)
    inner = least[:, margin : margin + size]
    inner.scatter_(1, relaxed.slack[rows].long()[:, None], 0.0)
    place = torch.arange(margin, margin + size, device=device).expand(height, size)
    moved = torch.zeros((length, height, size), dtype=torch.bool, device=device)
    single = change[0].tolist() if height == 1 else None
    for at in range(length):
        if single is None:
            candidate = least.gather(1, place + change[:, at, None])
        else:  # a slice costs a fifth of a gather
            candidate = least[:, margin + single[at] : margin + single[at] + size]
        candidate = candidate + loss[:, at, None]
        torch.lt(candidate, inner, out=moved[at])
        torch.minimum(candidate, inner, out=inner)
    room = torch.arange(size, device=device)
    total, left = (inner + relaxed.price[rows, None] * room).min(1)
    better = (total < best.loss[rows]).nonzero()[:, 0]
    best.loss[rows[better]] = total[better]
    best.moved[rows[better]] = False
    # From move to move, all rows at once: which item was the last to make this room.
    room, end = left[better], torch.full_like(better, length)
    step = torch.arange(length, device=device)[:, None]
    while better.numel():
        last = torch.where(moved[:, better, room] & (step < end), step, -1).amax(0)
        found = last >= 0
        better, room, end = better[found], room[found], last[found]
        best.moved[rows[better], item[better, end]] = True
        room = room + change[better, end]


def _fake(values: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = values.shape[:1]
    return (
        values.new_empty(values.shape, dtype=torch.bool),
        values.new_empty(rows, dtype=torch.float64),
        values.new_empty(rows, dtype=torch.int64),
        values.new_empty(rows, dtype=torch.float64),
        values.new_empty(rows, dtype=torch.bool),
    )


_knapsack = register(
    "knapsack(Tensor values, Tensor costs, Tensor budget, Tensor? required, int work)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _run,
    fake=_fake,
)
