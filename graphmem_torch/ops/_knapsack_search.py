"""Exact search of the core: every set of items whose loss is below that of the best selection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from graphmem_torch.ops._knapsack_bounds import NEVER, Core, Relaxation
from graphmem_torch.ops.ragged import ranges

__all__ = ["Incumbent", "search", "start"]

_START = 11  # items of least loss whose subsets are all made at the start
_HEAD = 9  # and those whose subsets are kept as a sorted list: no more than _START
_SETS = 1 << 21  # of all rows at one level: 80 MB
_FIRST = 32  # core of the first round
_SLIP = 1e-9  # rounding of a loss relative to the reach: sets this far beyond it are made as well


@dataclass(frozen=True, eq=False)
class Incumbent:
    """The best selection so far of every row; written to as better ones are found.

    Attributes:
        moved: Where it differs from the split solution, `[B, n]` bool.
        loss: What it falls short of the fractional bound, `[B]`.
        target: How much less the loss of a better one must be, `[B]`.
    """

    moved: Tensor
    loss: Tensor
    target: Tensor

    def wanted(self, rows: Tensor) -> Tensor:
        """A better selection of these rows loses less than this."""
        return self.loss[rows] - self.target[rows]


@dataclass(frozen=True, eq=False)
class _Head:
    """All subsets of the first items of the core, cheapest first; for each room the best of them.

    Attributes:
        spent: Tokens of each subset, `[R, S]` ascending; each row is `span` above the one before.
        best: Least loss - price * tokens among the first i, `[R, S + 1]`; `NEVER` for i = 0.
        code: Which subset that is, its items as bits, `[R, S + 1]`.
        span: Beyond what the tokens of any two sets of a row differ by.
    """

    spent: Tensor
    best: Tensor
    code: Tensor
    span: Tensor


@dataclass(frozen=True, eq=False)
class _Level:
    """Sets of items beyond the head: row, last item (its place in the flat core), sums, parent."""

    row: Tensor
    last: Tensor
    loss: Tensor
    spent: Tensor
    parent: Tensor


def start(relaxation: Relaxation, target: Tensor) -> tuple[Incumbent, Tensor]:
    """The best subset of the items of least loss, and the rows where that proves nothing."""
    core = relaxation.core(None, _START + 1)
    count = min(_START, core.loss.shape[1])
    least, code = _subsets(core, count)[2].min(1)
    moved = torch.zeros_like(relaxation.inside)
    moved.scatter_(1, core.item[:, :count], _bits(count, least.device)[0][code])
    wanted = least - target
    open_ = wanted > (core.loss[:, -1] if core.loss.shape[1] > count else NEVER)
    return Incumbent(moved, least, target), open_.nonzero()[:, 0]


def search(
    relaxation: Relaxation,
    incumbent: Incumbent,
    rows: Tensor,  # [R]
    limit: int,
) -> Tensor:  # [Q]
    """Proves the best selection of these rows, and returns those where it cannot.

    A selection that loses less than L moves only items that lose less than L, and their losses add
    up: the sets of such items are few (like the partitions of a number into distinct parts), and
    they are made level by level, one item more each, for all rows at once. L doubles until the
    best selection found loses less than L. The subsets of the nine items of least loss come as a
    sorted list, and every other set looks up the best of them for the room it leaves (Horowitz and
    Sahni 1974; the core of Balas and Zemel 1980).

    Args:
        relaxation: Of all rows.
        incumbent: Written to.
        rows: Which to look at.
        limit: Sets a row may make at one level; a row with more is given up.
    """
    if not rows.numel():
        return rows
    parts = rows.split(max(1, _SETS // limit))
    return torch.cat([_prove(relaxation, incumbent, part, limit) for part in parts])


def _prove(relaxation: Relaxation, incumbent: Incumbent, rows: Tensor, limit: int) -> Tensor:
    unproven = [rows[:0]]
    rows = rows[incumbent.wanted(rows) > 0]
    core = relaxation.core(rows, _FIRST)
    reach = core.loss[:, -1]
    while rows.numel():
        wanted = incumbent.wanted(rows)
        # A core of nothing but zero losses must not stop the doubling.
        reach = torch.minimum(wanted, torch.maximum(reach, wanted / 64))
        needed = int((relaxation.loss[rows] < reach[:, None]).sum(1).max())
        if needed > core.loss.shape[1] or len(core.loss) != len(rows):
            core = relaxation.core(rows, max(needed, _START))
        given_up = _round(core, rows, reach, incumbent, limit)
        wanted = incumbent.wanted(rows)
        unproven.append(rows[given_up & (wanted > 0)])
        again = (~given_up & (wanted > reach)).nonzero()[:, 0]
        rows, reach = rows[again], 2 * reach[again]
    return torch.cat(unproven)


def _round(
    core: Core, rows: Tensor, reach: Tensor, incumbent: Incumbent, limit: int
) -> Tensor:  # [R] bool
    """Makes every set that loses less than `reach`; True for the rows that have too many."""
    head = _make_head(core)
    width, height = core.loss.shape[1], core.loss.shape[0]
    # Losses of all rows in one ascending list: row r of the core lies between 2 r and 2 r + 1.5.
    step = 2 * torch.arange(height, dtype=reach.dtype, device=rows.device)
    ladder = (core.loss / reach[:, None]).clamp_(max=1.5).add_(step[:, None]).flatten()
    loss, change = core.loss.flatten(), core.change.flatten()
    given_up = torch.zeros_like(reach, dtype=torch.bool)
    row = torch.arange(height, device=rows.device)
    none = torch.zeros_like(reach)
    level = _Level(row, row * width + _HEAD - 1, none, none, row)  # the empty set of every row
    levels: list[_Level] = []
    while level.row.numel():
        levels.append(level)
        _improve(core, rows, levels, head, incumbent)
        row, last = level.row, level.last
        room = torch.minimum(incumbent.wanted(rows), reach)[row] - level.loss
        end = torch.searchsorted(ladder, room / reach[row] + (step[row] + _SLIP))
        children = (end - last - 1).clamp_(min=0)
        total = int(children.sum())
        if total > limit:
            each = torch.zeros_like(rows).index_add_(0, row, children)
            given_up |= each > limit
            children[given_up[row]] = 0
            total = int(children.sum())
        parent, last = ranges(last + 1, children, total=total)
        level = _Level(
            row[parent],
            last,
            level.loss[parent] + loss[last],
            level.spent[parent] + change[last],
            parent,
        )
    return given_up


def _improve(
    core: Core, rows: Tensor, levels: list[_Level], head: _Head, incumbent: Incumbent
) -> None:
    """Joins each set of the last level with the best subset of the head that still fits."""
    level = levels[-1]
    row = level.row
    room = core.slack[row] - level.spent
    size = head.spent.shape[1]
    found = torch.searchsorted(head.spent.flatten(), room + head.span[row], right=True)
    found += row  # a row of `best` is one longer
    loss = level.loss + core.price[row] * room + head.best.flatten()[found]
    before = incumbent.loss[rows]
    least = before.scatter_reduce(0, row, loss, "amin")
    better = least < before
    if not bool(better.any()):
        return
    incumbent.loss[rows] = least
    winners = (loss == least[row]).logical_and_(better[row]).nonzero()[:, 0]
    one = torch.zeros_like(rows)
    one[row[winners]] = winners  # any one of a row's equals
    local = better.nonzero()[:, 0]
    one = one[local]
    bits, _ = _bits(size.bit_length() - 1, row.device)
    moved = torch.zeros_like(incumbent.moved[rows[local]])
    moved.scatter_(1, core.item[local, : bits.shape[1]], bits[head.code.flatten()[found[one]]])
    items = core.item.flatten()
    for made in reversed(levels[1:]):
        moved.scatter_(1, items[made.last[one]][:, None], True)
        one = made.parent[one]
    incumbent.moved[rows[local]] = moved


def _make_head(core: Core) -> _Head:
    loss, spent, _ = _subsets(core, _HEAD)
    spent, order = spent.sort(dim=1)
    best, place = (loss.gather(1, order) - core.price[:, None] * spent).cummin(1)
    code = order.gather(1, place)
    extent = 2 * core.change.abs().sum(1).max() + core.slack.max() + 1
    span = extent * torch.arange(len(spent), device=spent.device)
    pad = torch.nn.functional.pad
    return _Head(spent.add_(span[:, None]), pad(best, (1, 0), value=NEVER), pad(code, (1, 0)), span)


def _subsets(core: Core, count: int) -> tuple[Tensor, Tensor, Tensor]:  # each [R, 2^count]
    """Loss, tokens and, with the room it leaves, total loss of every subset of the first items."""
    _, weights = _bits(count, core.loss.device)
    loss = core.loss[:, :count] @ weights
    spent = core.change[:, :count] @ weights
    room = core.slack[:, None] - spent
    total = torch.addcmul(loss, core.price[:, None], room).masked_fill_(room < 0, NEVER)
    return loss, spent, total


@cache
def _bits(count: int, device: torch.device) -> tuple[Tensor, Tensor]:  # [2^count, count], its .T
    """Every subset of `count` items, as bool rows and as float64 columns."""
    code = torch.arange(1 << count, device=device)[:, None]
    bits = (code >> torch.arange(count, device=device)) & 1
    return bits.bool(), bits.T.double().contiguous()
