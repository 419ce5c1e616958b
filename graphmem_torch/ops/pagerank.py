"""pagerank: the stationary distribution of a walk that sometimes starts again."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_count, check_node_rows, check_range
from graphmem_torch.ops._library import register
from graphmem_torch.ops._sparse import spmm_sum
from graphmem_torch.ops.solution import Solution

__all__ = ["pagerank", "personalized_pagerank"]

_log = logging.getLogger(__name__)


def pagerank(
    graph: Graph,  # N nodes
    *,
    damping: float = 0.85,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> Solution:  # values [N]
    """PageRank of every node: the walk starts again anywhere (Brin and Page 1998).

    The walk leaves a node along its edges in proportion to |weight|; from a node without any it
    starts again.

    Args:
        graph: Directed; signs are ignored.
        damping: Probability of following an edge.
        tol: The iteration ends when the values change by less than this in total (L1 norm).
        max_iter: The iteration ends here all the same, with a warning.

    Returns:
        `values` sum to 1; `residual` `[1]` is the last change.

    Raises:
        InputError: If a constant is out of range.
    """
    seeds = torch.ones(1, graph.num_nodes, device=graph.source.device)
    found = personalized_pagerank(graph, seeds, damping=damping, tol=tol, max_iter=max_iter)
    return Solution(found.values[0], None, found.residual, found.iterations, found.converged)


def personalized_pagerank(
    graph: Graph,  # N nodes
    seeds: Tensor,  # [B, N], >= 0
    *,
    damping: float = 0.85,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> Solution:  # values [B, N]
    """PageRank of B walks, each starting again at its own seeds (`mathematics.md` section 6).

    Args:
        graph: Directed; signs are ignored.
        seeds: Where each walk starts, in proportion; a row of zeros gives a row of zeros.
        damping: Probability of following an edge.
        tol: As for `pagerank`, for every row.
        max_iter: As for `pagerank`.

    Returns:
        Each row of `values` sums to 1; `residual` `[B]` is each row's last change in the L1 norm.

    Raises:
        InputError: For a shape or device that does not fit, or a constant out of range.
    """
    check_node_rows("seeds", seeds, graph)
    check_range("damping", damping, 0.0, 1.0)
    check_range("tol", tol, 0.0)
    check_count("max_iter", max_iter)
    work = torch.promote_types(seeds.dtype, torch.float32)
    values, residual, iterations = _pagerank(
        graph.indptr, graph.source, graph.weight.to(work), seeds.to(work), damping, tol, max_iter
    )
    converged = bool((residual <= tol).all())
    if not converged:
        _log.warning(
            "PageRank stopped after %d iterations with residual %.2e > %.2e: raise max_iter or tol",
            int(iterations),
            float(residual.max()),
            tol,
        )
    return Solution(values, None, residual, int(iterations), converged)


def _power_iteration(
    indptr: Tensor,
    source: Tensor,
    weight: Tensor,
    seeds: Tensor,
    damping: float,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor, Tensor]:
    if not bool((seeds >= 0).all() & seeds.isfinite().all()):
        raise InputError(
            "seeds must be finite and not negative; got others. Clamp or repair them first."
        )
    start = seeds.T / seeds.sum(1).clamp(min=torch.finfo(seeds.dtype).tiny)  # [N, B]
    start = start.contiguous()
    product = _portable_product if source.is_cuda else spmm_sum
    strength = torch.zeros(seeds.shape[1], dtype=weight.dtype, device=weight.device)
    strength.index_add_(0, source.to(torch.int64), weight.abs())
    # Divided first: damping over a subnormal strength is infinite, and its mass would be lost.
    step = weight.abs() / strength[source.to(torch.int64)] * damping
    step.nan_to_num_(nan=0.0)  # a node whose edges all weigh 0 has none
    dangling = (strength == 0).to(start.dtype)
    x = start
    residual = start.new_full((seeds.shape[0],), torch.inf)
    done = 0
    while done < max_iter and bool((residual > tol).any()):
        following = product(indptr, source, step, x)
        # What no edge takes along starts again at the seeds.
        again = (1 - damping) * x.sum(0) + damping * (dangling @ x)
        following.addcmul_(start, again[None, :])
        residual = (following - x).abs_().sum(0)
        x = following
        done += 1
    return x.T.contiguous(), residual, torch.tensor(done)


def _portable_product(indptr: Tensor, column: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """`spmm_sum` where FBGEMM is not there."""
    size = (indptr.shape[0] - 1, x.shape[0])
    return torch.sparse_csr_tensor(indptr, column, weight, size) @ x


def _fake(
    indptr: Tensor,
    source: Tensor,
    weight: Tensor,
    seeds: Tensor,
    damping: float,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor, Tensor]:
    done = torch.empty((), dtype=torch.int64, device="cpu")
    return seeds.new_empty(seeds.shape), seeds.new_empty(seeds.shape[0]), done


_pagerank = register(
    "pagerank(Tensor indptr, Tensor source, Tensor weight, Tensor seeds, float damping, float tol,"
    " int max_iter) -> (Tensor, Tensor, Tensor)",
    _power_iteration,
    fake=_fake,
)
