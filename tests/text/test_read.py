from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.text import document_atoms, parse_time, read_atoms
from graphmem_torch.text.pieces import WordTokenizer

WORDS = WordTokenizer()


def read(*paths: Path | str, **options: Any) -> list[Atom]:
    return list(read_atoms(list(paths), tokenizer=WORDS, **options))


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_text_becomes_chunks_that_join_to_it(tmp_path: Path) -> None:
    text = "\ufeffFirst paragraph, with words.\r\n\r\n" + "Second one. " * 40
    path = tmp_path / "notes.md"
    path.write_bytes(text.encode())
    atoms = read(path, max_tokens=20)
    assert "".join(atom.text for atom in atoms) == text[1:]
    assert [atom.id for atom in atoms] == [f"notes.md#{i}" for i in range(len(atoms))]
    assert {atom.kind for atom in atoms} == {"chunk"}
    assert {atom.session for atom in atoms} == {"notes.md"}
    for atom in atoms:
        assert text[1:][atom.meta["start"] : atom.meta["end"]] == atom.text


def test_a_folder_is_read_in_order_and_the_rest_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b/two.txt", "a.md", "b/one.txt", ".hidden/no.txt", "b/.no.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / "image.png").write_bytes(b"\0")
    (tmp_path / "empty.txt").touch()
    assert [atom.id for atom in read(tmp_path)] == ["a.md#0", "b/one.txt#0", "b/two.txt#0"]
    assert read(tmp_path) == read(tmp_path)
    assert {record.args[0].name for record in caplog.records} == {"image.png", "empty.txt"}


def test_files_of_one_name_get_different_ids(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "deep" / "n.txt").write_text(folder)
    atoms = read(tmp_path / "x/deep/n.txt", tmp_path / "y/deep/n.txt")
    assert [atom.id for atom in atoms] == ["x/deep/n.txt#0", "y/deep/n.txt#0"]
    again = read(tmp_path / "x/deep/n.txt", tmp_path / "x/deep/n.txt")
    assert [atom.id for atom in again] == ["n.txt#0"] * 2


def test_every_field_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record = {
        "text": "The canoe sank.",
        "id": 12,
        "kind": "fact",
        "speaker": "Ada",
        "session": "s1",
        "time": "1:56 pm on 8 May, 2023",
        "event_time": 86400,
        "type": "episodic",
        "meta": {"a": [1, None]},
        "edges": [
            {"target": "x", "type": "Derived-From", "weight": 2},
            ["y", "causes", 0.5],
            ["z"],
            {"target": 3},
        ],
        "chapter": 4,
    }
    path.write_text("\n" + json.dumps(record) + "\n\n" + '{"text": "b", "id": null}\n')
    first, second = read(path)
    assert first == Atom(
        "12",
        "The canoe sank.",
        kind="fact",
        speaker="Ada",
        session="s1",
        time=parse_time("2023-05-08T13:56Z"),
        event_time=86400.0,
        type="episodic",
        meta={"chapter": 4, "a": [1, None]},
        edges=(
            Link("x", EdgeType.DERIVED_FROM, 2.0),
            Link("y", EdgeType.CAUSES, 0.5),
            Link("z"),
            Link("3"),
        ),
    )
    assert second.text == "b"
    assert second.kind == "chunk"


def test_ids_made_from_content_are_stable_and_unique(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        '{"text": "Yes.", "speaker": "A"}',
        '{"text": "No."}',
        '{"speaker": "A", "text": "Yes."}',
    ]
    path.write_text("\n".join(lines))
    ids = [atom.id for atom in read(path)]
    assert len(set(ids)) == 3
    assert ids == [atom.id for atom in read(path)]
    path.write_text("\n".join(lines[::-1]))
    assert {atom.id for atom in read(path)} == set(ids)


def test_standard_input(monkeypatch: pytest.MonkeyPatch, sample: dict[str, Any]) -> None:
    pipe(monkeypatch, b"Plain words.\n{not json")
    plain = read("-")
    assert [(atom.text, atom.kind) for atom in plain] == [("Plain words.\n{not json", "chunk")]
    pipe(monkeypatch, b"Other words.")
    assert read("-")[0].id != plain[0].id
    pipe(monkeypatch, b'{"text": "a"}\n{"text": "b"}\n')
    assert [atom.text for atom in read("-")] == ["a", "b"]
    pipe(monkeypatch, json.dumps(sample).encode())
    assert [atom.id for atom in read("-")] == ["D1:1", "D1:2", "D2:1"]
    pipe(monkeypatch, b'{"text": "a"}\n[1]\n')
    with pytest.raises(InputError, match=r"standard input:2: expected a JSON object"):
        read("-")
    pipe(monkeypatch, b" \n")
    with pytest.raises(InputError, match="standard input: expected text, got an empty file"):
        read("-")


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"text": "a"}')
    assert read(path, format="jsonl")[0].text == "a"
    assert read(path, format="text")[0].text == '{"text": "a"}'
    with pytest.raises(InputError, match="expected a file of"):
        read(path)
    with pytest.raises(InputError, match="got 'csv'"):
        read(path, format="csv")


def test_documents() -> None:
    (atom,) = document_atoms("Some text.", name="d", tokenizer=WORDS, time=5.0)
    assert (atom.id, atom.session, atom.time) == ("d#0", "d", 5.0)
    with pytest.raises(InputError, match="d: expected text, got an empty document"):
        list(document_atoms(" ", name="d", tokenizer=WORDS))
