"""Rows in the order of a key: cheap additions, and spans by bisection."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.ops.ragged import ranges

__all__ = ["SortedRows", "merged_order", "sorted_order"]


def sorted_order(
    key: Tensor,  # [A], NaN = unknown
    rows: Tensor,  # [m] integers
) -> Tensor:  # [m]
    """Return rows sorted by their keys, ties as given; rows with unknown keys come last."""
    return rows[_known_first(key[rows.long()]).argsort(stable=True)]


def merged_order(
    order: Tensor,  # [m] integers, as `sorted_order` gives them
    key: Tensor,  # [A], NaN = unknown
    added: Tensor,  # [n] integers, ascending and above all in `order`
) -> Tensor:  # [m + n]
    """Return the order with added rows; sorts only these and merges them.

    Takes n log n steps, m + n copies and, unless all added rows come last, n bisections.
    """
    if not len(added):
        return order
    fresh = sorted_order(key, added)
    ends = (_known_first(key[rows.long()]) for rows in (order[-1:], fresh[:1]))
    if bool(torch.le(*ends).all()):  # also true if `order` is empty
        return torch.cat([order, fresh])
    there, new = (_known_first(key[rows.long()]) for rows in (order, fresh))
    place = torch.searchsorted(there, new, right=True)
    place += torch.arange(len(fresh), device=place.device)
    old = torch.ones(len(order) + len(fresh), dtype=torch.bool, device=order.device)
    old[place] = False
    merged = order.new_empty(old.shape)
    merged[place] = fresh
    merged[old] = order
    return merged


def _known_first(key: Tensor) -> Tensor:
    return key.nan_to_num(nan=torch.inf) if key.is_floating_point() else key


class SortedRows(NamedTuple):
    """Rows in the order of their keys, which are all known.

    Attributes:
        key: [m] keys, ascending.
        row: [m] integers, row of each key.
    """

    key: Tensor
    row: Tensor

    @classmethod
    def of(cls, order: Tensor, key: Tensor) -> SortedRows:  # [m] of `sorted_order`, [A]
        """Take the rows of `sorted_order` without those whose keys are unknown."""
        values = _known_first(key[order.long()])
        known = torch.searchsorted(values, values.new_tensor(torch.inf))
        count = int(known)
        return cls(values[:count], order[:count])

    def within(
        self,
        low: Tensor,  # [B]
        high: Tensor,  # [B]
    ) -> tuple[Tensor, Tensor]:  # [T], [T] int64
        """Return span and row of the keys in each of B spans from low to high, both included."""
        first = torch.searchsorted(self.key, low)
        count = torch.searchsorted(self.key, high, right=True) - first
        span, place = ranges(first, count.clamp(min=0))
        return span, self.row[place].long()
