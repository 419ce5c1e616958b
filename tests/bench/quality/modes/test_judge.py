"""The judge of mode retrieval, from file to report."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.quality.modes.experiment import COLUMNS
from graphmem_torch.quality.modes.judge import judge
from graphmem_torch.quality.modes.source import has_conversations, open_source
from graphmem_torch.quality.request import Request
from graphmem_torch.quality.request import judge as judge_named
from tests.bench.quality.made import novel


def _request(data: Path, preset: str = "default") -> Request:
    config = load_config(preset, {"link.concepts": "pattern"})
    return Request(data=data, preset=preset, config=config, embedder="hashing:32", device="cpu")


def test_judge_on_conversations(locomo: Path) -> None:
    # What is timed is not tested: one round will do.
    judged = judge(_request(locomo, "synapse"), rounds=1)
    report = json.loads(json.dumps(judged.report))
    assert report["dataset"] == "modes" and report["preset"] == "synapse"
    assert report["n"] == {"questions": 6, "conversations": 2}
    assert set(report["systems"]) == {
        *("flat", "tree", "communities", "modes", "default", "synapse"),
    }
    for name, figures in report["systems"].items():
        assert all(figures[c] >= 0.0 for c in COLUMNS)
        assert ("difference" in figures) == (name != "synapse")
    assert all(name in judged.table for name in (*report["systems"], "kmeans", "Recommended"))


def test_judge_on_texts_of_every_form(tmp_path: Path) -> None:
    texts = novel(24)
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    plain, packed, store = (tmp_path / name for name in ("novel.jsonl", "novel.jsonl.xz", "store"))
    plain.write_text(lines, encoding="utf-8")
    packed.write_bytes(lzma.compress(lines.encode()))
    config = load_config("default", {"link.concepts": "pattern"})
    with Memory.open(store, config=config, embedder="hashing:32", device="cpu") as memory:
        memory.add(texts)
    found = [open_source(_request(data)) for data in (plain, packed, store)]
    assert all(source.texts == texts for source in found)
    assert all(torch.equal(source.vectors, found[0].vectors) for source in found)
    judged = judge(_request(packed), scale_rounds=(2, 1))
    report = json.loads(json.dumps(judged.report, allow_nan=False))
    assert report["n"] == {"held_out": 2, "rows": [22]}
    assert "22 vectors of 32 dimensions" in judged.table


def test_judge_tells_unusable_data(tmp_path: Path, locomo: Path) -> None:
    config = load_config("default", {"link.concepts": "pattern"})
    options: dict[str, Any] = {"config": config, "embedder": "hashing:32", "device": "cpu"}
    short = tmp_path / "short.jsonl"
    short.write_text('{"text": "alone"}\n')
    with pytest.raises(InputError, match="at least 20"):
        judge_named("modes", Request(data=short, **options))
    broken = tmp_path / "broken.xz"
    broken.write_bytes(b"no archive")
    with pytest.raises(InputError, match="broken"):
        judge_named("modes", Request(data=broken, **options))
    samples = json.loads(locomo.read_text())
    for sample in samples:
        for question in sample["qa"]:
            question["evidence"] = []
    locomo.write_text(json.dumps(samples))
    with pytest.raises(InputError, match="evidence"):
        judge_named("modes", Request(data=locomo, **options))
    assert has_conversations(locomo.parent) and not has_conversations(tmp_path)
    with pytest.raises(InputError, match="--input"):
        judge_named("modes", Request(data=locomo, input="observations", **options))
