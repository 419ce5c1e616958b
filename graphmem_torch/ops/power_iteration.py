"""Power iteration for PageRank: one product a round and little else.

A round of B columns costs one pass over the edges; everything else stays below that:

- The product itself adds the seeds to a narrow panel; a few seeds are added in place.
- Nodes without edges are summed separately.
- The change needs both iterates, so it is measured only when it may have fallen far enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.spmm import (
    BAG_FROM,
    csr_matrix,
    csr_rows,
    edge_products,
    spmm,
    spmm_sum,
    transposed,
)
from graphmem_torch.ops.tiles import tile_elements

__all__ = ["power_iteration", "power_iteration_reference"]
_LONGEST_WAIT = 8  # rounds between two measurements of the change
_CHUNK = 1 << 18  # elements of the difference computed at once on a CPU, which fit the cache
_FEW = 8  # seeds are added one by one if at most one node in this many is a seed


def power_iteration_reference(
    indptr: Tensor,  # [N + 1]
    source: Tensor,  # [E]
    weight: Tensor,  # [E]
    seeds: Tensor,  # [B, N]
    damping: float,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Repeat x <- damping (P x + lost(x) s) + (1 - damping) s with a dense P."""
    nodes = seeds.shape[1]
    target = torch.repeat_interleave(indptr.diff())
    walk = weight.new_zeros(nodes, nodes)
    walk.index_put_((target, source.to(torch.int64)), weight.abs(), accumulate=True)
    strength = walk.sum(0)
    walk = walk / torch.where(strength > 0, strength, 1.0)
    total = seeds.sum(1, keepdim=True)
    start = seeds / torch.where(total > 0, total, 1.0)
    x, residual, done = start, seeds.new_full((seeds.shape[0],), torch.inf), 0
    while done < max_iter and bool((residual > tol).any()):
        lost = (x * (strength == 0)).sum(1, keepdim=True)
        following = damping * (x @ walk.T + lost * start) + (1 - damping) * start
        residual = damping * (following - x).abs().sum(1)
        x, done = following, done + 1
    return x, residual, torch.tensor(done)


def _run(
    indptr: Tensor,
    source: Tensor,
    weight: Tensor,
    seeds: Tensor,
    damping: float,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, nodes = seeds.shape
    start = seeds.new_empty(nodes, batch)  # [N, B]
    total = seeds.sum(1)
    torch.div(seeds.T, torch.where(total > 0, total, 1.0), out=start)
    if batch == 1 and source.numel() and not source.is_cuda:
        # The product with a vector takes half the time of the product with a one-column panel.
        start = start.squeeze(1)
    step, dangling = _walk(source, weight.abs(), nodes)
    follow = _round(indptr, source, step.mul_(damping), start, 1 - damping)
    x, residual, lost = start, start.new_full((batch,), torch.inf), None
    done, wait, due, worst = 0, 1, 1, math.inf
    while done < max_iter and worst > tol:
        if dangling.numel():  # mass without an outgoing edge restarts at the seeds
            lost = damping * x.index_select(0, dangling).sum(0)
        following = follow(x, lost)
        done += 1
        if done in (due, max_iter):
            residual = damping * _distance(following, x)
            before, worst = worst, float(residual.max()) if residual.numel() else 0.0
            wait = _wait(before, worst, wait, tol)
            due += wait
        x = following
    return x.view(nodes, batch).T.contiguous(), residual.view(batch), torch.tensor(done)


def _walk(source: Tensor, weight: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the probability of every edge, and the nodes that the walk cannot leave."""
    strength = weight.new_zeros(nodes).index_add_(0, source, weight)
    if not bool(strength.isfinite().all()):
        raise InputError(
            "weight: expected a finite sum over the edges that leave each node, got NaN or "
            "infinity; repair or scale them"
        )
    # Divide the weight first: mass / strength overflows for a subnormal strength, losing the mass.
    step = (weight / strength.index_select(0, source)).nan_to_num_(nan=0.0)
    return step, (strength == 0).nonzero().squeeze(1)


def _distance(a: Tensor, b: Tensor) -> Tensor:  # [N, *] twice -> [*]
    """Return the L1 distance of the columns, without a temporary of their size."""
    rows = max(1, tile_elements(a.device, _CHUNK) * a.shape[0] // max(1, a.numel()))
    if a.shape[0] <= rows:
        return (a - b).abs_().sum(0)
    total = torch.zeros(a.shape[1:], dtype=torch.float64, device=a.device)
    for mine, other in zip(a.split(rows), b.split(rows), strict=True):
        total += (mine - other).abs_().sum(0)
    return total.to(a.dtype)


def _wait(before: float, worst: float, rounds: int, tol: float) -> int:
    """Return the rounds until `worst` reaches `tol` at the rate of the last `rounds`."""
    if not 0 < worst < before < math.inf or tol == 0:
        return _LONGEST_WAIT if tol == 0 else 1
    rate = math.log(before / worst) / rounds
    return max(1, min(_LONGEST_WAIT, math.ceil(math.log(worst / tol) / rate)))


def _round(
    indptr: Tensor,
    column: Tensor,
    weight: Tensor,
    start: Tensor,  # [N, B] or [N]
    fresh: float,
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return the function (x, lost) -> P x + (fresh + lost) start; builds shared parts once."""
    nodes, columns = start.shape[0], start.numel() // max(1, start.shape[0])
    if not weight.is_cuda and 0 < columns < BAG_FROM and column.numel():
        return _narrow_round(csr_matrix(indptr, column, weight, nodes), start, fresh)
    multiply = spmm if weight.is_cuda else spmm_sum
    if int(start.count_nonzero()) * _FEW > start.numel():

        def many(x: Tensor, lost: Tensor | None) -> Tensor:
            product = multiply(indptr, column, weight, x)
            if lost is None:
                return product.add_(start, alpha=fresh)
            return product.addcmul_(start, fresh + lost)

        return many
    place = start.flatten().nonzero().squeeze(1)
    value, row = start.flatten()[place], place % max(1, columns)
    restart = value * fresh

    def few(x: Tensor, lost: Tensor | None) -> Tensor:
        product = multiply(indptr, column, weight, x)
        again = restart if lost is None else restart + value * lost[row]
        product.view(-1).index_add_(0, place, again)
        return product

    return few


def _narrow_round(
    matrix: Tensor,
    start: Tensor,  # [N, B] or [N]
    fresh: float,
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Use as few calls as possible: in a small graph they take longer than the edges."""
    restart = start * fresh
    product = torch.addmv if start.dim() == 1 else torch.addmm

    def follow(x: Tensor, lost: Tensor | None) -> Tensor:
        return product(restart if lost is None else restart + start * lost, matrix, x)

    return follow


def _fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    seeds = inputs[3]
    done = torch.empty((), dtype=torch.int64, device="cpu")
    return seeds.new_empty(seeds.shape), seeds.new_empty(seeds.shape[0]), done


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, damping, tol, max_iter = inputs
    ctx.damping, ctx.tol, ctx.max_iter = damping, tol, max_iter
    values, residual, _ = output
    ctx.mark_non_differentiable(residual)
    ctx.save_for_backward(*tensors, values)


def _backward(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    """Return the gradient of the fixed point, not of the rounds that led to it.

    x = d (P x + s 1_D' x) + (1 - d) s, with s the normalised seeds and D the nodes without edges.
    So y = (I - d P' - d 1_D s')^-1 g, by the same iteration along reversed edges, is the effect of
    a change of the right side: d y x' for P, and (d lost + 1 - d) y for s.
    """
    indptr, source, weight, seeds, values = ctx.saved_tensors
    nodes, damping = seeds.shape[1], ctx.damping
    step, dangling = _walk(source, weight.abs(), nodes)
    total = seeds.sum(1)
    start = (seeds / torch.where(total > 0, total, 1.0)[:, None]).T.contiguous()  # [N, B]
    given, x = grad.T.contiguous(), values.T.contiguous()
    reverse = transposed(indptr, source, step, nodes)
    y, least = given, ctx.tol * given.abs().max() if given.numel() else 0.0
    for _ in range(ctx.max_iter):
        following = spmm(*reverse, y)
        following[dangling] += (start * y).sum(0)
        following = given + damping * following
        change = (following - y).abs().max() if y.numel() else 0.0
        y = following
        if change <= least:
            break
    target = csr_rows(indptr, len(source))
    by_step = damping * edge_products(target, source, y, x)
    own = step.new_zeros(nodes).index_add_(0, source, step * by_step)
    strength = step.new_zeros(nodes).index_add_(0, source, weight.abs())
    by_weight = weight.sign() * (by_step - own[source]) / strength[source]
    by_start = y * (damping * x[dangling].sum(0) + 1 - damping)
    by_seeds = (by_start - (by_start * start).sum(0)) / total
    return (
        *(None, None, by_weight.nan_to_num(nan=0.0)),
        *(by_seeds.where(total > 0, 0.0).T, None, None, None),
    )


power_iteration = register(
    "pagerank(Tensor indptr, Tensor source, Tensor weight, Tensor seeds, float damping, float tol,"
    " int max_iter) -> (Tensor, Tensor, Tensor)",
    _run,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
