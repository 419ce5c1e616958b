"""Estimates at the command line, and files that cannot fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main


def test_estimate_tells_what_fits(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["store", "estimate", "--store", str(store)]
    found = reply(*asked, "--atoms", "1000", "--like", store)
    assert found["atoms"] == 1000
    assert found["misfits"] == []
    assert main([*asked, "--atoms", "1000000000000", *fast]) == 1
    said = capsys.readouterr().out
    assert "does not fit" in said
    assert "hours in one process" in said


def test_files_that_cannot_fit_are_refused_before_they_are_read(
    tmp_path: Path, fails: Callable[..., str]
) -> None:
    big, new = tmp_path / "big.txt", tmp_path / "new.mem"
    big.write_text("A kiln.\n")
    os.truncate(big, 1 << 42)
    assert "expected room for about" in fails("index", big, "--store", new)
    assert not new.exists()
