"""pagerank against networkx, and against the linear system it solves."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import pagerank, personalized_pagerank


def _networkx(graph: Graph) -> nx.DiGraph:
    drawn = nx.DiGraph()
    drawn.add_nodes_from(range(graph.num_nodes))
    for j, i, w in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
    ):
        known = drawn.get_edge_data(j, i, {"weight": 0.0})["weight"]
        drawn.add_edge(j, i, weight=known + abs(w))
    return drawn


@pytest.mark.parametrize("damping", [0.5, 0.85, 0.99])
@pytest.mark.parametrize("size", [(1, 0), (9, 0), (30, 25), (40, 200)])
def test_matches_networkx(random_graph, size, damping):
    graph = random_graph(*size, signed=True)
    found = pagerank(graph, damping=damping, tol=1e-6, max_iter=3000)
    expected = nx.pagerank(_networkx(graph), alpha=damping, tol=1e-12, max_iter=5000)
    assert found.converged
    got, expected = found.values.numpy(), [expected[i] for i in range(size[0])]
    # A last change below tol leaves at most tol * damping / (1 - damping) to go.
    np.testing.assert_allclose(got, expected, atol=2e-6 / (1 - damping))


@pytest.mark.parametrize("questions", [1, 3, 16])
def test_personalized_matches_networkx(random_graph, questions):
    graph = random_graph(30, 60)
    generator = torch.Generator().manual_seed(2)
    seeds = torch.rand(questions, 30, generator=generator)
    seeds[seeds < 0.8] = 0.0
    seeds[:, 0] = 0.1
    found = personalized_pagerank(graph, seeds, tol=1e-7, max_iter=500)
    for row, got in zip(seeds.tolist(), found.values.numpy(), strict=True):
        weights = {i: x for i, x in enumerate(row) if x}
        expected = nx.pagerank(_networkx(graph), personalization=weights, tol=1e-12, max_iter=5000)
        np.testing.assert_allclose(got, [expected[i] for i in range(30)], atol=2e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 25), st.integers(0, 80), st.integers(0, 10**6))
def test_it_is_a_distribution_and_solves_its_equation(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = Graph.from_edges(index, torch.rand(edges, generator=generator), num_nodes=nodes)
    seeds = torch.rand(3, nodes, generator=generator, dtype=torch.float64)
    found = personalized_pagerank(graph, seeds, tol=1e-10, max_iter=500)
    assert (found.values >= 0).all()
    walk = np.zeros((nodes, nodes))
    for j, i, w in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
    ):
        walk[i, j] += w
    out = walk.sum(0)
    for start, got in zip(
        (seeds / seeds.sum(1, keepdim=True)).numpy(), found.values.numpy(), strict=True
    ):
        moves = np.where(out > 0, walk / np.where(out > 0, out, 1), start[:, None])
        expected = np.linalg.solve(np.eye(nodes) - 0.85 * moves, 0.15 * start)
        np.testing.assert_allclose(got, expected, atol=1e-7)


def test_a_question_without_seeds_gets_zeros(random_graph):
    seeds = torch.zeros(2, 9)
    seeds[1, 3] = 2.0
    found = personalized_pagerank(random_graph(9, 20), seeds)
    assert found.values[0].tolist() == [0.0] * 9
    assert found.values[1].sum() == pytest.approx(1.0, abs=1e-5)


def test_opcheck(random_graph):
    graph = random_graph(9, 30)
    args = (graph.indptr, graph.source, graph.weight, torch.ones(2, 9), 0.85, 1e-6, 50)
    torch.library.opcheck(torch.ops.graphmem.pagerank.default, args)


def test_stopping_early_is_said(random_graph, caplog):
    with caplog.at_level(logging.WARNING):
        found = pagerank(random_graph(30, 90), tol=1e-12, max_iter=2)
    assert (found.converged, found.iterations) == (False, 2)
    assert found.residual.item() > 1e-12
    assert "raise max_iter or tol" in caplog.text


def test_edges_that_hardly_weigh_anything_lose_no_mass():
    # exp(-rho dt) over a year is subnormal in float32; its only edge still takes everything along.
    edges = torch.tensor([[0, 1, 2], [1, 2, 1]])
    graph = Graph.from_edges(edges, torch.tensor([1e-40, 1.0, 1e-45]), num_nodes=4)
    found = pagerank(graph)
    assert found.converged
    drawn = nx.DiGraph(edges.T.tolist())
    drawn.add_node(3)
    equal = nx.pagerank(drawn, tol=1e-10, max_iter=1000)
    assert found.values.tolist() == pytest.approx([equal[i] for i in range(4)], abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"damping": 1.5}, "damping must be in"),
        ({"tol": -1.0}, "tol must be in"),
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"seeds": torch.full((1, 9), -1.0)}, "finite and not negative"),
        ({"seeds": torch.full((1, 9), torch.nan)}, "finite and not negative"),
        ({"seeds": torch.zeros(9)}, r"matrix \[B, N\]"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        personalized_pagerank(random_graph(9, 20), **{"seeds": torch.ones(1, 9), **change})


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 20_000)
    there = pagerank(graph.to("cuda"))
    torch.testing.assert_close(there.values.cpu(), pagerank(graph).values)
