"""The judge of mode retrieval, from file to report."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.quality.modes import curve as modes_curve
from graphmem_torch.quality.modes import scale as modes_scale
from graphmem_torch.quality.modes.experiment import COLUMNS
from graphmem_torch.quality.modes.source import has_conversations
from graphmem_torch.quality.request import Request, judge
from tests.bench.quality.made import novel

FAST = ["--embedder", "hashing:32", "--config.link.concepts", "pattern", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _few_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed is not tested: a few rounds will do."""
    monkeypatch.setattr(modes_scale, "_ONE", 2)
    monkeypatch.setattr(modes_scale, "_BATCHES", 1)
    monkeypatch.setattr(modes_curve, "_ROUNDS", 2)


def test_the_judge_on_conversations(
    locomo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "modes.json"
    arguments = ["eval", "modes", "--data", str(locomo), "--json", str(out), "--preset", "synapse"]
    assert main([*arguments, *FAST]) == 0
    report = json.loads(out.read_text())
    assert report["dataset"] == "modes" and report["preset"] == "synapse"
    assert report["n"] == {"questions": 6, "conversations": 2}
    assert set(report["systems"]) == {
        *("flat", "tree", "communities", "modes", "default", "synapse"),
    }
    for name, figures in report["systems"].items():
        assert all(figures[c] >= 0.0 for c in COLUMNS)
        assert ("difference" in figures) == (name != "synapse")
    table = capsys.readouterr().out
    assert all(name in table for name in (*report["systems"], "kmeans", "Recommended"))


@pytest.mark.parametrize("form", ["jsonl", "xz", "store"])
def test_the_judge_on_texts(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in novel(24))
    data = tmp_path / "novel.jsonl"
    data.write_text(lines, encoding="utf-8")
    if form == "xz":
        data = tmp_path / "novel.jsonl.xz"
        data.write_bytes(lzma.compress(lines.encode()))
    if form == "store":
        data = tmp_path / "store"
        config = load_config("default", {"link.concepts": "pattern"})
        with Memory.open(data, config=config, embedder="hashing:32", device="cpu") as memory:
            memory.add(novel(24))
    out = tmp_path / "modes.json"
    assert main(["eval", "modes", "--data", str(data), "--json", str(out), *FAST]) == 0
    report = json.loads(out.read_text())
    assert report["n"] == {"held_out": 2, "rows": [22]}
    assert "22 vectors of 32 dimensions" in capsys.readouterr().out


def test_unusable_data(tmp_path: Path, locomo: Path) -> None:
    options: dict[str, Any] = {"embedder": "hashing:32", "device": "cpu"}
    short = tmp_path / "short.jsonl"
    short.write_text('{"text": "alone"}\n')
    with pytest.raises(InputError, match="at least 20"):
        judge("modes", Request(data=short, **options))
    broken = tmp_path / "broken.xz"
    broken.write_bytes(b"no archive")
    with pytest.raises(InputError, match="broken"):
        judge("modes", Request(data=broken, **options))
    samples = json.loads(locomo.read_text())
    for sample in samples:
        for question in sample["qa"]:
            question["evidence"] = []
    locomo.write_text(json.dumps(samples))
    with pytest.raises(InputError, match="evidence"):
        judge("modes", Request(data=locomo, **options))
    assert has_conversations(locomo.parent) and not has_conversations(tmp_path)
    with pytest.raises(InputError, match="--input"):
        judge("modes", Request(data=locomo, input="observations", **options))
