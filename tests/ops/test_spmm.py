"""spmm: fast path and kernel against scipy and brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops.spmm import spmm, spmm_reference
from tests.kernels import kernels

kernel = kernels("spmm")

REDUCE = pytest.mark.parametrize("reduce", ["sum", "max"])
HALF = [torch.float16, torch.bfloat16]


def _matrix(
    rows: int, columns: int, edges: int, *, seed: int = 0, hub: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Signed, with duplicate edges and, where edges are few, with empty rows."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(0, max(1, rows), (edges,), generator=generator)
    if hub:
        row[: edges // 2] = rows // 2
    row = row.sort().values
    column = torch.randint(0, max(1, columns), (edges,), generator=generator)
    indptr = torch.searchsorted(row, torch.arange(rows + 1))
    weight = torch.randn(edges, generator=generator)
    return indptr.to(torch.int32), column.to(torch.int32), weight


def _panel(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def _by_hand(indptr, column, weight, x, reduce):
    """Row by row in numpy."""
    starts, w, dense = indptr.tolist(), weight.double().numpy(), x.double().numpy()
    out = np.full((len(starts) - 1, x.shape[1]), -np.inf if reduce == "max" else 0.0)
    for i, (first, last) in enumerate(pairwise(starts)):
        terms = w[first:last, None] * dense[column[first:last].numpy()]
        if len(terms):
            out[i] = terms.sum(0) if reduce == "sum" else terms.max(0)
    return torch.from_numpy(out)


@pytest.mark.parametrize("columns", [1, 3, 5, 16, 64, 65])
@pytest.mark.parametrize("size", [(1, 1, 0), (1, 1, 4), (9, 30, 60), (40, 7, 500)])
def test_sum_matches_scipy(size, columns):
    indptr, column, weight = _matrix(*size)
    x = _panel(size[1], columns)
    matrix = sp.csr_matrix((weight.numpy(), column.numpy(), indptr.numpy()), shape=size[:2])
    torch.testing.assert_close(spmm(indptr, column, weight, x), torch.from_numpy(matrix @ x))


@REDUCE
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 60),
    st.integers(1, 20),
    st.integers(0, 999),
)
def test_matches_every_row_by_hand(reduce, rows, columns, edges, width, seed):
    matrix = _matrix(rows, columns, edges, seed=seed)
    x = _panel(columns, width)
    expected = _by_hand(*matrix, x, reduce)
    torch.testing.assert_close(spmm(*matrix, x, reduce=reduce), expected.float())
    reference = spmm_reference(*matrix, x, reduce == "max")
    torch.testing.assert_close(reference, expected.float())


@REDUCE
@pytest.mark.parametrize("dtype", [*HALF, torch.float64])
def test_dtype_is_kept_and_half_is_accumulated_in_float32(reduce, dtype):
    matrix = _matrix(12, 9, 80)
    x = _panel(9, 3).to(dtype)
    got = spmm(*matrix, x, reduce=reduce)
    assert got.dtype == dtype
    torch.testing.assert_close(got, _by_hand(*matrix, x, reduce).to(dtype))


@REDUCE
@pytest.mark.parametrize(
    ("size", "columns", "dtype"),
    [
        pytest.param((1, 1, 0), 1, torch.float32, id="no edges"),
        pytest.param((1, 5, 40), 3, torch.float32, id="one row"),
        pytest.param((90, 4, 30), 1, torch.float32, id="mostly empty rows"),
        pytest.param((17, 20, 140), 64, torch.float32, id="hub"),
        *(((5, 20, 60), 65, dtype) for dtype in [torch.float32, torch.float64, *HALF]),
    ],
)
def test_kernel_matches_every_row_by_hand(size, columns, dtype, reduce, monkeypatch):
    """Outputs are poisoned with NaN, and hubs begin at 8 edges, so that small ones have some."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = _matrix(*size, hub=True)
    x = _panel(size[1], columns).to(dtype)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    there = [t.to(device) for t in (*matrix, x)]
    got = kernel.launch_spmm(*there, reduce == "max", piece=8).cpu()
    assert got.dtype == dtype
    torch.testing.assert_close(got, _by_hand(*matrix, x, reduce).to(dtype))


@REDUCE
@pytest.mark.parametrize("shift", [0, 1, 7])
def test_kernel_takes_in_pieces_wherever_rows_begin_and_end(shift, reduce):
    """Rows are cut at every multiple of 8 edges, where many of these begin or end."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths = torch.tensor([shift, 0, 8, 16, 24, 7, 9, 1, 40, 0, 23, 8, 17])
    generator = torch.Generator().manual_seed(shift)
    edges = int(lengths.sum())
    column = torch.randint(0, 5, (edges,), generator=generator).int()
    indptr = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    matrix, x = (indptr, column, torch.randn(edges, generator=generator)), _panel(5, 2)
    there = [t.to(device) for t in (*matrix, x)]
    got = kernel.launch_spmm(*there, reduce == "max", piece=8).cpu()
    torch.testing.assert_close(got, _by_hand(*matrix, x, reduce).float())


@REDUCE
def test_gradients(reduce):
    indptr, column, weight = _matrix(8, 6, 30)
    indptr[-1:] = indptr[-2]  # the last row is empty
    column, weight = column[: int(indptr[-1])], weight[: int(indptr[-1])].double()
    x = _panel(6, 3).double().requires_grad_()

    def run(w, panel):
        return spmm(indptr, column, w, panel, reduce=reduce).nan_to_num(neginf=0.0)

    assert torch.autograd.gradcheck(run, (weight.requires_grad_(), x))


def test_equal_terms_of_a_maximum_share_the_gradient_in_half_precision_too():
    indptr, column = torch.tensor([0, 3]).int(), torch.tensor([0, 1, 2]).int()
    x = torch.tensor([[0.3], [0.3], [0.1]], dtype=torch.bfloat16, requires_grad=True)
    spmm(indptr, column, torch.full((3,), 1.1), x, reduce="max").sum().backward()
    expected = torch.tensor([[0.55], [0.55], [0.0]])
    torch.testing.assert_close(x.grad.float(), expected, rtol=1e-2, atol=0)


@REDUCE
def test_opcheck(reduce):
    indptr, column, weight = _matrix(8, 6, 30)
    args = (indptr, column, weight.requires_grad_(), _panel(6, 3).requires_grad_())
    torch.library.opcheck(torch.ops.graphmem.spmm.default, (*args, reduce == "max"))


def test_spmm_second_derivative_is_refused():
    x = _panel(6, 3).requires_grad_()
    out = spmm(*_matrix(8, 6, 30), x).square().sum()
    with pytest.raises(InputError, match="spmm_backward: expected no gradient"):
        torch.autograd.grad(out, x, create_graph=True)


@REDUCE
def test_any_memory_layout_and_no_columns(reduce):
    matrix = _matrix(8, 6, 30)
    turned = _panel(3, 6).T
    got = spmm(*matrix, turned, reduce=reduce)
    torch.testing.assert_close(got, spmm(*matrix, turned.contiguous(), reduce=reduce))
    assert spmm(*matrix, _panel(6, 0), reduce=reduce).shape == (8, 0)
    assert spmm(*_matrix(0, 6, 0), _panel(6, 2), reduce=reduce).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(6)}, r"floating point \[C, B\]"),
        ({"x": torch.zeros(6, 2, dtype=torch.int64)}, "floating point"),
        ({"reduce": "mean"}, "'sum', 'max', got 'mean'"),
        ({"indptr": torch.zeros(9, dtype=torch.int64)}, "indptr: expected int32"),
        ({"indptr": torch.zeros(0, dtype=torch.int32)}, r"the length of indptr: expected"),
        ({"column": torch.zeros(2, 2, dtype=torch.int32)}, "column: expected int32"),
        ({"weight": torch.zeros(3)}, "weight: expected floating point"),
        ({"x": torch.zeros(6, 2, device="meta")}, "on meta, got .* on cpu"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    indptr, column, weight = _matrix(8, 6, 30)
    inputs = {"indptr": indptr, "column": column, "weight": weight, "x": _panel(6, 2), **change}
    with pytest.raises(InputError, match=message):
        spmm(**inputs)


def _assert_sums(got, indptr, column, weight, x, reduce):
    """Against float64, to 16 roundings of float32 of the sum of all |terms|: a hub has 30,000."""
    exact = spmm(indptr, column, weight.double(), x.double(), reduce=reduce)
    terms = spmm(indptr, column, weight.double().abs(), x.double().abs())
    assert got.dtype == x.dtype
    rounding = torch.finfo(got.dtype).eps * exact.abs().nan_to_num(posinf=0.0)
    error = (got.double() - exact).nan_to_num(nan=0.0)  # minus infinity in empty rows
    assert (error.abs() <= rounding + 2.0**-20 * terms).all()


@REDUCE
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_kernel_sums_a_hub_as_well_as_float64(reduce, dtype):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix, x = _matrix(5, 40, 6000, hub=True), _panel(40, 3).to(dtype)
    got = kernel.launch_spmm(*(t.to(device) for t in (*matrix, x)), reduce == "max")
    _assert_sums(got.cpu(), *matrix, x, reduce)


@pytest.mark.cuda
@REDUCE
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_cuda_matches_cpu_and_runs_in_a_cuda_graph(reduce, dtype):
    matrix = _matrix(3000, 2000, 60_000, hub=True)
    x = _panel(2000, 33).to(dtype)
    there = [t.cuda() for t in (*matrix, x)]
    _assert_sums(spmm(*there, reduce=reduce).cpu(), *matrix, x, reduce)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = spmm(*there, reduce=reduce)
    graph.replay()
    _assert_sums(got.cpu(), *matrix, x, reduce)
