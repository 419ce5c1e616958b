"""Workspace: columns carried from a graph to the next against numpy's pseudo-inverse."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from graphmem_torch.config import StructureConfig
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.conjugate_gradient import solved_to
from graphmem_torch.spectral import Laplacian, centrality, laplacian
from graphmem_torch.spectral.changes import changes_between
from graphmem_torch.spectral.structure import Structure, structure_of
from graphmem_torch.spectral.workspace import Potentials, Workspace

SETTINGS = StructureConfig(eigenpairs=4, top=3, columns=32)
NODES, PART = 240, 40
CHANGES = ["removed", "added", "reweighted", "new node", "node gone", "reordered"]


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


def _changed(what: str) -> tuple[Graph, torch.Tensor]:
    index, weight = _edges()
    kept, nodes = torch.arange(NODES), NODES
    if what == "removed":
        index, weight = index[:, 2:], weight[2:]
    elif what == "added":
        index = torch.cat([index, torch.tensor([[3], [90]])], 1)
        weight = torch.cat([weight, torch.ones(1)])
    elif what == "reweighted":
        weight = weight.clone()
        weight[5] *= -3
    elif what == "new node":
        index = torch.cat([index, torch.tensor([[NODES, NODES], [2, 55]])], 1)
        weight, nodes = torch.cat([weight, torch.ones(2)]), NODES + 1
        kept = torch.cat([kept, torch.tensor([-1])])
    elif what == "node gone":
        alive = (index != 7).all(0)
        index, weight, nodes = index[:, alive], weight[alive], NODES - 1
        index, kept = index - (index > 7).long(), torch.cat([kept[:7], kept[8:]])
    else:
        index, weight = NODES - 1 - index[:, 1:], weight[1:]
        kept = kept.flip(0)
    return Graph.from_edges(index, weight, num_nodes=nodes), kept


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


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph takes the way of a large one."""
    for name in ("bridges", "links", "centrality", "structure"):
        monkeypatch.setattr(sys.modules[f"graphmem_torch.spectral.{name}"], "SMALL", 8)
    monkeypatch.setattr(sys.modules["graphmem_torch.spectral.bridges"], "_MANY", 4)


def _before() -> Structure:
    return structure_of(Graph.from_edges(*_edges(), num_nodes=NODES), SETTINGS)


@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("touched", [0, 256])
def test_a_refresh_is_exact_whatever_changed(
    what: str, touched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["graphmem_torch.spectral.workspace"], "_TOUCHED", touched)
    graph, kept = _changed(what)
    before = _before()
    found = before.refreshed(graph, kept)
    assert found.converged
    inverse = _inverse(graph)
    pairs = zip(*found.bridges.pairs.tolist(), found.bridges.weight.tolist(), strict=True)
    exact = [_score(inverse, i, j, abs(w), -1) for i, j, w in pairs]
    np.testing.assert_allclose(found.bridges.score.numpy(), exact, rtol=1e-4)
    i, j = found.links.pairs[:, 0].tolist()
    np.testing.assert_allclose(
        float(found.links.score[0]), _score(inverse, i, j, 1.0, 1), rtol=1e-4
    )
    # The diagonal of the pseudo-inverse of the normalised Laplacian, with the noise of a sketch.
    operator = laplacian(graph, signed=False, dtype=torch.float64)
    diagonal = np.diag(np.linalg.pinv(operator.to_dense().numpy(), hermitian=True))
    error = np.abs(found.centrality.numpy() / diagonal - 1)
    assert (error < 4.5 * found.centrality_error.numpy()).all()
    # That sketch, solved from nothing.
    workspace = Workspace(
        graph,
        generator=torch.Generator().manual_seed(0),
        before=Potentials(before.potentials.salt, before.potentials.unit),
        changes=changes_between(before.graph, graph, kept),
    )
    cold = centrality(graph, "sketch", columns=SETTINGS.columns, workspace=workspace)
    np.testing.assert_allclose(found.centrality.numpy(), cold.values.numpy(), rtol=5e-3)


@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("unit", [1e-34, 1e34])
def test_weights_at_the_ends_of_float32_give_the_same_structure(unit: float) -> None:
    index, weight = _edges()
    plain = structure_of(Graph.from_edges(index, weight, num_nodes=NODES), SETTINGS)
    before = structure_of(Graph.from_edges(index, weight * unit, num_nodes=NODES), SETTINGS)
    assert torch.allclose(before.centrality, plain.centrality, rtol=1e-3)
    assert torch.equal(before.bridges.pairs, plain.bridges.pairs)
    graph = Graph.from_edges(index[:, 1:], weight[1:] * unit, num_nodes=NODES)
    after = before.refreshed(graph)
    assert after.converged and torch.isfinite(after.centrality).all()
    inverse = _inverse(Graph.from_edges(index[:, 1:], weight[1:], num_nodes=NODES))
    pairs = zip(*after.bridges.pairs.tolist(), after.bridges.weight.tolist(), strict=True)
    exact = [_score(inverse, i, j, abs(w) / unit, -1) / unit for i, j, w in pairs]
    np.testing.assert_allclose(after.bridges.score.numpy(), exact, rtol=1e-4)


@pytest.mark.usefixtures("_large")
def test_a_refresh_takes_far_fewer_products_than_an_analysis_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = _before()
    graph, _ = _changed("removed")
    counted: list[int] = []
    product = Laplacian.matmul

    def matmul(self: Laplacian, x: torch.Tensor) -> torch.Tensor:
        counted.append(x.shape[1])
        return product(self, x)

    monkeypatch.setattr(Laplacian, "matmul", matmul)
    structure_of(graph, SETTINGS)
    anew = sum(counted)
    counted.clear()
    before.refreshed(graph)
    assert sum(counted) < anew / 2


def test_columns_follow_their_nodes_and_pairs_their_order() -> None:
    graph, kept = _changed("reordered")
    old = Graph.from_edges(*_edges(), num_nodes=NODES)
    first = Workspace(old, generator=torch.Generator().manual_seed(0))
    key = torch.tensor([[3, 10], [50, 200]])
    unit = torch.zeros(NODES, 2, dtype=torch.float64)
    unit[key[0], [0, 1]], unit[key[1], [0, 1]] = 1, -1
    scaled = unit * first.exact.degree.rsqrt()[:, None]
    first.solved("pairs", key, first.exact, scaled.clone, tol=1e-14, max_iter=1000)
    carried = first.potentials.after(changes_between(old, graph, kept), "pairs")
    assert carried is not None and carried[0].tolist() == [[189, 39], [236, 229]]
    # Their numbers run the other way now, and so does the current.
    expected = -(_inverse(old) @ unit.numpy())[::-1] * first.potentials.unit
    step = carried[1].numpy() - carried[1].mean(0).numpy()
    np.testing.assert_allclose(step, expected - expected.mean(0), atol=1e-4)
    gone = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=NODES - 1)
    lost = first.potentials.after(changes_between(old, gone, torch.arange(1, NODES)), "pairs")
    assert lost is not None and lost[0].tolist() == [[2, 9], [49, 199]]
    without = torch.cat([torch.arange(3), torch.arange(4, NODES)])
    lost = first.potentials.after(changes_between(old, gone, without), "pairs")
    assert lost is not None and lost[0].tolist() == [[9], [199]]


def test_signs_are_fair_independent_and_stay_with_their_nodes_and_edges() -> None:
    graph, kept = _changed("reordered")
    old = Graph.from_edges(*_edges(), num_nodes=NODES)
    first = Workspace(old, generator=torch.Generator().manual_seed(0))
    signs = first.node_signs(0, 96)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(first.node_signs(16, 40), signs[:, 16:56])
    # Correlations of 96 independent columns, and of all nodes, are within 5 standard deviations.
    for block in (signs, first.edge_signs(0, 96), signs.T):
        inner = block.T @ block / len(block)
        assert float(inner.fill_diagonal_(0).abs().max()) < 5.5 / len(block) ** 0.5
        assert float(block.mean(0).abs().max()) < 5 / len(block) ** 0.5
    after = changes_between(old, graph, kept)
    second = Workspace(
        graph,
        generator=torch.Generator().manual_seed(1),
        before=first.potentials,
        changes=after,
    )
    assert torch.equal(second.node_signs(0, 96), signs.flip(0))
    ends = zip(first.operator.low.tolist(), first.operator.high.tolist(), strict=True)
    known = dict(zip(ends, first.edge_signs(0, 16).tolist(), strict=True))
    ends = zip(second.operator.low.tolist(), second.operator.high.tolist(), strict=True)
    for (low, high), row in zip(ends, second.edge_signs(0, 16).tolist(), strict=True):
        assert known[NODES - 1 - high, NODES - 1 - low] == row


def test_a_start_changes_the_work_and_not_the_solution() -> None:
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
