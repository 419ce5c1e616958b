"""Estimates of quadratic forms c' L^+ c for many c at once: by a sketch, or by the lowest modes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from graphmem_torch.linalg.conjugate_gradient import energies, panel, solved_to
from graphmem_torch.linalg.lanczos import pairs_beyond_null
from graphmem_torch.ops.spmm import spmm
from graphmem_torch.spectral.laplacian import Laplacian
from graphmem_torch.spectral.workspace import Workspace

__all__ = ["Found", "by_modes", "by_sketch", "sketched_columns"]

_log = logging.getLogger(__name__)

_TOL = 1e-3  # of the energy of a mode in the sketch, where each has 1: below its noise
_PROBES = 16  # forms by which a sketch is checked


class Forms(Protocol):
    """Right sides c, Q of them, by the forms in which they are asked for."""

    def identity(self) -> Tensor:  # [Q]
        """c'c, outside the null space."""

    def adjacency(self) -> Tensor:  # [Q]
        """c'Ac, outside the null space; A = I - L."""

    def squares(self, block: Tensor, weight: Tensor) -> Tensor:  # [N, w], [w, h] -> [Q, h]
        """(c'z)² for the columns z of a block, summed with weights."""

    def right_sides(self, place: Tensor | slice) -> Tensor:  # [N, q]
        """Some of the columns c, without their part in the null space."""


class Found(NamedTuple):
    """Values `[Q]`, estimates of their relative errors `[Q]`, and how they were reached."""

    values: Tensor
    error: Tensor
    iterations: int
    converged: bool


def by_sketch(
    operator: Laplacian,  # normalised, balanced
    asked: Forms,
    columns: int,
    *,
    generator: torch.Generator | None,
    max_iter: int,
    workspace: Workspace | None = None,
) -> Found:
    """Random projection; the error is one standard deviation.

    On the range of L, L^+ = I + A + A L^+ A, where the first two terms are known and only the rest
    is left to chance: the columns z = A L^+ F ξ / sqrt(columns) have E[Σ (c'z)²] =
    c' A L^+ A c. F F' = L is the weighted incidence and ξ are random signs on the edges (Spielman
    and Srivastava 2011, section 4, which sketches L^+ itself).
    """
    known = asked.identity() + asked.adjacency()
    rest, most, settled = torch.zeros_like(known), 0, True
    for solved, done, reached in sketched_columns(
        operator, columns, generator=generator, max_iter=max_iter, workspace=workspace
    ):
        part = operator.adjacency(solved)
        rest += asked.squares(part, part.new_full((part.shape[1], 1), 1 / columns))[:, 0]
        most, settled = max(most, done), settled and reached
    noise_share = (2 / columns) ** 0.5
    # Where little joins two parts of the graph, random edges hardly show it and the iteration may
    # end before it is seen; a few forms are therefore computed the other way too.
    count = known.shape[0]
    place = torch.arange(0, count, max(-(-count // _PROBES), 1), device=known.device)
    probe = energies(operator, asked.right_sides(place), tol=_TOL, max_iter=max_iter).value
    seen = (1 + 8 * noise_share) * rest[place] + 1e-2 * probe
    settled = settled and bool((probe - known[place] <= seen).all())
    if not settled:
        _log.warning(
            "The sketch is not reliable after %d iterations: too few, or parts of the graph hardly "
            "hang together. Raise max_iter, take a float64 operator, or ask 'cg' for pairs",
            most,
        )
    values = known + rest
    return Found(values, _relative(noise_share * rest, values), most, settled)


def sketched_columns(
    operator: Laplacian,  # normalised, balanced
    columns: int,
    *,
    generator: torch.Generator | None,
    max_iter: int,
    workspace: Workspace | None = None,
) -> Iterator[tuple[Tensor, int, bool]]:  # [N, w], iterations, whether all were solved
    """The columns L^+ F ξ of a sketch, some at a time; F and ξ as in `by_sketch`.

    A workspace has signs of its own and keeps the columns.
    """
    low = torch.repeat_interleave(operator.indptr.diff().long())
    sign = torch.where(low == operator.low[operator.edge], 1.0, -1.0).double()
    strength = operator.weight.double()[operator.edge] / operator.degree[low]
    incidence = (sign * strength.sqrt()).to(operator.dtype)
    edge = operator.edge.to(torch.int32)
    width = panel(operator.shape[0], operator.device)
    device = operator.device if generator is None else generator.device
    for start in range(0, columns, width):
        count = min(width, columns - start)
        if workspace is not None:
            key = -1 - torch.arange(start, start + count, device=operator.device)[None]
            draw = partial(workspace.edge_signs, start, count)
            sides = partial(_noise, operator, edge, incidence, draw)
            yield workspace.solved("edges", key, operator, sides, tol=_TOL, max_iter=max_iter)
            continue
        shape = operator.low.shape[0], count
        signs = torch.randint(0, 2, shape, generator=generator, device=device, dtype=torch.int8)
        signs = signs.to(operator.device, operator.dtype).mul_(2).sub_(1)
        noise = spmm(operator.indptr, edge, incidence, signs)
        yield solved_to(operator, noise, tol=_TOL, max_iter=max_iter)


def _noise(
    operator: Laplacian, edge: Tensor, incidence: Tensor, draw: Callable[[], Tensor]
) -> Tensor:  # [N, w]
    return spmm(operator.indptr, edge, incidence, draw())


def by_modes(
    operator: Laplacian,  # normalised, balanced
    asked: Forms,
    modes: int,
    *,
    tol: float,
    generator: torch.Generator | None,
    max_iter: int,
) -> Found:
    """Eigenpairs beside the zeros, and 1 for every other.

    The error bounds what is left out, and adds what the residuals leave open of the values.

    c'c + Σ (c'φ_k)² (1/μ_k - 1) over the modes k: without the first term, what is left out would
    be nearly everything.
    """
    null = operator.null_space()
    count = min(modes, operator.shape[0] - null.count)
    found = pairs_beyond_null(
        operator, count, null, tol=tol, generator=generator, max_iter=max_iter
    )
    assert found.vectors is not None
    # A value that its residual does not tell from 0 was warned of; it must not be divided by.
    inverse = 1 / torch.maximum(found.values, found.residual)
    gain, doubt = inverse - 1, found.residual * inverse.square()
    whole = asked.identity()
    weights = torch.stack([gain, torch.ones_like(gain), doubt], 1)
    taken = asked.squares(found.vectors, weights)
    values = whole + taken[:, 0]
    # What is left out has |1/μ - 1| at most that of the last mode, or 1/2 at μ = 2.
    beyond = float(gain[-1:].clamp(min=0.5).sum())
    left = (whole - taken[:, 1]).clamp(min=0)
    error = _relative(left * beyond + taken[:, 2], values)
    return Found(values, error, found.iterations, found.converged)


def _relative(error: Tensor, values: Tensor) -> Tensor:  # [Q]
    return torch.where(values > 0, error / values, 0.0)
