"""Moving in: what other programs store, as their packages wrote it, and files that are not whole.

`moved/` holds dumps of databases that chromadb 1.5.9, mem0ai 2.2.1 and langgraph-checkpoint-sqlite
3.1.2 wrote, and JSON of the models of graphiti-core 0.31.2, zep-cloud 4.0.1 and mem0ai. The agent
files and the dump of Postgres were written by hand after the published layouts.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers import MOVED_FORMATS
from graphmem_torch.readers.entities import read_graph
from graphmem_torch.readers.moving import read_moved
from tests.memories import ids, opened

HERE = Path(__file__).parent / "moved"
DATABASES = ("mem0", "langgraph", "chroma")
TEXTS = ("mem0.json", "zep.json", "graphiti.json", "letta.af", "letta_old.af", "langgraph_dump.sql")
FACT = "11111111-1111-4111-8111-111111111111"
NOW = datetime(2026, 11, 28, 6, 30, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def made(name: str, folder: Path) -> Path:
    """The database of a dump, or a copy of a text under a name that says nothing."""
    target = folder / "given"
    if name in DATABASES:
        with closing(sqlite3.connect(target)) as connection:
            connection.executescript((HERE / f"{name}.sql").read_text("utf-8"))
    else:
        shutil.copyfile(HERE / name, target)
    return target


def memory(**change: Any) -> Memory:
    return opened(**{"clock": lambda: NOW} | change)


def by_id(opened_memory: Memory) -> dict[str, Atom]:
    return {atom.id: atom for atom in opened_memory.list()}


@pytest.fixture(params=[*DATABASES, *TEXTS])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(request.param, tmp_path)


def test_imported_twice_is_imported_once(given: Path) -> None:
    with memory() as own:
        first = own.import_(given)
        assert first.new > 0 and own.import_(given).new == 0
        assert own.import_(given).known == first.new and own.check() == []
        spaces = sum(len(own.namespaces[name]) for name in own.namespaces)
        assert len(own) + spaces == first.new


def test_the_source_is_not_changed(given: Path) -> None:
    before = given.read_bytes(), given.stat().st_mtime_ns
    with memory() as own:
        own.import_(given)
    assert (given.read_bytes(), given.stat().st_mtime_ns) == before
    assert [*given.parent.iterdir()] == [given]


def test_mem0_history(tmp_path: Path) -> None:
    with memory() as own:
        added = own.import_(made("mem0", tmp_path))
        assert added.losses == {"earlier version": 1, "deleted memory": 1}
        fact, hello, reply = own.list()
        assert (fact.id, fact.text) == (
            FACT,
            "Likes blue canoes",
        )
        assert (fact.speaker, fact.time) == ("ada", at("2026-04-01T10:00:00+00:00"))
        assert fact.meta == {"role": "user", "created_at": "2026-03-01T10:00:00+00:00"}
        assert (hello.text, hello.speaker, hello.session) == ("Hello there", "ada", "user_id=ada")
        assert (reply.text, reply.speaker) == ("Hi", "assistant")


def test_mem0_json(tmp_path: Path) -> None:
    with memory() as own:
        assert own.import_(made("mem0.json", tmp_path)).losses == {}
        rows, code = own.list()
        assert (rows.session, rows.speaker, rows.time) == (
            "r1",
            "ada",
            at("2026-03-05T10:00:00+00:00"),
        )
        assert rows.meta == {
            "user_id": "ada",
            "agent_id": "helper",
            "role": "user",
            "topic": "sport",
            "created_at": "2026-03-01T10:00:00+00:00",
        }
        # mem0 shows it through the last day.
        assert code.expires == at("2030-02-01T00:00:00+00:00")
        assert ids(own.retrieve("rows", where={"meta.user_id": "ada"}, k=1)) == [rows.id]


def test_graphiti(tmp_path: Path) -> None:
    with memory() as own:
        added = own.import_(made("graphiti.json", tmp_path))
        assert added.losses == {
            "embedding of another encoder": 2,
            "link to an episode that is not in the file": 1,
            "entity without a summary": 1,
        }
        atoms = by_id(own)
        assert atoms["e1"].text == "ada: I moved to Lisbon" and atoms["n1"].title == "Ada"
        assert atoms["f1"].edges == (
            Link("e1", EdgeType.DERIVED_FROM),
            Link("n1", EdgeType.RELATED_TO),
        )
        assert atoms["f1"].meta["source"] == "Ada" and atoms["f1"].meta["target"] == "Lisbon"
        spans = own.facts.validity(["f0", "f1"])
        assert (spans["f0"].start, spans["f0"].stop) == (
            at("2024-01-01T00:00:00+00:00"),
            at("2026-01-01T00:00:00+00:00"),
        )
        assert (spans["f1"].start, spans["f1"].stop) == (at("2026-01-01T00:00:00+00:00"), None)
        # The end was not known before the second of January.
        before = own.facts.validity("f0", as_of="2026-01-01T12:00:00Z")["f0"]
        assert before.stop is None
        then = own.at(valid_at="2025-06-01").retrieve("Where does Ada live?")
        assert "f0" in ids(then) and "f1" not in ids(then)


def test_zep(tmp_path: Path) -> None:
    with memory() as own:
        assert own.import_(made("zep.json", tmp_path)).losses == {}
        atoms = by_id(own)
        assert (atoms["p1"].speaker, atoms["p1"].session) == ("Ben", "t1")
        assert (atoms["z1"].event_time, atoms["z1"].event_end) == (
            at("2026-01-15T00:00:00+00:00"),
            at("2026-05-01T00:00:00+00:00"),
        )
        assert atoms["z1"].meta["source"] == "Ben" and atoms["b"].kind == "entity"


def test_letta(tmp_path: Path) -> None:
    with memory() as own:
        added = own.import_(made("letta.af", tmp_path))
        assert added.losses == {
            "system prompt": 1,
            "system message": 1,
            "reasoning": 1,
            "tool call": 1,
            "tool message": 1,
            "tool result": 1,
            "heartbeat message": 1,
            "environment variable": 1,
            "memory without text": 1,
            "file": 1,
            "tool": 2,
        }
        turns = [(a.speaker, a.text, a.session) for a in own.list() if a.kind == "turn"]
        assert turns == [
            ("user", "My canoe is red", "Sam"),
            ("assistant", "I will note that", "Sam"),
            ("assistant", "A red canoe, then", "Sam"),
        ]
        (block,) = (atom for atom in own.list() if atom.kind == "block")
        assert (block.title, block.text) == ("human", "First name: Ada. Rows a red canoe.")
        assert block.meta == {"agents": ["Sam"], "description": "Facts about the person"}
    with memory() as own:
        added = own.import_(made("letta_old.af", tmp_path))
        assert added.losses == {"embedding of another encoder": 1, "system prompt": 1}
        assert {atom.text for atom in own.list()} == {
            "Ben plays the violin",
            "Ben was born in Lisbon",
            "Good evening",
        }


def test_langgraph(tmp_path: Path) -> None:
    with memory() as own:
        assert own.import_(made("langgraph", tmp_path)).losses == {}
        likes, code, note = own.list()
        assert likes.meta["namespace"] == ["users", "ada"] and likes.meta["key"] == "likes"
        assert likes.meta["value"] == {"text": "Ada likes red canoes", "n": 3.5}
        assert (code.expires, code.ttl) == (at("2026-11-28T07:09:45.547364+00:00"), 3600.0)
        assert note.text == "title: Violin\ntext: The violin is old"
    with memory(clock=lambda: NOW + 3600) as own:  # the guest code has expired
        assert own.import_(tmp_path / "given").losses == {"expired memory": 1}
        assert len(own) == own.store.num_atoms == 2


@pytest.mark.parametrize(
    ("minutes", "expires", "kept", "ttl", "loss"),
    [
        (60.0, "2030-01-01 00:00:00+00:00", True, 3600.0, ""),
        (0.5, "2030-01-01 00:00:00+00:00", True, 30.0, ""),
        (0, "2026-11-28 06:09:45+00:00", False, None, "expired memory"),
        (0.0, "2026-11-28 06:09:45.5+00:00", False, None, "expired memory"),
        (-5, "2026-11-28 06:04:45+00:00", False, None, "expired memory"),
        (-0.001, "2026-11-28 06:09:44+00:00", False, None, "expired memory"),
        (float("-inf"), "2026-11-28 06:09:44+00:00", False, None, "expired memory"),
        (0, "2030-01-01 00:00:00+00:00", True, None, ""),
        (0, None, True, None, ""),
        (-5, None, True, None, ""),
        (None, "2030-01-01 00:00:00+00:00", True, None, ""),
        (float("inf"), "2030-01-01 00:00:00+00:00", True, None, "time to live that cannot be read"),
        (1e30, "2030-01-01 00:00:00+00:00", True, None, "time to live that cannot be read"),
        ("soon", "2030-01-01 00:00:00+00:00", True, None, "time to live that cannot be read"),
        ("", "2030-01-01 00:00:00+00:00", True, None, "time to live that cannot be read"),
    ],
)
def test_the_time_to_live_of_a_row_of_langgraph(
    tmp_path: Path, minutes: Any, expires: str | None, kept: bool, ttl: float | None, loss: str
) -> None:
    source = made("langgraph", tmp_path)
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE store SET ttl_minutes = ?, expires_at = ? WHERE key = 'k'", (minutes, expires)
        )
    with memory() as own:
        assert own.import_(source).losses == ({loss: 1} if loss else {})
        found = [atom for atom in own.list() if atom.meta["key"] == "k"]
        assert len(own) == 2 + kept == 2 + len(found)
        assert [atom.ttl for atom in found] == [ttl] * kept
        assert [atom.expires for atom in found] == [at(expires) if expires else None] * kept


def test_langgraph_dump(tmp_path: Path) -> None:
    with memory() as own:
        added = own.import_(made("langgraph_dump.sql", tmp_path))
        assert added.losses == {"embedding of another encoder": 1}
        likes, tab = own.list()
        assert likes.meta["value"] == {"text": 'Ada says "red"\nand more'}
        assert likes.time == at("2026-03-02T10:00:00+00:00")
        assert (tab.text, tab.ttl, tab.expires) == ("a\tb", 3600.0, at("2030-01-01T00:00:00+00:00"))


def test_chroma(tmp_path: Path) -> None:
    with memory() as own:
        added = own.import_(made("chroma", tmp_path))
        assert added.losses == {"embedding of another encoder": 6, "memory without text": 1}
        assert sorted(own.namespaces) == ["notes", "other"] and len(own) == 0
        notes = own.namespaces["notes"]
        assert {atom.id: atom.text for atom in notes.list()} == {
            "n1": "The canoe is red",
            "n2": "The violin is new",
            "n3": "Third",
        }
        assert notes.get("n1").meta == {"page": 3, "draft": True, "score": 0.5, "who": "Ada"}
        assert own.namespaces["other"].get("arr").meta == {"tags": ["x", "y"]}
        with pytest.raises(InputError, match="memory of its own"):
            notes.import_(tmp_path / "given")
    # One collection goes into the memory itself, also from the folder of the database.
    with closing(sqlite3.connect(tmp_path / "given")) as connection:
        connection.execute("DELETE FROM collections WHERE name = 'other'")
        connection.commit()
    (tmp_path / "given").rename(tmp_path / "chroma.sqlite3")
    with memory() as own:
        assert own.import_(tmp_path).new == 3 and sorted(by_id(own)) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_in_use_is_read_as_it_was_committed(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path)
    table = {"mem0": "history", "langgraph": "store", "chroma": "embeddings"}[name]
    with memory() as own:
        wanted = own.import_(source).new
    for mode in ("WAL", "DELETE"):
        with closing(sqlite3.connect(source, isolation_level=None)) as writer:
            writer.execute(f"PRAGMA journal_mode = {mode}")
            writer.execute("CREATE TABLE IF NOT EXISTS other (x)")
            writer.execute("INSERT INTO other VALUES (1)")  # lies in the log of a WAL database
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute(f"DELETE FROM {table}")
            beside = sorted(each.name for each in tmp_path.iterdir())
            held = source.read_bytes()
            with memory() as own:
                assert own.import_(source).new == wanted
            assert source.read_bytes() == held
            assert sorted(each.name for each in tmp_path.iterdir()) == beside
            writer.execute("ROLLBACK")


def refused(path: Path, says: str, **options: Any) -> None:
    """One line says why, and nothing is stored."""
    with memory() as own:
        with pytest.raises(InputError, match=says) as raised:
            own.import_(path, **options)
        said = str(raised.value)
        assert "\n" not in said and ("expected" in said or "other content; " in said)
        assert own.store.num_nodes == 0 and not [*own.namespaces]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_was_cut_off_stores_nothing(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path)
    whole = source.read_bytes()
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9):
        source.write_bytes(whole[: int(len(whole) * share)])
        refused(source, "cut off|expected an export of graphmem|expected JSON")


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_that_was_cut_off_stores_nothing(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path)
    whole = source.read_bytes()
    for length in (16, 50, 100, 4096, len(whole) // 2, len(whole) - 1):
        source.write_bytes(whole[:length])
        refused(source, "cut off")
    source.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    refused(source, "cannot be read|expected")


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_with_a_damaged_page_stores_nothing(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path)
    whole = source.read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    for start in range(size, len(whole), size):
        source.write_bytes(whole[:start] + bytes(size) + whole[start + size :])
        refused(source, "expected a whole SQLite database, got one that cannot be read")


def test_texts_that_are_no_memories(tmp_path: Path) -> None:
    source = tmp_path / "given"
    for content, says in [
        (b"", "empty file"),
        (b"  \n", "empty file"),
        (b"\xff\xfe[\x00", "UTF-16"),
        (b'{"results": [{"id": "a", "memory": "caf\xe9"}]}', "UTF-8"),
        (b"Dear diary", "got 'Dear diary'; `graphmem index` reads texts"),
        (b"PGDMP\x01\x0e", "--format=plain"),
        (b"\x00\x01\x02", "binary"),
        (b'{"some": "thing"}', "got JSON of some"),
        (b"[1, 2]", "got JSON of 2 entries"),
        (b'{"text": "a"}\n{"text": "b"}\n', "got JSON of 2 entries; `graphmem index`"),
        (b'{"id": "a", "memory": "x"}\n{"id": "b", "mem', ":2: expected JSON"),
        (b"[]", "got JSON of 0 entries"),
        (b"{}", "got JSON of no keys"),
        (b"[" * 100_000, "expected JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "expected JSON"),
        (b'{"agents": {}, "blocks": []}', "got JSON of agents, blocks"),
        (b'{"edges": [{"uuid": "a", "fact": "x"}, {"fact": "y"}]}', "got JSON of edges"),
        (b'{"results": [{"id": "a", "memory": "x", "metadata": 5}]}', "layout"),
        (b'{"edges": [{"uuid": "a", "fact": "x", "episodes": 7}]}', "layout"),
        (b'{"agents": [{"messages": [7]}], "blocks": []}', "layout"),
        (b'{"results": [{"id": "a", "memory": "x", "actor_id": 5}]}', "speaker: expected a string"),
    ]:
        source.write_bytes(content)
        refused(source, says)
    refused(tmp_path / "none", "no such file|No such file|expected")
    refused(tmp_path, "expected")
    refused(source, "format", format="mem1")
    source.write_bytes((HERE / "zep.json").read_bytes())
    refused(source, "memories of mem0, got JSON of edges, episodes, nodes", format="mem0")


def test_newer_and_other_databases(tmp_path: Path) -> None:
    for name, change, says in [
        ("langgraph", "INSERT INTO store_migrations VALUES (9)", "at most migration 4, got 9"),
        ("langgraph", "ALTER TABLE store RENAME COLUMN value TO data", "a database with store"),
        ("langgraph", "UPDATE store SET value = '[1]' WHERE key = 'k'", "expected an object"),
        ("langgraph", "UPDATE store SET value = '{' WHERE key = 'k'", "expected JSON"),
        (
            "chroma",
            "UPDATE migrations SET version = 99 WHERE version = 10",
            "of sysdb, got 99",
        ),
        ("chroma", "ALTER TABLE embeddings RENAME TO records", "a database with"),
        ("mem0", "ALTER TABLE history RENAME COLUMN new_memory TO text", "history, messages"),
    ]:
        source = made(name, tmp_path)
        with closing(sqlite3.connect(source, isolation_level=None)) as connection:
            connection.execute(change)
        refused(source, says)
        source.unlink()
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("CREATE TABLE cats (name)")
    refused(source, "a database with cats; `graphmem index` reads")


def test_nothing_is_stored_beside_other_content(tmp_path: Path) -> None:
    source = made("mem0", tmp_path)
    with memory() as own:
        own.add({"id": FACT, "text": "Another text"})
        with pytest.raises(InputError, match="stored already with other content"):
            own.import_(source)
        assert len(own) == 1


def test_a_line_for_each_memory(tmp_path: Path) -> None:
    source = tmp_path / "given"
    listed = json.loads((HERE / "mem0.json").read_text("utf-8"))["results"]
    source.write_text("\n".join(map(json.dumps, listed)))
    with memory() as own:
        assert own.import_(source).new == 2


def test_an_id_that_comes_twice_stores_nothing(tmp_path: Path) -> None:
    source = tmp_path / "given"
    page = json.loads((HERE / "mem0.json").read_text("utf-8"))
    page["results"].append(dict(page["results"][0]))
    source.write_text(json.dumps(page))
    with memory() as own:
        assert own.import_(source).new == 2
    page["results"][-1]["memory"] = "Another text"
    source.write_text(json.dumps(page))
    refused(source, "is given twice, with other content; delete one of the two from the file")


def test_odd_fields_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "given"
    facts = [
        {"uuid": "a", "fact": "Ends early", "valid_at": "2026-02-01", "invalid_at": "2026-01-01"},
        {"uuid": "b", "fact": "No time", "valid_at": "soon", "created_at": ""},
        {"uuid": "c", "fact": " "},
        {"uuid": "d", "fact": "Half \ud800"},
        {"uuid": "e", "fact": "Known late", "valid_at": "2026-02-01", "expired_at": "2026-03-01"},
    ]
    source.write_text(json.dumps(facts))
    with memory() as own:
        added = own.import_(source)
        assert added.new == 4 and len(added.losses) == 4
        assert added.losses["end of a fact before its beginning"] == 1
        assert added.losses["time that cannot be read"] == 1
        assert added.losses["memory without text"] == 1
        assert own.facts.validity("e")["e"].stop == at("2026-03-01T00:00:00+00:00")


def test_the_format_is_told_by_content_alone() -> None:
    for name in MOVED_FORMATS:  # each is one that can be asked for
        with pytest.raises(InputError, match=r"chroma\.sqlite3"):  # of a folder
            read_moved(HERE / "..", name)
    for name in TEXTS:
        found = read_moved(HERE / name)
        own = {"graphiti": "zep", "letta_old": "letta", "langgraph_dump": "langgraph"}
        stem = name.partition(".")[0]
        again = read_moved(HERE / name, own.get(stem, stem))
        assert found.spaces == again.spaces and found.losses == again.losses


def test_a_graph_of_the_reference_memory_server(tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["plays cello"]},
        {"type": "entity", "name": "Oslo", "entityType": "town", "observations": []},
        {"type": "relation", "from": "Ada", "to": "Oslo", "relationType": "lives in"},
    ]
    for count in (1, 3):  # one line is also JSON
        file = tmp_path / "memory.txt"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines[:count]), "utf-8")
        by_command = list(read_graph(file.read_bytes().splitlines(keepends=True), ""))
        for format in (None, "mcp"):
            assert read_moved(file, format).spaces == {None: by_command}
    with opened(tmp_path / "store") as memory:
        assert memory.import_(file).new == 4
        assert memory.import_(file).new == 0
    file.write_text(json.dumps(lines[0]) + '\n{"type": "entity", "name": "B', "utf-8")
    with opened(tmp_path / "store") as memory:
        with pytest.raises(InputError, match=":2"):
            memory.import_(file)
        assert len(memory) == 4
