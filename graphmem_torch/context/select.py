"""Selection under a token budget: greedy by value per token."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["select_by_density"]


def select_by_density(
    values: Tensor,  # [n] >= 0
    costs: Tensor,  # [n] int64 tokens, > 0
    budget: int,
) -> Tensor:  # [n] bool
    """Takes items by falling value / cost as long as they fit; never above the budget.

    The better of that and the single most valuable item that fits, which is at least half of the
    optimum (Dantzig 1957). Items that do not fit are passed over; later, smaller ones may still be
    taken.

    Raises:
        InputError: A negative budget, value or cost.
    """
    if budget < 0:
        raise InputError(f"budget must be at least 0 tokens, got {budget}")
    if values.shape != costs.shape or values.dim() != 1:
        raise InputError(
            f"expected one cost for each value, got {list(values.shape)} values and "
            f"{list(costs.shape)} costs"
        )
    if bool((values < 0).any()) or bool((costs <= 0).any()):
        raise InputError(
            "expected values of at least 0 and costs above 0; drop items that cost nothing"
        )
    budget = min(budget, 2**62)  # what int64 can be compared with
    order = torch.sort(values / costs, descending=True, stable=True).indices
    chosen = torch.zeros(len(values), dtype=torch.bool)
    left = budget
    for place, cost in zip(order.tolist(), costs[order].tolist(), strict=True):
        if cost <= left:
            chosen[place] = True
            left -= cost
    fits = costs <= budget
    if bool(fits.any()):
        best = int(torch.where(fits, values, -1.0).argmax())
        if values[best] > values[chosen].sum():
            chosen[:] = False
            chosen[best] = True
    return chosen
