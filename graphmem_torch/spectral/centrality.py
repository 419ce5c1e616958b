"""centrality: how remote a node is electrically; frontiers: remote nodes that little ties in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral.components import undirected
from graphmem_torch.spectral.electrical import ElectricalNetwork, Sides
from graphmem_torch.spectral.laplacian import check_dtype

__all__ = ["Frontiers", "centrality", "frontiers"]


def centrality(
    graph: Graph,  # N nodes
    method: str = "auto",
    *,
    tol: float = 1e-6,
    max_iter: int = 2000,
    columns: int = 256,
    modes: int = 20,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    network: ElectricalNetwork | None = None,
) -> Solution:  # values [N]
    """Spectral centrality c_i = sum over μ_k > 0 of φ_k(i)² / μ_k, the diagonal of L^+.

    `docs/mathematics.md` 2.4, with the normalised Laplacian of |w|. c_i / d_i is, up to a constant,
    the mean resistance from i to the rest of its component: a large value means remote. An isolated
    node has 0.

    Args:
        graph: Signs and directions are ignored.
        method: "exact" (dense, float64), "sketch" (random projection), "truncated" (`modes`
            eigenpairs and 1 for each of the others), or "auto": exact up to 1,024 nodes, else the
            sketch.
        tol: Tolerance of the eigenpairs, or of rounding for "exact".
        max_iter: Most iterations of conjugate gradients or Lanczos.
        columns: Width of the sketch.
        modes: Eigenpairs of "truncated", beside the zeros.
        generator: Random generator for the sketch and the eigensolver.
        dtype: float32 or float64, of the products.
        network: Network of the graph, by whose settings it is then done.

    Returns:
        `residual` `[N]` estimates the relative error, as for `effective_resistance`.

    Raises:
        InputError: If the weights require a gradient or a constant is out of range.
    """
    check_choice("method", method, ("auto", "exact", "sketch", "truncated"))
    check_range("tol", tol, 0.0)
    for name, value in (("max_iter", max_iter), ("columns", columns), ("modes", modes)):
        check_count(name, value)
    check_dtype(dtype)
    if network is None:
        network = ElectricalNetwork(
            graph, columns=columns, generator=generator, max_iter=max_iter, dtype=dtype
        )
    sides = Sides.of_nodes(graph.num_nodes, graph.device)
    if method == "exact" or (method == "auto" and network.small):
        found = network.by_inverse(sides, tol)
    elif method == "truncated":
        found = network.by_modes(sides, modes, tol)
    else:
        found = network.by_sketch(sides)
    return Solution(found.value, None, found.error, found.iterations, found.converged)


@dataclass(frozen=True, eq=False)
class Frontiers:
    """The most remote nodes, best first.

    Attributes:
        node: `[k]` int64.
        score: `[k]`, centrality / (degree + 1).
        centrality: `[k]`.
        degree: `[k]` float64, Σ|w|.
    """

    node: Tensor
    score: Tensor
    centrality: Tensor
    degree: Tensor

    def __len__(self) -> int:
        """Number of nodes k."""
        return self.node.shape[0]


def frontiers(
    graph: Graph,  # N nodes
    top: int = 10,
    *,
    centrality: Tensor | None = None,  # [N]
    columns: int = 256,
    generator: torch.Generator | None = None,
) -> Frontiers:
    """Nodes of the largest centrality / (degree + 1) (`docs/mathematics.md` 2.5).

    Centrality means remoteness (`docs/mathematics.md` 2.4) and the degree is d_i = Σ|w_ij|, so a
    frontier is known to the graph but hardly tied into it. Isolated nodes, of centrality 0, are
    none.

    Args:
        graph: Signs and directions are ignored.
        top: Most nodes returned; on a tie the smaller node number.
        centrality: Centralities of the nodes, where they are known already.
        columns: Width of the sketch by which they are estimated above 1,024 nodes.
        generator: Random generator for the sketch.

    Raises:
        InputError: If the centrality does not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    if centrality is None:
        centrality = _centrality(graph, columns=columns, generator=generator).values
    if centrality.shape != (graph.num_nodes,) or centrality.device != graph.device:
        raise InputError(
            f"centrality must be [{graph.num_nodes}] on {graph.device}; got "
            f"{list(centrality.shape)} on {centrality.device}. Was the graph rebuilt since?"
        )
    low, high, weight = undirected(graph)
    size = weight.double().abs()
    degree = size.new_zeros(graph.num_nodes).index_add_(0, low, size).index_add_(0, high, size)
    score = centrality.double() / (degree + 1)
    node = torch.argsort(score, descending=True, stable=True)[:top]
    node = node[degree[node] > 0]
    return Frontiers(node, score[node], centrality[node], degree[node])


_centrality = centrality  # under another name where an argument has its own
