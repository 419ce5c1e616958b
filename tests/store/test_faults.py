"""Full disks, damaged files, foreign and newer databases: a clear error, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphmem_torch.errors import StoreDamagedError, StoreError
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME
from tests.memories import file_size_limit

MakeBatch = Callable[..., Batch]


@pytest.fixture
def filled(tmp_path: Path, make_batch: MakeBatch) -> Path:
    """A closed store of 60 atoms."""
    with MemoryStore.open(tmp_path / "store", fingerprint="f") as store:
        for start in range(0, 60, 20):
            store.append(make_batch(20, start))
    return tmp_path / "store"


def change(path: Path, sql: str, *values: object) -> None:
    connection = sqlite3.connect(path / DATABASE_NAME)
    with connection:
        changed = connection.execute(sql, values).rowcount
    connection.close()
    assert changed != 0


def test_full_disk_as_sqlite_reports_it(filled: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(filled) as store:
        state = store.state
        connection = store._database._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"full.*free some disk space"):
            store.append(make_batch(200, 60))
        assert store.state == state
        assert store.next_node == 60
        assert store.check() == []
        connection.execute("PRAGMA max_page_count = 1000000")
        store.append(make_batch(200, 60))
    with MemoryStore.open(filled) as store:
        assert store.next_node == 260
        assert store.check() == []


def test_full_disk_as_the_system_reports_it(filled: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(filled) as store:
        state = store.state
        with file_size_limit(8192), pytest.raises(StoreError, match="free some disk space"):
            store.append(make_batch(200, 60))
        assert store.state == state
        store.append(make_batch(20, 60))
    with MemoryStore.open(filled) as store:
        assert store.next_node == 80
        assert store.check() == []


def test_full_disk_at_the_creation(tmp_path: Path, make_batch: MakeBatch) -> None:
    with file_size_limit(8192), pytest.raises(StoreError, match="free some disk space"):
        MemoryStore.open(tmp_path / "new")
    with MemoryStore.open(tmp_path / "new") as store:
        store.append(make_batch(3, 0))
        assert store.check() == []
    assert not list((tmp_path / "new").glob("*.new*"))


@pytest.mark.parametrize("mode", ["w", "r"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_truncated_database(filled: Path, share: float, mode: str) -> None:
    path = filled / DATABASE_NAME
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(StoreDamagedError, match=r"damaged.*backup.*recover"):
        MemoryStore.open(filled, mode=mode)
    # The lock went back.
    with pytest.raises(StoreDamagedError):
        MemoryStore.open(filled, mode=mode)


def test_garbage_instead_of_a_database(filled: Path) -> None:
    (filled / DATABASE_NAME).write_bytes(bytes(range(256)) * 64)
    with pytest.raises(StoreDamagedError, match="not a database"):
        MemoryStore.open(filled)


def test_database_gone_but_snapshot_or_log_there(filled: Path, tmp_path: Path) -> None:
    with MemoryStore.open(filled) as store:
        store.save_snapshot({"a": torch.zeros(2)}, {})
    (filled / DATABASE_NAME).unlink()
    with pytest.raises(StoreDamagedError, match="snapshot is there"):
        MemoryStore.open(filled)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{DATABASE_NAME}-wal").write_bytes(b"x")
    with pytest.raises(StoreDamagedError, match="log is there"):
        MemoryStore.open(tmp_path / "log")


def test_newer_and_unknown_schema(filled: Path) -> None:
    for version, message in [(99, r"version 99.*Upgrade"), (0, r"unknown schema version 0")]:
        change(filled, "UPDATE schema_version SET version = ?", version)
        for mode in ("w", "r"):
            with pytest.raises(StoreError, match=message):
                MemoryStore.open(filled, mode=mode)
    change(filled, "DELETE FROM schema_version")
    with pytest.raises(StoreError, match="unknown schema version"):
        MemoryStore.open(filled)


def test_somebody_elses_database(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    with connection:
        connection.execute("CREATE TABLE photo (path TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="without its tables"):
        MemoryStore.open(tmp_path)


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"expected a store, got no memory\.sqlite"):
        MemoryStore.open(tmp_path / "none", mode="r")
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("x")
    for mode in ("w", "r"):
        with pytest.raises(StoreError, match="expected a"):
            MemoryStore.open(tmp_path / "file", mode=mode)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE atom SET text = 'other' WHERE node = 7", "text hash of atom 'a7'"),
        ("UPDATE atom SET session = 'other' WHERE node = 7", "digest of atom 'a7'"),
        ("UPDATE atom SET meta = '{' WHERE node = 7", "node 7 cannot be read"),
        (
            "UPDATE embedding_block SET data = substr(data, 5) WHERE start = 20",
            "embedding_block: the block",
        ),
        ("UPDATE embedding_block SET data = substr(data, 5) WHERE start = 40", "bytes where"),
        ("DELETE FROM embedding_block WHERE start = 20", "no embedding for node 20"),
        ("DELETE FROM embedding_block WHERE start = 0", "no embedding for node 0"),
        ("DELETE FROM embedding_block WHERE start = 40", "no embedding for node 40"),
        (
            "UPDATE token_block SET pieces = x'00000000' WHERE start = 0",
            "token counts from node 0",
        ),
        (
            "UPDATE token_block SET checksum = 1 WHERE start = 0",
            "token_block: the block that starts",
        ),
        ("UPDATE edge_block SET weight = zeroblob(20) WHERE start = 20", "edge_block: the block"),
        ("DELETE FROM atom WHERE node < 9", "is not a node"),
    ],
)
def test_check_finds_damage_that_sqlite_cannot_see(filled: Path, sql: str, message: str) -> None:
    with MemoryStore.open(filled) as store:
        assert store.check() == []
    change(filled, sql)
    with MemoryStore.open(filled, mode="r") as store:
        assert message in "\n".join(store.check())


def test_check_finds_vectors_and_edges_of_an_older_writer(
    filled: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that `append` refuses must be detected if it is stored all the same."""
    batch = make_batch(20, 60)
    batch.embeddings[3, 1] = torch.inf
    batch.edges.type[0] = 200
    batch.edges.weight[0] = torch.nan
    batch.edges.source[0] = 999
    monkeypatch.setattr(Batch, "validate", lambda *_, **__: None)
    monkeypatch.setattr(type(batch.edges), "validate", lambda *_: None)
    with MemoryStore.open(filled) as store:
        store.append(batch)
        problems = "\n".join(store.check())
    for message in ("node 63 is not finite", "999 is not", "type 200", "weights are not finite"):
        assert message in problems


def test_damage_found_while_reading(filled: Path) -> None:
    change(filled, "UPDATE embedding_block SET data = x'00' WHERE start = 20")
    change(filled, "UPDATE atom SET links = '[[\"a\", 200, 1]]' WHERE node = 5")
    with MemoryStore.open(filled) as store:
        assert store.embeddings(40).shape == (20, 8)
        for read in (store.embeddings, lambda: store.vectors([25]), lambda: store.atoms([5])):
            with pytest.raises(StoreDamagedError, match="backup"):
                read()


def flipped(value: object, g: random.Random) -> object:
    """A value of the database with one bit changed."""
    if isinstance(value, int):
        return value ^ 1 << g.randrange(62)
    data = bytearray(value.encode() if isinstance(value, str) else value)  # type: ignore[arg-type]
    data[g.randrange(len(data))] ^= 1 << g.randrange(8)
    return data.decode(errors="replace") if isinstance(value, str) else bytes(data)


def answers(store: MemoryStore) -> dict[str, object]:
    """Return the data of an index and an answer in comparable form."""
    edges = sorted(zip(*(column.tolist() for column in store.edges().columns), strict=True))
    vectors = store.vectors([3, 25, 59])
    tokens = [*(store.tokens() or ()), *(vectors.tokens or ())]
    return {
        "atoms": store.atoms(range(60)),
        "embeddings": store.embeddings().tolist(),
        "later": store.embeddings(25).tolist(),
        "tokens": [part.tolist() for part in tokens],
        "edges": edges,
        "vectors": vectors.embeddings.tolist(),
    }


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("embedding_block", "start count checksum data"),
        ("token_block", "start count checksum counts pieces data"),
        ("edge_block", "block start count checksum source target type weight"),
        ("atom", "text kind speaker session type meta links digest"),
        ("meta", "value"),
        ("sqlite_sequence", "seq"),
    ],
)
def test_a_flipped_bit_of_a_value_is_noticed_when_it_is_read(
    filled: Path, table: str, columns: str
) -> None:
    """Damage that SQLite cannot see, in every column: named, or the answer is the same."""
    with MemoryStore.open(filled, mode="r") as store:
        right = answers(store)
    path, g, noticed = filled / DATABASE_NAME, random.Random(0), 0
    whole = path.read_bytes()
    key = "key" if table == "meta" else "rowid"
    for column in columns.split():
        with contextlib.closing(sqlite3.connect(path)) as connection:
            sql = f"SELECT {key}, {column} FROM {table} WHERE length({column}) > 0"
            if table == "sqlite_sequence":
                sql += " AND name = 'atom'"
            rows = connection.execute(sql).fetchall()
        # Each row of `meta` says something else.
        for place, value in rows if table == "meta" else g.choices(rows, k=3):
            path.write_bytes(whole)
            connection = sqlite3.connect(path)
            with connection:
                sql = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
                connection.execute(sql, (flipped(value, g), place))
            connection.close()
            try:
                with MemoryStore.open(filled, mode="r") as store:
                    assert answers(store) == right, (column, place)
            except StoreDamagedError:
                noticed += 1
    assert noticed > 0


def test_flipped_bits_never_go_unnamed(filled: Path) -> None:
    """Whatever a flipped bit hits, it is noticed, or the rows are the same as before."""
    path = filled / DATABASE_NAME
    whole = path.read_bytes()
    with MemoryStore.open(filled, mode="r") as store:
        atoms, embeddings, edges = store.atoms(range(60)), store.embeddings(), store.edges()
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        data = bytearray(whole)
        place = int(torch.randint(0, len(whole), (), generator=g))
        data[place] ^= 1 << int(torch.randint(0, 8, (), generator=g))
        path.write_bytes(data)
        try:
            with MemoryStore.open(filled) as store:
                if not store.check():
                    assert store.atoms(range(60)) == atoms
                    assert torch.equal(store.embeddings(), embeddings)
                    assert torch.equal(store.edges().weight, edges.weight)
        except StoreError:
            continue
