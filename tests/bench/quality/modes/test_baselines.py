"""The RAPTOR-style tree and the GraphRAG-style communities, against plain Python."""

from __future__ import annotations

import random

import torch

from graphmem_torch.quality.modes.baselines import (
    CommunityIndex,
    build_tree,
    first_mentions,
    summaries,
)
from tests.bench.quality.made import clusters, unit


def test_first_mentions() -> None:
    chance = random.Random(2)
    for width in (1, 9):
        shown = [[chance.randrange(-1, 5) for _ in range(width)] for _ in range(4)]
        found = first_mentions(torch.tensor(shown), 5).tolist()
        for row, ranking in zip(shown, found, strict=True):
            once = [i for i in dict.fromkeys(row) if i >= 0]
            assert ranking == once + [-1] * (5 - len(once))


def test_summaries_quote_what_is_nearest_to_the_mean() -> None:
    x = unit(20, 8)
    label = torch.tensor([0] * 2 + [1] * 7 + [2] * 11)
    found = summaries(x, label).tolist()
    for cluster in range(3):
        rows = (label == cluster).nonzero()[:, 0]
        mean = x[rows].mean(0)
        best = sorted(rows.tolist(), key=lambda i: -float(x[i] @ mean))[:3]
        assert [i for i in found[cluster] if i >= 0] == sorted(best)
    assert found[0].count(-1) == 1


def test_build_tree_ends_and_ranks_every_leaf() -> None:
    x = clusters(8, 15)
    texts = [str(i) for i in range(len(x))]
    asked: list[int] = []

    def encode(given: list[str]) -> torch.Tensor:
        asked.append(len(given))
        rows = [x[[int(i) for i in text.split("\n")]].mean(0) for text in given]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)

    tree = build_tree(x, texts, encode)  # type: ignore[arg-type]
    assert asked == sorted(asked, reverse=True) and asked[0] <= 18 and len(asked) >= 2
    ranking = tree.search(x[:5])
    assert all(sorted(row) == list(range(120)) for row in ranking.tolist())
    # The leaf itself has cosine 1; no summary of others is nearer.
    assert ranking[:, 0].tolist() == list(range(5))
    small = build_tree(x[:7], texts[:7], encode)  # type: ignore[arg-type]
    assert len(small.vectors) == 7


def test_opened_communities_come_first() -> None:
    x = clusters(12, 4)
    label = torch.arange(12).repeat_interleave(4)
    summary = torch.nn.functional.normalize(x.view(12, 4, 16).mean(1), dim=1)
    index = CommunityIndex(x, label, summary)
    queries = unit(3, 16, seed=5)
    ranking = index.search(queries)
    for query, row in zip(queries, ranking.tolist(), strict=True):
        opened = set((summary @ query).topk(8).indices.tolist())
        assert {int(label[i]) for i in row[:32]} == opened
        for part in (row[:32], row[32:]):
            cosine = [float(x[i] @ query) for i in part]
            assert cosine == sorted(cosine, reverse=True)
