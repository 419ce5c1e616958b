"""knn_graph: exact tiles against a full sort, the inverted file by its recall."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import IVF, knn_graph
from graphmem_torch.ops.knn_graph import exact_knn, knn_of_lists, refined_knn, takes_lists


def _rows(count: int, seed: int, width: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)


SIZES = [(0, 0, 2), (1, 0, 2), (9, 0, 20), (40, 0, 3), (40, 33, 3), (40, 40, 3), (41, 14, 1)]


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("size", "tile"),
    [
        *((size, tile) for size in SIZES for tile in (7, 1024)),
        *((size, 64) for size in [(300, 0, 4), (300, 120, 4), (300, 299, 4)]),
    ],
)
def test_exact_knn_is_a_full_sort_cut_off(size, earlier, tile):
    count, start, k = size
    x = _rows(count, 3)
    values, indices = exact_knn(x, k, start, earlier, tile=tile)
    scores = x[start:] @ x.T
    row, column = torch.arange(start, count)[:, None], torch.arange(count)
    scores[column >= row if earlier else column == row] = -torch.inf
    wide = torch.cat([scores, torch.full((count - start, k), -torch.inf)], dim=1)
    torch.testing.assert_close(values, wide.sort(dim=1, descending=True).values[:, :k])
    assert ((indices == -1) == (values == -torch.inf)).all()
    known = indices >= 0
    torch.testing.assert_close(scores.gather(1, indices.clamp(min=0))[known], values[known])
    assert all(len(set(r) - {-1}) == len(r) - r.count(-1) for r in indices.tolist())


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 999))
def test_linking_later_rows_gives_what_linking_all_gives(count, k, seed):
    x = _rows(count, seed)
    start = seed % count
    values, indices = knn_graph(x, k, earlier=True)
    some_values, some_indices = knn_graph(x, k, start=start, earlier=True)
    torch.testing.assert_close(some_values, values[start:])
    assert (some_indices == indices[start:]).all()


@pytest.mark.parametrize("method", ["exact", "ivf"])
def test_equal_rows_are_neighbours_and_none_its_own(method):
    x = _rows(3, 1).repeat_interleave(4, 0)
    values, indices = knn_graph(x, 3, method=method)
    torch.testing.assert_close(values, torch.ones(12, 3))
    assert (indices // 4 == (torch.arange(12) // 4)[:, None]).all()
    assert (indices != torch.arange(12)[:, None]).all()


@pytest.mark.parametrize("start", [0, 500, 2000])
def test_lists_find_the_neighbours_of_clustered_rows(start):
    generator = torch.Generator().manual_seed(0)
    topic = _rows(40, 1, 24)[torch.randint(40, (2000,), generator=generator)]
    x = torch.nn.functional.normalize(topic + 0.5 * _rows(2000, 2, 24), dim=1)
    _, exact = knn_graph(x, 15, start=start, method="exact")
    values, found = knn_graph(x, 15, start=start, method="ivf")
    assert found.shape == (2000 - start, 15)
    own = torch.arange(start, 2000)[:, None]
    assert (found != own).all()
    torch.testing.assert_close((x[own] * x[found]).sum(2), values)
    if start < 2000:
        shared = (found[:, :, None] == exact[:, None, :]).any(2).float().mean()
        assert shared >= 0.95


def test_knn_graph_is_exact_where_lists_do_not_help():
    """Rows alike in all directions: nearly every list has neighbours of every row."""
    x = _rows(600, 1, 64)
    exact = knn_graph(x, 5, method="exact")
    found = knn_graph(x, 5, method="ivf")
    assert torch.equal(found[1], exact[1])
    _, indices = knn_of_lists(x, 5, 0, dense=1)
    shared = (indices[:, :, None] == exact[1][:, None, :]).any(2).float().mean()
    assert shared >= 0.94


def _only_samples(search):
    def limited(index, queries, k, probes):
        assert len(queries) < len(index)
        return search(index, queries, k, probes)

    return limited


def test_knn_graph_is_exact_where_one_list_holds_most_rows(monkeypatch):
    """Equal rows are in one list, and looking into it is looking at all of them."""
    x = _rows(4000, 1)
    x[:2000] = x[0]
    exact = knn_graph(x, 5, method="exact")
    monkeypatch.setattr(IVF, "search", _only_samples(IVF.search))
    assert torch.equal(knn_graph(x, 5, method="ivf")[0], exact[0])


def test_lists_with_fewer_others_than_asked_for():
    values, indices = knn_graph(_rows(3, 1), 5, method="ivf")
    assert (indices[:, 2:] == -1).all() and (values[:, 2:] == -torch.inf).all()
    assert indices[:, :2].sort().values.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_auto_takes_lists_only_for_the_whole_graph_of_many_rows():
    assert takes_lists(20, 0, False, "auto", large=20)
    assert not takes_lists(19, 0, False, "auto", large=20)
    assert not takes_lists(20, 0, True, "auto", large=20)
    assert not takes_lists(20, 3, False, "auto", large=20)
    assert not takes_lists(20, 0, False, "exact", large=20)
    assert takes_lists(3, 0, False, "ivf")


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("method", ["exact", "ivf"])
def test_knn_graph_default_dtype_does_not_matter(method):
    x = _rows(60, 1).float()
    scores = (x @ x.T).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(knn_graph(x, 3, method=method)[0], scores.topk(3).values)


def test_half_is_multiplied_in_float32():
    x = _rows(60, 1).half()
    values, _ = knn_graph(x, 3)
    scores = (x.float() @ x.float().T).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(values, scores.topk(3).values)


@pytest.mark.parametrize("approximate", [False, True])
def test_opcheck(approximate):
    call = (_rows(9, 1), 3, 2, False, approximate)
    torch.library.opcheck(torch.ops.graphmem.knn_graph.default, call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: knn_graph(x, 0), "k: expected an integer of at least 1"),
        (lambda x: knn_graph(x, 2, start=10), r"start: expected at most 9, got 10"),
        (lambda x: knn_graph(x, 2, start=1.0), "start: expected an integer of at least 0"),
        (lambda x: knn_graph(x.requires_grad_(), 2), "requires one"),
        (lambda x: knn_graph(x.long(), 2), "floating point"),
        (lambda x: knn_graph(2 * x, 2), "x: expected rows of length 1 .* got length 2 in row 0"),
        (
            lambda x: knn_graph(x, 2, method="hnsw"),
            "method: expected one of 'auto', 'exact', 'ivf'",
        ),
        (lambda x: knn_graph(x, 2, earlier=True, method="ivf"), 'method: expected "exact"'),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call(_rows(9, 1))


@pytest.mark.cuda
@pytest.mark.parametrize("earlier", [False, True])
def test_cuda_matches_cpu(earlier):
    x = _rows(5000, 1, 64)
    values, _ = knn_graph(x.cuda(), 7, earlier=earlier)
    torch.testing.assert_close(values.cpu(), knn_graph(x, 7, earlier=earlier)[0])


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("copies", [3, 60])
def test_of_equally_near_rows_the_lower_numbers_are_neighbours(copies: int, earlier: bool) -> None:
    """60 equal rows exceed the candidates, so that all rows are compared again."""
    generator = torch.Generator().manual_seed(copies)
    own = torch.nn.functional.normalize(torch.randn(20, 32, generator=generator), dim=1)
    x = own[torch.randint(20, (20 * copies,), generator=generator)]
    _, found = knn_graph(x, 5, earlier=earlier)
    cosine = (x.double() @ x.double().T).round(decimals=5)
    for row in range(len(x)):
        others = [j for j in range(row if earlier else len(x)) if j != row]
        best = sorted(others, key=lambda j: (-float(cosine[row, j]), j))[:5]
        assert found[row].tolist() == best + [-1] * (5 - len(best))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", ["random", "close", "equal"])
@pytest.mark.parametrize("least", [-1.0, 0.3])
def test_half_rows_refined_give_the_neighbours_of_float32(
    kind: torch.dtype, rows: str, least: float
) -> None:
    """Rows nearer than half precision tells apart, and more equal ones than candidates."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(500, 48, generator=generator)
    if rows == "close":
        x = x[:6].repeat(84, 1)[:500] + 1e-4 * x
    if rows == "equal":
        x = x[torch.arange(500) % 4]
    x = torch.nn.functional.normalize(x, dim=1)
    for start in (0, 430, 500):
        values, found = refined_knn(x, x.to(kind), 6, start, least=least)
        expected, near = knn_graph(x, 6, start=start, earlier=True)
        counts = expected >= least
        assert torch.equal(found[counts], near[counts])
        torch.testing.assert_close(values[counts], expected[counts])
        assert (values[~counts] < least).all()


def test_half_rows_are_certified_without_comparing_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _rows(600, 1, 48)
    expected = knn_graph(x, 5, start=100, earlier=True)[1]
    monkeypatch.setattr(sys.modules[refined_knn.__module__], "_compare_all", None)
    assert torch.equal(refined_knn(x, x.half(), 5, 100, least=-1.0)[1], expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("start", [0, 4000])
def test_half_rows_on_a_gpu_give_the_neighbours_of_a_cpu(start: int) -> None:
    x = _rows(5000, 1, 64)
    _, found = refined_knn(x, x.half().cuda(), 7, start, least=-1.0)
    assert torch.equal(found, knn_graph(x, 7, start=start, earlier=True)[1])
