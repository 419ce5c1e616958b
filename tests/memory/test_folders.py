"""A memory whose process changes its folder, or whose own folder is moved."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, OracleError, StoreError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.oracle import OpenAIClient
from graphmem_torch.store import MemoryStore
from tests.memories import config_of, ids, opened

NAME = "my.mem"


def put(memory: Memory, *names: str) -> int:
    return memory.add([Atom(name, f"the {name} lies here") for name in names]).new


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content of every file under a folder, and when it was last written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside the current one, with a store of the same name."""
    other = tmp_path / "other"
    with opened(other / NAME) as decoy:
        put(decoy, "decoy")
        put(decoy.namespaces.create("u"), "decoy")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return other


@pytest.mark.parametrize("path", [NAME, Path(NAME), f"./{NAME}", f"../here/{NAME}"])
def test_a_store_stays_the_one_that_was_opened(elsewhere: Path, path: str | Path) -> None:
    memory = Memory.open(path, config=config_of(), embedder="hashing")
    put(memory, "kite", "boat", "bell")
    before = content(elsewhere)
    os.chdir(elsewhere)
    assert put(memory, "drum") == 1
    assert memory.upkeep.archive("boat") == 1
    assert memory.upkeep.restore("boat") == 1
    assert memory.upkeep.archive("boat") == 1
    assert put(memory.namespaces.create("u"), "flute") == 1
    assert list(memory.namespaces) == ["u"]
    assert memory.forget("boat").atoms == 1
    memory.upkeep.compact()
    memory.upkeep.consolidate()
    with memory.upkeep.in_background(every=0.01) as refining:
        put(memory, "lamp")
        while refining.done is None and refining.error is None:
            threading.Event().wait(0.01)
        assert refining.error is None
    assert set(ids(memory.retrieve("kite"))) == {"kite", "drum", "bell", "lamp"}
    assert memory.check() == []
    assert len(memory) == 4
    assert memory.stats()
    memory.export("export.jsonl")
    assert (elsewhere / "export.jsonl").is_file()
    (elsewhere / "export.jsonl").unlink()
    memory.close()
    assert content(elsewhere) == before
    with opened(elsewhere.parent / "here" / NAME, embedder=None) as again:
        assert len(again) == 4
        assert ids(again.retrieve("flute", scope=Scope(namespaces=["u"]))) == ["flute"]


def test_the_current_folder_may_go(elsewhere: Path) -> None:
    memory = opened(Path(NAME))
    gone = elsewhere / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert put(memory, "kite") == 1
    assert put(memory.namespaces.create("v"), "boat") == 1
    memory.close()
    with pytest.raises(StoreError, match=r"other\.mem: .* the current folder is gone"):
        opened(Path("other.mem"))
    os.chdir(elsewhere)


def test_a_link_that_leads_elsewhere_later(elsewhere: Path) -> None:
    Path("link").symlink_to(Path.cwd())
    with opened(Path("link") / NAME) as memory:
        put(memory, "kite")
        before = content(elsewhere)
        Path("link").unlink()
        Path("link").symlink_to(elsewhere)
        assert put(memory, "boat") == 1
        assert memory.upkeep.archive("kite") == 1
    assert content(elsewhere) == before
    with opened(Path(NAME)) as memory:
        assert "boat" in memory


def test_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with MemoryStore.open("~/m") as store:
        assert store.path == (tmp_path / "m").resolve()


def test_a_process_of_its_own_folder(elsewhere: Path) -> None:
    with opened(Path(NAME)) as memory:
        put(memory, "kite")
        child = os.fork()
        if child == 0:  # no test runs on in the child, whatever happens
            done = 1
            try:
                with opened(Path(NAME)) as own:
                    os.chdir(elsewhere)
                    put(own, "boat")
                done = 0
            finally:
                os._exit(done)
        assert os.waitpid(child, 0)[1] == 0
        os.chdir(elsewhere)
        assert "boat" in memory


MOVED: dict[str, Callable[[Memory], object]] = {
    "add": lambda memory: put(memory, "drum"),
    "archive": lambda memory: memory.upkeep.archive("kite"),
    "namespace": lambda memory: memory.namespaces.create("new"),
    "drop": lambda memory: memory.namespaces.drop("u"),
    "names": lambda memory: list(memory.namespaces),
    "forget": lambda memory: memory.forget("kite"),
    "refining": lambda memory: memory.upkeep.in_background(),
    "compact": lambda memory: memory.upkeep.compact(),
}


@pytest.mark.parametrize("name", sorted(MOVED))
def test_a_folder_that_was_moved_is_not_mixed_up(elsewhere: Path, name: str) -> None:
    """Another store may have its name by then."""
    memory = opened(Path(NAME))
    put(memory, "kite")
    put(memory.namespaces.create("u"), "boat")
    Path(NAME).rename("moved.mem")
    shutil.copytree(elsewhere / NAME, NAME)
    before = content(Path(NAME))
    with pytest.raises(StoreError, match="moved or replaced"):
        MOVED[name](memory)
    memory.close()
    assert content(Path(NAME)) == before
    with opened(Path("moved.mem")) as again:
        assert "kite" in again
        assert again.check() == []


def test_answers_of_an_oracle_stay_in_their_file(elsewhere: Path) -> None:
    client = OpenAIClient(
        "m", base_url="http://127.0.0.1:9/v1", retries=0, timeout=5, cache="answers.sqlite"
    )
    client.close()
    here = Path.cwd()
    os.chdir(elsewhere)
    with pytest.raises(OracleError):  # no server: but the cache is opened again
        client.complete("why?")
    client.close()
    assert not (elsewhere / "answers.sqlite").exists()
    with sqlite3.connect(here / "answers.sqlite") as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (0,)


@pytest.mark.parametrize("path", ["a\0b", "~/a\0b", "\ud800"])
def test_paths_that_no_system_holds(path: str) -> None:
    with pytest.raises(StoreError, match="path: expected a path that the system can hold, got "):
        Memory.open(path, embedder="hashing")


def test_the_folder_of_an_unknown_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"got ~no-such-user, and no home folder .*; give an abs"):
        Memory.open("~no-such-user/m", embedder="hashing")
    assert not list(tmp_path.iterdir())
    with Memory.open("./~no-such-user", embedder="hashing"):
        assert (tmp_path / "~no-such-user").is_dir()


@pytest.mark.parametrize("path", [5, 1.5, ["a"], {}])
def test_a_store_is_at_a_path(path: Any) -> None:
    with pytest.raises(InputError, match="path: expected a path"):
        Memory.open(path, embedder="hashing")
