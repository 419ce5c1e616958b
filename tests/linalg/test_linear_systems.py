"""conjugate_gradient against the dense pseudo-inverse."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg import conjugate_gradient
from graphmem_torch.linalg.linear_systems import energies
from graphmem_torch.spectral import laplacian
from tests.graphs import DenseOperator


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("columns", [1, 3, 64, 65])
def test_is_the_pseudo_inverse(random_graph, generator, columns, normalized):
    operator = laplacian(
        random_graph(60, 150, signed=True), normalized=normalized, dtype=torch.float64
    )
    rhs = torch.randn(60, columns, generator=generator, dtype=torch.float64)
    found = conjugate_gradient(operator, rhs, tol=1e-11)
    assert found.converged
    expected = np.linalg.pinv(operator.to_dense().numpy(), rcond=1e-10) @ rhs.numpy()
    np.testing.assert_allclose(found.values.numpy(), expected, atol=1e-7)
    null = operator.null_space()
    rest = null.project(rhs) - operator.matmul(found.values)
    relative = null.project(rest).norm(dim=0) / null.project(rhs).norm(dim=0)
    torch.testing.assert_close(found.residual, relative)


def test_float32_reaches_its_tolerance(random_graph, generator):
    operator = laplacian(random_graph(2000, 12_000))
    rhs = torch.randn(2000, 40, generator=generator)
    found = conjugate_gradient(operator, rhs, tol=1e-6)
    assert found.converged
    assert found.residual.max() <= 1e-6


def test_columns_end_each_at_its_time(generator):
    values = torch.linspace(1, 900, 200, dtype=torch.float64)
    operator = DenseOperator(torch.diag(values) + 0.1)
    rhs = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    rhs[:, 1] = 0
    rhs[:, 2] *= 1e-200
    found = conjugate_gradient(operator, rhs, tol=1e-9)
    assert found.converged
    assert (found.values[:, 1] == 0).all()
    assert found.residual[1] == 0
    expected = np.linalg.solve(operator.matrix.numpy(), rhs.numpy())
    np.testing.assert_allclose(found.values[:, [0, 1]].numpy(), expected[:, [0, 1]], atol=1e-8)
    np.testing.assert_allclose(
        found.values[:, 2].numpy() * 1e200, expected[:, 2] * 1e200, atol=1e-8
    )


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_squares_beyond_float32_are_no_obstacle(random_graph, generator, size):
    operator = laplacian(random_graph(60, 400))
    rhs = torch.randn(60, 3, generator=generator)
    found = conjugate_gradient(operator, rhs * size)
    assert found.converged
    plain = conjugate_gradient(operator, rhs).values
    torch.testing.assert_close(found.values / size, plain, atol=1e-5, rtol=1e-4)


@given(st.integers(1, 25), st.integers(0, 60), st.integers(0, 10**6))
def test_energy_is_the_quadratic_form(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    weight = torch.rand(edges, generator=generator) + 0.1
    operator = laplacian(Graph.from_edges(index, weight, num_nodes=nodes), dtype=torch.float64)
    rhs = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
    rhs = operator.null_space().project(rhs)
    found = energies(operator, rhs, tol=1e-10, max_iter=500)
    inverse = np.linalg.pinv(operator.to_dense().numpy(), rcond=1e-10)
    expected = np.einsum("np,nm,mp->p", rhs.numpy(), inverse, rhs.numpy())
    np.testing.assert_allclose(found.value.numpy(), expected, rtol=1e-7, atol=1e-12)


def test_stopping_early_is_said(random_graph, caplog, generator):
    operator = laplacian(random_graph(500, 1500))
    with caplog.at_level(logging.WARNING):
        found = conjugate_gradient(
            operator, torch.randn(500, 2, generator=generator), tol=1e-6, max_iter=3
        )
    assert (found.converged, found.iterations) == (False, 3)
    assert "raise max_iter or tol" in caplog.text


def test_no_columns(random_graph):
    found = conjugate_gradient(laplacian(random_graph(9, 20)), torch.zeros(9, 0))
    assert found.values.shape == (9, 0)
    assert found.converged


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rhs": torch.zeros(9)}, r"x: expected torch.float32 of shape \[9, b\]"),
        ({"rhs": torch.zeros(9, 2, requires_grad=True)}, "rhs: expected no gradient"),
        ({"rhs": torch.full((9, 2), torch.nan)}, "rhs: expected finite"),
        ({"tol": -1.0}, "tol: expected a number in"),
        ({"max_iter": 0}, "max_iter: expected an integer"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        conjugate_gradient(laplacian(random_graph(9, 20)), **{"rhs": torch.zeros(9, 2), **change})


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph, generator):
    graph = random_graph(3000, 20_000)
    rhs = torch.randn(3000, 20, generator=generator)
    there = conjugate_gradient(laplacian(graph.to("cuda")), rhs.cuda())
    here = conjugate_gradient(laplacian(graph), rhs)
    torch.testing.assert_close(there.values.cpu(), here.values, atol=1e-4, rtol=1e-4)
