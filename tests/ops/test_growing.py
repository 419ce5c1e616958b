"""Growing rows against concatenation, and views against what is added after them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops.growing import GrowingLists, GrowingRows


@given(st.lists(st.integers(0, 700), max_size=8), st.integers(0, 3))
def test_growing_rows_are_those_that_were_added(sizes: list[int], start: int) -> None:
    rows = GrowingRows(torch.arange(2.0 * start).view(start, 2))
    wanted, views = rows.view.clone(), []
    for size in sizes:
        added = torch.randn(size, 2)
        views.append((rows.view, wanted))
        wanted = torch.cat([wanted, added])
        rows.append(added)
        assert torch.equal(rows.view, wanted)
    assert len(rows) == len(wanted)
    for view, then in views:
        assert torch.equal(view, then)


def test_growing_rows_of_another_kind_are_refused() -> None:
    rows = GrowingRows(torch.zeros(2, 3))
    for other in (torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3)):
        with pytest.raises(InputError, match="rows: expected"):
            rows.append(other)


step = st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=12))


@given(st.lists(step, max_size=12))
def test_lists_are_those_of_python(steps: list[tuple[bool, list[int]]]) -> None:
    number = iter(range(10_000))
    kept: list[list[int]] = []
    lists = GrowingLists({"value": torch.int32, "twice": torch.float64})
    for replaces, where in steps:
        chosen = sorted(where)
        values = [next(number) for _ in chosen]
        named = sorted(set(chosen))
        kept += [[] for _ in range(max([*named, -1]) + 1 - len(kept))]
        lists.resize(len(kept))
        column = np.array(values, dtype=np.int32)
        columns = {"value": column, "twice": column * 2.0}
        if replaces:
            for place in named:
                kept[place] = []
            size = np.array([chosen.count(place) for place in named], dtype=np.int64)
            lists.replace(np.array(named, dtype=np.int64), size, columns)
        else:
            lists.append(np.array(chosen, dtype=np.int64), columns)
        for place, value in zip(chosen, values, strict=True):
            kept[place].append(value)
        place, entry = lists.entries(np.arange(len(kept))[::-1])
        wanted = [value for each in kept[::-1] for value in each]
        assert lists.columns["value"][entry].tolist() == wanted
        assert lists.columns["twice"][entry].tolist() == [2 * value for value in wanted]
        assert place.tolist() == [i for i, each in enumerate(kept[::-1]) for _ in each]


def test_lists_take_room_in_proportion_to_their_entries() -> None:
    lists = GrowingLists({"value": torch.float32})
    lists.resize(10)
    for _ in range(1000):
        lists.append(np.arange(10), {"value": np.ones(10)})
    assert len(lists.columns["value"]) < 5 * 10_000
