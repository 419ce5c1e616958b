"""centrality against its definition and against resistances."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import ElectricalNetwork, centrality, effective_resistance, laplacian


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [("auto", 1e-9), ("exact", 1e-9), ("sketch", 0.06), ("truncated", 1e-4)],
)
def test_is_the_sum_over_the_eigenpairs(
    random_graph, dense_laplacian, generator, method, tolerance
):
    graph = random_graph(40, 130, signed=True, copies=3)
    network = ElectricalNetwork(graph, columns=4096, generator=generator)
    found = centrality(graph, method, modes=120, network=network)
    values, vectors = np.linalg.eigh(dense_laplacian(graph, signed=False))
    live = values > 1e-9
    expected = (vectors[:, live] ** 2 / values[live]).sum(1)
    assert found.converged
    np.testing.assert_allclose(found.values.numpy(), expected, rtol=tolerance, atol=1e-7)


def test_is_the_mean_resistance_to_the_rest(random_graph):
    """c_i / d_i = sum_j d_j R_ij / vol minus a constant of the component."""
    graph = random_graph(30, 200)
    nodes = torch.arange(30)
    operator = laplacian(graph, signed=False)
    assert operator.num_components == 1
    pairs = torch.cartesian_prod(nodes, nodes).T
    resistance = effective_resistance(graph, pairs, "exact").values.reshape(30, 30)
    share = operator.degree / operator.degree.sum()
    mean = resistance @ share
    got = centrality(graph).values / operator.degree
    torch.testing.assert_close(got - got.mean(), mean - mean.mean())


@pytest.mark.parametrize("method", ["sketch", "truncated"])
def test_estimates_are_as_exact_as_they_say(random_graph, generator, method):
    graph = random_graph(1200, 8000)
    exact = centrality(graph, "exact").values
    network = ElectricalNetwork(graph, columns=128, generator=generator)
    found = centrality(graph, method, network=network)
    error = ((found.values - exact) / exact).abs().nan_to_num(0.0)
    claimed = found.residual
    if method == "truncated":
        assert (error <= claimed + 1e-6).all()
    else:
        assert error.square().mean().sqrt() < 1.2 * claimed.square().mean().sqrt()


@pytest.mark.parametrize("method", ["auto", "exact", "sketch", "truncated"])
def test_isolated_nodes_and_no_nodes(method):
    edges = torch.tensor([[0], [1]])
    found = centrality(Graph.from_edges(edges, num_nodes=4), method)
    assert found.values.tolist() == pytest.approx([0.25, 0.25, 0.0, 0.0], abs=1e-5)
    assert found.residual[2:].tolist() == [0.0, 0.0]
    empty = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64))
    assert centrality(empty, method).values.shape == (0,)


def test_stopping_early_is_said(caplog, generator):
    nodes = 3000
    graph = Graph.from_edges(torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    with caplog.at_level(logging.WARNING):
        network = ElectricalNetwork(graph, max_iter=20, generator=generator)
        found = centrality(graph, "truncated", modes=3, network=network)
    assert not found.converged
    assert (found.values > 0).all()
    assert "Lanczos stopped after" in caplog.text


def test_bad_input_is_refused_by_name(random_graph):
    graph = random_graph(9, 20)
    for change, message in [
        ({"method": "cg"}, "method: expected one of"),
        ({"modes": 0}, "modes: expected an integer"),
        ({"tol": -1.0}, "tol: expected a number in"),
    ]:
        with pytest.raises(InputError, match=message):
            centrality(graph, **change)
    large = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=20_001)
    with pytest.raises(InputError, match="at most 20000 nodes"):
        centrality(large, "exact")


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(1500, 20_000)
    there = centrality(graph.to("cuda"), "exact")
    torch.testing.assert_close(there.values.cpu(), centrality(graph, "exact").values)
