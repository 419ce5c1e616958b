"""components: which nodes hang together, and which signed components are balanced."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph

__all__ = ["components", "roots_of", "switching"]


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
