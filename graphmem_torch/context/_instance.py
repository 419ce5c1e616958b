"""A selection problem with precedence and redundancy as padded rows, and what a choice is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.ops.ragged import ranges

__all__ = ["Instance", "padded"]


@dataclass(frozen=True, eq=False)
class Instance:
    """B problems side by side.

    Pairs are padded with places 0 and 0: an item that needs itself, or shares nothing with itself,
    changes nothing.

    Attributes:
        values: `[B, n]` float64, >= 0.
        costs: `[B, n]` int64 tokens.
        budget: `[B]` int64 tokens.
        inside, outside: Items that are decided, `[B, n]` bool; inside with all they need, outside
            with all that need them.
        rank: `[B, n]` int64; of two near-duplicates that of lower rank is the better one.
        item, need: Transitively closed requirements, `[B, R]` int64 places.
        worse, better: Near-duplicates, `[B, P]` int64 places; `worse` loses its share while
            `better` is in.
        share: `[B, P]` float64 in [0, 1].
    """

    values: Tensor
    costs: Tensor
    budget: Tensor
    inside: Tensor
    outside: Tensor
    rank: Tensor
    item: Tensor
    need: Tensor
    worse: Tensor
    better: Tensor
    share: Tensor

    @property
    def room(self) -> Tensor:  # [B] int64
        """Tokens that the decided items leave."""
        return self.budget - torch.where(self.inside, self.costs, 0).sum(1)

    @property
    def free(self) -> Tensor:  # [B, n] bool
        """Items that are not decided."""
        return ~(self.inside | self.outside)

    def lost(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """The share of its value that each item loses (or would lose) beside the chosen ones."""
        loss = self.share * mask.gather(1, self.better)
        return torch.zeros_like(self.values).scatter_reduce_(1, self.worse, loss, "amax")

    def worth(self, mask: Tensor) -> Tensor:  # [B, n] -> [B]
        """Value of a selection: that of its items, less what the near-duplicates lose."""
        return (self.values * (1.0 - self.lost(mask)) * mask).sum(1)

    def closed(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """The items of a selection that are in it with everything they need."""
        missing = (~mask).gather(1, self.need)
        return mask & ~torch.zeros_like(mask).scatter_reduce_(1, self.item, missing, "amax")

    def opened(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """These items with everything they need."""
        return mask.scatter_reduce(1, self.need, mask.gather(1, self.item), "amax")

    def trimmed(self, mask: Tensor) -> Tensor:  # [B, n] -> [B, n]
        """A closed selection without what is worth nothing in it and nothing in it needs."""
        useful = mask & ((self.values * (1.0 - self.lost(mask)) > 0) | self.inside)
        return mask & self.opened(useful)

    def rows(self, at: Tensor) -> Instance:
        """The problems of these rows."""
        return Instance(**{name: part[at] for name, part in vars(self).items()})

    def decided(self, inside: Tensor, outside: Tensor) -> Instance:  # [B, n] each
        """The same problem with more items decided: what that takes of values and shares is taken.

        Whatever holds the items inside and none of those outside is worth what it was.
        """
        loss = self.lost(inside)
        left = 1.0 - loss
        gone = inside.gather(1, self.better) | outside.gather(1, self.better)
        gone |= outside.gather(1, self.worse)
        share = (self.share - loss.gather(1, self.worse)) / left.gather(1, self.worse)
        share = share.masked_fill(gone | ~(share > 0), 0.0)
        return replace(self, values=self.values * left, inside=inside, outside=outside, share=share)


def padded(
    row: Tensor,  # [P] int64, ascending
    columns: tuple[Tensor, ...],  # of [P]
    rows: int,
) -> tuple[Tensor, ...]:  # of [B, P']
    """Lists of one entry for each pair, laid out by row, filled up with zeros."""
    count = torch.bincount(row, minlength=rows)
    width = int(count.max()) if len(count) else 0
    _, place = ranges(0, count, total=len(row))
    return tuple(
        column.new_zeros(rows, width).index_put_((row, place), column) for column in columns
    )
