"""Messages of the command line for invalid input."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.cli.main import main
from graphmem_torch.cli.terminal import print_json
from graphmem_torch.errors import GraphMemError


@pytest.mark.parametrize("question", ["", "   \t"])
def test_query_of_an_empty_question(question: str, store: Path, fails: Callable[..., str]) -> None:
    assert "question" in fails("query", question, "--store", store)
    assert "question" in fails("context", question, "--store", store, "--budget", "50")


def test_query_without_a_question(
    store: Path, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert "--questions FILE" in fails("query", "--store", store)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.txt", b"", "empty"),
        ("empty.jsonl", b"", "empty"),
        ("binary.txt", b"ELF\x00\x01\x02", "binary"),
        ("latin.txt", "Gruß".encode("latin-1"), "UTF-8"),
        ("array.jsonl", b'{"text": "fine"}\n[1, 2]\n', "array.jsonl:2"),
        ("untexted.jsonl", b'{"id": "a"}\n', "untexted.jsonl:1"),
        ("when.jsonl", b'{"text": "a", "time": "next Tuesday"}\n', "when.jsonl:1"),
        ("edge.jsonl", b'{"text": "a", "edges": [["b", "suports"]]}\n', "supports"),
        ("meta.jsonl", b'{"text": "a"}\n{"text": "b", "meta": {"a": 1e9999}}\n', "meta.jsonl:2"),
        ("end.jsonl", b'{"text": "a", "event_time": 9, "event_end": 8}\n', "end.jsonl:1"),
        ("nul.jsonl", b'{"text": "a", "id": "a\\u0000b"}\n', "nul.jsonl:1"),
        ("heavy.jsonl", b'{"text": "a", "edges": [["b", "supports", 1e30]]}\n', "-1000 and 1000"),
        ("odd.csv", b"a,b\n", ".csv"),
    ],
)
def test_index_names_a_file_it_cannot_use(
    name: str, content: bytes, told: str, tmp_path: Path, fails: Callable[..., str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = fails("index", path, "--store", tmp_path / "s")
    assert name in message and told in message


def test_index_of_a_missing_file_and_of_none(tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "nowhere.txt" in fails("index", tmp_path / "nowhere.txt", "--store", tmp_path / "s")
    assert "at least one" in fails("index", "--store", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_index_of_a_known_id_with_other_content(
    store: Path, tmp_path: Path, fails: Callable[..., str], reply: Callable[..., Any]
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"id": "D1:1", "text": "Somebody else restores ovens."}\n')
    message = fails("index", path, "--store", store)
    assert f"{path}:1: atom 'D1:1' is stored already" in message
    path.write_text('{"id": "x", "text": "One."}\n\n{"id": "x", "text": "Two."}\n')
    assert f"{path}:3: atom 'x' is given twice" in fails("index", path, "--store", store)
    path.write_text('{"id": "concept:x", "text": "One."}\n')
    assert f"{path}:1: atom 'concept:x'" in fails("index", path, "--store", store)
    stats = reply("store", "stats", "--store", store)
    assert stats["kinds"]["turn"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ["query", "Who restores ovens?"],
        ["context", "Who restores ovens?", "--budget", "10"],
        ["store", "stats"],
        ["store", "check"],
        ["atoms", "get", "D1:1"],
        ["store", "export", "x.jsonl"],
        ["atoms", "update", "D1:1", "--text", "x"],
        ["atoms", "delete", "D1:1"],
        ["atoms", "forget", "--speaker", "Nora"],
        ["atoms", "archive", "D1:1"],
        ["atoms", "restore", "D1:1"],
        ["facts", "supersede", "D1:1", "D1:2"],
        ["facts", "split-name", "bertrand"],
        ["store", "feedback", "Who?", "--used", "D1:1"],
        ["store", "consolidate"],
        ["store", "learned", "--learn"],
    ],
)
def test_commands_on_a_missing_store(
    command: list[str], tmp_path: Path, fails: Callable[..., str]
) -> None:
    missing = tmp_path / "missing"
    assert str(missing) in fails(*command, "--store", missing)
    assert not missing.exists()


def test_namespaces_of_a_missing_store(tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "expected a store" in fails(
        "store", "namespaces", "--store", tmp_path / "missing", "--drop", "x"
    )
    assert not (tmp_path / "missing").exists()


def test_arguments_that_are_no_text_or_empty(
    store: Path,
    tmp_path: Path,
    fails: Callable[..., str],
    reply: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Arguments of a shell with bytes other than UTF-8, or with an empty variable."""
    odd = "x\udcff"
    for command in (["query", odd], ["context", odd, "--budget", "9"], ["explain", odd]):
        assert "UTF-8" in fails(*command, "--store", store)
    assert "an empty path" in fails("index", "", "--store", store)
    assert main(["index", "", "--skip-bad", "--store", str(store), "--json"]) == 3
    assert "an empty path" in json.loads(capsys.readouterr().out)["skipped"][0]
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / odd).with_suffix(".txt").write_text("The canoe is red.")
    (folder / "one.txt").write_text("The violin is old.")
    assert len(reply("index", folder, "--store", store)["added"]) == 1
    bad = folder / f"{odd}.txt"
    assert "rename it" in fails("index", bad, "--store", store)
    folder.rename(tmp_path / odd)
    assert "rename it" in fails("index", tmp_path / odd, "--store", store)


def test_forget_erases_nothing_without_a_place_for_its_receipt(
    store: Path, tmp_path: Path, fails: Callable[..., str], reply: Callable[..., Any]
) -> None:
    for place in (tmp_path / "no" / "receipt.json", tmp_path, store / "writer.lock"):
        assert "a new file" in fails(
            "atoms", "forget", "D1:1", "--store", store, "--receipt", place
        )
    new = tmp_path / "receipt.json"
    assert "D9:9" in fails("atoms", "forget", "D9:9", "--store", store, "--receipt", new)
    assert "none of them" in fails(
        "atoms", "forget", "--where", "{}", "--store", store, "--receipt", new
    )
    assert "before" in fails(
        "atoms", "forget", "--before", "noon", "--store", store, "--receipt", new
    )
    assert not new.exists()
    assert len(reply("atoms", "get", "D1:1", "D1:2", "--store", store)["atoms"]) == 2
    new.write_bytes(b"\xff")
    assert "UTF-8" in fails("store", "check", "--store", store, "--receipt", new)


def test_a_receipt_that_cannot_be_written_is_printed(
    store: Path,
    tmp_path: Path,
    fast: list[str],
    reply: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, *_: Any, **__: Any) -> int:
        path.write_bytes(b"{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "receipt.json"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        given = [
            "atoms",
            "forget",
            "--before",
            "1709000000",
            "--store",
            str(store),
            "--receipt",
            str(file),
        ]
        assert main([*given, *fast]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["atoms"] == 2 and not file.exists()
    file.write_text(printed)
    assert reply("store", "check", "--store", store, "--receipt", file)["ok"]


def test_get_and_import_name_what_they_cannot_use(
    store: Path, conversation: Path, tmp_path: Path, fails: Callable[..., str]
) -> None:
    assert "ID: expected at least one" in fails("atoms", "get", "--store", store)
    assert "'D9:9', which is not in the store" in fails("atoms", "get", "D9:9", "--store", store)
    told = fails("store", "import", conversation, "--store", tmp_path / "new")
    assert f"{conversation}: expected an export of graphmem, or memories of mem0" in told
    assert "`graphmem index` reads texts and chats" in told
    assert str(tmp_path / "none") in fails(
        "store", "import", tmp_path / "none", "--store", tmp_path / "new"
    )
    assert not (tmp_path / "new").exists()
    assert str(tmp_path / "no") in fails("store", "export", tmp_path / "no" / "x", "--store", store)
    for own in (store, store / "memory.sqlite", store / "new"):
        assert "outside of the store" in fails("store", "export", own, "--store", store)
    for none in (tmp_path, "/dev/null"):
        assert "name a file" in fails("store", "export", none, "--store", store)


def test_query_of_a_store_of_another_embedder(store: Path, fails: Callable[..., str]) -> None:
    message = fails("query", "Who restores ovens?", "--store", store, "--embedder", "hashing:32")
    assert "embedder" in message


def test_command_unknown_names_the_nearest(fails: Callable[..., str]) -> None:
    assert "did you mean `graphmem query`?" in fails("queri", "Who restores ovens?")


def test_preset_unknown_names_the_nearest(store: Path, fails: Callable[..., str]) -> None:
    assert "'synapse'" in fails(
        "query", "Who restores ovens?", "--store", store, "--preset", "synaps"
    )


def test_config_field_unknown_names_the_nearest(store: Path, fails: Callable[..., str]) -> None:
    assert "spread.rounds" in fails(
        "query", "Who restores ovens?", "--config.spread.round", "2", "--store", store
    )
    assert "spread.rounds" in fails(
        "query", "Who restores ovens?", "--config.spread.rounds", "two", "--store", store
    )
    assert "--config.rank.k: expected a value" in fails(
        "query", "Who restores ovens?", "--store", store, "--config.rank.k"
    )


def test_commands_refuse_unusable_numbers(store: Path, fails: Callable[..., str]) -> None:
    assert "budget" in fails("context", "Who restores ovens?", "--store", store, "--budget", "-1")
    said = fails("query", "Who restores ovens?", "--store", store, "-k", "0")
    assert "k: expected" in said and "at least 1" in said
    said = fails("query", "Who restores ovens?", "--store", store, "--as-of", "soon")
    assert "--as-of: expected a time" in said


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("{speaker", "--where:1: expected JSON"),
        ("[1]", "where: expected conditions by field"),
        ('{"speakr": "Theo"}', "did you mean 'speaker'"),
        ('{"page": 1}', "did you mean 'meta.page'"),
    ],
)
def test_where_of_the_command_line_is_checked(
    where: str, told: str, store: Path, fails: Callable[..., str]
) -> None:
    assert told in fails("query", "Who restores ovens?", "--store", store, "--where", where)
    assert told in fails("context", "x", "--budget", "50", "--store", store, "--where", where)


@pytest.mark.parametrize(
    "device",
    [
        "cpux",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device"),
        ),
    ],
)
def test_device_unusable_is_named(device: str, store: Path, fails: Callable[..., str]) -> None:
    question = ["query", "Who restores ovens?", "--store", store]
    assert repr(device) in fails(*question, "--device", device)


def test_query_of_questions_that_are_not_utf8(
    store: Path, tmp_path: Path, fails: Callable[..., str]
) -> None:
    path = tmp_path / "questions.txt"
    path.write_bytes("Wer heißt so?".encode("latin-1"))
    assert "UTF-8" in fails("query", "--questions", path, "--store", store)


def test_query_of_a_damaged_database(store: Path, fails: Callable[..., str]) -> None:
    path = store / "memory.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert str(store) in fails("query", "Who restores ovens?", "--store", store)


@pytest.mark.parametrize("part", [0, 1 / 3, 0.9])
def test_check_reports_a_damaged_database(
    part: float, store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "memory.sqlite"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    assert main(["store", "check", "--store", str(store), *fast, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False and "damaged" in " ".join(found["problems"])
    assert main(["store", "check", "--store", str(store), *fast]) == 1
    out, err = capsys.readouterr()
    assert "damaged" in out and "error" not in err


@pytest.mark.parametrize(
    "command",
    [
        ["index", "nowhere.txt"],
        ["query", "Who restores ovens?"],
        ["context", "Who restores ovens?", "--budget", "10"],
        ["store", "stats"],
        ["store", "check"],
        ["store", "stats", "--config.spread.round", "2"],
        ["demo", "-k", "0"],
    ],
)
def test_errors_are_json_where_json_was_asked_for(
    command: list[str], tmp_path: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if command[0] == "demo" else ["--store", str(tmp_path / "missing")]
    assert main([*command, *place, *fast, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == f"graphmem: error: {json.loads(out)['error']}"


def test_print_json_refuses_numbers_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (math.inf, -math.inf, math.nan):
        with pytest.raises(GraphMemError, match="finite"):
            print_json({"score": number})
    assert capsys.readouterr().out == ""


def test_query_without_a_content_word_is_answered(store: Path, reply: Callable[..., Any]) -> None:
    (result,) = reply("query", "Who is it?", "--store", store)["results"]
    assert result["question"] == "Who is it?"
