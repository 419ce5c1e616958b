"""The command line as a user meets it: what it prints, what it exits with, how it fails."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.cli import main

# Nothing here depends on a language model: a deterministic encoder and no concept model.
FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]

TURNS = [
    ("D1:1", "Theo", "s1", "2024-02-04T10:00Z", "Bertrand restores old deck ovens."),
    ("D1:2", "Nora", "s1", "2024-02-04T10:01Z", "Does he deliver them as well?"),
    ("D2:1", "Nora", "s2", "2024-03-02T09:00Z", "The conference is in Lisbon."),
    ("D2:2", "Theo", "s2", "2024-03-02T09:01Z", "Bertrand grew up there."),
]


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    path = tmp_path / "conversation.jsonl"
    keys = ("id", "speaker", "session", "time", "text")
    lines = [json.dumps(dict(zip(keys, turn, strict=True))) for turn in TURNS]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def store(tmp_path: Path, conversation: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "store"
    assert main(["index", str(conversation), "--store", str(path), *FAST]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail, and returns its one line on standard error."""

    def run(*arguments: str | Path) -> str:
        assert main([*map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        message = err.strip().splitlines()[-1]
        assert message.startswith("graphmem: error: ")
        assert "Traceback" not in err
        assert out == ""
        return message

    return run


def _json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# What it does


def test_index_says_what_was_new_and_a_rerun_adds_nothing(
    tmp_path: Path, conversation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["index", conversation, "--store", tmp_path / "new", *FAST]
    first = _json(capsys, *arguments)
    again = _json(capsys, *arguments)
    assert (first["new"], first["known"]) == (len(TURNS), 0)
    assert (again["new"], again["known"]) == (0, len(TURNS))


def test_query_prints_hits_with_reasons(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "Who restores deck ovens?", "--store", str(store), *FAST]) == 0
    out = capsys.readouterr().out
    assert "Who restores deck ovens?" in out
    assert "Theo: Bertrand restores old deck ovens." in out
    assert "D1:1" in out and "2024-02-04 10:00" in out and "confidence" in out


def test_query_as_json_has_the_whole_result(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = _json(capsys, "query", "Who restores deck ovens?", "--store", store, "--k", "2", *FAST)
    (result,) = answer["results"]
    assert result["question"] == "Who restores deck ovens?"
    assert isinstance(result["known"], bool) and 0 <= result["confidence"] <= 1
    assert len(result["hits"]) == 2
    hit = result["hits"][0]
    assert hit["id"] == "D1:1"
    assert hit["score"] == pytest.approx(sum(hit["signals"].values()), abs=1e-4)


@pytest.mark.parametrize("how", ["arguments", "file", "dash", "pipe"])
def test_questions_come_from_anywhere(
    how: str,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = ["Who restores ovens?", "Where is the conference?"]
    text = "\n".join([questions[0], "", questions[1], ""])
    (tmp_path / "questions.txt").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    given = {
        "arguments": questions,
        "file": ["--questions", str(tmp_path / "questions.txt")],
        "dash": ["-"],
        "pipe": [],
    }[how]
    answer = _json(capsys, "query", *given, "--store", store, *FAST)
    assert [result["question"] for result in answer["results"]] == questions


def test_query_can_be_narrowed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = _json(
        capsys,
        "query",
        "Bertrand",
        "--store",
        store,
        "--as-of",
        "2024-02-28",
        "--kind",
        "turn",
        *FAST,
    )
    assert {hit["id"] for hit in answer["results"][0]["hits"]} == {"D1:1", "D1:2"}


def test_context_goes_to_stdout_and_stays_in_budget(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["context", "Where did Bertrand grow up?", "--store", store, "--budget", "60"]
    context = _json(capsys, *arguments, *FAST)
    assert 0 < context["tokens"] <= context["budget"] == 60
    assert set(context["sources"]) <= {turn[0] for turn in TURNS}
    assert main([*map(str, arguments), *FAST]) == 0
    out, err = capsys.readouterr()
    assert out.rstrip("\n") == context["text"].rstrip("\n")
    assert f"{context['tokens']} of 60 tokens" in err


def test_stats_and_check(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = _json(capsys, "stats", "--store", store, *FAST)
    assert stats["kinds"]["turn"] == len(TURNS)
    assert main(["stats", "--store", str(store), *FAST]) == 0
    assert "turn" in capsys.readouterr().out
    assert _json(capsys, "check", "--store", store, *FAST) == {"ok": True, "problems": []}


def test_every_field_of_the_configuration_can_be_overridden(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = _json(capsys, "query", "--config.rank.k", "1", "ovens", "--store", store, *FAST)
    assert len(answer["results"][0]["hits"]) == 1
    answer = _json(capsys, "query", "ovens", "--config.rank.k=2", "--store", store, *FAST)
    assert len(answer["results"][0]["hits"]) == 2


def test_help_lists_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["query", "--help-config", "--preset", "synapse"])
    assert exit.value.code == 0
    assert "--config.spread.rounds" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == "graphmem 0.1.0\n"


# How it fails


@pytest.mark.parametrize("question", ["", "   \t"])
def test_empty_question(question: str, store: Path, fails: Callable[..., str]) -> None:
    assert "question" in fails("query", question, "--store", store, *FAST)
    assert "question" in fails("context", question, "--store", store, "--budget", "50", *FAST)


def test_no_question(
    store: Path, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert "--questions FILE" in fails("query", "--store", store, *FAST)


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
    message = fails("index", path, "--store", tmp_path / "s", *FAST)
    assert name in message and told in message


def test_missing_file_and_no_file(tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "nowhere.txt" in fails(
        "index", tmp_path / "nowhere.txt", "--store", tmp_path / "s", *FAST
    )
    assert "at least one" in fails("index", "--store", tmp_path / "s", *FAST)


def test_same_id_with_other_content(
    store: Path, tmp_path: Path, fails: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"id": "D1:1", "text": "Somebody else restores ovens."}\n')
    assert "D1:1" in fails("index", path, "--store", store, *FAST)
    stats = _json(capsys, "stats", "--store", store, *FAST)
    assert stats["kinds"]["turn"] == len(TURNS)


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
    assert str(missing) in fails(*command, "--store", missing, *FAST)
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
    assert "budget" in fails(
        "context", "Who restores ovens?", "--store", store, "--budget", "-1", *FAST
    )
    assert "k" in fails("query", "Who restores ovens?", "--store", store, "--k", "0", *FAST)
    assert "time" in fails(
        "query", "Who restores ovens?", "--store", store, "--as-of", "soon", *FAST
    )


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
    assert repr(device) in fails(*question, "--device", device, *FAST)


def test_questions_that_are_not_utf8(
    store: Path, tmp_path: Path, fails: Callable[..., str]
) -> None:
    path = tmp_path / "questions.txt"
    path.write_bytes("Wer heißt so?".encode("latin-1"))
    assert "UTF-8" in fails("query", "--questions", path, "--store", store, *FAST)


def test_damaged_database(store: Path, fails: Callable[..., str]) -> None:
    path = store / "memory.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert str(store) in fails("query", "Who restores ovens?", "--store", store, *FAST)


def test_question_without_a_content_word_is_answered(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = _json(capsys, "query", "Who is it?", "--store", store, *FAST)["results"]
    assert result["question"] == "Who is it?"


# As a process


def _graphmem(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "graphmem_torch", *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_second_writer_is_refused_while_readers_are_not(store: Path, conversation: Path) -> None:
    from graphmem_torch import Memory

    with Memory.open(store, embedder="hashing"):
        writer = _graphmem("index", conversation, "--store", store, *FAST)
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 2
        assert err.startswith("graphmem: error: ") and str(os.getpid()) in err
        reader = _graphmem("query", "Who restores ovens?", "--store", store, *FAST, "--json")
        out, err = reader.communicate(timeout=120)
        assert reader.returncode == 0, err
        assert json.loads(out)["results"]


def test_ctrl_c_loses_nothing_and_a_rerun_resumes(tmp_path: Path) -> None:
    from graphmem_torch.store import MemoryStore

    lines = 3000
    path, store = tmp_path / "many.jsonl", tmp_path / "store"
    with path.open("w") as file:
        for i in range(lines):
            file.write(
                json.dumps({"id": str(i), "text": f"Memory {i} of the {i % 97}th kind."}) + "\n"
            )
    command = ["index", path, "--store", store, *FAST, "--config.link.batch", "64"]
    process = _graphmem(*command, "--json")

    def acknowledged() -> int:
        with MemoryStore.open(store, mode="r") as reader:
            return sum(kind.isdecimal() for kind in reader.ids())

    deadline = time.monotonic() + 120
    seen = 0
    while seen == 0 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        if (store / "memory.sqlite").exists():
            try:
                seen = acknowledged()
            except Exception:  # the store is still being made
                seen = 0
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted" in err and "safe" in err and "Traceback" not in err
    assert out == ""

    kept = acknowledged()
    assert seen <= kept < lines
    again = _graphmem(*command, "--json")
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    added = json.loads(out)
    assert added["known"] == kept and added["new"] == lines - kept
    assert acknowledged() == lines


def test_closed_pipe_is_no_error(store: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "graphmem_torch",
        "query",
        "Who restores ovens?",
        "--store",
        str(store),
        *FAST,
    ]
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            command, env=environment, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


# The demonstration


def test_demo_compares_what_it_computed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _json(capsys, "demo", "--k", "4", *FAST)
    assert shown["turns"] == 100 and shown["context"]["tokens"] <= shown["context"]["budget"]
    turns = set()
    for comparison in shown["comparisons"]:
        assert len(comparison["flat"]) == len(comparison["graph"]["hits"]) == 4
        turns |= set(comparison["flat"]) | {hit["id"] for hit in comparison["graph"]["hits"]}
    assert len(turns) > 20, "every question got the same answer"
    assert main(["demo", "--k", "4", *FAST]) == 0
    out = capsys.readouterr().out
    assert "flat" in out and "graph memory" in out


def test_demo_flat_search_is_the_cosine_of_the_same_vectors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import numpy as np

    from graphmem_torch.text.embed import HashingEmbedder

    shown = _json(capsys, "demo", *FAST)
    data = Path(__file__).parents[1] / "graphmem_torch" / "demo_data" / "conversation.jsonl"
    turns = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    embedder = HashingEmbedder()
    texts = [f"{turn['speaker']}: {turn['text']}" for turn in turns]
    vectors = embedder.encode(texts).pooled.numpy()
    for comparison in shown["comparisons"][:4]:
        cosines = vectors @ embedder.encode([comparison["question"]]).pooled.numpy()[0]
        best = np.sort(cosines)[::-1][: shown["k"]]
        ids = [turn["id"] for turn in turns]
        mine = [cosines[ids.index(i)] for i in comparison["flat"]]
        np.testing.assert_allclose(mine, best, atol=1e-5)


def test_demo_evidence_names_turns_of_the_conversation() -> None:
    folder = Path(__file__).parents[1] / "graphmem_torch" / "demo_data"
    turns = [json.loads(line) for line in (folder / "conversation.jsonl").open()]
    questions = [json.loads(line) for line in (folder / "questions.jsonl").open()]
    ids = [turn["id"] for turn in turns]
    assert len(set(ids)) == len(ids) == 100
    assert all(set(question["evidence"]) <= set(ids) for question in questions)
