"""Choosing: the items of many questions and budgets, with headers, pins, needs and duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.context._closure import reachable
from graphmem_torch.context.duplicates import near_duplicates
from graphmem_torch.context.grouped import select_grouped
from graphmem_torch.context.headers import with_headers
from graphmem_torch.context.pool import Pool
from graphmem_torch.context.select import Overlap, Selection, select
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import row_entries

__all__ = ["Choice"]

_SEARCHED = 2048  # items of a question from which a small certified gap costs too much to close
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Choice:
    """The selection problems of B questions, n items each.

    Attributes:
        pool: The items.
        costs: [B, n] int64 tokens of their entries; of a barred one more than all the others.
        header: [B, n] int64 place of the header that an item shares, -1 = none.
        prices: [B, h] int64 tokens of the headers.
        pinned: [B, n] bool, the pinned items with what they need.
        embeddings: [A, d] unit rows.
        redundancy: Cosine from which two items are near-duplicates; above 1: none are.
        work: Sub-problems that a choice may be split into where it is not the best at once.
        gap: Share of its value that a choice may be short of the best without further search.
    """

    pool: Pool
    costs: Tensor
    header: Tensor
    prices: Tensor
    pinned: Tensor
    embeddings: Tensor
    redundancy: float
    work: int
    gap: float

    @classmethod
    def of(
        cls,
        pool: Pool,
        costs: Tensor,  # [B, n] int64 tokens
        groups: Tensor,  # [B, n] int64
        header_costs: Tensor,  # [G] int64 tokens
        *,
        embeddings: Tensor,
        redundancy: float,
        work: int = 64,
        gap: float = 0.0,
    ) -> Choice:
        """The problems of pools.

        Args:
            pool: The items.
            costs: Of each entry.
            groups: Number of the header that each entry stands under, 0 = none, -1 = no item.
            header_costs: Of each header.
            embeddings: See `Choice`.
            redundancy: See `Choice`.
            work: See `Choice`.
            gap: See `Choice`.

        Raises:
            InputError: A pinned item needs more than the pool lists.
        """
        pinned = pool.pinned
        if pool.requires.shape[1] and bool(pinned.any()):
            row, item, need = pool.requires
            width = pinned.shape[1]
            flat = reachable(pinned.flatten(), row * width + item, row * width + need)
            pinned = flat.view(pinned.shape)
        if bool((pinned & pool.barred).any()):
            raise InputError(
                "context.pool: expected room for all that the pinned memories need, got needs that "
                "go on beyond it; raise it, or unpin some"
            )
        costs, header, prices = with_headers(costs, groups, header_costs)
        beyond = (costs.sum(1) + prices.sum(1) + 1)[:, None]
        costs = torch.where(pool.barred, beyond, costs)
        return cls(pool, costs, header, prices, pinned, embeddings, redundancy, work, gap)

    @cached_property
    def least(self) -> Tensor:  # [B]
        """Tokens of the pinned items with their headers."""
        row, column = (self.pinned & (self.header >= 0)).nonzero(as_tuple=True)
        paid = torch.zeros_like(self.prices)
        place = self.header[row, column]
        paid[row, place] = self.prices[row, place]
        return torch.where(self.pinned, self.costs, 0).sum(1) + paid.sum(1)

    def choose(self, question: Tensor, room: Tensor) -> Selection:  # [R] int64, [R] int64
        """The best items of each question for so many tokens; masks are [R, n].

        Near-duplicates are looked for only in what is chosen: a choice without any is the best
        whatever other pairs there are. Where there are some, it is made again knowing them, until
        there are none that it did not know: every time knows more pairs than the one before.

        Args:
            question: Number of each question; it may be there for several budgets.
            room: Tokens for entries and headers.
        """
        whole = torch.where(self.pool.barred, 0, self.costs).sum(1) + self.prices.sum(1)
        room = torch.minimum(room, whole[question])
        found = self._select(question, room, None)
        if self.redundancy > 1:
            return found
        again = torch.arange(len(question))
        none = torch.zeros(0, dtype=torch.int64)
        pairs = Overlap(none, none, none, none.double())
        while True:
            rows, chosen = self.pool.rows[question[again]], found.mask[again]
            fresh = near_duplicates(rows, chosen, self.embeddings, self.redundancy)
            fresh = Overlap(again[fresh.row], fresh.item, fresh.other, fresh.share)
            pairs, again = _united(pairs, fresh, self.costs.shape[1])
            if not len(again):
                return found
            better = self._select(question[again], room[again], _of_rows(pairs, again))
            for name in ("mask", "value", "cost", "upper_bound", "exact"):
                getattr(found, name)[again] = getattr(better, name)

    def _select(self, question: Tensor, room: Tensor, overlap: Overlap | None) -> Selection:
        """As `choose`, with the near-duplicates that are known."""
        pool, count = self.pool, self.costs.shape[1]
        if overlap is None and not pool.requires.shape[1]:
            found = select_grouped(
                pool.values[question],
                self.costs[question],
                self.header[question],
                self.prices[question],
                room,
                self.pinned[question],
                gap=self.gap,
            )
            open_ = (found.gap > self.gap * found.value + _ROUNDING * found.upper_bound).nonzero()
            open_ = open_.squeeze(1)
            if len(open_) and self.work and count <= _SEARCHED:
                searched = self._search(question[open_], room[open_], None)
                found = _better(found, open_, searched)
        else:
            found = self._search(question, room, overlap)
        mask = found.mask[:, :count] & (pool.rows[question] >= 0)
        return Selection(mask, found.value, found.cost, found.upper_bound, found.exact)

    def _search(self, question: Tensor, room: Tensor, overlap: Overlap | None) -> Selection:
        """By the general solver, for which headers are items that entries need."""
        header, prices = self.header[question], self.prices[question]
        count, more = self.costs.shape[1], prices.shape[1]
        row, item = (header >= 0).nonzero(as_tuple=True)
        under = torch.stack([row, item, count + header[row, item]])
        return select(
            torch.nn.functional.pad(self.pool.values[question], (0, more)),
            torch.cat([self.costs[question], prices], dim=1),
            room,
            pinned=torch.nn.functional.pad(self.pinned[question], (0, more)),
            requires=torch.cat([self._requires(question), under], dim=1),
            overlap=overlap,
            work=self.work,
        )

    def _requires(self, question: Tensor) -> Tensor:  # [3, R']
        """The requirements of these questions, numbered by their places."""
        row, item, need = self.pool.requires
        begin = offsets_of(torch.bincount(row, minlength=len(self.costs)))
        place, step = row_entries(begin, question)
        at = row.argsort(stable=True)[step]
        return torch.stack([place, item[at], need[at]])


def _better(known: Selection, rows: Tensor, other: Selection) -> Selection:
    """A selection with another one of some of its rows: the better of both, the lower bound."""
    value, bound = known.value.clone(), known.upper_bound.clone()
    mask, cost = known.mask.clone(), known.cost.clone()
    gained = other.value > value[rows]
    mask[rows[gained]], cost[rows[gained]] = other.mask[gained], other.cost[gained]
    value[rows] = torch.maximum(value[rows], other.value)
    bound[rows] = torch.maximum(torch.minimum(bound[rows], other.upper_bound), value[rows])
    return Selection(mask, value, cost, bound, bound <= value + _ROUNDING * bound)


def _united(known: Overlap, fresh: Overlap, width: int) -> tuple[Overlap, Tensor]:
    """All pairs, each once, and the rows to which `fresh` adds any."""
    both = [
        torch.cat([getattr(known, name), getattr(fresh, name)])
        for name in ("row", "item", "other", "share")
    ]
    key = (both[0] * width + both[1]) * width + both[2]
    order = key.argsort(stable=True)  # what is known stays before what is found again
    first = torch.ones(len(key), dtype=torch.bool)
    first[1:] = key[order[1:]] != key[order[:-1]]
    kept = order[first]
    new = kept[kept >= len(known.row)]
    return Overlap(*(part[kept] for part in both)), both[0][new].unique()


def _of_rows(pairs: Overlap, rows: Tensor) -> Overlap:
    """The pairs of some rows, numbered by their places among these."""
    inside = torch.isin(pairs.row, rows)
    row = torch.searchsorted(rows, pairs.row[inside])
    return Overlap(row, pairs.item[inside], pairs.other[inside], pairs.share[inside])
