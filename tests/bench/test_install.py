"""Sizes of an installation, measured in this environment."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from bench.install import main, measured, tables


def test_what_a_requirement_brings_is_what_it_needs() -> None:
    needs = {"": ["scipy", "tqdm"], "plot": ["no-such-package-here"]}
    found = measured(sys.executable, needs)
    assert found["installed"][""] == ["numpy", "scipy", "tqdm"]
    assert found["missing"] == {"": [], "plot": ["no-such-package-here"]}
    assert found["parts"]["scipy"] == [["numpy", "scipy"], ["tqdm"]]
    files = importlib.metadata.distribution("tqdm").files or ()
    paths = {Path(str(file.locate())) for file in files}
    assert found["bytes"]["tqdm"] == sum(path.stat().st_size for path in paths if path.is_file())
    shown = tables("package", found)
    assert "| `package[plot]` | 4 | " in shown and "without no-such-package-here" in shown
    assert shown.index("| scipy |") < shown.index("| tqdm |")


def test_a_marker_that_does_not_apply_brings_nothing() -> None:
    needs = {"": ["tqdm; sys_platform == 'none'"]}
    assert measured(sys.executable, needs)["installed"][""] == []


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["openai", "--python", sys.executable, "--json", str(tmp_path / "out.json")])
    shown = capsys.readouterr().out
    assert "| `graphmem-torch[openai]` | " in shown and "| torch | " in shown
    assert "torch" in json.loads((tmp_path / "out.json").read_text("utf-8"))["bytes"]
    with pytest.raises(SystemExit):
        main(["opneai", "--python", sys.executable])
    assert "expected some of encoder" in capsys.readouterr().err
