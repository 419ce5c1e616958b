"""The script of what crosses between namespaces: a crossing is seen, and there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.namespaces import main
from graphmem_torch.memory import Memory
from graphmem_torch.memory.request import EVERYTHING, Scope

SMALL = "--namespaces=2 --atoms=8 --questions=12 --k=3 --stores=2 --timed=2".split()  # noqa: SIM905


def test_nothing_crosses_and_a_crossing_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--json", str(tmp_path / "out.json")]
    assert main([*SMALL, *out]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["questions"] == 12 and report["hits"] > 12
    assert report["leaks"] == report["other_answers"] == 0
    assert report["cost"]["stores"] == 2
    ask = Memory.retrieve

    def crossing(self: Memory, questions: Any, scope: Scope = EVERYTHING, **more: Any) -> Any:
        names = scope.namespaces
        return ask(self, questions, scope=replace(scope, namespaces=names and names[::-1]), **more)

    monkeypatch.setattr(Memory, "retrieve", crossing)
    assert main([*SMALL[:-2], "--stores=0", *out]) == 1
    assert json.loads((tmp_path / "out.json").read_text())["leaks"] > 0
