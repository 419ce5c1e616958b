"""Searching by modes, by lists and by typical memories, against the exact search."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.modes import search_modes
from graphmem_torch.ops import IVF
from graphmem_torch.quality.modes.grid import ASSIGNMENTS, RULES, depths, index_bytes, partition
from graphmem_torch.quality.modes.search import agreement, by_lists, by_modes, by_typical, flat
from tests.bench.quality.made import clusters, unit


@pytest.mark.parametrize("assign", ASSIGNMENTS)
def test_by_modes_with_all_of_them_is_the_exact_search(assign: str) -> None:
    x, queries = clusters(5, 12), unit(7, 16, seed=1)
    modes = partition(x, "6", assign)
    exact = flat(x, queries, 10)
    (found,) = by_modes(modes, x, queries, searched=len(modes), taken=[len(x)])
    assert torch.equal(found.ranking[:, :10], exact.ranking)
    assert found.read.tolist() == [len(modes) + 60.0] * 7
    assert exact.read.tolist() == [60.0] * 7
    assert agreement(found.ranking, exact.ranking).tolist() == [1.0] * 7


def test_by_modes_reads_centroids_and_the_atoms_of_the_modes_searched() -> None:
    x, queries = clusters(5, 12), unit(7, 16, seed=1)
    modes = partition(x, "5", "kmeans")
    few, found, some = by_modes(modes, x, queries, searched=2, taken=[1, 100, 4])
    for ranking, read in zip(found.ranking, found.read.tolist(), strict=True):
        touched = set(modes.label[ranking[ranking >= 0]].tolist())
        assert len(touched) == 2
        assert read == len(modes) + sum(int(modes.size[m]) for m in touched)
    assert torch.equal(few.read, found.read)
    for number, fewer in ((1, few), (4, some)):
        assert fewer.ranking.shape == (7, 2 * number)
        own = search_modes(modes, x, queries, modes_k=2, per_mode=number)
        assert torch.equal(fewer.ranking, own.rows)


def test_by_lists_is_the_inverted_file() -> None:
    x, queries = clusters(5, 12), unit(7, 16, seed=1)
    index = IVF.build(x, 6)
    found = by_lists(index, queries, probes=6, k=10)
    assert torch.equal(found.ranking, flat(x, queries, 10).ranking)
    assert found.read.tolist() == [66.0] * 7
    sizes = index.offsets.diff()
    best = (queries @ index.centroids.T).argmax(1)
    assert by_lists(index, queries, probes=1, k=10).read.tolist() == (6 + sizes[best]).tolist()


def test_by_typical_finds_only_the_typical_ones() -> None:
    x = clusters(5, 12)
    modes = partition(x, "5", "kmeans")
    typical = set(modes.representative[modes.representative >= 0].tolist())
    near = modes.centroid[[2]]
    bare, kept = by_typical(modes, near), by_typical(modes, near, x)
    for ranking in (bare.ranking, kept.ranking):
        assert set(ranking[ranking >= 0].tolist()) == typical
    assert set(bare.ranking[0, :3].tolist()) == set(modes.representative[2].tolist())
    cosine = x @ near[0]
    assert kept.ranking[0].tolist() == sorted(typical, key=lambda i: -float(cosine[i]))
    assert bare.read.tolist() == [len(modes)] and kept.read.tolist() == [len(typical)]


def test_agreement_counts_the_exact_best() -> None:
    exact = torch.tensor([[1, 2, 3], [4, 5, -1]])
    ranking = torch.tensor([[3, 9, 1, 2], [5, 4, 8, 7]])
    assert agreement(ranking, exact).tolist() == [pytest.approx(2 / 3), 1.0]
    assert agreement(torch.tensor([[-1, -1], [4, -1]]), exact).tolist() == [0.0, 0.5]


def test_what_an_index_weighs() -> None:
    x = clusters(4, 10)
    modes = partition(x, "4", "kmeans")
    size = index_bytes(modes, x)
    assert size["flat"] == 40 * 16 * 4
    assert size["centroids"] == len(modes) * 16 * 4
    assert size["statistics"] == len(modes) * (16 * 4 + 4 + 8 + 4 + 24)
    assert size["representatives"] == size["statistics"] + 3 * len(modes) * 16 * 4
    assert size["whole"] == size["statistics"] + 4 * (40 + len(modes) + 1) + size["flat"]


def test_partition_by_rules_on_little_and_unknown_rules() -> None:
    x = unit(4, 16)
    for rule in RULES:
        assert 1 <= len(partition(x, rule, "kmeans")) <= 4
    with pytest.raises(InputError, match="energy"):
        partition(x, "half", "kmeans")
    assert depths(6) == [1, 2, 4, 6] and depths(1) == [1]
