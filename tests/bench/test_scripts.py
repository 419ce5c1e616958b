"""The benchmark scripts run from start to end on a small input."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import crash_test, scale


def _run(main: Callable[[Sequence[str]], int], out: Path, *options: str) -> dict[str, Any]:
    assert main([*options, "--json", str(out)]) == 0
    return json.loads(out.read_text())


def test_scale(tmp_path: Path) -> None:
    data = tmp_path / "novels.jsonl"
    texts = [
        f"The captain of ship {i} sailed to port {i % 7} before the storm." for i in range(200)
    ]
    rows = [{"book": "b", "chapter": i // 9, "par": i, "text": t} for i, t in enumerate(texts)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--data", str(data), "--atoms", "60", "--questions", "64", "--device", "cpu"]
    models = ["--embedder", "hashing", "--concepts", "pattern"]
    report = _run(scale.main, tmp_path / "out.json", *options, *models)
    assert report["atoms"] == 60
    assert set(report["query"]) == {"1", "64"}
    assert set(report["index"]["stages_s"]) >= {"encoder", "concepts", "similarity", "store"}


def test_crash_test_loses_nothing(tmp_path: Path) -> None:
    options = ["--rounds", "4", "--atoms", "60"]
    outcome = _run(crash_test.main, tmp_path / "out.json", *options)
    assert outcome["killed"] == 4 or outcome["rounds"] == 12
    assert outcome["lost"] == outcome["unopened"] == outcome["not_whole"] == 0
