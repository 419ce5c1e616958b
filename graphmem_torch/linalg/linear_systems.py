"""conjugate_gradient: many linear systems with one symmetric operator, all columns together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.matrix_operator import as_operator
from graphmem_torch.linalg.operator import SymmetricOperator
from graphmem_torch.ops.solution import Solution

__all__ = ["Energy", "conjugate_gradient", "energies", "panel", "solved_to"]
_log = logging.getLogger(__name__)

_CHECK = 8  # iterations between two convergence checks
_REFINEMENTS = 3
_FLOOR = 8


def conjugate_gradient(
    operator: SymmetricOperator | Graph | Tensor,  # [N, N], positive semidefinite
    rhs: Tensor,  # [N, P]
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Solution:  # values [N, P]
    """Solve A x = b for every column b, preconditioned by the diagonal (Jacobi).

    Hestenes and Stiefel 1952. Every 8 iterations, columns with small residuals leave the iteration.
    Their true residuals are then computed; columns that rounding kept above the tolerance are
    solved again. The part of a right side in the operator's known null space is dropped, so the
    result is the pseudo-inverse times b.

    Args:
        operator: Positive semidefinite operator or matrix, dense or sparse; a graph stands for its
            `spectral.laplacian`, normalised and signed.
        rhs: Right sides, in the operator's dtype.
        tol: Maximum of ‖b - A x‖ / ‖b‖.
        max_iter: Maximum iterations of all rounds together.

    Returns:
            `residual` `[P]` is that quotient, recomputed from x; 0 for a zero column.

    Raises:
        InputError: The right sides do not fit the operator, require a gradient or are not finite,
            a constant is out of range, or the operator is none
            (`linalg.matrix_operator.as_operator`).
    """
    operator = as_operator(operator)
    operator.check_columns(rhs)
    if rhs.requires_grad:
        raise InputError(
            "rhs: expected no gradient, because this solver has no backward, got "
            "requires_grad=True; detach it"
        )
    if not bool(rhs.isfinite().all()):
        raise InputError("rhs: expected finite values, got others; drop or repair those columns")
    check_range("tol", tol, 0.0)
    check_count("max_iter", max_iter)
    null = operator.null_space()
    wanted = null.project(rhs) if null is not None else rhs
    # Each column's largest entry becomes 1, so that no square leaves the range of its dtype.
    scale = wanted.abs().amax(0) if wanted.numel() else wanted.new_ones(wanted.shape[1])
    wanted = wanted / torch.where(scale > 0, scale, 1.0)
    size = wanted.norm(dim=0)
    solution, left, done = torch.zeros_like(wanted), wanted, 0
    relative = torch.where(size > 0, 1.0, 0.0).to(size.dtype)
    for _ in range(_REFINEMENTS):
        open_columns = (relative > tol).nonzero().squeeze(1)
        if open_columns.numel() == 0 or done >= max_iter:
            break
        state = _Columns(operator, left[:, open_columns], solve=True)
        done += state.run(max_iter - done, _below(tol * size[open_columns]))
        better = solution.clone()
        better[:, open_columns] += state.solved()
        rest = wanted - operator.matmul(better)
        rest = null.project(rest) if null is not None else rest
        now = torch.where(size > 0, rest.norm(dim=0) / size, 0.0)
        gained = now < relative
        if not bool(gained.any()):
            break
        solution = torch.where(gained, better, solution)
        left = torch.where(gained, rest, left)
        relative = torch.where(gained, now, relative)
    converged = bool((relative <= tol).all())
    if not converged:
        _log.warning(
            "Conjugate gradients stopped after %d iterations with relative residual %.2e > %.2e: "
            "raise max_iter or tol, or take a float64 operator",
            done,
            float(relative.max()),
            tol,
        )
    return Solution(solution * scale, None, relative, done, converged)


def _below(goal: Tensor) -> Callable[[_Columns], Tensor]:  # [P]
    return lambda columns: columns.residual() <= goal[columns.place]


@dataclass(frozen=True, eq=False)
class Energy:
    """Forms b' A^+ b of the columns b, `value` `[P]`, and their relative errors.

    `error` `[P]` is the gain of the last 8 iterations. `rounding` `[P]` is the unit of the dtype
    times |x|² / value, which is 1 / μ for an eigenvector.
    """

    value: Tensor
    error: Tensor
    rounding: Tensor
    iterations: int


def energies(
    operator: SymmetricOperator,
    rhs: Tensor,  # [N, P], without a part in the null space
    *,
    tol: float,
    max_iter: int,
) -> Energy:
    """Return the form b' A^+ b of every column, without forming A^+ b.

    The sum of alpha_t r_t' z_t over the iterations t grows to it from below (Hestenes and Stiefel
    1952, theorem 6.1). The gain of the last iterations estimates the missing part (Strakos and
    Tichy 2002, eq. 4.4). The error is the square of that of the solution, so it converges early.
    """
    state = _Columns(operator, rhs, solve=False)
    done = state.run(max_iter, lambda s: s.gained() <= tol * s.sum)
    kind = torch.finfo(rhs.dtype)
    inverse = 1 / state.energy.clamp(min=kind.tiny)
    rounding = kind.eps * state.length * inverse
    return Energy(state.energy, state.error * inverse, rounding, done)


def panel(nodes: int, device: torch.device) -> int:
    """Return the columns to solve at a time: a panel that fits the last cache or fills a GPU."""
    room = 1 << (26 if device.type == "cuda" else 21)
    return min(max(room // max(nodes, 1) // 16 * 16, 32), 512)


def solved_to(
    operator: SymmetricOperator,
    rhs: Tensor,  # [N, P]
    *,
    tol: float,
    max_iter: int,
    start: Tensor | None = None,  # [N, P]
    least: float = 0.0,
) -> tuple[Tensor, int, bool]:  # [N, P], iterations, whether all columns got there
    """Return A^+ b, iterated until 8 iterations add at most `tol` to b' A^+ b.

    That sum is e'Ae of the error e, so any form c'e is within its root times that of c' A^+ c.
    Parts that depend on the smallest eigenvalues are thus as exact as the rest, which a residual
    cannot guarantee. A near `start` leaves only the difference to find. If no eigenvalue but 0 is
    below `least`, its energy is at most ‖b - A start‖² / least, which may prove columns done.
    """
    null = operator.null_space()
    if start is not None:
        start = start if null is None else null.project(start)
        rhs = rhs - operator.matmul(start)
    state = _Columns(operator, rhs, solve=True)
    state.retire(state.r.square().sum(0) <= tol * least)
    done = state.run(max_iter, lambda s: s.gained() <= tol)
    found = state.solved() if start is None else start + state.solved()
    return found, done, bool((state.error <= tol).all())


class _Columns:
    """Open columns of a run, and the results of all columns."""

    def __init__(self, operator: SymmetricOperator, rhs: Tensor, *, solve: bool) -> None:
        self.operator, self.null = operator, operator.null_space()
        diagonal = operator.diagonal()
        flat = bool(((diagonal == 1) | (diagonal == 0)).all())  # it would precondition nothing
        inverse = torch.where(diagonal > 0, 1 / diagonal, 1.0)[:, None]
        self.inverse = None if flat else inverse
        columns = rhs.shape[1]
        self.solution = torch.zeros_like(rhs) if solve else None
        self.energy = rhs.new_zeros(columns)
        self.error = rhs.new_zeros(columns)
        self.length = rhs.new_zeros(columns)
        self.place = torch.arange(columns, device=rhs.device)
        self.r = rhs.clone() if self.null is None else self.null.project(rhs).clone()
        self.p = self.precondition(self.r).clone()
        self.rz = (self.r * self.p).sum(0)
        # A residual below this is rounding, with a null part that the operator cannot reduce.
        self.floor = self.rz * (_FLOOR * torch.finfo(rhs.dtype).eps) ** 2
        self.x = torch.zeros_like(rhs) if solve else None
        self.sum = rhs.new_zeros(columns)
        self.fresh = self.sum  # gain since the last check; separate, because the sum is far larger
        # |x|², x'p and |p|² in the norm of the preconditioner; r is orthogonal to x and the last p.
        self.xx, self.xp, self.pp = rhs.new_zeros(columns), rhs.new_zeros(columns), self.rz.clone()

    def precondition(self, r: Tensor) -> Tensor:
        return r if self.inverse is None else r * self.inverse

    def run(self, max_iter: int, reached: Callable[[_Columns], Tensor]) -> int:
        """Iterate until every column satisfies `reached(self)`; return the number of iterations."""
        done = 0
        self.retire(self.rz <= self.floor)
        while self.place.numel() and done < max_iter:
            count = min(_CHECK, max_iter - done)
            self.fresh = torch.zeros_like(self.sum)
            for _ in range(count):
                self.step()
            done += count
            if self.null is not None:
                self.r, self.p = self.null.project(self.r), self.null.project(self.p)
            self.sum += self.fresh
            ready, floored = reached(self), self.rz <= self.floor
            self.error[self.place[floored]] = self.rz[floored]  # the remaining error, not the gain
            self.retire(ready | floored)
        self.retire(torch.ones_like(self.place, dtype=torch.bool))
        return done

    def step(self) -> None:
        """Run one iteration of all open columns; exactly solved columns do not change."""
        image = self.operator.matmul(self.p)
        curvature = (self.p * image).sum(0)
        live = (curvature > 0) & (self.rz > self.floor)
        alpha = torch.where(live, self.rz / curvature, 0.0)
        if self.x is not None:
            self.x.addcmul_(self.p, alpha)
        self.r.sub_(image.mul_(alpha))
        self.fresh += alpha * self.rz
        z = self.precondition(self.r)
        now = (self.r * z).sum(0)
        beta = torch.where(live, now / self.rz, 0.0)
        self.p = torch.addcmul(z, self.p, beta)
        self.xx += alpha * (2 * self.xp + alpha * self.pp)
        self.xp = beta * (self.xp + alpha * self.pp)
        self.pp = now + beta.square() * self.pp
        self.rz = now

    def solved(self) -> Tensor:  # [N, P]
        """Return the solutions of all columns; only for a run that keeps them."""
        assert self.solution is not None
        return self.solution

    def residual(self) -> Tensor:
        """Return the residual norms of the open columns by the recurrence."""
        return self.r.norm(dim=0)

    def gained(self) -> Tensor:
        """Return the energy gained since the last check."""
        self.error[self.place] = gain = self.fresh
        return gain

    def retire(self, done: Tensor) -> None:
        """Store the results of finished columns and continue with the others."""
        kept = (~done).nonzero().squeeze(1)
        if kept.numel() == self.place.numel():
            return
        out = done.nonzero().squeeze(1)
        self.energy[self.place[out]], self.length[self.place[out]] = self.sum[out], self.xx[out]
        if self.x is not None and self.solution is not None:
            self.solution[:, self.place[out]] = self.x[:, out]
            self.x = self.x[:, kept].contiguous()
        self.r, self.p = self.r[:, kept].contiguous(), self.p[:, kept].contiguous()
        self.rz, self.sum = self.rz[kept], self.sum[kept]
        self.xx, self.xp, self.pp = self.xx[kept], self.xp[kept], self.pp[kept]
        self.place, self.floor = self.place[kept], self.floor[kept]
