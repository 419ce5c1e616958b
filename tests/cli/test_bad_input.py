"""What the command line says to what it cannot use."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.parametrize("question", ["", "   \t"])
def test_empty_question(question: str, store: Path, fails: Callable[..., str]) -> None:
    assert "question" in fails("query", question, "--store", store)
    assert "question" in fails("context", question, "--store", store, "--budget", "50")


def test_no_question(
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
        ("odd.csv", b"a,b\n", ".csv"),
    ],
)
def test_unusable_file(
    name: str, content: bytes, told: str, tmp_path: Path, fails: Callable[..., str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = fails("index", path, "--store", tmp_path / "s")
    assert name in message and told in message


def test_missing_file_and_no_file(tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "nowhere.txt" in fails("index", tmp_path / "nowhere.txt", "--store", tmp_path / "s")
    assert "at least one" in fails("index", "--store", tmp_path / "s")


def test_same_id_with_other_content(
    store: Path, tmp_path: Path, fails: Callable[..., str], reply: Callable[..., Any]
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"id": "D1:1", "text": "Somebody else restores ovens."}\n')
    assert "D1:1" in fails("index", path, "--store", store)
    stats = reply("stats", "--store", store)
    assert stats["kinds"]["turn"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ["query", "Who restores ovens?"],
        ["context", "Who restores ovens?", "--budget", "10"],
        ["stats"],
        ["check"],
    ],
)
def test_missing_store(command: list[str], tmp_path: Path, fails: Callable[..., str]) -> None:
    missing = tmp_path / "missing"
    assert str(missing) in fails(*command, "--store", missing)
    assert not missing.exists()


def test_store_of_another_embedder(store: Path, fails: Callable[..., str]) -> None:
    message = fails("query", "Who restores ovens?", "--store", store, "--embedder", "hashing:32")
    assert "embedder" in message


def test_unknown_preset_names_the_nearest(store: Path, fails: Callable[..., str]) -> None:
    assert "'synapse'" in fails(
        "query", "Who restores ovens?", "--store", store, "--preset", "synaps"
    )


def test_unknown_field_names_the_nearest(store: Path, fails: Callable[..., str]) -> None:
    assert "spread.rounds" in fails(
        "query", "Who restores ovens?", "--config.spread.round", "2", "--store", store
    )
    assert "spread.rounds" in fails(
        "query", "Who restores ovens?", "--config.spread.rounds", "two", "--store", store
    )
    assert "value after" in fails(
        "query", "Who restores ovens?", "--store", store, "--config.rank.k"
    )


def test_unusable_numbers(store: Path, fails: Callable[..., str]) -> None:
    assert "budget" in fails("context", "Who restores ovens?", "--store", store, "--budget", "-1")
    assert "k" in fails("query", "Who restores ovens?", "--store", store, "--k", "0")
    assert "time" in fails("query", "Who restores ovens?", "--store", store, "--as-of", "soon")


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
def test_unusable_device(device: str, store: Path, fails: Callable[..., str]) -> None:
    question = ["query", "Who restores ovens?", "--store", store]
    assert repr(device) in fails(*question, "--device", device)


def test_questions_that_are_not_utf8(
    store: Path, tmp_path: Path, fails: Callable[..., str]
) -> None:
    path = tmp_path / "questions.txt"
    path.write_bytes("Wer heißt so?".encode("latin-1"))
    assert "UTF-8" in fails("query", "--questions", path, "--store", store)


def test_damaged_database(store: Path, fails: Callable[..., str]) -> None:
    path = store / "memory.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert str(store) in fails("query", "Who restores ovens?", "--store", store)


def test_question_without_a_content_word_is_answered(
    store: Path, reply: Callable[..., Any]
) -> None:
    (result,) = reply("query", "Who is it?", "--store", store)["results"]
    assert result["question"] == "Who is it?"
