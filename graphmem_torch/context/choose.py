"""Choice of items for many questions and budgets, with headers, pins, needs and duplicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphmem_torch.context.pool import Pool
from graphmem_torch.context.problem import Overlap, reachable
from graphmem_torch.context.select import Selection, select
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import row_entries

__all__ = ["Choice", "Headed", "Vectors", "near_duplicates", "with_headers"]

Repeats = Callable[[Tensor, Tensor], Tensor]
"""Function from two lists of atom rows [P] to whether each pair says the same, [P] bool."""


class Vectors(Protocol):
    """Unit rows [A, d]: a tensor, or several as one."""

    @property
    def shape(self) -> torch.Size:
        """A and d."""

    @property
    def device(self) -> torch.device:
        """Device of the rows."""

    def __getitem__(self, rows: Any, /) -> Tensor:
        """Return rows [...] as [..., d]."""


_MOST = 1024  # items of a question to compare: a context rarely holds more
_ROUNDING = 1e-6  # tolerance of a cosine: rounding alone can lift it above 1


@dataclass(frozen=True, eq=False)
class Choice:
    """Selection problems of B questions, n items each.

    Attributes:
        pool: The items.
        costs: [B, n] int64 tokens of the entries; a barred one costs more than all others.
        header: [B, n] int64 place of the header that an item shares, -1 = none.
        prices: [B, h] int64 tokens of the headers.
        pinned: [B, n] bool, the pinned items with what they need.
        embeddings: [A, d] unit rows.
        redundancy: Minimum cosine of near-duplicates; above 1 there are none.
        work, gap: See `select`.
        repeats: Further condition on near-duplicates; None: none.
    """

    pool: Pool
    costs: Tensor
    header: Tensor
    prices: Tensor
    pinned: Tensor
    embeddings: Vectors
    redundancy: float
    work: int
    gap: float
    repeats: Repeats | None

    @classmethod
    def of(
        cls,
        pool: Pool,
        costs: Tensor,  # [B, n] int64 tokens
        groups: Tensor,  # [B, n] int64
        header_costs: Tensor,  # [G] int64 tokens
        *,
        embeddings: Vectors,
        redundancy: float,
        work: int = 64,
        gap: float = 0.0,
        repeats: Repeats | None = None,
    ) -> Choice:
        """Set up the problems of a pool; `groups` numbers the header of each entry.

        0 = none, -1 = no item. For the other arguments see `Choice`.

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
        return cls(pool, costs, header, prices, pinned, embeddings, redundancy, work, gap, repeats)

    @cached_property
    def least(self) -> Tensor:  # [B]
        """Tokens of the pinned items with their headers."""
        row, column = (self.pinned & (self.header >= 0)).nonzero(as_tuple=True)
        paid = torch.zeros_like(self.prices)
        place = self.header[row, column]
        paid[row, place] = self.prices[row, place]
        return torch.where(self.pinned, self.costs, 0).sum(1) + paid.sum(1)

    @cached_property
    def whole(self) -> Tensor:  # [B, n]
        """Tokens of each item with its header, if it stands alone under it."""
        prices = torch.nn.functional.pad(self.prices, (0, 1))
        place = torch.where(self.header < 0, self.prices.shape[1], self.header)
        return self.costs + prices.gather(1, place)

    def rows(self, question: Tensor) -> Choice:  # [R] int64
        """Return the problems of these questions, as independent copies."""
        columns = {
            name: getattr(self, name)[question] for name in ("costs", "header", "prices", "pinned")
        }
        return replace(self, pool=self.pool.of(question, self._requires(question)), **columns)

    def choose(self, question: Tensor, room: Tensor) -> Selection:  # [R] int64, [R] int64
        """Choose the best items of each question within its room; masks are [R, n].

        Near-duplicates are searched only in the chosen items: a choice without any is optimal
        whatever other pairs exist. A choice with new pairs is repeated with all known pairs, until
        it contains no new one. The known pairs grow every time, so this ends.

        Args:
            question: Number of each question; one may occur with several budgets.
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
        while len(again):
            rows, chosen = self.pool.rows[question[again]], found.mask[again]
            fresh = near_duplicates(rows, chosen, self.embeddings, self.redundancy, self.repeats)
            fresh = Overlap(again[fresh.row], fresh.item, fresh.other, fresh.share)
            pairs, again = _united(pairs, fresh, self.costs.shape[1])
            if len(again):
                better = self._select(question[again], room[again], _of_rows(pairs, again))
                for name in ("mask", "value", "cost", "upper_bound", "exact"):
                    getattr(found, name)[again] = getattr(better, name)
        return found

    def _select(self, question: Tensor, room: Tensor, overlap: Overlap | None) -> Selection:
        """Select with the known near-duplicates."""
        found = select(
            self.pool.values[question],
            self.costs[question],
            room,
            pinned=self.pinned[question],
            requires=self._requires(question),
            overlap=overlap,
            header=self.header[question],
            header_costs=self.prices[question],
            work=self.work,
            gap=self.gap,
        )
        return replace(found, mask=found.mask & (self.pool.rows[question] >= 0))

    def _requires(self, question: Tensor) -> Tensor:  # [3, R']
        """Return the requirements of these questions, numbered by their places."""
        row, item, need = self.pool.requires
        begin = offsets_of(torch.bincount(row, minlength=len(self.costs)))
        place, step = row_entries(begin, question)
        at = row.argsort(stable=True)[step]
        return torch.stack([place, item[at], need[at]])


def _united(known: Overlap, fresh: Overlap, width: int) -> tuple[Overlap, Tensor]:
    """Return all pairs, each once, and the rows to which `fresh` adds any."""
    key, more = ((pair.row * width + pair.item) * width + pair.other for pair in (known, fresh))
    both, slot = torch.cat([key, more]).unique(return_inverse=True)
    share = known.share.new_zeros(len(both))
    share.scatter_reduce_(0, slot, torch.cat([known.share, fresh.share]), "amax")
    row, pair = both // (width * width), both % (width * width)
    added = row[~torch.isin(both, key)].unique()
    return Overlap(row, pair // width, pair % width, share), added


def _of_rows(pairs: Overlap, rows: Tensor) -> Overlap:
    """Return the pairs of some rows, numbered by their places among these."""
    inside = torch.isin(pairs.row, rows)
    row = torch.searchsorted(rows, pairs.row[inside])
    return Overlap(row, pairs.item[inside], pairs.other[inside], pairs.share[inside])


def near_duplicates(
    rows: Tensor,  # [B, n] int64 atom rows, -1 = none
    chosen: Tensor,  # [B, n] bool
    embeddings: Vectors,  # [A, d] unit rows
    least: float,
    repeats: Repeats | None = None,
    *,
    cells: int = 1 << 23,
) -> Overlap:
    """Return near-duplicate pairs of the questions that have two near-duplicates chosen.

    For these questions all items are compared: a choice that knew only the chosen pairs would
    take the next copies instead.

    Args:
        rows: Items.
        chosen: Items to compare; then with all others, up to 1,024 of a question.
        embeddings: Vectors of all atoms.
        least: Cosine at which the share of a pair is 0; it rises to 1 at a cosine of 1.
        repeats: Further condition on a pair; None: none.
        cells: Maximum number of values of a tile.
    """
    found = _pairs(rows, chosen.to(torch.int8), embeddings, least, repeats, cells)
    more = found.row.unique()
    if not len(more):
        return found
    first = (rows[more] >= 0).to(torch.int8) + chosen[more]
    every = _pairs(rows[more], first, embeddings, least, repeats, cells)
    return Overlap(more[every.row], every.item, every.other, every.share)


def _pairs(
    rows: Tensor,
    first: Tensor,
    embeddings: Vectors,
    least: float,
    repeats: Repeats | None,
    cells: int,
) -> Overlap:
    """Return near-duplicates among the items [B, n] of positive `first`, the highest ones first."""
    width = min(int((first > 0).sum(1).max()) if first.numel() else 0, _MOST)
    place = first.argsort(dim=1, descending=True, stable=True)[:, :width]
    there = first.gather(1, place) > 0
    item = rows.gather(1, place).clamp(min=0)
    height = max(1, cells // max(1, width * max(width, embeddings.shape[1])))
    found = []
    for tile in torch.arange(len(rows)).split(height):
        vectors = embeddings[item[tile].to(embeddings.device)].float()
        alike = torch.bmm(vectors, vectors.transpose(1, 2)).cpu()
        both = (there[tile][:, :, None] & there[tile][:, None]).triu_(1)
        near = (both & (alike >= min(least, 1.0) - _ROUNDING)).nonzero()
        if repeats is not None:
            own = tile[near[:, 0]]
            near = near[repeats(item[own, near[:, 1]], item[own, near[:, 2]])]
        row, one, other = near.unbind(1)
        share = (alike[row, one, other].double() - least) / max(1.0 - least, _ROUNDING)
        share = torch.ones_like(share) if least >= 1.0 else share.clamp(0.0, 1.0)
        row = tile[row]
        ends = torch.stack([place[row, one], place[row, other]]).sort(dim=0).values
        found.append((row, *ends, share))
    return Overlap(*(torch.cat(column) for column in zip(*found, strict=True)))


class Headed(NamedTuple):
    """Items with their headers.

    Attributes:
        costs: [B, n] int64 tokens, with the header if an item is alone under it.
        header: [B, n] int64 place of the header that an item shares, -1 = none.
        prices: [B, h] int64 tokens of the headers.
    """

    costs: Tensor
    header: Tensor
    prices: Tensor


def with_headers(
    costs: Tensor,  # [B, n] int64 tokens
    groups: Tensor,  # [B, n] int64 number of a group, -1 = no item
    header_costs: Tensor,  # [G] int64 tokens
) -> Headed:
    """Assign a header to each group of the items of B questions.

    An item that is alone in its group pays its header itself. Items without a label (group 0)
    need a header only if others have labels.
    """
    count, number = len(costs), len(header_costs)
    labelled = (groups > 0).any(1, keepdim=True)
    row, column = ((groups > 0) | ((groups == 0) & labelled)).nonzero(as_tuple=True)
    key = row * number + groups[row, column]
    headers, which, size = torch.unique(key, return_inverse=True, return_counts=True)
    price = header_costs[headers % number]
    alone = size[which] == 1
    paid = costs.clone()
    paid[row[alone], column[alone]] += price[which[alone]]
    shared = size > 1
    owner = headers[shared] // number  # ascending, as headers are
    slot = torch.arange(len(owner)) - torch.searchsorted(owner, owner)
    prices = costs.new_zeros(count, int(slot.max()) + 1 if len(slot) else 0)
    prices[owner, slot] = price[shared]
    header = torch.full_like(costs, -1)
    place = (shared.cumsum(0) - 1)[which[~alone]]
    header[row[~alone], column[~alone]] = slot[place]
    return Headed(paid, header, prices)
