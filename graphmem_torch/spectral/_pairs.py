"""Pairs of nodes as right sides c = s_i e_i - s_j e_j, and quadratic forms in them."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.laplacian import Laplacian

__all__ = ["Pairs", "check_pairs"]

_TILE = 1 << 16  # pairs at a time whose rows are gathered


def check_pairs(pairs: Tensor, graph: Graph) -> Tensor:  # -> [2, P] int64
    """The pairs as two rows.

    Raises:
        InputError: For a wrong shape, dtype or device, or a node that is not there.
    """
    if pairs.dim() != 2 or 2 not in pairs.shape:
        raise InputError(
            f"pairs must be [2, P] or [P, 2]; got {list(pairs.shape)}. Stack the two ends."
        )
    if pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool:
        raise InputError(f"pairs must hold integers; got {pairs.dtype}. Convert with .long().")
    if pairs.device != graph.device:
        raise InputError(
            f"pairs must be on {graph.device} like the graph; got {pairs.device}. Move them."
        )
    ends = (pairs if pairs.shape[0] == 2 else pairs.T).to(torch.int64)
    if ends.numel():
        low, high = (int(v) for v in ends.aminmax())
        if low < 0 or high >= graph.num_nodes:
            raise InputError(
                f"pairs must hold node numbers in 0..{graph.num_nodes - 1}; got "
                f"{low if low < 0 else high}. Drop or renumber those pairs."
            )
    return ends


class Pairs:
    """Different pairs (i < j) inside one component, and how they came to be asked for.

    Attributes:
        first, second: `[Q]` int64.
        count: Q.
    """

    def __init__(self, operator: Laplacian, ends: Tensor, *, by_degree: bool) -> None:
        self.operator = operator
        low, high = ends.aminmax(dim=0) if ends.shape[1] else (ends[0], ends[1])
        # From a node to itself it is 0, to another component infinite: nothing to compute.
        together = operator.component[low] == operator.component[high]
        base = torch.where(low == high, 0.0, torch.inf).to(operator.dtype)
        self.base = base
        self.live = (together & (low != high)).nonzero().squeeze(1)
        nodes = operator.shape[0]
        key, self.copy = torch.unique(low[self.live] * nodes + high[self.live], return_inverse=True)
        self.by_degree = by_degree
        self._take(key)

    def _take(self, key: Tensor) -> None:
        operator = self.operator
        nodes = max(operator.shape[0], 1)
        self.key, self.count = key, key.shape[0]
        self.first, self.second = key // nodes, key % nodes
        degree = operator.degree.clamp(min=torch.finfo(torch.float64).tiny)
        scale = degree.rsqrt() if self.by_degree else torch.ones_like(degree)
        self.scale = scale.to(operator.dtype)

    def some(self, place: Tensor, operator: Laplacian) -> Pairs:
        """Those pairs alone, for the operator in this or another dtype; without what was asked."""
        part = object.__new__(Pairs)
        part.operator, part.by_degree = operator, self.by_degree
        part._take(self.key[place])
        return part

    def spread(self, values: Tensor, other: float | None = None) -> Tensor:  # [Q] -> [P]
        """What was asked: the values of the pairs, 0 or inf (or `other`) for the rest."""
        out = self.base.clone() if other is None else torch.full_like(self.base, other)
        out[self.live] = values.to(out.dtype)[self.copy]
        return out

    def right_sides(self, place: Tensor | slice) -> Tensor:  # [N, q]
        """Some of the columns c, without their part in the null space."""
        scale, first, second = self.scale, self.first[place], self.second[place]
        sides = scale.new_zeros(self.operator.shape[0], first.shape[0])
        column = torch.arange(first.shape[0], device=scale.device)
        sides[first, column] = scale[first]
        sides[second, column] = -scale[second]
        return sides if self.by_degree else self.operator.null_space().project(sides)

    def _null_part(self) -> Tensor:  # [Q]
        """(v'c)², v the null vector of the component: 0 when scaled by degree."""
        if self.by_degree:
            return self.scale.new_zeros(self.count)
        value = self.operator.null_space().value
        return (value[self.first] - value[self.second]).square()

    def identity(self) -> Tensor:  # [Q]
        """The form c'c, outside the null space."""
        scale = self.scale
        return scale[self.first].square() + scale[self.second].square() - self._null_part()

    def adjacency(self) -> Tensor:  # [Q]
        """The form c'Ac, outside the null space: -2 s_i s_j A_ij where the pair is an edge."""
        operator = self.operator
        nodes, edges = operator.shape[0], operator.low.shape[0]
        if edges == 0 or self.count == 0:
            return -self._null_part()
        known = operator.low * nodes + operator.high
        at = torch.searchsorted(known, self.key).clamp(max=edges - 1)
        root = operator.degree.rsqrt()
        weight = operator.weight.double()[at] * root[self.first] * root[self.second]
        weight = torch.where(known[at] == self.key, weight, 0.0).to(self.scale.dtype)
        return -2 * self.scale[self.first] * self.scale[self.second] * weight - self._null_part()

    def squares(self, block: Tensor, weight: Tensor) -> Tensor:  # [N, w], [w, h] -> [Q, h]
        """(c'z)² for the columns z of a block, summed with weights."""
        scaled = self.scale[:, None] * block
        out = block.new_empty(self.count, weight.shape[1])
        for start in range(0, self.count, _TILE):
            run = slice(start, start + _TILE)
            step = scaled[self.first[run]] - scaled[self.second[run]]
            torch.mm(step.square_(), weight, out=out[run])
        return out

    def forms(self, inverse: Tensor) -> Tensor:  # [N, N] -> [Q]
        """The forms c'Gc for a dense symmetric G."""
        scale, diagonal = self.scale.to(inverse.dtype), inverse.diagonal()
        mixed = inverse[self.first, self.second] * scale[self.first] * scale[self.second]
        own = diagonal * scale.square()
        return own[self.first] + own[self.second] - 2 * mixed
