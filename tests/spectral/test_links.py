"""suggest_links against total resistances by numpy, over all pairs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import ElectricalNetwork, bridge_scores, suggest_links


def _tree_like(nodes: int = 200, extra: int = 40, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(max(0, i - 8), i)), i) for i in range(1, nodes)]
    more = [tuple(rng.choice(nodes, 2, replace=False).tolist()) for _ in range(extra)]
    weight = torch.from_numpy(rng.uniform(0.3, 1, nodes - 1 + extra)).float()
    return Graph.from_edges(torch.tensor(tree + more).T.contiguous(), weight, num_nodes=nodes)


def _absent(graph: Graph) -> torch.Tensor:
    peer = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    pairs = [(i, j) for i in range(graph.num_nodes) for j in range(i)]
    return torch.tensor([pair for pair in pairs if not peer.has_edge(*pair)])


def test_the_first_link_is_the_best_of_all_absent_pairs() -> None:
    graph = _tree_like()
    best = bridge_scores(graph, _absent(graph))
    found = suggest_links(graph, top=1)
    assert float(found.score[0]) == pytest.approx(float(best.score.max()))
    pair = best.pairs[:, best.score.argmax()].sort().values
    assert torch.equal(found.pairs[:, 0].sort().values, pair)
    assert not found.exists.any() and found.weight.tolist() == [1.0]


def test_candidates_of_a_large_graph_hold_nearly_the_best() -> None:
    graph = _tree_like(1000, 150, 1)
    label = torch.arange(1000) // 125
    every = suggest_links(graph, label, 5)
    generator = torch.Generator().manual_seed(0)
    network = ElectricalNetwork(graph, generator=generator, dense=10)
    some = suggest_links(graph, label, 5, network=network)
    assert float(some.score.sum()) > 0.9 * float(every.score.sum())
    single = bridge_scores(graph, some.pairs[:, :1]).score
    assert torch.allclose(some.score[:1], single, rtol=1e-4)


def test_links_join_communities_of_one_component_where_there_are_labels() -> None:
    two = Graph.from_edges(torch.tensor([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]]), num_nodes=9)
    label = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 3])
    found = suggest_links(two, label)
    pairs = {tuple(sorted(pair)) for pair in found.pairs.T.tolist()}
    assert pairs == {(0, 2), (0, 3), (1, 3)}
    assert {tuple(sorted(p)) for p in suggest_links(two).pairs.T.tolist()} == {
        *pairs,
        (4, 6),
        (4, 7),
        (5, 7),
    }


def test_nothing_to_suggest() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    for nodes in (0, 1, 4):
        assert len(suggest_links(Graph.from_edges(none, num_nodes=nodes))) == 0
    clique = Graph.from_edges(torch.combinations(torch.arange(5)).T.contiguous())
    assert len(suggest_links(clique)) == 0
    for graph in (clique, Graph.from_edges(none, num_nodes=4)):
        assert len(suggest_links(graph, network=ElectricalNetwork(graph, dense=1))) == 0


def test_bad_input_is_named() -> None:
    graph = _tree_like(10, 2)
    for options, name in (
        ({"top": 0}, "top"),
        ({"label": torch.zeros(3, dtype=torch.int64)}, "label"),
    ):
        with pytest.raises(InputError, match=name):
            suggest_links(graph, **options)  # type: ignore[arg-type]
