"""topk_cosine: running selection, fast path and kernel against a full sort."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import topk_cosine
from graphmem_torch.ops.tiles import empty_best, merge_tile
from graphmem_torch.ops.topk_cosine import (
    best_keys,
    inner_products,
    split_into,
    topk_cosine_reference,
)
from tests.kernels import kernels

kernel = kernels("topk_cosine")

FLOATS = [torch.float32, torch.float16, torch.bfloat16]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _rows(count: int, seed: int, width: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)


def _assert_best(got: tuple[torch.Tensor, torch.Tensor], scores: torch.Tensor, k: int) -> None:
    values, indices = got
    torch.testing.assert_close(values, scores.sort(dim=1, descending=True).values[:, :k])
    torch.testing.assert_close(scores.gather(1, indices), values)
    assert all(len(set(row)) == len(row) for row in indices.tolist())


SIZES = [
    (0, 4, 2),
    (1, 1, 1),
    (1, 203, 4),
    (3, 40, 5),
    (4, 3000, 30),
    (8, 61, 3),
    (9, 62, 3),
    (30, 9, 20),
    (12, 100, 100),
    (65, 1500, 2),
]


@pytest.mark.parametrize("size", SIZES)
def test_topk_cosine_is_a_full_sort_cut_off(size):
    questions, count, k = size
    queries, keys = _rows(questions, 1), _rows(count, 2)
    _assert_best(topk_cosine(queries, keys, k), queries @ keys.T, k)
    tiles = {"columns": 7, "scores": 35, "product": 3}
    _assert_best(best_keys(queries, keys, k, **tiles), queries @ keys.T, k)


@pytest.mark.parametrize("questions", [1, 3, 20])
@pytest.mark.parametrize("k", [1, 7, 400])
def test_topk_cosine_never_finds_a_key_with_a_nan(questions, k):
    queries, keys = _rows(questions, 1), _rows(2000, 2)
    keys[::3, 1] = torch.nan
    values, indices = topk_cosine(queries, keys, k)
    whole = (torch.arange(2000) % 3 != 0).nonzero().squeeze(1)
    expected, place = topk_cosine(queries, keys[whole], k)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(indices, whole[place])
    few = topk_cosine(queries, keys[:4], 4)
    assert (few[1][:, 2:] == -1).all() and (few[0][:, 2:] == -torch.inf).all()
    assert sorted(set(few[1][:, :2].flatten().tolist())) == [1, 2]


def test_kernel_never_finds_a_key_with_a_nan():
    queries, keys = _rows(2, 1, 8).to(DEVICE), _rows(9, 2, 8).to(DEVICE)
    keys[3] = torch.nan
    values, indices = kernel.launch_topk_cosine(queries, keys, 9)
    assert not values.isnan().any() and (values[:, 8] == -torch.inf).all()
    assert (indices[:, :8].sort().values.cpu() == torch.tensor([0, 1, 2, 4, 5, 6, 7, 8])).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_split_into_halves_is_exact_to_2_to_the_minus_22(dtype):
    values = _rows(50, 1, 384)
    parts = split_into(values, dtype)
    assert {part.dtype for part in parts} == {dtype}
    total = torch.stack([part.double() for part in parts]).sum(0)
    assert float((total - values).abs().max()) <= 2.0**-22 * float(values.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("questions", [0, 1, 20])
def test_inner_products_are_those_of_float64(dtype, questions):
    queries, keys = _rows(questions, 1, 96).to(DEVICE), _rows(603, 2, 96).to(DEVICE, dtype)
    exact = queries.double() @ keys.double().T
    torch.testing.assert_close(inner_products(queries, keys).double(), exact, atol=1e-6, rtol=0)


def test_topk_cosine_of_zeros_is_zero():
    values, _ = topk_cosine(torch.zeros(1, 5), _rows(9, 1), 3)
    assert values.tolist() == [[0.0, 0.0, 0.0]]


def test_topk_cosine_without_keys():
    values, indices = topk_cosine(_rows(2, 1), torch.zeros(0, 5), 3)
    assert values.shape == indices.shape == (2, 0)


@given(
    st.integers(1, 5),
    st.lists(st.integers(1, 300), min_size=1, max_size=5),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([0, 1000]),
    st.integers(0, 999),
)
def test_tiles_merge_to_the_top_of_all(rows, widths, k, transposed, plain, seed):
    """With ties: one of seven values each, and minus infinity for what is masked."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 7, (rows, sum(widths)), generator=generator).float() / 7
    scores[torch.rand(scores.shape, generator=generator) < 0.2] = -torch.inf
    values, indices = empty_best(rows, k, torch.device("cpu"))
    first = 0
    for part in scores.split(widths, dim=1):
        part = part.T.contiguous().T if transposed else part.contiguous()
        merge_tile(values, indices, part, first, plain=plain)
        first += part.shape[1]
    wide = torch.nn.functional.pad(scores, (0, k), value=-torch.inf)
    torch.testing.assert_close(values, wide.sort(dim=1, descending=True).values[:, :k])
    known = values > -torch.inf
    assert torch.equal(scores.gather(1, indices.clamp(min=0))[known], values[known])
    for row, kept in zip(indices.tolist(), known.tolist(), strict=True):
        real = [index for index, keep in zip(row, kept, strict=True) if keep]
        assert len(set(real)) == len(real)


def test_duplicate_keys_are_all_found():
    keys = _rows(4, 1).repeat_interleave(50, 0)
    values, indices = topk_cosine(keys[:1], keys, 50)
    assert sorted(indices[0].tolist()) == list(range(50))
    torch.testing.assert_close(values, torch.ones(1, 50))


@pytest.mark.parametrize("questions", [1, 3, 20])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_computed_in_float32(dtype, questions):
    queries, keys = _rows(questions, 2).to(dtype), _rows(603, 1).to(dtype)
    got = topk_cosine(queries, keys, 4)
    assert got[0].dtype == torch.float32
    _assert_best(got, queries.float() @ keys.float().T, 4)


@pytest.mark.parametrize("questions", [1, 20])
def test_rows_need_not_be_contiguous(questions):
    queries = torch.nn.functional.normalize(_rows(2 * questions, 2, 10)[::2, ::2], dim=1)
    queries = queries.repeat_interleave(2, 1)[:, ::2]
    keys = _rows(5, 1, 300).T
    _assert_best(topk_cosine(queries, keys, 4), queries @ keys.T, 4)


@pytest.mark.parametrize(
    ("size", "dtypes"),
    [
        *(((17, 35, 4, 80), dtypes) for dtypes in itertools.product([torch.float32], FLOATS)),
        *(((17, 35, 4, 80), (dtype, dtype)) for dtype in FLOATS[1:]),
        *((size, (torch.float32, torch.float32)) for size in [(1, 1, 1, 3), (1, 66, 3, 17)]),
        *((size, (torch.float32, torch.float16)) for size in [(3, 17, 1, 64), (16, 9, 4, 5)]),
    ],
    ids=str,
)
def test_kernel_matches_the_reference(size, dtypes, monkeypatch):
    """Outputs are poisoned; a query's keys are shared by several programs, in tiles of 16 x 16."""
    questions, count, k, width = size
    queries = _rows(questions, 1, width).to(DEVICE, dtypes[0])
    keys = _rows(count, 2, width).to(DEVICE, dtypes[1])
    empty = torch.empty

    def poisoned(*a, dtype=None, **kw):
        value = torch.nan if dtype in (None, torch.float32) else 7
        return empty(*a, dtype=dtype, **kw).fill_(value)

    monkeypatch.setattr(torch, "empty", poisoned)
    tile = {"programs": 4, "queries_at_once": 16, "keys_at_once": 16}
    got = kernel.launch_topk_cosine(queries, keys, k, **tile)
    _assert_best(got, (queries.double() @ keys.double().T).float(), k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_kernel_keeps_float32_queries_exact_over_half_keys(dtype):
    """A query cast to the type of the keys would be off by 2^-12, or 2^-9."""
    queries, keys = _rows(3, 1, 96).to(DEVICE), _rows(12, 2, 96).to(DEVICE, dtype)
    values, indices = kernel.launch_topk_cosine(queries, keys, 12)
    exact = (queries.double() @ keys.double().T).gather(1, indices)
    torch.testing.assert_close(values.double(), exact, atol=2.0**-21, rtol=0)


def test_kernel_with_ties_and_more_asked_than_there_are():
    keys = _rows(3, 1, 8).repeat(5, 1).to(DEVICE)
    queries = _rows(2, 2, 8).to(DEVICE)
    _assert_best(kernel.launch_topk_cosine(queries, keys, 40), queries @ keys.T, 15)
    assert kernel.launch_topk_cosine(queries, keys[:0], 4)[0].shape == (2, 0)


def test_kernel_of_mixed_precision_and_strided_keys():
    keys = _rows(90, 1, 40)[::2, 3:23].half().to(DEVICE)
    queries = _rows(2, 2, 20).to(DEVICE)
    _assert_best(kernel.launch_topk_cosine(queries, keys, 5), queries @ keys.float().T, 5)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("questions", [1, 20])
def test_topk_cosine_default_dtype_does_not_matter(questions):
    queries, keys = _rows(questions, 2).float(), _rows(50, 1).float()
    _assert_best(topk_cosine(queries, keys, 4), queries @ keys.T, 4)


def test_opcheck():
    keys = _rows(9, 1)
    torch.library.opcheck(torch.ops.graphmem.topk_cosine.default, (keys[:2], keys, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: topk_cosine(x, x, 0), "k: expected an integer of at least 1, got 0"),
        (lambda x: topk_cosine(x[:, :3], x, 1), r"\[B, 5\]"),
        (lambda x: topk_cosine(x[0], x, 1), r"queries: expected floating point"),
        (lambda x: topk_cosine(x, x.long(), 1), r"keys: expected floating point"),
        (lambda x: topk_cosine(x, x.to("meta"), 1), "on meta, got .* on cpu"),
        (lambda x: topk_cosine(x, x.requires_grad_(), 1), "expected no gradient"),
        (lambda x: topk_cosine(x * 3, x, 1), r"queries: expected rows of length 1 .* got length 3"),
        (lambda x: topk_cosine(x / 0, x, 1), r"queries: expected .* got length (inf|nan) in row 0"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call(_rows(9, 1))


@pytest.mark.cuda
@pytest.mark.parametrize("k", [1, 30, 128, 200])
@pytest.mark.parametrize("questions", [1, 64, 65])
def test_cuda_matches_cpu(questions, k):
    queries, keys = _rows(questions, 1, 384), _rows(70_001, 2, 384)
    values, indices = topk_cosine(queries.cuda(), keys.cuda(), k)
    expected = topk_cosine_reference(queries, keys, k)
    torch.testing.assert_close(values.cpu(), expected[0])
    torch.testing.assert_close((queries @ keys.T).gather(1, indices.cpu()), values.cpu())
    torch.testing.assert_close(best_keys(queries.cuda(), keys.cuda(), k)[0].cpu(), expected[0])


@pytest.mark.cuda
def test_cuda_of_more_queries_than_blocks_fit_the_second_axis_of_a_grid():
    queries = torch.nn.functional.normalize(torch.randn(65_536 * 64 + 3, 16, device="cuda"), dim=1)
    keys = queries[:40].contiguous()
    values, indices = topk_cosine(queries, keys, 1)
    for part in (slice(0, 1000), slice(-1000, None)):
        best = (queries[part] @ keys.T).max(1)
        torch.testing.assert_close(values[part, 0], best.values)
        assert torch.equal(indices[part, 0], best.indices)


@pytest.mark.cuda
def test_runs_in_a_cuda_graph():
    queries, keys = _rows(3, 1, 64).cuda(), _rows(5000, 2, 64).cuda()
    topk_cosine(queries, keys, 5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values, _ = topk_cosine(queries, keys, 5)
    queries.copy_(_rows(3, 9, 64))
    graph.replay()
    torch.testing.assert_close(values, (queries @ keys.T).topk(5).values)
