"""Sessions in a line, keys that look like fields, and titles of documents."""

from __future__ import annotations

import json
import logging
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.readers import document_atoms, read_atoms
from graphmem_torch.readers.headings import chunk_titles, file_title, heading_paths
from graphmem_torch.readers.keys import meant_field
from graphmem_torch.readers.sessions import turn_records
from graphmem_torch.text.tokens import WordTokenizer

WORDS = WordTokenizer()
DAY = 1714521600.0  # 2024-05-01
MD = ".md"


def lines(path: Path, *records: Any) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def read(path: Path, **options: Any) -> list[Any]:
    return list(read_atoms([path], tokenizer=WORDS, **options))


def test_a_line_with_turns_is_a_session(tmp_path: Path) -> None:
    session = {
        "id": "s1",
        "time": "2024-05-01",
        "title": "Trip",
        "place": "Oslo",
        "meta": {"app": "x", "n": 1},
        "turns": [
            {"speaker": "Nora", "text": "Shall we sail?", "meta": {"n": 2}},
            {"speaker": "Theo", "text": "Yes.", "time": "2024-05-02", "id": "own"},
            "All laugh.",
        ],
    }
    plain = {"text": "A line as ever."}
    atoms = read(lines(tmp_path / "a.jsonl", session, plain))
    assert [atom.id for atom in atoms[:3]] == ["s1:0", "own", "s1:2"]
    assert [atom.rendered for atom in atoms] == [
        "Trip\nNora: Shall we sail?",
        "Trip\nTheo: Yes.",
        "Trip\nAll laugh.",
        "A line as ever.",
    ]
    assert [atom.session for atom in atoms] == ["s1", "s1", "s1", None]
    assert [atom.time for atom in atoms] == [DAY, DAY + 86400, DAY, None]
    assert [dict(atom.meta) for atom in atoms[:2]] == [
        {"place": "Oslo", "app": "x", "n": 2},
        {"place": "Oslo", "app": "x", "n": 1},
    ]


def test_a_line_with_messages_is_a_session_without_an_id(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "Booked."}]
    file = lines(tmp_path / "a.jsonl", {"session": "c", "messages": [*messages, messages[0]]})
    atoms = read(file)
    assert [(a.speaker, a.text, a.session) for a in atoms] == [
        ("user", "yes", "c"),
        ("assistant", "Booked.", "c"),
        ("user", "yes", "c"),
    ]
    assert len({atom.id for atom in atoms}) == 3
    assert [atom.id for atom in read(file)] == [atom.id for atom in atoms]


def test_a_session_that_is_none(tmp_path: Path) -> None:
    for record, match in (
        ({"text": "x", "turns": ["a"]}, "turns: expected a session without 'text'"),
        ({"turns": ["a"], "messages": ["b"]}, "turns: expected a session without 'messages'"),
        ({"turns": ["a", 5]}, r"turns\[1\]: turns: expected a text or a record"),
        ({"turns": ["a", {"turns": ["b"]}]}, r"turns\[1\]: turns: expected a text or a record"),
        ({"turns": ["a", {"speaker": "N"}]}, r"a.jsonl:1, turns\[1\]: text: expected"),
    ):
        with pytest.raises(InputError, match=match):
            read(lines(tmp_path / "a.jsonl", record))
    skipped: list[str] = []
    rows = [{"id": "s", "turns": ["a", 5, {"speaker": "N"}, "b"]}, {"text": "c"}]
    atoms = read(lines(tmp_path / "a.jsonl", *rows), skipped=skipped)
    assert [atom.text for atom in atoms] == ["a", "b", "c"] and len(skipped) == 2
    count = {"text": "x", "turns": 12}
    losses: Counter[str] = Counter()
    found = list(turn_records(count, "here", losses=losses))
    assert found == [(count, "here")], "a number is a count"


def test_a_session_without_turns_keeps_out_no_other(tmp_path: Path) -> None:
    losses: Counter[str] = Counter()
    rows = [{"text": "a"}, {"id": "s", "turns": []}, {"messages": []}, {"turns": ["b"]}]
    atoms = read(lines(tmp_path / "a.jsonl", *rows), losses=losses)
    assert [atom.text for atom in atoms] == ["a", "b"]
    assert losses == {"session without turns": 2}


def test_a_session_without_a_name_has_one_made(tmp_path: Path) -> None:
    talks = [[f"Hello {n}.", {"role": "user", "content": f"I am {n}."}] for n in range(3)]
    rows = [{"messages": talk} for talk in talks]
    one = read(lines(tmp_path / "a.jsonl", *rows))
    names = [atom.session for atom in one]
    assert names[::2] == names[1::2] and len({*names}) == 3, "the turns of a line belong together"
    other = read(lines(tmp_path / "b.jsonl", *rows[::-1]))
    assert [atom.session for atom in other[::-1]] == names, "whatever stands around it"


def test_a_key_of_many_lines_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": f"line {i}", "titel": "T"} for i in range(50)]
    with caplog.at_level(logging.WARNING):
        atoms = read(lines(tmp_path / "a.jsonl", *rows))
    assert len(atoms) == 50 and len(caplog.records) == 1
    assert "a.jsonl:1: titel: kept as meta.titel" in caplog.text


def test_meant_field_is_a_letter_away() -> None:
    fields = ("text", "title", "id", "speaker", "session", "time", "event_time", "type", "meta")
    for key, field in (
        *(("Title", "title"), ("TITLE", "title"), ("titel", "title"), ("titles", "title")),
        *(("tittle", "title"), ("tilte", "title"), ("titke", "title"), ("itle", "title")),
        *(("speaker_", "speaker"), ("speakers", "speaker"), ("spaeker", "speaker")),
        *(
            ("eventTime", "event_time"),
            ("event time", "event_time"),
            ("ID", "id"),
            ("tpye", "type"),
        ),
        *(("created_at", "time"), ("Timestamp", "time"), ("session_id", "session")),
        *(("timestmap", "time"), ("creatd_at", "time"), ("sesion_id", "session")),
        *(("metdata", "meta"), ("timestamps", "time"), ("conversaton_id", "session")),
    ):
        assert meant_field(key, fields) == field, key
    for key in ("data", "contents", "context", "updated_at", "messenger", "bodies"):
        assert meant_field(key, fields) is None, key
    for key in ("page", "url", "test", "next", "lime", "idx", "ids", "tag", "beta", "tp", "", "tt"):
        assert meant_field(key, fields) is None, key


MARKDOWN = """---
author: Nora
title: "Hand book"
---
Some words.
# Guide
a
```sh
# no heading
```
Install **now**
-----
b
### [Deep](x) `c` ##
- item
---
c

## Use
d
"""


def test_heading_paths_of_markdown() -> None:
    found = [(MARKDOWN[start:][:7], path) for start, path in heading_paths(MARKDOWN)]
    assert found == [
        ("---\naut", ("Hand book",)),
        ("# Guide", ("Hand book", "Guide")),
        ("Install", ("Hand book", "Guide", "Install now")),
        ("### [De", ("Hand book", "Guide", "Install now", "Deep c")),
        ("## Use\n", ("Hand book", "Guide", "Use")),
    ]
    for text in ("", "\n", "#", "---\n", "---\ntitle: x\n", "#no\n", "    # code\n", "a\n\n---\n"):
        assert all(path == () for _, path in heading_paths(text)), text
    skipping = "# A\n### C\n## B\n# A\n"
    assert [path for _, path in heading_paths(skipping)][1:] == [
        ("A",),
        ("A", "C"),
        ("A", "B"),
        ("A",),
    ]


def test_titles_of_chunks() -> None:
    text = "# Guide\n\nOne two.\n\n## Install\n\nThree four.\n\n## Use\n\nFive six.\n"
    cuts = [0, text.index("## Install"), text.index("## Use"), len(text)]
    slices = list(pairwise(cuts))
    assert chunk_titles(text, slices, "a/My_file" + MD) == [
        "Guide",
        "Guide > Install",
        "Guide > Use",
    ]
    assert chunk_titles(text, [(0, len(text))], "x.md") == ["Guide"]
    both = [(cuts[1], cuts[3])]
    assert chunk_titles(text, both, "x.md") == ["Guide"], "what both stand under"
    assert chunk_titles("# A\nx\n# B\ny\n", [(0, 12)], "x.md", "My\nfile") == ["My file"]
    assert chunk_titles(text, slices, "a/My_file.txt") == [None] * 3
    assert file_title("a/My_file.txt") == "My file" and file_title("") is None
    assert chunk_titles(text, [], "x.md") == []


def test_documents_and_files_have_titles(tmp_path: Path) -> None:
    (tmp_path / "oven_care.txt").write_text("Clean it.")
    (tmp_path / "guide.md").write_text("# Lisbon\n\nTake the tram.")
    titles = {atom.id: atom.title for atom in read(tmp_path, base=tmp_path)}
    assert titles == {"guide.md#0": "Lisbon", "oven_care.txt#0": "oven care"}
    (atom,) = document_atoms("Clean it.", name="d", tokenizer=WORDS, title="Oven\ncare")
    assert (atom.title, atom.text) == ("Oven care", "Clean it.")
