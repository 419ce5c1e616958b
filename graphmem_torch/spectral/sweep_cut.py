"""sweep_cut: the best of all cuts along an order of the nodes, in every component at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SweepCut", "sweep_cut"]


class SweepCut(NamedTuple):
    """The best cut of every component.

    Attributes:
        side: `[N]` bool, which nodes lie on the side of the small values.
        conductance: `[C]` float64, weight of the cut over the smaller volume; inf where no cut is
            allowed.
    """

    side: Tensor
    conductance: Tensor


def sweep_cut(
    low: Tensor,  # [M] int64
    high: Tensor,  # [M] int64
    weight: Tensor,  # [M], > 0
    component: Tensor,  # [N] int64 in 0..C-1
    value: Tensor,  # [N]
    *,
    count: int,
    min_size: int = 1,
) -> SweepCut:
    """Of all cuts {value <= t} of each component, the one of least conductance.

    Cheeger's inequality: along any vector of Rayleigh quotient ρ of the normalised Laplacian
    (divided by √d) it is at most √(2 ρ) (Chung 1997, theorem 2.2; Spielman and Teng 2007).

    Args:
        low: Undirected edges, inside components.
        high: Their other ends.
        weight: Of the edges.
        component: Of every node.
        value: What the nodes are ordered by.
        count: C.
        min_size: Nodes that each side must have at least.
    """
    nodes, device = component.shape[0], component.device
    order = torch.argsort(value, stable=True)
    order = order[torch.argsort(component[order], stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(nodes, device=device)
    exact = weight.double()
    degree = exact.new_zeros(nodes).index_add_(0, low, exact).index_add_(0, high, exact)
    first, last = torch.minimum(place[low], place[high]), torch.maximum(place[low], place[high])
    # Every edge is cut between its two ends; components are contiguous, so sums cancel at borders.
    step = exact.new_zeros(nodes).index_add_(0, first, exact).index_add_(0, last, -exact)
    cut = step.cumsum(0).clamp(min=0)
    owner = component[order]
    size = torch.bincount(component, minlength=count)
    start = size.cumsum(0) - size
    running = degree[order].cumsum(0)
    before = torch.cat([running.new_zeros(1), running])[start]
    volume = degree.new_zeros(count).index_add_(0, component, degree)
    below = running - before[owner]
    rank = torch.arange(nodes, device=device) - start[owner] + 1
    smaller = torch.minimum(below, volume[owner] - below)
    allowed = (rank >= min_size) & (size[owner] - rank >= max(min_size, 1)) & (smaller > 0)
    conductance = torch.where(allowed, cut / smaller, torch.inf)
    best = conductance.new_full((count,), torch.inf)
    best = best.scatter_reduce(0, owner, conductance, "amin")
    at = torch.where((conductance == best[owner]) & allowed, rank, nodes + 1)
    split = size.new_full((count,), nodes + 1).scatter_reduce(0, owner, at, "amin")
    side = torch.zeros(nodes, dtype=torch.bool, device=device)
    side[order] = (rank <= split[owner]) & (split[owner] <= nodes)
    return SweepCut(side, best)
