"""The preset contextos: walks from the anchors and what is left of memories, by networkx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import config_from_dict, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.index.data import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.query import QueryBatch
from tests.graphs import walked

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


@pytest.mark.parametrize("dense_limit", [2048, 0])
def test_retrieve_shares_are_those_of_the_formula(
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
            "dense_limit": 0,
            "candidates": 4,
        }
    )
    found = MemoryIndex.build(data, config)(QueryBatch(question), k=2)
    assert found.rows.tolist() == [[0, 1]]


def test_contextos_is_as_published() -> None:
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
    with pytest.raises(ConfigError, match=r"half_life.episodic: expected .* at least 0"):
        load_config("contextos", {"decay.half_life": {"episodic": -1}})
