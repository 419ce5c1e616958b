"""communities: planted parts found again, sweep cuts against all cuts, connectedness."""

from __future__ import annotations

import sys
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import components, undirected
from graphmem_torch.spectral import communities, fiedler, modularity
from graphmem_torch.spectral.community import sweep_cut

METHODS = ["leiden", "fiedler"]


def _planted(parts: int, size: int, inside: float, across: float, seed: int = 0) -> Graph:
    peer = nx.planted_partition_graph(parts, size, inside, across, seed=seed)
    return Graph.from_edges(torch.tensor(list(peer.edges)).T, num_nodes=parts * size)


def _is_connected(graph: Graph, label: torch.Tensor) -> bool:
    peer = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    peer.add_nodes_from(range(graph.num_nodes))
    return all(
        nx.is_connected(peer.subgraph((label == part).nonzero().squeeze(1).tolist()))
        for part in label.unique()
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [2, 5, 8])
def test_planted_parts_are_found_again(method: str, parts: int) -> None:
    graph = _planted(parts, 40, 0.3, 0.01)
    label = communities(graph, method)
    truth = np.repeat(np.arange(parts), 40)
    assert label.dtype == torch.int32
    assert adjusted_rand_score(truth, label.numpy()) > 0.9
    assert _is_connected(graph, label)


@pytest.mark.parametrize("method", METHODS)
def test_labels_are_dense_in_order_of_their_smallest_nodes_and_connected(method: str) -> None:
    rng = np.random.default_rng(0)
    index = torch.from_numpy(rng.integers(0, 300, (2, 320)))
    weight = torch.from_numpy(rng.normal(size=320)).float()
    graph = Graph.from_edges(index, weight, num_nodes=310)  # several components, 10+ isolated
    label = communities(graph, method)
    assert torch.equal(label.unique(), torch.arange(int(label.max()) + 1, dtype=torch.int32))
    firsts = [int((label == part).nonzero()[0]) for part in range(int(label.max()) + 1)]
    assert firsts == sorted(firsts)
    assert _is_connected(graph, label)
    assert len(label[300:].unique()) == 10


@pytest.mark.parametrize("method", METHODS)
def test_the_same_again_by_default_and_by_generator(method: str) -> None:
    graph = _planted(6, 25, 0.25, 0.06)
    assert torch.equal(communities(graph, method), communities(graph, method))
    one, other = (
        communities(graph, method, generator=torch.Generator().manual_seed(7)) for _ in range(2)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("method", METHODS)
def test_signs_directions_loops_and_repetitions_do_not_count(method: str) -> None:
    graph = _planted(3, 20, 0.5, 0.02)
    index = graph.edge_index
    loops = torch.arange(60).expand(2, 60)
    noisy = Graph.from_edges(
        torch.cat([index.flip(0), index, loops], 1),
        torch.cat(
            [-torch.ones(index.shape[1]), torch.full((index.shape[1],), 0.5), torch.ones(60)]
        ),
    )
    assert torch.equal(communities(graph, method), communities(noisy, method))


@pytest.mark.parametrize("method", METHODS)
def test_graphs_without_structure(method: str) -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    assert communities(Graph.from_edges(none, num_nodes=0), method).tolist() == []
    assert communities(Graph.from_edges(none, num_nodes=1), method).tolist() == [0]
    assert communities(Graph.from_edges(none, num_nodes=3), method).tolist() == [0, 1, 2]
    pair = Graph.from_edges(torch.tensor([[0], [1]]))
    assert communities(pair, method).tolist() == [0, 0]
    clique = Graph.from_edges(torch.combinations(torch.arange(12)).T.contiguous())
    assert communities(clique, method).tolist() == [0] * 12


def test_extreme_weights_do_not_matter_by_their_size() -> None:
    graph = _planted(3, 20, 0.5, 0.02)
    for factor in (1e-40, 1e30):
        scaled = graph.with_weight(graph.weight * factor)
        for method in METHODS:
            assert torch.equal(communities(graph, method), communities(scaled, method))


def test_modularity_against_networkx() -> None:
    graph = _planted(4, 20, 0.4, 0.05)
    weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0))
    graph = graph.with_weight(weight)
    label = communities(graph)
    peer = nx.Graph()
    peer.add_nodes_from(range(80))
    for i, j, w in zip(graph.source.tolist(), graph.target.tolist(), weight.tolist(), strict=True):
        peer.add_edge(i, j, weight=w)
    parts = [(label == part).nonzero().squeeze(1).tolist() for part in label.unique()]
    assert modularity(graph, label) == pytest.approx(nx.community.modularity(peer, parts))
    louvain = nx.community.louvain_communities(peer, seed=0)
    assert modularity(graph, label) >= nx.community.modularity(peer, louvain) - 0.01


def test_resolution_makes_communities_smaller() -> None:
    graph = _planted(6, 20, 0.5, 0.1)
    few, many = (communities(graph, resolution=r).max() for r in (0.3, 3.0))
    assert few < many


def test_two_rings_part_where_fiedler_says() -> None:
    ring = [(i, (i + 1) % 10) for i in range(10)]
    edges = [*ring, *((i + 10, j + 10) for i, j in ring), (0, 10)]
    graph = Graph.from_edges(torch.tensor(edges).T)
    assert communities(graph, "fiedler", conductance=0.1).tolist() == [0] * 10 + [1] * 10
    vector = fiedler(graph).vectors
    assert vector is not None
    side = vector > 0
    assert torch.equal(side[:10], side[:1].expand(10)) and side[0] != side[10]


def test_conductance_and_size_stop_the_bisection() -> None:
    path = Graph.from_edges(torch.tensor(list(pairwise(range(64)))).T)
    assert int(communities(path, "fiedler", conductance=0.001).max()) == 0
    sizes = communities(path, "fiedler", conductance=1.0, min_size=5).bincount()
    assert int(sizes.min()) >= 5 and int(sizes.max()) < 10


@pytest.mark.parametrize("least", [1, 3])
def test_sweep_cut_against_all_cuts_along_the_order(least: int) -> None:
    rng = np.random.default_rng(1)
    index = torch.from_numpy(rng.integers(0, 40, (2, 50)))
    graph = Graph.from_edges(index, torch.from_numpy(rng.uniform(0.1, 1, 50)).float(), num_nodes=40)
    low, high, weight = undirected(graph)
    component = components(graph)
    count = int(component.max()) + 1
    value = torch.from_numpy(rng.normal(size=40))
    found = sweep_cut(low, high, weight, component, value, count=count, min_size=least)
    matrix = np.zeros((40, 40))
    matrix[low, high] = matrix[high, low] = weight
    for part in range(count):
        nodes = (component == part).nonzero().squeeze(1).numpy()
        nodes = nodes[np.argsort(value[nodes].numpy())]
        best, side = np.inf, set()
        for cut in range(least, len(nodes) - least + 1):
            one, other = nodes[:cut], nodes[cut:]
            volume = min(matrix[one].sum(), matrix[other].sum())
            share = matrix[np.ix_(one, other)].sum() / volume if volume else np.inf
            if share < best - 1e-12:
                best, side = share, set(one.tolist())
        assert float(found.conductance[part]) == pytest.approx(best)
        chosen = set(nodes[found.side[nodes].numpy()].tolist())
        assert chosen == side


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graspologic_native", None)
    with pytest.raises(InputError, match=r"graspologic-native.*fiedler"):
        communities(_planted(2, 5, 0.9, 0.1))


def test_bad_input_is_named() -> None:
    graph = _planted(2, 5, 0.9, 0.1)
    for options, name in (
        ({"method": "louvain"}, "method"),
        ({"resolution": 0.0}, "resolution"),
        ({"resolution": float("nan")}, "resolution"),
        ({"method": "fiedler", "conductance": 1.5}, "conductance"),
        ({"method": "fiedler", "min_size": 0}, "min_size"),
    ):
        with pytest.raises(InputError, match=name):
            communities(graph, **options)  # type: ignore[arg-type]
