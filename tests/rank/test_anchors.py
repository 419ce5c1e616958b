"""Anchors against sorting by hand, the walk from them against networkx."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import AnchorConfig, WalkConfig, load_config
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.anchors import anchor_activation, anchor_relevance, walk_from
from tests.graphs import walked

ROWS = torch.tensor([[0, 3, 5, 8, 9], [-1, -1, 2, 4, 7]])


class _Candidates:
    """Candidates as anchors read them."""

    peers = None

    def __init__(self, rows: Tensor | None, valid: Tensor, **memo: Tensor) -> None:
        self.rows, self.valid, self._memo = rows, valid, memo

    def signal(self, name: str) -> Tensor:
        return self._memo[name]


def candidates_of(rows: Tensor | None, generator: torch.Generator) -> Any:
    valid = torch.ones(2, 5, dtype=torch.bool) if rows is None else rows >= 0
    valid[0, 3] = False  # excluded by the question
    lexical = torch.rand(2, 5, generator=generator) * 3
    lexical[:, 2] = 0.0  # no question term
    cosine = torch.rand(2, 5, generator=generator) * 2 - 1
    return _Candidates(rows, valid, lexical=lexical, semantic=cosine)


def best(values: Tensor, found: Any, k: int) -> list[list[int]]:
    return [
        sorted(
            (p for p in range(5) if found.valid[b, p] and values[b, p] > -math.inf),
            key=lambda p, b=b: -float(values[b, p]),
        )[:k]
        for b in range(2)
    ]


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all", "candidates"])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_anchor_activation_fused(rows: Tensor | None, k: int, generator: torch.Generator) -> None:
    found = candidates_of(rows, generator)
    base = torch.randn(2, 5, generator=generator) * 4
    anchors, value = anchor_activation(found, base, AnchorConfig("fused", k))
    for b, places in enumerate(best(base, found, k)):
        top = max(float(base[b, p]) for p in places)
        expected = {
            p if rows is None else int(rows[b, p]): math.exp(float(base[b, p]) - top)
            for p in places
        }
        pairs = zip(anchors[b].tolist(), value[b].tolist(), strict=True)
        got = {row: v for row, v in pairs if row >= 0}
        assert got == {row: pytest.approx(v, rel=1e-5) for row, v in expected.items()}
        assert max(got.values()) == 1.0
        assert not value[b][anchors[b] < 0].any()


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all", "candidates"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_anchor_activation_dual(rows: Tensor | None, k: int, generator: torch.Generator) -> None:
    found = candidates_of(rows, generator)
    config = AnchorConfig("dual", k)
    anchors, value = anchor_activation(found, torch.zeros(2, 5), config)
    words = found.signal("lexical").masked_fill(found.signal("lexical") <= 0, -math.inf)
    cosine = found.signal("semantic")
    by_words, by_cosine = best(words, found, k), best(cosine, found, k)
    for b in range(2):
        places = {*by_words[b], *by_cosine[b]}
        expected = {
            p if rows is None else int(rows[b, p]): max(float(cosine[b, p]), 0.0) for p in places
        }
        pairs = zip(anchors[b].tolist(), value[b].tolist(), strict=True)
        got = {row: v for row, v in pairs if row >= 0}
        assert got == pytest.approx(expected)
        assert not value[b][anchors[b] < 0].any()


def test_anchor_activation_without_any_allowed_atom(generator: torch.Generator) -> None:
    found = candidates_of(None, generator)
    found.valid[1] = False
    for source in ("fused", "dual"):
        base = torch.randn(2, 5, generator=generator)
        anchors, value = anchor_activation(found, base, AnchorConfig(source, 3))
        assert (anchors[1] == -1).all()
        assert torch.equal(value[1], torch.zeros_like(value[1]))
        assert (anchors[0] >= 0).any()
        assert value.isfinite().all()


def test_anchor_relevance_does_not_depend_on_the_unit(generator: torch.Generator) -> None:
    config = load_config("default").anchors
    found: Any = _Candidates(None, torch.ones(1, 12, dtype=torch.bool))
    base = torch.randn(2, 12, generator=generator)
    got = []
    for unit in (1.0, 20.0):
        best = (unit * base).topk(4, dim=1).values
        value = torch.exp(best - best[:, :1])
        got.append(anchor_relevance(found, unit * base, value, config))
    torch.testing.assert_close(got[0], got[1], rtol=1e-3, atol=1e-6)
    flat = anchor_relevance(found, torch.ones(2, 12), torch.ones(2, 4), config)
    assert torch.equal(flat, torch.ones(2, 4))
    dual = replace(config, source="dual")
    cosine = torch.tensor([[0.8, 0.4], [0.0, 0.0]])
    expected = torch.tensor([[1.0, 0.5], [0.0, 0.0]])
    torch.testing.assert_close(anchor_relevance(found, base, cosine, dual), expected)


def ring(nodes: int, seed: int = 0) -> Graph:
    g = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (5 * nodes,), generator=g)
    target = (source + 1 + torch.randint(9, (5 * nodes,), generator=g)) % nodes
    weight = torch.rand(5 * nodes, generator=g) + 0.1
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return Graph.from_edges(both, weight.repeat(2), num_nodes=nodes)


@pytest.mark.parametrize("nodes", [30, 300])
def test_walk_from_against_networkx(nodes: int) -> None:
    graph = ring(nodes)
    anchors = torch.tensor([[3, 7, 20], [11, -1, -1]])
    share = torch.tensor([[1.0, 0.5, 0.25], [0.7, 9.0, 9.0]])
    found = walk_from(
        graph, SparseRows.of(anchors, share, graph.num_nodes), WalkConfig()
    ).to_dense()
    truth = [walked(graph, {3: 1.0, 7: 0.5, 20: 0.25}), walked(graph, {11: 1.0})]
    torch.testing.assert_close(found, torch.tensor(truth), atol=2e-5, rtol=1e-3)


def test_walk_from_goes_not_through_what_is_not_there() -> None:
    graph = ring(60)
    anchors, share = torch.tensor([[5], [5], [30]]), torch.ones(3, 1)
    mask = torch.ones(3, 60, dtype=torch.bool)
    mask[0, 6:12] = mask[2, 6:12] = False
    found = walk_from(
        graph, SparseRows.of(anchors, share, graph.num_nodes), WalkConfig(), mask
    ).to_dense()
    gone = set(range(6, 12))
    truth = [walked(graph, {5: 1}, gone), walked(graph, {5: 1}), walked(graph, {30: 1}, gone)]
    torch.testing.assert_close(found, torch.tensor(truth), atol=2e-5, rtol=1e-3)
    one = walk_from(
        graph, SparseRows.of(anchors, share, graph.num_nodes), WalkConfig(), mask[:1]
    ).to_dense()
    torch.testing.assert_close(one[0], found[0])
    torch.testing.assert_close(one[2], found[2])


@pytest.mark.parametrize("gone", [set(), set(range(95, 100))])
def test_walk_from_ranks_only_what_is_near_in_a_large_graph(gone: set[int]) -> None:
    graph = ring(11_000)
    anchors, share = torch.tensor([[100, 9_000]]), torch.tensor([[1.0, 0.5]])
    mask = torch.ones(1, 11_000, dtype=torch.bool)
    mask[0, list(gone)] = False
    found = walk_from(
        graph,
        SparseRows.of(anchors, share, graph.num_nodes),
        WalkConfig(),
        mask if gone else None,
    )
    assert len(found.key) == 64
    assert gone.isdisjoint(found.column.tolist())
    # A walk takes 7 steps of 9 nodes at most: what is 1,000 nodes away has no share in the 50 best.
    near = [(graph.source - at + 1_000) % 11_000 < 2_000 for at in (100, 9_000)]
    truth = torch.tensor(walked(graph.select(near[0] | near[1]), {100: 1.0, 9_000: 0.5}, gone))
    best = set(truth.topk(50).indices.tolist())
    assert len(best & set(found.column.tolist())) >= 45
    assert float((found.to_dense()[0] - truth).abs().max()) < 0.01


def test_walk_from_no_anchors() -> None:
    none = SparseRows.from_dense(torch.zeros(2, 30))
    assert len(walk_from(ring(30), none, WalkConfig()).key) == 0
    empty, mask = SparseRows.from_dense(torch.zeros(0, 30)), torch.ones(2, 30, dtype=torch.bool)
    assert walk_from(ring(30), empty, WalkConfig(), mask[:0]).shape == (0, 30)
    assert len(walk_from(ring(30), none, WalkConfig(), mask).key) == 0
