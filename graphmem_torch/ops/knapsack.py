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

_TOKENS = 1 << 40  # total cost of a row: sums of two rows stay exact in float64
_ROWS, _CELLS = 1024, 1 << 24  # rows and items solved side by side: 128 MB per temporary
_TABLE = 1 << 27  # maximum cells of the tables held at once: 128 MB
_START, _STARTS = 11, 3  # items of least loss whose subsets are all tried at the start; repetitions
_CORE = 32  # items of the first table
_NEVER = 1e300  # loss of an item that never moves; finite, so that 0 times it is 0
_ROUNDING = 1e-13  # of the bound: a smaller improvement does not count
_WHOLE, _SLIP = 2.0**36, 1e-3  # maximum whole values compared exactly, and their rounding


@dataclass(frozen=True, eq=False)
class Packing:
    """Result of `knapsack` for B questions.

    Attributes:
        mask: Chosen items, `[B, n]` bool.
        value: Value of the chosen items, `[B]` float64.
        cost: Cost of the chosen items, `[B]` int64 tokens, at most the budget.
        upper_bound: Maximum value of any selection, `[B]` float64; equals `value` if exact.
        exact: Whether the selection is proven optimal, `[B]` bool.
    """

    mask: Tensor
    value: Tensor
    cost: Tensor
    upper_bound: Tensor
    exact: Tensor

    @property
    def gap(self) -> Tensor:  # [B]
        """Maximum value by which a better selection could exceed this one; 0 if exact."""
        return self.upper_bound - self.value


def knapsack(
    values: Tensor,  # [B, n]
    costs: Tensor,  # [B, n] integer tokens, >= 0
    budget: Tensor,  # [B] integer tokens, >= 0
    *,
    required: Tensor | None = None,  # [B, n] bool
    work: int = 100_000_000,
) -> Packing:
    """Return the most valuable items of each row that fit its budget (`docs/mathematics.md` 6).

    Items without cost and with positive value are always chosen; items without positive value only
    if required. The fractional optimum decides nearly all items. All subsets of the least certain
    items are tried. If that proves nothing, a table over tokens decides the core (Balas and Zemel
    1980). All rows run side by side. For many budgets of one question, expand it:
    `knapsack(values.expand(B, -1), costs.expand(B, -1), budgets)`.

    Args:
        values: Finite, far below 1e300. Computed in float64: a selection is optimal if none is
            better by more than 1e-13 of the bound.
        costs: Costs in tokens; each at most 2^40 / n.
        budget: Budget of each row in tokens; any size.
        required: Items that are always chosen.
        work: Maximum table cells of a row (a byte and some nanoseconds each). A row that needs more
            returns the best selection found and its bound, with `exact` False and a warning.

    Raises:
        InputError: Shapes, dtypes or devices do not fit, values are not finite, costs or budgets
            are negative, values require a gradient, or required items exceed a budget.
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
    """`knapsack` by the textbook table over items and tokens; n * B * max budget cells.

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
    if not isfinite(float(worth.sum())):  # one infinity or NaN makes the sum infinite or NaN
        raise InputError("values: expected finite numbers, got others; drop or repair those items")
    do = "repair them or count in a coarser unit"
    check_entries("costs", tokens, 0, _TOKENS // tokens.shape[1], do)


@dataclass(frozen=True, eq=False)
class _Relaxed:
    """Fractional optimum, relative to its whole items (the split solution).

    A selection that differs from the split solution in a set F of items is worth `bound - sum of
    loss over F - price * (unused room)`. So the best selection is the F of least loss that fits. An
    item whose loss alone exceeds that of a known selection keeps its side. Dantzig 1957; Dembo and
    Hammer 1980.

    Attributes:
        inside: Split solution, `[B, n]` bool.
        change: Tokens that moving an item takes, negative if it frees tokens, `[B, n]` float64
            (whole numbers); 0 for items that never move.
        loss: |value - price * cost|, `[B, n]`; `_NEVER` for items that never move.
        price: Value of one more token at the fractional optimum, `[B]`.
        slack: Unused tokens of the split solution, `[B]`.
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
    """Best selection of every row so far; overwritten by better ones.

    Attributes:
        moved: Items in which it differs from the split solution, `[B, n]` bool.
        loss: Difference between the fractional bound and its value, `[B]`.
        room: Unused tokens, `[B]`; valid only at the start.
        target: Minimum decrease of loss that counts as better, `[B]`.
    """

    moved: Tensor
    loss: Tensor
    room: Tensor
    target: Tensor

    def wanted(self, rows: Tensor) -> Tensor:
        """Return the loss below which a selection of these rows is better."""
        return self.loss[rows] - self.target[rows]


def _solve(
    worth: Tensor, tokens: Tensor, fixed: Tensor, room: Tensor, work: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mask, bound and exactness of some rows."""
    relaxed = _relax(worth, tokens, fixed, room)
    # Whole values differ by at least 1, so a better selection is better by 1.
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
    """Take items by decreasing value / cost while they fit, and a fraction of the next."""
    # Items with value and without cost have infinite density and come first.
    density = (values / costs).masked_fill_(fixed, -1.0)
    costs = costs.masked_fill(fixed, 0.0)
    ranked, order = density.sort(dim=1, descending=True, stable=True)
    ordered = costs.gather(1, order)
    spent = ordered.cumsum(1)
    count = torch.searchsorted(spent, room[:, None], right=True)  # [B, 1] whole items that fit
    place = torch.arange(spent.shape[1], device=spent.device)
    inside = torch.empty_like(fixed).scatter_(1, order, place < count).logical_and_(~fixed)
    last = count.clamp(max=spent.shape[1] - 1)
    price = ranked.gather(1, last).masked_fill_(count > last, 0.0)  # 0 if all items fit
    slack = room - (spent.gather(1, last) - ordered.gather(1, last))[:, 0]
    loss = torch.addcmul(values, costs, price, value=-1).abs_().masked_fill_(costs == 0, _NEVER)
    price = price[:, 0]
    bound = torch.addcmul((values * inside).sum(1), price, slack)
    return _Relaxed(inside, torch.where(inside, -costs, costs), loss, price, slack, bound)


def _start(relaxed: _Relaxed, best: _Best) -> Tensor:  # [R]
    """Try all subsets of the items of least loss; return the rows where that proves nothing.

    Those rows continue with the next items, half of them from the split solution.
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
    """Prove the best selection of these rows; return those that need more than `work` cells.

    Cell (item, room) says whether moving the item is the cheapest way to leave that room. Items of
    the split solution leave first, so the room is never negative. A fractional knapsack bounds the
    room before the losses exceed those of the best selection, far below the budget. The core, the
    items of least loss, grows fourfold until every item outside it loses more than that.
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
    """Return the tokens that can be freed before the loss is `wanted`: a fractional knapsack."""
    usable = (change < 0) & (loss < wanted[:, None])
    freed = torch.where(usable, -change, 0.0)
    rate, order = torch.where(usable, loss / freed, _NEVER).sort(dim=1, stable=True)
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
    """Return the best moves within the core, for rooms below `size`."""
    usable = (loss < best.wanted(rows)[:, None]) & (change.abs() < size)
    # What frees room comes first.
    order = torch.where(usable, change, torch.inf).argsort(dim=1, stable=True)
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
    # Walk back over the moves, all rows at once: find the last item that made this room.
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
