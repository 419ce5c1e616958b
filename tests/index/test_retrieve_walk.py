"""The preset contextos: walks from the anchors and what is left of memories, by networkx."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import WalkConfig, config_from_dict, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory import Memory
from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.anchors import walk_from
from graphmem_torch.rank.query import QueryBatch
from tests.graphs import walked

ATOMS, COUNT = 40, 5
EVERY = {kind.name.lower(): 1.0 for kind in EdgeType if kind != EdgeType.CONTRADICTS}
WEIGHTS = {"semantic_positive": 50.0, "decayed_pagerank": 10.0, "strength": 2.0}


def settings(*, exhaustive_up_to: int = 2048, **change: Any) -> Any:
    return config_from_dict(
        {
            "anchors": {"source": "semantic", "k": 4},
            "spread": {"edges": EVERY, "reverse": EVERY, "max_edges": 1000, "min_nodes": 1},
            "rank": {"weights": WEIGHTS, "exhaustive_up_to": exhaustive_up_to},
            **change,
        }
    )


@pytest.mark.parametrize("exhaustive_up_to", [2048, 0])
def test_retrieve_shares_are_those_of_the_formula(
    exhaustive_up_to: int,
    random_columns: Callable[..., IndexInput],
    random_questions: Callable[..., QueryBatch],
) -> None:
    data = random_columns(ATOMS)
    index = MemoryIndex.build(data, settings(exhaustive_up_to=exhaustive_up_to))
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


def test_retrieve_without_retention_nothing_has_faded(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), settings())
    asked = random_questions(COUNT).embedding
    bare = index(QueryBatch(asked), k=9)
    whole = index(QueryBatch(asked, retention=torch.ones(1, ATOMS)), k=9)
    torch.testing.assert_close(bare.scores, whole.scores)
    assert bare.shares[..., 1].max() > 0
    with pytest.raises(InputError, match=r"query.retention: expected \[5, 40\], got .*\[2, 40\]"):
        index(QueryBatch(asked, retention=torch.ones(2, ATOMS)))


def test_retrieve_finds_in_a_large_store_what_only_the_walk_reaches(
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
            "exhaustive_up_to": 0,
            "candidates": 4,
        }
    )
    found = MemoryIndex.build(data, config)(QueryBatch(question), k=2)
    assert found.rows.tolist() == [[0, 1]]


def brought(graph: Graph, seeds: dict[int, float]) -> list[float]:
    """Return each node's probability by networkx, without the part of restarts."""
    walk, total = walked(graph, seeds), sum(seeds.values())
    leaving = torch.zeros(graph.num_nodes)
    leaving.index_add_(0, graph.source.long(), graph.weight.abs())
    restart = 0.15 + 0.85 * sum(walk[a] for a in seeds if not leaving[a])
    own = [p - restart * seeds.get(a, 0.0) / total for a, p in enumerate(walk)]
    others = [p for a, p in enumerate(own) if a not in seeds]
    most = max(others, default=0.0)
    most = most if most > 1e-6 else max(own)
    return [min(1.0, max(0.0, p) / most) if most > 1e-6 else 0.0 for p in own]


@pytest.mark.parametrize("exhaustive_up_to", [2048, 0])
def test_a_relative_walk_is_what_edges_bring_beside_the_most(
    exhaustive_up_to: int,
    random_columns: Callable[..., IndexInput],
    random_questions: Callable[..., QueryBatch],
) -> None:
    data = random_columns(ATOMS)
    own = settings(exhaustive_up_to=exhaustive_up_to, walk={"relative": True})
    index = MemoryIndex.build(data, own)
    asked = random_questions(COUNT).embedding
    found = index(QueryBatch(asked), k=ATOMS)
    for b in range(COUNT):
        cosine = (data.embeddings @ asked[b]).tolist()
        first = sorted(range(ATOMS), key=lambda a: -cosine[a])[:4]
        best = cosine[first[0]]
        seeds = {a: max(0.0, cosine[a]) / best for a in first if cosine[a] > 0}
        walk = brought(index.graph, seeds)
        assert max(walk) == 1.0
        for a, shares in zip(found.rows[b].tolist(), found.shares[b].tolist(), strict=True):
            assert shares[1] == pytest.approx(10 * walk[a], abs=2e-2)


@pytest.mark.parametrize(
    ("edges", "seeds", "expected"),
    [
        # The seed leads to one node, which leads on to another.
        ([(0, 1), (1, 2)], [1.0, 0, 0, 0], None),
        # Seeds without edges have nothing from the graph, however often the walk starts there.
        ([(0, 1)], [1.0, 0, 0.9, 0.8], [None, 1.0, 0.0, 0.0]),
        # Both ends are seeds: what one brings to the other counts.
        ([(0, 1)], [1.0, 1.0, 1.0, 0], [1.0, 1.0, 0.0, 0.0]),
        ([], [1.0, 0.5, 0, 0], [0.0] * 4),
        ([(0, 1)], [0.0, 0, 0, 0], [0.0] * 4),
    ],
)
def test_a_relative_walk_by_hand(
    edges: list[tuple[int, int]], seeds: list[float], expected: list[float | None] | None
) -> None:
    ends = torch.tensor([*edges, *((b, a) for a, b in edges)], dtype=torch.int64).reshape(-1, 2).T
    graph = Graph.from_edges(ends, num_nodes=4)
    start = SparseRows.from_dense(torch.tensor([seeds]))
    found = walk_from(graph, start, WalkConfig(relative=True)).to_dense()[0].tolist()
    known = {a: value for a, value in enumerate(seeds) if value}
    if known:
        assert found == pytest.approx(brought(graph, known), abs=1e-3)
    for one, value in zip(found, expected or [], strict=bool(expected)):
        assert value is None or one == pytest.approx(value, abs=1e-3)
    # What is not there for a question conducts nothing.
    mask = torch.tensor([[True, False, True, True]])
    assert walk_from(graph, start, WalkConfig(relative=True), mask).to_dense()[0, 1] == 0.0


def test_contextos_finds_a_chain_by_both_alone() -> None:
    """ContextOS's experiment 2: the vector finds the entity, the graph what it depends on."""
    texts = ["project apollo language rust", "rust guarantees memory safety"]
    noise = "harvest weather village morning rain stall market spade ladder barn cart horse yard"
    texts += [f"{word} {noise}" for word in ("plum", "corn", "hops", "rye", "oat")]
    facts = [Atom("a", texts[0], edges=(Link("b", EdgeType.CAUSES),)), Atom("b", texts[1])]
    facts += [Atom(str(i), text) for i, text in enumerate(texts[2:])]
    asked = "project apollo language market"
    found = {}
    weights = load_config("contextos").rank.weights
    for name, own in {
        "vector": {"semantic_positive": 50.0},
        "hybrid": weights,
        "graph": {"pagerank": 10.0},
    }.items():
        config = load_config("contextos", {"link.concepts": "none", "link.similarity_k": 0})
        config = replace(config, rank=replace(config.rank, weights=own))
        with Memory.open(None, config=config, embedder="hashing") as memory:
            memory.add(facts)
            hits = memory.retrieve(asked, k=2).hits
            found[name] = {hit.id for hit in hits} & {"a", "b"}
    assert found["vector"] == {"a"}
    assert found["hybrid"] == {"a", "b"}, "the walk of the best is worth a fifth of a cosine"


def test_contextos_has_the_published_constants() -> None:
    published = load_config("contextos-published")
    assert not published.walk.relative
    config = load_config("contextos")
    assert config.walk.relative and replace(config.walk, relative=False) == published.walk
    for own in (config, published):
        assert own.rank.weights == {"semantic_positive": 50.0, "decayed_pagerank": 10.0}
        assert own.anchors.source == "semantic"
        # Every edge is taken both ways, as no end keeps fewer of them than the other.
        assert own.spread.edges == own.spread.reverse and own.spread.capped == ()
    for wrong in ({"decay.half_life_days": {"episodc": 1}},):
        with pytest.raises(ConfigError):
            load_config("contextos", wrong)
    lives = load_config("contextos", {"decay.half_life_days.episodic": 24}).decay.half_life_days
    assert lives == {**config.decay.half_life_days, "episodic": 24.0}, "the others still fade"
    with pytest.raises(ConfigError, match=r"did you mean 'episodic'"):
        load_config("contextos", {"decay.half_life_days": {"episodc": 1}})
    with pytest.raises(ConfigError, match=r"half_life_days.episodic: expected .* at least 0"):
        load_config("contextos", {"decay.half_life_days": {"episodic": -1}})
