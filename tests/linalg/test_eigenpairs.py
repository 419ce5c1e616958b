"""lanczos against dense eigensolvers and graphs whose spectra are known."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg import lanczos
from graphmem_torch.spectral import laplacian
from tests.graphs import DenseOperator

NODES = 400  # above what is solved densely


def _check(found, operator, expected, *, tol=1e-6):
    assert found.converged
    np.testing.assert_allclose(found.values.numpy(), expected, atol=5 * tol)
    vectors = found.vectors
    count = vectors.shape[1]
    assert (vectors.T @ vectors - torch.eye(count, dtype=vectors.dtype)).abs().max() < 5e-6
    residual = (operator.matmul(vectors) - vectors * found.values).norm(dim=0)
    torch.testing.assert_close(residual, found.residual)
    assert residual.max() <= tol * operator.bounds()[1]


@pytest.mark.parametrize("which", ["smallest", "largest"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("nodes", [60, NODES, 500])
def test_matches_dense(random_graph, dense_laplacian, generator, which, normalized, nodes):
    graph = random_graph(nodes, 4 * nodes, signed=True)
    operator = laplacian(graph, normalized=normalized)
    found = lanczos(operator, 12, which=which, generator=generator)
    values = np.linalg.eigvalsh(dense_laplacian(graph, normalized=normalized))
    expected = values[:12] if which == "smallest" else values[::-1][:12]
    _check(found, operator, expected)


def test_float64_is_as_exact_as_asked(random_graph, dense_laplacian, generator):
    graph = random_graph(NODES, 1200)
    operator = laplacian(graph, dtype=torch.float64)
    found = lanczos(operator, 30, tol=1e-11, generator=generator)
    assert found.converged
    expected = np.linalg.eigvalsh(dense_laplacian(graph))[:30]
    np.testing.assert_allclose(found.values.numpy(), expected, atol=1e-11)


@pytest.mark.parametrize("k", [5, 8, 20])
def test_eight_components_have_eight_zeros(random_graph, dense_laplacian, generator, k):
    parts = [random_graph(100, 900, seed=s) for s in range(8)]
    index = torch.cat([p.edge_index + 100 * i for i, p in enumerate(parts)], 1)
    graph = Graph.from_edges(index, torch.cat([p.weight for p in parts]), num_nodes=800)
    operator = laplacian(graph)
    found = lanczos(operator, k, generator=generator)
    assert (found.values == 0).sum() == min(k, 8)
    _check(found, operator, np.linalg.eigvalsh(dense_laplacian(graph))[:k])


@pytest.mark.parametrize(("copies", "k"), [(8, 30), (60, 130)])
def test_identical_components_have_right_multiplicities(
    random_graph, dense_laplacian, generator, copies, k
):
    graph = random_graph(20, 90, copies=copies) if copies > 8 else random_graph(60, 400, copies=8)
    operator = laplacian(graph)
    found = lanczos(operator, k, generator=generator)
    _check(found, operator, np.linalg.eigvalsh(dense_laplacian(graph))[:k])


def test_a_cluster_wider_than_the_block_is_no_obstacle(random_graph, generator):
    graph = random_graph(40, 200, copies=40)  # 40 zeros, then 40 copies each; k ends inside them
    operator = laplacian(graph)
    assert operator.null_space().count == 40
    found = lanczos(operator, 44, generator=generator)
    single = lanczos(laplacian(random_graph(40, 200)), 2).values[1]
    _check(found, operator, [0.0] * 40 + [float(single)] * 4)


def _ring(n: int) -> tuple[Graph, list[float]]:
    i = torch.arange(n)
    values = sorted(1 - math.cos(2 * math.pi * j / n) for j in range(n))
    return Graph.from_edges(torch.stack([i, (i + 1) % n])), values


def _star(n: int) -> tuple[Graph, list[float]]:
    i = torch.arange(1, n)
    return Graph.from_edges(torch.stack([torch.zeros_like(i), i])), [0.0] + [1.0] * (n - 2) + [2.0]


def _complete(n: int) -> tuple[Graph, list[float]]:
    index = torch.triu_indices(n, n, 1)
    return Graph.from_edges(index), [0.0] + [n / (n - 1)] * (n - 1)


def _path(n: int) -> tuple[Graph, list[float]]:
    i = torch.arange(n - 1)
    values = [1 - math.cos(math.pi * j / (n - 1)) for j in range(n)]
    return Graph.from_edges(torch.stack([i, i + 1])), values


@pytest.mark.parametrize("make", [_ring, _star, _complete, _path])
@pytest.mark.parametrize("which", ["smallest", "largest"])
@pytest.mark.parametrize("nodes", [12, 300])
def test_known_spectra(make, which, nodes, generator):
    """The ring has every eigenvalue twice, the star and the complete graph all but all."""
    graph, values = make(nodes)
    operator = laplacian(graph, dtype=torch.float64)
    expected = values if which == "smallest" else values[::-1]
    found = lanczos(operator, 7, which=which, generator=generator, max_iter=6000)
    assert found.converged
    np.testing.assert_allclose(found.values.numpy(), expected[:7], atol=1e-6)


def test_a_long_path_warns_honestly(caplog, generator):
    graph, _ = _path(20_000)  # its gap is 1e-8
    with caplog.at_level(logging.WARNING):
        found = lanczos(laplacian(graph), 3, generator=generator, max_iter=150)
    assert not found.converged
    assert "Lanczos stopped after" in caplog.text
    assert found.values[0] == 0
    assert found.iterations <= 150 + 5


def test_what_rounding_cannot_tell_from_zero_is_not_called_converged(caplog, generator):
    graph, _ = _path(20_000)
    with caplog.at_level(logging.WARNING):
        found = lanczos(laplacian(graph), 3, tol=0.1, generator=generator, max_iter=100)
    assert (found.residual <= 0.1).all()
    assert not found.converged
    assert "not larger than their" in caplog.text


def test_a_tolerance_of_zero_ends_with_a_warning(random_graph, caplog, generator):
    with caplog.at_level(logging.WARNING):
        found = lanczos(laplacian(random_graph(NODES, 2000)), 3, tol=0.0, generator=generator)
    assert not found.converged
    assert found.residual.max() < 1e-5
    assert "Lanczos stopped after" in caplog.text


@pytest.mark.parametrize("matrix", [torch.zeros(300, 300), torch.eye(300) * 7])
def test_one_eigenvalue_300_times(matrix, generator):
    for which in ("smallest", "largest"):
        found = lanczos(DenseOperator(matrix), 5, which=which, generator=generator)
        assert found.values.tolist() == pytest.approx([float(matrix[0, 0])] * 5, abs=1e-5)
        assert found.residual.max() < 1e-5
        torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(5))


def test_balanced_and_unbalanced_components_side_by_side(random_graph, dense_laplacian, generator):
    """Zeros only of the balanced ones, beside 60 isolated nodes."""
    parts = [random_graph(90, 500, seed=s, signed=s % 2 == 1) for s in range(6)]
    index = torch.cat([p.edge_index + 90 * i for i, p in enumerate(parts)], 1)
    graph = Graph.from_edges(index, torch.cat([p.weight for p in parts]), num_nodes=600)
    operator = laplacian(graph)
    found = lanczos(operator, 90, generator=generator)
    values = np.linalg.eigvalsh(dense_laplacian(graph))[:90]
    assert (found.values == 0).sum() == (values < 1e-9).sum() == operator.null_space().count
    _check(found, operator, values)


def test_frustration(graph_of):
    found = lanczos(laplacian(graph_of([(0, 1), (1, 2), (2, 0)], [1.0, 1.0, -1.0])), 1)
    assert found.values.tolist() == pytest.approx([0.5], abs=1e-6)


def test_mostly_isolated_nodes(generator):
    graph = Graph.from_edges(torch.tensor([[3, 5, 9], [4, 6, 8]]), num_nodes=9000)
    few = lanczos(laplacian(graph), 20, generator=generator)
    assert few.values.tolist() == [0.0] * 20
    assert few.converged
    top = lanczos(laplacian(graph), 4, which="largest", generator=generator)
    assert top.values.tolist() == pytest.approx([2.0, 2.0, 2.0, 0.0], abs=1e-5)


def test_all_pairs_of_a_small_graph(random_graph, dense_laplacian):
    graph = random_graph(30, 40)
    operator = laplacian(graph)
    _check(lanczos(operator, 30), operator, np.linalg.eigvalsh(dense_laplacian(graph)))


def test_one_node():
    operator = laplacian(Graph.from_edges(torch.tensor([[0], [0]])))
    for which in ("smallest", "largest"):
        found = lanczos(operator, 1, which=which)
        assert found.values.tolist() == [0.0]
        assert found.vectors.abs().tolist() == [[1.0]]


def test_any_symmetric_operator(generator):
    values = torch.linspace(-3, 5, 500, dtype=torch.float64) ** 3
    turn = torch.linalg.qr(torch.randn(500, 500, generator=generator, dtype=torch.float64)).Q
    operator = DenseOperator(turn * values @ turn.T)
    low = lanczos(operator, 6, tol=1e-8, generator=generator)
    high = lanczos(operator, 6, which="largest", tol=1e-8, generator=generator)
    np.testing.assert_allclose(low.values.numpy(), values[:6].numpy(), atol=1e-4)
    np.testing.assert_allclose(high.values.numpy(), values.flip(0)[:6].numpy(), atol=1e-4)


def test_the_same_generator_gives_the_same(random_graph):
    operator = laplacian(random_graph(NODES, 2000))
    runs = [lanczos(operator, 4, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(runs[0].vectors, runs[1].vectors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k: expected an integer of at least 1, got 0"),
        ({"k": 10}, "k: expected at most 9"),
        ({"which": "middle"}, "which: expected one of 'smallest', 'largest'"),
        ({"tol": -1.0}, "tol: expected a number in"),
        ({"max_iter": 0}, "max_iter: expected an integer"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        lanczos(laplacian(random_graph(9, 20)), **{"k": 2, **change})


def test_what_would_overflow_is_refused(random_graph):
    graph = random_graph(NODES, 2000)
    huge = graph.with_weight(graph.weight * 1e30)
    with pytest.raises(InputError, match="scale it, or take float64"):
        lanczos(laplacian(huge, normalized=False), 3)
    assert lanczos(laplacian(huge), 3).converged


def test_an_empty_graph_has_no_eigenvalue():
    operator = laplacian(Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64)))
    with pytest.raises(InputError, match="k: expected at most 0"):
        lanczos(operator, 1)


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph, generator):
    graph = random_graph(3000, 20_000, copies=3)
    there = lanczos(laplacian(graph.to("cuda")), 20)
    assert there.converged
    here = lanczos(laplacian(graph), 20, generator=generator)
    torch.testing.assert_close(there.values.cpu(), here.values, atol=1e-5, rtol=0)
