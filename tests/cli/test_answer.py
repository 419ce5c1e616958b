"""`graphmem answer`, `query --verify` and `classify` against a real server on the loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from tests.oracle.server import Exchange, ScriptedServer

pytest.importorskip("openai")
pytest.importorskip("bpe_openai")

QUESTION = "Who restores deck ovens?"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server(local: None) -> Iterator[ScriptedServer]:
    with_memories = ScriptedServer(_answer)
    yield with_memories
    with_memories.close()


def _answer(exchange: Exchange) -> None:
    """Bertrand, where the prompt says so, with the number of the memory that does."""
    (line,) = [each for each in exchange.prompt.splitlines() if "Bertrand restores" in each]
    exchange.say(f"Bertrand [{line.partition('.')[0]}]")


def test_answer_is_printed_and_its_sources_beside_it(
    store: Path, fast: list[str], server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--store", str(store), "--model", "m", "--base-url", server.url]
    assert main(["answer", QUESTION, *options, *fast]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Bertrand [")
    assert "cites D1:1" in err and "of 2048 tokens" in err


def test_answer_as_json(store: Path, server: ScriptedServer, reply: Callable[..., Any]) -> None:
    found = reply("answer", QUESTION, "--store", store, "--model", "m", "--base-url", server.url)
    assert found["cited"] == ["D1:1"]
    assert found["error"] is None
    assert found["context"]["tokens"] <= 2048
    assert found["context"]["messages"][-1]["content"].endswith(QUESTION)


def test_answer_without_a_key_or_from_a_server_that_refuses(
    store: Path, local: None, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert "set OPENAI_API_KEY" in fails("answer", QUESTION, "--store", store, "--model", "m")
    refusing = ScriptedServer(lambda exchange: exchange.send(b"{}", status=401))
    options = ["--store", store, "--model", "m", "--base-url", refusing.url]
    try:
        message = fails("answer", QUESTION, *options)
        assert "no answer: " in message and "401" in message
    finally:
        refusing.close()


def test_query_behind_a_second_check(
    store: Path,
    fast: list[str],
    local: None,
    reply: Callable[..., Any],
    fails: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["query", QUESTION, "Who sang in Oslo?", "--store", str(store), "-k", "2"]
    asked += ["--config.gate.threshold", "0", "--verify", "m", "--base-url"]

    def said(exchange: Exchange) -> None:
        exchange.say('{"mentioned": %s}' % ("false" if "Oslo" in exchange.prompt else "true"))

    checking = ScriptedServer(said)
    try:
        found = reply(*asked, checking.url)["results"]
        assert [each["verified"] for each in found] == [each["known"] for each in found]
        assert [each["known"] for each in found] == [True, False]
        assert main([*asked, checking.url, *fast]) == 0
        assert "no answer is mentioned" in capsys.readouterr().out.replace("\n", " ")
    finally:
        checking.close()
    assert "--base-url" in fails("query", QUESTION, "--store", store, "--base-url", "http://x")


def test_classify_and_what_is_extracted(
    store: Path,
    fast: list[str],
    local: None,
    reply: Callable[..., Any],
    fails: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(exchange: Exchange) -> None:
        text = exchange.prompt.rpartition("Input:")[2]
        answer = {"content": "Bertrand mends ovens", "type": "SEMANTIC", "decay_factor": 0.99}
        if "restores" in text:
            exchange.say(json.dumps(answer))
        else:
            exchange.send(b"{}", status=400)

    asked = ["store", "classify", "--store", str(store)]
    model = ScriptedServer(said)
    served = [*asked, "--model", "m", "--base-url", model.url, "--extract"]
    try:
        found = reply(*served, "D1:1", "D1:2")
        assert sum(found["types"].values()) == 2 and found["types"]["semantic"] >= 1
        assert (found["failed"], found["contents"], found["relations"]) == (1, 1, 0)
        (made,) = reply("atoms", "get", "D1:1#content", "--store", store)["atoms"]
        assert made["text"] == "Bertrand mends ovens"
        assert made["edges"] == [["D1:1", "derived_from", None]]
        assert main([*served, "D1:2", *fast]) == 0
        assert "1 of them by rules" in capsys.readouterr().out
    finally:
        model.close()
    assert sum(reply(*asked)["types"].values()) == 3  # not the one that the model has typed
    assert "--extract" in fails(*asked, "--extract")
    assert "nowhere" in fails(*asked, "nowhere")


def test_a_lost_answer_is_told_once(
    store: Path, local: None, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(exchange: Exchange) -> None:
        exchange.fail(404)

    server = ScriptedServer(refuse)
    try:
        options = ["--store", str(store), "--model", "m", "--base-url", server.url]
        assert main(["answer", QUESTION, *options, *fast]) == 2
    finally:
        server.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("graphmem: error: no answer: ")
    assert lines[0].count("404") == 1
