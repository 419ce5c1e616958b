"""Electrical distance between nodes, as pairs, as points, and from each node to the rest."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import (
    check_choice,
    check_count,
    check_entries,
    check_range,
    check_tensor,
)
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import undirected
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral.electrical import ElectricalNetwork, Forms, NodePairs, Sides

__all__ = [
    "Frontiers",
    "ResistanceEmbedding",
    "centrality",
    "check_pairs",
    "effective_resistance",
    "frontiers",
    "resistance_embedding",
]

_log = logging.getLogger(__name__)

_COLUMNS = 256  # columns of a sketch
_MANY = 2048  # minimum distinct pairs for which the sketch is the default


def effective_resistance(
    graph: Graph,  # N nodes
    pairs: Tensor,  # [2, P] or [P, 2] integers
    method: str = "auto",
    *,
    scaling: str = "degree",
    tol: float = 1e-6,
    modes: int = 20,
    network: ElectricalNetwork | None = None,
) -> Solution:  # values [P]
    """Return effective resistances R_ij on |w|: the voltage for a unit current from i to j.

    R_ij = sum over μ_k > 0 of (φ_k(i)/√d_i - φ_k(j)/√d_j)² / μ_k with the normalised Laplacian
    (`docs/mathematics.md` 2.4; Klein and Randić 1993). It is 0 from a node to itself and infinite
    between components.

    * "exact": dense pseudo-inverse in float64, up to 20,000 nodes.
    * "cg": conjugate gradients with all pairs as columns, exact to `tol`; weakly connected pairs
      that float32 cannot resolve are solved in float64.
    * "sketch": random projection for any number of pairs (Spielman and Srivastava 2011), except for
      the part with a closed form; the result includes its standard error.
    * "truncated": `modes` eigenpairs, corrected to 1/d_i + 1/d_j + sum (..)² (1/μ_k - 1). Without
      the correction, 99 % of the sum would be missing.
    * "auto": "exact" up to 1,024 nodes, else "cg" up to 2,048 distinct pairs, else "sketch".

    Args:
        graph: Signs and directions are ignored; loops carry nothing.
        pairs: Node numbers; `[2, 2]` is read as `[2, P]`, with row 0 the first ends.
        method: One of the above.
        scaling: "published" omits the roots of the degrees, like the paper.
        tol: Relative error of "cg" and of the eigenpairs.
        modes: Eigenpairs of "truncated", beside the zeros.
        network: Network of the graph, whose settings then apply; by default one of 256 columns.

    Returns:
        `values` `[P]`; `residual` `[P]` estimates their relative error. It is rounding for "exact",
        the gain of the last 8 iterations and rounding for "cg", one standard deviation for
        "sketch", and for "truncated" a bound if the eigenvectors are exact.

    Raises:
        InputError: Pairs have a wrong shape or dtype or are out of range, weights require a
            gradient, or a constant is out of range.
    """
    check_choice("method", method, ("auto", "exact", "cg", "sketch", "truncated"))
    check_choice("scaling", scaling, ("degree", "published"))
    ends = check_pairs(pairs, graph)
    network = network or ElectricalNetwork(graph, columns=_COLUMNS)
    asked = NodePairs(ends, network.operator, by_degree=scaling == "degree")
    few = "cg" if len(asked.sides) <= _MANY else "sketch"
    found = _solved(network, asked.sides, method, few, tol, modes)
    return Solution(
        asked.spread(found.value, torch.inf),
        None,
        asked.spread(found.error, 0.0),
        found.iterations,
        found.converged,
    )


def _solved(
    network: ElectricalNetwork, sides: Sides, method: str, otherwise: str, tol: float, modes: int
) -> Forms:
    """Solve by the requested method; "auto" is "exact" in a small graph, else `otherwise`."""
    check_range("tol", tol, 0.0)
    check_count("modes", modes)
    if method == "auto":
        method = "exact" if network.small else otherwise
    if method == "exact":
        return network.by_inverse(sides, tol)
    if method == "cg":
        return network.by_gradients(sides, tol)
    if method == "truncated":
        return network.by_modes(sides, modes, tol)
    return network.by_sketch(sides)


def check_pairs(pairs: Tensor, graph: Graph) -> Tensor:  # -> [2, P] int64
    """Return the pairs as two rows.

    Raises:
        InputError: The shape, dtype or device is wrong, or a node does not exist.
    """
    if pairs.dim() == 2 and pairs.shape[0] != 2:
        pairs = pairs.T
    do = "give [2, P] or [P, 2], where the graph is"
    check_tensor("pairs", pairs, "integers", (2, "P"), do, device=graph.device)
    check_entries("pairs", pairs, 0, graph.num_nodes - 1, "drop or renumber those pairs")
    return pairs.to(torch.int64)


@dataclass(frozen=True, eq=False)
class ResistanceEmbedding:
    """Approximate effective resistances of all pairs of nodes.

    R_ij ~ near_i + near_j - 2 w_ij near_i near_j + |far_i - far_j|² inside a component, infinite
    between components. The first terms are exact: the resistance at either end. In a large graph
    they are nearly all of R, whatever the pair (von Luxburg et al. 2014). Only the last term
    depends on the positions of both nodes in the graph.

    Attributes:
        near: [N] float32, 1 / degree; 0 for an isolated node.
        far: [N, c] float32, sketch of each node.
        component: [N] int64.
    """

    near: Tensor
    far: Tensor
    component: Tensor


def resistance_embedding(
    graph: Graph,  # N nodes
    columns: int = 64,
    *,
    generator: torch.Generator | None = None,
) -> ResistanceEmbedding:
    """Return a random projection of |w| (`docs/mathematics.md` 2.4; Spielman and Srivastava 2011).

    far = D^-1/2 z with the rows z of `ElectricalNetwork.edge_sketch`.

    Args:
        graph: Directions and signs are ignored; loops carry nothing.
        columns: c; the last term of R has a relative standard deviation of sqrt(2 / c).
        generator: Random generator for the signs; without one, they are the same every time.

    Raises:
        InputError: A constant is out of range, or weights require a gradient.
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    network = ElectricalNetwork(graph, columns=columns, generator=generator)
    operator, sketch = network.operator, network.edge_sketch
    if not sketch.converged:
        _log.warning(
            "The resistance embedding is not solved after %d iterations: parts of the graph are "
            "weakly connected",
            sketch.iterations,
        )
    near = torch.where(operator.degree > 0, 1 / operator.degree, 0.0).float()
    return ResistanceEmbedding(near, sketch.rows * near.sqrt()[:, None], operator.component)


def centrality(
    graph: Graph,  # N nodes
    method: str = "auto",
    *,
    tol: float = 1e-6,
    modes: int = 20,
    network: ElectricalNetwork | None = None,
) -> Solution:  # values [N]
    """Return spectral centrality c_i = sum over μ_k > 0 of φ_k(i)² / μ_k, the diagonal of L^+.

    `docs/mathematics.md` 2.4, with the normalised Laplacian of |w|. c_i / d_i is, up to a constant,
    the mean resistance from i to the rest of its component: large is remote. Isolated nodes have 0.

    Args:
        graph: Signs and directions are ignored.
        method: "exact" (dense, float64), "sketch" (random projection), "truncated" (`modes`
            eigenpairs and 1 for each other one), or "auto": exact up to 1,024 nodes, else sketch.
        tol: Tolerance of the eigenpairs, or of rounding for "exact".
        modes: Eigenpairs of "truncated", beside the zeros.
        network: Network of the graph, whose settings then apply; by default one of 256 columns.

    Returns:
        Centralities; `residual` `[N]` estimates the relative error, as for `effective_resistance`.

    Raises:
        InputError: The weights require a gradient or a constant is out of range.
    """
    check_choice("method", method, ("auto", "exact", "sketch", "truncated"))
    network = network or ElectricalNetwork(graph, columns=_COLUMNS)
    sides = Sides.of_nodes(graph.num_nodes, graph.device)
    found = _solved(network, sides, method, "sketch", tol, modes)
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
) -> Frontiers:
    """Return the nodes of largest centrality / (degree + 1) (`docs/mathematics.md` 2.5).

    Centrality means remoteness (`docs/mathematics.md` 2.4) and the degree is d_i = Σ|w_ij|, so a
    frontier is weakly connected to the rest of the graph. Isolated nodes, of centrality 0, are
    never frontiers.

    Args:
        graph: Signs and directions are ignored.
        top: Maximum number of nodes; ties go to the smaller node number.
        centrality: Centralities of the nodes, if already known.

    Raises:
        InputError: The centrality does not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    if centrality is None:
        centrality = _centrality(graph).values
    do = "compute it for this graph"
    check_tensor("centrality", centrality, "", (graph.num_nodes,), do, device=graph.device)
    low, high, weight = undirected(graph)
    size = weight.double().abs()
    degree = size.new_zeros(graph.num_nodes).index_add_(0, low, size).index_add_(0, high, size)
    score = centrality.double() / (degree + 1)
    node = torch.argsort(score, descending=True, stable=True)[:top]
    node = node[degree[node] > 0]
    return Frontiers(node, score[node], centrality[node], degree[node])


_centrality = centrality  # an alias for functions with an argument of that name
