"""Flat baselines against brute force; those that walk a graph against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.graph import Graph
from graphmem_torch.quality.common.baselines import (
    add_neighbours,
    concept_seeds,
    contextos_score,
    fuse,
    hipporag_score,
    reciprocal_rank_fusion,
    segment_traversal,
    standardise,
)
from graphmem_torch.quality.common.task import undirected


def _scores(seed: int, batch: int = 4, count: int = 17) -> torch.Tensor:
    return torch.randn(batch, count, generator=torch.Generator().manual_seed(seed))


def test_fuse_is_a_sum_of_z_scores() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    dense, lexical = _scores(1), _scores(2).relu()
    oracle = scipy_stats.zscore(dense.numpy(), axis=1) + 0.7 * scipy_stats.zscore(
        lexical.numpy(), axis=1
    )
    assert np.allclose(fuse(dense, lexical).numpy(), oracle, atol=1e-5)


def test_standardise_gives_a_constant_row_no_say() -> None:
    assert standardise(torch.full((2, 5), 3.0)).tolist() == [[0.0] * 5] * 2


def test_reciprocal_rank_fusion_matches_scipy_ranks_with_ties() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    dense = _scores(3)
    lexical = torch.randint(0, 4, dense.shape, generator=torch.Generator().manual_seed(0)).float()
    oracle = sum(
        1.0 / (60.0 + scipy_stats.rankdata(-s.numpy(), method="average", axis=1))
        for s in (dense, lexical)
    )
    assert np.allclose(reciprocal_rank_fusion(dense, lexical).numpy(), oracle, atol=1e-7)


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [4, 1, 7], [12]])
def test_add_neighbours_stays_inside_the_session(sizes: list[int]) -> None:
    session = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    scores = _scores(4, count=sum(sizes))
    got = add_neighbours(scores, session)
    for row in range(len(scores)):
        for i in range(sum(sizes)):
            expected = float(scores[row, i])
            for j in (i - 1, i + 1):
                if 0 <= j < sum(sizes) and session[i] == session[j]:
                    expected += 0.25 * float(scores[row, j])
            assert float(got[row, i]) == pytest.approx(expected, abs=1e-5)


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
def test_segment_traversal_matches_breadth_first_search(hops: int) -> None:
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


def test_segment_traversal_never_returns_what_is_no_candidate() -> None:
    graph = undirected(Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
    similarity = torch.tensor([[0.5, -torch.inf, 0.4]])
    assert segment_traversal(graph, similarity, hops=2, discount=0.5).tolist() == [
        [0.5, -torch.inf, pytest.approx(0.1)]
    ]


def test_concept_seeds_prefer_named_and_rare_concepts() -> None:
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
