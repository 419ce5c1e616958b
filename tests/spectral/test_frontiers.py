"""frontiers against a dense pseudo-inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import centrality, frontiers


def test_scores_against_the_dense_pseudo_inverse() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=90)
    graph = Graph.from_edges(
        torch.from_numpy(rng.integers(0, 40, (2, 90))), torch.from_numpy(weight).float()
    )
    matrix = np.zeros((40, 40))
    np.maximum.at(
        matrix, (graph.source.numpy(), graph.target.numpy()), np.abs(graph.weight.numpy())
    )
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    degree = matrix.sum(1)
    root = np.sqrt(degree)
    inverse = np.linalg.pinv(np.eye(40) - matrix / root[:, None] / root, rcond=1e-9, hermitian=True)
    score = inverse.diagonal() / (degree + 1)
    found = frontiers(graph, 7)
    assert found.node.tolist() == np.argsort(-score)[:7].tolist()
    np.testing.assert_allclose(found.score.numpy(), np.sort(score)[::-1][:7], rtol=1e-6)
    np.testing.assert_allclose(found.degree.numpy(), degree[found.node], rtol=1e-6)
    again = frontiers(graph, 7, centrality=centrality(graph).values)
    assert torch.equal(again.node, found.node)


def test_the_end_of_a_tail_is_a_frontier_and_the_isolated_are_none() -> None:
    clique = torch.combinations(torch.arange(8)).T
    tail = torch.tensor([[0, 8, 9], [8, 9, 10]])
    graph = Graph.from_edges(torch.cat([clique, tail], 1), num_nodes=14)
    assert frontiers(graph, 1).node.tolist() == [10]
    assert len(frontiers(graph, 20)) == 11


def test_graphs_without_edges_have_none() -> None:
    for nodes in (0, 1, 3):
        graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=nodes)
        assert len(frontiers(graph)) == 0


def test_bad_input_is_named() -> None:
    graph = Graph.from_edges(torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match="top"):
        frontiers(graph, 0)
    with pytest.raises(InputError, match="centrality"):
        frontiers(graph, centrality=torch.ones(3))
