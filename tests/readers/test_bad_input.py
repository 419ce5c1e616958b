"""Input that cannot be used: each a message with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.readers import read_atoms
from graphmem_torch.text.tokens import WordTokenizer

GOOD = b'{"text": "good"}\n'


def fail(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_atoms([path], tokenizer=WordTokenizer()))
    assert caught.value.where
    message = str(caught.value)
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl", "a.json"])
@pytest.mark.parametrize("data", [b"", b" \n\n"])
def test_read_atoms_of_an_empty_file(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert "got an empty file" in fail(path)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json"])
def test_read_atoms_of_a_binary_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD + b"\x7fELF\x00\x01")
    assert fail(path).startswith(":2: expected text, got a binary file: NUL byte at byte 21")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json"])
def test_read_atoms_of_bytes_that_are_not_utf8(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD + '{"text": "schön"}'.encode("latin-1"))
    message = fail(path)
    assert message.startswith(":2: expected UTF-8, got byte 0xf6 at byte 30")


def test_read_atoms_of_utf16(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Hello".encode("utf-16"))
    assert "got UTF-16" in fail(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "expected a JSON object, got a list; write"),
        ('"text"', "got a string"),
        ("null", "got null"),
        ("17", "got a number"),
        ('{"text": "a"', "not JSON"),
        ("{'text': 'a'}", "not JSON"),
        ("{}", "text: expected a string with something in it"),
        ('{"text": "  "}', "text: expected a string with something in it"),
        ('{"text": null}', "text: expected a string with something in it"),
        ('{"text": 3}', "text: expected a string, got a number"),
        (
            f'{{"text": "x", "meta": {{"n": {"1" * 5000}}}}}',
            "digits, got an integer with more; give",
        ),
        ('{"text": "a", "time": "soon"}', "time: expected a time, got 'soon'"),
        ('{"text": "a", "event_time": []}', "event_time: expected a time"),
        ('{"text": "a", "time": NaN}', "NaN is no JSON number"),
        ('{"text": "a", "time": true}', "time: expected a time"),
        ('{"text": "a", "type": "semantc"}', "did you mean 'semantic'"),
        ('{"text": "a", "speaker": 1}', "speaker: expected a string"),
        ('{"text": "a", "id": ""}', "id: expected a string"),
        ('{"text": "a", "id": [1]}', "id: expected a string"),
        ('{"text": "a", "meta": 1}', "meta: expected an object"),
        ('{"text": "a", "edges": {}}', "edges: expected a list, got an object"),
        ('{"text": "a", "edges": [{"target": "b", "type": "suports"}]}', "did you mean 'supports'"),
        (
            '{"text": "a", "edges": [{"type": "causes"}]}',
            "target of an edge: expected",
        ),
        (
            '{"text": "a", "edges": [["b", "causes", "1"]]}',
            "weight of an edge: expected",
        ),
        ('{"text": "a", "edges": ["b"]}', "edges: expected {"),
        ('{"text": "a", "edges": [{"target": "b", "kind": "x"}]}', "edges: expected {"),
        ("[" * 100_000, "not JSON"),
        ('{"role": " ", "content": "a"}', "role: expected a speaker"),
        ('{"role": 3, "content": "a"}', "role: expected a speaker"),
        ('{"role": "user", "name": 3, "content": "a"}', "speaker: expected a string"),
        ('{"content": "a"}', "text: expected a string with something in it"),
    ],
)
def test_read_atoms_names_the_line_that_is_bad(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n" + line.encode() + b"\n" + GOOD)
    found = fail(path)
    assert found.startswith(":3: ")
    assert message in found


def test_read_atoms_gives_the_lines_before_the_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"oops\n")
    atoms = read_atoms([path], tokenizer=WordTokenizer())
    assert next(atoms).text == "good"
    with pytest.raises(InputError, match=":2:"):
        next(atoms)


def test_read_atoms_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    assert "without any; name another" in fail(tmp_path)
    assert "no such file" in fail(tmp_path / "missing.txt")
    with pytest.raises(InputError, match="got none"):
        list(read_atoms([], tokenizer=WordTokenizer()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{\n oops", ":2: expected JSON, got a line that is not JSON"),
        ('[{"text": "a"}]', "expected LoCoMo"),
        ("[]", "expected LoCoMo"),
        ('{"conversation": {"session_1": [{"text": "a"}]}}', "session_1, turn 1: expected a turn"),
        (
            '{"conversation": {"session_1_date_time": "late", "session_1": [{}]}}',
            "session_1: time: expected a time, got 'late'",
        ),
        ('{"conversation": {"session_1": "x"}}', "expected a list of turns"),
    ],
)
def test_read_atoms_of_json_that_is_not_locomo(tmp_path: Path, data: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(data)
    assert message in fail(path)
