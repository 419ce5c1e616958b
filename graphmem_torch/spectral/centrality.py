"""centrality: how remote a node is from the rest of its component, electrically."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral._estimates import Found, by_modes, by_sketch
from graphmem_torch.spectral._pseudo_inverse import SMALL, pseudo_inverse
from graphmem_torch.spectral.components import undirected
from graphmem_torch.spectral.laplacian import Laplacian, check_dtype, laplacian
from graphmem_torch.spectral.workspace import Workspace

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
    workspace: Workspace | None = None,
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
        tol: Of the eigenpairs; of rounding for "exact".
        max_iter: Of conjugate gradients or Lanczos.
        columns: Of the sketch.
        modes: Eigenpairs of "truncated", beside the zeros.
        generator: Of the sketch and the eigensolver.
        dtype: float32 or float64, of the products.
        workspace: Of the graph; its sketch is then used, in float32.

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
    if method == "auto":
        method = "exact" if graph.num_nodes <= SMALL else "sketch"
    if method == "sketch" and workspace is not None:
        operator = workspace.operator
    else:
        kind = torch.float64 if method == "exact" else dtype
        operator = laplacian(graph, signed=False, dtype=kind)
    if method == "exact":
        inverse, error = pseudo_inverse(operator, tol)
        values = inverse.diagonal().clone()
        errors = torch.where(operator.degree > 0, error, 0.0)
        found = Found(values, errors, 0, error <= tol)
    elif method == "sketch":
        found = by_sketch(
            operator,
            _Nodes(operator),
            columns,
            generator=generator,
            max_iter=max_iter,
            workspace=workspace,
        )
    else:
        found = by_modes(
            operator, _Nodes(operator), modes, tol=tol, generator=generator, max_iter=max_iter
        )
    return Solution(found.values, None, found.error, found.iterations, found.converged)


class _Nodes:
    """The right sides e_i of all nodes, whose forms are a diagonal."""

    def __init__(self, operator: Laplacian) -> None:
        self._operator = operator
        self._null = operator.null_space().value.square()
        self._connected = operator.degree > 0

    def identity(self) -> Tensor:  # [N]
        """The diagonal of I, outside the null space."""
        return 1 - self._null

    def adjacency(self) -> Tensor:  # [N]
        """The diagonal of A, outside the null space: A itself has none."""
        return torch.where(self._connected, -self._null, 0.0)

    def squares(self, block: Tensor, weight: Tensor) -> Tensor:  # [N, w], [w, h] -> [N, h]
        """Entries squared, summed with weights."""
        return block.square() @ weight

    def right_sides(self, place: Tensor | slice) -> Tensor:  # [N, q]
        """Some of the e_i, without their part in the null space."""
        node = torch.arange(self._null.shape[0], device=self._null.device)[place]
        sides = self._null.new_zeros(self._null.shape[0], node.shape[0])
        sides[node, torch.arange(node.shape[0], device=node.device)] = 1
        return self._operator.null_space().project(sides)


_centrality = centrality  # which the argument of `frontiers` of the same name hides


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
        top: How many at most; on a tie the smaller node number.
        centrality: As `centrality` returns it, where it is there already.
        columns: Of the sketch by which it is estimated above 1,024 nodes.
        generator: Of the sketch.

    Raises:
        InputError: If the centrality does not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    if centrality is None:
        found = _centrality(graph, columns=columns, generator=generator)
        centrality = found.values
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
