"""Requirements followed to their ends: everything that an item brings with it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.ops.ragged import row_entries

__all__ = ["closure_of", "reachable"]


def reachable(
    start: Tensor,  # [N] bool
    source: Tensor,  # [E] int64
    target: Tensor,  # [E] int64
) -> Tensor:  # [N] bool
    """The nodes that the edges lead to from any of these, themselves included.

    One round for each step of the longest way.
    """
    found = start.clone()
    while True:
        fresh = target[found[source] & ~found[target]]
        if not len(fresh):
            return found
        found[fresh] = True


def closure_of(
    source: Tensor,  # [E] int64: this needs
    target: Tensor,  # [E] int64: that
    cost: Tensor,  # [N] int64 tokens
    room: Tensor,  # [N] int64 tokens that are left for the closure of each
) -> tuple[Tensor, Tensor, Tensor]:  # [R] int64, [R] int64, [N] bool
    """Every pair (item, what it needs directly or not), and the items that cannot be afforded.

    The items of a cycle need each other. Ways double in length each round, so there are about
    log2(longest way) rounds. An item whose closure costs more than its room is impossible, and so
    is what needs it; their pairs are dropped on the way, so that no more is listed than fits.

    Returns:
        Item and need of each pair, sorted, without an item's need of itself; which are impossible.
    """
    nodes = len(cost)
    impossible = cost > room
    key = torch.unique((source * nodes + target)[source != target])
    while True:
        item, need = key // nodes, key % nodes
        spent = cost.clone().index_add_(0, item, cost[need])
        impossible = impossible | (spent > room)
        lost = impossible.clone()
        lost[item[impossible[need]]] = True
        impossible = lost
        kept = ~impossible[item]
        key, item, need = key[kept], item[kept], need[kept]
        further = _joined(item, need, nodes)
        grown = torch.unique(torch.cat([key, further]))
        if len(grown) == len(key) and not bool(impossible[need].any()):
            return item, need, impossible
        key = grown


def _joined(item: Tensor, need: Tensor, nodes: int) -> Tensor:
    """Keys of the pairs (a, c) with (a, b) and (b, c) among these; `item` is sorted."""
    begin = offsets_of(torch.bincount(item, minlength=nodes))
    pair, place = row_entries(begin, need)
    key = item[pair] * nodes + need[place]
    return key[item[pair] != key % nodes]
