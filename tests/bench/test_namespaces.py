"""The script of what crosses between namespaces: a crossing is seen, and there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.namespaces import main
from graphmem_torch.memory import Memory

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

    def crossing(self: Memory, questions: Any, namespaces: Any = None, **more: Any) -> Any:
        return ask(self, questions, namespaces=namespaces and namespaces[::-1], **more)

    monkeypatch.setattr(Memory, "retrieve", crossing)
    assert main([*SMALL[:-2], "--stores=0", *out]) == 1
    assert json.loads((tmp_path / "out.json").read_text())["leaks"] > 0
