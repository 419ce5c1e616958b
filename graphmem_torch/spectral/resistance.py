"""effective_resistance: the electrical distance of pairs of nodes."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.conjugate_gradient import Energy, energies, panel
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral._estimates import Found, by_modes, by_sketch
from graphmem_torch.spectral._pairs import Pairs, check_pairs
from graphmem_torch.spectral._pseudo_inverse import SMALL, pseudo_inverse
from graphmem_torch.spectral.laplacian import Laplacian, check_dtype, laplacian

__all__ = ["effective_resistance"]

_log = logging.getLogger(__name__)

_MANY = 2048  # different pairs from which the sketch is the method of choice


def effective_resistance(
    graph: Graph,  # N nodes
    pairs: Tensor,  # [2, P] or [P, 2] integers
    method: str = "auto",
    *,
    scaling: str = "degree",
    tol: float = 1e-6,
    max_iter: int = 2000,
    columns: int = 256,
    modes: int = 20,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> Solution:  # values [P]
    """Effective resistance R_ij on |w|: what one unit of current from i to j needs in voltage.

    R_ij = sum over μ_k > 0 of (φ_k(i)/√d_i - φ_k(j)/√d_j)² / μ_k with the normalised Laplacian
    (`docs/mathematics.md` 2.4; Klein and Randić 1993). It is 0 from a node to itself and infinite
    between components.

    * "exact": the dense pseudo-inverse in float64, up to 20,000 nodes.
    * "cg": conjugate gradients with all pairs as columns, exact to `tol`; pairs that float32 cannot
      tell so exactly, because little joins their parts of the graph, are done in float64.
    * "sketch": random projection for any number of pairs (Spielman and Srivastava 2011), with what
      is known in closed form left out of it; its standard error is in the result.
    * "truncated": `modes` eigenpairs, corrected to 1/d_i + 1/d_j + sum (..)² (1/μ_k - 1). Without
      the correction the sum would be 99 % off.
    * "auto": "exact" up to 1,024 nodes, else "cg" up to 2,048 different pairs, else "sketch".

    Args:
        graph: Signs and directions are ignored; loops carry nothing.
        pairs: Node numbers; `[2, 2]` is read as `[2, P]`, row 0 the one ends.
        method: As above.
        scaling: "published" leaves out the roots of the degrees (kept for comparison).
        tol: Relative error asked of "cg" and of the eigenpairs.
        max_iter: Of conjugate gradients or Lanczos.
        columns: Of the sketch.
        modes: Eigenpairs of "truncated", beside the zeros.
        generator: Of the sketch and the eigensolver.
        dtype: float32 or float64, of the products.

    Returns:
        `values` `[P]`; `residual` `[P]` estimates their relative error: rounding for "exact", the
        share that the last 8 iterations added and rounding for "cg", one standard deviation for
        "sketch", and for "truncated" a bound if the eigenvectors are exact.

    Raises:
        InputError: For pairs of a wrong shape or dtype or out of range, weights that require a
            gradient, or a constant out of range.
    """
    check_choice("method", method, ("auto", "exact", "cg", "sketch", "truncated"))
    check_choice("scaling", scaling, ("degree", "published"))
    check_range("tol", tol, 0.0)
    for name, value in (("max_iter", max_iter), ("columns", columns), ("modes", modes)):
        check_count(name, value)
    check_dtype(dtype)
    ends = check_pairs(pairs, graph)
    dense = method == "exact" or (method == "auto" and graph.num_nodes <= SMALL)
    operator = laplacian(graph, signed=False, dtype=torch.float64 if dense else dtype)
    asked = Pairs(operator, ends, by_degree=scaling == "degree")
    if dense:
        found = _by_inverse(operator, asked, tol)
    elif method == "cg" or (method == "auto" and asked.count <= _MANY):
        found = _by_gradients(operator, asked, tol, max_iter)
    elif method == "truncated":
        found = by_modes(operator, asked, modes, tol=tol, generator=generator, max_iter=max_iter)
    else:
        found = by_sketch(operator, asked, columns, generator=generator, max_iter=max_iter)
    return Solution(
        asked.spread(found.values),
        None,
        asked.spread(found.error, 0.0),
        found.iterations,
        found.converged,
    )


def _by_inverse(operator: Laplacian, asked: Pairs, tol: float) -> Found:
    inverse, error = pseudo_inverse(operator, tol)
    values = asked.forms(inverse)
    return Found(values, torch.full_like(values, error), 0, error <= tol)


def _by_gradients(operator: Laplacian, asked: Pairs, tol: float, max_iter: int) -> Found:
    found = _energies(operator, asked, tol, max_iter)
    most = found.iterations
    coarse = (~(found.rounding <= tol)).nonzero().squeeze(1)
    if coarse.numel() and operator.dtype == torch.float32:
        exact = operator.double()
        again = _energies(exact, asked.some(coarse, exact), tol, max_iter)
        for whole, part in (
            (found.value, again.value),
            (found.error, again.error),
            (found.rounding, again.rounding),
        ):
            whole[coarse] = part.to(whole.dtype)
        most = max(most, again.iterations)
    error = found.error + found.rounding
    converged = bool((found.error <= tol).all() and (found.rounding <= tol).all())
    if not converged:
        _log.warning(
            "Effective resistance stopped after %d iterations, up to %.2e > %.2e off: raise "
            "max_iter or tol, or take dtype=torch.float64",
            most,
            float(error.max()),
            tol,
        )
    return Found(found.value, error, most, converged)


def _energies(operator: Laplacian, asked: Pairs, tol: float, max_iter: int) -> Energy:
    """Of all pairs, some columns at a time: three blocks of them are alive in an iteration."""
    width = panel(operator.shape[0], operator.device)
    parts = [
        energies(
            operator, asked.right_sides(slice(start, start + width)), tol=tol, max_iter=max_iter
        )
        for start in range(0, max(asked.count, 1), width)
    ]
    return Energy(
        torch.cat([part.value for part in parts]),
        torch.cat([part.error for part in parts]),
        torch.cat([part.rounding for part in parts]),
        max(part.iterations for part in parts),
    )
