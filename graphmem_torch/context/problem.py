"""Selection problems: checked, with transitive requirements, laid out as padded rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_entries, check_matrix, check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import ranges, row_entries

__all__ = [
    "Overlap",
    "Problem",
    "check_overlap",
    "check_problem",
    "largest",
    "lay_out",
    "padded",
    "reachable",
]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Near-duplicates: pairs of items with partly the same content.

    Attributes:
        row, item, other: Question and its two items, in either order, `[P]` int64.
        share: Part of the value of the worse item that the better one already provides, `[P]` in
            [0, 1]. Pairs that are not listed share nothing.
    """

    row: Tensor
    item: Tensor
    other: Tensor
    share: Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """Batch of B selection problems, without the items that are decided beforehand.

    Pairs are padded with places 0 and 0: an item that needs itself, or shares nothing with itself,
    changes nothing.

    Attributes:
        values: `[B, n]` float64; 0 for decided items.
        costs: `[B, n]` int64 tokens.
        header: `[B, n]` int64 place of its header, h = none.
        header_costs: `[B, h + 1]` int64 tokens; 0 for headers that are there already.
        room: `[B]` int64 tokens.
        constant: Value of the items that are in beforehand, `[B]`.
        item, need: Transitively closed requirements, `[B, R]` int64 places.
        worse, better: Near-duplicates, `[B, P]` int64 places; `worse` loses its share if
            `better` is in.
        share: `[B, P]` float64 in [0, 1].
        group: Better item that leads the group of each near-duplicate, `[B, n]` places.
        shared: Value that an item shares with every better one of its group, `[B, n]`.
    """

    values: Tensor
    costs: Tensor
    header: Tensor
    header_costs: Tensor
    room: Tensor
    constant: Tensor
    item: Tensor
    need: Tensor
    worse: Tensor
    better: Tensor
    share: Tensor
    group: Tensor
    shared: Tensor

    def rows(self, at: Tensor) -> Problem:
        """Return the problems of these rows."""
        return Problem(**{name: part[at] for name, part in vars(self).items()})

    @property
    def plain(self) -> bool:
        """Return whether there are neither requirements nor near-duplicates."""
        return not self.item.shape[1] and not self.worse.shape[1]

    def lost(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """Return the share of its value that each item loses, or would, beside the chosen ones."""
        return largest(self.worse, self.share * mask.gather(1, self.better), self.values)

    def worth(self, mask: Tensor) -> Tensor:  # [B, n] -> [B]
        """Return the value of a selection, less the losses of near-duplicates."""
        kept = self.values * (1.0 - self.lost(mask)) if self.worse.shape[1] else self.values
        return (kept * mask).sum(1)

    def cost(self, mask: Tensor) -> Tensor:  # [B, n] -> [B]
        """Return the tokens of a selection with its headers."""
        headers = torch.where(self.headed(mask), self.header_costs, 0).sum(1)
        return torch.where(mask, self.costs, 0).sum(1) + headers

    def headed(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, h + 1]
        """Return the headers of these items."""
        return largest(self.header, mask, self.header_costs > 0)

    def closed(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """Return the items of a selection that have value and all their needs in it."""
        missing = largest(self.item, ~mask.gather(1, self.need), mask)
        useful = mask & ~missing & (self.values * (1.0 - self.lost(mask & ~missing)) > 0)
        return self.opened(useful)

    def opened(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """Return these items with everything they need."""
        if not self.item.shape[1]:
            return mask
        return mask | largest(self.need, mask.gather(1, self.item), mask)


def lay_out(
    values: Tensor,
    costs: Tensor,
    budget: Tensor,
    pinned: Tensor,
    requires: Tensor,
    overlap: Overlap | None,
    header: Tensor,
    header_costs: Tensor,
) -> tuple[Problem, Tensor]:
    """Lay out the items left to decide, and return those that are in beforehand."""
    rows, width = values.shape
    row, item, need = requires
    source, target = row * width + item, row * width + need
    inside = reachable(pinned.flatten(), source, target).view(pinned.shape)
    header = torch.where(header < 0, header_costs.shape[1], header)
    header_costs = torch.nn.functional.pad(header_costs, (0, 1))
    forced = largest(header, inside, header_costs > 0)
    room = budget - torch.where(inside, costs, 0).sum(1) - (header_costs * forced).sum(1)
    _check_room(room, budget, inside, pinned)
    header_costs = header_costs.masked_fill(forced, 0)
    outside = (costs + header_costs.gather(1, header) > room[:, None]) & ~inside
    place = torch.arange(width, device=values.device).expand_as(costs)
    item = need = worse = better = place[:, :0]
    if requires.shape[1]:
        free = ~inside.flatten()
        left = free[source] & free[target]
        item, need, impossible = _closure(
            source[left],
            target[left],
            torch.where(inside, 0, costs).flatten(),
            room[:, None].expand_as(costs).flatten(),
        )
        outside |= impossible.view(outside.shape) & ~inside
        item, need = padded(item // width, (item % width, need % width), rows)
    share, group, shared = values[:, :0], place, values
    known = torch.zeros_like(values)
    if overlap is not None and len(overlap.row):
        rank = _rank(values, inside)
        worse, better, share = _pairs(overlap, rank, outside)
        # Items that are in beforehand take their share from the start.
        by_inside = inside.gather(1, better)
        known = largest(worse, share * by_inside, values)
        before = known.gather(1, worse)
        gone = by_inside | inside.gather(1, worse) | (share <= before)
        share = ((share - before) / (1.0 - before)).masked_fill(gone, 0.0)
        worth = (values * (1.0 - known)).masked_fill(inside | outside, 0.0)
        group, shared = _groups(worth, worse, better, share, rank)
    values = values * (1.0 - known)
    problem = Problem(
        values=values.masked_fill(inside | outside, 0.0),
        costs=costs.masked_fill(inside | outside, 0),
        header=header,
        header_costs=header_costs,
        room=room,
        constant=torch.where(inside, values, 0.0).sum(1),
        item=item,
        need=need,
        worse=worse,
        better=better,
        share=share,
        group=group,
        shared=shared,
    )
    return problem, inside


def _rank(values: Tensor, inside: Tensor) -> Tensor:  # [B, n] int64
    """Rank the items: those in beforehand first, then by value, then by place."""
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    order = order.gather(1, torch.argsort(~inside.gather(1, order), dim=1, stable=True))
    place = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, place)


def _pairs(overlap: Overlap, rank: Tensor, outside: Tensor) -> tuple[Tensor, ...]:  # of [B, P]
    """Return the pairs that can both be in, each once, by row: worse, better, share."""
    rows, width = rank.shape
    row, first, second, share = overlap.row, overlap.item, overlap.other, overlap.share.double()
    apart = (first != second) & (share > 0) & ~outside[row, first] & ~outside[row, second]
    row, first, second, share = (part[apart] for part in (row, first, second, share))
    ahead = rank[row, first] < rank[row, second]
    worse, better = torch.where(ahead, second, first), torch.where(ahead, first, second)
    key, slot = torch.unique((row * width + worse) * width + better, return_inverse=True)
    share = share.new_zeros(len(key)).scatter_reduce_(0, slot, share, "amax")
    pair = key % (width * width)
    return padded(key // (width * width), (pair // width, pair % width, share), rows)


def _groups(
    values: Tensor, worse: Tensor, better: Tensor, share: Tensor, rank: Tensor
) -> tuple[Tensor, Tensor]:  # [B, n], [B, n]
    """Return the group of each item, and the value it shares with all better members."""
    width, live = values.shape[1], share > 0
    place = torch.arange(width, device=values.device).expand_as(rank)
    leads, led = torch.ones_like(values, dtype=torch.bool), live
    while True:  # one round for each step of the longest chain of near-duplicates
        led = live & leads.gather(1, better)
        again = ~largest(worse, led, leads)
        if torch.equal(again, leads):
            break
        leads = again
    # A near-duplicate joins the leader it shares most with; ties go to the first.
    offered = torch.where(led, share, 0.0)
    joined = led & (offered == largest(worse, offered, values).gather(1, worse))
    group = torch.full_like(place, width)
    group.scatter_reduce_(1, worse, torch.where(joined, better, width), "amin")
    group = torch.where(group < width, group, place)
    # The place of an item in its group by rank counts its better members; it must share with all.
    order = torch.argsort(group * width + rank, dim=1)
    ranked = group.gather(1, order)
    first = torch.full_like(group, width).scatter_reduce_(1, ranked, place, "amin")
    ahead = torch.empty_like(group).scatter_(1, order, place - first.gather(1, ranked))
    together = live & (group.gather(1, worse) == group.gather(1, better))
    met = torch.zeros_like(group).scatter_add_(1, worse, together.long())
    least = torch.ones_like(values)
    least.scatter_reduce_(1, worse, torch.where(together, share, 1.0), "amin")
    return group, values * torch.where(met == ahead, least, 0.0)


def reachable(
    start: Tensor,  # [N] bool
    source: Tensor,  # [E] int64
    target: Tensor,  # [E] int64
) -> Tensor:  # [N] bool
    """Return the nodes reachable from any of these, themselves included.

    Takes one round for each step of the longest path.
    """
    found = start.clone()
    while True:
        fresh = target[found[source] & ~found[target]]
        if not len(fresh):
            return found
        found[fresh] = True


def _closure(
    source: Tensor,  # [E] int64: nodes that need
    target: Tensor,  # [E] int64: nodes that are needed
    cost: Tensor,  # [N] int64 tokens
    room: Tensor,  # [N] int64 tokens available for the closure of each
) -> tuple[Tensor, Tensor, Tensor]:  # [R] int64, [R] int64, [N] bool
    """Return the transitive closure of needs, and the items that cannot be afforded.

    The items of a cycle need each other. Paths double in length each round, so there are about
    log2(longest path) rounds. An item whose closure costs more than its room is impossible, and so
    are the items that need it. Their pairs are dropped early to bound the size of the list.

    Returns:
        Item and need of each pair, sorted, without self-pairs; whether each item is impossible.
    """
    nodes = len(cost)
    impossible = cost > room
    key = torch.unique((source * nodes + target)[source != target])
    while True:
        item, need = key // max(1, nodes), key % max(1, nodes)
        spent = cost.clone().index_add_(0, item, cost[need])
        impossible = impossible | (spent > room)
        impossible[item[impossible[need]]] = True
        kept = ~impossible[item]
        key, item, need = key[kept], item[kept], need[kept]
        # Pairs (a, c) with (a, b) and (b, c) among these.
        begin = offsets_of(torch.bincount(item, minlength=nodes))
        pair, place = row_entries(begin, need)
        further = item[pair] * nodes + need[place]
        further = further[item[pair] != need[place]]
        grown = torch.unique(torch.cat([key, further]))
        if len(grown) == len(key) and not bool(impossible[need].any()):
            return item, need, impossible
        key = grown


def largest(place: Tensor, each: Tensor, like: Tensor) -> Tensor:
    """Return the maximum of `each` by place `[B, P]`, in rows shaped like `like`; 0 if none."""
    return torch.zeros_like(like, dtype=each.dtype).scatter_reduce_(1, place, each, "amax")


def padded(
    row: Tensor,  # [P] int64, ascending
    columns: tuple[Tensor, ...],  # of [P]
    rows: int,
) -> tuple[Tensor, ...]:  # of [B, P']
    """Lay out lists of one entry for each pair by row, padded with zeros."""
    count = torch.bincount(row, minlength=rows)
    width = int(count.max()) if len(count) else 0
    _, place = ranges(0, count, total=len(row))
    return tuple(
        column.new_zeros(rows, width).index_put_((row, place), column) for column in columns
    )


def check_problem(
    values: Tensor, costs: Tensor, budget: Tensor, pinned: Tensor, requires: Tensor
) -> None:
    """Raise `InputError` unless shapes, dtypes, signs and places fit `select`."""
    check_matrix("values", values, "[B, n]")
    do = "round costs up and the budget down, and give a row each"
    for name, tensor, shape in (
        ("costs", costs, values.shape),
        ("budget", budget, values.shape[:1]),
    ):
        check_tensor(name, tensor, "integers", shape, do)
        check_entries(name, tensor, 0, torch.iinfo(torch.int64).max, "tokens are no fewer than 0")
    if values.numel() and not bool(((values >= 0) & values.isfinite()).all()):
        raise InputError(
            "values: expected finite numbers of at least 0, got others; subtract the least, or "
            "drop items"
        )
    check_tensor("pinned", pinned, "bool", values.shape, "compare or call .bool()")
    _check_places("requires", requires, values)


def check_overlap(overlap: Overlap, values: Tensor) -> None:
    """Raise `InputError` unless these are pairs of items with shares in [0, 1]."""
    share = overlap.share
    for name, part in vars(overlap).items():
        kind = "" if name == "share" else "int64"
        check_tensor(f"overlap.{name}", part, kind, share.shape, "give one for each pair")
    _check_places("overlap", torch.stack([overlap.row, overlap.item, overlap.other]), values)
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise InputError("overlap: expected every share in [0, 1], got others; clamp them")


def _check_places(name: str, places: Tensor, values: Tensor) -> None:
    check_tensor(name, places, "int64", (3, "R"), "stack row, item and other item")
    for part, size in zip(places, (values.shape[0], *values.shape[1:] * 2), strict=True):
        check_entries(name, part, 0, size - 1, "drop what is not among the candidates")


def _check_room(room: Tensor, budget: Tensor, inside: Tensor, pinned: Tensor) -> None:
    short = (room < 0).nonzero()
    if len(short):
        row = int(short[0])
        raise InputError(
            f"budget: expected at least {int((budget - room)[row])} tokens for "
            f"{int(inside[row].sum())} items ({int(pinned[row].sum())} of them pinned, the others "
            f"required), got {int(budget[row])} in row {row}; raise it or unpin some"
        )
