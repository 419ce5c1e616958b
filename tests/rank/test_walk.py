"""The walk from the anchors against networkx, and the signals of the life of memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import WalkConfig, config_from_dict, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.data import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.anchors import walk_from
from graphmem_torch.rank.query import QueryBatch

nx = pytest.importorskip("networkx")

ATOMS, COUNT = 40, 5
EVERY = {kind.name.lower(): 1.0 for kind in EdgeType if kind != EdgeType.CONTRADICTS}
WEIGHTS = {"semantic_positive": 50.0, "decayed_pagerank": 10.0, "strength": 2.0}


def settings(*, dense_limit: int = 2048, **change: Any) -> Any:
    return config_from_dict(
        {
            "anchors": {"source": "semantic", "k": 4},
            "spread": {"edges": EVERY, "reverse": EVERY, "max_edges": 1000, "min_nodes": 1},
            "rank": {"weights": WEIGHTS, "dense_limit": dense_limit},
            **change,
        }
    )


def walked(graph: Graph, seeds: dict[int, float], gone: set[int] = frozenset()) -> list[float]:  # type: ignore[assignment]
    """By networkx; where a node has no edges the walk starts again."""
    walk = nx.DiGraph()
    walk.add_nodes_from(n for n in range(graph.num_nodes) if n not in gone)
    ends = (graph.source.tolist(), graph.target.tolist(), graph.weight.tolist())
    for source, target, weight in zip(*ends, strict=True):
        if source in gone or target in gone:
            continue
        old = walk.get_edge_data(source, target, {"weight": 0.0})["weight"]
        walk.add_edge(source, target, weight=old + weight)
    found = nx.pagerank(walk, alpha=0.85, personalization=seeds, tol=1e-12, max_iter=1000)
    return [found.get(node, 0.0) for node in range(graph.num_nodes)]


def ring(nodes: int, seed: int = 0) -> Graph:
    g = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (5 * nodes,), generator=g)
    target = (source + 1 + torch.randint(9, (5 * nodes,), generator=g)) % nodes
    weight = torch.rand(5 * nodes, generator=g) + 0.1
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return Graph.from_edges(both, weight.repeat(2), num_nodes=nodes)


@pytest.mark.parametrize("nodes", [30, 300])
def test_against_networkx(nodes: int) -> None:
    graph = ring(nodes)
    anchors = torch.tensor([[3, 7, 20], [11, -1, -1]])
    share = torch.tensor([[1.0, 0.5, 0.25], [0.7, 9.0, 9.0]])
    found = walk_from(graph, anchors, share, WalkConfig()).to_dense()
    truth = [walked(graph, {3: 1.0, 7: 0.5, 20: 0.25}), walked(graph, {11: 1.0})]
    torch.testing.assert_close(found, torch.tensor(truth), atol=2e-5, rtol=1e-3)


def test_nothing_is_reached_through_what_is_not_there() -> None:
    graph = ring(60)
    anchors, share = torch.tensor([[5], [5], [30]]), torch.ones(3, 1)
    mask = torch.ones(3, 60, dtype=torch.bool)
    mask[0, 6:12] = mask[2, 6:12] = False
    found = walk_from(graph, anchors, share, WalkConfig(), mask).to_dense()
    gone = set(range(6, 12))
    truth = [walked(graph, {5: 1}, gone), walked(graph, {5: 1}), walked(graph, {30: 1}, gone)]
    torch.testing.assert_close(found, torch.tensor(truth), atol=2e-5, rtol=1e-3)
    one = walk_from(graph, anchors, share, WalkConfig(), mask[:1]).to_dense()
    torch.testing.assert_close(one[0], found[0])
    torch.testing.assert_close(one[2], found[2])


@pytest.mark.parametrize("gone", [set(), set(range(95, 100))])
def test_a_large_graph_ranks_only_what_is_near(gone: set[int]) -> None:
    graph = ring(11_000)
    anchors, share = torch.tensor([[100, 9_000]]), torch.tensor([[1.0, 0.5]])
    mask = torch.ones(1, 11_000, dtype=torch.bool)
    mask[0, list(gone)] = False
    found = walk_from(graph, anchors, share, WalkConfig(kept=50), mask if gone else None)
    assert len(found.key) == 50
    assert gone.isdisjoint(found.column.tolist())
    truth = torch.tensor(walked(graph, {100: 1.0, 9_000: 0.5}, gone))
    best = set(truth.topk(50).indices.tolist())
    assert len(best & set(found.column.tolist())) >= 45
    assert float((found.to_dense()[0] - truth).abs().max()) < 0.01


def test_no_anchors() -> None:
    none = torch.full((2, 0), -1, dtype=torch.int64)
    assert len(walk_from(ring(30), none, none.float(), WalkConfig()).key) == 0
    mask = torch.ones(2, 30, dtype=torch.bool)
    assert walk_from(ring(30), none[:0], none[:0].float(), WalkConfig(), mask[:0]).shape == (0, 30)
    missing = torch.full((2, 3), -1, dtype=torch.int64)
    assert len(walk_from(ring(30), missing, torch.ones(2, 3), WalkConfig()).key) == 0


@pytest.mark.parametrize("dense_limit", [2048, 0])
def test_the_signals(
    dense_limit: int,
    random_columns: Callable[..., IndexInput],
    random_questions: Callable[..., QueryBatch],
) -> None:
    data = random_columns(ATOMS)
    index = MemoryIndex.build(data, settings(dense_limit=dense_limit))
    g = torch.Generator().manual_seed(3)
    retention = torch.rand(COUNT, ATOMS, generator=g)
    asked = random_questions(COUNT).embedding
    for kept in (retention, retention[:1]):
        found = index(QueryBatch(asked, retention=kept), k=ATOMS)
        for b in range(COUNT):
            cosine = (data.embeddings @ asked[b]).tolist()
            first = sorted(range(ATOMS), key=lambda a: -cosine[a])[:4]
            best = cosine[first[0]]
            seeds = {a: max(0.0, cosine[a]) / best for a in first if cosine[a] > 0}
            walk = walked(index.graph, seeds)
            rank = walked(index.graph, dict.fromkeys(range(index.num_nodes), 1.0))
            top = max(rank[:ATOMS])
            for a, shares in zip(found.rows[b].tolist(), found.shares[b].tolist(), strict=True):
                left = float(kept[b if len(kept) > 1 else 0, a])
                assert shares[0] == pytest.approx(50 * max(0.0, cosine[a]), abs=1e-3)
                assert shares[1] == pytest.approx(10 * walk[a] * left, abs=2e-3)
                assert shares[2] == pytest.approx(2 * (left + 0.1 * rank[a] / top), abs=2e-3)


def test_without_retention_nothing_has_faded(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), settings())
    asked = random_questions(COUNT).embedding
    bare = index(QueryBatch(asked), k=9)
    whole = index(QueryBatch(asked, retention=torch.ones(1, ATOMS)), k=9)
    torch.testing.assert_close(bare.scores, whole.scores)
    assert bare.shares[..., 1].max() > 0
    with pytest.raises(InputError, match=r"query.retention: expected \[5, 40\], got \[2, 40\]"):
        index(QueryBatch(asked, retention=torch.ones(2, ATOMS)))


def test_a_large_store_finds_what_only_the_walk_reaches(
    random_columns: Callable[..., IndexInput],
) -> None:
    # Atom 0 is like the question, 1 hangs on it by an edge and is like nothing.
    atoms, dim = 400, 32
    g = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(atoms, dim, generator=g), dim=1)
    question = embeddings[:1].clone()
    embeddings[1] = torch.nn.functional.normalize(embeddings[1] - question[0] * 3, dim=0)
    edges = EdgeBlock.of(
        torch.tensor([0, 5]),
        torch.tensor([1, 6]),
        torch.full((2,), int(EdgeType.CAUSES)),
        torch.ones(2),
    )
    data = random_columns(atoms, 0, embeddings=embeddings, edges=edges, num_nodes=atoms)
    config = settings(
        rank={
            "weights": {"semantic_positive": 1.0, "personalized_pagerank": 100.0},
            "dense_limit": 0,
            "candidates": 4,
        }
    )
    found = MemoryIndex.build(data, config)(QueryBatch(question), k=2)
    assert found.rows.tolist() == [[0, 1]]


def test_the_preset() -> None:
    config = load_config("contextos")
    assert config.rank.weights == {"semantic_positive": 50.0, "decayed_pagerank": 10.0}
    assert config.walk.damping == 0.85
    assert config.anchors.source == "semantic"
    for wrong in (
        {"walk.damping": -0.1},
        {"walk.damping": 1.0},
        {"walk.kept": 0},
        {"decay.half_life": {"episodc": 1}},
    ):
        with pytest.raises(ConfigError):
            load_config("contextos", wrong)
    lives = load_config("contextos", {"decay.half_life.episodic": 24}).decay.half_life
    assert lives == {**config.decay.half_life, "episodic": 24.0}, "the others still fade"
    with pytest.raises(ConfigError, match=r"did you mean 'episodic'"):
        load_config("contextos", {"decay.half_life": {"episodc": 1}})
    with pytest.raises(ConfigError, match=r"half_life.episodic: .* at least 0, got -1"):
        load_config("contextos", {"decay.half_life": {"episodic": -1}})


def test_one_retention_for_all_questions() -> None:
    whole = QueryBatch(torch.zeros(3, 4), retention=torch.ones(1, 7))
    assert whole.rows(slice(1, 3)).retention is whole.retention
