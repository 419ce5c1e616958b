"""Thick restart: the lowest eigenpairs of a symmetric operator beyond a known null space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.linalg.operator import NullSpace, SymmetricOperator

__all__ = ["Interval", "RitzPairs", "block_width", "lowest_pairs"]
_DRIFT = 1e3  # growth of what is deflated, over the wanted, before it is projected out again


@dataclass(frozen=True)
class Interval:
    """Where the unwanted eigenvalues of `sign * operator` are: `cut..high`."""

    cut: float
    high: float

    def growth(self, value: float) -> float:
        """Logarithm of the factor that one more degree lifts an eigenvalue below `cut` by."""
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
        """T_degree of the operator, the interval mapped to [-1, 1], times x.

        Zhou and Saad 2007, "A Chebyshev-Davidson algorithm", section 2. What was deflated is lifted
        the most and would return out of rounding, so it is purged again on the way; projections
        commute with the recurrence.

        Args:
            operator: One product a degree.
            x: The block.
            degree: At least 1.
            sign: -1 to work at the upper end of the operator.
            drift: Growth a degree of the lowest deflated eigenvalue over the wanted ones.
            purge: The projection away from what is deflated.
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
_DEGREE = 80  # of the filter; longer ones save restarts only where the spectrum is crowded
_LONGEST = 400
_SPREAD = 1e5  # most that a filter may lift one vector of the block over another
_STALLED = 4  # restarts without progress at the floor of rounding


@dataclass(frozen=True, eq=False)
class RitzPairs:
    """Eigenpairs of `sign * operator`, ascending, and the block products they took."""

    values: Tensor  # [m]
    vectors: Tensor  # [N, m]
    products: int


def block_width(count: int, room: int) -> int:
    """Columns of the block: the wanted pairs and a guard, whole vector registers."""
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
    """The `count` lowest eigenpairs of `sign * operator` outside `null`.

    One basis of block Lanczos finds where the spectrum lies; every restart keeps its lowest Ritz
    vectors (thick), filters them, reorthogonalises them fully and takes Ritz vectors again;
    converged ones are locked from below. The block is wider than `count`, so an eigenvalue of any
    multiplicity up to `count` has all its copies in the random start and none is missed.

    Args:
        operator: Symmetric.
        count: At most N minus the null vectors.
        sign: -1 for the highest.
        tol: Absolute: a pair is locked when its residual norm is below 0.7 times this.
        generator: Random generator for the start block.
        max_iter: Products with a block after which what there is is returned.
        null: Vectors to deflate.
        start: `[N, m]`, in place of as many random columns.
    """
    search = _Search(operator, count, sign, tol, generator, null)
    search.begin(start)
    while not search.finished() and search.products < max_iter and not search.stalled():
        search.restart(max_iter - search.products)
    return search.result()


class _Search:
    """The state between restarts."""

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
        """`x` without null vectors and locked ones."""
        if self.null is not None:
            x = self.null.project(x)
        return _project_out(x, self.locked)

    def random(self, columns: int) -> Tensor:
        rows, generator = self.operator.shape[0], self.generator
        device = self.operator.device if generator is None else generator.device
        block = torch.randn(rows, columns, generator=generator, device=device)
        return block.to(self.operator.device, self.operator.dtype)

    def beside(self, x: Tensor, known: Tensor) -> Tensor:
        """An orthonormal basis of the span of `x` that is orthogonal to `known` as well."""
        return _orthonormal(x, lambda y: _project_out(self.purge(y), known))

    def product(self, x: Tensor) -> Tensor:
        self.products += 1
        return self.operator.matmul(x.contiguous()).mul_(self.sign)

    def begin(self, start: Tensor | None) -> None:
        """Block Lanczos from random vectors, or the given ones first, without a filter."""
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
        # Ritz values stay inside the spectrum; the residual says how far it may reach beyond.
        top = self.spectrum[-1] + 3 * float((self.top_image - self.spectrum[-1] * self.top).norm())
        self.high = min(self.high, top)

    def ritz(self, basis: Tensor, images: Tensor) -> None:
        """The lowest Ritz vectors of a basis, their values and residuals; locks what converged."""
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
        """Moves converged vectors out of the block, from the lowest on without a gap."""
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
        # A Ritz value lies above an eigenvalue: one below a locked pair proves that one was missed.
        if self.finished() and self.width:
            self.goal += int(self.values[0] < self.locked_values.max() - self.tol)

    def restart(self, budget: int) -> None:
        """Filters the block, at most `budget` products long, and takes Ritz vectors again."""
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
        if block.shape[1] < self.width:  # copies fell together: random ones take their place
            found = block
            fresh = self.random(self.width - block.shape[1])
            fresh = self.beside(fresh, found)
            block = torch.cat([found, fresh], 1)
        self.ritz(block, self.product(block))
        if self.spectrum[-1] > self.high:
            self.high = self.bound

    def plan(self) -> tuple[Interval, int, float]:
        """Where to cut, how long a filter, and how fast what is deflated would grow in it."""
        wanted = min(self.goal - self.locked.shape[1], self.width)
        last, error = float(self.values[wanted - 1]), float(self.residual[:wanted].max())
        cut = self.spectrum[min(self.width, len(self.spectrum) - 1)]
        # In a cluster wider than the block the cut would sink onto the wanted values and no longer
        # part them from anything; it stays above until the gap shows over the error.
        if cut - last > max(0.1 * error, self.rounding):
            self.cut = cut
        self.cut = max(self.cut, last + 1e-7 * (self.high - self.low))
        least = max(1e-3 * (self.bound - self.low), self.rounding)
        interval = Interval(self.cut, max(self.high, self.cut + least))
        lift, first = interval.growth(last), interval.growth(float(self.values[0]))
        # No filter reaches below rounding, and one that tried would overflow.
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
        """Whether all that is wanted is locked."""
        return self.locked.shape[1] >= self.goal or self.width == 0

    def stalled(self) -> bool:
        """Whether the residuals are at the floor of rounding and no longer fall."""
        if self.finished():
            return True
        return self.idle >= _STALLED and self.best < self.rounding

    def result(self) -> RitzPairs:
        """The lowest of what is locked and, where that is too little, of the block."""
        missing = max(0, self.count - self.locked.shape[1])
        values = torch.cat([self.locked_values, self.values[:missing]])
        vectors = torch.cat([self.locked, self.block[:, :missing]], 1)
        order = values.sort().indices[: self.count]
        return RitzPairs(values[order], vectors[:, order], self.products)


def _project_out(x: Tensor, basis: Tensor) -> Tensor:  # [N, b], [N, m] orthonormal -> [N, b]
    """`x` without its part in the span of `basis`."""
    if basis.shape[1] == 0:
        return x
    return torch.addmm(x, basis, basis.T @ x, alpha=-1)


def _orthonormal(x: Tensor, purge: Callable[[Tensor], Tensor]) -> Tensor:  # [N, b] -> [N, <= b]
    """An orthonormal basis of the span of `x` after `purge`, which is a projection.

    SVQB (Stathopoulos and Wu 2002): columns of unit length, then the eigenvectors of their small
    Gram matrix; directions that are rounding alone are dropped. Both are done twice, which makes
    the result orthogonal to working precision. Only products of tall blocks, so it runs at the
    speed of a matrix product on any device; one look at the data for each pass.
    """
    eps = torch.finfo(x.dtype).eps
    before = x.norm(dim=0)
    for _ in range(2):
        x = purge(x)
        gram = x.T @ x
        # A column that vanished under the projection leaves noise; it must not be scaled up.
        alive = gram.diagonal().sqrt() > 10 * eps * before
        scale = torch.where(alive, gram.diagonal().rsqrt(), 0.0)
        spread, turn = torch.linalg.eigh((scale[:, None] * gram * scale).double())
        kept = spread > 10 * eps * spread[-1:].clamp(min=0.5)
        spread, turn = spread[kept], turn[:, kept]
        x = x @ (scale[:, None] * (turn * spread.rsqrt()).to(x.dtype))
        before = torch.ones_like(x[0])
    return x
