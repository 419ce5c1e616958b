"""What the fractional knapsack knows: an upper bound, and what leaving it costs, item by item."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["NEVER", "Core", "Relaxation", "relax"]

NEVER = 1e300  # loss of an item that is not to be moved; finite, so that 0 times it is 0


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The fractional optimum, seen from the whole items in it (the split solution).

    A selection that differs from the split solution in a set F of items is worth
    `bound - sum of loss over F - price * (what it leaves of the room)`: to find the best one is to
    find the F of least loss that fits, and every item whose loss alone exceeds that of a known
    selection keeps its side. Dantzig 1957; Dembo and Hammer 1980.

    Attributes:
        inside: The split solution, `[B, n]` bool.
        costs: Cost of each item, `[B, n]` float64 (whole numbers); 0 where it is never moved.
        loss: |value - price * cost|, `[B, n]`; `NEVER` where the item is never moved.
        price: Value of one more token at the fractional optimum, `[B]`.
        slack: Tokens the split solution leaves, `[B]`; more than 0 where everything fits.
        bound: Value of the fractional optimum, `[B]`.
    """

    inside: Tensor
    costs: Tensor
    loss: Tensor
    price: Tensor
    slack: Tensor
    bound: Tensor

    def core(self, rows: Tensor | None, count: int) -> Core:
        """The `count` items of least loss of each of these rows (all of them for None)."""
        loss, price, slack, costs, inside = (
            part if rows is None else part[rows]
            for part in (self.loss, self.price, self.slack, self.costs, self.inside)
        )
        least, item = loss.topk(min(count, loss.shape[1]), dim=1, largest=False)
        change = costs.gather(1, item)
        change = torch.where(inside.gather(1, item), -change, change)
        return Core(item, least, change, price, slack)


@dataclass(frozen=True, eq=False)
class Core:
    """The items of least loss, `[R, K]` each, that of least loss first.

    Attributes:
        item: Which they are.
        loss: As in `Relaxation`.
        change: Tokens that moving the item takes, below 0 where it gives some back.
        price: As in `Relaxation`, `[R]`.
        slack: Likewise.
    """

    item: Tensor
    loss: Tensor
    change: Tensor
    price: Tensor
    slack: Tensor

    def rows(self, at: Tensor) -> Core:
        """The core of these rows alone."""
        parts = (self.item, self.loss, self.change, self.price, self.slack)
        return Core(*(part[at] for part in parts))


def relax(
    values: Tensor,  # [B, n] float64
    costs: Tensor,  # [B, n] float64, whole numbers
    fixed: Tensor,  # [B, n] bool: never taken, or decided elsewhere
    room: Tensor,  # [B] float64
) -> Relaxation:
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
    loss = torch.addcmul(values, costs, price, value=-1).abs_().masked_fill_(costs == 0, NEVER)
    price = price[:, 0]
    bound = torch.addcmul((values * inside).sum(1), price, slack)
    return Relaxation(inside, costs, loss, price, slack, bound)
