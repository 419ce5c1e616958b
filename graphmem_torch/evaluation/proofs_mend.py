"""What added pairs mend: chains of premises that were cut, and the total effective resistance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.spectral.adjacency import adjacency, reach
from graphmem_torch.spectral.components import components

__all__ = ["chain_repair", "resistance_fall"]

_SAMPLE = 500  # statements whose chains are compared


def chain_repair(
    whole: Graph,
    left: Graph,
    suggested: Mapping[str, Tensor],  # each [2, K] users, used
    generator: torch.Generator,
) -> dict[str, dict[str, float]]:
    """Chains of the whole graph against those of what is left with the pairs added.

    Returns:
        For each system means over one sample of statements that use anything: `before`, the share
        of the chain that is left without the pairs; `completeness`, the share with them;
        `precision`, the share of what is then reached that is in the chain; and `f1`, the mean of
        each chain's harmonic mean of the two.
    """
    users = (whole.out_degree > 0).nonzero().squeeze(1)
    users = users[torch.randperm(len(users), generator=generator)[:_SAMPLE]]
    true = reach(whole)[users] > 0
    before = reach(left)[users] > 0
    size = true.sum(1)
    found = {}
    for name, pairs in suggested.items():
        edges = torch.cat([left.edge_index, pairs], dim=1)
        after = reach(Graph.from_edges(edges, num_nodes=whole.num_nodes))[users] > 0
        common, reached = (true & after).sum(1).double(), after.sum(1)
        found[name] = {
            "before": float(((true & before).sum(1).double() / size).mean()),
            "completeness": float((common / size).mean()),
            "precision": float((common / reached.clamp(min=1)).mean()),
            "f1": float((2 * common / (size + reached)).mean()),
        }
    return found


def resistance_fall(
    graph: Graph,
    suggested: Mapping[str, Tensor],  # each [2, K]
) -> dict[str, dict[str, float]]:
    """The exact fall of the total effective resistance of the largest component.

    The total is n tr(L⁺) with L = D - A, every edge of weight 1 both ways. K edges b_k lower it by
    n tr((I + Bᵀ L⁺ B)⁻¹ Bᵀ L⁺ L⁺ B) (Woodbury): one pseudo-inverse serves all systems.

    Returns:
        For each: `fall`, the share of the total that goes; `joined`, pairs that instead join two
        components, whose total was infinite.
    """
    part = components(graph)
    main = torch.bincount(part).argmax()
    node = (part == main).nonzero().squeeze(1)
    dense = adjacency(graph)[node][:, node].double()
    dense = torch.maximum(dense, dense.T)
    size = len(node)
    laplacian = torch.diag(dense.sum(1)) - dense
    del dense
    factor = torch.linalg.cholesky(laplacian + 1 / size)
    inverse = torch.cholesky_inverse(factor) - 1 / size
    total = float(inverse.diagonal().sum())
    place = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    place[node] = torch.arange(size)
    falls = {}
    for name, pairs in suggested.items():
        inside = (place[pairs] >= 0).all(0)
        low, high = place[pairs[:, inside]]
        column = inverse[:, low] - inverse[:, high]  # L⁺ B
        gram = column[low] - column[high]
        core = torch.eye(gram.shape[0], dtype=gram.dtype) + gram
        fall = float(torch.linalg.solve(core, column.T @ column).diagonal().sum())
        joined = int((part[pairs[0]] != part[pairs[1]]).sum())
        falls[name] = {"fall": fall / total, "joined": joined}
    return falls
