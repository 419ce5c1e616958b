"""Memories are put aside, searched there and brought back at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.cli.main import main
from tests.memories import opened

FAST = ["--embedder", "hashing:32", "--device", "cpu"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "m"
    with opened(path, embedder="hashing:32") as memory:
        memory.add(
            [
                Atom("a", "I moved to Lisbon last week.", speaker="Nora", time=1.7e9),
                Atom("b", "The quartet plays Ravel.", speaker="Ben", time=1.7e9 + 60),
            ]
        )
    return str(path)


def test_archive_query_restore(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*command: str, code: int = 0) -> str:
        assert main([*command, "--store", store, *FAST]) == code
        read = capsys.readouterr()
        return read.err if code else read.out

    assert "got none" in said("query", "Ravel?", "--archived", code=2)
    assert "1 memory archived" in said("atoms", "archive", "b")
    found = json.loads(said("query", "Ravel?", "--archived", "--json"))
    assert [hit["id"] for hit in found["results"][0]["hits"]] == ["b"]
    assert "quartet" not in said("query", "Ravel?")
    assert json.loads(said("atoms", "restore", "b", "--json"))["restored"] == 1
    assert "not in the archive" in said("atoms", "restore", "b", code=2)
    assert "at least one" in said("atoms", "archive", code=2)


def test_a_memory_as_a_particle(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["atoms", "get", "a", "--particle", "--store", store, *FAST]) == 0
    shown = capsys.readouterr().out
    assert "is assertion, event" in shown and "keys Lisbon" in shown and "used 0 times" in shown
    assert main(["atoms", "get", "a", "--particle", "--json", "--store", store, *FAST]) == 0
    (particle,) = json.loads(capsys.readouterr().out)["particles"]
    assert particle["signifiers"] == ["assertion", "event"] and particle["created"] == 1.7e9
