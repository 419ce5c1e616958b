"""SparseRows against the matrix it stands for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import SparseRows, spread_activation


def _matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(rows, columns, generator=generator)
    return value * (torch.rand(rows, columns, generator=generator) < 0.3)


SHAPES = [(1, 1), (0, 5), (3, 0), (4, 7), (65, 3)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_there_and_back(rows, columns):
    dense = _matrix(rows, columns, 0)
    sparse = SparseRows.from_dense(dense)
    assert sparse.shape == dense.shape
    assert torch.equal(sparse.to_dense(), dense)
    assert torch.equal(torch.stack([sparse.row, sparse.column], 1), dense.nonzero())


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 9), st.integers(0, 10**6))
def test_lists_of_columns(rows, columns, width, seed):
    generator = torch.Generator().manual_seed(seed)
    named = torch.randint(-1, columns, (rows, width), generator=generator)
    value = torch.rand(rows, width, generator=generator)
    expected = torch.zeros(rows, columns)
    for b, j in torch.cartesian_prod(torch.arange(rows), torch.arange(width)).tolist():
        if named[b, j] >= 0:
            expected[b, named[b, j]] = max(expected[b, named[b, j]], value[b, j])
    assert torch.equal(SparseRows.of(named, value, columns).to_dense(), expected)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("k", [1, 3, 9])
def test_topk(rows, columns, k):
    dense = _matrix(rows, columns, 1)
    values, places = SparseRows.from_dense(dense).topk(k)
    assert values.shape == places.shape == (rows, k)
    for row, value, place in zip(dense, values, places, strict=True):
        entries = sorted(row[row != 0].tolist(), reverse=True)[:k]
        assert value.tolist() == entries + [0.0] * (k - len(entries))
        assert [float(row[c]) for c in place.tolist() if c >= 0] == entries
        assert place[len(entries) :].eq(-1).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 7), (65, 3)])
def test_gather_and_select(rows, columns):
    dense = _matrix(rows, columns, 2)
    sparse = SparseRows.from_dense(dense)
    wanted = torch.randint(-1, columns, (rows, 6), generator=torch.Generator().manual_seed(3))
    expected = torch.where(wanted >= 0, dense.gather(1, wanted.clamp(min=0)), 0.0)
    assert torch.equal(sparse.gather(wanted), expected)
    positive = sparse.select(sparse.value > 0)
    assert torch.equal(positive.to_dense(), dense.clamp(min=0))
    assert torch.equal(sparse.narrowed(columns // 2).to_dense(), dense[:, : columns // 2])
    nothing = sparse.select(torch.zeros_like(sparse.key, dtype=torch.bool))
    assert torch.equal(nothing.gather(wanted), torch.zeros(rows, 6))
    assert nothing.topk(2)[1].eq(-1).all()


def test_bad_input_is_refused_by_name(random_graph):
    with pytest.raises(InputError, match="columns: expected int64"):
        SparseRows.of(torch.zeros(2, 3), torch.zeros(2, 3), 4)
    with pytest.raises(InputError, match="columns: expected int64"):
        SparseRows.of(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 2), 4)
    with pytest.raises(InputError, match="columns: expected below 4, got 4"):
        SparseRows.of(torch.tensor([[1, 4]]), torch.ones(1, 2), 4)
    with pytest.raises(InputError, match="values: expected floating point"):
        SparseRows.of(torch.tensor([[1]]), torch.ones(1, 1, dtype=torch.int64), 4)
    with pytest.raises(InputError, match="k: expected"):
        SparseRows.from_dense(torch.zeros(2, 3)).topk(0)
    with pytest.raises(InputError, match=r"activation: expected \[B, 9\]"):
        spread_activation(random_graph(9, 20), SparseRows.from_dense(torch.zeros(2, 3)))


def test_repr_says_what_is_there():
    rows = SparseRows.of(torch.tensor([[3, 1], [-1, 2]]), torch.ones(2, 2), 5)
    assert repr(rows) == "SparseRows(shape=(2, 5), entries=3, value=float32, device='cpu')"
