"""`graphmem eval longmemeval`: turns and sessions of pooled chats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.cli.main import main
from tests.bench.quality.made import chat_files

FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]


def test_longmemeval_measures_turns_and_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat_files(tmp_path / "chats")
    out = tmp_path / "out.json"
    assert (
        main(["eval", "longmemeval", "--data", str(tmp_path / "chats"), "--json", str(out), *FAST])
        == 0
    )
    report = json.loads(out.read_text())
    assert report["n"] == {"all": 2, "sessions": 1, "user": 1, "abstention": 1}
    assert (
        set(report["systems"]) == set(report["sessions"]) >= {"dense", "linear", "ppr", "default"}
    )
    # There are three sessions: all are among the first five.
    for figures in report["sessions"].values():
        assert figures["recall"]["all"]["5"] == figures["complete"]["all"]["5"] == 1.0
    bm25, sessions = report["systems"]["bm25"], report["sessions"]["bm25"]
    # By their words the question of tulips finds the turn that plants them, comets both of theirs.
    assert bm25["recall"]["user"]["5"] == sessions["recall"]["user"]["1"] == 1.0
    assert bm25["recall"]["sessions"]["5"] == 1.0 and sessions["recall"]["sessions"]["1"] == 0.5
    assert set(report["sessions"]["default"]["ci"]["difference"]) == set(report["systems"]) - {
        "default"
    }
    assert report["systems"]["default"]["gate_auroc"] is not None
    table = capsys.readouterr().out
    assert all(name in table for name in (*report["systems"], "abstention", "2 questions, and 1"))
