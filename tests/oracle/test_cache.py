"""The cache of answers: kept on disk, shared, and never in the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.oracle.cache import AnswerCache


def test_cache_keeps_and_shares(tmp_path: Path) -> None:
    one, two = AnswerCache(tmp_path / "a"), AnswerCache(str(tmp_path / "a"))
    assert one.get("k") is None
    one.put("k", "first")
    one.put("k", "second\0 ☃")
    assert two.get("k") == "second\0 ☃"
    one.close()
    two.close()
    assert AnswerCache(tmp_path / "a").get("k") == "second\0 ☃"
    assert two.get("k") is None and two.put("k", "x") is None, "closed: no use, no error"
    memory = AnswerCache()
    memory.put("k", "here")
    assert memory.get("k") == "here" and AnswerCache().get("k") is None


def test_cache_refuses_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database at all, " * 100)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE atoms (id)")
    for name in ("text", "other", ".", "no/such/folder/file"):
        with pytest.raises(InputError, match="cache: "):
            AnswerCache(tmp_path / name)
    with sqlite3.connect(tmp_path / "other") as other:
        assert len(other.execute("SELECT * FROM sqlite_master").fetchall()) == 1


def test_cache_that_stops_working_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AnswerCache(tmp_path / "a")
    with sqlite3.connect(tmp_path / "a") as other:
        other.execute("DROP TABLE answers")
    cache.put("k", "x")
    assert cache.get("k") is None
    cache.put("k", "x")
    assert len(caplog.records) == 1 and "going on without it" in caplog.text
