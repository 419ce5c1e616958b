"""resistance_embedding: nodes as points whose squared distances are effective resistances."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.graph import Graph
from graphmem_torch.spectral._estimates import sketched_columns
from graphmem_torch.spectral.laplacian import laplacian

__all__ = ["ResistanceEmbedding", "resistance_embedding"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ResistanceEmbedding:
    """Effective resistances of all pairs of nodes at once, approximately.

    R_ij ~ near_i + near_j - 2 w_ij near_i near_j + |far_i - far_j|² inside a component, infinite
    between components. The first terms are exact: what current needs to get away from either end;
    in a large graph they are nearly all of R whatever the pair (von Luxburg et al. 2014). The last
    term is what is between, and the only one that says where in the graph the two are.

    Attributes:
        near: [N] float32, 1 / degree; 0 for an isolated node.
        far: [N, c] float32.
        component: [N] int64.
    """

    near: Tensor
    far: Tensor
    component: Tensor

    def of_edges(
        self,
        low: Tensor,  # [M]
        high: Tensor,  # [M]
        weight: Tensor,  # [M]
    ) -> Tensor:  # [M]
        """R_ij of edges, each of which lies in one component; their weights count by size."""
        near, other = self.near[low], self.near[high]
        between = (self.far[low] - self.far[high]).square().sum(1)
        return near + other - 2 * weight.abs() * near * other + between


def resistance_embedding(
    graph: Graph,  # N nodes
    columns: int = 64,
    *,
    generator: torch.Generator | None = None,
    max_iter: int = 2000,
) -> ResistanceEmbedding:
    """A random projection of |w| (`docs/mathematics.md` 2.4; Spielman and Srivastava 2011).

    far = D^-1/2 A L^+ F ξ / sqrt(columns) with the normalised L = I - A = F F' and random signs ξ:
    on the range of L, L^+ = I + A + A L^+ A, of which only the last part is left to chance.

    Args:
        graph: Directions and signs are ignored; loops carry nothing.
        columns: c; the last term of R has a relative standard deviation of sqrt(2 / c).
        generator: Of the signs; without one they are the same every time.
        max_iter: Of conjugate gradients.

    Raises:
        InputError: A constant out of range, or weights that require a gradient.
    """
    check_count("columns", columns)
    check_count("max_iter", max_iter)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    operator = laplacian(graph, signed=False)
    near = torch.where(operator.degree > 0, 1 / operator.degree, 0.0).float()
    parts, settled = [near.new_empty(graph.num_nodes, 0)], True
    for solved, _, reached in sketched_columns(
        operator, columns, generator=generator, max_iter=max_iter
    ):
        parts.append(operator.adjacency(solved) * (near.sqrt() / columns**0.5)[:, None])
        settled = settled and reached
    if not settled:
        _log.warning(
            "The resistance embedding is not solved after %d iterations: parts of the graph hardly "
            "hang together. Raise max_iter",
            max_iter,
        )
    return ResistanceEmbedding(near, torch.cat(parts, dim=1), operator.component)
