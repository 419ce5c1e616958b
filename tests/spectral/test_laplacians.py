"""laplacian: products, diagonal and null vectors against the dense form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import laplacian as scipy_laplacian

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import laplacian

FORMS = [(signed, normalized) for signed in (True, False) for normalized in (True, False)]


@pytest.mark.parametrize(("signed", "normalized"), FORMS)
@pytest.mark.parametrize("size", [(1, 0), (1, 3), (7, 0), (20, 15), (20, 200)])
def test_matches_the_dense_form(random_graph, dense_laplacian, size, signed, normalized):
    graph = random_graph(*size, signed=True)
    operator = laplacian(graph, signed=signed, normalized=normalized, dtype=torch.float64)
    expected = dense_laplacian(graph, signed=signed, normalized=normalized)
    np.testing.assert_allclose(operator.to_dense().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(operator.diagonal().numpy(), expected.diagonal(), atol=1e-12)
    for columns in (1, 3, 64, 65):
        x = torch.randn(size[0], columns, dtype=torch.float64)
        np.testing.assert_allclose((operator @ x).numpy(), expected @ x.numpy(), atol=1e-10)
        shifted = operator.affine(-1.5, 0.25)(x)
        np.testing.assert_allclose(
            shifted.numpy(), -1.5 * expected @ x.numpy() + 0.25 * x.numpy(), atol=1e-10
        )
    low, high = operator.bounds()
    values = np.linalg.eigvalsh(expected)
    assert low - 1e-12 <= values[0]
    assert values[-1] <= high + 1e-12


def test_unsigned_is_scipys_with_its_isolated_nodes(random_graph, adjacency):
    graph = random_graph(40, 30)
    expected = scipy_laplacian(scipy.sparse.csr_matrix(adjacency(graph)), normed=True).toarray()
    got = laplacian(graph, signed=False, dtype=torch.float64).to_dense().numpy()
    np.testing.assert_allclose(got, expected, atol=1e-12)


@given(st.integers(1, 14), st.integers(0, 20), st.integers(0, 10**6), st.sampled_from(FORMS))
def test_null_vectors_are_the_whole_null_space(nodes, edges, seed, form):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    weight = torch.rand(edges, generator=generator) + 0.1
    weight *= torch.where(torch.rand(edges, generator=generator) < 0.3, -1.0, 1.0)
    graph = Graph.from_edges(index, weight, num_nodes=nodes)
    signed, normalized = form
    operator = laplacian(graph, signed=signed, normalized=normalized, dtype=torch.float64)
    null = operator.null_space()
    values = np.linalg.eigvalsh(operator.to_dense().numpy())
    assert null.count == (values < 1e-10).sum()
    vectors = null.vectors(null.count)
    assert torch.allclose(vectors.T @ vectors, torch.eye(null.count, dtype=torch.float64))
    assert bool((operator.matmul(vectors).abs() < 1e-12).all())


@pytest.mark.parametrize("components", [3, 200])
def test_projection_leaves_nothing_of_the_null_space(random_graph, components, generator):
    operator = laplacian(random_graph(15, 60, copies=components), signed=False)
    null = operator.null_space()
    x = torch.randn(operator.shape[0], 6, generator=generator) + 3
    left = null.project(x)
    basis = null.vectors(null.count)
    torch.testing.assert_close(left, x - basis @ (basis.T @ x), atol=2e-6, rtol=0)
    assert (basis.T @ left).abs().max() < 5e-6


def test_an_unbalanced_triangle_is_frustrated(graph_of):
    triangle = [(0, 1), (1, 2), (2, 0)]
    frustrated = laplacian(graph_of(triangle, [1.0, 1.0, -1.0]))
    assert frustrated.null_space().count == 0
    assert np.linalg.eigvalsh(frustrated.to_dense().numpy())[0] == pytest.approx(0.5, abs=1e-6)
    # Two contradictions agree: the enemy of an enemy.
    balanced = laplacian(graph_of(triangle, [1.0, -1.0, -1.0]))
    assert balanced.null_space().count == 1
    assert balanced.null_space().value.sign().tolist() == [1, 1, -1]


def test_of_two_ways_the_stronger_counts(graph_of):
    graph = graph_of([(0, 1), (1, 0), (1, 2), (2, 1)], [0.3, -0.7, -0.5, 0.5])
    assert laplacian(graph).weight.tolist() == pytest.approx([-0.7, 0.5])


def test_weights_too_small_for_their_reciprocal(graph_of):
    operator = laplacian(graph_of([(0, 1), (1, 2)], [1e-42, 1e-42]))
    values = np.linalg.eigvalsh(operator.to_dense().numpy())
    assert values.tolist() == pytest.approx([0, 1, 2], abs=1e-5)


def test_no_nodes():
    operator = laplacian(Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64)))
    assert operator.shape == (0, 0)
    assert operator.matmul(torch.zeros(0, 3)).shape == (0, 3)
    assert operator.null_space().count == 0


def test_bad_input_is_refused_by_name(random_graph):
    graph = random_graph(9, 20)
    learned = graph.with_weight(graph.weight.clone().requires_grad_())
    with pytest.raises(InputError, match="without a gradient"):
        laplacian(learned)
    with pytest.raises(InputError, match="dtype: expected"):
        laplacian(graph, dtype=torch.float16)
    operator = laplacian(graph)
    for x in (torch.zeros(9), torch.zeros(8, 2), torch.zeros(9, 2, dtype=torch.float64)):
        with pytest.raises(InputError, match=r"x: expected torch.float32 of shape \[9, b\]"):
            operator @ x


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 20_000, signed=True)
    x = torch.randn(3000, 17)
    there = laplacian(graph.to("cuda")).matmul(x.cuda())
    torch.testing.assert_close(there.cpu(), laplacian(graph).matmul(x), atol=1e-5, rtol=1e-5)
