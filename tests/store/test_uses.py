"""Uses: folded counts against a list of everything that happened, and logs of older releases."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphmem_torch.errors import StoreError
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.uses import KEPT

MakeBatch = Callable[..., Batch]


class Replayed:
    """The oracle: a list of all uses."""

    def __init__(self) -> None:
        self.uses: list[tuple[int, float]] = []

    def last(self, node: int, until: float) -> float:
        return max((t for n, t in self.uses if n == node and t <= until), default=-torch.inf)

    def sure(self, node: int, until: float) -> bool:
        """Whether so few different moments are later that the store must know."""
        return len({t for n, t in self.uses if n == node and t > until}) < KEPT

    def compare(self, store: MemoryStore, moments: list[float]) -> int:
        nodes = torch.arange(12)
        compared = 0
        for until in moments:
            found = store.uses.last(nodes, until).tolist()
            for node, value in enumerate(found):
                if self.sure(node, until):
                    assert value == self.last(node, until)
                    compared += 1
                else:
                    assert value == -torch.inf, "no time that is later, and none made up"
        assert store.uses.total() == len(self.uses)
        return compared


def test_uses_are_those_of_a_replay(tmp_path: Path, make_batch: MakeBatch) -> None:
    rng, oracle = random.Random(0), Replayed()
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(9, 0))
    store, other = MemoryStore.open(tmp_path), MemoryStore.open(tmp_path, mode="r")
    compared = 0
    for step in range(90):
        # Moments repeat and go back.
        nodes, when = rng.sample(range(9), rng.randint(0, 5)), float(rng.randint(0, 40))
        store.uses.note(nodes, when)
        oracle.uses += [(node, when) for node in nodes]
        if step % 10 == 3:
            store.uses.flush()
            compared += oracle.compare(other, [torch.inf, 20.0])
        if step % 40 == 5:
            store.close()
            store = MemoryStore.open(tmp_path)
        compared += oracle.compare(store, [torch.inf, float(rng.randint(-1, 41)), 30.0])
    store.close()
    assert compared > 1500
    oracle.compare(other, [torch.inf])
    other.close()


def test_a_log_of_an_older_release_is_folded_once(tmp_path: Path, make_batch: MakeBatch) -> None:
    oracle = Replayed()
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(9, 0))
    connection = sqlite3.connect(tmp_path / "memory.sqlite")
    with connection:
        connection.execute("DROP TABLE use")
        for entry in range(60):
            nodes = [entry % 7, 8]
            oracle.uses += [(node, float(entry)) for node in nodes]
            blob = torch.tensor(nodes).numpy().tobytes()
            connection.execute("INSERT INTO access (time, nodes) VALUES (?, ?)", (entry, blob))
    connection.close()
    with MemoryStore.open(tmp_path, mode="r") as reader:
        oracle.compare(reader, [torch.inf, 57.0])
    for _ in range(2):
        with MemoryStore.open(tmp_path) as store:
            oracle.compare(store, [torch.inf, 57.0])
            store.uses.flush()
            oracle.compare(store, [torch.inf, 57.0])
            assert store._database.query("SELECT count(*) FROM access") == [(0,)]


def test_the_disk_holds_a_bounded_number_of_uses(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(4, 0))
        for when in range(40):
            store.uses.note([1, 2], float(when))
            store.uses.flush()
        rows = store._database.query("SELECT node, count, last, length(earlier) FROM use")
        assert rows == [(node, 40, 39.0, 8 * (KEPT - 1)) for node in (1, 2)]
        assert store.stats()["uses"] == 80
        state = store.state
        store.uses.note([77], 1.0)  # what is no atom any more leaves no trace
        store.uses.flush()
        assert store._database.query("SELECT count(*) FROM use") == [(2,)]
        assert store.state == state
        assert store.check() == []


def test_what_cannot_be_written_stays_noted(
    tmp_path: Path, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(4, 0))
        other = sqlite3.connect(tmp_path / "memory.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.uses.note([1], 5.0)
        with pytest.raises(StoreError, match="busy"):
            store.uses.flush(wait=False)
        store.uses.settle()
        store.uses.settle()
        assert caplog.text.count("not kept for now") == 1
        other.close()
        assert store.uses.last(torch.tensor([1]), torch.inf).tolist() == [5.0]
    with MemoryStore.open(tmp_path, mode="r") as reader:
        assert reader.uses.last(torch.tensor([1]), torch.inf).tolist() == [5.0]
        assert reader.uses.total() == 1
