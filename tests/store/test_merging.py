"""Small blocks are merged as they accumulate, and nothing that is read tells."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.blocks import insert_block
from graphmem_torch.store.folder import DATABASE_NAME

MakeBatch = Callable[..., Batch]
TABLES = ("embedding_block", "token_block", "edge_block")


def blocks(store: MemoryStore) -> dict[str, int]:
    query = store._database.query
    return {table: query(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def same(found: EdgeBlock, parts: list[EdgeBlock]) -> bool:
    whole = EdgeBlock.cat(parts)
    return all(torch.equal(a, b) for a, b in zip(found.columns, whole.columns, strict=True))


def test_what_is_read_is_what_was_written(tmp_path: Path, make_batch: MakeBatch) -> None:
    """Batches of any size, with and without token vectors, edges alone, edges taken away."""
    draw = random.Random(0)
    with MemoryStore.open(tmp_path, dim=8) as store:
        start, made = 0, []  # (start, batch, its edges that are left)
        for turn in range(70):
            size = draw.choice((1, 1, 1, 2, 5, 40)) if turn % 9 else 0
            batch = make_batch(max(size, 1), start, tokens=turn % 30 > 3, edges=draw.randint(0, 30))
            if size == 0:
                edges = batch.edges.take(
                    (batch.edges.source < start) & (batch.edges.target < start)
                )
                batch = Batch([], torch.empty(0, 8), edges=edges)
            store.append(batch)
            made.append((start, batch, batch.edges))
            start += size
            if turn % 30 == 29:
                gone = draw.randrange(start)

                def keep(edges: EdgeBlock, gone: int = gone) -> Tensor:
                    return (edges.source != gone) & (edges.weight < 1.5)

                removed = store.remove_edges(keep)
                left = [(at, batch, edges.take(keep(edges))) for at, batch, edges in made]
                assert removed == sum(len(e) for *_, e in made) - sum(len(e) for *_, e in left)
                made = left
        assert store.check() == []
        embeddings = torch.cat([batch.embeddings for _, batch, _ in made])
        for first in sorted({at for at, *_ in made} | {start}):
            later = [edges for at, _, edges in made if at >= first]
            assert same(store.edges(first), later)
            assert torch.equal(store.embeddings(first), embeddings[first:])
        rows = store.tokens()
        assert rows is not None
        offset = 0
        for at, batch, _ in made:
            for i in range(len(batch.atoms)):
                begin, end = rows.offsets[at + i], rows.offsets[at + i + 1]
                if batch.tokens is None:
                    assert begin == end
                    continue
                own = slice(int(batch.tokens.offsets[i]), int(batch.tokens.offsets[i + 1]))
                assert torch.equal(rows.tokens[begin:end], batch.tokens.tokens[own])
                assert torch.equal(rows.pieces[begin:end], batch.tokens.pieces[own])
            offset += len(batch.atoms)
        assert offset == start
        assert max(blocks(store).values()) < 60
    with MemoryStore.open(tmp_path, mode="r") as reader:
        assert reader.check() == []


def test_single_atoms_leave_few_blocks(make_batch: MakeBatch) -> None:
    store = MemoryStore.open(None)
    for start in range(344):
        store.append(make_batch(1, start, edges=4))
        assert max(blocks(store).values()) <= 40
    assert blocks(store)["embedding_block"] == 344 // 256 + 344 % 256 // 64 + 344 % 64 // 16 + 2
    assert store.check() == []


def test_many_blocks_of_an_older_store_become_few(make_batch: MakeBatch) -> None:
    store = MemoryStore.open(None)
    for start in range(103):
        store.append(make_batch(1, start))
    before = store.embeddings(), store.edges()
    database = store._database

    def one_each() -> None:
        database.execute_many("DELETE FROM embedding_block", [()])
        for start, row in enumerate(before[0]):
            insert_block(database, "embedding_block", start, 1, [row])

    database.write(one_each)
    assert blocks(store)["embedding_block"] == 103
    store.append(make_batch(1, 103))
    assert max(blocks(store).values()) <= 4
    assert torch.equal(store.embeddings()[:103], before[0])
    assert same(store.edges(), [before[1], make_batch(1, 103).edges])
    assert same(store.edges(103), [make_batch(1, 103).edges]) and store.check() == []


def test_damage_is_not_merged_away(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        for start in range(7):
            store.append(make_batch(1, start))
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    with connection:
        connection.execute("UPDATE embedding_block SET data = zeroblob(32) WHERE start = 5")
    connection.close()
    with MemoryStore.open(tmp_path) as store:
        for start in range(7, 20):
            store.append(make_batch(1, start))
        assert "starts at node 5 does not match" in "\n".join(store.check())


def test_a_damaged_list_of_parts_is_found(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        for start in range(40):
            store.append(make_batch(1, start))
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    with connection:
        assert connection.execute("UPDATE edge_parts SET data = zeroblob(32)").rowcount
    connection.close()
    with MemoryStore.open(tmp_path) as store:
        assert "edge_parts" in "\n".join(store.check())


def test_token_vectors_lie_in_blocks_of_few_atoms(make_batch: MakeBatch) -> None:
    """A removal rewrites only its own block."""
    with MemoryStore.open(None) as store:
        batch = make_batch(500, 0)
        store.append(batch)
        found = store._database.query("SELECT start, count, counts, pieces FROM token_block")
        counts = [torch.frombuffer(bytearray(own), dtype=torch.int32) for _, _, own, _ in found]
        assert batch.tokens is not None
        assert torch.equal(torch.cat(counts), batch.tokens.offsets.diff().int())
        assert max(int((own > 0).sum()) for own in counts) <= 32
        before = {start: pieces for start, _, _, pieces in found}
        store.erase(Batch([], torch.empty(0, 8), gone=[100, 101]), when=0.0)
        after = dict(store._database.query("SELECT start, pieces FROM token_block"))
        assert sum(after.get(start) != own for start, own in before.items()) <= 2
        assert store.check() == []
