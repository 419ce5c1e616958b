"""Columns of texts that the store keeps, against those found by reading each text."""

from __future__ import annotations

import math
import random
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.histories import differences
from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.memory import Memory
from graphmem_torch.memory.text_finder import FINDER, found_in
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.text_columns import TextColumns
from graphmem_torch.text.asked import FORMS, read_asked
from graphmem_torch.text.question import is_question, tells_time
from graphmem_torch.text.terms import terms, title_terms
from graphmem_torch.text.times import told_days
from graphmem_torch.text.words import count_words
from tests.memories import opened, turns

TEXTS = [
    "The kiln of Ada was lit on 3 May 2021.",
    "Who lit the kiln?",
    "Canoe Club\nIt rows on the lake with Ada Lovelace",
    "Где стоит печь?",
    "我们昨天去了湖边",
    "...",
    "Could you please tell me when the oven is hot?",
    "Ärger über die Öfen des Königs und der Königin ist nicht das, was wir wollen",
]


def atoms(count: int, seed: int = 0) -> list[Atom]:
    draw = random.Random(seed)
    return [
        Atom(
            f"n{i}",
            f"{draw.choice(TEXTS)} {draw.choice(('', f'{i}', 'yesterday'))}".strip(),
            speaker=draw.choice((None, "Ada", "user", "")),
            session=draw.choice((None, f"s{i % 3}")),
            time=draw.choice((None, 1.6e9 + i, 10**9)),
            title=draw.choice((None, None, "A title", "")),
            meta=draw.choice(({}, {"page": i})),
        )
        for i in range(count)
    ]


def kept(store: MemoryStore) -> list[TextColumns]:
    return list(store.kept_texts.read(0, store.next_node))


def expect_kept(store: MemoryStore, *, gaps: int = 0) -> None:
    """Every live node has the row that reading its text gives, but for some."""
    nodes, missing = set(store.nodes().tolist()), 0
    for part in kept(store):
        for row, (numbers, own) in enumerate(zip(part.numbers, part.lists(), strict=True)):
            if part.first + row not in nodes:
                continue
            if numbers["version"] == 0:
                missing += 1
                continue
            found = found_in(store.atoms([part.first + row])[0])
            assert own == found.terms
            assert numbers == np.array(found.numbers, part.numbers.dtype)
    assert missing == gaps


def rows_of(folder: Path, sql: str) -> list[tuple[bytes, ...]]:
    connection = sqlite3.connect(folder / DATABASE_NAME)
    try:
        found = connection.execute(sql).fetchall()
        connection.commit()
    finally:
        connection.close()
    return found


@pytest.mark.parametrize("atom", atoms(60), ids=lambda atom: atom.id)
def test_columns_are_what_each_function_of_texts_gives(atom: Atom) -> None:
    numbers, found = found_in(atom)
    own = dict(
        zip(np.dtype(TextColumns.blank(0, 1).numbers.dtype).names or (), numbers, strict=True)
    )
    body = atom.rendered
    assert (found, own["terms"]) == (terms(body), len(terms(body)))
    assert own["version"] == FINDER
    assert own["title"] == title_terms(body)
    assert own["log_words"] == math.log1p(count_words(body))
    assert own["is_question"] == is_question(body)
    assert own["tells_time"] == tells_time(body)
    assert (own["told_start"], own["told_stop"]) == told_days(body, atom.time)
    assert own["lot"] == zlib.crc32(body.encode())
    alone = atom.speaker is None and atom.session is None
    filed = alone and (atom.title is not None or atom.meta != {})
    asked = read_asked("" if filed else atom.text)
    assert (own["asked_key"], own["asked_bits"]) == (asked.key, asked.bits)
    assert (own["asked_words"], own["asked_form"]) == (len(asked.terms), FORMS.index(asked.form))


@pytest.mark.parametrize("size", [1, 7, 300])
def test_store_keeps_the_columns_of_every_text(tmp_path: Path, size: int) -> None:
    given = atoms(300)
    with opened(tmp_path) as memory:
        for start in range(0, len(given), size):
            memory.add(given[start : start + size])
        expect_kept(memory.store)
        assert any(a.kind == CONCEPT for a in memory.store.atoms(memory.store.nodes().tolist()))
        memory.update("n3", text="Another kiln stands in Lisbon since 4 June 2022")
        memory.delete(["n5", "n6"])
        memory.add(turns(12))
        expect_kept(memory.store)
        assert differences(memory) == []
        assert memory.check() == []


def test_index_of_an_older_store_is_the_same_and_its_columns_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(atoms(200))
        want = {name: part.clone() for name, part in memory.index.all_tensors().items()}
    rows_of(tmp_path, "DROP TABLE text_block")
    (tmp_path / "snapshot.safetensors").unlink()
    with opened(tmp_path, mode="r") as memory:  # which cannot keep them
        for name, part in memory.index.all_tensors().items():
            assert torch.equal(part, want[name]), name
        expect_kept(memory.store, gaps=memory.store.num_nodes)
    with opened(tmp_path) as memory:
        for name, part in memory.index.all_tensors().items():
            assert torch.equal(part, want[name]), name
    with opened(tmp_path, mode="r") as memory:
        expect_kept(memory.store)
        assert memory.check() == []


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM text_block WHERE start > 0",
        "UPDATE text_block SET numbers = zeroblob(length(numbers))",
        "UPDATE text_block SET terms = CAST(x'41' || terms AS BLOB)",
        "UPDATE text_block SET count = count - 1",
        "UPDATE text_block SET checksum = 1",
        "UPDATE text_block SET terms = x''",
    ],
)
def test_missing_and_damaged_columns_are_found_anew(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as memory:
        memory.add(atoms(150))
        memory.add(atoms(150, seed=1)[:0] or turns(20))
        want = {name: part.clone() for name, part in memory.index.all_tensors().items()}
    rows_of(tmp_path, change)
    (tmp_path / "snapshot.safetensors").unlink()
    with opened(tmp_path) as memory:
        for name, part in memory.index.all_tensors().items():
            assert torch.equal(part, want[name]), name
    with opened(tmp_path) as memory:
        expect_kept(memory.store)
        assert memory.check() == []


def test_columns_of_another_version_are_found_again(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(atoms(80))
        want = memory.index.all_tensors()
    with opened(tmp_path) as memory:
        memory.add(atoms(80))
        store = memory.store
        with store.turn():
            own = kept(store)[0]
            numbers = own.numbers.copy()
            numbers["version"], numbers["title"] = FINDER - 1, 3
            store.kept_texts.keep([own._replace(numbers=numbers)])
        for name, part in memory.index.all_tensors().items():
            assert torch.equal(part, want[name]), name
    with opened(tmp_path, mode="r") as memory:
        expect_kept(memory.store)


def test_erased_texts_leave_no_terms(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([*atoms(40), Atom("secret", "The xylophonist hides quinoa under floorboards")])
        memory.add(turns(20))
        memory.forget(ids=["secret"])
        expect_kept(memory.store)
    held = (tmp_path / DATABASE_NAME).read_bytes()
    for word in terms("xylophonist quinoa floorboards"):
        assert word.encode() not in held, word


def test_columns_found_meanwhile_bring_back_no_erased_text(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([*atoms(20), Atom("secret", "The xylophonist hides quinoa")])
        parts = kept(memory.store)
        memory.forget(ids=["secret"])
        with memory.store.turn():
            memory.store.kept_texts.keep(parts)
    assert b"quinoa" not in (tmp_path / DATABASE_NAME).read_bytes()


def test_earlier_versions_are_read_from_their_own_texts(tmp_path: Path) -> None:
    moment = [1.7e9]
    with opened(tmp_path, clock=lambda: moment[0]) as memory:
        memory.add(atoms(30))
        moment[0] += 100
        memory.update("n4", text="Zanzibar has 7 lighthouses")
        past = memory._state.view_at(1.7e9 + 50).snapshot.index.all_tensors()
    with opened(clock=lambda: 1.7e9) as memory:
        memory.add(atoms(30))
        now = memory.index.all_tensors()
    for name in ("log_words", "is_question", "asked_key", "tells_time"):  # the new one is last
        assert torch.equal(past[name].sort()[0], now[name].sort()[0]), name


def test_memory_without_texts_keeps_none() -> None:
    with Memory.open() as memory:
        assert kept(memory.store) == []
