"""Whole questions timed on a device: made-up memories, their questions, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench.device import columns, main, questions, run
from graphmem_torch.config import load_config
from graphmem_torch.index.module import MemoryIndex


def test_a_question_is_a_noisy_copy_of_a_memory() -> None:
    data = columns(500)
    asked = questions(data, 40, seed=3)
    row = torch.randint(500, (40,), generator=torch.Generator().manual_seed(3))
    found = MemoryIndex.build(data, load_config("default"))(asked, k=1).rows[:, 0]
    assert (found == row).float().mean() > 0.9


def test_report_has_every_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    shape = ["--device", "cpu", "--atoms", "60", "90", "--batch", "1", "3", "--seconds", "0"]
    assert main([*shape, "--presets", "default", "synapse", "--json", str(file)]) == 0
    report = json.loads(file.read_text("utf-8"))
    assert [(one["preset"], one["atoms"]) for one in report["reports"]] == [
        ("default", 60), ("synapse", 60), ("default", 90), ("synapse", 90)
    ]  # fmt: skip
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == report["reports"]
    for one in report["reports"]:
        assert one["batches"].keys() == {"1", "3"}
        assert all(each["p50_ms"] <= each["p95_ms"] for each in one["batches"].values())


@pytest.mark.cuda
def test_a_gpu_finds_what_the_cpu_does() -> None:
    (report,) = run(2000, [1, 64], "cuda", ["default"], seconds=0.0)
    assert report["same_hits"] > 0.98 and report["score_error"] < 1e-2
    for one in report["batches"].values():
        assert one["launches"] > 0 and one["busy_ms"] > 0 and one["peak_bytes"] > 0
