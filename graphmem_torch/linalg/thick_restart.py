"""Thick restart: the lowest eigenpairs of a symmetric operator beyond a known null space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.linalg.operator import NullSpace, SymmetricOperator

__all__ = ["Interval", "RitzPairs", "block_width", "lowest_pairs"]
_DRIFT = 1e3  # growth of deflated vectors over wanted ones that forces another projection


@dataclass(frozen=True)
class Interval:
    """Range `cut..high` of the unwanted eigenvalues of `sign * operator`."""

    cut: float
    high: float

    def growth(self, value: float) -> float:
        """Return the log of the growth per degree of an eigenvalue below `cut`."""
        middle, half = (self.high + self.cut) / 2, (self.high - self.cut) / 2
        return math.acosh(max((middle - value) / half, 1.0))

    def filter(
        self,
        operator: SymmetricOperator,
        x: Tensor,  # [N, b]
        degree: int,
        *,
        sign: float,
        drift: float,
        purge: Callable[[Tensor], Tensor],
    ) -> Tensor:  # [N, b]
        """Return T_degree of the operator, with the interval mapped to [-1, 1], times x.

        Zhou and Saad 2007, "A Chebyshev-Davidson algorithm", section 2. Deflated vectors grow the
        most and would return through rounding, so they are purged on the way; projections commute
        with the recurrence.

        Args:
            operator: Operator, multiplied once a degree.
            x: Block to filter.
            degree: Degree of the polynomial, at least 1.
            sign: Sign of the operator; -1 for its upper end.
            drift: Growth a degree of the lowest deflated eigenvalue over the wanted ones.
            purge: Projection away from the deflated vectors.
        """
        middle, half = (self.high + self.cut) / 2, (self.high - self.cut) / 2
        twice = operator.affine(2 * sign / half, -2 * middle / half)
        every = max(1, int(math.log(_DRIFT) / max(drift, 1e-9)))
        before, now = x, twice(x).mul_(0.5)
        for done in range(1, degree):
            before, now = now, twice(now).sub_(before)
            if done % every == 0:
                before, now = purge(before), purge(now)
        return now


_STEPS = 3  # blocks of the first, unfiltered Lanczos basis
_DEGREE = 80  # degree of the filter; longer ones save restarts only in crowded spectra
_LONGEST = 400
_SPREAD = 1e5  # maximum ratio by which a filter lifts one vector of the block over another
_STALLED = 4  # restarts without progress at the floor of rounding


@dataclass(frozen=True, eq=False)
class RitzPairs:
    """Eigenpairs of `sign * operator`, ascending, and the number of block products."""

    values: Tensor  # [m]
    vectors: Tensor  # [N, m]
    products: int


def block_width(count: int, room: int) -> int:
    """Return the columns of the block: the wanted pairs and a guard, in whole vector registers."""
    guard = min(max(count // 2, 8), 32)
    return min(-(-(count + guard) // 16) * 16, room)


def lowest_pairs(
    operator: SymmetricOperator,
    count: int,
    *,
    sign: float,
    tol: float,
    generator: torch.Generator | None,
    max_iter: int,
    null: NullSpace | None,
    start: Tensor | None = None,
) -> RitzPairs:
    """Return the `count` lowest eigenpairs of `sign * operator` outside `null`.

    One basis of block Lanczos locates the spectrum. Every restart keeps its lowest Ritz vectors
    (thick), filters them, reorthogonalises them fully and takes Ritz vectors again; converged ones
    are locked from below. The block is wider than `count`, so the random start contains all copies
    of eigenvalues of multiplicity up to `count`.

    Args:
        operator: Symmetric operator.
        count: Number of pairs, at most N minus the null vectors.
        sign: Sign of the operator; -1 for the highest pairs.
        tol: Absolute tolerance: a pair is locked if its residual norm is below 0.7 times this.
        generator: Random generator for the start block.
        max_iter: Maximum block products; the pairs found by then are returned.
        null: Vectors to deflate.
        start: `[N, m]`, replaces as many random columns.
    """
    search = _Search(operator, count, sign, tol, generator, null)
    search.begin(start)
    while not search.finished() and search.products < max_iter and not search.stalled():
        search.restart(max_iter - search.products)
    return search.result()


class _Search:
    """State between restarts."""

    def __init__(
        self,
        operator: SymmetricOperator,
        count: int,
        sign: float,
        tol: float,
        generator: torch.Generator | None,
        null: NullSpace | None,
    ) -> None:
        self.operator, self.count, self.sign = operator, count, sign
        self.tol = tol
        self.generator, self.null = generator, null
        rows = operator.shape[0]
        self.width = block_width(count, rows - (null.count if null else 0))
        low, high = operator.bounds()
        self.low, self.high = (low, high) if sign > 0 else (-high, -low)
        self.bound = self.high
        self.rounding = 100 * torch.finfo(operator.dtype).eps * max(high - low, -low, high)
        empty = torch.empty(rows, 0, dtype=operator.dtype, device=operator.device)
        self.locked, self.locked_values = empty, empty[0]
        self.products, self.idle, self.best, self.goal = 0, 0, math.inf, count
        self.cut = (self.low + self.high) / 2

    def purge(self, x: Tensor) -> Tensor:
        """Return `x` without null vectors and locked vectors."""
        if self.null is not None:
            x = self.null.project(x)
        return _project_out(x, self.locked)

    def random(self, columns: int) -> Tensor:
        rows, generator = self.operator.shape[0], self.generator
        device = self.operator.device if generator is None else generator.device
        block = torch.randn(rows, columns, generator=generator, device=device)
        return block.to(self.operator.device, self.operator.dtype)

    def beside(self, x: Tensor, known: Tensor) -> Tensor:
        """Return an orthonormal basis of the span of `x`, orthogonal to `known` too."""
        return _orthonormal(x, lambda y: _project_out(self.purge(y), known))

    def product(self, x: Tensor) -> Tensor:
        self.products += 1
        return self.operator.matmul(x.contiguous()).mul_(self.sign)

    def begin(self, start: Tensor | None) -> None:
        """Run unfiltered block Lanczos from random vectors, or from the given ones first."""
        block = self.random(self.width)
        if start is not None:
            known = start[:, : self.width].to(block)
            block = torch.cat([known, block[:, known.shape[1] :]], 1)
        block = _orthonormal(block, self.purge)
        basis, images = block, self.product(block)
        for _ in range(_STEPS - 1):
            block = self.beside(images[:, -block.shape[1] :], basis)
            if block.shape[1] == 0:
                break
            basis = torch.cat([basis, block], 1)
            images = torch.cat([images, self.product(block)], 1)
        self.ritz(basis, images)
        # Ritz values stay inside the spectrum; the residual bounds how far it extends beyond.
        top = self.spectrum[-1] + 3 * float((self.top_image - self.spectrum[-1] * self.top).norm())
        self.high = min(self.high, top)

    def ritz(self, basis: Tensor, images: Tensor) -> None:
        """Compute the lowest Ritz pairs of a basis and their residuals; lock converged ones."""
        projected = basis.T @ images
        values, turn = torch.linalg.eigh((projected + projected.T).double() / 2)
        self.spectrum = values.tolist()
        self.top, self.top_image = (m @ turn[:, -1].to(m.dtype) for m in (basis, images))
        turn = turn[:, : self.width].to(basis.dtype)
        self.block, image = basis @ turn, images @ turn
        self.values = values[: self.width].to(basis.dtype)
        self.residual = (image - self.block * self.values).norm(dim=0)
        self.lock()

    def lock(self) -> None:
        """Move converged vectors out of the block, from the lowest on without a gap."""
        below = (self.residual <= 0.7 * self.tol).tolist()
        done = below.index(False) if False in below else len(below)
        done = min(done, self.goal - self.locked.shape[1])
        self.locked = torch.cat([self.locked, self.block[:, :done]], 1)
        self.locked_values = torch.cat([self.locked_values, self.values[:done]])
        self.block, self.values = self.block[:, done:], self.values[done:]
        self.residual, self.width = self.residual[done:], self.width - done
        wanted = self.residual[: max(1, self.goal - self.locked.shape[1])]
        worst = float(wanted.max()) if self.width else 0.0
        self.idle = self.idle + 1 if not done and worst > 0.7 * self.best else 0
        self.best = worst if done else min(worst, self.best)
        # A Ritz value lies above an eigenvalue, so one below a locked pair proves that a pair was
        # missed.
        if self.finished() and self.width:
            self.goal += int(self.values[0] < self.locked_values.max() - self.tol)

    def restart(self, budget: int) -> None:
        """Filter the block with at most `budget` products, and take Ritz vectors again."""
        interval, degree, drift = self.plan()
        degree = min(degree, budget)
        block = interval.filter(
            self.operator,
            self.block.contiguous(),
            degree,
            sign=self.sign,
            drift=drift,
            purge=self.purge,
        )
        self.products += degree
        block = _orthonormal(block, self.purge)
        if block.shape[1] < self.width:  # copies have merged: random vectors replace them
            found = block
            fresh = self.random(self.width - block.shape[1])
            fresh = self.beside(fresh, found)
            block = torch.cat([found, fresh], 1)
        self.ritz(block, self.product(block))
        if self.spectrum[-1] > self.high:
            self.high = self.bound

    def plan(self) -> tuple[Interval, int, float]:
        """Return the cut, the filter's length, and the growth of deflated vectors in it."""
        wanted = min(self.goal - self.locked.shape[1], self.width)
        last, error = float(self.values[wanted - 1]), float(self.residual[:wanted].max())
        cut = self.spectrum[min(self.width, len(self.spectrum) - 1)]
        # In a cluster wider than the block, the cut would sink onto the wanted values and separate
        # nothing; it stays above until the gap exceeds the error.
        if cut - last > max(0.1 * error, self.rounding):
            self.cut = cut
        self.cut = max(self.cut, last + 1e-7 * (self.high - self.low))
        least = max(1e-3 * (self.bound - self.low), self.rounding)
        interval = Interval(self.cut, max(self.high, self.cut + least))
        lift, first = interval.growth(last), interval.growth(float(self.values[0]))
        # No filter goes below rounding; trying would overflow.
        floor = max(self.tol, 0.01 * self.rounding, torch.finfo(torch.float64).tiny)
        needed = math.log(max(20 * error / floor, 2.0)) / max(lift, 1e-9)
        spread = math.log(_SPREAD) / max(first - lift, 1e-9)
        degree = int(min(needed, spread, max(_DEGREE, min(_LONGEST, 3 / max(lift, 1e-9)))))
        drift = 0.0
        if self.null is not None and self.null.count:
            drift = interval.growth(self.low) - lift
        elif self.locked.shape[1]:
            drift = interval.growth(float(self.locked_values.min())) - lift
        return interval, max(degree, 4), drift

    def finished(self) -> bool:
        """Return whether all wanted pairs are locked."""
        return self.locked.shape[1] >= self.goal or self.width == 0

    def stalled(self) -> bool:
        """Return whether the residuals have reached rounding and no longer decrease."""
        if self.finished():
            return True
        return self.idle >= _STALLED and self.best < self.rounding

    def result(self) -> RitzPairs:
        """Return the lowest locked pairs and, if too few, those of the block."""
        missing = max(0, self.count - self.locked.shape[1])
        values = torch.cat([self.locked_values, self.values[:missing]])
        vectors = torch.cat([self.locked, self.block[:, :missing]], 1)
        order = values.sort().indices[: self.count]
        return RitzPairs(values[order], vectors[:, order], self.products)


def _project_out(x: Tensor, basis: Tensor) -> Tensor:  # [N, b], [N, m] orthonormal -> [N, b]
    """Return `x` without its part in the span of `basis`."""
    if basis.shape[1] == 0:
        return x
    return torch.addmm(x, basis, basis.T @ x, alpha=-1)


def _orthonormal(x: Tensor, purge: Callable[[Tensor], Tensor]) -> Tensor:  # [N, b] -> [N, <= b]
    """Return an orthonormal basis of the span of `x` after the projection `purge`.

    SVQB (Stathopoulos and Wu 2002): unit columns, then the eigenvectors of their small Gram matrix;
    directions of mere rounding are dropped. Two passes make the result orthogonal to working
    precision. Uses only products of tall blocks, so it runs at the speed of a matrix product on any
    device, with one look at the data for each pass.
    """
    eps = torch.finfo(x.dtype).eps
    before = x.norm(dim=0)
    for _ in range(2):
        x = purge(x)
        gram = x.T @ x
        # A column that vanished under the projection is noise and must not be scaled up.
        alive = gram.diagonal().sqrt() > 10 * eps * before
        scale = torch.where(alive, gram.diagonal().rsqrt(), 0.0)
        spread, turn = torch.linalg.eigh((scale[:, None] * gram * scale).double())
        kept = spread > 10 * eps * spread[-1:].clamp(min=0.5)
        spread, turn = spread[kept], turn[:, kept]
        x = x @ (scale[:, None] * (turn * spread.rsqrt()).to(x.dtype))
        before = torch.ones_like(x[0])
    return x
