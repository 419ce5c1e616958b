"""pagerank: the stationary distribution of a walk that sometimes starts again."""

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

_LARGE = 10_000  # nodes below which whole rounds are always faster than a push
_DEAR = 6_000  # a push for the largest k takes as long as rounds over k times as many edges
_FEW = 100  # and at most one node in this many may be a seed
_SHARPNESS = 3e-3  # epsilon * k where only k values are asked for; see bench/perf
_TABLES = 1 << 28  # floats that the tables of a push take on a CPU: 1 GB
_SMALLEST_TABLE = 1024  # a kernel inserts up to 128 nodes before it looks whether there is room
_ROUNDINGS = 8  # relative errors that a value may carry besides those of its sum, over 1 - damping
_LONGEST = 1 << 20  # terms of the longest sum of a push, which adds up in float64


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
    """PageRank of every node: the walk starts again anywhere (Brin and Page 1998).

    The walk leaves a node along its edges in proportion to |weight|; from a node without any it
    starts again. Arguments, `residual` `[1]` and errors are those of `personalized_pagerank` by
    `power`; `values` sum to 1.
    """
    seeds = torch.ones(1, graph.num_nodes, device=graph.device)
    found = personalized_pagerank(
        graph, seeds, damping=damping, tol=tol, method="power", max_iter=max_iter
    )
    return Solution(found.values[0], None, found.residual, found.iterations, found.converged)


class RunningPageRank:
    """The PageRank of a graph whose edges change, within a bound that is known.

    x = (1 - d) 1 + d P'x without what nodes without edges send back: PageRank times a constant, so
    that a node that is added changes the others through its edges alone. With a value x goes its
    residual r = (1 - d) 1 + d P'x - x; a change of edges changes it at their ends, from where it is
    pushed on (Zhang, Lofgren and Goel 2016, Approximate Personalized PageRank on Dynamic Graphs).

    Attributes:
        values: [N] float64, proportional to PageRank.
        residual: [N] float64.
    """

    def __init__(self, damping: float = 0.85, epsilon: float = 1e-2) -> None:
        """Of a graph without nodes.

        Args:
            damping: Probability of following an edge, below 1.
            epsilon: What a node may hold of its residual, as a share of 1 - d, the least value that
                there is.

        Raises:
            InputError: For numbers out of range.
        """
        check_range("damping", damping, 0.0, 1.0)
        check_range("epsilon", epsilon, 0.0)
        self._damping, self._held = damping, epsilon * (1.0 - damping)
        self.values = self.residual = torch.zeros(0, dtype=torch.float64)

    @classmethod
    def of(cls, graph: Graph, damping: float = 0.85, epsilon: float = 1e-2) -> RunningPageRank:
        """Goes on from `pagerank` of a graph; arguments as for an empty one."""
        running = cls(damping, epsilon)
        if graph.num_nodes:
            found = pagerank(graph, damping=damping).values.double()
            sent = torch.zeros_like(found)
            nodes = torch.arange(graph.num_nodes, device=graph.device)
            _send(sent, graph, nodes, damping * found)
            # Every node has the same share of what does not come along an edge.
            values = found * ((1.0 - damping) / ((found - sent).sum() / len(found)))
            residual = torch.full_like(values, 1.0 - damping) - values
            _send(residual, graph, nodes, damping * values)
            running.values, running.residual = values, residual
        return running

    @property
    def error(self) -> float:
        """At most how far `values` are from the exact ones, the L1 norm relative to theirs.

        Not above epsilon / (1 - d) or so, where all rounds that are needed are made.
        """
        missed = float(self.residual.abs().sum()) / (1.0 - self._damping)
        return missed / max(float(self.values.sum()) - missed, torch.finfo(torch.float64).tiny)

    def follow(self, before: Graph, after: Graph, changed: Tensor, *, rounds: int = 64) -> None:
        """Takes in one change; earlier values stay as they are for whoever holds them.

        Args:
            before: The graph whose values these are.
            after: Of as many nodes or more.
            changed: [r] int64, the nodes that other edges leave, each once.
            rounds: Pushes along all nodes that hold too much; what is left shows in `error`.
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
    """Adds what leaves nodes along their edges, in proportion to |weight|, at the other ends."""
    sender, place = ranges(*graph.spans(nodes))
    edge, edges = graph.leaving(place), graph.stored
    step = edges.weight.index_select(0, edge).abs().double()
    strength = step.new_zeros(len(nodes)).index_add_(0, sender, step)
    # Divided first: anything over a subnormal strength is infinite, and its mass would be lost.
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
    """PageRank of B walks, each starting again at its own seeds (`docs/mathematics.md` 6, 7).

    The walk leaves a node along its edges in proportion to |weight|; from a node without any it
    starts again at the seeds.

    `power` multiplies whole panels until the residual is at most `tol`. `push` (Andersen, Chung and
    Lang 2006) settles mass around the seeds only; with `k` and `SparseRows` its time and memory do
    not depend on N. It stops when no node holds more than `epsilon` times its fan. In graphs with
    strong hubs much of what is then unsettled would flow to them; a `background` says where, and
    makes the ranking far better at the same cost.

    By `power`, values are differentiable in weights and seeds; the gradient is that of the fixed
    point, to the same tolerance, by the same iteration along reversed edges. A push has none.

    Args:
        graph: Directed; signs are ignored.
        seeds: Where each walk starts, in proportion; a row of zeros gives a row of zeros.
        damping: Probability of following an edge.
        tol: For `power`, and for `push` without `k`: the largest residual.
        k: Return the k largest values of each question instead of all.
        method: `auto` pushes when `k` is given, the graph is large for it, the seeds are few and no
            gradient is asked for.
        max_iter: The iteration ends after so many rounds all the same, with a warning.
        epsilon: For `push`: what a node may hold for each edge that leaves it. None means
            `tol` / (E + N), which reaches `tol`, or with `k` 0.003 / k.
        background: For `push` with `k`: `pagerank(graph, damping=damping).values`, made once for
            a graph; where unsettled mass is taken to go.

    Returns:
        Without `k`, `values` `[B, N]`. With it a `LargestValues`: `values` `[B, k]`, best first, 0
        where fewer nodes have one; `certified` where the residual proves that no other node belongs
        there; values that rounding cannot tell apart are not.
        The L1 distance of the values to the exact ones is at most `residual` `[B]` / (1 - damping),
        and the rounding of sums over the edges of a node: `push` makes them in float64, `power` in
        the type of the seeds, where float32 loses 1e-3 of a hub of 100,000 equal edges. Without a
        `background`, `residual` bounds the L1 norm of what is left of x = d P x + (1 - d) s.

    Raises:
        InputError: For a shape or device that does not fit, seeds that are negative or not finite,
            a constant out of range, a `push` with a damping of 1 or a gradient, or for `power`
            weights that leave a node without a finite sum.
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
    # One pass; a NaN is neither at least 0 nor below infinity.
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
    """Whether a push is the faster method for the k largest values."""
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
        # The limits of all nodes, an epsilon for every edge or for having none, add up to `tol`.
        most = graph.num_edges + graph.num_nodes
        epsilon = tol / max(1, most) if k is None else _SHARPNESS / k
    slots = _first_slots(graph.num_nodes, nodes.shape[1], epsilon, k)
    waiting, done, worst = torch.arange(len(nodes), device=nodes.device), 0, DONE
    order: list[Tensor] = []
    found: list[tuple[Tensor, ...]] = []
    while True:
        again = []
        # A table takes 24 bytes a slot: as many questions at once as have room for theirs.
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
    """A power of two that is seldom too small: a push touches some 0.25 / epsilon nodes."""
    touched = min(0.5 / max(epsilon, 1e-5), 4 / 3 * num_nodes)
    wanted = max(_SMALLEST_TABLE, touched, 2 * seeds, k or 1)
    return 1 << (int(wanted) - 1).bit_length()


def _certified_top(
    values: Tensor,  # [B, N]
    bound: Tensor,  # [B] of the L1 distance to the exact values
    k: int,
    damping: float,
    terms: Tensor,  # [] the most edges that enter and that leave a node, together
) -> tuple[Tensor, Tensor, Tensor]:  # [B, k], [B, k] int64, [B] bool
    """The k largest of each row, best first, their places (-1 for zeros), and the certificate."""
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
    """The k largest after a push, their nodes, the certificate, and the L1 bound of the values.

    With y = settled + (1 - d) left, what the walk without returns would settle is y + z for some
    z >= 0 of total at most beta = d * sum(left): a residual keeps (1 - d) of itself where it is and
    sends on the rest. Mass that returns from nodes without edges only scales the result, so
    y / (sum(y) + beta) is a lower bound of every value and beta / (sum(y) + beta) bounds the L1
    distance. With the background b, which is (1 - d) / N + d P b, z is estimated as if the residual
    lay anywhere: z = sum(left) (b - (1 - d) / N), and what that adds is added to the bound.
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
    """All values after a push, and their L1 bound; as `_ranked_tables` without a background."""
    known, beta, whole = _known(settled, left, damping)
    values = known.new_zeros(node.shape[0], max(1, num_nodes), dtype=dtype)  # -1 goes to column 0
    share = (known / whole[:, None]).to(dtype)
    values.scatter_add_(1, node.clamp(min=0).to(torch.int64), share)
    return values[:, :num_nodes], beta / whole


def _known(settled: Tensor, left: Tensor, damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """The y `[B, H]`, beta `[B]` and sum(y) + beta `[B]` of `_ranked_tables`."""
    known = settled + (1 - damping) * left
    beta = damping * left.sum(1)
    return known, beta, (known.sum(1) + beta).clamp(min=torch.finfo(known.dtype).tiny)


def _overtaken_by_none(
    lowest: Tensor, outside: Tensor, bound: Tensor, damping: float, terms: int | Tensor
) -> Tensor:
    """Whether the gap is larger than the bound and what rounding may add to a sum of `terms`."""
    rounding = (_ROUNDINGS + terms) * torch.finfo(lowest.dtype).eps / max(1 - damping, 1e-6)
    return lowest - outside >= bound + rounding * lowest
