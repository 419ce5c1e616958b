"""Workspace: what the analyses of one graph share, and what they solved as a start for the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.linalg.conjugate_gradient import panel, solved_to
from graphmem_torch.spectral.changes import Changes
from graphmem_torch.spectral.laplacian import Laplacian, laplacian

__all__ = ["Potentials", "Workspace", "cut_edges"]


def cut_edges(
    low: Tensor,  # [M] int64
    high: Tensor,  # [M] int64
    component: Tensor,  # [N] int64
) -> Tensor:  # [M] int64
    """Nodes of the smaller side that each edge cuts off; 0 where it is not a cut edge.

    Exact, no comparison of floats: an edge of a spanning tree is a cut edge when no other edge
    spans it (Tarjan 1974). Each other edge (u, v) counts +1 at u and at v and -2 at their lowest
    common ancestor, so that the sum below a node is the number of edges that span its tree edge.
    Sums and ancestors are found by doubling, in log2(depth) rounds.

    Args:
        low: Undirected edges, each once, no loops.
        high: Their other ends.
        component: Of every node.
    """
    nodes, edges = component.shape[0], low.shape[0]
    if edges == 0:
        return low.new_zeros(0)
    parent, depth = _spanning_forest(low, high, component)
    tree_low, tree_high = parent[high] == low, parent[low] == high
    tree = tree_low | tree_high
    jumps = _jumps(parent, int(depth.max()))
    u, v = low[~tree], high[~tree]
    spans = torch.zeros(nodes, dtype=torch.int64, device=low.device)
    one = torch.ones_like(u)
    spans.index_add_(0, u, one).index_add_(0, v, one)
    spans.index_add_(0, _common_ancestor(u, v, depth, jumps), -2 * one)
    below = _sums_below(torch.stack([spans, torch.ones_like(spans)], 1), depth, jumps)
    child = torch.where(tree_low, high, low)
    whole = torch.bincount(component)[component[low]]
    size = below[child, 1]
    side = torch.minimum(size, whole - size)
    return torch.where(tree & (below[child, 0] == 0), side, 0)


def _spanning_forest(low: Tensor, high: Tensor, component: Tensor) -> tuple[Tensor, Tensor]:
    """Parent of every node in a breadth-first forest (a root is its own), and its depth."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    nodes = component.shape[0]
    first = torch.full((int(component.max()) + 1,), nodes, device=low.device)
    own = torch.arange(nodes, device=low.device)
    first = first.scatter_reduce(0, component, own, "amin")
    # One more node, joined to one of each component, makes it a single search.
    row = torch.cat([low, torch.full_like(first, nodes)]).cpu().numpy()
    column = torch.cat([high, first]).cpu().numpy()
    one = torch.ones(len(row), dtype=torch.int8).numpy()
    matrix = coo_array((one, (row, column)), shape=(nodes + 1, nodes + 1)).tocsr()
    _, before = breadth_first_order(matrix, nodes, directed=False)
    parent = torch.from_numpy(before[:nodes]).long().to(low.device)
    parent = torch.where(parent == nodes, own, parent)
    # Depths by doubling too: distance to the root along ever longer jumps.
    depth, jump = (parent != own).long(), parent
    while not torch.equal(jump[jump], jump):
        depth, jump = depth + depth[jump], jump[jump]
    return parent, depth


def _jumps(parent: Tensor, depth: int) -> list[Tensor]:
    """The ancestors 1, 2, 4, ... above every node, up to the depth; the root stays."""
    jumps = [parent]
    while 2 ** len(jumps) <= depth:
        jumps.append(jumps[-1][jumps[-1]])
    return jumps


def _common_ancestor(u: Tensor, v: Tensor, depth: Tensor, jumps: list[Tensor]) -> Tensor:
    deeper, other = torch.where(depth[u] >= depth[v], u, v), torch.where(depth[u] >= depth[v], v, u)
    gap = depth[deeper] - depth[other]
    for power, jump in enumerate(jumps):
        deeper = torch.where((gap >> power) & 1 == 1, jump[deeper], deeper)
    for jump in reversed(jumps):
        apart = jump[deeper] != jump[other]
        deeper = torch.where(apart, jump[deeper], deeper)
        other = torch.where(apart, jump[other], other)
    return torch.where(deeper == other, deeper, jumps[0][deeper])


def _sums_below(value: Tensor, depth: Tensor, jumps: list[Tensor]) -> Tensor:  # [N, c] -> [N, c]
    """Sums over the subtrees: after round k those of all descendants nearer than 2^(k+1)."""
    total = value
    for power, jump in enumerate(jumps):
        deep = (depth >= 2**power).nonzero().squeeze(1)
        total = total.index_add(0, jump[deep], total[deep])
    return total


_WORD = 16  # signs of one hash
_TOUCHED = 256  # nodes up to which what changed is solved for by itself,
_ROUGH, _ROUNDS = 1e-4, 200  # to this energy, in so many iterations: what is left is small twice


@dataclass(frozen=True, eq=False)
class Potentials:
    """Columns x = L⁺ b of a graph of N nodes, L = D - W on |w|, up to what null vectors add.

    Attributes:
        salt: `[N]` int64, random; the signs of sketches are hashes of it, so that a node or an edge
            that stays has the same signs in the next graph.
        unit: Degree that the columns have as their unit, so that they stay in float32's range.
        parts: By kind, pieces of keys `[k, q]` int64 and columns `[N, q]` float32. A key holds the
            nodes of b, or -1 minus the number of a sketch's column.
    """

    salt: Tensor
    unit: float = 1.0
    parts: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)

    def after(self, changes: Changes, kind: str) -> tuple[Tensor, Tensor] | None:
        """All columns of a kind, keys and rows by the new numbers, without those of lost nodes."""
        if kind not in self.parts:
            return None
        key, column = (torch.cat(part, 1) for part in zip(*self.parts[kind], strict=True))
        now = torch.full_like(self.salt, -1)
        old = changes.kept >= 0
        now[changes.kept[old]] = old.nonzero().squeeze(1)
        lost = (key >= 0) & (now[key.clamp(min=0)] < 0)
        there = ~lost.any(0)
        key = torch.where(key >= 0, now[key.clamp(min=0)], key)[:, there]
        column = changes.carried(column[:, there], 0.0)
        # b of a pair is positive at its smaller number, which may be the other end by now.
        return key.sort(0).values, torch.where(key[0] > key[-1], -column, column)


class Workspace:
    """The Laplacian of |w|, its cut edges and its solved columns, each made once.

    A column that was solved of the graph before is where its iteration starts; it goes on to the
    same tolerance, so what comes of it is as exact as from nothing. Kept are `4 N` bytes a column.

    Attributes:
        graph: Of N nodes.
        potentials: What was solved so far.
        least: A lower bound of the eigenvalues beyond the zeros, where one is known.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        generator: torch.Generator | None,
        before: Potentials | None = None,
        changes: Changes | None = None,
    ) -> None:
        self.graph = graph
        place = graph.device if generator is None else generator.device
        salt = torch.empty(graph.num_nodes, dtype=torch.int64, device=place)
        salt = salt.random_(-(2**63), None, generator=generator).to(graph.device)
        self._before, self._changes = before, changes
        if before is not None and changes is not None:
            salt = torch.where(changes.kept < 0, salt, changes.carried(before.salt, 0))
        mean = self.operator.degree.sum() / max(int((self.operator.degree > 0).sum()), 1)
        self.potentials = Potentials(salt, float(mean) or 1.0)
        self._starts: dict[str, tuple[Tensor, Tensor] | None] = {}
        self._columns: Tensor | None = None
        self.least = 0.0

    @cached_property
    def operator(self) -> Laplacian:
        """Normalised, float32."""
        return laplacian(self.graph, signed=False)

    @cached_property
    def exact(self) -> Laplacian:
        """The same in float64."""
        return self.operator.double()

    @cached_property
    def cut(self) -> Tensor:  # [M]
        """As by `cut_edges`, of `operator.low` and `operator.high`."""
        return cut_edges(self.operator.low, self.operator.high, self.operator.component)

    def node_signs(self, start: int, count: int) -> Tensor:  # [N, count] float32
        """Random signs of the nodes in some columns of a sketch; `start` a multiple of 16."""
        return _signs(self.potentials.salt, start, count)

    def edge_signs(self, start: int, count: int) -> Tensor:  # [M, count] float32
        """Random signs of the edges, as for nodes."""
        salt = self.potentials.salt
        return _signs(salt[self.operator.low] + salt[self.operator.high], start, count)

    def solved(
        self,
        kind: str,
        key: Tensor,  # [k, q] int64
        operator: Laplacian,
        sides: Callable[[], Tensor],  # -> [N, q]
        *,
        scale: Tensor | float = 1.0,  # [q]
        tol: float,
        max_iter: int,
    ) -> tuple[Tensor, int, bool]:  # [N, q], iterations, whether all columns got there
        """As `solved_to`, from the columns of the same keys of the graph before.

        Args:
            kind: Name of what b is made of the key by.
            key: Of each column.
            operator: `operator` or `exact`; what was solved by the former is not solved twice.
            sides: Makes D^-1/2 b / scale, where it is needed.
            scale: What the sides were divided by.
            tol: As for `solved_to`.
            max_iter: As for `solved_to`.
        """
        here = self._factor(operator, self.potentials.unit, scale)
        known = self.potentials.parts.setdefault(kind, [])
        if operator.dtype == torch.float32:
            for other, column in known:
                if torch.equal(other, key):
                    return (column * here).to(operator.dtype), 0, True
        rhs, start = sides(), self._start(kind, key)
        if start is not None and self._before is not None:
            start = start * self._factor(operator, self._before.unit, scale)
            start = self._mended(start.to(operator.dtype), operator, rhs)
        found, most, settled = solved_to(
            operator, rhs, tol=tol, max_iter=max_iter, start=start, least=self.least
        )
        if settled:
            known.append((key, torch.where(here > 0, found / here, 0.0).float()))
        return found, most, settled

    def _factor(self, operator: Laplacian, unit: float, scale: Tensor | float) -> Tensor:
        """Of columns as they are kept, to become solutions for the sides; `[N, q]` or `[N, 1]`."""
        return (operator.degree / unit).sqrt()[:, None] / (scale * unit**0.5)

    def _start(self, kind: str, key: Tensor) -> Tensor | None:  # [N, q]
        if self._before is None or self._changes is None:
            return None
        if kind not in self._starts:
            self._starts[kind] = self._before.after(self._changes, kind)
        old = self._starts[kind]
        if old is None or old[0].shape[1] == 0:
            return None
        same = (key[:, :, None] == old[0][:, None, :]).all(0)  # [q, q'], both some hundreds
        at, known = same.int().argmax(1), same.any(1)
        return torch.where(known, old[1][:, at], 0.0) if bool(known.any()) else None

    def _mended(self, start: Tensor, operator: Laplacian, rhs: Tensor) -> Tensor:  # [N, q]
        """The start with what it misses because of the touched nodes.

        Its residual lies in them, so that one column for each of them mends any number of others
        (Sherman and Morrison 1950, with the inverse of the new operator).
        """
        assert self._changes is not None
        touched = self._changes.touched.nonzero().squeeze(1)
        if not 0 < len(touched) <= _TOUCHED:
            return start
        start = operator.null_space().project(start)
        rest = (rhs - operator.matmul(start))[touched]
        return start + (self._around(touched) @ rest.float()).to(start.dtype)

    def _around(self, touched: Tensor) -> Tensor:  # [N, t] float32
        if self._columns is None:
            parts = []
            for some in touched.split(panel(self.graph.num_nodes, touched.device)):
                unit = torch.zeros(self.graph.num_nodes, len(some), device=touched.device)
                unit[some, torch.arange(len(some), device=touched.device)] = 1
                parts.append(solved_to(self.operator, unit, tol=_ROUGH, max_iter=_ROUNDS)[0])
            self._columns = torch.cat(parts, 1)
        return self._columns


def _signs(salt: Tensor, start: int, count: int) -> Tensor:  # [n] int64 -> [n, count] float32
    """Bits of the hashes splitmix64 of salt and word (Steele, Lea and Flood 2014) as signs."""
    word = torch.arange(start // _WORD, -(-(start + count) // _WORD), device=salt.device)
    mixed = salt[:, None] + (word + 1) * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        mixed = (mixed ^ _shifted(mixed, shift)) * factor
    bits = (mixed ^ _shifted(mixed, 31)).to(torch.int16)
    place = torch.arange(_WORD, dtype=torch.int16, device=salt.device)
    signs = ((bits[:, :, None] >> place) & 1).flatten(1)[:, :count]
    return signs.float().mul_(2).sub_(1)


def _shifted(x: Tensor, by: int) -> Tensor:
    """A right shift that lets zeros in."""
    return (x >> by) & ((1 << (64 - by)) - 1)
