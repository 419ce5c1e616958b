"""fiedler against networkx, and against the definition on disconnected graphs."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import fiedler


@pytest.mark.parametrize("nodes", [2, 9, 40, 400])
def test_matches_networkx(random_graph, adjacency, generator, nodes):
    chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    drawn = random_graph(nodes, 2 * nodes, signed=True)
    index = torch.cat([chain, drawn.edge_index], 1)
    graph = Graph.from_edges(index, torch.cat([torch.ones(nodes - 1), drawn.weight]))
    found = fiedler(graph, generator=generator)
    plain = nx.from_numpy_array(adjacency(graph, signed=False))
    expected = nx.algebraic_connectivity(plain, normalized=True, tol=1e-10, method="lanczos")
    assert found.converged
    assert float(found.values) == pytest.approx(expected, abs=5e-6)
    laplacian = nx.normalized_laplacian_matrix(plain).toarray()
    vector = found.vectors.double().numpy()
    np.testing.assert_allclose(laplacian @ vector, expected * vector, atol=1e-5)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert vector[np.abs(vector).argmax()] > 0


def test_two_clusters_are_parted(generator):
    pairs = torch.combinations(torch.arange(6)).T
    bridge = torch.tensor([[0], [6]])
    graph = Graph.from_edges(torch.cat([pairs, pairs + 6, bridge], 1))
    side = fiedler(graph, generator=generator).vectors > 0
    assert side[:6].unique().numel() == side[6:].unique().numel() == 1
    assert side[0] != side[6]


def test_a_disconnected_graph_is_parted_between_components(graph_of, adjacency):
    graph = graph_of([(0, 1), (2, 3), (3, 4), (4, 2)], [1.0, 2.0, 1.0, 1.0], nodes=6)
    found = fiedler(graph)
    assert (float(found.values), found.iterations, found.converged) == (0.0, 0, True)
    vector = found.vectors
    assert vector.sign().tolist() == [-1, -1, 1, 1, 1, -1]  # triangle, the rest, an isolated node
    degree = np.abs(adjacency(graph)).sum(1)
    uniform = np.sqrt(np.where(degree > 0, degree, 1))
    assert vector.double().numpy() @ uniform == pytest.approx(0, abs=1e-6)
    assert float(vector.norm()) == pytest.approx(1)
    assert float(found.residual) < 1e-6


def test_a_tiny_gap_warns(caplog, generator):
    nodes = 5000
    graph = Graph.from_edges(torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    with caplog.at_level(logging.WARNING):
        found = fiedler(graph, generator=generator, max_iter=40)
    assert not found.converged
    assert "raise max_iter or tol" in caplog.text


@pytest.mark.parametrize("nodes", [0, 1])
def test_less_than_two_nodes_cannot_be_parted(nodes):
    graph = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=nodes)
    with pytest.raises(InputError, match=f"at least 2 nodes, got {nodes}"):
        fiedler(graph)


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 40_000)
    there = fiedler(graph.to("cuda"))
    torch.testing.assert_close(there.values.cpu(), fiedler(graph).values, atol=1e-5, rtol=0)
