"""Rows in the order of a key that grows, against sorting and scanning in plain Python."""

from __future__ import annotations

import math
from itertools import count

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.ops.sorted_rows import SortedRows, merged_order, sorted_order

keys = st.lists(st.sampled_from([math.nan, -2.0, 0.0, 0.5, 1.0, 7.25]), max_size=12)


@given(st.lists(st.tuples(keys, st.booleans()), max_size=6))
def test_merged_order_is_that_of_sorting_at_once(parts: list[tuple[list[float], bool]]) -> None:
    every: list[float] = []
    order = torch.empty(0, dtype=torch.int32)
    listed: list[int] = []
    for part, whole in parts:
        fresh = [len(every) + i for i in range(len(part)) if whole or i % 2]
        every += part
        listed += fresh
        key = torch.tensor(every, dtype=torch.float64)
        order = merged_order(order, key, torch.tensor(fresh, dtype=torch.int32))
        last = [math.inf if math.isnan(own) else own for own in every]
        assert order.tolist() == sorted(
            listed, key=list(zip(last, count(), strict=False)).__getitem__
        )
        assert order.tolist() == sorted_order(key, torch.tensor(listed, dtype=torch.int32)).tolist()


@given(keys, st.lists(st.tuples(*[st.sampled_from([-math.inf, -2.0, 0.2, 1.0, math.inf])] * 2)))
def test_within_finds_what_a_scan_finds(key: list[float], spans: list[tuple[float, float]]) -> None:
    values = torch.tensor(key, dtype=torch.float64)
    rows = SortedRows.of(sorted_order(values, torch.arange(len(key))), values)
    ends = torch.tensor(spans, dtype=torch.float64).view(-1, 2)
    span, row = rows.within(*ends.T.contiguous())
    wanted = [
        (i, j) for i, (low, high) in enumerate(spans) for j, k in enumerate(key) if low <= k <= high
    ]
    assert sorted(zip(span.tolist(), row.tolist(), strict=True)) == wanted
