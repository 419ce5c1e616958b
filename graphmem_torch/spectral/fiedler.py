"""fiedler: the second eigenpair, which parts a graph where it hangs together least."""

from __future__ import annotations

import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral.lanczos import lanczos
from graphmem_torch.spectral.laplacian import laplacian

__all__ = ["fiedler"]


def fiedler(
    graph: Graph,  # N >= 2 nodes
    *,
    tol: float = 1e-6,
    generator: torch.Generator | None = None,
    max_iter: int = 2000,
    dtype: torch.dtype = torch.float32,
) -> Solution:  # values [], vectors [N]
    """Spectral gap μ_2 and Fiedler vector φ_2 of the normalised Laplacian of |w|.

    `mathematics.md` 2.4; Fiedler 1973. In a graph of several components μ_2 is exactly 0 and the
    vector parts the largest component (values >= 0) from all the others (values <= 0): it lies in
    the null space, orthogonal to D^1/2 1. Its sign is otherwise arbitrary; here the entry of
    largest size is positive.

    Args:
        graph: Signs and directions are ignored.
        tol: As for `lanczos`.
        generator: As for `lanczos`.
        max_iter: As for `lanczos`.
        dtype: float64 tells gaps below 1e-7 from 0.

    Returns:
        `values` a scalar, `vectors` `[N]` of unit length, `residual` a scalar.

    Raises:
        InputError: If the graph has fewer than two nodes.
    """
    if graph.num_nodes < 2:
        raise InputError(
            f"graph must have at least 2 nodes to be parted; got {graph.num_nodes}. Add nodes."
        )
    operator = laplacian(graph, signed=False, dtype=dtype)
    null = operator.null_space()
    if null.count > 1:
        mass = torch.where(operator.degree > 0, operator.degree, 1.0)
        nodes = torch.bincount(operator.component)
        share = torch.where(operator.component == nodes.argmax(), mass, 0.0)
        # D^1/2 times a value for each side, weighed so that it is orthogonal to D^1/2 1.
        side = torch.where(share > 0, mass.sum() - share.sum(), -share.sum())
        vector = mass.sqrt() * side
        vector = (vector / vector.norm()).to(dtype)
        residual = operator.matmul(vector[:, None]).norm()
        return Solution(vector.new_zeros(()), vector, residual, 0, True)
    found = lanczos(operator, 2, tol=tol, generator=generator, max_iter=max_iter)
    assert found.vectors is not None
    vector = found.vectors[:, 1]
    vector = vector * torch.sign(vector[vector.abs().argmax()])
    return Solution(found.values[1], vector, found.residual[1], found.iterations, found.converged)
