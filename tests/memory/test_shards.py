"""Memories of shards against one store that compares every atom with a question."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.cli.main import main
from graphmem_torch.errors import (
    ConfigError,
    EmbedderError,
    InputError,
    StoreDamagedError,
    StoreError,
)
from graphmem_torch.memory import Memory, Scope, create_shards
from graphmem_torch.memory.sharded import ShardedMemory
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.shard_folder import ShardFolder, shard_of
from tests.memories import QUESTIONS, WORDS, config_of, turns

S = 3
ASKED = [
    *QUESTIONS,
    "What is telescope like?",
    "Which story is about the garden and the comet?",
    "What did Ben say on 3 December 2023?",
    "harbour saddle bakery",
    "Who spoke of the number 57?",
]


def passages(count: int = 40) -> list[Atom]:
    """Documents with titles that mention each other."""
    return [
        Atom(
            id=f"p{i}",
            title=f"{WORDS[i % 8].title()} of {WORDS[(i * 5 + 2) % 8].title()} {i // 8}",
            text=f"A {WORDS[i % 8]} that follows the {WORDS[(i * 5 + 3) % 8].title()} of "
            f"{WORDS[(i + 4) % 8].title()} {i // 8}, in the year {1900 + i}.",
            kind="passage",
        )
        for i in range(count)
    ]


def folder_of(path: Path, atoms: list[Atom], shards: int = S, **settings: Any) -> Path:
    create_shards(path, shards)
    with opened(path, **settings) as memory:
        memory.add(atoms)
    return path


def opened(path: Path, mode: Any = "w", **settings: Any) -> Memory:
    embedder = settings.pop("embedder", "hashing" if mode == "w" else None)
    return Memory.open(path, config=config_of(**settings), embedder=embedder, mode=mode)


def one_of(atoms: list[Atom], **settings: Any) -> Memory:
    memory = Memory.open(config=config_of(**settings), embedder="hashing")
    memory.add(atoms)
    return memory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of shards, which no test changes."""
    return folder_of(tmp_path_factory.mktemp("shards") / "memory", turns(160))


@pytest.fixture
def memory(folder: Path) -> Iterator[Memory]:
    with opened(folder, "r") as memory:
        yield memory


def agreement(many: Memory, one: Memory, asked: list[str], k: int = 10, **given: Any) -> float:
    """Mean share of the hits of one store that the shards find, too."""
    shares = []
    for own, other in zip(
        one.retrieve(asked, k=k, **given), many.retrieve(asked, k=k, **given), strict=True
    ):
        wanted = {hit.id for hit in own.hits}
        assert len(other.hits) == len(own.hits)
        shares.append(len(wanted & {hit.id for hit in other.hits}) / max(1, len(wanted)))
        assert other.known == own.known
        assert other.confidence == pytest.approx(own.confidence, abs=0.02)
    return sum(shares) / len(shares)


# Routing.


def test_shard_of_follows_session_then_document_then_id() -> None:
    told = Atom("x", "text", session="s1")
    assert shard_of(told, 7) == shard_of(replace(told, id="y"), 7)
    chunks = {shard_of(Atom(f"report#{i}", "text"), 64) for i in range(20)}
    assert len(chunks) == 1, "a document is in one shard"
    assert len({shard_of(Atom(f"report{i}", "text"), 64) for i in range(200)}) > 40
    # Fixed for good: the manifest names the rule.
    assert [
        shard_of(Atom("", "", session=name), 1000) for name in ("s1", "café", "cafe\u0301")
    ] == [
        shard_of(Atom("", "", session="s1"), 1000),
        shard_of(Atom("", "", session="café"), 1000),
        shard_of(Atom("", "", session="café"), 1000),
    ]
    digest = hashlib.blake2b("caf\u00e9".encode(), digest_size=8).digest()
    expected = sum(byte * 256**place for place, byte in enumerate(digest)) % 1000
    assert shard_of(Atom("", "", session="café"), 1000) == expected


def test_sessions_are_whole_and_every_atom_is_in_its_shard(memory: Any) -> None:
    assert isinstance(memory, ShardedMemory) and len(memory) == 160
    for number, shard in enumerate(memory.shards):
        assert {shard_of(atom, S) for atom in shard} <= {number}
    assert sorted(atom.id for atom in memory) == sorted(atom.id for atom in turns(160))


# Asking.


@pytest.mark.parametrize("exhaustive", [2048, 0], ids=["every atom", "candidates"])
@pytest.mark.parametrize("kind", ["turns", "passages", "both"])
def test_hits_agree_with_one_exact_store(exhaustive: int, kind: str, tmp_path: Path) -> None:
    atoms = {"turns": turns(160), "passages": passages(), "both": turns(120) + passages()}[kind]
    own = {"rank.exhaustive_up_to": exhaustive}
    folder_of(tmp_path / "m", atoms)
    with one_of(atoms) as one, opened(tmp_path / "m", "r", **own) as many:
        assert agreement(many, one, ASKED) >= 0.9
        alone = [
            sorted(
                (hit for shard in many.shards for hit in shard.retrieve(q, k=10).hits),
                key=lambda hit: -hit.raw,
            )
            for q in ASKED
        ]
        together = many.retrieve(ASKED, k=10)
        assert [[h.id for h in r.hits] for r in together] != [[h.id for h in a[:10]] for a in alone]


def test_scores_are_those_of_one_store(tmp_path: Path) -> None:
    """Without a graph nothing differs but rounding: all counts and moments are those of all."""
    atoms = turns(160)
    cut = {"spread.min_nodes": 10_000, "hops.title": 0.0}
    folder_of(tmp_path / "m", atoms, **cut)
    with one_of(atoms, **cut) as one, opened(tmp_path / "m", "r", **cut) as many:
        for own, other in zip(one.retrieve(ASKED), many.retrieve(ASKED), strict=True):
            scores = {hit.id: hit for hit in other.hits}
            assert len(scores) == len(own.hits) == 30
            for hit in own.hits[:25]:
                assert scores[hit.id].raw == pytest.approx(hit.raw, abs=2e-4)
                assert scores[hit.id].score == pytest.approx(hit.score, abs=2e-4)
            assert other.confidence == pytest.approx(own.confidence, abs=1e-4)


def test_hops_lead_to_documents_of_other_shards(tmp_path: Path) -> None:
    """Scores of titled passages that mention each other are those of one store."""
    atoms, cut = passages(), {"spread.min_nodes": 10_000}
    folder_of(tmp_path / "m", atoms, **cut)
    with one_of(atoms, **cut) as one, opened(tmp_path / "m", "r", **cut) as many:
        hopped = 0
        for own, other in zip(one.retrieve(ASKED), many.retrieve(ASKED), strict=True):
            found = {hit.id: hit for hit in other.hits}
            for hit in own.hits[:20]:
                assert found[hit.id].raw == pytest.approx(hit.raw, abs=2e-3)
                assert found[hit.id].signals["hop"] == pytest.approx(hit.signals["hop"], abs=2e-3)
                assert found[hit.id].signals["named"] == pytest.approx(hit.signals["named"])
                hopped += hit.signals["hop"] > 0
        assert hopped > 20, "the test would pass with zeros"


def test_one_shard_is_one_store(tmp_path: Path) -> None:
    atoms = turns(96)
    folder_of(tmp_path / "m", atoms, shards=1)
    with one_of(atoms) as one, opened(tmp_path / "m", "r") as many:
        for own, other in zip(one.retrieve(ASKED), many.retrieve(ASKED), strict=True):
            assert own.hits == other.hits and own.confidence == other.confidence


def test_alone_and_in_a_batch_and_opened_again_are_the_same(folder: Path) -> None:
    with opened(folder, "r") as memory:
        batch = memory.retrieve(ASKED)
        alone = [memory.retrieve(question) for question in ASKED]
    with opened(folder, "r") as again:
        later = again.retrieve(ASKED)
    for one, two, three in zip(batch, alone, later, strict=True):
        assert [h.id for h in one.hits] == [h.id for h in two.hits] == [h.id for h in three.hits]
        assert [h.raw for h in one.hits] == [h.raw for h in three.hits]


def test_conditions_times_and_scopes_agree_with_one_store(memory: Any) -> None:
    with one_of(turns(160)) as one:
        for given in (
            {"where": {"meta.page": {"$gte": 60}}},
            {"where": {"speaker": "Ada", "kind": "note"}},
            {"between": ("2023-12-01", "2023-12-20")},
            {"scope": Scope(exclude=["a8", "a16"])},
            {"scope": Scope(kinds=["note"])},
        ):
            assert agreement(memory, one, ASKED[:5], **given) >= 0.9, given
        moment = 1.7e9 + 40 * 86400
        own, other = (each.at(valid_at=moment).retrieve(ASKED[0], k=5) for each in (one, memory))
        assert {hit.id for hit in own.hits} & {hit.id for hit in other.hits}
    assert memory.retrieve(ASKED[0], where={"speaker": "Nobody"}).hits == ()
    with pytest.raises(InputError, match="a99999"):
        memory.retrieve(ASKED[0], scope=Scope(exclude=["a99999"]))


def test_a_trace_counts_all_shards(memory: Any) -> None:
    trace = memory.retrieve(ASKED[0], trace=True).trace
    assert trace is not None and trace.atoms == 160 and trace.candidates == 160


def test_statistics_are_kept_and_rebuilt(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(96))
    with opened(path) as memory:
        first = memory.retrieve(ASKED)
    file = path / "statistics.safetensors"
    stamp = file.read_bytes()
    for spoiled in (stamp[: len(stamp) // 2], b"", None):
        if spoiled is None:
            file.unlink()
        else:
            file.write_bytes(spoiled)
        with opened(path, "r") as memory:
            again = memory.retrieve(ASKED)
        assert [[h.raw for h in r.hits] for r in again] == [[h.raw for h in r.hits] for r in first]
    with opened(path) as memory:  # a stale file is not used
        memory.retrieve(ASKED)
    with opened(path) as memory:
        memory.add(Atom("new", "A canoe of another kind is said to be a zeppelin", session="s1"))
        assert memory.retrieve("zeppelin").hits[0].id == "new"
    assert file.exists()


# Verbs.


def test_atoms_are_added_changed_and_deleted_in_their_shards(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    with opened(path) as memory:
        assert memory.add(turns(60)).known == 60
        assert memory.add("One more text about a walrus").new == 1
        ids = [atom.id for atom in turns(60)]
        assert [atom.id for atom in memory.get(ids)] == ids
        assert memory.get("a7").text == turns(60)[7].text
        memory.update("a7", text="The walrus of a7 sleeps")
        assert memory.retrieve("walrus a7 sleeps").hits[0].id == "a7"
        assert "a7" in memory and "b7" not in memory
        with pytest.raises(InputError, match="session: expected one of shard"):
            number = shard_of(memory.get("a7"), S)
            other = next(
                f"t{i}" for i in range(99) if shard_of(Atom("", "", session=f"t{i}"), S) != number
            )
            memory.update("a7", session=other)
        with pytest.raises(InputError, match="b1"):
            memory.delete(["a1", "b1"])
        assert "a1" in memory, "all or none"
        assert memory.delete(["a1", "a20", "a40"]) == 3
        assert len(memory) == 58
        memory.pin(["a2", "a50"])
        assert sorted(memory.pinned()) == ["a2", "a50"]
        memory.unpin("a2")
        assert memory.pinned() == ["a50"]
        memory.touch(["a2", "a50"])
        added = memory.add_document("First part.\n\nSecond part.", name="report")
        assert {shard_of(memory.get(each), S) for each in added.ids} == {
            shard_of(Atom("", "", session="report"), S)
        }
        assert memory.check() == []
    with opened(path, "r") as memory:
        assert len(memory) == 58 + added.new


def test_a_key_adds_once(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(12))
    for _ in range(2):
        with opened(path) as memory:
            memory.add(["a text", "another text", "a third text"], key="call 1")
            assert len(memory) == 15
            with pytest.raises(InputError, match="key: expected the content"):
                memory.add(["something else"], key="call 1")


@pytest.mark.parametrize("order", ["added", "time", "-time", "id", "-id"])
def test_pages_list_every_atom_once_in_order(order: str, memory: Any) -> None:
    whole = memory.list(order=order)
    assert len(whole) == 160 and whole.next is None
    found: list[str] = []
    after = None
    while True:
        page = memory.list(order=order, limit=23, after=after)
        found += [atom.id for atom in page]
        after = page.next
        if after is None:
            break
    assert found == [atom.id for atom in whole]
    assert sorted(found) == sorted(atom.id for atom in turns(160))
    key = {"time": lambda atom: (atom.time is None, atom.time or 0.0), "id": lambda atom: atom.id}
    if order in key:
        assert [key[order](atom) for atom in whole] == sorted(map(key[order], whole))
    with pytest.raises(InputError, match="after: expected"):
        memory.list(order="id", limit=3, after="nowhere")
    with pytest.raises(InputError, match="importance"):
        memory.list(order="importance")
    assert {atom.speaker for atom in memory.list(where={"speaker": "Ada"})} == {"Ada"}


def test_forgetting_leaves_no_byte_in_any_shard(tmp_path: Path) -> None:
    secret = "xylograph"
    atoms = [
        *turns(30),
        *(Atom(f"n{i}", f"The {secret} number {i}", session=f"q{i}") for i in range(9)),
    ]
    path = folder_of(tmp_path / "m", atoms)
    with opened(path) as memory:
        memory.retrieve(ASKED)
    with opened(path) as memory:
        ids = [f"n{i}" for i in range(9)]
        assert [a.id for a in memory.forget(session="q3", dry_run=True)] == ["n3"]
        receipts: Any = memory.forget(ids)
        assert sum(each.atoms for each in receipts) == 9 and len(receipts) == S
        for shard in memory.shards:
            fits = [each for each in receipts if not shard.upkeep.check_receipt(each)]
            assert len(fits) == 1
    for file in path.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
    with opened(path) as memory, pytest.raises(InputError, match="question"):
        memory.forget(question="what?", k=3)


def test_the_class_opens_shards_however_it_was_imported(folder: Path) -> None:
    program = (
        "import sys; from graphmem_torch.memory.memory import Memory; "
        f"print(len(Memory.open({str(folder)!r}, embedder='hashing', mode='r')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "160\n", done.stderr


def test_each_shard_is_an_ordinary_store(folder: Path) -> None:
    count = 0
    for place in ShardFolder.open(folder).stores:
        with Memory.open(place, config=config_of(), mode="r") as shard:
            assert shard.check() == []
            assert shard.retrieve(ASKED[0]).hits
            count += len(shard)
    assert count == 160


def test_namespaces_lie_in_every_shard(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(24))
    with opened(path) as memory:
        alice: Any = memory.namespaces.create("alice")
        alice.add(turns(90))
        assert [*memory.namespaces] == ["alice"] and len(memory) == 24 and len(alice) == 90
        assert "alice" in memory.namespaces and "bob" not in memory.namespaces
        with pytest.raises(InputError, match="bob"):
            memory.namespaces["bob"]
        with one_of(turns(90)) as one:
            assert agreement(alice, one, ASKED) >= 0.9
        mixed = memory.retrieve(ASKED[:2], scope=Scope(namespaces=["alice", "alice"]))
        assert [h.id for h in mixed[0].hits] == [h.id for h in alice.retrieve(ASKED[0]).hits]
    with opened(path) as memory:
        assert len(memory.namespaces["alice"]) == 90
        memory.namespaces.drop("alice")
        assert [*memory.namespaces] == []


def test_what_needs_one_store_is_refused_by_name(memory: Any) -> None:
    for name in ("store", "index", "themes", "learning", "tensors"):
        with pytest.raises(InputError, match=rf"^{name}: expected a memory of one store.*shards\["):
            getattr(memory, name)
    for name, call in {
        "report": lambda: memory.report("x.html"),
        "plan": lambda: memory.retrieve("what?", scope=Scope(plan=True)),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: expected a memory of one store"):
            call()


def test_every_verb_of_a_memory_is_answered_for_all_shards() -> None:
    """No method that `Memory` gains later may silently ask the first shard alone."""
    shared = {"open", "aio", "config", "embedder", "add", "add_document", "update"}
    shared |= {"delete", "at", "retrieve", "compile", "answer", "explain", "feedback"}
    shared |= {"export", "import_"}
    names = {name for name in dir(Memory) if not name.startswith("_")}
    assert names - shared <= {*vars(ShardedMemory)}


def test_settings_that_shards_cannot_follow_are_refused(folder: Path) -> None:
    for name in ("rank.unique", "plan.use", "segment.retrieve"):
        with pytest.raises(ConfigError, match=rf"^{name}: expected false"):
            opened(folder, "r", **{name: True})
    with pytest.raises(ConfigError, match=r"^modes.use: expected none or kept .*got candidates"):
        opened(folder, "r", **{"modes.use": "candidates"})


# Bad input.


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    (path / "0001").rename(tmp_path / "elsewhere")
    for mode in ("r", "w"):
        with pytest.raises(StoreError, match=r"got none for shard 1; restore 0001"):
            opened(path, mode)


def test_a_shard_of_another_memory_is_named(tmp_path: Path) -> None:
    path, other = (folder_of(tmp_path / name, turns(60)) for name in ("m", "n"))
    (path / "0001").rename(tmp_path / "elsewhere")
    (other / "0001").rename(path / "0001")
    for mode in ("r", "w"):
        with pytest.raises(StoreError, match="shard 1: expected the store of this memory"):
            opened(path, mode)
    (path / "0001").rename(other / "0001")
    (other / "0000").rename(path / "0001")  # of another number
    with pytest.raises(StoreError, match="shard 1: expected"):
        opened(path, "r")


def test_one_id_in_two_shards_is_a_problem(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    with opened(path) as memory:
        many: Any = memory
        shard = next(each for each in many.shards if "a7" not in each)
        shard.add(Atom("a7", "An intruder", session="elsewhere"))
        assert any("id 'a7' is in the shards" in each for each in memory.check())


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(60))
    (path / "0002" / DATABASE_NAME).write_bytes(b"nothing of use" * 999)
    with pytest.raises(StoreDamagedError, match="0002"):
        opened(path, "r")


def test_a_shard_of_another_encoder_is_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(96))
    other = folder_of(tmp_path / "n", turns(96), embedder="hashing:32")
    (path / "0001").rename(tmp_path / "elsewhere")
    (other / "0001").rename(path / "0001")
    with pytest.raises(EmbedderError, match="shard 1: expected"):
        opened(path, "r")
    with pytest.raises(EmbedderError, match="shard 1: "):
        opened(path, embedder=None)


@pytest.mark.parametrize(
    "said", ["", "[]", '{"format": 1}', '{"format": 1, "shards": true, "rule": "", "id": ""}', "{"]
)
def test_a_bad_manifest_is_named(said: str, tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(12))
    (path / "shards.json").write_text(said)
    with pytest.raises(StoreError, match=r"shards\.json"):
        opened(path, "r")


def test_a_manifest_of_a_later_release_is_refused(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(12))
    said = json.loads((path / "shards.json").read_text())
    (path / "shards.json").write_text(json.dumps(said | {"format": 2}))
    with pytest.raises(StoreError, match="format 1, got 2"):
        opened(path, "r")


def test_the_number_of_shards_is_fixed(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(12))
    create_shards(path, S)  # there already
    with pytest.raises(InputError, match=r"shards: expected 3, .* got 5; the number is fixed"):
        create_shards(path, 5)
    with Memory.open(tmp_path / "one", config=config_of(), embedder="hashing"):
        pass
    with pytest.raises(InputError, match="holds one store"):
        create_shards(tmp_path / "one", 2)
    for wrong in (0, -1, 1.5, True, "3", 5000):
        with pytest.raises(InputError, match="shards"):
            create_shards(tmp_path / "new", wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_an_empty_memory_and_empty_shards_answer(tmp_path: Path) -> None:
    create_shards(tmp_path / "m", 5)
    with opened(tmp_path / "m") as memory:
        assert memory.retrieve("anything?").hits == () and len(memory) == 0
        memory.add(Atom("a", "The only canoe", session="s"))
        assert [hit.id for hit in memory.retrieve("canoe?").hits] == ["a"]
        memory.add(Atom("b", "The other canoe", session="t7"))
        assert {hit.id for hit in memory.retrieve("canoe?").hits} == {"a", "b"}


# The command line.


def test_index_makes_and_follows_shards(tmp_path: Path, capsys: Any) -> None:
    lines = tmp_path / "turns.jsonl"
    rows = [
        {"id": a.id, "text": a.text, "session": a.session, "speaker": a.speaker} for a in turns(60)
    ]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(8):
        (texts / f"t{i}.txt").write_text(f"Notes about the {WORDS[i]}.\n\nIt is number {i}.")
    store = str(tmp_path / "m")
    own = ["--embedder", "hashing", "--config.link.concepts", "pattern"]
    command = ["index", str(lines), str(texts), "--store", store, *own, "--json"]
    assert main([*command, "--shards", "3"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["new"] == 68 and len(done["added"]) == 9
    assert main(command) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["new"], done["known"], done["unchanged"]) == (0, 68, 9)
    (texts / "t3.txt").write_text("Notes about a walrus.")
    rows[5]["text"] = "The walrus is on the other line"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    assert main(command) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["replaced"] == 2 and done["deleted"] == 1
    with opened(tmp_path / "m", "r") as memory:
        assert len(memory) == 67
        assert {h.id for h in memory.retrieve("walrus", k=2).hits} >= {"a5"}
    assert main(["index", str(lines), "--store", store, "--shards", "4", *own]) != 0
    assert "shards: expected 3" in capsys.readouterr().err
    assert main(["index", "-", "--store", store, *own]) != 0
    assert "standard input" in capsys.readouterr().err
    lines.write_text(lines.read_text() + "{no JSON\n")
    assert main([*command, "--skip-bad"]) == 3
    assert len(json.loads(capsys.readouterr().out)["skipped"]) == 1, "named once, not by each shard"
    assert main(["query", "walrus", "--store", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"]
    for tree in (["store", "stats"], ["store", "check"], ["atoms", "list"], ["atoms", "get", "a5"]):
        assert main([*tree, "--store", store, "--json"]) == 0, tree
        assert json.loads(capsys.readouterr().out)
    assert main(["atoms", "forget", "a5", "a6", "a30", "--store", store, "--json"]) == 0
    assert sum(each["atoms"] for each in json.loads(capsys.readouterr().out)["receipts"]) == 3


def test_an_uneven_memory_is_reported(tmp_path: Path) -> None:
    path = folder_of(
        tmp_path / "m", [Atom(f"b{i}", f"Turn {i}", session="long") for i in range(40)]
    )
    with opened(path) as memory:
        told: Any = memory.stats()["shards"]
        assert told["largest_session"] == "long" and told["uneven"]
        memory.add([Atom(f"c{i}", f"Note {i}", session=f"s{i}") for i in range(200)])
        assert not memory.stats()["shards"]["uneven"]
