"""Growing rows against concatenation, and views against what is added after them."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops.growing import GrowingLists, GrowingRows, RowsOnDevice


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


@given(st.lists(st.booleans(), max_size=3000), st.integers(0, 3))
def test_growing_rows_that_are_taken_are_those_of_a_mask(kept: list[bool], more: int) -> None:
    """Few spans and many; what they were taken from stays as it is."""
    rows = GrowingRows(torch.randn(len(kept), 2))
    before = rows.view.clone()
    mask = np.array(kept, dtype=bool)
    edges = np.diff(np.concatenate([[False], mask, [False]]).astype(int)).nonzero()[0]
    taken = rows.taken(edges[::2], edges[1::2] - edges[::2])
    wanted = before[torch.from_numpy(mask)]
    assert torch.equal(taken.view, wanted)
    added = torch.randn(more, 2)
    taken.append(added)
    assert torch.equal(taken.view, torch.cat([wanted, added]))
    assert torch.equal(rows.view, before)


def test_growing_rows_of_another_kind_are_refused() -> None:
    rows = GrowingRows(torch.zeros(2, 3))
    for other in (torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3)):
        with pytest.raises(InputError, match="rows: expected"):
            rows.append(other)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700)), max_size=12))
def test_rows_on_a_device_are_those_at_hand(steps: list[tuple[int, int]]) -> None:
    """Rows grow, are put elsewhere, or are those of an earlier state again."""
    rows, there = GrowingRows(torch.zeros(0, 2)), RowsOnDevice(DEVICE)
    given, states = list[tuple[torch.Tensor, torch.Tensor]](), [rows.view]
    for kind, size in steps:
        if kind == 0:
            rows = rows.copy()
        elif kind == 1:
            some = states[size % len(states)]
            assert torch.equal(there.of(some).cpu(), some)
        else:
            rows.append(torch.randn(size, 2))
        states.append(rows.view)
        found = there.of(rows.view)
        assert torch.equal(found.cpu(), rows.view)
        given.append((found, rows.view.clone()))
    for found, then in given:
        assert torch.equal(found.cpu(), then)


def test_rows_on_a_device_move_once() -> None:
    rows, there = GrowingRows(torch.randn(3000, 2)), RowsOnDevice(DEVICE)
    rows.append(torch.randn(10, 2))  # from here on there is room behind them
    there.of(rows.view)
    rows.append(torch.randn(10, 2))
    before = there.of(rows.view)  # with room there, too
    rows.array[0] = 7.0  # what nobody does: it shows that the first rows stay where they are
    rows.append(torch.randn(10, 2))
    found = there.of(rows.view)
    assert found.data_ptr() == before.data_ptr()
    assert torch.equal(found[1:].cpu(), rows.view[1:]) and float(found[0, 0]) != 7.0


def test_rows_on_a_device_are_followed_in_inference_mode_and_outside() -> None:
    rows, there = GrowingRows(torch.randn(3000, 2)), RowsOnDevice(DEVICE)
    for mode in (False, True, False, True, False):
        rows.append(torch.randn(10, 2))
        with torch.inference_mode(mode):
            assert torch.equal(there.of(rows.view).cpu(), rows.view)
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    (there.of(rows.view) @ weight).sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), rows.view.sum(0), rtol=1e-3, atol=1e-3)


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


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12)


@given(st.lists(st.tuples(PAIRS, PAIRS), max_size=6))
def test_lists_lose_what_is_discarded(steps: list[tuple[list, list]]) -> None:
    """The first of equal entries are removed, as many as are named."""
    kept: list[list[float]] = [[] for _ in range(4)]
    lists = GrowingLists({"value": torch.float32})
    lists.resize(4)
    for added, gone in steps:
        added = sorted(added, key=lambda pair: pair[0])
        for place, value in added:
            kept[place].append(-0.5 * value)
        gone = [pair for i, pair in enumerate(gone) if i % 3 == 0]
        gone = [
            (p, v)
            for i, (p, v) in enumerate(gone)
            if gone[:i].count((p, v)) < kept[p].count(-0.5 * v)
        ]
        for place, value in gone:
            kept[place].remove(-0.5 * value)
        for change, pairs in ((lists.append, added), (lists.discard, gone)):
            where = np.array([place for place, _ in pairs], dtype=np.int64)
            change(where, {"value": np.array([-0.5 * value for _, value in pairs])})
        before, order = lists.copy(), np.array([2, 0, 3])
        lists.take(order)
        for some, wanted in ((before, kept), (lists, [kept[i] for i in order])):
            entry = some.entries(np.arange(len(some)))[1]
            assert some.columns["value"][entry].tolist() == list(chain(*wanted))
        lists = before


def test_lists_take_room_in_proportion_to_their_entries() -> None:
    lists = GrowingLists({"value": torch.float32})
    lists.resize(10)
    for _ in range(1000):
        lists.append(np.arange(10), {"value": np.ones(10)})
    assert len(lists.columns["value"]) < 5 * 10_000


def test_rows_on_a_device_may_be_of_another_type() -> None:
    rows, there = GrowingRows(torch.rand(5, 3)), RowsOnDevice("cpu", torch.float16)
    for _ in range(4):
        assert torch.equal(there.of(rows.view), rows.view.half())
        rows.append(torch.rand(700, 3))
    assert there.of(torch.empty(0, 3)).dtype == torch.float16
