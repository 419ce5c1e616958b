"""bridge_scores, bridges and cut edges against pseudo-inverses of changed graphs and networkx."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import components, cut_edges, undirected
from graphmem_torch.spectral import ElectricalNetwork, bridge_scores, bridges


def _random(nodes: int, edges: int, seed: int, *, signed: bool = False) -> Graph:
    rng = np.random.default_rng(seed)
    index = torch.from_numpy(rng.integers(0, nodes, (2, edges)))
    weight = torch.from_numpy(rng.uniform(0.2, 2.0, edges)).float()
    if signed:
        weight *= torch.from_numpy(rng.choice([-1.0, 1.0], edges)).float()
    return Graph.from_edges(index, weight, num_nodes=nodes)


def _dense(graph: Graph) -> np.ndarray:
    """|w| of the symmetrised graph, by numpy alone."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    source, target = graph.source.numpy(), graph.target.numpy()
    np.maximum.at(matrix, (source, target), np.abs(graph.weight.numpy()))
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    return matrix


def _total(matrix: np.ndarray, inside: np.ndarray) -> float:
    """Sum of the resistances of all pairs of some nodes; inf where they do not hang together."""
    part = matrix[np.ix_(inside, inside)]
    if not nx.is_connected(nx.from_numpy_array(part)):
        return np.inf
    values = np.linalg.eigvalsh(np.diag(part.sum(1)) - part)
    return len(inside) * (1 / values[1:]).sum()


def _change(matrix: np.ndarray, i: int, j: int, weight: float) -> float:
    """Return the change of a component's total resistance when the weight of a pair changes."""
    inside = np.array(sorted(nx.node_connected_component(nx.from_numpy_array(matrix), i)))
    other = matrix.copy()
    other[i, j] = other[j, i] = weight
    return abs(_total(other, inside) - _total(matrix, inside))


@pytest.mark.parametrize("method", ["exact", "cg"])
def test_existing_edges_are_worth_the_resistance_that_their_loss_brings(method: str) -> None:
    graph = _random(40, 60, 0, signed=True)
    matrix = _dense(graph)
    found = bridge_scores(graph, method=method)
    low, high = found.pairs
    expected = [_change(matrix, int(i), int(j), 0.0) for i, j in zip(low, high, strict=True)]
    assert np.isinf(expected).any() and not np.isinf(expected).all()
    assert found.exists.all()
    assert torch.allclose(found.weight.abs().double(), torch.from_numpy(matrix)[low, high])
    np.testing.assert_allclose(found.score.numpy(), expected, rtol=1e-4)
    assert ((found.side > 0) == torch.isinf(found.score)).all()


@pytest.mark.parametrize("method", ["exact", "cg"])
def test_absent_pairs_are_worth_the_resistance_that_they_take_away(method: str) -> None:
    graph = _random(30, 60, 1)
    matrix = _dense(graph)
    label = components(graph)
    inside = (label == label.bincount().argmax()).nonzero().squeeze(1)
    pairs = torch.combinations(inside)[::5]
    pairs = pairs[torch.from_numpy(matrix)[pairs[:, 0], pairs[:, 1]] == 0]
    found = bridge_scores(graph, pairs, method=method, weight=0.7)
    expected = [_change(matrix, int(i), int(j), 0.7) for i, j in pairs]
    assert not found.exists.any() and (found.side == 0).all()
    np.testing.assert_allclose(found.score.numpy(), expected, rtol=1e-4)


def test_the_sketch_is_as_noisy_as_it_says() -> None:
    graph = _random(400, 1600, 2)
    exact = bridge_scores(graph, method="exact")
    generator = torch.Generator().manual_seed(3)
    network = ElectricalNetwork(graph, columns=512, generator=generator)
    rough = bridge_scores(graph, method="sketch", network=network)
    assert torch.equal(torch.isinf(rough.score), torch.isinf(exact.score))
    finite = torch.isfinite(exact.score)
    off = ((rough.score - exact.score) / exact.score)[finite]
    claimed = rough.error[finite]
    assert float((off.abs() <= 3 * claimed).float().mean()) > 0.95
    assert 0.05 < float(claimed.median()) < 0.4
    assert 0.3 < float((off / claimed).square().mean().sqrt()) < 1.5


def test_pairs_of_one_node_or_of_two_components() -> None:
    # A triangle, an edge, and a node alone.
    graph = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 0, 4]]), num_nodes=6)
    pairs = torch.tensor([[1, 1], [0, 3], [0, 5], [5, 5], [4, 3]])
    for method in ("exact", "cg", "sketch"):
        found = bridge_scores(graph, pairs, method=method)
        assert found.score.tolist() == [0.0, np.inf, np.inf, 0.0, np.inf]
        assert found.side.tolist() == [0, 2, 1, 0, 1]
        assert found.exists.tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("seed", range(6))
def test_cut_edges_against_networkx(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 120))
    graph = _random(nodes, int(nodes * rng.uniform(0.4, 1.6)), seed)
    low, high, _ = undirected(graph)
    side = cut_edges(low, high, components(graph))
    peer = nx.Graph()
    peer.add_nodes_from(range(nodes))
    peer.add_edges_from(zip(low.tolist(), high.tolist(), strict=True))
    expected = {}
    for i, j in list(nx.bridges(peer)):
        whole = len(nx.node_connected_component(peer, i))
        peer.remove_edge(i, j)
        part = len(nx.node_connected_component(peer, i))
        peer.add_edge(i, j)
        expected[min(i, j), max(i, j)] = min(part, whole - part)
    found = {(int(i), int(j)): int(s) for i, j, s in zip(low, high, side, strict=True) if s}
    assert found == expected


def test_cut_edges_of_a_long_path_and_of_a_ring() -> None:
    nodes = 3000
    chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    graph = Graph.from_edges(chain)
    low, high, _ = undirected(graph)
    side = cut_edges(low, high, components(graph))
    assert torch.equal(side, torch.minimum(high, nodes - high))
    ring = Graph.from_edges(torch.cat([chain, torch.tensor([[nodes - 1], [0]])], 1))
    low, high, _ = undirected(ring)
    assert not cut_edges(low, high, components(ring)).any()


def _two_cliques(size: int) -> Graph:
    """Two cliques joined by a strong and a weak edge, and a pendant of each."""
    one = torch.combinations(torch.arange(size))
    edges = torch.cat([one, one + size, torch.tensor([[0, size], [1, size + 1]])])
    tail = torch.tensor([[2, 2 * size], [size + 2, 2 * size + 1]])
    weight = torch.ones(len(edges) + 2)
    weight[len(edges) - 1] = 0.1
    return Graph.from_edges(torch.cat([edges, tail]).T.contiguous(), weight)


def test_bridges_are_the_edges_between_communities_that_matter_most() -> None:
    graph = _two_cliques(6)
    label = torch.tensor([0] * 6 + [1] * 6 + [0, 1])
    found = bridges(graph, label)
    assert found.pairs.T.tolist() == [[0, 6], [1, 7]]
    assert bridges(graph, label, 1).pairs.T.tolist() == [[0, 6]]
    label[12:] = torch.tensor([2, 3])  # the pendants' edges are cut edges
    found = bridges(graph, label)
    assert found.pairs.T.tolist()[:2] in ([[2, 12], [8, 13]], [[8, 13], [2, 12]])
    assert found.side.tolist() == [1, 1, 0, 0]
    assert found.score[:2].isinf().all() and found.score[2:].isfinite().all()


def test_cut_edges_come_by_the_size_of_what_they_cut_off() -> None:
    chain = Graph.from_edges(torch.stack([torch.arange(9), torch.arange(1, 10)]))
    found = bridges(chain, torch.arange(10), 3)
    assert found.side.tolist() == [5, 4, 4]
    assert found.pairs[:, 0].tolist() == [4, 5]


def test_large_graphs_find_the_same_as_small_ones() -> None:
    graph = _random(300, 1500, 5)
    label = torch.arange(300) % 2
    exact = bridges(graph, label, 5)
    generator = torch.Generator().manual_seed(0)
    network = ElectricalNetwork(graph, columns=128, generator=generator, dense=10)
    rough = bridges(graph, label, 5, network=network)
    assert torch.equal(rough.pairs, exact.pairs)
    assert torch.allclose(rough.score, exact.score, rtol=1e-4)


def test_a_graph_without_edges_has_no_bridges() -> None:
    for nodes in (0, 1, 5):
        graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=nodes)
        assert len(bridges(graph, torch.arange(nodes))) == 0
        assert len(bridge_scores(graph)) == 0


def test_loops_and_parallel_edges_do_not_count() -> None:
    plain = Graph.from_edges(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]), torch.ones(4))
    noisy = Graph.from_edges(
        torch.tensor([[0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 0, 3, 3, 2]]),
        torch.tensor([1.0, 0.4, 1.0, 1.0, 1.0, 9.0, -0.5]),
    )
    one, other = bridge_scores(plain), bridge_scores(noisy)
    assert torch.equal(one.pairs, other.pairs)
    assert torch.allclose(one.score, other.score)


def test_bad_input_is_named() -> None:
    graph = _random(10, 20, 0)
    for call, name in (
        (lambda: bridge_scores(graph, method="best"), "method"),
        (lambda: bridge_scores(graph, weight=0.0), "weight"),
        (lambda: bridge_scores(graph, torch.tensor([[0, 10]])), "pairs"),
        (lambda: bridges(graph, torch.zeros(9, dtype=torch.int64)), "label"),
        (lambda: bridges(graph, torch.zeros(10)), "label"),
        (lambda: bridges(graph, torch.arange(10), 0), "top"),
    ):
        with pytest.raises(InputError, match=name):
            call()


def test_an_iteration_that_stops_early_warns(caplog: pytest.LogCaptureFixture) -> None:
    graph = _random(200, 400, 0)
    with caplog.at_level(logging.WARNING):
        found = bridge_scores(graph, method="cg", network=ElectricalNetwork(graph, max_iter=2))
    assert not found.converged and "max_iter" in caplog.text
