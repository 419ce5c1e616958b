"""ElectricalNetwork: every way to a form, in graphs taken as large, against numpy's inverse."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from graphmem_torch.graph import Graph
from graphmem_torch.linalg.linear_systems import solved_to
from graphmem_torch.spectral import ElectricalNetwork, laplacian, structure_of
from graphmem_torch.spectral.electrical import NodePairs

NODES, PART = 240, 40


def _edges() -> tuple[torch.Tensor, torch.Tensor]:
    """Six random parts on a ring, three weak edges from each to the next."""
    rng = np.random.default_rng(0)
    parts = []
    for start in range(0, NODES, PART):
        parts.append(np.stack([np.arange(PART - 1), np.arange(1, PART)]) + start)
        parts.append(rng.integers(0, PART, (2, 140)) + start)
        step = rng.integers(0, PART, (2, 3)) + np.array([[start], [start + PART]])
        parts.append(step % NODES)
    index = np.concatenate(parts, 1)
    weight = rng.uniform(0.3, 1.0, index.shape[1])
    return torch.from_numpy(index), torch.from_numpy(weight).float()


def _inverse(graph: Graph) -> np.ndarray:
    """L⁺ of D - |W|, by numpy alone."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    np.maximum.at(matrix, (graph.source, graph.target), np.abs(graph.weight.numpy()))
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    return np.linalg.pinv(np.diag(matrix.sum(1)) - matrix, hermitian=True)


def _score(inverse: np.ndarray, i: int, j: int, weight: float, sign: int) -> float:
    step = inverse[i] - inverse[j]
    resistance = step[i] - step[j]
    return len(inverse) * weight * (step @ step) / (1 + sign * weight * resistance)


@pytest.mark.parametrize("unit", [1e-34, 1.0, 1e34])
def test_structure_of_a_large_graph_is_exact_for_weights_of_any_size(unit: float) -> None:
    index, weight = _edges()
    graph = Graph.from_edges(index, weight * unit, num_nodes=NODES)
    generator = torch.Generator().manual_seed(0)
    network = ElectricalNetwork(graph, columns=32, generator=generator, dense=8)
    found = structure_of(graph, network=network, eigenpairs=4, top=3, columns=32)
    assert found.converged
    inverse = _inverse(Graph.from_edges(index, weight, num_nodes=NODES))
    pairs = zip(*found.bridges.pairs.tolist(), found.bridges.weight.tolist(), strict=True)
    exact = [_score(inverse, i, j, abs(w) / unit, -1) / unit for i, j, w in pairs]
    np.testing.assert_allclose(found.bridges.score.numpy(), exact, rtol=1e-4)
    i, j = found.links.pairs[:, 0].tolist()
    if unit == 1:
        first = _score(inverse, i, j, 1.0, 1)
        np.testing.assert_allclose(float(found.links.score[0]), first, rtol=1e-4)
    # The diagonal of the pseudo-inverse of the normalised Laplacian, with the noise of a sketch.
    operator = laplacian(graph, signed=False, dtype=torch.float64)
    diagonal = np.diag(np.linalg.pinv(operator.to_dense().numpy(), hermitian=True))
    error = np.abs(found.centrality.numpy() / diagonal - 1)
    assert (error < 4.5 * found.centrality_error.numpy()).all()


@pytest.mark.parametrize("least", [0.0, 1e-3])
def test_potentials_are_columns_of_the_inverse(least: float) -> None:
    graph = Graph.from_edges(*_edges(), num_nodes=NODES)
    network = ElectricalNetwork(graph)
    network.least = least
    currents = torch.randn(
        NODES, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    currents[:, 4] = 1.0  # what flows in everywhere alike flows nowhere
    found, _, settled = network.potentials(currents, 1e-12)
    wanted = _inverse(graph) @ (currents - currents.mean(0)).numpy()
    assert settled
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6 * np.abs(wanted).max())


def test_potentials_across_a_thread_are_exact_though_float32_is_not() -> None:
    index, weight = _edges()
    both = torch.cat([index, index + NODES, torch.tensor([[0], [NODES]])], 1)
    graph = Graph.from_edges(both, torch.cat([weight, weight, torch.tensor([1e-4])]))
    network = ElectricalNetwork(graph)
    currents = torch.zeros(2 * NODES, 1, dtype=torch.float64)
    currents[0], currents[NODES] = 1.0, -1.0
    found, _, settled = network.potentials(currents, 1e-10)
    assert settled
    wanted = _inverse(graph) @ currents.numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_sketches_are_fair_and_independent() -> None:
    """E |Y_i - Y_j|^2 / u^2 is |L^+ (e_i - e_j)|^2; its standard deviation sqrt(2 / c)."""
    graph = Graph.from_edges(*_edges(), num_nodes=NODES)
    network = ElectricalNetwork(
        graph, columns=2048, generator=torch.Generator().manual_seed(0), dense=8
    )
    rows, inverse = network.node_sketch.rows / network.unit, _inverse(graph)
    i, j = torch.randint(NODES, (2, 300), generator=torch.Generator().manual_seed(1))
    apart = i != j
    i, j = i[apart], j[apart]
    found = (rows[i] - rows[j]).square().sum(1).numpy()
    wanted = np.square(inverse[i] - inverse[j]).sum(1)
    off = found / wanted - 1
    assert np.abs(off).max() < 5 * (2 / 2048) ** 0.5
    assert abs(off.mean()) < 2 * (2 / 2048) ** 0.5


def test_pairs_are_computed_once_whatever_was_asked() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1, 3], [1, 2, 4]]), num_nodes=6)
    ends = torch.tensor([[0, 2, 1, 1, 0, 5, 2], [2, 0, 1, 2, 3, 5, 0]])
    asked = NodePairs(ends, ElectricalNetwork(graph).operator)
    assert [asked.sides.first.tolist(), asked.sides.second.tolist()] == [[0, 1], [2, 2]]
    spread = asked.spread(torch.tensor([7.0, 8.0]), torch.inf)
    assert spread.tolist() == [7.0, 7.0, 0.0, 8.0, torch.inf, 0.0, 7.0]


def test_sketch_that_is_not_solved_says_so(caplog: pytest.LogCaptureFixture) -> None:
    nodes = 2000
    graph = Graph.from_edges(torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    network = ElectricalNetwork(graph, columns=4, max_iter=8)
    asked = NodePairs(torch.tensor([[0], [nodes - 1]]), network.operator)
    with caplog.at_level(logging.WARNING):
        assert not network.by_sketch(asked.sides).converged
    assert "not reliable" in caplog.text


def test_start_changes_the_work_and_not_the_solution() -> None:
    graph = Graph.from_edges(*_edges(), num_nodes=NODES)
    operator = laplacian(graph, signed=False, dtype=torch.float64)
    dense = operator.to_dense().numpy()
    inverse = np.linalg.pinv(dense, hermitian=True)
    rhs = torch.randn(NODES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rhs = operator.null_space().project(rhs)
    exact = torch.from_numpy(inverse @ rhs.numpy())
    for start in (exact, exact + 5, torch.ones_like(rhs), -exact):
        found, _, done = solved_to(operator, rhs, tol=1e-18, max_iter=1000, start=start)
        assert done
        np.testing.assert_allclose(found.numpy(), exact.numpy(), atol=1e-8)
    least = float(np.linalg.eigvalsh(dense)[1])
    near = exact + 1e-9 * rhs
    found, iterations, done = solved_to(
        operator, rhs, tol=1e-12, max_iter=1000, start=near, least=least
    )
    assert iterations == 0 and done
    np.testing.assert_allclose(found.numpy(), exact.numpy(), atol=1e-6)
