"""The size of a tile of work, by device, and the best of rows with equals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmem_torch.ops.ivf import IVF
from graphmem_torch.ops.knn_graph import knn_graph
from graphmem_torch.ops.tiles import EQUAL, by_number, free_bytes, stable_topk, tile_elements
from graphmem_torch.ops.topk_cosine import best_keys, topk_cosine

CUDA = torch.device("cuda:0")


def test_tile_elements_of_a_cpu_are_as_asked():
    assert tile_elements(torch.device("cpu"), 1000) == 1000
    assert tile_elements(torch.device("cpu"), 1000, free=80 << 30) == 1000


@pytest.mark.parametrize(("gigabytes", "expected"), [(80, 1 << 28), (24, 1 << 26), (8, 1 << 24)])
def test_tile_elements_of_a_gpu_follow_its_free_memory(gigabytes, expected):
    assert tile_elements(CUDA, 1 << 23, free=gigabytes * 10**9) == expected


def test_tile_elements_of_a_full_gpu_are_those_of_a_cpu():
    assert tile_elements(CUDA, 1 << 23, free=0) == 1 << 23


@pytest.mark.cuda
def test_free_bytes_count_what_torch_holds_unused():
    before = free_bytes(CUDA)
    held = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    assert before - free_bytes(CUDA) >= 1 << 28
    del held
    assert abs(free_bytes(CUDA) - before) < 1 << 27


@pytest.mark.parametrize("above", [-torch.inf, -0.3])
@pytest.mark.parametrize("plain", [0, 1 << 14])
@pytest.mark.parametrize(
    ("rows", "columns", "k", "levels"),
    [(1, 1, 1, 3), (5, 40, 7, 3), (3, 600, 60, 3), (2, 9, 9, 3), (2, 1200, 10, 500)],
)
def test_stable_topk_gives_of_equal_scores_the_first(rows, columns, k, levels, plain, above):
    g = torch.Generator().manual_seed(columns)
    level = torch.randint(-levels, levels, (rows, columns), generator=g)
    scores = (level / levels).masked_fill(level == -levels, -torch.inf)
    shaken = scores + 3e-8 * torch.randn(rows, columns, generator=g)
    for given in (scores, shaken):
        values, places = stable_topk(given, k, plain=plain, above=above)
        some = stable_topk(given, k, plain=plain, above=above, sorted=False)[1]
        for row, value, own, other in zip(given, values, places, some, strict=True):
            there = [c for c in range(columns) if row[c] > above]
            best = sorted(there, key=lambda c: (-round(float(row[c]), 6), c))[:k]
            assert own[: len(best)].tolist() == best
            assert value.tolist() == [*row[best].tolist(), *[-torch.inf] * (k - len(best))]
            assert set(best) <= set(other.tolist()) and len(set(other.tolist())) == k


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize(("rows", "columns", "k"), [(4000, 200, 32), (8, 3000, 9), (7, 40, 8)])
def test_stable_topk_of_rows_with_few_finite_scores(rows, columns, k, device):
    g = torch.Generator().manual_seed(rows)
    row = torch.arange(rows)[:, None]
    count = torch.where(row % 9 == 0, columns // 2, row % k)
    order = torch.rand(rows, columns, generator=g).argsort(dim=1)
    scores = (1 - order / columns).masked_fill(order >= count, -torch.inf)
    values, places = (each.cpu() for each in stable_topk(scores.to(device), k, plain=0))
    assert torch.equal(values, scores.sort(dim=1, descending=True).values[:, :k])
    assert torch.equal(values, scores.gather(1, places))
    assert all(len(set(row)) == k for row in places.tolist())


def test_stable_topk_of_nothing():
    assert [one.shape for one in stable_topk(torch.zeros(3, 0), 0)] == [(3, 0), (3, 0)]
    assert [one.shape for one in stable_topk(torch.zeros(0, 4), 2)] == [(0, 2), (0, 2)]


def _ties(scores: Tensor, k: int) -> list[list[int]]:
    """Return the k best of each row by a plain sort: rounded value, then number."""
    rows = scores.double().round(decimals=5).tolist()
    return [sorted(range(len(row)), key=lambda j: (-row[j], j))[:k] for row in rows]


@pytest.mark.parametrize("copies", [5, 90])
@pytest.mark.parametrize("way", ["topk_cosine", "ivf", "knn_graph", "numbered"])
def test_equal_rows_of_any_tile_list_or_block_are_ordered_by_number(way: str, copies: int) -> None:
    """Equal rows lie in many tiles; 90 of them exceed the candidates."""
    generator = torch.Generator().manual_seed(copies)
    own = torch.nn.functional.normalize(torch.randn(12, 40, generator=generator), dim=1)
    x = own[torch.randint(12, (12 * copies,), generator=generator)]
    queries, k = own[:5], 7
    scores = queries @ x.T
    if way == "topk_cosine":
        _, found = topk_cosine(queries, x, k)
    elif way == "numbered":
        values, numbers = best_keys(queries, x, k + EQUAL, columns=64, scores=128)
        _, found, short = by_number(values, numbers, k)
        assert bool(short.any()) == (copies == 90)
        if copies == 90:
            return
    elif way == "ivf":
        index = IVF.build(x, 12)
        _, found = index.search(queries, k, 12)
    else:
        _, found = knn_graph(torch.cat([x, queries]), k, start=len(x), earlier=True)
        scores = torch.cat([x, queries]) @ torch.cat([x, queries]).T
        scores = scores.tril(-1).masked_fill(torch.ones_like(scores).triu() > 0, -2)[len(x) :]
    assert found.tolist() == _ties(scores, k)
