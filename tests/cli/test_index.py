"""`graphmem index`: from anywhere, any number of times, past what cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory

Reply = Callable[..., Any]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with two documents and two chats, in which the same is said twice."""
    folder = tmp_path / "home" / "library"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.txt").write_text("The canoe is red.")
    (folder / "deep" / "two.txt").write_text("The violin is old.")
    lines = [{"text": "Yes."}, {"text": "The comet came."}, {"text": "Yes."}]
    for name in ("a.jsonl", "b.jsonl"):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / name).write_text(text)
    return folder


def stored(store: Path) -> list[str]:
    with Memory.open(store, mode="r") as memory:
        return [name for name in memory.store.ids() if not name.startswith("concept:")]


def test_ids_are_the_same_from_anywhere(
    tmp_path: Path, library: Path, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    places = [
        (library.parent, "library"),
        (library, "."),
        (tmp_path / "other", "../home/library"),
        (tmp_path, str(library)),
    ]
    found = []
    for i, (folder, given) in enumerate(places):
        monkeypatch.chdir(folder)
        assert reply("index", given, "--store", tmp_path / "store")["new"] == (8 if i == 0 else 0)
        reply("index", given, "--store", tmp_path / f"store{i}")
        found.append(stored(tmp_path / f"store{i}"))
    assert all(ids == found[0] for ids in found)
    assert {"library/one.txt#0", "library/deep/two.txt#0"} <= set(found[0])
    monkeypatch.chdir(library / "deep")
    assert reply("index", "two.txt", "../b.jsonl", "--store", tmp_path / "store")["new"] == 0
    assert len(stored(tmp_path / "store")) == 8, "what is said in two files is two memories"


def test_a_store_of_an_older_release_is_indexed_again(
    tmp_path: Path, library: Path, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids were made from the current folder, and of lines from their content alone."""
    from graphmem_torch.readers.read import read_atoms
    from graphmem_torch.text.embedder import HashingEmbedder
    from graphmem_torch.text.tokens import WordTokenizer

    monkeypatch.chdir(library)
    config = load_config(overrides={"link.concepts": "pattern"})
    with Memory.open(tmp_path / "store", config=config, embedder=HashingEmbedder()) as memory:
        old = memory.add(read_atoms(["."], tokenizer=WordTokenizer()))
    assert old.new == 5
    assert reply("index", ".", "--store", tmp_path / "store")["new"] == 0
    monkeypatch.chdir(tmp_path)
    assert reply("index", library, "--store", tmp_path / "store")["new"] == 0


def test_what_cannot_be_used_is_left_out_and_listed(
    tmp_path: Path, library: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = library / "c.jsonl"
    bad.write_bytes(
        b'{"id": "x", "text": "good"}\nno json\n{"text": ""}\n{"id": "x", "text": "other"}\n'
        b'{"text": "\xff"}\n{"text": "k", "kind": "concept"}\n{"text": "better"}\n'
    )
    (library / "bin.txt").write_bytes(b"a\0b")
    store = ["--store", str(tmp_path / "store"), *fast]
    given = ["index", str(library), str(tmp_path / "nowhere.txt"), str(tmp_path / "x.png")]
    assert main([*given[:2], *store, "--config.link.batch_atoms", "3"]) == 2
    said = capsys.readouterr().err
    assert "10 memories stored all the same" in said and "--skip-bad" in said
    assert re.search(r"\(and \d more that cannot be used\)", said) and said.count("error:") == 1
    for _ in range(2):
        assert main([*given, *store, "--skip-bad"]) == 3
        out, err = capsys.readouterr()
        assert "8 left out" in out
        assert out.startswith("0 memories")
        for place in ("c.jsonl:2", "c.jsonl:3", "c.jsonl:4", "c.jsonl:5", "bin.txt", "nowhere.txt"):
            assert place in err
    assert main([*given, *store, "--skip-bad", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["new"], told["known"], len(told["skipped"])) == (0, 10, 8)
    assert len(stored(tmp_path / "store")) == 10


def test_an_edited_folder_is_followed(tmp_path: Path, library: Path, reply: Reply) -> None:
    given = ["index", str(library), "--store", str(tmp_path / "store")]
    planned = reply(*given, "--dry-run")
    assert planned["new"] == 8 and planned["dry_run"] and not (tmp_path / "store").exists()
    assert reply(*given)["new"] == 8
    (library / "one.txt").write_text("The canoe is blue.")
    (library / "deep" / "two.txt").rename(library / "three.txt")
    (library / "b.jsonl").unlink()
    planned, done = reply(*given, "--dry-run"), reply(*given)
    assert {**planned, "seconds": 0, "dry_run": False} == {**done, "seconds": 0}
    assert done["changed"] == ["library/one.txt"]
    assert done["replaced"] == 2, "the name of a file is its title"
    assert done["moved"] == [["library/deep/two.txt", "library/three.txt"]]
    assert done["gone"] == ["library/b.jsonl"] and not done["pruned"] and not done["deleted"]
    pruned = reply(*given, "--prune")
    assert pruned["pruned"] == ["library/b.jsonl"] and pruned["deleted"] == 3
    assert len(stored(tmp_path / "store")) == 5


def test_reembed(
    tmp_path: Path, library: Path, reply: Reply, capsys: pytest.CaptureFixture[str]
) -> None:
    reply("index", library, "--store", tmp_path / "store")
    before = stored(tmp_path / "store")
    given = [
        "store",
        "reembed",
        "--store",
        str(tmp_path / "store"),
        "--embedder",
        "hashing:24",
        "--json",
    ]
    for least in (8, 0):
        assert main(given) == 0
        encoded = json.loads(capsys.readouterr().out)["encoded"]
        assert encoded >= least and (least or not encoded)
    assert stored(tmp_path / "store") == before
    with Memory.open(tmp_path / "store", mode="r") as memory:
        assert memory.store.dim == 24 and memory.retrieve("canoe").hits


def test_vectors_from_elsewhere_are_indexed(
    tmp_path: Path, reply: Reply, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    file, vectors, store = tmp_path / "a.jsonl", tmp_path / "v.npy", tmp_path / "store"
    file.write_text('{"id": "a", "text": "The canoe"}\n{"id": "b", "text": "The violin"}\n')
    np.save(vectors, np.eye(2, 8, dtype=np.float16) * 3)
    given = ["index", file, "--store", store, "--embeddings", vectors, "--normalise"]
    assert main([*map(str, given), "--fingerprint", "ours", "--json"]) == 0
    assert stored(store) == ["a", "b"]
    capsys.readouterr()
    assert main(["query", "canoe?", "--store", str(store)]) == 2
    assert "the encoder 'ours' to encode a text" in capsys.readouterr().err
    np.save(vectors, np.eye(2, 8, 1, dtype=np.float16))
    assert main([*map(str, given)]) == 0
    said = "2 memories keep other vectors than those given; index into a new store to have these"
    assert said in capsys.readouterr().out
    assert main([*map(str, given), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept_vectors"] == 2


def test_no_namespace_is_made_for_nothing(
    tmp_path: Path, store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from graphmem_torch import Memory

    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "a.pdf").write_text("x")
    there = ["--store", str(store), "--namespace", "ada", *fast]
    for words in (
        ["index", str(tmp_path / "missing.txt")],
        ["index", str(tmp_path / "a.pdf")],
        ["index", ""],
        ["index", str(tmp_path / "missing.txt"), str(tmp_path / "bad.jsonl")],
        ["store", "import", str(tmp_path / "bad.jsonl")],
        ["store", "import", str(tmp_path / "missing.json")],
        ["store", "import", str(tmp_path / "a.pdf")],
    ):
        assert main([*words, *there]) == 2, words
        with Memory.open(store, mode="r", embedder="hashing") as memory:
            assert [*memory.namespaces] == [], words
    capsys.readouterr()
    (tmp_path / "a.txt").write_text("The canoe is red.")
    assert main(["index", str(tmp_path / "a.txt"), *there]) == 0
    with Memory.open(store, mode="r", embedder="hashing") as memory:
        assert [*memory.namespaces] == ["ada"]
