"""`graphmem context` in all its formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.text.tokens import count_messages

QUESTION = "Who restores deck ovens?"


def test_context_messages_are_printed_as_json(
    store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("openai", "anthropic"):
        arguments = ["context", QUESTION, "--store", str(store), "--budget", "200"]
        assert main([*arguments, "--format", name, *fast]) == 0
        out, err = capsys.readouterr()
        sent = json.loads(out)
        system = [{"role": "system", "content": sent["system"]}] if "system" in sent else []
        assert len(system) == (name == "anthropic")
        assert sent["messages"][-1]["content"].endswith(QUESTION)
        tokens = count_messages([*system, *sent["messages"]])
        assert f"{tokens} of 200 tokens (cl100k_base)" in err
        assert "Bertrand" in out


def test_context_options_reach_the_compiler(store: Path, reply: Callable[..., Any]) -> None:
    answer = reply(
        *("context", QUESTION, "--store", store, "--budget", "100", "--order", "relevance"),
        *("--tokenizer", "o200k_base", "--template", "{context}\n\n{question}"),
    )
    assert answer["tokenizer"] == "o200k_base"
    assert answer["text"].endswith(f"\n\n{QUESTION}")
    assert answer["sources"][0] == "D1:1"
    assert answer["tokens"] <= 100
    assert answer["exact"] is True


def test_context_says_what_does_not_fit(
    store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["context", QUESTION, "--store", str(store), *fast]
    for options, said in (
        (["--budget", "5", "--format", "openai"], "expected at least the"),
        (["--budget", "50", "--template", "{memories}"], "expected the fields {context}"),
        (["--budget", "50", "--tokenizer", "cl1OOk_base"], "did you mean 'cl100k_base'"),
    ):
        assert main([*arguments, *options]) == 2
        assert said in capsys.readouterr().err


def test_a_terminal_obeys_no_memory(
    tmp_path: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Escapes in a text, a speaker, an id and a session are shown."""
    evil = "\x1b[2J\x9b31m\x07\u202e deck\rovens"
    line = {"id": evil, "text": evil, "speaker": evil, "session": evil}
    (tmp_path / "evil.jsonl").write_text(json.dumps(line) + "\n")
    store = ["--store", str(tmp_path / "store"), *fast]
    assert main(["index", str(tmp_path / "evil.jsonl"), *store]) == 0
    budget = ["--budget", "200"]
    for arguments in (
        ["query", QUESTION],
        *(["context", QUESTION, *budget, "--format", name] for name in ("text", "json", "openai")),
        ["store", "stats"],
        ["store", "check"],
    ):
        for options in ([], ["--json"]):
            assert main([*arguments, *store, *options]) == 0
            out, err = capsys.readouterr()
            assert not any(sign in out + err for sign in "\x1b\x9b\x07\u202e\r")
            if options:
                json.loads(out)
    assert main(["query", QUESTION, *store, "--where", "\x1b[2J"]) == 2
    assert "\x1b" not in capsys.readouterr().err
