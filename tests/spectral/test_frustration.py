"""frustration: balance against brute force, eigenvalues against numpy."""

from __future__ import annotations

import logging
from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import frustration


def _graph(edges: list[tuple[int, int, float]], nodes: int | None = None) -> Graph:
    index = torch.tensor([e[:2] for e in edges], dtype=torch.int64).reshape(-1, 2).T.contiguous()
    return Graph.from_edges(index, torch.tensor([e[2] for e in edges]), num_nodes=nodes)


def _smallest(graph: Graph, nodes: list[int]) -> float:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    edges = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    for i, j, w in edges:
        if i != j and abs(w) > abs(matrix[i, j]):
            matrix[i, j] = matrix[j, i] = w
    part = matrix[np.ix_(nodes, nodes)]
    root = np.sqrt(np.maximum(np.abs(part).sum(1), 1e-300))
    whole = np.eye(len(nodes)) - part / root[:, None] / root
    return float(np.linalg.eigvalsh(whole)[0]) if len(nodes) > 1 else 0.0


def _balanced(graph: Graph, nodes: list[int]) -> bool:
    """Whether some assignment of camps satisfies every edge; tries them all."""
    inside = [
        (nodes.index(i), nodes.index(j), w)
        for i, j, w in zip(
            graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
        )
        if i in nodes
    ]
    return any(
        all(camp[i] * camp[j] * w > 0 for i, j, w in inside)
        for camp in product((1, -1), repeat=len(nodes))
    )


@pytest.mark.parametrize("seed", range(5))
def test_values_against_numpy_and_balance_against_all_camps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(24) for j in range(i) if i // 8 == j // 8]
    chosen = rng.choice(len(pairs), 22, replace=False)
    sign = rng.choice([-1.0, 1.0], 22, p=[0.3, 0.7])
    weight = rng.uniform(0.2, 1, 22) * sign
    graph = _graph([(*pairs[c], float(w)) for c, w in zip(chosen, weight, strict=True)], nodes=24)
    found = frustration(graph)
    peer = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    peer.add_nodes_from(range(24))
    for nodes in map(sorted, nx.connected_components(peer)):
        part = int(found.component[nodes[0]])
        assert (found.component[nodes] == part).all()
        value = float(found.value[part])
        assert value == pytest.approx(_smallest(graph, nodes), abs=1e-7)
        assert (value == 0) == _balanced(graph, nodes)
        assert (found.camp[nodes] != 0).all() if value == 0 else not found.camp[nodes].any()


def test_camps_of_a_balanced_component() -> None:
    graph = _graph([(0, 1, 1.0), (1, 2, -0.5), (2, 3, 0.7), (3, 0, -1.0), (4, 5, 1.0)])
    found = frustration(graph)
    assert found.value.tolist() == [0.0, 0.0]
    assert found.camp.tolist() == [1, 1, -1, -1, 1, 1]
    assert found.contradictions.tolist() == [2, 0]
    assert found.contradictory.tolist() == []


def test_contradictory_components_are_listed_the_worst_first() -> None:
    mild = [(0, 1, 1.0), (1, 2, 1.0), (0, 2, 1.0), (2, 3, 1.0), (0, 3, -0.1)]
    bad = [(4, 5, -1.0), (5, 6, -1.0), (4, 6, -1.0)]
    found = frustration(_graph(mild + bad + [(7, 8, -1.0)], nodes=10))
    assert found.contradictory.tolist() == [1, 0]
    # Three that all contradict each other: eigenvalues 1/2, 1/2, 2 of I + A / 2.
    assert float(found.value[1]) == pytest.approx(0.5)
    assert found.value[2:].tolist() == [0.0, 0.0]
    assert (found.lean[:4] > 0).all()
    assert found.camp[7:].tolist() == [1, -1, 1]


def test_only_contradictions() -> None:
    # A ring of even length is balanced, one of odd length is not.
    for nodes in (10, 11):
        graph = _graph([(i, (i + 1) % nodes, -1.0) for i in range(nodes)])
        value = float(frustration(graph).value[0])
        expected = 0.0 if nodes % 2 == 0 else 1 - np.cos(np.pi / nodes)
        assert value == pytest.approx(expected, abs=1e-8)


def test_many_unbalanced_components_of_many_sizes_at_once() -> None:
    edges, expected, start = [], [], 0
    for nodes in [3, 5, 51, 3, 201, 7] * 4:
        ring = [(start + i, start + (i + 1) % nodes, 1.0) for i in range(nodes)]
        edges += [*ring[:-1], (*ring[-1][:2], -1.0)]
        expected.append(1 - np.cos(np.pi / nodes))
        start += nodes
    found = frustration(_graph(edges))
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-7)
    assert (found.residual <= 1e-8).all()


def test_graphs_without_edges() -> None:
    for nodes in (0, 1, 4):
        found = frustration(_graph([], nodes=nodes))
        assert found.value.tolist() == [0.0] * nodes
        assert found.camp.tolist() == [1] * nodes


def test_too_few_products_warn(caplog: pytest.LogCaptureFixture) -> None:
    graph = _graph([(i, (i + 1) % 301, -1.0) for i in range(301)])
    with caplog.at_level(logging.WARNING):
        frustration(graph, max_iter=2)
    assert "max_iter" in caplog.text


def test_bad_input_is_named() -> None:
    graph = _graph([(0, 1, 1.0)])
    with pytest.raises(InputError, match="tol"):
        frustration(graph, tol=-1.0)
    with pytest.raises(InputError, match="max_iter"):
        frustration(graph, max_iter=0)
