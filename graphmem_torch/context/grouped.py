"""Selection of items under headers: what a group costs once, whatever it holds."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.context._instance import padded
from graphmem_torch.context.select import Selection
from graphmem_torch.ops import knapsack
from graphmem_torch.ops._knapsack_bounds import relax
from graphmem_torch.ops._knapsack_search import start as first_of

__all__ = ["select_grouped"]

_PRICES = 24  # tried at once for a token; the range shrinks twelvefold each round
_NARROWED = 4
_CELLS = 1 << 18  # floats of a tile (rows x prices x items), so that it stays in cache
# Headers of a question that are decided by trying, and sets of them that are tried: at first, and
# for those questions that are still open then.
_TRIED = ((4, 8), (8, 32))
_ROUNDING = 1e-12


def select_grouped(
    values: Tensor,  # [B, n] float64, >= 0
    costs: Tensor,  # [B, n] int64 tokens
    header: Tensor,  # [B, n] int64 place of the header of each item, -1 = none
    prices: Tensor,  # [B, h] int64 tokens of each header
    room: Tensor,  # [B] int64 tokens, enough for the pinned items
    pinned: Tensor,  # [B, n] bool
    *,
    gap: float = 0.0,
) -> Selection:  # of items, then headers
    """The most valuable items that fit together with the headers they stand under.

    It is the knapsack with setups. With the headers given it is a plain knapsack, solved exactly;
    which they are, Lagrange tells nearly: at a price of a token, a group is worth what its items
    are worth beyond their price, less the price of its header, and taking those above 0 bounds
    everything (Geoffrion 1974). Every other set of headers falls short of the bound by what its
    groups are off, so that few are left to try, those that could still be better than the best one
    known. `exact` says that none is left; where a choice is proven to be short of the best by no
    more than the share `gap` of its value, none is tried.

    The same problem as `select` solves with headers as required items, for a tenth of the time.
    """
    count, number = len(room), prices.shape[1]
    gap = gap if number else 0.0  # a plain knapsack costs little
    slot = torch.where(header < 0, number, header)
    forced = torch.zeros(count, number + 1, dtype=torch.int64).scatter_add(1, slot, pinned.long())
    forced = forced > 0
    price = torch.nn.functional.pad(prices, (0, 1))
    free = room - torch.where(pinned, costs, 0).sum(1) - torch.where(forced, price, 0).sum(1)
    price = price.masked_fill(forced, 0)
    forced[:, number] = True  # items without a header
    worth = values.masked_fill(pinned | (costs > free[:, None]), 0.0)
    full, surplus, toll = _relaxed(worth, costs, slot, price, free)
    bound = full.clone()
    problem = _Problem(worth, costs, slot, price, free)

    start = (surplus > 0) | forced
    short = torch.where(start, price, 0).sum(1) > free
    start = torch.where(short[:, None], forced, start)
    value, mask = problem.guessed(start)
    problem, place = problem.reduced(toll, full - value + _ROUNDING * full)
    off = torch.where(forced, torch.inf, surplus.abs())[:, :number]
    base = (surplus > 0) | forced
    for few, sets in _TRIED:
        open_ = bound > value + (_ROUNDING * bound + gap * value)
        if not bool(open_.any()):
            break
        short = torch.where(open_, full - value, 0.0)
        row, opened, left = _doubted(off, base, short, few, sets)
        found, masks, most = problem.solved(row, opened)
        better = torch.full_like(value, -torch.inf).scatter_reduce(0, row, found, "amax")
        at = (found == better[row]) & (found > value[row])
        mask[row[at]] = torch.zeros_like(mask[row[at]]).scatter_reduce_(
            1, place[row[at]], masks[at], "amax"
        )
        value = torch.maximum(value, better)
        # Of the sets that were tried the bound is what was found, of the others what they are off.
        tried = torch.full_like(bound, -torch.inf).scatter_reduce(0, row, most, "amax")
        most = torch.maximum(torch.maximum(value, tried), full - left)
        bound = torch.where(open_, torch.minimum(bound, most), bound)
    exact = bound <= value + _ROUNDING * bound

    mask |= pinned
    under = torch.zeros(count, number + 1, dtype=torch.int64).scatter_add(1, slot, mask.long())
    headed = under[:, :number] > 0
    fixed = torch.where(pinned, values, 0.0).sum(1)
    total = torch.where(mask, costs, 0).sum(1) + torch.where(headed, prices, 0).sum(1)
    bound = torch.where(exact, value, bound)
    return Selection(torch.cat([mask, headed], dim=1), value + fixed, total, bound + fixed, exact)


class _Problem:
    """Rows whose headers may be given."""

    def __init__(
        self, worth: Tensor, costs: Tensor, slot: Tensor, price: Tensor, free: Tensor
    ) -> None:
        self._worth, self._costs, self._slot = worth, costs, slot
        self._price, self._free = price, free

    def reduced(self, toll: Tensor, gap: Tensor) -> tuple[_Problem, Tensor]:  # [B], [B]
        """The items that something better may hold, and their places [B, m].

        What is worth less than its tokens cost takes off the bound by as much where it is in.
        """
        short = toll[:, None] * self._costs - self._worth
        place, there = _gathered((self._worth > 0) & (short <= gap[:, None]))
        worth, costs, slot = (
            part.gather(1, place) for part in (self._worth, self._costs, self._slot)
        )
        return _Problem(worth * there, costs, slot, self._price, self._free), place

    def guessed(self, opened: Tensor) -> tuple[Tensor, Tensor]:
        """Value and mask of a good choice of each row under headers [B, h + 1] that fit."""
        if not self._worth.numel():
            return self._worth.sum(1), self._worth > 0
        left = self._free - torch.where(opened, self._price, 0).sum(1)
        inside = opened.gather(1, self._slot)
        fixed = ~inside | (self._worth <= 0) | (self._costs > left[:, None])
        relaxed = relax(self._worth, self._costs.double(), fixed, left.double())
        found, _ = first_of(relaxed, torch.zeros_like(relaxed.bound))
        mask = relaxed.inside ^ found.moved
        return (self._worth * mask).sum(1), mask

    def solved(self, row: Tensor, opened: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Value, mask and bound of rows [M] under headers [M, h + 1]; -inf: they do not fit."""
        left = self._free[row] - torch.where(opened, self._price[row], 0).sum(1)
        inside = opened.gather(1, self._slot[row])
        found = knapsack(self._worth[row] * inside, self._costs[row], left.clamp(min=0))
        lost = left < 0
        return (
            found.value.masked_fill(lost, -torch.inf),
            found.mask,
            found.upper_bound.masked_fill(lost, -torch.inf),
        )


def _relaxed(
    worth: Tensor, costs: Tensor, slot: Tensor, price: Tensor, free: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # [B], [B, h + 1], [B]
    """The least bound of any price of a token, what groups are worth beyond it, and the price."""
    tile = max(1, _CELLS // max(1, _PRICES * worth.shape[1]))
    tiles = (part.split(tile) for part in (worth, costs, slot, price, free))
    parts = [_relaxed_tile(*rows) for rows in zip(*tiles, strict=True)]
    bound, surplus, toll = (torch.cat(column) for column in zip(*parts, strict=True))
    return bound, surplus, toll


def _relaxed_tile(
    worth: Tensor, costs: Tensor, slot: Tensor, price: Tensor, free: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dense = (worth / costs.clamp(min=1)).amax(1) if worth.shape[1] else worth.sum(1)
    low, high = torch.zeros_like(dense), dense
    step = torch.linspace(0.0, 1.0, _PRICES, dtype=torch.float64)
    weight, cost = price.double(), costs.double()
    for turn in range(_NARROWED):
        # Prices of short lists of large items lie near 0.
        at = step**3 if turn == 0 else step
        tried = low[:, None] + (high - low)[:, None] * at
        gain = torch.addcmul(worth[:, None], tried[:, :, None], cost[:, None], value=-1.0)
        gain.clamp_(min=0.0)
        whole = -tried[:, :, None] * weight[:, None]
        whole = whole.scatter_add(2, slot[:, None].expand_as(gain), gain)
        total = tried * free[:, None] + whole.clamp(min=0.0).sum(2)
        bound, best = total.min(dim=1)
        ends = torch.stack([best - 1, best + 1], dim=1).clamp(0, _PRICES - 1)
        low, high = tried.gather(1, ends).unbind(1)
        if turn == 0:  # what is worth no token at the lowest price left never counts again
            place, there = _gathered(worth > low[:, None] * cost)
            worth, cost, slot = (part.gather(1, place) for part in (worth, cost, slot))
            worth = worth * there
    surplus = whole.gather(1, best[:, None, None].expand(-1, 1, whole.shape[2]))[:, 0]
    return bound, surplus, tried.gather(1, best[:, None])[:, 0]


def _gathered(keep: Tensor) -> tuple[Tensor, Tensor]:  # [B, n] -> [B, m], [B, m]
    """Places of what is kept, padded with 0, and where they are no padding."""
    row, column = keep.nonzero(as_tuple=True)
    place, there = padded(row, (column, torch.ones_like(column)), len(keep))
    return place, there


def _doubted(
    off: Tensor,  # [B, h] what deciding each header otherwise takes off the bound
    base: Tensor,  # [B, h + 1] bool
    gap: Tensor,  # [B]
    few: int,
    sets: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [M] rows, [M, h + 1] bool, [B]
    """The sets of headers that could be better; and what all others are off at least.

    At most `sets` a row, of the `few` headers that are in doubt most.
    """
    few = min(off.shape[1], few)
    least, which = off.topk(min(few + 1, off.shape[1]), dim=1, largest=False)
    beyond = least[:, few] if least.shape[1] > few else torch.full_like(gap, torch.inf)
    least, which = least[:, :few], which[:, :few]
    flips = (torch.arange(1 << few)[:, None] >> torch.arange(few)) % 2 == 1  # [2^u, u]
    total = torch.where(flips, least[:, None], 0.0).sum(2)  # [B, 2^u]
    ranked, order = total.topk(min(sets + 1, total.shape[1]), dim=1, largest=False)
    if ranked.shape[1] > sets:
        beyond = torch.minimum(beyond, ranked[:, sets])
    row, place = (ranked[:, :sets] < gap[:, None]).nonzero(as_tuple=True)
    opened = base[row]
    toggled = torch.zeros_like(opened).scatter(1, which[row], flips[order[row, place]])
    return row, opened ^ toggled, beyond
