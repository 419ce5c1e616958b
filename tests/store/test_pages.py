"""Unused bytes of pages, against the bytes of files."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.quality.forgetting.judge import found_in
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.pages import LogMark, clear_unused

MakeBatch = Callable[..., Batch]


@pytest.mark.parametrize("page_size", [1024, 4096, 65536])
def test_nothing_of_what_was_deleted_is_left(tmp_path: Path, page_size: int) -> None:
    draw, path = random.Random(page_size), tmp_path / "test.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("CREATE TABLE atom (node INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT)")
    connection.execute("CREATE TABLE pair (a TEXT, b INT, PRIMARY KEY (a, b)) WITHOUT ROWID")
    words = {
        i: (f"{draw.getrandbits(64):016x}", f"{draw.getrandbits(96):024x}" * draw.randint(1, 9))
        for i in range(2000)
    }
    connection.execute("BEGIN")
    for i, (id_, text) in words.items():
        connection.execute("INSERT INTO atom VALUES (?, ?, ?)", (i, id_, text))
        connection.execute("INSERT INTO pair VALUES (?, ?)", (id_[::-1], i))
    connection.execute("COMMIT")
    left, stayed = list(words), 0
    while left:
        gone = draw.sample(left, 1 + len(left) // 2)
        left = sorted({*left} - {*gone})
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM atom WHERE node = ?", [(i,) for i in gone])
        connection.executemany("DELETE FROM pair WHERE b = ?", [(i,) for i in gone])
        connection.execute("COMMIT")

        def found(gone: list[int] = gone) -> int:
            texts = [
                part for i in gone for part in (words[i][0], words[i][0][::-1], words[i][1][:24])
            ]
            return len(found_in(tmp_path, {"": [text.encode() for text in texts]})[""])

        stayed += found()
        roots = [row[0] for row in connection.execute("SELECT rootpage FROM sqlite_master")]
        connection.execute("PRAGMA shrink_memory")
        file = os.open(path, os.O_RDWR)
        cleared = clear_unused(file, [1, *roots])
        assert clear_unused(file, [1, *roots]) == 0 <= cleared
        os.close(file)
        assert found() == 0
        rows = connection.execute("SELECT * FROM atom ORDER BY node").fetchall()
        assert rows == [(i, *words[i]) for i in left]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert stayed  # or there was nothing to clear
    connection.close()


def test_texts_that_were_moved_by_what_went_before_go_with_their_atoms(tmp_path: Path) -> None:
    draw = random.Random(4)
    texts = {
        f"a{i}": " ".join(f"{draw.getrandbits(40):010x}" for _ in range(draw.randint(3, 30)))
        for i in range(1000)
    }
    with MemoryStore.open(tmp_path) as store:
        store.append(Batch([Atom(*each) for each in texts.items()], torch.ones(1000, 1)))
        left = list(range(1000))
        while left:
            gone = draw.sample(left, 1 + len(left) // 2)
            left = sorted({*left} - {*gone})
            store.erase(Batch([], torch.empty(0, 1), gone=gone), when=0.0)
            words = [texts[f"a{node}"].split()[at].encode() for node in gone for at in (0, -1)]
            assert found_in(tmp_path, {"": words}) == {"": set()}
            assert store.check() == []


@pytest.mark.parametrize("how", ["alone", "checkpoint", "vacuum", "opened"])
def test_nothing_is_left_where_the_log_tells_what_was_written(tmp_path: Path, how: str) -> None:
    """Atoms come and go by turns; in some, others empty the log in between, or write to it."""
    draw, texts, left, stayed = random.Random(how), dict[int, tuple[str, str]](), set[int](), 0
    store = MemoryStore.open(tmp_path)
    for turn in range(6):
        for first in range(store.next_node, store.next_node + 120, 20):
            for node in range(first, first + 20):
                words = [f"{draw.getrandbits(40):010x}" for _ in range(draw.randint(3, 30))]
                texts[node] = f"{draw.getrandbits(64):016x}", " ".join(words)
                left.add(node)
            atoms = [Atom(*texts[node]) for node in range(first, first + 20)]
            store.append(Batch(atoms, torch.ones(20, 1)))
        gone = draw.sample(sorted(left), len(left) // 2)
        left -= {*gone}
        store.append(Batch([], torch.empty(0, 1), gone=gone[5:]))
        if turn in (2, 3) and how != "alone":
            if how == "opened":
                store.close()
                store = MemoryStore.open(tmp_path)
            else:
                other = sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)
                other.execute("VACUUM" if how == "vacuum" else "PRAGMA wal_checkpoint(RESTART)")
                other.close()
            store.meta_set("turn", str(turn))
        lost = [texts[node] for node in texts.keys() - left]
        words = [word.encode() for name, text in lost for word in (name, text[:10], text[-10:])]
        stayed += len(found_in(tmp_path, {"": words})[""])
        store.erase(Batch([], torch.empty(0, 1), gone=gone[:5]), when=0.0)
        assert found_in(tmp_path, {"": words}) == {"": set()}
        assert store.check() == []
    store.close()
    assert stayed


def test_the_log_names_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "test.sqlite"
    log = path.with_name("test.sqlite-wal")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE atom (node INTEGER PRIMARY KEY, text TEXT)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert LogMark.of(log) is None is LogMark.of(tmp_path / "none")
    connection.executemany("INSERT INTO atom VALUES (?, ?)", [(i, "x" * 900) for i in range(40)])
    before, mark = path.read_bytes(), LogMark.of(log)
    assert mark is not None
    written = mark.pages(log)
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    after, size = path.read_bytes(), 4096
    before += bytes(len(after) - len(before))
    changed = {
        1 + at // size
        for at in range(0, len(after), size)
        if before[at : at + size] != after[at : at + size]
    }
    assert written is not None and changed <= written <= {*range(1, 1 + len(after) // size)}
    connection.execute("UPDATE atom SET text = 'y' WHERE node = 3")
    again = LogMark.of(log)
    assert again is not None and again != mark and mark.pages(log) is None
    assert again.pages(log) == {3}  # what is behind it is of the log before
    connection.close()


def test_what_is_wiped_keeps_the_locks_of_others(tmp_path: Path, make_batch: MakeBatch) -> None:
    """Another process that closes the database would delete the log of one that holds no lock."""
    look = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "print(connection.execute('SELECT count(*) FROM atom').fetchone()[0]); connection.close()"
    )
    with MemoryStore.open(tmp_path) as store, MemoryStore.open(tmp_path, mode="r") as reader:
        store.append(make_batch(20, 0))
        store.erase(Batch([], torch.empty(0, 8), gone=[3]), when=0.0)
        with MemoryStore.open(tmp_path) as other:
            other.erase(Batch([], torch.empty(0, 8), gone=[4]), when=0.0)
        for count in (18, 20):
            asked = [sys.executable, "-c", look, str(tmp_path / DATABASE_NAME)]
            assert int(subprocess.run(asked, capture_output=True, check=True).stdout) == count
            assert (tmp_path / f"{DATABASE_NAME}-wal").exists()
            assert reader.num_nodes == count
            store.append(make_batch(2, store.next_node, edges=0))
    with MemoryStore.open(tmp_path) as store:
        assert store.num_nodes == 22 and store.check() == []
