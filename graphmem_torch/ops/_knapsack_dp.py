"""Exact table over tokens for the cores that are too dense to search set by set."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._knapsack_bounds import NEVER, Core, Relaxation
from graphmem_torch.ops._knapsack_search import Incumbent

__all__ = ["tabulate"]

_FIRST = 64  # core of the first table
_TABLE = 1 << 27  # cells of the tables that are held at once: 128 MB


def tabulate(
    relaxation: Relaxation,
    incumbent: Incumbent,
    rows: Tensor,  # [R]
    work: int,
) -> Tensor:  # [Q]
    """Proves the best selection of these rows; returns those that need over `work` cells.

    Cell (item, room) says whether moving the item is the cheapest way to leave that room. Items of
    the split solution go out first, so the room never falls below 0; how far it can grow before
    the losses exceed the best selection's is a fractional knapsack again, and far less than the
    budget. The core grows fourfold until what lies outside loses more than the best selection.
    """
    unproven = [rows[:0]]
    count = _FIRST
    while rows.numel():
        core, wanted = relaxation.core(rows, count), incumbent.wanted(rows)
        everything = count >= relaxation.loss.shape[1]
        reach = torch.full_like(wanted, NEVER) if everything else core.loss[:, -1]
        size = core.slack + _most_room(core, wanted) + 1
        length = (core.loss < wanted[:, None]).sum(1)
        affordable = size * length <= work
        unproven.append(rows[~affordable])
        at = affordable.nonzero()[:, 0]
        if at.numel():
            cells = int(size[at].max()) * int(length[at].max())
            for part in at.split(max(1, _TABLE // max(1, cells))):
                _table(core.rows(part), rows[part], incumbent, int(size[part].max()))
        at = at[incumbent.wanted(rows[at]) > reach[at]]
        rows = rows[at]
        count *= 4
    return torch.cat(unproven)


def _most_room(core: Core, wanted: Tensor) -> Tensor:
    """Tokens that can be freed before the loss reaches `wanted`: a fractional knapsack, `[R]`."""
    freed = (-core.change).clamp(min=0)
    usable = (freed > 0) & (core.loss < wanted[:, None])
    freed = torch.where(usable, freed, 0.0)
    rate, order = torch.where(usable, core.loss / freed, NEVER).sort(dim=1)
    loss = torch.where(usable, core.loss, 0.0).gather(1, order).cumsum(1)
    freed = torch.nn.functional.pad(freed.gather(1, order).cumsum(1), (1, 0))
    fit = torch.searchsorted(loss, wanted[:, None], right=True)
    spent = torch.nn.functional.pad(loss, (1, 0)).gather(1, fit)
    rate = torch.nn.functional.pad(rate, (0, 1), value=NEVER).gather(1, fit)
    part = (wanted[:, None] - spent) / rate
    return (freed.gather(1, fit) + part)[:, 0].clamp(max=freed[:, -1]).ceil()


def _table(core: Core, rows: Tensor, incumbent: Incumbent, size: int) -> None:
    wanted = incumbent.wanted(rows)
    usable = (core.loss < wanted[:, None]) & (core.change.abs() < size)
    order = torch.where(usable, core.change, torch.inf).argsort(dim=1)  # what frees room goes first
    length = int(usable.sum(1).max())
    order = order[:, :length]
    usable = usable.gather(1, order)
    change = torch.where(usable, core.change.gather(1, order), 0.0).long()
    loss = torch.where(usable, core.loss.gather(1, order), NEVER)
    margin = int(change.abs().max()) if length else 0
    height = len(rows)
    least = loss.new_full((height, size + 2 * margin), torch.inf)
    inner = least[:, margin : margin + size]
    slack = core.slack.long()
    inner.scatter_(1, slack[:, None], 0.0)
    place = torch.arange(margin, margin + size, device=rows.device).expand(height, size)
    moved = torch.zeros((length, height, size), dtype=torch.bool, device=rows.device)
    single = change[0].tolist() if height == 1 else None
    for at in range(length):
        if single is None:
            source = least.gather(1, place + change[:, at, None])
        else:
            source = least[:, margin + single[at] : margin + single[at] + size]
        candidate = source + loss[:, at, None]
        torch.lt(candidate, inner, out=moved[at])
        torch.minimum(candidate, inner, out=inner)
    room = torch.arange(size, device=rows.device)
    total, left = (inner + core.price[:, None] * room).min(1)
    better = (total < incumbent.loss[rows]).nonzero()[:, 0]
    if better.numel():
        incumbent.loss[rows[better]] = total[better]
        incumbent.moved[rows[better]] = False
        item = core.item.gather(1, order)
        _walk_back(moved, change, item, rows, better, left[better], incumbent)


def _walk_back(
    moved: Tensor,  # [L, R, size]
    change: Tensor,  # [R, L]
    item: Tensor,  # [R, L]
    rows: Tensor,  # [R]
    better: Tensor,  # [Q]
    room: Tensor,  # [Q]
    incumbent: Incumbent,
) -> None:
    """From move to move, all rows at once: which item was the last to make this room."""
    end = torch.full_like(room, moved.shape[0])
    place = torch.arange(moved.shape[0], device=rows.device)[:, None]
    while better.numel():
        column = moved[:, better, room] & (place < end)
        last = torch.where(column, place, -1).amax(0)
        found = last >= 0
        better, room, end = better[found], room[found], last[found]
        incumbent.moved[rows[better], item[better, end]] = True
        room = room + change[better, end]
