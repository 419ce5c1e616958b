from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.readers import document_atoms, read_atoms
from graphmem_torch.text.times import parse_time
from graphmem_torch.text.tokens import WordTokenizer

WORDS = WordTokenizer()


def read(*paths: Path | str, **options: Any) -> list[Atom]:
    return list(read_atoms(list(paths), tokenizer=WORDS, **options))


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_read_atoms_cuts_a_text_into_chunks_that_join_to_it(tmp_path: Path) -> None:
    text = "\ufeffFirst paragraph, with words.\r\n\r\n" + "Second one. " * 40
    path = tmp_path / "notes.md"
    path.write_bytes(text.encode())
    atoms = read(path, max_tokens=20)
    assert "".join(atom.text for atom in atoms) == text[1:]
    assert [atom.id for atom in atoms] == [f"{path.as_posix()}#{i}" for i in range(len(atoms))]
    assert {atom.kind for atom in atoms} == {"chunk"}
    assert {atom.session for atom in atoms} == {path.as_posix()}
    for atom in atoms:
        assert text[1:][atom.meta["start"] : atom.meta["end"]] == atom.text


def test_read_atoms_reads_a_folder_in_order_and_names_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b/two.txt", "a.md", "b/one.txt", ".hidden/no.txt", "b/.no.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / "image.png").write_bytes(b"\0")
    (tmp_path / "empty.txt").touch()
    assert [atom.id for atom in read(tmp_path)] == ["a.md#0", "b/one.txt#0", "b/two.txt#0"]
    assert read(tmp_path) == read(tmp_path)
    assert {record.args[0].name for record in caplog.records} == {"image.png", "empty.txt"}


def test_read_atoms_ids_do_not_depend_on_how_a_path_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for place in (here / "x/n.txt", here / "y/n.txt", tmp_path / "n.txt"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(place.parent.name)
    (here / "link").symlink_to(here / "x")
    monkeypatch.chdir(here)
    for given in (
        here / "x/n.txt",
        "x/n.txt",
        "y/../x/n.txt",
        here / "x",
        "x",
        "../here/x/",
        "link",
    ):
        assert [atom.id for atom in read(given)] == ["x/n.txt#0"]
    assert [atom.id for atom in read("y/n.txt")] == ["y/n.txt#0"]
    assert [atom.id for atom in read(".")] == ["x/n.txt#0", "y/n.txt#0"]
    assert read("../n.txt")[0].id == f"{(tmp_path / 'n.txt').resolve().as_posix()}#0"


def test_read_atoms_leaves_out_json_of_others_in_a_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, locomo_file: Path
) -> None:
    (tmp_path / "package.json").write_text('{"name": "canoe"}')
    (tmp_path / "tsconfig.json").write_text("{// comment\n}")
    assert [atom.id for atom in read(tmp_path)] == ["D1:1", "D1:2", "D2:1"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and all("not LoCoMo" in message for message in told)
    with pytest.raises(InputError, match=r"package.json: expected LoCoMo"):
        read(tmp_path / "package.json")
    with pytest.raises(InputError, match=r"package.json: expected LoCoMo"):
        read(tmp_path, format="locomo")


def test_read_atoms_names_folders_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.txt").write_text("text")
    scandir = os.scandir

    def refusing(path: str) -> Any:  # permissions do not stop an administrator
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert len(read(tmp_path)) == 1
    (record,) = caplog.records
    assert "shut: left out" in record.getMessage()
    assert "Permission denied" in record.getMessage()


def test_read_atoms_origins_tell_file_and_line(tmp_path: Path, locomo_file: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text('\n{"id": "a", "text": "a"}\n{"id": "b", "text": "b"}\n')
    text = tmp_path / "n.txt"
    text.write_text("words")
    origins: dict[str, str] = {}
    atoms = read(lines, text, locomo_file, origins=origins)
    assert origins.keys() == {atom.id for atom in atoms}
    assert [origins[name] for name in ("a", "b")] == [f"{lines}:2", f"{lines}:3"]
    assert origins[atoms[2].id] == str(text)
    assert origins["D1:1"] == str(locomo_file)


def test_atom_from_record_reads_every_field(tmp_path: Path) -> None:
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


def test_read_atoms_of_messages(tmp_path: Path) -> None:
    path, picture = tmp_path / "a.jsonl", {"type": "image_url", "image_url": {"url": "oven.png"}}
    parts = [{"type": "text", "text": "Look:"}, picture, {"type": "text", "text": "my oven"}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Nora", "content": parts, "session": "c1", "time": "2024-03-02"},
        {"role": "assistant", "content": ["Nice", " "], "tool_calls": None, "id": "m3"},
        {"role": "tool", "content": "42", "tool_call_id": "t1"},
        {"role": "user", "content": [{"type": "input_text", "text": "Yes."}]},
        {"role": "user", "content": "Yes."},
    ]
    path.write_text("\n".join(map(json.dumps, messages)))
    atoms = read(path)
    assert [(atom.speaker, atom.text, atom.kind) for atom in atoms] == [
        ("system", "Be brief.", "turn"),
        ("Nora", "Look:\nmy oven", "turn"),
        ("assistant", "Nice", "turn"),
        ("tool", "42", "turn"),
        ("user", "Yes.", "turn"),
        ("user", "Yes.", "turn"),
    ]
    assert atoms[1].meta == {"role": "user", "content": [picture]}
    assert (atoms[1].session, atoms[1].time) == ("c1", parse_time("2024-03-02"))
    assert atoms[2].id == "m3" and atoms[3].meta == {"role": "tool", "tool_call_id": "t1"}
    assert atoms[5].id == atoms[4].id + "-2"


def test_read_atoms_ids_made_from_content_are_stable_and_unique(tmp_path: Path) -> None:
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


def test_read_atoms_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, sample: dict[str, Any]
) -> None:
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
    for data, line in (
        (b'\n{"text": "a",\n', 2),
        (b'{"text": "a"}\n{"text": \n', 2),
        (b'[\n{"text": "a"}\n]', 1),
        (b'[{"text": "a"}]', 1),
        (b"[" * 100_000, 1),
    ):
        pipe(monkeypatch, data)
        with pytest.raises(InputError, match=f"standard input:{line}: expected"):
            read("-")
    pipe(monkeypatch, b"[Music] Hello.")
    assert read("-", format="text")[0].text == "[Music] Hello."
    pipe(monkeypatch, b" \n")
    with pytest.raises(InputError, match="standard input: expected text, got an empty file"):
        read("-")


def test_read_atoms_of_a_named_format(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"text": "a"}')
    assert read(path, format="jsonl")[0].text == "a"
    assert read(path, format="text")[0].text == '{"text": "a"}'
    with pytest.raises(InputError, match="expected a file of"):
        read(path)
    with pytest.raises(InputError, match="got 'csv'"):
        read(path, format="csv")


def test_document_atoms() -> None:
    (atom,) = document_atoms("Some text.", name="d", tokenizer=WORDS, time=5.0)
    assert (atom.id, atom.session, atom.time) == ("d#0", "d", 5.0)
    with pytest.raises(InputError, match="d: expected text, got an empty document"):
        list(document_atoms(" ", name="d", tokenizer=WORDS))
    with pytest.raises(InputError, match="d: expected text, got None"):
        list(document_atoms(None, name="d", tokenizer=WORDS))  # type: ignore[arg-type]
    for name in ("", None):
        with pytest.raises(InputError, match="name: expected a name"):
            list(document_atoms("Some text.", name=name, tokenizer=WORDS))  # type: ignore[arg-type]
