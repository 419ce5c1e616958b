"""components: which nodes hang together, and which signed components are balanced."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.coo import pointers, strongest_of_equal
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph

__all__ = ["components", "compress", "roots_of", "switching", "undirected"]


def undirected(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:  # [M] low, [M] high, [M] weight
    """One edge for each connected pair `low < high`: the one of largest |w|, whatever its way.

    `docs/mathematics.md` 2.1. On a tie of |w| a positive weight wins, so that the result does not
    depend on directions. Loops and weights of 0 are left out. Ordered by (low, high).

    Raises:
        InputError: If the weights require a gradient.
    """
    if graph.weight.requires_grad:
        raise InputError(
            "graph must have weights without a gradient, because spectra have no backward here; "
            "got weight.requires_grad=True. Call graph.with_weight(graph.weight.detach())."
        )
    kept = (graph.source != graph.target) & (graph.weight != 0)
    source, target = graph.source[kept].long(), graph.target[kept].long()
    weight = graph.weight[kept]
    if bool((weight < 0).any()):
        # Positive edges first: the merge takes the first of equally strong ones.
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
    """Rows of the symmetric matrix: `indptr`, `column`, and which undirected edge each entry is."""
    row, column = torch.cat([high, low]), torch.cat([low, high])
    # Given ordered by (low, high), a stable sort by row alone leaves columns ascending: first the
    # smaller neighbours (row = high), then the larger ones.
    order = torch.sort(row.to(torch.int32), stable=True).indices
    edge = order % max(low.shape[0], 1)
    return pointers(row, nodes), column[order].to(torch.int32), edge


def components(graph: Graph) -> Tensor:  # [N] int64
    """Number of the weakly connected component of every node, in order of its smallest node.

    Every edge connects, whatever its direction and sign, unless its weight is 0.
    """
    live = graph.weight.detach() != 0
    root = roots_of(graph.source[live].long(), graph.target[live].long(), graph.num_nodes)
    return number(root)


def number(root: Tensor) -> Tensor:  # [N] -> [N]
    """Turns roots (each component's smallest node) into 0, 1, 2, ..."""
    own = root == torch.arange(root.shape[0], device=root.device)
    return (own.cumsum(0) - 1)[root]


def roots_of(source: Tensor, target: Tensor, nodes: int) -> Tensor:  # [E], [E] -> [N]
    """The smallest node of every node's component; edges are taken both ways.

    Hooking and pointer jumping (Shiloach and Vishkin 1982): the root of every edge's one end is
    hung below the smaller root of its other end, then every node is pointed at its root. Edges
    inside one tree drop out, so rounds get cheaper; there are about log N of them, and a look at
    the data ends each.
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
    """Follows every pointer to its end, twice as far each time."""
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
    """Component roots, and the signs s with s_i s_j w_ij >= 0 on every edge of a balanced one.

    In the signed double cover (Zaslavsky 1982) each node has a positive and a negative copy; a
    negative edge joins unlike copies. A component is balanced exactly when the two copies of a
    node do not meet, and a node's sign says which copy lies with its root's positive one. The sign
    is 0 all over an unbalanced component.
    """
    other = torch.where(negative, target + nodes, target)
    mirrored = torch.where(negative, target, target + nodes)
    ends = torch.cat([source, source + nodes]), torch.cat([other, mirrored])
    cover = roots_of(*ends, 2 * nodes)
    above, below = cover[:nodes], cover[nodes:]
    sign = torch.where(above < below, 1, -1).where(above != below, 0)
    return torch.minimum(above, below), sign
