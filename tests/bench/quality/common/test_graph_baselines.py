"""Graph baselines against networkx and breadth-first search."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.graph import Graph
from graphmem_torch.quality.common.baselines import (
    concept_seeds,
    contextos_score,
    hipporag_score,
    segment_traversal,
    undirected,
)


def _graph(seed: int, nodes: int = 18, edges: int = 25) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, edges), generator=generator)
    index = index[:, index[0] != index[1]]
    weight = torch.rand(index.shape[1], generator=generator) + 0.1
    return undirected(Graph.from_edges(index, weight, num_nodes=nodes))


def _networkx(graph: Graph) -> nx.DiGraph:
    result = nx.DiGraph()
    result.add_nodes_from(range(graph.num_nodes))
    sources, targets = graph.edge_index.tolist()
    for source, target, weight in zip(sources, targets, graph.weight.tolist(), strict=True):
        result.add_edge(source, target, weight=weight)
    return result


def _similarity(seed: int, nodes: int = 18) -> torch.Tensor:
    return torch.rand(3, nodes, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_undirected_goes_both_ways_by_absolute_weight() -> None:
    graph = undirected(
        Graph.from_edges(
            torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([0.2, -0.9, 0.5]), num_nodes=3
        )
    )
    edges = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.weight.tolist(), strict=True))
    assert edges == pytest.approx({(0, 1): 0.9, (1, 0): 0.9, (2, 1): 0.5, (1, 2): 0.5})


@pytest.mark.parametrize("seed", range(3))
def test_hipporag_is_personalised_pagerank_from_concepts_and_passages(seed: int) -> None:
    graph, similarity = _graph(seed), _similarity(seed)
    passages = torch.arange(18) < 12
    seeds = torch.zeros(3, 18)
    seeds[0, 13], seeds[1, [14, 15]] = 0.7, 0.2
    got = hipporag_score(graph, similarity, passages, seeds)
    for row in range(3):
        own = similarity[row, :12].numpy()
        start = seeds[row].numpy().astype(float)
        start[:12] += 0.05 * (own - own.min()) / (own.max() - own.min())
        personal = {i: float(value) for i, value in enumerate(start)}
        oracle = nx.pagerank(
            _networkx(graph),
            alpha=0.5,
            personalization=personal,
            dangling=personal,
            tol=1e-10,
            max_iter=1000,
        )
        assert np.allclose(got[row].numpy(), [oracle[i] for i in range(18)], atol=1e-5)


@pytest.mark.parametrize("hops", [0, 1, 2, 5])
def test_traversal_matches_breadth_first_search(hops: int) -> None:
    graph, similarity = _graph(7), _similarity(7)
    got = segment_traversal(graph, similarity, hops=hops, discount=0.8)
    for row in range(3):
        seed = int(similarity[row].argmax())
        distance = nx.single_source_shortest_path_length(_networkx(graph), seed, cutoff=hops)
        for node in range(18):
            value = float(similarity[row, node])
            expected = -np.inf
            if node in distance:
                expected = value * 0.8 ** distance[node] if value > 0 else value
            assert float(got[row, node]) == pytest.approx(expected, abs=1e-6)


def test_traversal_never_returns_what_is_no_candidate() -> None:
    graph = undirected(Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
    similarity = torch.tensor([[0.5, -torch.inf, 0.4]])
    assert segment_traversal(graph, similarity, hops=2, discount=0.5).tolist() == [
        [0.5, -torch.inf, pytest.approx(0.1)]
    ]


def test_seeds_prefer_named_and_rare_concepts() -> None:
    similarity = torch.tensor([[0.1, 0.9, 0.6, 0.3, -0.2]])
    concepts = torch.tensor([1, 2, 3, 4])
    fan = torch.tensor([9.0, 3.0, 1.0, 2.0, 0.0])
    assert concept_seeds(similarity, concepts, fan, top=2).tolist() == [
        [0.0, pytest.approx(0.3), pytest.approx(0.6), 0.0, 0.0]
    ]
    named = torch.tensor([[False, False, True, False]])
    assert concept_seeds(similarity, concepts, fan, named=named, top=2).tolist() == [
        [0.0, pytest.approx(0.3), 0.0, 0.5, 0.0]
    ]
    assert concept_seeds(similarity, concepts[:0], fan).tolist() == [[0.0] * 5]


def test_contextos_adds_decayed_pagerank_to_relevance() -> None:
    graph, similarity = _graph(3), _similarity(3)
    age = torch.linspace(0, 48, 18, dtype=torch.float64)
    got = contextos_score(graph, similarity, age, seeds=2)
    for row in range(3):
        relevance = similarity[row].clamp(min=0.0).numpy()
        best = np.argsort(-relevance)[:2]
        personal = {i: float(relevance[i]) if i in best else 0.0 for i in range(18)}
        rank = nx.pagerank(
            _networkx(graph),
            alpha=0.85,
            personalization=personal,
            dangling=personal,
            tol=1e-10,
            max_iter=1000,
        )
        oracle = [50 * relevance[i] + 10 * rank[i] * 0.9 ** float(age[i]) for i in range(18)]
        assert np.allclose(got[row].numpy(), oracle, atol=1e-3)
