"""laplacian: the Laplacian of a graph as an operator, signed or not, with known null vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import compress, number, roots_of, switching, undirected
from graphmem_torch.linalg.operator import NullSpace, SymmetricOperator
from graphmem_torch.ops.spmm import spmm

__all__ = ["Laplacian", "check_dtype", "laplacian"]


def laplacian(
    graph: Graph,  # N nodes
    *,
    signed: bool = True,
    normalized: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Laplacian:
    """Return the Laplacian of the symmetrised graph, never formed (`docs/mathematics.md` 2.1, 2.2).

    Of all edges between two nodes, W takes the one of largest |w|; D = diag(sum_j |w_ij|). The
    normalised L = I - D^-1/2 W D^-1/2 has eigenvalues in [0, 2]; otherwise L = D - W. Loops do not
    count. A node without an edge has a row of zeros and so its own eigenvalue 0, as in
    `scipy.sparse.csgraph.laplacian`. So 0 occurs once for each balanced component (each component
    if unsigned), and those null vectors are known exactly.

    Args:
        graph: Weights of any sign, edges of any direction.
        signed: Whether negative weights (contradictions) keep their sign; otherwise W is of |w|.
        normalized: Whether to normalise, as above.
        dtype: Type of the products, float32 or float64.

    Raises:
        InputError: The weights require a gradient, or the dtype is another one.
    """
    check_dtype(dtype)
    low, high, weight = undirected(graph)
    return Laplacian(
        low,
        high,
        weight if signed else weight.abs(),
        graph.num_nodes,
        normalized=normalized,
        dtype=dtype,
    )


def check_dtype(dtype: torch.dtype) -> None:
    """Raise `InputError` unless the dtype is float32 or float64."""
    if dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"dtype: expected torch.float32 or torch.float64, got {dtype}; choose one of them"
        )


class Laplacian(SymmetricOperator):
    """Laplacian of a graph, defined by its products; built by `laplacian`.

    Attributes:
        degree: `[N]` float64, sum_j |w_ij|.
        scale: `[N]` float64, 1 / sqrt(degree); finite for a node without an edge.
        low, high, weight: `[M]`, the undirected edges, `low < high`.
        component: `[N]` int64, number of each node's component.
        num_components: Number of components, balanced or not.
        normalized: Whether it is the normalised form.
    """

    def __init__(
        self,
        low: Tensor,  # [M] int64
        high: Tensor,  # [M] int64
        weight: Tensor,  # [M], not 0
        nodes: int,
        *,
        normalized: bool,
        dtype: torch.dtype,
    ) -> None:
        self.shape, self.dtype, self.device = (nodes, nodes), dtype, low.device
        self.low, self.high, self.weight = low, high, weight
        self.normalized = normalized
        # Compute sums and square roots in float64: weights may be subnormal, their quotients are
        # not.
        exact = weight.double()
        self.degree = torch.zeros(nodes, dtype=torch.float64, device=self.device)
        self.degree.index_add_(0, low, exact.abs()).index_add_(0, high, exact.abs())
        self.scale = self.degree.clamp(min=torch.finfo(torch.float64).tiny).rsqrt()
        self.indptr, self.column, self.edge = compress(low, high, nodes)
        if normalized:
            exact = exact * self.scale[low] * self.scale[high]
            self._diagonal = (self.degree > 0).to(dtype)
        else:
            self._diagonal = self.degree.to(dtype)
        self.entry = exact.to(dtype)[self.edge]
        self._find_null_space()

    def _find_null_space(self) -> None:
        negative = self.weight < 0
        nodes = self.shape[0]
        if bool(negative.any()):
            root, sign = switching(self.low, self.high, negative, nodes)
        else:
            root = roots_of(self.low, self.high, nodes)
            sign = torch.ones_like(root)
        self.component = number(root)
        self.num_components = int(self.component.max()) + 1 if nodes else 0
        balanced = sign != 0
        shape = self.degree.sqrt() if self.normalized else torch.ones_like(self.degree)
        shape = torch.where(self.degree > 0, shape, 1.0)  # an isolated node is its own null vector
        norm = torch.zeros(self.num_components, dtype=torch.float64, device=self.device)
        norm.index_add_(0, self.component, shape * shape)
        value = torch.where(balanced, sign * shape / norm.sqrt()[self.component], 0.0)
        own = (root == torch.arange(nodes, device=self.device)) & balanced
        label = torch.where(balanced, (own.cumsum(0) - 1)[root], -1)
        self._null = NullSpace(label, value.to(self.dtype), int(own.sum()))

    def double(self) -> Laplacian:
        """Return the same Laplacian in float64."""
        return Laplacian(
            self.low,
            self.high,
            self.weight,
            self.shape[0],
            normalized=self.normalized,
            dtype=torch.float64,
        )

    def edge_between(self, first: Tensor, second: Tensor) -> Tensor:  # [Q], [Q] -> [Q] int64
        """Return the edge of each pair of nodes; -1 if there is none."""
        nodes, edges = self.shape[0], self.low.shape[0]
        if edges == 0:
            return torch.full_like(first, -1)
        known = self.low * nodes + self.high
        wanted = torch.minimum(first, second) * nodes + torch.maximum(first, second)
        at = torch.searchsorted(known, wanted).clamp(max=edges - 1)
        return torch.where(known[at] == wanted, at, -1)

    def adjacency(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """Return the product with W, normalised if L is."""
        self.check_columns(x)
        return spmm(self.indptr, self.column, self.entry, x.contiguous())

    def matmul(self, x: Tensor) -> Tensor:  # [N, b] -> [N, b]
        """Return the product with the columns of `x`."""
        return torch.addcmul(self.adjacency(x).neg_(), self._diagonal[:, None], x)

    def affine(self, scale: float, shift: float) -> Callable[[Tensor], Tensor]:
        """Return the product with `scale * L + shift * I`, with the scale in the matrix entries."""
        diagonal = (scale * self._diagonal + shift)[:, None]
        entry = self.entry * -scale

        def product(x: Tensor) -> Tensor:
            return spmm(self.indptr, self.column, entry, x).addcmul_(diagonal, x)

        return product

    def diagonal(self) -> Tensor:  # [N]
        """Return the diagonal entries."""
        return self._diagonal

    def bounds(self) -> tuple[float, float]:
        """Return [0, 2], or twice the largest degree (Gershgorin) if not normalised."""
        if self.normalized or self.shape[0] == 0:
            return 0.0, 2.0
        return 0.0, 2.0 * float(self.degree.max())

    def null_space(self) -> NullSpace:
        """Return one vector per balanced component, in order of its smallest node."""
        return self._null
