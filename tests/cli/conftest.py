"""Shared by the tests of the command line: a small store, and two ways to run a command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main

TURNS = [
    ("D1:1", "Theo", "s1", "2024-02-04T10:00Z", "Bertrand restores old deck ovens."),
    ("D1:2", "Nora", "s1", "2024-02-04T10:01Z", "Does he deliver them as well?"),
    ("D2:1", "Nora", "s2", "2024-03-02T09:00Z", "The conference is in Lisbon."),
    ("D2:2", "Theo", "s2", "2024-03-02T09:01Z", "Bertrand grew up there."),
]


FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]


@pytest.fixture
def fast() -> list[str]:
    """Options without a language model: a deterministic encoder and no concept model."""
    return [*FAST]


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    """A file of four turns in two sessions."""
    return _written(tmp_path)


def _written(folder: Path) -> Path:
    path = folder / "conversation.jsonl"
    keys = ("id", "speaker", "session", "time", "text")
    lines = [
        json.dumps({**dict(zip(keys, turn, strict=True)), "page": page})
        for page, turn in enumerate(TURNS, start=1)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of which each test has a copy."""
    folder = tmp_path_factory.mktemp("indexed")
    assert main(["index", str(_written(folder)), "--store", str(folder / "store"), *FAST]) == 0
    return folder / "store"


@pytest.fixture
def store(tmp_path: Path, indexed: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store of the conversation."""
    path = tmp_path / "store"
    shutil.copytree(indexed, path)
    capsys.readouterr()
    return path


@pytest.fixture
def reply(fast: list[str], capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with `--json` and returns what it printed."""

    def run(*arguments: str | Path) -> Any:
        assert main([*map(str, arguments), *fast, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def fails(fast: list[str], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail, and returns its one line on standard error."""

    def run(*arguments: str | Path) -> str:
        words = [*map(str, arguments)]
        place = 2 if words[0] in ("atoms", "facts", "store") else 1
        # First, so that a test can override them.
        assert main([*words[:place], *fast, *words[place:]]) == 2
        out, err = capsys.readouterr()
        message = err.strip().splitlines()[-1]
        assert message.startswith("graphmem: error: ")
        assert "Traceback" not in err
        assert out == ""
        return message

    return run
