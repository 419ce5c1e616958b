"""Arranging: chosen memories in the order in which they are read."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.context.order import topological_order
from graphmem_torch.context.relations import Relations
from graphmem_torch.errors import InputError

__all__ = ["ORDERS", "arrange", "check_order", "edges_among"]

ORDERS = ("relevance", "time", "topological")


def check_order(order: str) -> None:
    """Checks the name of an order.

    Raises:
        InputError: Another one.
    """
    if order not in ORDERS:
        raise InputError(f"order: expected one of {', '.join(ORDERS)}, got {order!r}")


def arrange(
    order: str,
    *,
    place: Tensor,  # [n] rank
    time: Tensor,  # [n] float64 seconds since the epoch UTC, NaN = unknown
    stored: Tensor,  # [n] int64, ascending in the order of storing
    edges: Tensor,  # [2, E] int64 what comes before, what comes after
) -> Tensor:  # [n] int64
    """The items, first to last.

    - `relevance`: best first.
    - `time`: earliest first. A memory without a time stands behind the one stored before it.
    - `topological`: what others depend on first, by time within that (`topological_order`).
    """
    if order == "relevance":
        return place.argsort(stable=True)
    known = _filled(time, stored)
    if order == "time":
        edges = edges[:, :0]
    return topological_order(edges, known, stored)


def edges_among(rows: Tensor, relations: Relations) -> Tensor:  # [n] -> [2, E]
    """The relations between these atoms, as places of what comes before and after."""
    if not len(relations):
        return rows.new_zeros(2, 0)
    after, first = relations.before(rows)
    ordered, place = rows.sort()
    at = torch.searchsorted(ordered, first).clamp(max=max(len(rows) - 1, 0))
    inside = ordered[at] == first if len(rows) else first < 0
    return torch.stack([place[at[inside]], after[inside]])


def _filled(time: Tensor, stored: Tensor) -> Tensor:
    """Times, the unknown ones taken from what was stored before; -inf where nothing was."""
    sequence = stored.argsort()
    ordered = time[sequence]
    last = torch.where(ordered.isnan(), -1, torch.arange(len(time))).cummax(0).values
    filled = torch.where(last < 0, -torch.inf, ordered[last.clamp(min=0)])
    return torch.empty_like(time).scatter_(0, sequence, filled)
