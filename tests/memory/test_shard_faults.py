"""Faults of memories of shards: two runs at once, a full disk, and shards of other times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Scope, create_shards
from graphmem_torch.store.shard_folder import shard_of
from tests.memories import file_size_limit, turns
from tests.memory.test_shards import ASKED, S, folder_of, opened
from tests.test_distributed import lines_of


def test_two_runs_into_one_folder_store_everything_once(tmp_path: Path) -> None:
    files = str(lines_of(tmp_path / "turns.jsonl", 120))
    command = [
        sys.executable,
        "-m",
        "graphmem_torch",
        "index",
        files,
        "--store",
        str(tmp_path / "m"),
    ]
    command += ["--shards", str(S), "--embedder", "hashing", "--config.link.concepts", "pattern"]
    runs = [
        subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    told = [each.communicate(timeout=240) for each in runs]
    assert [each.returncode for each in runs] == [0, 0], told
    done = [json.loads(out) for out, _ in told]
    assert sum(each["new"] for each in done) == 120
    with opened(tmp_path / "m", "r") as memory:
        assert len(memory) == 120 and memory.check() == []
        assert memory.retrieve(ASKED[0]).hits


def test_a_full_disk_in_one_shard_loses_nothing(tmp_path: Path) -> None:
    create_shards(tmp_path / "m", S)
    atoms = turns(60)
    with opened(tmp_path / "m") as memory:
        memory.add(atoms[:20])
        with file_size_limit(1 << 17), pytest.raises(StoreError, match="000"):
            memory.add([*atoms[20:], *turns(400)[60:]])
        there = {atom.id for atom in memory}
        assert there >= {atom.id for atom in atoms[:20]} and memory.check() == []
        memory.add(atoms)
        assert {atom.id for atom in memory} >= {atom.id for atom in atoms}
        assert memory.retrieve(ASKED[0]).hits


def test_statistics_of_an_earlier_time_are_not_used(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    with opened(path) as memory:
        memory.retrieve(ASKED)
    old = (path / "statistics.safetensors").read_bytes()
    with opened(path) as memory:
        memory.add(turns(120))
        wanted = memory.retrieve(ASKED)
    (path / "statistics.safetensors").write_bytes(old)
    with opened(path, "r") as memory:
        found = memory.retrieve(ASKED)
    assert [[h.raw for h in r.hits] for r in found] == [[h.raw for h in r.hits] for r in wanted]


def test_a_shard_restored_from_an_earlier_time_answers(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    shutil.copytree(path / "0001", tmp_path / "backup")
    with opened(path) as memory:
        memory.add(turns(120))
    shutil.rmtree(path / "0001")
    shutil.copytree(tmp_path / "backup", path / "0001")
    with opened(path) as memory:
        lost = {atom.id for atom in turns(120)[60:] if shard_of(atom, S) == 1}
        assert {atom.id for atom in memory} == {atom.id for atom in turns(120)} - lost
        assert memory.check() == [] and memory.retrieve(ASKED[0]).hits
        assert memory.add(turns(120)).new == len(lost)


def test_a_budget_too_small_for_any_memory_gives_an_empty_context(tmp_path: Path) -> None:
    with opened(folder_of(tmp_path / "m", turns(60))) as memory:
        (context,) = memory.compile([ASKED[0]], budget=1)
        assert context.tokens <= 1 and context.text == ""


def test_questions_are_answered_while_memories_are_deleted(tmp_path: Path) -> None:
    with opened(folder_of(tmp_path / "m", turns(60))) as memory:
        ended = threading.Event()

        def change() -> None:
            for number in range(60):
                name = f"Bertrand Person{number}"
                atom = Atom(f"w{number}", f"{name} is in Rome with {name}", session=f"x{number}")
                memory.add([atom])
                memory.delete([atom.id])
            ended.set()

        with ThreadPoolExecutor(4) as pool:

            def ask(question: Callable[[], object]) -> None:
                while not ended.is_set():
                    question()

            work = [
                pool.submit(change),
                pool.submit(ask, lambda: memory.retrieve(ASKED[0])),
                pool.submit(ask, lambda: memory.compile(ASKED[0], budget=100)),
                pool.submit(ask, lambda: memory.explain(ASKED[0])),
            ]
            try:
                for each in work:
                    each.result(timeout=240)
            finally:
                ended.set()
        assert memory.check() == []


def test_versions_of_other_sessions_are_imported_together(tmp_path: Path) -> None:
    with opened(tmp_path / "one") as memory:
        memory.add([Atom(f"m{n}", f"Note {n} of the boat", session=f"s{n % 6}") for n in range(12)])
        for n in range(12):
            memory.update(f"m{n}", session=f"t{n}")
        memory.export(tmp_path / "export.jsonl")
    create_shards(tmp_path / "m", S)
    with opened(tmp_path / "m") as memory:
        assert memory.import_(tmp_path / "export.jsonl").new == 12
        for n in range(12):
            versions = memory.facts.versions(f"m{n}")
            assert [each.atom.session for each in versions] == [f"s{n % 6}", f"t{n}"]
        assert memory.check() == []
        memory.add([Atom("m0", "Another", session="t0")], replace=True)
        assert memory.get("m0").text == "Another"


def test_a_refused_import_stores_no_more_than_in_one_store(tmp_path: Path) -> None:
    with opened(tmp_path / "one") as memory:
        memory.add(turns(60))
        memory.export(tmp_path / "export.jsonl")
    for number in (0, 30, 59):
        create_shards(tmp_path / f"{number}-shards", S)
        left = []
        for path in (tmp_path / f"{number}-one", tmp_path / f"{number}-shards"):
            with opened(path) as memory:
                memory.add([replace(turns(60)[number], text="Something else")])
                with pytest.raises(InputError, match=r"jsonl:\d+: .*other content"):
                    memory.import_(tmp_path / "export.jsonl")
                left.append({atom.id for atom in memory})
        assert left[0] == left[1]


@pytest.mark.parametrize("batch", [False, True])
def test_a_new_version_stays_in_the_shard_of_its_session(tmp_path: Path, batch: bool) -> None:
    create_shards(tmp_path / "m", S)
    with opened(tmp_path / "m") as memory:
        memory.add([old := Atom("m3", "Note of the boat", session="s0")])
        homes = {shard_of(Atom("", "", session=f"t{n}"), S): f"t{n}" for n in range(50)}
        own = homes.pop(shard_of(old, S))
        more = [Atom("m4", "Note of the canoe", session=own)] if batch else []
        for other in homes.values():
            with pytest.raises(InputError, match=r"session: expected one of shard .*add it again"):
                memory.add([*more, Atom("m3", "It is red", session=other)], replace=True)
            with pytest.raises(InputError, match=r"session: expected one of shard .*add it again"):
                memory.update("m3", session=other)
        assert len(memory) == 1
        memory.add([Atom("m3", "It is red", session=own)], replace=True)
        assert memory.get("m3").session == own


def test_an_archived_memory_is_forgotten_by_its_id(tmp_path: Path) -> None:
    with opened(folder_of(tmp_path / "m", turns(60))) as memory:
        names = [atom.id for atom in turns(60)]
        memory.upkeep.archive(names[10:20])
        for name in names[10:20]:
            with pytest.raises(InputError, match=r"which is archived; `upkeep.restore`"):
                memory.get([name])
            with pytest.raises(InputError, match=r"^exclude: .* is archived; `upkeep.restore`"):
                memory.retrieve(ASKED[0], scope=Scope(exclude=[name]))
        assert [atom.id for atom in memory.forget(names[10], dry_run=True)] == [names[10]]
        memory.forget(names[9:20])
        archived = memory.upkeep.archived()
        assert len(memory) == 49 and archived is not None and len(archived) == 0
        with pytest.raises(InputError, match="which is in neither"):
            memory.forget([names[0], names[12]])
        assert len(memory) == 49


def test_only_a_new_or_empty_folder_becomes_one_of_shards(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("x")
    (tmp_path / "half" / "0000").mkdir(parents=True)
    for name, said in (
        ("thesis", r"a new or empty folder, got .*thesis, which holds 'thesis.tex'"),
        ("half", r"a new or empty folder, got .*half, which holds '0000'"),
        ("thesis/thesis.tex", r"a folder, got .*thesis.tex, which is or lies in a file"),
        ("thesis/thesis.tex/m", r"a folder, got .*/m, which is or lies in a file"),
    ):
        with pytest.raises(InputError, match=f"^shards: expected {said}"):
            create_shards(tmp_path / name, S)
    assert [*(tmp_path / "thesis").iterdir()] == [tmp_path / "thesis" / "thesis.tex"]
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        create_shards(tmp_path / "empty", S)


@pytest.mark.parametrize("shards", [None, S])
@pytest.mark.parametrize("id", [["a0", "a2"], ["a0"], {"a0": 1}, 3, None])
def test_one_id_is_expected(tmp_path: Path, shards: int | None, id: Any) -> None:
    if shards is not None:
        create_shards(tmp_path / "m", shards)
    with opened(tmp_path / "m") as memory:
        memory.add(turns(6))
        for ask in (memory.facts.history, memory.facts.versions):
            with pytest.raises(InputError, match=r"^id: expected one id, got .*; ask for each"):
                ask(id)


def test_an_unknown_speaker_or_session_is_compared_with_those_of_all_shards(tmp_path: Path) -> None:
    create_shards(tmp_path / "m", S)
    names = ["Theo", "Bertrand", "Ines", "Umberto", "Wilma", "Nora"]
    with opened(tmp_path / "m") as memory:
        memory.add(
            [
                Atom(f"m{n}", f"Note {n} of the boat", session=f"of {name}", speaker=name)
                for n, name in enumerate(names)
            ]
        )
        for name in names:
            with pytest.raises(InputError, match=rf"^speaker: expected .*mean '{name}'"):
                memory.forget(speaker=f"{name}x")
            with pytest.raises(InputError, match=rf"^session: expected .*mean 'of {name}'"):
                memory.forget(session=f"of {name}x")
        assert len(memory) == len(names)


def test_an_unknown_concept_is_compared_with_those_of_all_shards(tmp_path: Path) -> None:
    names = ["Bertrand Russell", "Wilma Fischer", "Umberto Eco", "Ines Sastre", "Nora Barnacle"]
    atoms = [
        Atom(f"m{n}", f"In May, {name} saw {name} in Oslo", session=f"s{n}")
        for n, name in enumerate(names)
    ]
    create_shards(tmp_path / "m", S)
    said = []
    for path in (tmp_path / "one", tmp_path / "m"):
        with opened(path, **{"link.concepts": "pattern"}) as memory:
            memory.add(atoms)
            for seed in ("Zzyzx Qqq", *(f"{name}x" for name in names)):
                with pytest.raises(InputError, match=r"^seeds: expected ") as caught:
                    memory.retrieve(ASKED[0], scope=Scope(seeds=[seed]))
                said.append(str(caught.value))
    assert said[: len(said) // 2] == said[len(said) // 2 :]


def test_what_shards_refuse_names_one_of_them(tmp_path: Path) -> None:
    with opened(folder_of(tmp_path / "m", turns(6))) as memory:
        for ask in (lambda: memory.learning, lambda: memory.graph.structure()):
            with pytest.raises(InputError, match=r"`--store .*m/0000`, or in Python use `mem"):
                ask()
