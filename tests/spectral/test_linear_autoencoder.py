"""The linear autoencoder against one ridge regression for each column."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.link_prediction import linear_autoencoder


@pytest.mark.parametrize("penalty", [0.5, 10.0])
def test_every_column_is_a_ridge_regression_on_the_others(penalty: float) -> None:
    chance = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(torch.randint(12, (2, 40), generator=chance), num_nodes=15)
    dense = np.zeros((15, 15))
    for user, used in graph.edge_index.T.tolist():
        dense[user, used] = 1.0
    found = linear_autoencoder(graph, penalty=penalty).numpy()
    for column in range(15):  # the last three have no edges
        others = [i for i in range(15) if i != column]
        x, y = dense[:, others], dense[:, column]
        # min |x b - y|² + penalty |b|²
        best = np.linalg.solve(x.T @ x + penalty * np.eye(14), x.T @ y)
        np.testing.assert_allclose(found[others, column], best, atol=1e-5)
        assert found[column, column] == 0.0


def test_edges_of_several_types_count_once() -> None:
    ends = torch.tensor([[0, 0, 0, 1], [1, 1, 2, 2]])
    once = Graph.from_edges(ends)
    twice = Graph.from_edges(ends, type=torch.tensor([0, 4, 0, 0]))
    assert twice.num_edges == once.num_edges + 1
    assert torch.equal(linear_autoencoder(once), linear_autoencoder(twice))


def test_no_edges_foretell_nothing() -> None:
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=4)
    assert not linear_autoencoder(graph).any()


def test_a_penalty_must_be_positive() -> None:
    graph = Graph.from_edges(torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match="penalty"):
        linear_autoencoder(graph, penalty=0.0)
