"""components and switching signs against scipy and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import switching
from graphmem_torch.spectral import components


def _by_scipy(nodes: int, index: torch.Tensor) -> np.ndarray:
    entries = (np.ones(index.shape[1]), index.numpy())
    return connected_components(coo_matrix(entries, shape=(nodes, nodes)), directed=False)[1]


@given(st.integers(1, 60), st.integers(0, 90), st.integers(0, 10**6))
def test_matches_scipy(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = Graph.from_edges(index, num_nodes=nodes)
    assert components(graph).tolist() == _by_scipy(nodes, index).tolist()


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_a_long_path_is_one_component(order, generator):
    nodes = 50_000
    names = {
        "ascending": torch.arange(nodes),
        "descending": torch.arange(nodes).flip(0),
        "shuffled": torch.randperm(nodes, generator=generator),
    }[order]
    graph = Graph.from_edges(torch.stack([names[:-1], names[1:]]), num_nodes=nodes)
    assert components(graph).max() == 0


def test_numbers_follow_the_smallest_node(graph_of):
    graph = graph_of([(5, 1), (2, 6), (6, 4)], nodes=7)
    assert components(graph).tolist() == [0, 1, 2, 3, 2, 1, 2]


def test_an_edge_of_weight_zero_connects_nothing(graph_of):
    assert components(graph_of([(0, 1), (1, 2)], [0.0, -0.5])).tolist() == [0, 1, 1]


def test_no_nodes():
    assert components(Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64))).tolist() == []


def _balanced(nodes: list[int], edges: list[tuple[int, int, int]]) -> bool:
    """Whether some signs satisfy every edge, by trying all."""
    for signs in itertools.product([1, -1], repeat=len(nodes)):
        side = dict(zip(nodes, signs, strict=True))
        if all(side[i] * side[j] == s for i, j, s in edges):
            return True
    return False


@given(st.integers(1, 9), st.integers(0, 10), st.integers(0, 10**6))
def test_switching_is_found_exactly_where_there_is_one(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(0, nodes, (2, edges), generator=generator)
    source, target = source[source != target], target[source != target]
    negative = torch.rand(len(source), generator=generator) < 0.4
    root, sign = switching(source, target, negative, nodes)
    labels = _by_scipy(nodes, torch.stack([source, target]))
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label).tolist()
        inside = [
            (i, j, -1 if n else 1)
            for i, j, n in zip(source.tolist(), target.tolist(), negative.tolist(), strict=True)
            if i in members
        ]
        assert root[members].tolist() == [min(members)] * len(members)
        if _balanced(members, inside):
            assert all(sign[i] * sign[j] == s for i, j, s in inside)
            assert sign[min(members)] == 1
        else:
            assert (sign[members] == 0).all()


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 2500)
    assert torch.equal(components(graph.to("cuda")).cpu(), components(graph))
