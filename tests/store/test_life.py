"""Pins, found types and times of storing; stores from before these tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmem_torch.errors import StoreError
from graphmem_torch.store import Batch, MemoryStore

MakeBatch = Callable[..., Batch]
LATER = ("pin", "found_type", "stored_at", "use")


def _aged(folder: Path) -> None:
    """Makes the store one of an older release."""
    with sqlite3.connect(folder / "memory.sqlite") as connection:
        for name in LATER:
            connection.execute(f"DROP TABLE {name}")
        connection.execute("DROP INDEX atom_procedural")
    connection.close()


def test_pins_and_types_survive(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(5, start=0))
        state, version = store.state, store.life.types_version
        store.life.set_pins([3, 1], True)
        store.life.set_pins([3], False)
        store.life.set_found_types({0: ("semantic", 0.5), 4: ("working", None)}, "oracle")
        store.life.set_found_types({4: ("episodic", None)}, "rules 1")
        store.life.set_found_types({}, "rules 1")
        assert store.state == state, "no index is rebuilt for these"
        assert store.life.types_version == version + 2
        assert store.check() == []
    with MemoryStore.open(tmp_path, mode="r") as reader:
        assert sorted(reader.life.pins()) == [(1, 1), (3, 0)]
        assert reader.life.pinned() == [reader.ids()[1]]
        everything = [(0, "semantic", 0.5, "oracle"), (4, "episodic", None, "rules 1")]
        assert sorted(reader.life.found_types()) == everything
        assert reader.life.found_types(1) == everything[1:]
        with pytest.raises(StoreError, match="reading only"):
            reader.life.set_pins([0], True)
        with pytest.raises(StoreError, match="reading only"):
            reader.life.set_found_types({0: ("working", None)}, "oracle")


def test_when_a_batch_was_stored(make_batch: MakeBatch) -> None:
    store = MemoryStore.open(None)
    for start, count, when in ((0, 2, 100.0), (2, 1, 50.0), (3, 4, 300.0)):
        store.append(make_batch(count, start=start), when=when)
    asked = torch.tensor([6, 0, 1, 2, 3, 7, 400])
    found = store.life.stored_at(asked)
    assert found[:5].tolist() == [300.0, 100.0, 100.0, 50.0, 300.0]
    assert found[5:].isnan().all()
    assert store.life.stored_at(asked[:0]).shape == (0,)


def test_a_time_of_storing_is_erased_with_the_last_that_was_stored_then(
    make_batch: MakeBatch,
) -> None:
    def kept() -> list[bool]:
        return (~store.life.stored_at(torch.arange(9)).isnan()).tolist()

    store, none = MemoryStore.open(None), torch.empty(0, 8)
    for start, when in ((0, 100.0), (3, 200.0), (6, 300.0)):
        store.append(make_batch(3, start=start), when=when)
    store.erase(Batch([], none, gone=[0, 1, 3]), when=0.0)
    assert kept() == [True] * 9
    store.erase(Batch([], none, gone=[2]), when=0.0)
    assert kept() == [False] * 3 + [True] * 6
    # What was deleted before goes with the next that is erased, whatever that is; a version that
    # is kept was stored then as well.
    store.append(Batch([], none, gone=[4, 5]))
    store.append(replace(make_batch(1, start=9), gone=[8], versions=[(8, 9)]))
    store.erase(Batch([], none, gone=[6, 7]), when=0.0)
    assert kept() == [False] * 6 + [True] * 3
    store.erase(Batch([], none, gone=[9]), when=0.0)
    assert kept() == [False] * 9


def test_an_older_store_opens(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(3, start=0))
    _aged(tmp_path)
    with MemoryStore.open(tmp_path, mode="r") as reader:
        assert reader.life.pinned() == []
        assert reader.life.found_types() == []
        assert reader.life.stored_at(torch.arange(3)).isnan().all()
        assert reader.uses.total() == 0
    with MemoryStore.open(tmp_path) as store:
        store.life.set_pins([2], True)
        store.append(make_batch(2, start=3))
        assert store.life.pins() == [(2, 1)]
        assert store.life.stored_at(torch.arange(5)).isnan().tolist() == [True] * 3 + [False] * 2
        assert store.check() == []
