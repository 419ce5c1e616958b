"""Solvers given a graph or a matrix, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg import conjugate_gradient, lanczos
from graphmem_torch.linalg.matrix_operator import MatrixOperator, as_operator
from graphmem_torch.spectral import laplacian


def _graph(nodes: int, edges: int) -> Graph:
    draw = torch.Generator().manual_seed(nodes)
    ends = torch.randint(0, nodes, (2, edges), generator=draw)
    return Graph.from_edges(ends, torch.randn(edges, generator=draw), num_nodes=nodes)


def _symmetric(rows: int) -> torch.Tensor:
    matrix = torch.randn(
        rows, rows, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    sparse = torch.where(matrix.abs() > 1, matrix, 0.0)
    return sparse + sparse.T


@pytest.mark.parametrize(("nodes", "edges"), [(30, 90), (400, 1500)])
@pytest.mark.parametrize("which", ["smallest", "largest"])
def test_a_graph_stands_for_its_laplacian(nodes, edges, which):
    graph = _graph(nodes, edges)
    found = lanczos(graph, 4, which=which, generator=torch.Generator().manual_seed(0))
    values = np.linalg.eigvalsh(laplacian(graph).to_dense().double().numpy())
    expected = values[:4] if which == "smallest" else values[::-1][:4]
    assert found.converged
    assert np.allclose(found.values.numpy(), expected, atol=1e-5)


def test_systems_with_the_laplacian_of_a_graph():
    graph = _graph(50, 200)
    rhs = torch.randn(50, 3, generator=torch.Generator().manual_seed(2))
    found = conjugate_gradient(graph, rhs, tol=1e-5)
    inverse = np.linalg.pinv(laplacian(graph).to_dense().double().numpy(), rcond=1e-6)
    assert np.allclose(found.values.numpy(), inverse @ rhs.double().numpy(), atol=1e-3)


@pytest.mark.parametrize("layout", ["dense", "coo", "csr", "csc"])
@pytest.mark.parametrize("rows", [20, 300])
def test_a_symmetric_matrix_is_an_operator(layout, rows):
    matrix = _symmetric(rows)
    given = {
        "dense": lambda: matrix,
        "coo": matrix.to_sparse_coo,
        "csr": matrix.to_sparse_csr,
        "csc": matrix.to_sparse_csc,
    }[layout]()
    operator = as_operator(given)
    assert torch.equal(operator.diagonal(), matrix.diagonal())
    assert torch.allclose(operator.to_dense(), matrix)
    values = np.linalg.eigvalsh(matrix.numpy())
    low, high = operator.bounds()
    assert low <= values[0] and values[-1] <= high
    found = lanczos(given, 3, which="largest", generator=torch.Generator().manual_seed(0))
    assert np.allclose(found.values.numpy(), values[::-1][:3], atol=1e-4)
    shifted = matrix.to_dense() + (1 - values[0]) * torch.eye(rows, dtype=torch.float64)
    rhs = torch.randn(rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    solved = conjugate_gradient(shifted, rhs, tol=1e-8).values
    assert np.allclose(solved.numpy(), np.linalg.solve(shifted.numpy(), rhs.numpy()), atol=1e-4)


def test_rounding_does_not_make_a_matrix_unsymmetric():
    rows = torch.randn(60, 40, generator=torch.Generator().manual_seed(4))
    product = rows.T @ rows
    product[0, 1] += 1e-6 * product.abs().max()
    MatrixOperator(product)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.eye(3), "operator: expected a SymmetricOperator, a Graph or .*, got ndarray"),
        (torch.ones(3, 4), r"expected float32 or float64 \[N, N\].* got torch.float32 \[3, 4\]"),
        (torch.ones(0, 0), r"N of at least 1, got torch.float32 \[0, 0\]"),
        (torch.ones(3), r"got torch.float32 \[3\]"),
        (torch.eye(3, dtype=torch.int64), r"got torch.int64 \[3, 3\]"),
        (torch.eye(3).requires_grad_(), "expected no gradient"),
        (torch.full((2, 2), torch.nan), "expected finite entries"),
        (torch.tensor([[0.0, 1.0], [0.0, 0.0]]), "expected a symmetric matrix.*by up to 1;"),
        (torch.tensor([[0.0, 1.0], [0.0, 0.0]]).to_sparse(), "expected a symmetric matrix"),
        (torch.tensor([[torch.inf]]).to_sparse(), "expected finite entries"),
    ],
)
def test_what_is_no_operator_is_refused(given, message):
    for solve in (lambda: lanczos(given, 1), lambda: conjugate_gradient(given, torch.ones(3, 1))):
        with pytest.raises(InputError, match=message):
            solve()


def test_weights_with_a_gradient_are_refused():
    graph = _graph(5, 9)
    with pytest.raises(InputError, match="graph: expected weights without a gradient"):
        lanczos(graph.with_weight(graph.weight.clone().requires_grad_()), 2)
