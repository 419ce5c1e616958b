"""Exports and imports of memories of shards, against those of one store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.cli.main import main
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, create_shards
from graphmem_torch.memory.stored_shards import StoredShards
from graphmem_torch.store.shard_folder import shard_of
from tests.memories import config_of, turns
from tests.memory.test_shards import S, folder_of, one_of, opened


def lines_of(file: Path, kinds: tuple[str, ...] = ("atom",)) -> list[str]:
    """Lines of an export by what they hold, sorted, as its order is that of the stores."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return sorted(json.dumps(row) for row in rows if any(kind in row for kind in kinds))


def filled(memory: Memory) -> None:
    """Memories with versions, pins, edges, validity, feedback and a namespace."""
    memory.add(turns(60))
    memory.add(
        [
            Atom("base", "The lake is three miles north", session="z"),
            Atom("leaf", "The boathouse burned", session="z"),
            Atom("twig", "The twig", session="z", edges=(Link("base", EdgeType.DEPENDENCY),)),
        ]
    )
    memory.update("a7", text="The walrus of a7 sleeps")
    memory.pin(["a2", "a50"])
    memory.feedback("which canoe?", used=["a1", "a20"], not_used=["a3", "a9"])
    memory.namespaces.create("alice").add(turns(12))


KINDS = ("atom", "edge", "validity", "feedback")


@pytest.mark.parametrize("vectors", [False, True])
def test_shards_and_one_store_export_the_same(vectors: bool, tmp_path: Path) -> None:
    create_shards(tmp_path / "m", S)
    clock = {"config": config_of(), "embedder": "hashing", "clock": lambda: 1.8e9}
    with Memory.open(tmp_path / "m", **clock) as many, Memory.open(**clock) as one:
        filled(many)
        filled(one)
        count = many.export(tmp_path / "many.jsonl", vectors=vectors)
        assert count == one.export(tmp_path / "one.jsonl", vectors=vectors) == 63 + 12
    found, wanted = (lines_of(tmp_path / f"{name}.jsonl") for name in ("many", "one"))
    assert found == wanted
    judged = [
        json.loads(lines_of(tmp_path / f"{name}.jsonl", ("feedback",))[0])["feedback"]
        for name in ("many", "one")
    ]
    assert {*judged[0]["used"]} == {*judged[1]["used"]} == {"a1", "a20"}
    assert {*judged[0]["not_used"]} == {*judged[1]["not_used"]} == {"a3", "a9"}


@pytest.mark.parametrize("source", ["one", "many"])
def test_an_import_places_every_memory_in_its_shard(source: str, tmp_path: Path) -> None:
    create_shards(tmp_path / "from", 2)
    path = tmp_path / "from" if source == "many" else None
    with Memory.open(path, config=config_of(), embedder="hashing") as given:
        filled(given)
        given.export(tmp_path / "a.jsonl")
    create_shards(tmp_path / "m", S)
    with opened(tmp_path / "m") as memory:
        many: Any = memory
        added = memory.import_(tmp_path / "a.jsonl")
        assert added.new == 63 + 12 and memory.check() == []
        for number, shard in enumerate(many.shards):
            assert {shard_of(atom, S) for atom in shard} <= {number}
        assert memory.get("a7").text == "The walrus of a7 sleeps"
        assert sorted(memory.pinned()) == ["a2", "a50"]
        assert len(memory.namespaces["alice"]) == 12
        shard = next(each for each in many.shards if "leaf" in each)
        assert [len(each.facts.versions("a7")) for each in many.shards if "a7" in each] == [2]
        assert "base" in shard, "a session is whole"
        assert memory.import_(tmp_path / "a.jsonl").new == 0, "can be repeated"
        assert memory.stats()["feedback"]["questions"] == 1
        many.export(tmp_path / "b.jsonl")
    first, second = (lines_of(tmp_path / f"{name}.jsonl") for name in "ab")
    assert first == second


def test_an_edge_between_shards_is_counted_as_lost(tmp_path: Path) -> None:
    with one_of(turns(40)) as one:
        places = {atom.id: shard_of(atom, S) for atom in one}
        far = next(name for name in places if places[name] != places["a1"])
        near = next(name for name in places if places[name] == places["a1"] and name != "a1")
        one.graph.connect("a1", far, "causes")
        one.graph.connect("a1", near, "causes")
        one.export(tmp_path / "a.jsonl")
    create_shards(tmp_path / "m", S)
    with opened(tmp_path / "m") as memory:
        losses = memory.import_(tmp_path / "a.jsonl").losses
        assert losses["edge between shards"] >= 1
        (shard,) = (each for each in memory.shards if "a1" in each)  # type: ignore[attr-defined]
        kinds = {*shard.store.connected_edges().type.tolist()}
        assert int(EdgeType.CAUSES) in kinds


def test_a_cut_export_stores_nothing_in_any_shard(tmp_path: Path) -> None:
    with one_of(turns(40)) as one:
        one.export(tmp_path / "a.jsonl")
    whole = (tmp_path / "a.jsonl").read_bytes()
    create_shards(tmp_path / "m", S)
    with opened(tmp_path / "m") as memory:
        for end in (10, len(whole) // 2, len(whole) - 5):
            (tmp_path / "cut.jsonl").write_bytes(whole[:end])
            with pytest.raises(InputError):
                memory.import_(tmp_path / "cut.jsonl", format=None)
        assert len(memory) == 0
        for wrong in (tmp_path / "m" / "x.jsonl", tmp_path / "m" / "0001" / "x.jsonl"):
            with pytest.raises(InputError, match="outside of the store"):
                memory.export(wrong)


def test_the_engine_is_not_needed_to_export(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    with opened(path) as memory:
        memory.namespaces.create("alice").add(turns(12))
        memory.export(tmp_path / "a.jsonl")
        memory.export(tmp_path / "alone.jsonl", namespaces=False)
    with StoredShards.open(path) as stored:
        assert stored.export(tmp_path / "b.jsonl") == 72
        assert stored.export(tmp_path / "c.jsonl", namespaces=False) == 60
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()
    assert (tmp_path / "alone.jsonl").read_text() == (tmp_path / "c.jsonl").read_text()


def test_commands_export_and_import(tmp_path: Path, capsys: Any) -> None:
    path, own = folder_of(tmp_path / "m", turns(60)), ["--config.link.concepts", "pattern"]
    file = str(tmp_path / "a.jsonl")
    assert main(["store", "export", file, "--store", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["atoms"] == 60
    create_shards(tmp_path / "n", 5)
    command = ["store", "import", file, "--store", str(tmp_path / "n"), "--embedder", "hashing"]
    assert main([*command, *own, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == 60
    asked = ["--store", str(tmp_path / "n"), "--embedder", "hashing", *own]
    assert main(["context", "Where is the canoe?", "--budget", "100", *asked]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["store", "feedback", "canoe?", "--used", "a1", "--not-used", "a20", *asked]) == 0
    assert "1 question" in capsys.readouterr().out
