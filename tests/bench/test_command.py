"""The command line of scripts: what they refuse is one line, told before the work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.command import command
from graphmem_torch.errors import InputError


@dataclass(frozen=True)
class Options:
    """Where the report goes."""

    json: Path | None = None


def refusing(options: Options) -> dict[str, Any]:
    raise InputError("data: expected a file, got none; name one")


def test_command_refuses_in_one_line() -> None:
    with pytest.raises(SystemExit, match="error: data: expected a file, got none; name one"):
        command(Options, refusing, [], None)


def test_command_looks_at_the_place_of_its_report_first(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--json: expected a file in a folder that exists"):
        command(Options, refusing, ["--json", str(tmp_path / "no" / "out.json")], None)


def test_command_writes_its_report(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert command(Options, lambda options: {"n": 3}, ["--json", str(out)], None) == {"n": 3}
    assert out.read_text() == '{\n  "n": 3\n}\n'
