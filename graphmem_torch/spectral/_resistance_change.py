"""The two forms of a pair that say how much an edge there matters: R and ‖L⁺b‖²."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.linalg.conjugate_gradient import panel, solved_to
from graphmem_torch.spectral._estimates import by_sketch
from graphmem_torch.spectral._pairs import Pairs
from graphmem_torch.spectral._pseudo_inverse import pseudo_inverse
from graphmem_torch.spectral.laplacian import Laplacian, laplacian
from graphmem_torch.spectral.workspace import Workspace

__all__ = ["Forms", "centred", "exact_forms", "sketched_forms", "sketched_rows", "solved_forms"]

_TOL = 1e-3  # of the energy of a mode in the sketch, below its noise


class Forms(NamedTuple):
    """b' L⁺ b and ‖L⁺ b‖² of P pairs b = e_i - e_j, L = D - W on |w|.

    Attributes:
        resistance: `[P]`, 0 from a node to itself, inf between components.
        square: `[P]`, 0 in both cases.
        resistance_error: `[P]`, relative.
        square_error: `[P]`, relative.
        iterations: Of conjugate gradients.
        converged: Whether they reached their tolerance.
    """

    resistance: Tensor
    square: Tensor
    resistance_error: Tensor
    square_error: Tensor
    iterations: int
    converged: bool


def exact_forms(graph: Graph, ends: Tensor, tol: float) -> Forms:  # ends [2, P]
    """By the dense pseudo-inverse in float64."""
    operator = laplacian(graph, signed=False, normalized=False, dtype=torch.float64)
    asked = Pairs(operator, ends, by_degree=False)
    inverse, error = pseudo_inverse(operator, tol)
    resistance = asked.spread(asked.forms(inverse))
    square = inverse.new_empty(asked.count)
    for start in range(0, asked.count, 1024):
        run = slice(start, start + 1024)
        step = inverse[asked.first[run]] - inverse[asked.second[run]]
        square[run] = step.square().sum(1)
    errors = torch.full_like(resistance, error)
    return Forms(resistance, asked.spread(square, 0.0), errors, 2 * errors, 0, error <= tol)


def solved_forms(
    operator: Laplacian,
    ends: Tensor,
    tol: float,
    max_iter: int,
    workspace: Workspace | None = None,
) -> Forms:
    """By conjugate gradients with the pairs as columns.

    L⁺ b = P D^-1/2 𝓛⁺ D^-1/2 b with the normalised 𝓛, which is well scaled, and P the projection
    away from what is constant on components.

    Args:
        operator: Normalised, of |w|.
        ends: `[2, P]`.
        tol: Relative error asked of R; that of ‖L⁺b‖² may be its root.
        max_iter: Of each panel of pairs.
        workspace: Keeps the solutions, for which there must be room.
    """
    asked = Pairs(operator, ends, by_degree=True)
    width = panel(operator.shape[0], operator.device)
    root = asked.scale.double()
    resistance = root.new_zeros(asked.count)
    square = torch.zeros_like(resistance)
    most, settled = 0, True
    for start in range(0, asked.count, width):
        run = slice(start, start + width)
        sides = asked.right_sides(run)
        size = sides.norm(dim=0)
        if workspace is None:
            solved, done, reached = solved_to(operator, sides / size, tol=tol, max_iter=max_iter)
        else:
            key = torch.stack([asked.first[run], asked.second[run]])
            sides /= size
            solved, done, reached = workspace.solved(
                "pairs", key, operator, sides.clone, scale=size, tol=tol, max_iter=max_iter
            )
        voltage = solved.double() * size * root[:, None]
        column = torch.arange(voltage.shape[1], device=voltage.device)
        resistance[run] = voltage[asked.first[run], column] - voltage[asked.second[run], column]
        square[run] = centred(voltage, operator.component).square().sum(0)
        most, settled = max(most, done), settled and reached
    found = asked.spread(resistance).double()
    rounding = torch.finfo(operator.dtype).eps
    error = torch.full_like(found, max(tol, rounding))
    return Forms(found, asked.spread(square, 0.0).double(), error, error.sqrt(), most, settled)


def sketched_forms(workspace: Workspace, ends: Tensor, columns: int, max_iter: int) -> Forms:
    """By random projections: R as in `effective_resistance`, ‖L⁺b‖² by `sketched_rows`.

    Errors are one standard deviation: √(2 / columns) of the sum of squares.
    """
    asked = Pairs(workspace.operator, ends, by_degree=True)
    found = by_sketch(
        workspace.operator, asked, columns, generator=None, max_iter=max_iter, workspace=workspace
    )
    rows, most, settled = sketched_rows(workspace, columns, max_iter)
    square = rows.new_zeros(asked.count)
    for start in range(0, asked.count, 1 << 16):
        run = slice(start, start + (1 << 16))
        square[run] = (rows[asked.first[run]] - rows[asked.second[run]]).square().sum(1)
    resistance = asked.spread(found.values).double()
    noise = torch.full_like(resistance, (2 / columns) ** 0.5)
    return Forms(
        resistance,
        asked.spread(square, 0.0).double() / workspace.potentials.unit**2,
        asked.spread(found.error, 0.0).double(),
        noise,
        max(most, found.iterations),
        settled and found.converged,
    )


def sketched_rows(
    workspace: Workspace, columns: int, max_iter: int
) -> tuple[Tensor, int, bool]:  # [N, columns], iterations, whether they sufficed
    """Y = d L⁺ Q with random signs Q / √columns: E‖Y_i - Y_j‖² = d² ‖L⁺(e_i - e_j)‖².

    The unit d of the workspace keeps squares in float32's range.
    Johnson and Lindenstrauss 1984, in the form of Achlioptas 2003.
    """
    operator = workspace.operator
    nodes = operator.shape[0]
    width = panel(nodes, operator.device)
    # About 1 / √d of a node, so that a mode has an energy of about 1, which `solved_to` counts in.
    unit, degree = workspace.potentials.unit, operator.degree
    root = torch.where(degree > 0, (unit / degree).sqrt(), 0.0).to(operator.dtype)[:, None]
    out = torch.empty(nodes, columns, dtype=operator.dtype, device=operator.device)
    most, settled = 0, True
    for start in range(0, columns, width):
        part = out[:, start : start + width]
        sides = partial(_noise, workspace, root, start, part.shape[1])
        key = -1 - torch.arange(start, start + part.shape[1], device=operator.device)[None]
        solved, done, reached = workspace.solved(
            "nodes", key, operator, sides, scale=unit**-0.5, tol=_TOL, max_iter=max_iter
        )
        part.copy_(centred(solved * root, operator.component))
        most, settled = max(most, done), settled and reached
    return out / columns**0.5, most, settled


def _noise(workspace: Workspace, root: Tensor, start: int, count: int) -> Tensor:  # [N, count]
    return centred(workspace.node_signs(start, count), workspace.operator.component) * root


def centred(x: Tensor, component: Tensor) -> Tensor:  # [N, q] -> [N, q]
    """`x` without its mean over each component."""
    size = torch.bincount(component).to(x.dtype)[:, None]
    total = x.new_zeros(size.shape[0], x.shape[1]).index_add_(0, component, x)
    return x - (total / size)[component]
