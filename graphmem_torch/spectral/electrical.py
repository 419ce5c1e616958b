"""ElectricalNetwork: a graph as resistors, and all forms in the inverse of its Laplacian.

An edge of weight w conducts |w|. Effective resistance, centrality, and the scores of bridges and
links are forms c' L⁺ c or ‖L⁺ c‖² of some c = a e_i - b e_j. There are three methods:

- A dense pseudo-inverse is exact in a small graph.
- Conjugate gradients are exact to a tolerance for given c.
- A random projection, solved once, estimates any number of forms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import cut_edges
from graphmem_torch.linalg.eigenpairs import pairs_beyond_null
from graphmem_torch.linalg.laplacians import Laplacian, check_dtype, laplacian
from graphmem_torch.linalg.linear_systems import energies, panel, solved_to
from graphmem_torch.ops.spmm import spmm

__all__ = ["ElectricalNetwork", "Forms", "NodePairs", "ResistanceSketch", "Sides"]

_log = logging.getLogger(__name__)

_DENSE = 1024  # nodes up to which the dense pseudo-inverse is the default
_LARGEST = 20_000  # maximum nodes of a dense pseudo-inverse: 3.2 GB
_ROUGH = 1e-3  # of the energy of a mode in a sketch, which is about 1: below its noise
_PROBES = 16  # forms that check a sketch
_TILE = 1 << 16  # sides whose rows are gathered at once


class Forms(NamedTuple):
    """Values `[Q]`, estimates of their relative errors `[Q]`, and the iterations."""

    value: Tensor
    error: Tensor
    iterations: int
    converged: bool


class ResistanceSketch(NamedTuple):
    """Rows `[N, c]` of a random projection, and the convergence of its systems."""

    rows: Tensor
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Sides:
    """Q right sides c = a e_i - b e_j, each inside one component.

    Attributes:
        first: `[Q]` int64, i.
        second: `[Q]` int64, j; i itself where b is 0.
        a: `[Q]` float64.
        b: `[Q]` float64.
    """

    first: Tensor
    second: Tensor
    a: Tensor
    b: Tensor

    @classmethod
    def of_nodes(cls, nodes: int, device: torch.device) -> Sides:
        """Return e_i of every node."""
        node = torch.arange(nodes, device=device)
        one = torch.ones(nodes, dtype=torch.float64, device=device)
        return cls(node, node, one, torch.zeros_like(one))

    def __len__(self) -> int:
        """Number of sides Q."""
        return len(self.first)

    def __getitem__(self, place: Tensor | slice) -> Sides:
        """Return some of the sides."""
        return Sides(self.first[place], self.second[place], self.a[place], self.b[place])

    def dense(self, operator: Laplacian) -> Tensor:  # [N, Q]
        """Return the columns without their part in the null space."""
        column = torch.arange(len(self), device=self.first.device)
        sides = self.a.new_zeros(operator.shape[0], len(self), dtype=operator.dtype)
        sides[self.first, column] = self.a.to(operator.dtype)
        sides[self.second, column] -= self.b.to(operator.dtype)
        return operator.null_space().project(sides)

    def null_part(self, operator: Laplacian) -> Tensor:  # [Q] float64
        """Return (v'c)² for the null vector v of the component."""
        null = operator.null_space().value.double()
        return (null[self.first] * self.a - null[self.second] * self.b).square()

    def identity(self, operator: Laplacian) -> Tensor:  # [Q] float64
        """Return c'c outside the null space."""
        return self.a.square() + self.b.square() - self.null_part(operator)

    def adjacency(self, operator: Laplacian) -> Tensor:  # [Q] float64
        """Return c'Ac outside the null space, A = I - L."""
        edge = operator.edge_between(self.first, self.second)
        weight = torch.nn.functional.pad(operator.weight.double(), (0, 1))[edge]  # 0: none
        across = 2 * self.a * self.b * weight * operator.scale[self.first]
        across = across * operator.scale[self.second]
        # An isolated node is also a null vector of A.
        return -across - torch.where(operator.degree[self.first] > 0, self.null_part(operator), 0.0)

    def squares(self, block: Tensor, weight: Tensor) -> Tensor:  # [N, w], [w, h] -> [Q, h]
        """Return (c'z)² for the columns z of a block, summed with weights."""
        a, b = self.a.to(block.dtype)[:, None], self.b.to(block.dtype)[:, None]
        out = block.new_empty(len(self), weight.shape[1])
        for start in range(0, len(self), _TILE):
            run = slice(start, start + _TILE)
            step = (a[run] * block[self.first[run]]).addcmul_(
                b[run], block[self.second[run]], value=-1
            )
            torch.mm(step.square_(), weight, out=out[run])
        return out


class NodePairs:
    """Requested pairs of nodes, and the distinct ones inside components.

    Args:
        ends: `[2, P]` int64, in any order, repeated, equal or in two components.
        operator: Laplacian of the graph.
        by_degree: Whether c = e_i / sqrt(d_i) - e_j / sqrt(d_j), which makes forms in the
            normalised Laplacian those of D - W; else c = e_i - e_j.

    Attributes:
        sides: Right sides of the Q distinct pairs i < j of nodes in one component.
        apart: `[P]` bool, whether the ends of a requested pair are in two components.
    """

    def __init__(self, ends: Tensor, operator: Laplacian, *, by_degree: bool = True) -> None:
        low, high = ends.aminmax(dim=0) if ends.shape[1] else (ends[0], ends[1])
        self.apart = operator.component[low] != operator.component[high]
        self._live = (~self.apart & (low != high)).nonzero().squeeze(1)
        nodes = max(operator.shape[0], 1)
        key = low[self._live] * nodes + high[self._live]
        key, self._copy = torch.unique(key, return_inverse=True)
        first, second = key // nodes, key % nodes
        scale = operator.scale if by_degree else torch.ones_like(operator.scale)
        self.sides = Sides(first, second, scale[first], scale[second])

    def spread(self, value: Tensor, apart: float) -> Tensor:  # [Q] -> [P]
        """Return values of all requested pairs: 0 for equal nodes, `apart` between components."""
        out = torch.where(self.apart, apart, 0.0).to(value.dtype)
        out[self._live] = value[self._copy]
        return out


class ElectricalNetwork:
    """Laplacian of |w| with data shared by several analyses: its cut edges and its sketches.

    Args:
        graph: N nodes; signs and directions are ignored, loops carry nothing.
        columns: Width c of the sketches.
        generator: Random generator for the signs of the sketches.
        max_iter: Maximum iterations of conjugate gradients or Lanczos.
        dtype: Type of the products, float32 or float64.
        dense: Nodes up to which the dense pseudo-inverse is the default.

    Attributes:
        least: Lower bound of the nonzero eigenvalues, if known. It saves iterations in float64 when
            the float32 solution is proven to suffice.

    Raises:
        InputError: A constant is out of range.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        columns: int = 64,
        generator: torch.Generator | None = None,
        max_iter: int = 2000,
        dtype: torch.dtype = torch.float32,
        dense: int = _DENSE,
    ) -> None:
        check_count("columns", columns)
        check_count("max_iter", max_iter)
        check_dtype(dtype)
        self.graph, self.columns, self.generator = graph, columns, generator
        self.max_iter, self.dtype = max_iter, dtype
        self.small = graph.num_nodes <= dense
        self.least = 0.0

    @cached_property
    def operator(self) -> Laplacian:
        """Normalised Laplacian."""
        return laplacian(self.graph, signed=False, dtype=self.dtype)

    @cached_property
    def exact(self) -> Laplacian:
        """Normalised Laplacian in float64."""
        return self.operator.double()

    @cached_property
    def cut(self) -> Tensor:  # [M] int64
        """Nodes that each edge `operator.low`, `operator.high` cuts off, by `cut_edges`."""
        return cut_edges(self.operator.low, self.operator.high, self.operator.component)

    @cached_property
    def edge_sketch(self) -> ResistanceSketch:
        """Z = A L⁺ F s / sqrt(c) of the normalised L = I - A = F F': E Σ (c'z)² = c' A L⁺ A c.

        F is the weighted incidence, s random signs of the edges. Spielman and Srivastava 2011,
        section 4, sketch L⁺ itself; here only the part of L⁺ = I + A + A L⁺ A without closed form
        is random.
        """
        operator = self.operator
        row = torch.repeat_interleave(operator.indptr.diff().long())
        sign = torch.where(row == operator.low[operator.edge], 1.0, -1.0).double()
        strength = operator.weight.double()[operator.edge] / operator.degree[row]
        incidence = (sign * strength.sqrt()).to(operator.dtype)
        edge = operator.edge.to(torch.int32)

        def sides(count: int) -> Tensor:
            signs = self._signs(len(operator.low), count)
            return spmm(operator.indptr, edge, incidence, signs)

        return self._sketched(sides, operator.adjacency)

    @cached_property
    def node_sketch(self) -> ResistanceSketch:
        """Y = u L⁺ s / sqrt(c), L = D - W: E ‖Y_i - Y_j‖² = u² ‖L⁺ (e_i - e_j)‖², u = `unit`.

        s are random signs of the nodes (Johnson and Lindenstrauss 1984, in the form of Achlioptas
        2003).
        """
        operator = self.operator
        root = torch.where(operator.degree > 0, (self.unit / operator.degree).sqrt(), 0.0)
        root = root.to(operator.dtype)[:, None]

        def sides(count: int) -> Tensor:
            return self._centred(self._signs(operator.shape[0], count)) * root

        return self._sketched(sides, lambda x: self._centred(x * root))

    @cached_property
    def unit(self) -> float:
        """Mean degree; keeps the squares of the node sketch in the range of float32."""
        degree = self.operator.degree
        return float(degree.sum() / max(int((degree > 0).sum()), 1)) or 1.0

    def pseudo_inverse(self, tol: float) -> tuple[Tensor, float]:  # [N, N] float64
        """Return L⁺ of the normalised L: (L + V V')⁻¹ - V V' with its null vectors V.

        Warns if its relative error exceeds `tol`.

        Returns:
            L⁺, and its relative error by rounding: the unit of float64 times ‖L⁺‖₁, which is at
            least 1 / μ_2.

        Raises:
            InputError: The graph has more than 20,000 nodes, or connections of its parts are so
                weak that they vanish in rounding.
        """
        nodes = self.graph.num_nodes
        if nodes > _LARGEST:
            raise InputError(
                f"graph: expected for the dense method='exact' at most {_LARGEST} nodes, got "
                f"{nodes}; use 'cg' or 'sketch'"
            )
        null = self.exact.null_space()
        basis = null.vectors(null.count)
        kernel = basis @ basis.T
        factor, info = torch.linalg.cholesky_ex(self.exact.to_dense() + kernel)
        if bool(info):
            low, high = (float(w) for w in self.exact.weight.aminmax())
            raise InputError(
                "graph: expected connections that float64 resolves for "
                f"method='exact', got weights from {low:.1e} to {high:.1e}; drop "
                "negligible edges"
            )
        inverse = torch.cholesky_inverse(factor) - kernel
        reach = float(inverse.abs().sum(0).max()) if nodes else 0.0
        error = torch.finfo(torch.float64).eps * reach
        if error > tol:
            _log.warning(
                "The dense pseudo-inverse has a relative error of %.2e > %.2e by rounding: parts "
                "of the graph are weakly connected",
                error,
                tol,
            )
        return inverse, error

    def combinatorial_inverse(self, tol: float) -> tuple[Tensor, float]:  # [N, N] float64
        """Return (D - W)⁺ = P D^-1/2 M⁺ D^-1/2 P, M normalised, P centring each component."""
        inverse, error = self.pseudo_inverse(tol)
        scale = self.exact.scale
        inverse = self._centred(scale[:, None] * inverse * scale)
        return self._centred(inverse.T), error

    def by_inverse(self, sides: Sides, tol: float) -> Forms:
        """Return c' L⁺ c by the dense pseudo-inverse, in float64."""
        inverse, error = self.pseudo_inverse(tol)
        own, a, b = inverse.diagonal(), sides.a, sides.b
        mixed = inverse[sides.first, sides.second] * a * b
        value = own[sides.first] * a.square() + own[sides.second] * b.square() - 2 * mixed
        # An isolated node has exactly 0 everywhere.
        errors = torch.where(self.exact.degree[sides.first] > 0, error, 0.0)
        return Forms(value, errors, 0, error <= tol)

    def by_gradients(self, sides: Sides, tol: float) -> Forms:
        """Return c' L⁺ c by conjugate gradients with the c as columns.

        Columns that float32 cannot solve to the tolerance, because their parts of the graph are
        weakly connected, are solved in float64.
        """
        found, most = self._energies(self.operator, sides, tol)
        coarse = (~(found[2] <= tol)).nonzero().squeeze(1)
        if coarse.numel() and self.dtype == torch.float32:
            again, done = self._energies(self.exact, sides[coarse], tol)
            found[:, coarse] = again.to(found.dtype)
            most = max(most, done)
        value, error, rounding = found
        total = error + rounding
        converged = bool((found[1:] <= tol).all())
        if not converged:
            _log.warning(
                "Effective resistance stopped after %d iterations, up to %.2e > %.2e off: raise "
                "max_iter or tol, or take dtype=torch.float64",
                most,
                float(total.max()),
                tol,
            )
        return Forms(value, total, most, converged)

    def by_sketch(self, sides: Sides) -> Forms:
        """Return c' L⁺ c by the edge sketch; the error is one standard deviation."""
        operator, sketch = self.operator, self.edge_sketch
        known = sides.identity(operator) + sides.adjacency(operator)
        known = known.to(operator.dtype)
        rest = sides.squares(sketch.rows, sketch.rows.new_ones(self.columns, 1))[:, 0]
        share = (2 / self.columns) ** 0.5
        # Random edges hardly show a weak connection of two parts, and the iteration may end too
        # early; a few forms are therefore also computed by conjugate gradients.
        probed = slice(None, None, max(-(-len(sides) // _PROBES), 1))
        columns = sides[probed].dense(operator)
        exact = energies(operator, columns, tol=_ROUGH, max_iter=self.max_iter).value
        seen = (1 + 8 * share) * rest[probed] + 1e-2 * exact
        settled = sketch.converged and bool((exact - known[probed] <= seen).all())
        if not settled:
            _log.warning(
                "The sketch is not reliable after %d iterations: too few, or parts of the graph "
                "are weakly connected. Raise max_iter, take dtype=torch.float64, or ask 'cg' for "
                "pairs",
                sketch.iterations,
            )
        value = known + rest
        return Forms(value, _relative(share * rest, value), sketch.iterations, settled)

    def by_modes(self, sides: Sides, modes: int, tol: float) -> Forms:
        """Return c' L⁺ c by the lowest eigenpairs beyond the zeros, and 1 for every other.

        c'c + Σ (c'φ_k)² (1/μ_k - 1): without the first term, nearly everything would be missing.
        The error bounds the omitted pairs and adds the effect of the residuals.
        """
        null = self.operator.null_space()
        found = pairs_beyond_null(
            self.operator,
            min(modes, self.graph.num_nodes - null.count),
            null,
            tol=tol,
            generator=self.generator,
            max_iter=self.max_iter,
        )
        assert found.vectors is not None
        # Values within their residual of 0 have been warned of; do not divide by them.
        inverse = 1 / torch.maximum(found.values, found.residual)
        gain, doubt = inverse - 1, found.residual * inverse.square()
        whole = sides.identity(self.operator).to(self.dtype)
        weights = torch.stack([gain, torch.ones_like(gain), doubt], 1)
        taken = sides.squares(found.vectors, weights)
        value = whole + taken[:, 0]
        # Omitted pairs have |1/μ - 1| at most that of the last mode, or 1/2 at μ = 2.
        beyond = float(gain[-1:].clamp(min=0.5).sum())
        left = (whole - taken[:, 1]).clamp(min=0)
        error = _relative(left * beyond + taken[:, 2], value)
        return Forms(value, error, found.iterations, found.converged)

    def potentials(
        self,
        currents: Tensor,  # [N, q] float64
        tol: float,
    ) -> tuple[Tensor, int, bool]:  # [N, q] float64, iterations, whether all columns got there
        """Return L⁺ b, L = D - W, of columns b: P D^-1/2 M⁺ D^-1/2 P b, P centring each component.

        M is the well-scaled normalised Laplacian. Solving in float32 first saves float64 work.

        Args:
            currents: Current into each node.
            tol: Relative error of b' L⁺ b; its root bounds roughly that of a potential.
        """
        exact = self.exact
        root = exact.scale[:, None]
        sides = self._centred(currents) * root
        size = sides.norm(dim=0)
        sides = sides / torch.where(size > 0, size, 1.0)
        first, most, _ = solved_to(
            self.operator, sides.to(self.dtype), tol=max(tol, 1e-6), max_iter=self.max_iter
        )
        solved, done, settled = solved_to(
            exact,
            sides,
            tol=tol,
            max_iter=self.max_iter,
            start=first.double(),
            least=self.least,
        )
        return self._centred(solved * size * root), most + done, settled

    def _energies(
        self, operator: Laplacian, sides: Sides, tol: float
    ) -> tuple[Tensor, int]:  # [3, Q]
        """Return forms, errors and rounding, a panel at a time: three panels are alive."""
        width, parts, most = panel(operator.shape[0], operator.device), [], 0
        for start in range(0, max(len(sides), 1), width):
            columns = sides[start : start + width].dense(operator)
            found = energies(operator, columns, tol=tol, max_iter=self.max_iter)
            parts.append(torch.stack([found.value, found.error, found.rounding]))
            most = max(most, found.iterations)
        return torch.cat(parts, 1), most

    def _sketched(
        self,
        sides: Callable[[int], Tensor],  # q -> [N, q]
        image: Callable[[Tensor], Tensor],  # [N, q] -> [N, q]
    ) -> ResistanceSketch:
        """Return the images of the solutions for random sides, some columns at a time."""
        operator, most, settled = self.operator, 0, True
        rows = operator.degree.new_empty(operator.shape[0], self.columns, dtype=self.dtype)
        width = panel(operator.shape[0], operator.device)
        for start in range(0, self.columns, width):
            part = rows[:, start : start + width]
            solved, done, reached = solved_to(
                operator, sides(part.shape[1]), tol=_ROUGH, max_iter=self.max_iter
            )
            torch.mul(image(solved), self.columns**-0.5, out=part)
            most, settled = max(most, done), settled and reached
        return ResistanceSketch(rows, most, settled)

    def _signs(self, rows: int, count: int) -> Tensor:  # [rows, count]
        place = self.graph.device if self.generator is None else self.generator.device
        signs = torch.randint(
            0, 2, (rows, count), generator=self.generator, device=place, dtype=torch.int8
        )
        return signs.to(self.graph.device, self.dtype).mul_(2).sub_(1)

    def _centred(self, x: Tensor) -> Tensor:  # [N, q] -> [N, q]
        """Return `x` without its mean over each component."""
        component = self.operator.component
        size = torch.bincount(component).to(x.dtype)[:, None]
        total = x.new_zeros(size.shape[0], x.shape[1]).index_add_(0, component, x)
        return x - (total / size)[component]


def _relative(error: Tensor, value: Tensor) -> Tensor:  # [Q]
    return torch.where(value > 0, error / value, 0.0)
