"""Expiry and memories of other programs at the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.memory import Memory

MOVED = Path(__file__).parents[1] / "readers" / "moved"


def test_what_has_expired_is_listed_and_swept(
    store: Path, reply: Callable[..., Any], fails: Callable[..., str]
) -> None:
    changed = reply("atoms", "update", "D1:1", "--ttl", "3600", "--store", store)["atom"]
    assert changed["ttl"] == 3600 and changed["expires"] > changed["time"]
    changed = reply("atoms", "update", "D1:1", "--expires", "2020-01-01", "--store", store)["atom"]
    assert changed["expires"] == 1577836800.0
    kept = reply("atoms", "list", "--store", store)["atoms"]
    assert [each["id"] for each in kept] == ["D1:2", "D2:1", "D2:2"]
    away = reply("atoms", "list", "--expired", "--store", store)["atoms"]
    assert [each["id"] for each in away] == ["D1:1"]
    found = reply("query", "Who restores ovens?", "--store", store)["results"][0]["hits"]
    assert "D1:1" not in [hit["id"] for hit in found]
    assert reply("store", "stats", "--store", store)["expired"] == 1
    assert "has expired" in fails("atoms", "get", "D1:1", "--store", store)
    assert "--ttl: expected a number" in fails(
        "atoms", "update", "D1:2", "--ttl", "1h", "--store", store
    )
    assert "--expires: expected a time" in fails(
        "atoms", "update", "D1:2", "--expires", "soon", "--store", store
    )
    assert reply("store", "consolidate", "--store", store)["expired"] == 1
    assert reply("atoms", "list", "--expired", "--store", store)["atoms"] == []


def test_an_empty_value_takes_it_away(store: Path, reply: Callable[..., Any]) -> None:
    reply("atoms", "update", "D1:1", "--ttl", "3600", "--store", store)
    changed = reply("atoms", "update", "D1:1", "--ttl", "", "--store", store)["atom"]
    assert "ttl" not in changed and "expires" in changed
    changed = reply("atoms", "update", "D1:1", "--expires", "", "--store", store)["atom"]
    assert "expires" not in changed


def test_memories_of_another_program(
    tmp_path: Path, reply: Callable[..., Any], fails: Callable[..., str]
) -> None:
    new, source = tmp_path / "new.mem", MOVED / "graphiti.json"
    assert "expected one of mem0, zep" in fails(
        "store", "import", source, "--format", "zepp", "--store", new
    )
    for bad in (MOVED / "mem0.sql", tmp_path):
        assert "graphmem" in fails("store", "import", bad, "--store", new) and not new.exists()
    done = reply("store", "import", source, "--store", new)
    assert (done["new"], done["known"]) == (4, 0)
    assert done["losses"]["embedding of another encoder"] == 2
    again = reply("store", "import", source, "--format", "zep", "--store", new)
    assert (again["new"], again["known"]) == (0, 4)


def test_the_counts_are_printed(
    tmp_path: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "m")
    assert main(["store", "import", str(MOVED / "letta.af"), "--store", target, *fast]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4 memories added to ") and "not kept 2 x tool\n" in said
    with Memory.open(target, mode="r", embedder="hashing") as memory:
        assert len(memory) == 4
