"""Ragged rows against plain loops."""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.coo import isin, offsets_of, pointers, unique_pairs, without_once
from graphmem_torch.ops.ragged import lower_bounds, ranges, runs, segment_topk

COUNTS = st.lists(st.integers(0, 5), max_size=12)


@given(COUNTS, st.randoms(), st.sampled_from([torch.int32, torch.int64]), st.booleans())
def test_ranges_are_a_loop_over_the_rows(counts, random, dtype, told):
    first = [random.randint(-3, 50) for _ in counts]
    expected = [(row, first[row] + i) for row, n in enumerate(counts) for i in range(n)]
    row, number = ranges(
        torch.tensor(first, dtype=dtype),
        torch.tensor(counts, dtype=dtype),
        total=sum(counts) if told else None,
    )
    assert list(zip(row.tolist(), number.tolist(), strict=True)) == expected
    assert number.dtype == torch.int64
    _, within = ranges(0, torch.tensor(counts, dtype=dtype))
    assert within.tolist() == [i for n in counts for i in range(n)]


@given(COUNTS)
def test_offsets_are_the_sums_so_far(counts):
    expected = [sum(counts[:i]) for i in range(len(counts) + 1)]
    found = offsets_of(torch.tensor(counts, dtype=torch.int64))
    assert found.tolist() == expected
    assert found.dtype == torch.int64


@given(st.lists(st.integers(0, 4), max_size=20))
def test_pointers_are_where_sorted_ids_start(ids):
    found = pointers(torch.tensor(ids, dtype=torch.int64), 5)
    assert found.tolist() == [sum(one < node for one in ids) for node in range(6)]
    assert found.dtype == torch.int32


@given(
    st.lists(st.integers(-9, 9), max_size=30),
    st.lists(st.integers(-9, 9) | st.integers(-(2**62), 2**62), max_size=5),
    st.sampled_from([torch.int64, torch.int32, torch.uint8]),
)
def test_isin_is_that_of_sets(values, asked, dtype):
    values = [value % 256 for value in values] if dtype == torch.uint8 else values
    found = isin(torch.tensor(values, dtype=dtype), torch.tensor(asked, dtype=torch.int64))
    assert found.tolist() == [value in {*asked} for value in values]


@given(st.lists(st.integers(0, 3), max_size=12))
def test_runs_are_those_of_groupby(values):
    begin, size = runs(np.array(values, dtype=np.int64))
    expected = [len(list(run)) for _, run in groupby(values)]
    assert size.tolist() == expected
    assert begin.tolist() == [sum(expected[:i]) for i in range(len(expected))]


PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12)


@given(PAIRS, PAIRS)
def test_without_once_takes_the_first_of_equal_ones(held, gone):
    left, expected = list(gone), []
    for pair in held:
        expected.append(pair not in left)
        if pair in left:
            left.remove(pair)
    columns = (torch.tensor(each, dtype=torch.int64).view(-1, 2).T for each in (held, gone))
    assert without_once(*columns).tolist() == expected


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), min_size=1, max_size=5), st.randoms())
def test_lower_bounds_are_those_of_bisect(rows, random):
    rows = [sorted(row) for row in rows]
    indptr = offsets_of(torch.tensor([len(row) for row in rows]))
    asked = [(random.randrange(len(rows)), random.randint(-1, 10)) for _ in range(9)]
    row, key = torch.tensor(asked).T
    values = torch.tensor([value for row in rows for value in row], dtype=torch.int32)
    runs_of = indptr[row], indptr[row + 1]
    found = lower_bounds(*(each.numpy() for each in (*runs_of, values, key)))
    assert found.tolist() == [int(indptr[r]) + bisect_left(rows[r], k) for r, k in asked]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]))), st.integers(0, 4))
def test_segment_topk_is_a_sort_of_each_segment(rows, k):
    if not rows:
        return
    segment = torch.tensor([s for s, _ in rows])
    values = torch.tensor([v for _, v in rows])
    size = torch.bincount(segment, minlength=4)
    for s, found in enumerate(segment_topk(values, segment, size, k).tolist()):
        own = [place for place, (other, _) in enumerate(rows) if other == s]
        best = sorted(own, key=lambda place: -rows[place][1])[:k]
        assert found == best + [-1] * (k - len(best))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_ranges_without_rows(device):
    none = torch.empty(0, dtype=torch.int64, device=device)
    row, number = ranges(none, none)
    assert len(row) == len(number) == 0


@pytest.mark.parametrize("count", [0, 1, 40])
def test_unique_pairs_are_those_of_torch(count: int, generator: torch.Generator) -> None:
    pairs = torch.randint(5, (2, count), generator=generator)
    found, place = unique_pairs(pairs)
    expected = pairs.unique(dim=1, return_inverse=True)
    assert torch.equal(found, expected[0]) and torch.equal(place, expected[1])
