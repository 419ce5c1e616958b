"""Cut edges: the edges whose loss parts a component, and how much they cut off."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cut_edges"]


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
