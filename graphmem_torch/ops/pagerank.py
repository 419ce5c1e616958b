"""pagerank: the stationary distribution of a walk with restarts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, get_args, overload

import torch
from torch import Tensor

from graphmem_torch.checks import (
    check_choice,
    check_count,
    check_range,
    check_tensor,
    needs_gradient,
)
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.local_push import DONE, FULL, local_push
from graphmem_torch.ops.power_iteration import power_iteration
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.solution import Solution
from graphmem_torch.ops.sparse_rows import SparseRows, check_node_rows
from graphmem_torch.ops.tiles import tile_elements

__all__ = ["LargestValues", "RunningPageRank", "pagerank", "personalized_pagerank", "pushes"]

_log = logging.getLogger(__name__)

Method = Literal["auto", "power", "push"]

_LARGE = 10_000  # nodes below which power iteration is always faster than a push
_DEAR = 6_000  # a push for the largest k costs as much as rounds over k times this many edges
_FEW = 100  # a push pays if at most one node in this many is a seed
_SHARPNESS = 3e-3  # epsilon * k if only k values are requested; see bench/perf
_TABLES = 1 << 28  # floats of the tables of a push on a CPU: 1 GB
_SMALLEST_TABLE = 1024  # a kernel inserts up to 128 nodes between checks for room
_ROUNDINGS = 8  # relative errors of a value besides those of its sum, over 1 - damping
_LONGEST = 1 << 20  # terms of the longest sum of a push, which uses float64


@dataclass(frozen=True, eq=False)
class LargestValues(Solution):
    """Solution of which only the k largest values of each question are kept.

    Attributes:
        indices: `[B, k]` int64, the nodes that have them, best first; -1 where fewer have one.
        certified: `[B]` bool, whether it is proven that no other node has a larger value.
    """

    indices: Tensor
    certified: Tensor


def pagerank(
    graph: Graph,  # N nodes
    *,
    damping: float = 0.85,
    tol: float = 1e-6,
    max_iter: int = 200,
) -> Solution:  # values [N]
    """Return the PageRank of every node: restarts are uniform (Brin and Page 1998).

    The walk leaves a node along its edges in proportion to |weight|; from a node without edges it
    restarts. Arguments, `residual` `[1]` and errors are those of `personalized_pagerank` by
    `power`; `values` sum to 1.
    """
    seeds = torch.ones(1, graph.num_nodes, device=graph.device)
    found = personalized_pagerank(
        graph, seeds, damping=damping, tol=tol, method="power", max_iter=max_iter
    )
    return Solution(found.values[0], None, found.residual, found.iterations, found.converged)


class RunningPageRank:
    """PageRank of a graph whose edges change, within a known bound.

    x = (1 - d) 1 + d P'x, without the return from nodes without edges, is PageRank times a
    constant. A new node then changes the others only through its edges. The residual of a value x
    is r = (1 - d) 1 + d P'x - x. A change of edges changes r at their ends, from where it is pushed
    on (Zhang, Lofgren and Goel 2016, Approximate Personalized PageRank on Dynamic Graphs).

    Attributes:
        values: [N] float64, proportional to PageRank.
        residual: [N] float64, residual of each node.
    """

    def __init__(self, damping: float = 0.85, epsilon: float = 1e-2) -> None:
        """Start with a graph without nodes.

        Args:
            damping: Probability of following an edge, below 1.
            epsilon: Residual that a node may keep, as a share of 1 - d, the smallest value.

        Raises:
            InputError: A number is out of range.
        """
        check_range("damping", damping, 0.0, 1.0)
        check_range("epsilon", epsilon, 0.0)
        self._damping, self._held = damping, epsilon * (1.0 - damping)
        self.values = self.residual = torch.zeros(0, dtype=torch.float64)

    @classmethod
    def of(cls, graph: Graph, damping: float = 0.85, epsilon: float = 1e-2) -> RunningPageRank:
        """Start from `pagerank` of a graph; arguments as for an empty one."""
        running = cls(damping, epsilon)
        if graph.num_nodes:
            found = pagerank(graph, damping=damping).values.double()
            sent = torch.zeros_like(found)
            nodes = torch.arange(graph.num_nodes, device=graph.device)
            _send(sent, graph, nodes, damping * found)
            # Restarts and returns give every node the same share.
            values = found * ((1.0 - damping) / ((found - sent).sum() / len(found)))
            residual = torch.full_like(values, 1.0 - damping) - values
            _send(residual, graph, nodes, damping * values)
            running.values, running.residual = values, residual
        return running

    @property
    def error(self) -> float:
        """L1 bound of the error of `values`, relative to their norm.

        About epsilon / (1 - d) at most, unless `follow` ran out of rounds.
        """
        missed = float(self.residual.abs().sum()) / (1.0 - self._damping)
        return missed / max(float(self.values.sum()) - missed, torch.finfo(torch.float64).tiny)

    def follow(self, before: Graph, after: Graph, changed: Tensor, *, rounds: int = 64) -> None:
        """Follow one change of the graph; values returned earlier do not change.

        Args:
            before: Graph of the current values.
            after: Changed graph, with at least as many nodes.
            changed: [r] int64, distinct nodes whose outgoing edges changed.
            rounds: Maximum pushes along all nodes with too much residual; see `error`.
        """
        fresh = self.values.new_zeros(after.num_nodes - len(self.values))
        values = torch.cat([self.values, fresh])
        residual = torch.cat([self.residual, fresh + (1.0 - self._damping)])
        known = changed[changed < before.num_nodes]
        _send(residual, before, known, -self._damping * values[known])
        _send(residual, after, changed, self._damping * values[changed])
        for _ in range(rounds):
            hot = (residual.abs() > self._held).nonzero().squeeze(1)
            if not len(hot):
                break
            mass = residual[hot]
            values[hot] += mass
            residual[hot] = 0.0
            _send(residual, after, hot, self._damping * mass)
        self.values, self.residual = values, residual


def _send(out: Tensor, graph: Graph, nodes: Tensor, mass: Tensor) -> None:
    """Push mass from nodes along their edges, in proportion to |weight|, and add it to `out`."""
    sender, place = ranges(*graph.spans(nodes))
    edge, edges = graph.leaving(place), graph.stored
    step = edges.weight.index_select(0, edge).abs().double()
    strength = step.new_zeros(len(nodes)).index_add_(0, sender, step)
    # Divide the weight first: mass / strength overflows for a subnormal strength, losing the mass.
    step = (step / strength[sender]).nan_to_num_(nan=0.0) * mass[sender]
    out.index_add_(0, edges.target.index_select(0, edge).long(), step)


@overload
def personalized_pagerank(
    graph: Graph,
    seeds: Tensor | SparseRows,
    *,
    damping: float = ...,
    tol: float = ...,
    k: None = ...,
    method: Method = ...,
    max_iter: int = ...,
    epsilon: float | None = ...,
    background: Tensor | None = ...,
) -> Solution: ...


@overload
def personalized_pagerank(
    graph: Graph,
    seeds: Tensor | SparseRows,
    *,
    damping: float = ...,
    tol: float = ...,
    k: int,
    method: Method = ...,
    max_iter: int = ...,
    epsilon: float | None = ...,
    background: Tensor | None = ...,
) -> LargestValues: ...


def personalized_pagerank(
    graph: Graph,  # N nodes
    seeds: Tensor | SparseRows,  # [B, N], >= 0
    *,
    damping: float = 0.85,
    tol: float = 1e-6,
    k: int | None = None,
    method: Method = "auto",
    max_iter: int = 200,
    epsilon: float | None = None,
    background: Tensor | None = None,  # [N]
) -> Solution:  # values [B, N], or [B, k]
    """Return the PageRank of B walks, each restarting at its seeds (`docs/mathematics.md` 6, 7).

    The walk leaves a node along its edges in proportion to |weight|; from a node without edges it
    restarts at the seeds.

    `power` multiplies whole panels until the residual is at most `tol`. `push` (Andersen, Chung and
    Lang 2006) settles mass only around the seeds; with `k` and `SparseRows` its time and memory do
    not depend on N. It stops when no node holds more than `epsilon` times its fan. In graphs with
    strong hubs, much of the unsettled mass would flow to them. A `background` says where, which
    improves the ranking greatly at the same cost.

    By `power`, values are differentiable in weights and seeds. The gradient is that of the fixed
    point, to the same tolerance, by the same iteration along reversed edges. A push has none.

    Args:
        graph: Directed graph; signs are ignored.
        seeds: Start of each walk, in proportion; a row of zeros gives a row of zeros.
        damping: Probability of following an edge.
        tol: Largest residual, for `power` and for `push` without `k`.
        k: Number of largest values to return for each question; all by default.
        method: `auto` pushes if `k` is given, the graph is large for it, seeds are few and no
            gradient is required.
        max_iter: Maximum rounds; reaching it gives a warning.
        epsilon: For `push`: mass that a node may hold per outgoing edge. None means `tol` / (E +
            N), which reaches `tol`, or with `k` 0.003 / k.
        background: For `push` with `k`: destination of unsettled mass, `pagerank(graph,
            damping=damping).values`, computed once a graph.

    Returns:
        Without `k`, `values` `[B, N]`. With it a `LargestValues`: `values` `[B, k]`, best first, 0
        where fewer nodes have one; `certified` where the residual proves that no other node belongs
        there; values that rounding cannot tell apart are not. The L1 distance of the values to the
        exact ones is at most `residual` `[B]` / (1 - damping),
        and the rounding of sums over the edges of a node: `push` makes them in float64, `power` in
            the type of the seeds, where float32 loses 1e-3 of a hub of 100,000 equal edges. Without
            a `background`, `residual` bounds the L1 norm of what is left of x = d P x + (1 - d) s.

    Raises:
        InputError: A shape or device does not fit, seeds are negative or not finite, a constant is
            out of range, a `push` has a damping of 1 or a gradient, or for `power` the weights that
            leave a node have no finite sum.
    """
    check_node_rows("seeds", seeds, graph)
    check_range("damping", damping, 0.0, 1.0)
    check_range("tol", tol, 0.0)
    check_count("max_iter", max_iter)
    check_choice("method", method, get_args(Method))
    if k is not None:
        check_count("k", k, 1, graph.num_nodes)
    if epsilon is not None:
        check_range("epsilon", epsilon, 0.0)
    if background is not None:
        do = "give pagerank(graph).values"
        check_tensor("background", background, "", (graph.num_nodes,), do, device=graph.device)
    given = seeds.value if isinstance(seeds, SparseRows) else seeds
    # One pass; NaN fails both comparisons.
    low, high = given.aminmax() if given.numel() else (0.0, 0.0)
    if not (low >= 0 and high < torch.inf):
        raise InputError(
            "seeds: expected finite and not negative, got others; clamp or repair them"
        )
    learned = needs_gradient(given, graph.weight)
    if method == "auto":
        fast = k is not None and not learned and pushes(graph, seeds, damping, k)
        method = "push" if fast else "power"
    if method == "power":
        return _by_power(graph, seeds, damping, tol, k, max_iter)
    if learned:
        raise InputError(
            "method: expected 'power' where a gradient is asked for, got 'push', which stops at a "
            "threshold and has none; use 'auto', detach the weights and seeds, or call under "
            "torch.no_grad()"
        )
    if damping == 1.0:
        raise InputError("damping: expected below 1 for push, got 1.0; use method='power'")
    return _by_push(graph, seeds, damping, tol, k, max_iter, epsilon, background)


def pushes(
    graph: Graph,
    seeds: Tensor | SparseRows,  # [B, N]
    damping: float,
    k: int,
    *,
    large: int = _LARGE,
    dear: int = _DEAR,
) -> bool:
    """Return whether a push is the faster method for the k largest values."""
    size = graph.num_nodes + graph.num_edges
    if graph.num_nodes < large or size < dear * k or damping == 1.0:
        return False
    given = len(seeds.key) if isinstance(seeds, SparseRows) else int(seeds.count_nonzero())
    return given * _FEW <= seeds.shape[0] * seeds.shape[1]


def _by_power(
    graph: Graph,
    seeds: Tensor | SparseRows,
    damping: float,
    tol: float,
    k: int | None,
    max_iter: int,
) -> Solution:
    if isinstance(seeds, SparseRows):
        seeds = seeds.to_dense()
    work = torch.promote_types(seeds.dtype, torch.float32)
    values, residual, rounds = power_iteration(
        graph.indptr, graph.source, graph.weight.to(work), seeds.to(work), damping, tol, max_iter
    )
    done, converged = int(rounds), bool((residual <= tol).all())
    if not converged:
        _log.warning(
            "PageRank stopped after %d iterations with residual %.2e > %.2e: raise max_iter or tol",
            done,
            float(residual.max()),
            tol,
        )
    if k is None:
        return Solution(values, None, residual, done, converged)
    bound = residual / (1 - damping) if damping < 1 else torch.full_like(residual, torch.inf)
    terms = graph.indptr.diff().amax() + graph.out_indptr.diff().amax()
    top, place, certain = _certified_top(values, bound, k, damping, terms)
    return LargestValues(top, None, residual, done, converged, place, certain)


def _by_push(
    graph: Graph,
    seeds: Tensor | SparseRows,
    damping: float,
    tol: float,
    k: int | None,
    max_iter: int,
    epsilon: float | None,
    background: Tensor | None,
) -> Solution:
    if not isinstance(seeds, SparseRows):
        seeds = SparseRows.from_dense(seeds)
    work = torch.promote_types(seeds.value.dtype, torch.float32)
    weights, place = seeds.padded()
    nodes = place
    if place.numel():
        nodes = torch.where(place >= 0, seeds.column[place.clamp(min=0)], -1)
    if epsilon is None:
        # The limits of all nodes, epsilon per edge (or once without edges), sum to `tol`.
        most = graph.num_edges + graph.num_nodes
        epsilon = tol / max(1, most) if k is None else _SHARPNESS / k
    slots = _first_slots(graph.num_nodes, nodes.shape[1], epsilon, k)
    waiting, done, worst = torch.arange(len(nodes), device=nodes.device), 0, DONE
    order: list[Tensor] = []
    found: list[tuple[Tensor, ...]] = []
    while True:
        again = []
        # A table takes 24 bytes a slot; run as many questions at once as there is room for tables.
        for own in waiting.split(max(1, tile_elements(nodes.device, _TABLES) // (6 * slots))):
            node, settled, left, rounds, status = local_push(
                graph.out_indptr,
                graph.out_edge,
                graph.target,
                graph.weight.to(work),
                nodes[own],
                weights[own].to(torch.float64),
                damping,
                epsilon,
                max_iter,
                slots,
            )
            full = status == FULL
            if bool(full.any()):
                again.append(own[full])
                node, settled, left = node[~full], settled[~full], left[~full]
                own, rounds, status = own[~full], rounds[~full], status[~full]
            if len(own):
                done, worst = max(done, int(rounds.max())), max(worst, int(status.max()))
            order.append(own)
            found.append(
                _spread_tables(node, settled, left, damping, graph.num_nodes, work)
                if k is None
                else _ranked_tables(node, settled, left, damping, k, background)
            )
        if not again:
            break
        waiting, slots = torch.cat(again), slots * 4
    if worst != DONE:
        _log.warning(
            "PageRank stopped after %d rounds, nodes above epsilon %.2e: raise max_iter or epsilon",
            done,
            epsilon,
        )
    columns = found[0]
    if len(found) > 1:
        back = torch.cat(order).argsort()
        columns = tuple(torch.cat(parts)[back] for parts in zip(*found, strict=True))
    values, *places, bound = columns
    residual = ((1 - damping) * bound).to(work)
    kind = LargestValues if places else Solution
    return kind(values.to(work), None, residual, done, worst == DONE, *places)


def _first_slots(num_nodes: int, seeds: int, epsilon: float, k: int | None) -> int:
    """Return a sufficient power of two in most cases: a push visits about 0.25 / epsilon nodes."""
    touched = min(0.5 / max(epsilon, 1e-5), 4 / 3 * num_nodes)
    wanted = max(_SMALLEST_TABLE, touched, 2 * seeds, k or 1)
    return 1 << (int(wanted) - 1).bit_length()


def _certified_top(
    values: Tensor,  # [B, N]
    bound: Tensor,  # [B] bound of the L1 error
    k: int,
    damping: float,
    terms: Tensor,  # [] maximum edges into and out of a node, together
) -> tuple[Tensor, Tensor, Tensor]:  # [B, k], [B, k] int64, [B] bool
    """Return the k largest of each row, best first, places (-1 for zeros), and certificates."""
    best = values.topk(min(k + 1, values.shape[1]), dim=1)
    top, place = best.values[:, :k], best.indices[:, :k]
    lowest = top[:, -1]
    none = torch.where(lowest > 0, -torch.inf, 0.0)
    outside = best.values[:, k] if values.shape[1] > k else none
    certain = _overtaken_by_none(lowest, outside, bound, damping, terms)
    return top.contiguous(), place.masked_fill(top <= 0, -1), certain


def _ranked_tables(
    node: Tensor,  # [B, H] int32, -1 = none
    settled: Tensor,  # [B, H] float64
    left: Tensor,  # [B, H] float64
    damping: float,
    k: int,
    background: Tensor | None,  # [N], the PageRank of the graph
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # [B, k], [B, k] int64, [B] bool, [B]
    """Return the k largest after a push, their nodes, the certificates, and the L1 error bounds.

    Let y = settled + (1 - d) left. Without returns, the walk would settle y + z with z >= 0 of
    total at most beta = d * sum(left): a residual keeps (1 - d) of itself and sends on the rest.
    Mass that returns from nodes without edges only scales the result. So y / (sum(y) + beta) is a
    lower bound of every value and beta / (sum(y) + beta) bounds the L1 error.

    The background b = (1 - d) / N + d P b gives an estimate of z, as if the residual were spread
    uniformly: z = sum(left) (b - (1 - d) / N). The amount it adds is added to the bound.
    """
    known, beta, whole = _known(settled, left, damping)
    rank, added = known, torch.zeros_like(beta)
    if background is not None:
        share = background.to(known.dtype).index_select(0, node.clamp(min=0).flatten())
        share = share.sub_((1 - damping) / background.shape[0]).clamp_(min=0).view_as(known)
        rest = torch.where(node >= 0, share * left.sum(1, keepdim=True), 0.0)
        rank, added = known + rest, rest.sum(1)
    best = rank.topk(k, dim=1)
    inside = torch.zeros_like(node, dtype=torch.bool).scatter_(1, best.indices, True)
    lowest = known.gather(1, best.indices).amin(1)
    outside = known.masked_fill(inside, 0.0).amax(1)
    certain = _overtaken_by_none(lowest, outside, beta, damping, _LONGEST)
    nodes = node.gather(1, best.indices).to(torch.int64).masked_fill_(best.values <= 0, -1)
    bound = (beta + added) / whole
    return best.values / whole[:, None], nodes, certain, bound


def _spread_tables(
    node: Tensor,  # [B, H] int32, -1 = none
    settled: Tensor,  # [B, H] float64
    left: Tensor,  # [B, H] float64
    damping: float,
    num_nodes: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # [B, N] of `dtype`, [B]
    """Return all values after a push and their L1 bound; `_ranked_tables` without background."""
    known, beta, whole = _known(settled, left, damping)
    values = known.new_zeros(node.shape[0], max(1, num_nodes), dtype=dtype)  # -1 goes to column 0
    share = (known / whole[:, None]).to(dtype)
    values.scatter_add_(1, node.clamp(min=0).to(torch.int64), share)
    return values[:, :num_nodes], beta / whole


def _known(settled: Tensor, left: Tensor, damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return y `[B, H]`, beta `[B]` and sum(y) + beta `[B]` of `_ranked_tables`."""
    known = settled + (1 - damping) * left
    beta = damping * left.sum(1)
    return known, beta, (known.sum(1) + beta).clamp(min=torch.finfo(known.dtype).tiny)


def _overtaken_by_none(
    lowest: Tensor, outside: Tensor, bound: Tensor, damping: float, terms: int | Tensor
) -> Tensor:
    """Return whether the gap exceeds the bound plus the rounding of a sum of `terms`."""
    rounding = (_ROUNDINGS + terms) * torch.finfo(lowest.dtype).eps / max(1 - damping, 1e-6)
    return lowest - outside >= bound + rounding * lowest
