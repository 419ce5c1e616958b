"""A memory read as it lies gives what `Memory` gives, and loads no torch."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, StoreDamagedError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.stored import StoredMemory
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import config_of, turns

CAFE = unicodedata.normalize("NFD", "café")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with versions, validity, pins, an archive, feedback and namespaces."""
    path = tmp_path_factory.mktemp("stored") / "store"
    with Memory.open(path, config=config_of(), embedder=HashingEmbedder()) as memory:
        memory.add(turns(36))
        memory.update("a3", text="The violin was sold in Oslo")
        memory.update("a3", text="The violin was sold in Bergen")
        memory.facts.supersede("a4", "a10")
        memory.pin("a7")
        memory.delete(["a8"])
        memory.add([Atom("made", "They like boats", edges=()), Atom(CAFE, "A café", session=CAFE)])
        memory.upkeep.archive(["a13", "a14"])
        memory.feedback("who sold the violin?", used=["a3"], not_used=["a5"])
        for name in ("alice", "bob", "Zoë"):
            memory.namespaces.create(name).add(turns(4))
        memory.namespaces["bob"].upkeep.archive(["a1"])
    return path


def both(folder: Path, namespace: str | None = None) -> tuple[Memory, Any, StoredMemory]:
    """The memory of a folder or a namespace, what closes it, and the same as it lies."""
    root = Memory.open(folder, config=config_of(), embedder=HashingEmbedder(), mode="r")
    memory = root if namespace is None else root.namespaces[namespace]
    return memory, root, StoredMemory.open(folder, namespace=namespace)


@pytest.mark.parametrize("namespace", [None, "alice", "bob"])
def test_gives_what_memory_gives(folder: Path, namespace: str | None) -> None:
    memory, root, stored = both(folder, namespace)
    with root, stored:
        ids = [atom.id for atom in memory]
        assert len(stored) == len(memory) == len(ids)
        assert stored.get([*ids[::-1], ids[0]]) == memory.get([*ids[::-1], ids[0]])
        for id in ids:
            assert stored.history(id) == memory.facts.history(id)
        for since in (0.0, 1.7e9, "2020-01-01"):
            assert stored.changes(since) == memory.facts.changes(since)
        for order in ("added", "-added", "time", "-time", "id", "-id"):
            one, other = (each.list(order=order, limit=5) for each in (stored, memory))
            assert list(one) == list(other)
            assert one.next is not None or len(ids) <= 5
            if other.next is not None:  # a page of either goes on from that of the other
                following = memory.list(order=order, after=one.next)
                assert list(stored.list(order=order, after=other.next)) == list(following)
        assert stored.namespaces() == list(memory.namespaces)
        assert stored.sizes() == {n: len(memory.namespaces[n]) for n in list(memory.namespaces)}
        assert stored.stats() == memory.stats()
        assert stored.check() == memory.check() == []
        mine, theirs = stored.archived(), memory.upkeep.archived()
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert list(mine.list()) == list(theirs.list())
            assert mine.archived() is None and theirs.upkeep.archived() is None


@pytest.mark.parametrize("namespace", [None, "alice", "bob"])
@pytest.mark.parametrize("within", [False, True])
def test_export_is_the_same_to_the_byte(
    folder: Path, namespace: str | None, within: bool, tmp_path: Path
) -> None:
    memory, root, stored = both(folder, namespace)
    one, other, stream = tmp_path / "one.jsonl", tmp_path / "other.jsonl", io.StringIO()
    with root, stored:
        count = memory.export(one, namespaces=within)
        assert stored.export(other, namespaces=within) == count
        assert stored.export(stream, namespaces=within) == count
        with pytest.raises(InputError, match="outside of the store"):
            stored.export(folder / "inside.jsonl")
        with pytest.raises(InputError, match="open stream"):
            stored.export(io.BytesIO())  # type: ignore[arg-type]
    assert one.read_bytes() == other.read_bytes() == stream.getvalue().encode()
    assert not list(tmp_path.glob("*.partial"))


CONDITIONS: list[dict[str, Any]] = [
    {"session": "s1"},
    {"speaker": "Ada"},
    {"speaker": "Ben", "session": "s2"},
    {"before": 1.7e9 + 10 * 86400},
    {"before": "2023-11-20", "speaker": "Ada"},
    {"ids": ["a3", "a7"]},
    {"ids": ["a3", "a13"]},
    {"ids": ["a3", "a7", "a9"], "speaker": "Ben"},
    {"session": unicodedata.normalize("NFC", CAFE)},
]


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_forgettable_is_the_same(folder: Path, conditions: dict[str, Any]) -> None:
    memory, root, stored = both(folder)
    ids, rest = conditions.get("ids"), {k: v for k, v in conditions.items() if k != "ids"}
    with root, stored:
        found = stored.forgettable(ids, **rest)
        assert found == memory.forget(ids, **rest, dry_run=True)
        assert found


def test_wrong_calls_are_told_alike(folder: Path) -> None:
    memory, root, stored = both(folder)
    with root, stored:
        calls: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
            (lambda: memory.get(["a33x"]), lambda: stored.get(["a33x"])),
            (lambda: memory.get(["a13"]), lambda: stored.get(["a13"])),
            (lambda: memory.get(["concept:canoe"]), lambda: stored.get(["concept:canoe"])),
            (lambda: memory.facts.history("nobody"), lambda: stored.history("nobody")),
            (lambda: memory.facts.changes("soonish"), lambda: stored.changes("soonish")),
            (lambda: memory.list(order="size"), lambda: stored.list(order="size")),
            (lambda: memory.list(limit=0), lambda: stored.list(limit=0)),
            (lambda: memory.list(after="nothing"), lambda: stored.list(after="nothing")),
            (lambda: memory.forget(dry_run=True), lambda: stored.forgettable()),
            (
                lambda: memory.forget(session="s99", dry_run=True),
                lambda: stored.forgettable(session="s99"),
            ),
            (
                lambda: memory.forget(speaker="Eve", dry_run=True),
                lambda: stored.forgettable(speaker="Eve"),
            ),
            (
                lambda: memory.upkeep.check_receipt("no.json"),
                lambda: stored.check_receipt("no.json"),
            ),
        ]
        for pair in calls:
            told = []
            for call in pair:
                with pytest.raises(InputError) as error:
                    call()
                told.append(str(error.value))
            assert told[0] == told[1]
        with pytest.raises(InputError) as missing:
            root.namespaces["alcie"]
        with pytest.raises(InputError) as unread:
            StoredMemory.open(folder, namespace="alcie")
        assert str(missing.value) == str(unread.value)
        with pytest.raises(InputError, match="needs no index"):
            stored.list(order="-importance")


def test_namespace_is_found_in_any_form(folder: Path) -> None:
    for form in ("NFC", "NFD"):
        with StoredMemory.open(folder, namespace=unicodedata.normalize(form, "Zoë")) as stored:
            assert (stored.name, len(stored)) == ("Zoë", 4)


def test_no_store_and_damage_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="expected a store"):
        StoredMemory.open(tmp_path / "none")
    (tmp_path / DATABASE_NAME).write_bytes(b"cut")
    with pytest.raises(StoreDamagedError, match="cut to 3 bytes"):
        StoredMemory.open(tmp_path)


def test_receipt_of_forget_is_checked(tmp_path: Path) -> None:
    with Memory.open(tmp_path, config=config_of(), embedder=HashingEmbedder()) as memory:
        memory.add(turns(8))
        receipt = memory.forget(["a2"])
    with StoredMemory.open(tmp_path) as stored:
        assert stored.check_receipt(receipt) == []
    with Memory.open(tmp_path, config=config_of(), embedder=HashingEmbedder()) as memory:
        memory.add(turns(8)[2:3])
    with StoredMemory.open(tmp_path) as stored:
        assert any("in the store (again)" in each for each in stored.check_receipt(receipt))


def test_all_of_it_without_torch(folder: Path) -> None:
    code = f"""
import json, sys
from graphmem_torch.memory.stored import StoredMemory
with StoredMemory.open({str(folder)!r}) as memory:
    memory.stats(), memory.check(), memory.sizes(), memory.changes(0), memory.history("a3")
    page = memory.list(limit=3)
    memory.get([atom.id for atom in page]), memory.forgettable(session="s1"), memory.archived()
    memory.export(sys.stderr)
print(json.dumps("torch" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout) is False
