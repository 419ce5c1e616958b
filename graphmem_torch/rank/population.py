"""Moments of a signal over all atoms, without a pass over [B, A].

A signal is scaled by its values for unrelated memories (`docs/mathematics.md` 8.8). In a large
store these are all atoms. A cosine is linear in the embedding, so its moments follow from those of
the rows. A BM25 score is 0 outside the postings of the question's terms.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.ops.fixed_shapes import shapes_are_fixed

__all__ = ["Sums", "cosine_sums", "row_sums"]

_ROWS = 8192  # rows that are converted to float64 together


class Sums(NamedTuple):
    """Sums of a signal over some atoms, in float64.

    Attributes:
        atoms: [B or 1], number of atoms.
        first, second: [B], sum of the values and of their squares.
    """

    atoms: Tensor
    first: Tensor
    second: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:  # [B], [B]
        """Return mean and variance; 0 without atoms."""
        count = self.atoms.clamp(min=1)
        mean = torch.where(self.atoms > 0, self.first / count, 0.0)
        square = torch.where(self.atoms > 0, self.second / count, 0.0)
        return mean, (square - mean.square()).clamp(min=0.0)

    def within(self, values: Tensor, allowed: Tensor) -> Sums:  # [B, A], [B or 1, A] bool
        """Return the sums over the allowed atoms only, from `values` of the fewer of both kinds."""
        if shapes_are_fixed():
            own = values.double().where(allowed, 0.0)
            return Sums(allowed.sum(1).double(), own.sum(1), own.square().sum(1))
        left = allowed.logical_not()
        row, column = left.nonzero(as_tuple=True)
        few = 2 * len(row) <= left.numel()
        if not few:
            row, column = allowed.nonzero(as_tuple=True)
        count = allowed.sum(1).double()
        if len(allowed) == 1:
            own = values.index_select(1, column).double()
            first, second = own.sum(1), own.square().sum(1)
        else:
            own, none = values[row, column].double(), self.first.new_zeros(len(values))
            first, second = none.index_add(0, row, own), none.index_add(0, row, own.square())
        return (
            Sums(count, self.first - first, self.second - second)
            if few
            else Sums(count, first, second)
        )


def row_sums(rows: Tensor) -> Tensor:  # [n, d] -> [d + 1, d] float64
    """Return the sum of the rows, and below it the sum of their outer products."""
    sums = torch.zeros(rows.shape[1] + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in rows.split(_ROWS):
        own = part.double()
        sums[0] += own.sum(0)
        sums[1:].addmm_(own.T, own)
    return sums


def cosine_sums(
    sums: Tensor,  # [d + 1, d]
    count: Tensor,  # [1]
    embedding: Tensor,  # [B, d]
) -> Sums:
    """Return the sums of the products of questions with `count` rows, from `row_sums`."""
    asked = embedding.double()
    return Sums(count.double(), asked @ sums[0], ((asked @ sums[1:]) * asked).sum(1))
