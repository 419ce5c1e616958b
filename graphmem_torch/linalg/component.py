"""components: connected nodes, and the balance of signed components."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.coo import pointers, strongest_of_equal
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph

__all__ = ["components", "compress", "cut_edges", "roots_of", "switching", "undirected"]


def undirected(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:  # [M] low, [M] high, [M] weight
    """Return one edge per connected pair `low < high`: the one of largest |w| in either direction.

    `docs/mathematics.md` 2.1. On a tie of |w| a positive weight wins, so that the result does not
    depend on directions. Loops and weights of 0 are dropped. Ordered by (low, high).

    Raises:
        InputError: The weights require a gradient.
    """
    if graph.weight.requires_grad:
        raise InputError(
            "graph: expected weights without a gradient, because spectra have no backward here, "
            "got weight.requires_grad=True; call graph.with_weight(graph.weight.detach())"
        )
    kept = (graph.source != graph.target) & (graph.weight != 0)
    source, target = graph.source[kept].long(), graph.target[kept].long()
    weight = graph.weight[kept]
    if bool((weight < 0).any()):
        # Positive edges first: the merge takes the first of ties.
        order = torch.sort((weight < 0).to(torch.uint8), stable=True).indices
        source, target, weight = source[order], target[order], weight[order]
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    key, order = torch.sort(low * graph.num_nodes + high, stable=True)
    order = strongest_of_equal(key, order, weight)
    return low[order], high[order], weight[order]


def compress(
    low: Tensor,  # [M]
    high: Tensor,  # [M]
    nodes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [N + 1] int32, [2M] int32, [2M] int64
    """Return rows of the symmetric matrix: `indptr`, `column`, undirected edge of each entry."""
    row, column = torch.cat([high, low]), torch.cat([low, high])
    # The input is ordered by (low, high), so a stable sort by row leaves columns ascending: first
    # the smaller neighbours (row = high), then the larger ones.
    order = torch.sort(row.to(torch.int32), stable=True).indices
    edge = order % max(low.shape[0], 1)
    return pointers(row, nodes), column[order].to(torch.int32), edge


def components(graph: Graph) -> Tensor:  # [N] int64
    """Return the weakly connected component of every node, numbered by smallest nodes.

    Every edge connects, whatever its direction and sign, unless its weight is 0.
    """
    live = graph.weight.detach() != 0
    root = roots_of(graph.source[live].long(), graph.target[live].long(), graph.num_nodes)
    return number(root)


def number(root: Tensor) -> Tensor:  # [N] -> [N]
    """Turn roots (each component's smallest node) into 0, 1, 2, ..."""
    own = root == torch.arange(root.shape[0], device=root.device)
    return (own.cumsum(0) - 1)[root]


def roots_of(source: Tensor, target: Tensor, nodes: int) -> Tensor:  # [E], [E] -> [N]
    """Return the smallest node of every node's component; edges count in both directions.

    Hooking and pointer jumping (Shiloach and Vishkin 1982): each round hangs the root of one end of
    an edge below the smaller root of the other end, then points every node at its root. Edges
    inside one tree drop out, so rounds get cheaper. About log N rounds.
    """
    root = torch.arange(nodes, device=source.device)
    low, high = source, target
    while low.numel():
        first, second = root[low], root[high]
        apart = (first != second).nonzero().squeeze(1)
        low, high, first, second = low[apart], high[apart], first[apart], second[apart]
        root = root.scatter_reduce(
            0, torch.maximum(first, second), torch.minimum(first, second), "amin"
        )
        root = _jumped(root)
    return root


def _jumped(root: Tensor) -> Tensor:
    """Follow every pointer to its end, doubling the distance each round."""
    while True:
        further = root[root]
        if torch.equal(further, root):
            return root
        root = further


def switching(
    source: Tensor,  # [E]
    target: Tensor,  # [E]
    negative: Tensor,  # [E] bool
    nodes: int,
) -> tuple[Tensor, Tensor]:  # [N] root, [N] sign
    """Return component roots, and signs with s_i s_j w_ij >= 0 on edges of balanced components.

    In the signed double cover (Zaslavsky 1982), each node has a positive and a negative copy, and a
    negative edge joins unlike copies. A component is balanced exactly if the two copies of a node
    are not connected. A node's sign says which copy is connected to its root's positive one. The
    sign is 0 in an unbalanced component.
    """
    other = torch.where(negative, target + nodes, target)
    mirrored = torch.where(negative, target, target + nodes)
    ends = torch.cat([source, source + nodes]), torch.cat([other, mirrored])
    cover = roots_of(*ends, 2 * nodes)
    above, below = cover[:nodes], cover[nodes:]
    sign = torch.where(above < below, 1, -1).where(above != below, 0)
    return torch.minimum(above, below), sign


def cut_edges(
    low: Tensor,  # [M] int64
    high: Tensor,  # [M] int64
    component: Tensor,  # [N] int64
) -> Tensor:  # [M] int64
    """Return the nodes of the smaller side that each edge cuts off; 0 if it is not a cut edge.

    Exact, without comparing floats: an edge of a spanning tree is a cut edge if no other edge spans
    it (Tarjan 1974). Each other edge (u, v) counts +1 at u and at v and -2 at their lowest common
    ancestor. The sum below a node is then the number of edges that span its tree edge. Sums and
    ancestors are found by doubling, in log2(depth) rounds.

    Args:
        low: First ends of undirected edges, each edge once, no loops.
        high: Second ends of the edges.
        component: Component of every node.
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
    """Return parent and depth of every node in a breadth-first forest; a root is its own parent."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    nodes = component.shape[0]
    first = torch.full((int(component.max()) + 1,), nodes, device=low.device)
    own = torch.arange(nodes, device=low.device)
    first = first.scatter_reduce(0, component, own, "amin")
    # An additional node, joined to one of each component, makes it a single search.
    row = torch.cat([low, torch.full_like(first, nodes)]).cpu().numpy()
    column = torch.cat([high, first]).cpu().numpy()
    one = torch.ones(len(row), dtype=torch.int8).numpy()
    matrix = coo_array((one, (row, column)), shape=(nodes + 1, nodes + 1)).tocsr()
    _, before = breadth_first_order(matrix, nodes, directed=False)
    parent = torch.from_numpy(before[:nodes]).long().to(low.device)
    parent = torch.where(parent == nodes, own, parent)
    # Depths also by doubling: distance to the root along ever longer jumps.
    depth, jump = (parent != own).long(), parent
    while not torch.equal(jump[jump], jump):
        depth, jump = depth + depth[jump], jump[jump]
    return parent, depth


def _jumps(parent: Tensor, depth: int) -> list[Tensor]:
    """Return the ancestors 1, 2, 4, ... above every node, up to the depth; the root stays."""
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
    """Sum over the subtrees: round k completes descendants nearer than 2^(k+1)."""
    total = value
    for power, jump in enumerate(jumps):
        deep = (depth >= 2**power).nonzero().squeeze(1)
        total = total.index_add(0, jump[deep], total[deep])
    return total
