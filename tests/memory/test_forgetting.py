"""Forgotten memories: no byte in the folder, and the answers of a memory that never held them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.results import Receipt
from graphmem_torch.store.receipts import find_traces
from graphmem_torch.store.store import REEMBED_NAME
from tests.memories import QUESTIONS, config_of, file_size_limit, opened, plain, turns

SECRET = "Zanzibar quokka hides the Xylophone of Quentin Fitzwilliam"


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def secret(i: int, **change: object) -> Atom:
    atom = Atom(f"secret-{i}", f"{SECRET} {i}", speaker="Mallory", session="s1", time=1.7e9 + i)
    return replace(atom, **change)  # type: ignore[arg-type]


def traces(folder: Path) -> list[bytes]:
    data = bytes_of(folder)
    wanted = [SECRET, "quokka", "secret-", "Mallory", "xylophone", "fitzwilliam"]
    return [
        word.encode() for word in wanted if word.encode() in data or word.upper().encode() in data
    ]


def test_forget_leaves_no_byte(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(20))
        memory.add([secret(i, meta={"why": f"{SECRET} meta"}) for i in range(5)])
        memory.update("secret-1", text="Not quokka any more")
        memory.add(Atom("sum", "Quokka in short", edges=(Link("secret-1", EdgeType.DERIVED_FROM),)))
        memory.add(Atom("points", "Points there", edges=(Link("a3", EdgeType.CAUSES),)))
        memory.pin("secret-2")
        memory.compile(SECRET, budget=200)
        memory.retrieve([SECRET, "x"], where={"speaker": "Mallory"})
        vectors = memory.store.vectors(memory.store.columns(20).node.tolist())
    assert len(traces(tmp_path)) > 4
    with opened(tmp_path) as memory:
        secrets = [i for i, text in enumerate(memory.store.texts()) if "uokka" in text]
        rows = memory.store.embeddings()[secrets]
        nodes = memory.store.columns().node[secrets].tolist()
        tokens = [memory.store.vectors([node]).tokens for node in nodes]
        memory.delete("secret-4")
        (tmp_path / f"{REEMBED_NAME}-wal").write_bytes(rows[0].numpy().tobytes())  # cut short
        receipt = memory.forget(speaker="Mallory")
        assert receipt.atoms == 5 and receipt.previous == ""
        assert memory.check() == [] and memory.upkeep.check_receipt(receipt) == []
        assert traces(tmp_path) == []
        data = bytes_of(tmp_path)
        for row, own in zip(rows, tokens, strict=True):
            assert row.numpy().tobytes() not in data
            assert own is not None
            assert not len(own.tokens) or own.tokens.numpy().tobytes() not in data
        memory.retrieve(QUESTIONS)
    assert traces(tmp_path) == [] and len(vectors.embeddings)
    with opened(tmp_path) as memory:
        assert memory.check() == [] and len(memory) == 21 and memory.pinned() == []
        with pytest.raises(InputError, match="not in the store"):
            memory.update("secret-1", text="again")


@settings(max_examples=settings.default.max_examples // 4)
@given(st.sets(st.integers(0, 23), min_size=1, max_size=23), st.integers(0, 2))
def test_forget_scores_as_if_it_was_never_there(gone: set[int], updated: int) -> None:
    config = config_of(**{"link.similarity_k": 3, "link.min_similarity": 0.1})
    atoms = [replace(atom, edges=()) for atom in turns()]
    with opened(config=config) as memory, opened(config=config) as fresh:
        memory.add(atoms)
        for i in sorted(gone)[:updated]:
            memory.update(f"a{i}", text=f"{SECRET} {i}")
        memory.retrieve(QUESTIONS)
        receipt = memory.forget([f"a{i}" for i in gone])
        assert receipt.atoms == len(gone) and memory.upkeep.check_receipt(receipt) == []
        fresh.add([atom for i, atom in enumerate(atoms) if i not in gone])
        both = memory.retrieve(QUESTIONS), fresh.retrieve(QUESTIONS)
        for found, wanted in zip(*both, strict=True):
            assert {hit.id: pytest.approx(hit.score, abs=1e-4) for hit in found.hits} == {
                hit.id: hit.score for hit in wanted.hits
            }
            assert found.confidence == pytest.approx(wanted.confidence, abs=1e-4)
        assert memory.store.alias_names(["x"]) == []


def test_forget_of_all_of_a_file_forgets_the_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.md" for name in ("quokka", "other")]
    for file in files:
        file.write_text(f"All about {file.stem}.\n\n" * 3)
    folder = tmp_path / "store"
    with opened(folder) as memory:
        memory.add_files(files)
        memory.forget(session=next(s for s in memory.store.columns().session.names if "q" in s))
        assert [Path(row.name).stem for row in memory.store.sources.rows()] == ["other"]
        assert memory.check() == []
    assert b"quokka" not in bytes_of(folder)


def test_a_name_that_came_under_a_number_of_another_is_forgotten(tmp_path: Path) -> None:
    """Names are numbered, and the number of one that is gone is given again."""
    with opened(tmp_path, embedder="hashing:64") as memory:
        memory.add([Atom("1", "garden harbour in Rome"), Atom("2", "garden's harbour in Oslo")])
    one, two = (opened(tmp_path, embedder="hashing:64") for _ in range(2))
    one.delete("2")  # which has read the first name
    two.add(Atom("3", "quokka bakery in Paris"))
    two.add(Atom("4", "quokka's bakery in Lima"))
    assert [name for _, name, _ in two.store.aliases()] == ["quokka's bakery"]
    one.add(Atom("5", "hello comet"))
    receipt = one.forget("4")
    assert one.store.aliases() == [] and one.upkeep.check_receipt(receipt) == one.check() == []
    assert b"quokka's bakery" not in bytes_of(tmp_path)
    for memory in (one, two):
        memory.store.close()


@pytest.mark.parametrize("archived", [1, 99])
def test_forget_of_what_was_archived_forgets_the_file(tmp_path: Path, archived: int) -> None:
    file, folder = tmp_path / "quokka.md", tmp_path / "store"
    file.write_text("".join(f"All about number {i}.\n\n" * 9 for i in range(3)))
    with opened(folder, config=config_of(**{"embedder.max_tokens": 60})) as memory:
        memory.add_files(file)
        ids = [name for name in memory.store.ids() if "#" in name]
        assert len(ids) >= 3
        memory.upkeep.archive(ids[:archived])
        receipt = memory.forget(ids)
        assert memory.upkeep.check_receipt(receipt) == memory.check() == []
        assert b"quokka" not in bytes_of(folder)
        assert memory.add_files(file).added == ("quokka.md",)


def test_forget_is_followed_and_says_nothing(tmp_path: Path) -> None:
    """No file tells of it; who has the index of before goes on from that, others read anew."""
    with opened(tmp_path) as memory, opened(tmp_path, mode="r") as reader:
        memory.add([*turns(12), *(secret(i, session="at the Xylophone") for i in range(3))])
        seen = plain(memory.retrieve(QUESTIONS)), plain(reader.retrieve(QUESTIONS))
        assert seen[0] == seen[1]
        columns = memory._state.builder._columns
        memory.delete("secret-0")
        memory.forget("secret-1")
        log = memory.store._database.query("SELECT cut, gone FROM change")
        assert log == [(None, None)]
        memory.add(turns(14)[12:])
        memory.forget(["a3", "secret-2"])
        memory.delete("a4")
        answers = plain(memory.retrieve(QUESTIONS))
        assert memory._state.builder._columns is columns  # not read anew
        assert plain(reader.retrieve(QUESTIONS)) == answers
    assert traces(tmp_path) == []
    assert "xylophone" not in json.dumps(columns.to_dict()).lower()


def test_forget_renames_a_concept_that_others_know_by_another_name(tmp_path: Path) -> None:
    """With a threshold that makes one concept of all that is near."""
    config = config_of()
    with opened(tmp_path, config=config) as memory:
        memory.add(Atom("x", "they met Project Nightingale", session="s"))
        memory.add(Atom("y", "they met The Project Nightingale", session="s"))
        memory.add(Atom("z", "they met The Project Nightingale again", session="s"))
        assert memory.store.aliases()
        before = len(memory.store.edges())
        memory.forget("x")
        names = [name for name in memory.store.ids() if name.startswith(CONCEPT)]
        assert "concept:the project nightingale" in names
        assert "concept:project nightingale" not in names
        assert memory.check() == [] and 0 < len(memory.store.edges()) < before
        memory.add(Atom("w", "they met The Project Nightingale", session="s"))
        assert memory.check() == []
        with opened(config=config) as fresh:
            fresh.add(memory.get(["y", "z", "w"]))
            assert sorted(fresh.store.ids()) == sorted(memory.store.ids())


def test_forget_chooses_what_all_conditions_say() -> None:
    with opened() as memory:
        memory.add(turns())
        with pytest.raises(InputError, match="none of them"):
            memory.forget()
        for wrong in ({"question": "x"}, {"k": 3}, {"session": "s9"}, {"speaker": "Eve"}):
            with pytest.raises(InputError):
                memory.forget(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="not in the store"):
            memory.forget(["a1", "nobody"])
        assert len(memory) == 24 and memory.forget([]).atoms == 0
        best = [hit.id for hit in memory.retrieve("canoe", k=2, where={"speaker": "Ada"}).hits]
        assert memory.forget(question="canoe", k=2, speaker="Ada").atoms == 2
        assert not any(name in memory for name in best) and len(memory) == 22
        assert memory.forget(session="s1", before=1.7e9 + 8.6 * 86400).atoms == 3 - len(
            {"a6", "a7", "a8"} & set(best)
        )
        count = len(memory)
        fits = len(memory.retrieve("x", k=30, where={"meta.page": {"$gte": 20}}).hits)
        assert memory.forget(where={"meta.page": {"$gte": 20}}).atoms == fits > 0
        assert len(memory) == count - fits and memory.check() == []
        assert memory.forget(before=3e9).atoms > 0
        assert memory.forget([f"a{i}" for i in range(24) if f"a{i}" in memory]).atoms > 0
        assert len(memory) == 0 and memory.store.num_nodes == 0 and memory.check() == []
        assert memory.retrieve("canoe").hits == ()


@pytest.mark.parametrize("archived", [False, True])
def test_what_would_be_forgotten(tmp_path: Path, archived: bool) -> None:
    """What is told is what goes, and nothing does before."""
    with opened(tmp_path) as memory:
        memory.add(turns())
        memory.add(Atom("sum", "In short", edges=(Link("a3", EdgeType.DERIVED_FROM),)))
        if archived:
            memory.upkeep.archive(["a5"])
        for asked in (
            {"ids": ["a3", "a4"]},
            {"ids": "a5"} if archived else {"ids": "a6"},
            {"session": "s1", "before": 1.7e9 + 8.6 * 86400},
            {"speaker": "Ada", "question": "canoe", "k": 2},
            {"where": {"meta.page": {"$gte": 20}}},
        ):
            state, names = memory.store.state, {*memory.store.ids()}
            told = memory.forget(**asked, dry_run=True)  # type: ignore[arg-type]
            with opened(tmp_path, mode="r") as reader:
                assert reader.forget(**asked, dry_run=True) == told  # type: ignore[arg-type]
            assert memory.store.state == state
            assert memory.forget(**asked).atoms == len(told) > 0  # type: ignore[arg-type]
            gone = {name for name in names - {*memory.store.ids()} if not name.startswith(CONCEPT)}
            assert gone == {atom.id for atom in told} - ({"a5"} if archived else set())
        with pytest.raises(InputError, match="none of them"):
            memory.forget(dry_run=True)
        assert memory.forget([], dry_run=True) == []


def test_receipts(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(12))
        first = memory.forget(["a1", "a2"])
        second = memory.forget("a3")
        assert second.previous == first.digest != second.digest
        for receipt in (first, second):
            again = Receipt.from_json(receipt.to_json())
            assert again == receipt and memory.upkeep.check_receipt(again) == []
        for change in (
            {"atoms": 3},
            {"when": 1.0},
            {"after": first.before},
            {"erased": first.erased[1:]},
            {"salt": "0"},
            {"digest": "0" * 64},
        ):
            assert memory.upkeep.check_receipt(replace(first, **change))  # type: ignore[arg-type]
        for wrong in (5, {}, None):
            with pytest.raises(InputError, match="receipt: expected a Receipt or the path"):
                memory.upkeep.check_receipt(wrong)  # type: ignore[arg-type]
        forged = replace(first, atoms=3)
        forged = replace(forged, digest=forged.content_digest())
        assert "another store" in memory.upkeep.check_receipt(forged)[0]
        with opened() as other:
            assert "another store" in other.upkeep.check_receipt(first)[0]
        memory.add(turns(2)[1])
        assert "is in the store" in memory.upkeep.check_receipt(first)[0]
        memory.store._database.write(
            lambda: memory.store._database.execute_many("DELETE FROM receipt WHERE entry = 1", [()])
        )
        assert "the list of the store was changed" in memory.upkeep.check_receipt(second)[0]
        file = tmp_path.parent / "receipt.json"
        for text in ("", "{}", "[]", second.to_json()[:-5], '{"erased": 3}'):
            file.write_text(text)
            with pytest.raises(InputError, match="receipt: expected"):
                memory.upkeep.check_receipt(file)
        for path in (tmp_path / "none.json", tmp_path):
            with pytest.raises(InputError, match="receipt: expected a file"):
                memory.upkeep.check_receipt(path)
    # By a third party, with nothing but the folder and the receipt.
    value = json.loads(second.to_json())
    digest = value.pop("digest")
    body = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(body.encode()).hexdigest() == digest
    database = sqlite3.connect(tmp_path / "memory.sqlite")
    assert (digest,) in database.execute("SELECT digest FROM receipt").fetchall()
    said = database.execute("SELECT 'id', id FROM atom UNION SELECT 'text', text FROM atom")
    lines = [f"{value['salt']}\n{kind}\n{text}" for kind, text in said]
    hashes = {hashlib.sha256(line.encode()).hexdigest() for line in lines}
    assert not hashes & set(value["erased"])
    gone = hashlib.sha256(f"{value['salt']}\nid\na3".encode()).hexdigest()
    assert gone in value["erased"]


def test_forget_all_or_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([*turns(12), secret(1)])
    with opened(tmp_path) as memory:
        state = memory.store.state
        with file_size_limit(100), pytest.raises(StoreError):
            memory.forget("secret-1")
        assert memory.store.state == state and "secret-1" in memory and memory.check() == []
        with opened(tmp_path, mode="r") as reader, pytest.raises(StoreError):
            reader.forget("secret-1")


def test_a_reader_delays_the_wiping(tmp_path: Path) -> None:
    """As a kill between the commit and the wiping does."""
    memory = opened(tmp_path)
    memory.store.wipe_wait = 0.0
    memory.add([*turns(12), secret(1)])
    with opened(tmp_path, mode="r") as reader:
        with reader.store.reading():
            receipt = memory.forget("secret-1")
            assert "not wiped" in memory.upkeep.check_receipt(receipt)[0]
        copy = tmp_path.parent / "copy"  # as a killed process leaves it
        shutil.copytree(tmp_path, copy)
        assert traces(copy) != []
        with opened(copy) as killed:
            assert killed.upkeep.check_receipt(receipt) == [] and traces(copy) == []
        memory.store.close()
    with opened(tmp_path) as memory:
        assert memory.upkeep.check_receipt(receipt) == [] and traces(tmp_path) == []


def test_forget_undoes_what_was_learned() -> None:
    with opened(config=config_of(**{"regime.detector": "spectral"})) as memory:
        memory.themes.on_switch(lambda switch: None)
        memory.add(turns())
        before = memory.config
        memory.learning.fit(QUESTIONS[:2], [["a0"], ["a2"]])
        memory.learning.calibrate(QUESTIONS, max_refusal_rate=0.4)
        assert memory.config != before
        memory.forget("a0")
        assert memory.config == before
        memory.add(Atom("n", "more"))
        assert plain(memory.retrieve(QUESTIONS)) and memory.check() == []


def test_find_traces(tmp_path: Path) -> None:
    long = " ".join(f"word{i}" for i in range(300))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.bin").write_bytes(b"\0" * 99 + long.encode()[500:1500])
    (tmp_path / "b.bin").write_bytes(b'x {"text": "na\\u00efve plan"} x')
    found = find_traces(tmp_path, [long, "naïve plan", "nothing of it"])
    assert ["a.bin" in found[1], "b.bin" in found[0], len(found)] == [True, True, 2]
    with pytest.raises(InputError, match="expected a folder"):
        find_traces(tmp_path / "none", ["x"])


def test_compact_gives_room_back(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([*turns(), *(secret(i) for i in range(400))])
        before = (tmp_path / "memory.sqlite").stat().st_size
        memory.forget(speaker="Mallory")
        held = (tmp_path / "memory.sqlite").stat().st_size
        answers = plain(memory.retrieve(QUESTIONS))
        freed = memory.upkeep.compact()
        after = (tmp_path / "memory.sqlite").stat().st_size
        assert held - after == freed > before // 3
        assert traces(tmp_path) == [] and memory.check() == []
        assert plain(memory.retrieve(QUESTIONS)) == answers
        memory.add(secret(0))
        memory.forget("secret-0")
        assert traces(tmp_path) == []
        with opened(tmp_path, mode="r") as reader:
            with pytest.raises(StoreError, match="reading only"):
                reader.upkeep.compact()
            assert plain(reader.retrieve(QUESTIONS)) == answers
    with opened() as memory:
        assert memory.upkeep.compact() == 0


def test_compact_of_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([*turns(), *(secret(i) for i in range(60))])
        memory.forget(speaker="Mallory")
        answers, held = (
            plain(memory.retrieve(QUESTIONS)),
            (tmp_path / "memory.sqlite").stat().st_size,
        )
        with file_size_limit(held // 4), pytest.raises(StoreError, match="free some disk space"):
            memory.upkeep.compact()
        assert memory.check() == [] and plain(memory.retrieve(QUESTIONS)) == answers
        assert memory.upkeep.compact() >= 0 and memory.check() == []


@pytest.mark.parametrize("value", [None, "", 0, 1, "no"])
def test_a_dry_run_is_asked_for_in_so_many_words(value: Any) -> None:
    with opened() as memory:
        memory.add(turns(3))
        with pytest.raises(InputError, match="dry_run: expected True or False"):
            memory.forget("a1", dry_run=value)
        assert len(memory) == 3


@pytest.mark.parametrize("name", ["session", "speaker"])
def test_names_of_what_goes_are_texts(name: str) -> None:
    with opened() as memory:
        memory.add(turns(3))
        with pytest.raises(InputError, match=f"{name}: expected a text, got "):
            memory.forget(**{name: ["Ada"]}, dry_run=True)
