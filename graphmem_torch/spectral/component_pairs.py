"""lowest_of_components: the lowest pair of each component beyond its null vectors, all together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.linalg.laplacians import Laplacian

__all__ = ["ComponentPairs", "lowest_of_components"]

_WIDTH = 6  # columns of each component's block
_FIRST, _LONGEST = 6, 40  # degrees of the filter
_PURGE = 4  # degrees between two projections of the null vectors, which the filter amplifies most


class ComponentPairs(NamedTuple):
    """Lowest pair of each of C components outside the known null space.

    Attributes:
        values: `[C]`.
        vectors: `[N]`, the unit vector of each component at its nodes.
        residual: `[C]`, ‖L x - value x‖.
        iterations: Number of block products.
    """

    values: Tensor
    vectors: Tensor
    residual: Tensor
    iterations: int


def lowest_of_components(
    operator: Laplacian,  # normalised, C components
    *,
    tol: float,
    relative: float = 0.0,
    generator: torch.Generator | None = None,
    max_iter: int = 2000,
) -> ComponentPairs:
    """Run block iteration with a Chebyshev filter (Zhou and Saad 2007) inside every component.

    L is block diagonal, so one product serves all components. Each has its own interval to damp,
    Gram matrix and Ritz vectors. A component without a vector outside the null space gets 2.

    Args:
        operator: Laplacian, whose null space is deflated.
        tol: Maximum residual of a finished pair, absolute.
        relative: Maximum residual of a finished pair, relative to its value; one of both suffices.
        generator: Random generator for the start block.
        max_iter: Maximum block products.
    """
    nodes, count = operator.shape[0], operator.num_components
    device = operator.device if generator is None else generator.device
    block = torch.randn(nodes, _WIDTH, generator=generator, device=device)
    block = block.to(operator.device, operator.dtype)
    null, owner = operator.null_space(), operator.component
    degree, products = _FIRST, 0
    while True:
        block = null.project(block)
        block, alive = _orthonormal(block, owner, count)
        image = operator.matmul(block)
        products += 1
        projected = _gram(block, image, owner, count)
        # Dropped columns have no direction: place them above the spectrum.
        projected = (projected + projected.mT) / 2 + torch.diag_embed(4.0 * ~alive)
        values, turn = torch.linalg.eigh(projected)
        turn = turn.to(block.dtype)
        block, image = _turned(block, turn, owner), _turned(image, turn, owner)
        lowest = values[:, 0].to(block.dtype)
        rest = image[:, 0] - lowest[owner] * block[:, 0]
        residual = rest.new_zeros(count).index_add_(0, owner, rest.square()).sqrt()
        done = (residual <= torch.clamp(relative * lowest, min=tol)) | (lowest >= 3)
        if bool(done.all()) or products >= max_iter:
            return ComponentPairs(lowest.clamp(0, 2), block[:, 0], residual, products)
        top = torch.where(alive, values, -1.0).amax(1)
        block = _filtered(operator, block, values[:, 0], top, owner, degree)
        products += degree
        degree = min(2 * degree, _LONGEST)


def _gram(x: Tensor, y: Tensor, owner: Tensor, count: int) -> Tensor:  # [C, b, b] float64
    width = x.shape[1]
    outer = (x.double()[:, :, None] * y.double()[:, None, :]).reshape(-1, width * width)
    return outer.new_zeros(count, width * width).index_add_(0, owner, outer).view(-1, width, width)


def _turned(x: Tensor, turn: Tensor, owner: Tensor) -> Tensor:  # [N, b], [C, b, b] -> [N, b]
    return (x[:, None, :] @ turn[owner])[:, 0]


def _orthonormal(x: Tensor, owner: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Orthonormalise the columns in every component by SVQB (Stathopoulos and Wu 2002).

    Returns:
        Columns `[N, b]`, 0 where a component has fewer, and `[C, b]` whether a column exists.
    """
    eps = torch.finfo(x.dtype).eps
    alive = torch.ones(count, x.shape[1], dtype=torch.bool, device=x.device)
    for _ in range(2):
        gram = _gram(x, x, owner, count)
        size = gram.diagonal(dim1=1, dim2=2)
        scale = torch.where(size > torch.finfo(x.dtype).tiny, size.rsqrt(), 0.0)
        spread, turn = torch.linalg.eigh(scale[:, :, None] * gram * scale[:, None, :])
        alive = spread > 100 * eps * spread[:, -1:].clamp(min=0.5)
        turn = scale[:, :, None] * turn * torch.where(alive, spread.rsqrt(), 0.0)[:, None, :]
        x = _turned(x, turn.to(x.dtype), owner)
    return x, alive


def _filtered(
    operator: Laplacian,
    x: Tensor,  # [N, b]
    lowest: Tensor,  # [C]
    top: Tensor,  # [C]
    owner: Tensor,  # [N]
    degree: int,
) -> Tensor:  # [N, b]
    """Apply a Chebyshev filter that damps `top..2` of each component and keeps `lowest` at 1.

    Zhou and Saad 2007, algorithm 3.1; scaled to avoid overflow.
    """
    null = operator.null_space()
    cut = torch.maximum(top, lowest + 1e-4).clamp(max=1.9)
    half, middle = (2.0 - cut) / 2, (2.0 + cut) / 2
    first = half / (lowest.clamp(max=1.8) - middle)

    def rows(column: Tensor) -> Tensor:
        return column.to(x.dtype)[owner][:, None]

    sigma, middle_row = first, rows(middle)
    before = x
    now = (operator.matmul(x) - middle_row * x) * rows(first / half)
    for done in range(1, degree):
        fresh = 1 / (2 / first - sigma)
        image = (operator.matmul(now) - middle_row * now) * rows(2 * fresh / half)
        before, now = now, image - rows(sigma * fresh) * before
        sigma = fresh
        if done % _PURGE == 0 and null.count:
            before, now = null.project(before), null.project(now)
    return now
