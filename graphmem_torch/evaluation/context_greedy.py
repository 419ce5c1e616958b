"""Baselines of selection: the longest prefix of a ranking, and ContextOS's published greedy."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fill_by_density", "prefix"]


def prefix(
    ranking: Tensor,  # [B, L] candidates, best first, -1 = nothing there
    costs: Tensor,  # [B, L] tokens of each, where it stands in the ranking
    budgets: Tensor,  # [K] tokens
    num_candidates: int,
) -> Tensor:  # [B, K, N] bool
    """Top-k truncation: as many of the best as fit, up to the first that does not."""
    there = ranking >= 0
    spent = costs.masked_fill(~there, 0).cumsum(1)
    fits = there[:, None] & (spent[:, None] <= budgets[:, None])  # [B, K, L]
    # The last column takes what is not there.
    chosen = torch.zeros(*fits.shape[:2], num_candidates + 1, dtype=torch.bool)
    slots = ranking.masked_fill(~there, num_candidates)[:, None].expand_as(fits)
    return chosen.scatter_(2, slots, fits)[:, :, :-1]


def fill_by_density(
    values: Tensor,  # [B, N] >= 0
    costs: Tensor,  # [N] tokens, > 0
    budgets: Tensor,  # [K] tokens
) -> Tensor:  # [B, K, N] bool
    """ContextOS's `FillKnapsack` (algorithm 1, lines 10 and 11): by falling value / cost.

    An item that does not fit is passed over. A round takes all of the next items up to the first
    that does not fit.
    """
    order = (values / costs).argsort(dim=1, descending=True, stable=True)  # [B, N]
    sorted_costs = costs[order]
    chosen = torch.stack([_fill(sorted_costs, int(budget)) for budget in budgets], dim=1)
    return torch.zeros_like(chosen).scatter_(2, order[:, None].expand_as(chosen), chosen)


def _fill(costs: Tensor, budget: int) -> Tensor:  # [B, N] in order -> [B, N] bool
    left = torch.full((len(costs), 1), budget)
    open_ = torch.ones_like(costs, dtype=torch.bool)
    chosen = torch.zeros_like(open_)
    while True:
        open_ &= costs <= left
        if not bool(open_.any()):
            return chosen
        spent = costs.where(open_, 0).cumsum(1)
        taken = open_ & (spent <= left)
        chosen |= taken
        left = left - costs.where(taken, 0).sum(1, keepdim=True)
        open_ &= ~taken
