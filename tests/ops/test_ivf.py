"""IVF: with every list probed it is exact; additions and removals against a new index."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import IVF, topk_cosine
from graphmem_torch.ops.ivf import nearest_centroid, scan_each_list, scan_lists, spherical_kmeans


def _rows(count: int, seed: int, width: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)


def _check_layout(index: IVF) -> None:
    """Offsets span the rows and every row is in the list of its centroid."""
    assert index.offsets[0] == 0 and index.offsets[-1] == len(index) == len(index.rows)
    assert (index.offsets.diff() >= 0).all()
    cosine = index.rows.float() @ index.centroids.T
    own = cosine.gather(1, index._labels()[:, None])[:, 0]
    torch.testing.assert_close(own, cosine.amax(1))


@pytest.mark.parametrize(
    "size", [(1, 1, 1, 1), (7, 7, 3, 3), (50, 1, 5, 3), (300, 20, 65, 12), (300, 299, 3, 400)]
)
@pytest.mark.parametrize("scores", [1, 1 << 22])
def test_probing_every_list_is_exact(size, scores):
    count, lists, questions, k = size
    x, queries = _rows(count, 1), _rows(questions, 2)
    index = IVF.build(x, lists)
    _check_layout(index)
    values, ids = index.search(queries, k, probes=lists, tile=scores)
    found = min(k, count)
    torch.testing.assert_close(values[:, :found], topk_cosine(queries, x, k)[0])
    torch.testing.assert_close((queries @ x.T).gather(1, ids[:, :found]), values[:, :found])
    assert (ids[:, found:] == -1).all() and (values[:, found:] == -torch.inf).all()


@given(st.integers(1, 80), st.integers(1, 9), st.integers(1, 9), st.integers(0, 999))
def test_ivf_only_the_probed_lists_are_looked_into(count, lists, probes, seed):
    lists = min(lists, count)
    index = IVF.build(_rows(count, seed), lists)
    queries = _rows(4, seed + 1)
    values, ids = index.search(queries, 5, probes=probes)
    near = (queries @ index.centroids.T).topk(min(probes, lists)).indices
    allowed = (index._labels()[None, None, :] == near[:, :, None]).any(1)
    scores = (queries @ index.rows.T).masked_fill(~allowed, -torch.inf)
    expected = torch.nn.functional.pad(scores, (0, 5), value=-torch.inf).topk(5)
    torch.testing.assert_close(values, expected.values)
    assert ((ids == -1) == (values == -torch.inf)).all()


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 999))
def test_add_and_remove(count, more, seed):
    x = _rows(count + more, seed)
    index = IVF.build(x[:count], min(count, 5)).add(x[count:])
    assert index.next_id == count + more
    _check_layout(index)
    generator = torch.Generator().manual_seed(seed)
    gone = torch.randperm(count + more, generator=generator)[: (count + more) // 3]
    left = index.remove(gone)
    _check_layout(left)
    ids = torch.tensor(sorted(set(range(count + more)) - set(gone.tolist())), dtype=torch.int64)
    order = left.ids.argsort()
    assert torch.equal(left.ids[order], ids)
    torch.testing.assert_close(left.rows[order], x[ids])
    values, found = left.search(x[:3], 4, probes=5)
    expected, _ = topk_cosine(x[:3], x[ids], 4)
    torch.testing.assert_close(values[:, : expected.shape[1]], expected)
    assert not set(found.flatten().tolist()) & set(gone.tolist())
    assert left.add(x[:1]).ids.max() == count + more  # an id is never given twice


def test_remove_of_everything_and_add_again():
    x = _rows(9, 1)
    index = IVF.build(x, 3)
    nothing = index.remove(index.ids)
    values, ids = nothing.search(x, 2)
    assert len(nothing) == 0 and (ids == -1).all() and (values == -torch.inf).all()
    values, ids = nothing.add(x).search(x, 1, probes=3)
    assert ids[:, 0].tolist() == list(range(9, 18))


def test_clusters_are_found_and_the_answer_depends_on_the_generator_only():
    generator = torch.Generator().manual_seed(0)
    topic = torch.randint(30, (3000,), generator=generator)
    x = torch.nn.functional.normalize(_rows(30, 1, 32)[topic] + 0.3 * _rows(3000, 2, 32), dim=1)
    index = IVF.build(x, generator=torch.Generator().manual_seed(4))
    again = IVF.build(x, generator=torch.Generator().manual_seed(4))
    assert torch.equal(index.centroids, again.centroids) and torch.equal(index.ids, again.ids)
    _, exact = topk_cosine(x[:200], x, 10)
    _, found = index.search(x[:200], 10, probes=16)
    assert (found[:, :, None] == exact[:, None, :]).any(2).float().mean() > 0.95


def test_kmeans_lowers_the_distance_and_fills_empty_lists():
    x = torch.cat([_rows(1, 1).repeat(200, 1), _rows(20, 2)])
    before = spherical_kmeans(x, 12, 0, torch.Generator().manual_seed(0))
    after = spherical_kmeans(x, 12, 8, torch.Generator().manual_seed(0))
    assert (x @ after.T).amax(1).sum() >= (x @ before.T).amax(1).sum() - 1e-4
    torch.testing.assert_close(after.norm(dim=1), torch.ones(12))
    assert (
        nearest_centroid(x, after).unique().numel() > nearest_centroid(x, before).unique().numel()
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_stored_and_multiplied_in_float32(dtype):
    x = _rows(200, 1).to(dtype)
    index = IVF.build(x, 10)
    assert index.rows.dtype == dtype
    values, _ = index.search(x[:4], 3, probes=10)
    expected = topk_cosine(x[:4], x, 3)[0]
    torch.testing.assert_close(values, expected)


def test_search_is_bounded_in_memory_where_one_list_holds_nearly_all(largest):
    """Half the rows are equal: a tile of queries must not meet them all at once."""
    x = _rows(100, 1)
    x[:50] = x[0]
    index = IVF.build(x, 20)
    for probes in (20, 2):
        with largest() as seen:
            values, _ = index.search(x, 5, probes=probes, tile=300)
        assert seen.elements <= 100 * 27  # k and the candidates of ties, not 100 * 50 products
        if probes == 20:
            torch.testing.assert_close(values, topk_cosine(x, x, 5)[0])


@pytest.mark.parametrize("budget", [None, 100, 1])
@pytest.mark.parametrize("kept", [False, True])
def test_scans_that_gather_find_what_products_of_lists_find(budget, kept):
    """The path of a GPU gives the same on any device."""
    index, queries = IVF.build(_rows(300, 1), 20), _rows(7, 2)
    probe = torch.rand(7, 20, generator=torch.Generator().manual_seed(3)).argsort()[:, :4]
    given = queries, index.rows, index.offsets[:-1], index.offsets.diff(), probe, 9
    by_lists, gathered = (scan_lists(*given, gather=how, budget=budget) for how in (False, True))
    torch.testing.assert_close(gathered, by_lists)
    rows = index.rows[index.ids.argsort()]
    mask = torch.rand(7, 300, generator=torch.Generator().manual_seed(4)) < 0.7 if kept else None
    given = queries, rows, index.ids, index.offsets, probe, 9
    whole = scan_each_list(*given, kept=mask, gather=False)
    for how in (False, True):
        tiled = scan_each_list(*given, kept=mask, gather=how, budget=budget)
        torch.testing.assert_close(tiled, whole)
    none = scan_each_list(queries[:0], rows, index.ids, index.offsets, probe[:0], 9, gather=True)
    assert none[0].shape == (0, 4, 9)


@pytest.mark.usefixtures("double_by_default")
def test_defaults_of_torch_do_not_matter():
    x = _rows(50, 1).float()
    with torch.device("meta"):
        index = IVF.build(x, 3)
        values, _ = index.search(x, 4, probes=3)
    assert index.centroids.dtype == torch.float32
    torch.testing.assert_close(values, (x @ x.T).topk(4).values)


def test_repr_says_what_is_there():
    index = IVF.build(_rows(9, 1), 2)
    assert repr(index) == "IVF(rows=9, lists=2, width=6, dtype=float32, device='cpu')"


def test_ivf_without_queries():
    values, ids = IVF.build(_rows(9, 1)).search(torch.zeros(0, 6), 2)
    assert values.shape == ids.shape == (0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: IVF.build(torch.zeros(0, 6)), "x: expected at least one row"),
        (lambda i: IVF.build(_rows(4, 1), 5), "lists: expected at most 4, got 5"),
        (lambda i: IVF.build(_rows(4, 1), 0), "lists: expected an integer of at least 1"),
        (lambda i: IVF.build(_rows(4, 1), iterations=-1), "iterations: expected an integer"),
        (lambda i: i.search(_rows(2, 1, 5), 3), r"\[n, 6\]"),
        (lambda i: i.search(_rows(2, 1), 0), "k: expected an integer of at least 1"),
        (lambda i: i.search(_rows(2, 1), 1, probes=0), "probes: expected an integer of at least 1"),
        (
            lambda i: i.search(_rows(2, 1) * 2, 1),
            "queries: .* rows of length 1 .* got length 2",
        ),
        (lambda i: i.add(_rows(2, 1, 5)), r"rows: expected floating point \[n, 6\]"),
        (lambda i: i.add(2 * _rows(2, 1)), "rows: .* rows of length 1 .* got length 2"),
        (lambda i: IVF.build(_rows(2, 1) / 0), "x: expected rows of length 1"),
        (lambda i: i.remove(torch.tensor([2, 11])), "got 1 that are not, first 11"),
        (lambda i: i.remove(torch.tensor([0.5])), "ids: expected integers"),
        (lambda i: i.add(_rows(2, 1).requires_grad_()), "expected no gradient"),
        (lambda i: i.search(_rows(2, 1).requires_grad_(), 1), "expected no gradient"),
        (lambda i: IVF.build(_rows(2, 1).requires_grad_()), "expected no gradient"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call(IVF.build(_rows(9, 1), 2))


@pytest.mark.cuda
def test_cuda_matches_cpu():
    x = _rows(3000, 1, 32)
    index = IVF.build(x.cuda(), 40).add(x[:9].cuda())
    values, _ = index.search(x[:65].cuda(), 5, probes=40)
    torch.testing.assert_close(values.cpu(), topk_cosine(x[:65], torch.cat([x, x[:9]]), 5)[0])
