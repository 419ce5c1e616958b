"""`memory.jsonl` of the MCP reference memory server: read whole or not at all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.integrations.knowledge_graph import KnowledgeGraph
from graphmem_torch.readers import read_atoms
from graphmem_torch.readers.entities import read_graph
from graphmem_torch.text.tokens import WordTokenizer
from tests.memories import opened

ALICE = {
    "type": "entity",
    "name": "Alice",
    "entityType": "person",
    "observations": ["likes tea", "speaks Greek", "likes tea", " "],
}
ACME = {"type": "entity", "name": "Acme\nLtd", "entityType": "", "observations": []}
AGAIN = {**ALICE, "observations": ["owns a canoe"]}
WORKS = {"type": "relation", "from": "Alice", "to": "Acme\nLtd", "relationType": "works_at"}
ALONE = {"type": "relation", "from": "Nobody", "to": "Nowhere", "relationType": ""}


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in records).encode()


def read(data: bytes) -> list[Atom]:
    return [*read_graph(data.splitlines(keepends=True), "memory.jsonl")]


def graph_of(path: Path) -> dict[str, Any]:
    with opened() as memory:
        memory.add_files(path)
        return KnowledgeGraph(memory).read()


def untyped(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "type"}


WHOLE = lines(WORKS, ALICE, ACME, AGAIN, ALONE)


@pytest.mark.parametrize(
    "data",
    [
        WHOLE,
        WHOLE + b"\n",
        b"\n\n" + WHOLE.replace(b"\n", b"\n \n"),
        WHOLE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + WHOLE,
    ],
    ids=["plain", "line end", "blank lines", "carriage returns", "byte order mark"],
)
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_a_graph_is_found_by_its_content(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"memory.{suffix}"
    path.write_bytes(data)
    assert graph_of(path) == {
        "entities": [untyped(each) for each in (ALICE, ACME, AGAIN)],
        "relations": [untyped(each) for each in (WORKS, ALONE)],
    }


def test_atoms_of_a_graph() -> None:
    atoms = read(WHOLE)
    assert len({atom.id for atom in atoms}) == len(atoms) == 10
    assert [atom.kind for atom in atoms].count("observation") == 5
    alice, tea, greek = atoms[:3]
    assert (alice.text, alice.edges, alice.time) == ("Alice (person)", (), None)
    assert (tea.text, tea.title) == ("likes tea", "Alice")
    assert [(link.target, link.type) for link in greek.edges] == [(alice.id, EdgeType.DERIVED_FROM)]
    works, alone = atoms[-2:]
    assert works.text == "Alice works at Acme\nLtd"
    assert [link.target for link in works.edges] == [alice.id, atoms[5].id]
    assert (alone.text, alone.edges) == ("Nobody  Nowhere", ())
    assert read(WHOLE) == atoms
    assert all(atom in atoms for atom in read(lines(ALICE, AGAIN)))  # whatever else there is


def test_a_file_cut_anywhere_stores_whole_lines_or_nothing(tmp_path: Path) -> None:
    ends = {at for at in range(len(WHOLE) + 1) if at == len(WHOLE) or WHOLE[at : at + 1] == b"\n"}
    ends |= {at + 1 for at in ends if at < len(WHOLE)}
    first = WHOLE.index(b"\n")
    for at in range(first, len(WHOLE) + 1):
        if at in ends:
            assert read(WHOLE[:at])
            continue
        with pytest.raises(InputError, match=r"^memory.jsonl:\d: .*expected .*nothing of it"):
            read(WHOLE[:at])
    path = tmp_path / "memory.jsonl"
    with opened() as memory:
        for at in (20, first - 5, len(WHOLE) - 9):
            path.write_bytes(WHOLE[:at])
            with pytest.raises(InputError, match=r"memory\.jsonl:\d: expected JSON, got"):
                memory.add_files(path)
            assert len(memory) == 0
        path.write_bytes(WHOLE)
        assert memory.add_files(path).new == 10
        assert memory.add_files(path).unchanged == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"type": "entity", "entityType": "x", "observations": []}, "name: expected a text, got N"),
        ({**ALICE, "name": 5}, "name: expected a text, got 5"),
        ({"type": "entity", "name": "B", "observations": []}, "entityType: expected a text"),
        ({"type": "entity", "name": "B", "entityType": "x"}, "observations: expected a list"),
        ({**ALICE, "observations": "tea"}, "observations: expected a list of texts, got 'tea'"),
        ({**ALICE, "observations": [1]}, "observations: expected a list of texts, got .1"),
        ({"type": "relation", "from": "B", "relationType": "x"}, "to: expected a text, got None"),
        ([1], "expected an entity or a relation, got .1"),
        (None, "expected an entity or a relation, got None"),
        ("text", "expected an entity or a relation, got 'text'"),
    ],
)
def test_a_bad_line_stores_nothing(tmp_path: Path, line: Any, message: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_bytes(lines(ACME, line, ALICE))
    with opened() as memory:
        with pytest.raises(InputError, match=rf"memory\.jsonl:2: {message}") as caught:
            memory.add_files(path)
        assert len(memory) == 0 and "\n" not in str(caught.value)
        assert memory.add_files(path, skip_bad=True).new == 0


def test_other_lines_are_counted() -> None:
    losses: Counter[str] = Counter()
    data = lines(ALICE, {"type": "note", "x": 1}, {"text": "y"})
    atoms = [*read_graph(data.splitlines(), "m", losses=losses)]
    assert len(atoms) == 5
    assert losses == {"line that is neither entity nor relation": 2}


def test_json_lines_that_begin_otherwise_are_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(lines({"text": "Alice", "type": "semantic"}, {"text": "relation"}))
    (tmp_path / "entity.txt").write_bytes(lines(ALICE))
    atoms = [*read_atoms([tmp_path], tokenizer=WordTokenizer())]
    assert sorted(atom.kind for atom in atoms) == ["chunk"] * 3


def test_a_graph_is_merged_with_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_bytes(lines(AGAIN, WORKS))
    with opened() as memory:
        graph = KnowledgeGraph(memory)
        graph.create_entities([untyped(ALICE)])
        memory.add_files(path)
        (alice,) = graph.read()["entities"]
        assert alice["observations"] == [*ALICE["observations"], "owns a canoe"]
