"""`export` and `import_`: what goes out comes back, and what was cut is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Added, Memory
from graphmem_torch.memory.writer import Writer
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import QUESTIONS, Counting, opened, plain, turns

ODD = [
    Atom("", "no id", kind="own kind", speaker="", session="", time=5, event_time=-7.5),
    Atom(
        "ö\n ",
        " Zürich\u2028\n\ttwo lines ",
        type="procedural",
        meta={"a.b": {"": [1, 2.5, None, True, "\x00\ud7ff"]}, "n": 2**70},
        edges=(Link("a3", EdgeType.SUPPORTS, 2), Link("later", EdgeType.CONTRADICTS, 0.1)),
    ),
    Atom("later", "comes later", type="semantic", time=-62_135_596_800.0),
]


def filled(path: Path | None = None) -> Memory:
    memory = opened(path)
    memory.add([*turns(), replace(ODD[0], id="odd"), *ODD[1:]])
    memory.graph.connect(
        [("a1", "a9", "supports", 0.3), ("a2", "a8", "similarity"), ("a5", "later")]
    )
    memory.pin(["a4", "odd"])
    memory.unpin("ö\n ")
    memory.upkeep.classify(ids=["a0", "a1"])
    memory.upkeep.classify(lambda texts: [answer(text) for text in texts], ids=["a2", "a3"])
    return memory


def answer(text: str) -> dict[str, Any]:
    return {"content": text, "type": "episodic", "decay_factor": 0.25}


def content(memory: Memory) -> dict[str, Any]:
    """All that is to come back, by ids."""
    store = memory.store
    columns, names = store.columns(), store.ids()
    ids = dict(zip(columns.node.tolist(), names, strict=True))
    block = store.edges()
    edges = {
        (ids[source], ids[target], kind, weight)
        for source, target, kind, weight in zip(*(c.tolist() for c in block.columns), strict=True)
    }
    return {
        "atoms": store.atoms(columns.node.tolist()),
        "digests": [digest for _, digest in store.known(names).values()],
        "edges": edges,
        "pins": {(ids[node], value) for node, value in store.life.pins()},
        "types": {(ids[node], *rest) for node, *rest in store.life.found_types()},
    }


@pytest.mark.parametrize("vectors", [False, True])
def test_what_is_exported_comes_back(tmp_path: Path, vectors: bool) -> None:
    file, again = tmp_path / "all.jsonl", tmp_path / "again.jsonl"
    with filled() as memory:
        assert memory.export(file, vectors=vectors) == 27
        whole, found = content(memory), plain(memory.retrieve(QUESTIONS))
        embeddings, tokens = memory.store.embeddings(), memory.store.tokens()
    encoder = Counting()
    with opened(embedder=encoder) as memory:
        assert memory.import_(file) == Added(27, 0)
        assert {text for text in encoder.seen if ": " in text} == (
            set() if vectors else {a.rendered for a in turns()}
        )
        assert content(memory) == whole
        assert plain(memory.retrieve(QUESTIONS)) == found
        assert memory.check() == []
        assert torch.equal(memory.store.embeddings(), embeddings)
        packed = memory.store.tokens()
        if tokens is not None and packed is not None:
            assert all(map(torch.equal, packed, tokens))
        assert memory.import_(file) == Added(0, 27)
        assert content(memory) == whole
        memory.export(again, vectors=vectors)
    assert again.read_bytes() == file.read_bytes()
    assert list(tmp_path.glob("*.partial")) == []


# What JSON, lines and SQLite may take for their own, and letters of one to four bytes.
words = st.text(
    "aZ09 \0\t\n\r\v\x1b\"'\\/{}[],:\x7f\x85\u2028\u2029é\u0301٣中\ufeff\uffff\U0001f600\U0010ffff",
    max_size=9,
)
names = words.map(lambda name: name.replace("\0", ""))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
seconds = st.none() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9)
links = st.builds(Link, names, st.sampled_from(EdgeType), st.none() | st.floats(-1e3, 1e3))
some_atoms = st.builds(
    Atom,
    names.filter(lambda name: bool(name) and not name.startswith("concept:")),
    words.filter(lambda text: bool(text.strip())),
    kind=st.sampled_from(["turn", "my kind"]),
    speaker=st.none() | words,
    session=st.none() | names,
    time=seconds,
    event_time=seconds,
    type=st.sampled_from([None, "procedural", "working"]),
    meta=st.dictionaries(words, words | values, max_size=3),
    edges=st.lists(links, max_size=2).map(tuple),
)


@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(atoms=st.lists(some_atoms, max_size=6, unique_by=lambda atom: atom.id))
def test_any_memory_comes_back(tmp_path: Path, atoms: list[Atom]) -> None:
    with opened() as memory, opened() as copy:
        memory.add(atoms)
        memory.export(tmp_path / "x")
        copy.import_(tmp_path / "x")
        assert content(copy) == content(memory)
        assert copy.get([atom.id for atom in atoms]) == atoms


@pytest.mark.parametrize("vectors", [False, True])
def test_versions_come_back(tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the import is interrupted behind each of its steps, and repeated."""
    files = tmp_path / "one", tmp_path / "two"
    with opened() as memory:
        memory.add(turns(9))
        memory.update("a3", text="The canoe of Quentin sank")
        memory.add(turns(14)[9:])
        memory.update("a3", text="It did not sink", meta={"page": 7})
        memory.update("a12", speaker="Eve")
        memory.pin("a3")
        memory.export(files[0], vectors=vectors)
        lives = {name: memory.facts.versions(name) for name in ("a3", "a12", "a5")}
        between = lives["a3"][1].since
        answers = [plain(memory.at(as_of=when).retrieve(QUESTIONS)) for when in (None, between)]
    update, allowed = Writer.update, 0

    def stopping(writer: Writer, *arguments: Any) -> Atom:
        nonlocal allowed
        if not allowed:
            raise StoreError("full")
        allowed -= 1
        return update(writer, *arguments)

    monkeypatch.setattr(Writer, "update", stopping)
    with opened() as memory:
        for more in (0, 1, 1):
            allowed = more
            with pytest.raises(StoreError, match="full"):
                memory.import_(files[0])
        allowed = 9
        assert memory.import_(files[0]).known == 13
        assert {name: memory.facts.versions(name) for name in lives} == lives
        assert memory.pinned() == ["a3"] and memory.check() == []
        memory.export(files[1], vectors=vectors)
        one, two = ([json.loads(line) for line in f.read_text().splitlines()[:-1]] for f in files)
        assert [each for each in one if "atom" in each] == [each for each in two if "atom" in each]
        edges = [{tuple(e["edge"][:3]): e["edge"][3] for e in f if "edge" in e} for f in (one, two)]
        assert edges[0] == pytest.approx(edges[1], rel=1e-5)  # cosines are rounded
        found = [plain(memory.at(as_of=when).retrieve(QUESTIONS)) for when in (None, between)]
        assert found == answers
        memory.update("a3", text="another")
        with pytest.raises(InputError, match="'a3' is stored already with other content"):
            memory.import_(files[0])


def test_import_into_a_store_that_has_some_of_it(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    with filled() as memory:
        memory.export(file)
        whole = content(memory)
    with opened(tmp_path / "m") as memory:
        memory.add(turns(9))
        memory.unpin("a4")
        assert memory.import_(file) == Added(18, 9)
        assert set(memory.pinned()) == {"odd"}, "what was said of it here stays"
        assert {a.id: a for a in content(memory)["atoms"]} == {a.id: a for a in whole["atoms"]}
        ours, theirs = ({e[:3] for e in each["edges"]} for each in (content(memory), whole))
        assert ours == theirs and len(content(memory)["edges"]) == len(whole["edges"])
    with opened(tmp_path / "other") as memory:
        memory.add(replace(turns(9)[8], text="Something else."))
        with pytest.raises(InputError, match=rf"^{file}:10: atom 'a8' is stored already with"):
            memory.import_(file)
        memory.export(tmp_path / "part.jsonl")
    with opened(tmp_path / "m", mode="r") as memory, pytest.raises(StoreError):
        memory.import_(file)


def test_vectors_of_another_encoder_are_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(embedder=HashingEmbedder(16)) as memory:
        memory.add(turns(3))
        memory.export(tmp_path / "x", vectors=True)
    with opened() as memory, caplog.at_level(logging.WARNING):
        memory.import_(tmp_path / "x")
        assert "the texts are encoded anew" in caplog.text
        expected = HashingEmbedder(32).encode([atom.rendered for atom in turns(3)]).pooled
        assert torch.equal(memory.store.embeddings()[:3], expected)


def test_import_of_no_path() -> None:
    with opened() as memory:
        for wrong in (5, None, ["x"]):
            with pytest.raises(InputError, match="path: expected the path of a file"):
                memory.import_(wrong)  # type: ignore[arg-type]


def test_export_of_nothing(tmp_path: Path) -> None:
    with opened() as memory, opened() as other:
        assert memory.export(tmp_path / "x") == 0
        assert other.import_(tmp_path / "x") == Added(0, 0)


def test_export_that_was_cut_or_changed_is_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with filled() as memory:
        memory.export(file)
    data = file.read_bytes()
    lines = data.splitlines(keepends=True)
    count = len(lines)

    def refused(changed: bytes) -> str:
        file.write_bytes(changed)
        with opened() as memory:
            with pytest.raises(InputError) as caught:
                memory.import_(file)
            assert memory.store.num_nodes == 0
        return str(caught.value).removeprefix(str(file))

    assert refused(b"".join(lines[:9])).startswith(":9: expected the line that ends an export")
    assert "ends inside line 10;" in refused(b"".join(lines[:9]) + lines[9][:30])
    assert f"ends inside line {count - 1};" in refused(b"".join(lines[:-1])[:-1])
    assert refused(data[:-20]).startswith(f":{count}: expected")
    assert refused(b"".join(lines[:4] + lines[5:])).startswith(f":{count - 1}: expected the lines")
    assert refused(data.replace(b"canoe", b"kayak")).startswith(f":{count}: expected the lines")
    assert refused(data + data).startswith(f":{count + 1}: expected the end")
    assert refused(b"").startswith(": expected text, got an empty file")
    assert refused(b'{"text": "a"}\n').startswith(": expected an export of graphmem, or memories")
    later = json.dumps({"graphmem": "export", "version": 3}).encode() + b"\n"
    assert refused(later).startswith(":1: expected an export of version 2, got 3; upgrade")
    with opened() as memory, pytest.raises(InputError, match="got: No such file"):
        memory.import_(tmp_path / "nowhere")


def test_lines_that_no_export_has_are_refused_with_a_right_checksum(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with opened() as memory:
        memory.add(turns(3))
        memory.export(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()[:-1]]

    def refused(first: dict[str, Any] | None, *more: dict[str, Any]) -> str:
        told = [{**lines[0], **(first or {})}, *lines[1:], *more]
        body = "".join(json.dumps(each) + "\n" for each in told)
        end = {"lines": len(told), "sha256": hashlib.sha256(body.encode()).hexdigest()}
        file.write_text(body + json.dumps({"end": end}) + "\n")
        with opened() as memory, pytest.raises(InputError, match=str(file)) as caught:
            memory.import_(file)
        return str(caught.value)

    for header in ({"namespaces": "1"}, {"namespaces": -1}, {"atoms": "many"}, {"atoms": None}):
        assert "numbers of memories" in refused(header)
    for one, other, kind, weight in (
        ("a0", "a1", "supports", "much"),
        ("a0", 1, "supports", 0.5),
        ("a0", "a1", None, 0.5),
    ):
        assert "expected an edge" in refused(None, {"edge": [one, other, kind, weight]})
    assert "not in the store" in refused(None, {"edge": ["a0", "nobody", "supports", 0.5]})
    for said in (
        ["a0", 1, 2, None, "nan"],
        ["a0", 1, 2, None, "inf"],
        ["a0", 1, 2, None, 1e300],
        ["a0", "nan", 2, None, 5],
        ["a0", 1, 1e300, None, 5],
        ["a0", 1, 2, 5, 5],
        ["a0", 1],
    ):
        assert "expected a validity" in refused(None, {"validity": said})
    question = {"question": "What?", "used": ["a0"], "not_used": ["a1"]}
    assert "expected feedback" in refused(None, {"feedback": {**question, "time": "nan"}})
    atom = {"id": "new", "text": "Something else."}
    for fields, line in (
        ({"until": 1e300}, {}),
        ({"found_type": ["semantic", 1e999, "x"]}, {}),
        ({}, {"text": None}),
        ({}, {"meta": {"a": 1e999}}),
        ({}, {"event_time": 9, "event_end": 8}),
        ({}, {"id": "a\0"}),
    ):
        more = {"atom": {**atom, **line}, **fields}
        told = refused(None, json.loads(json.dumps(more).replace("Infinity", "1e999")))
        assert told.startswith(f"{file}:")


def test_an_export_replaces_files_alone(tmp_path: Path) -> None:
    """Neither what is no file, nor the store, nor what a link leads to that is in the way."""
    target, other = tmp_path / "x.jsonl", tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "x.jsonl.partial").symlink_to(other)
    (tmp_path / "link").symlink_to(target)
    with opened(tmp_path / "m") as memory:
        memory.add(turns(3))
        assert memory.export(target) == 3
        target.write_text("")
        assert memory.export(tmp_path / "link") == 3
        (tmp_path / "in").symlink_to(tmp_path / "m")
        for wrong in ("m/memory.sqlite", "m/new", "in/new", "m", "in"):
            with pytest.raises(InputError, match="outside of the store"):
                memory.export(tmp_path / wrong)
        for wrong in (tmp_path, Path("/dev/null")):
            with pytest.raises(InputError, match="name a file"):
                memory.export(wrong)
    assert other.read_text() == "mine" and target.stat().st_size > 0
    assert (tmp_path / "link").is_symlink() and list(tmp_path.glob("*.partial")) == []


def test_a_failing_export_leaves_the_file_of_before(tmp_path: Path) -> None:
    with filled() as memory:
        memory.export(tmp_path / "x")
        before = (tmp_path / "x").read_bytes()
        memory.close()
        with pytest.raises(StoreError, match="closed"):
            memory.export(tmp_path / "x")
        with pytest.raises(InputError, match=str(tmp_path / "no" / "x")):
            memory.export(tmp_path / "no" / "x")
    assert (tmp_path / "x").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_export_to_what_is_no_stream_of_text(tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    with opened() as memory, (tmp_path / "b").open("wb") as binary:
        memory.add(turns(3))
        for wrong in (io.BytesIO(), binary, closed, None, 7):
            with pytest.raises(InputError, match="path: expected a file, or an open stream"):
                memory.export(wrong)  # type: ignore[arg-type]
        with gzip.open(tmp_path / "e.gz", "wt", encoding="utf-8") as packed:
            assert memory.export(packed) == 3
        with opened() as other:
            assert other.import_(tmp_path / "e.gz").new == 3
            assert [*other] == [*memory]


def test_importing_again_adds_no_feedback_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with opened() as memory, opened() as other:
        memory.add(turns(6))
        memory.feedback(QUESTIONS[0], used=["a1"], not_used=["a2"])
        memory.export(file)
        counts = memory._state.store.learned.counts()
        for target in (other, other, memory):
            target.import_(file)
            assert target._state.store.learned.counts() == counts
        other.feedback(QUESTIONS[0], used=["a2"])
        memory.feedback(QUESTIONS[0], used=["a3"])
        memory.export(file)
        other.import_(file)  # says more than what is there
        assert other._state.store.learned.counts()["questions"] == 3
