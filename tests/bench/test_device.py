"""Whole questions timed on a device: made-up memories, their questions, and the reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.device import Setting, main, run
from bench.made_memory import made_memory, made_on, questions
from graphmem_torch.config import load_config
from graphmem_torch.index.buffer_schema import check_buffers
from graphmem_torch.index.module import MemoryIndex


def test_a_question_is_a_noisy_copy_of_a_memory() -> None:
    data = made_memory(500)
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


def test_report_of_a_rich_memory_counts_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--device", "cpu", "--atoms", "90", "--batch", "2", "--seconds", "0", "--rich"]
    assert main(shape) == 0
    (report,) = map(json.loads, capsys.readouterr().out.splitlines())
    work = report["batches"]["2"]["work"]
    stages = {name: each for name, each in work.items() if name != "all"}
    assert stages.keys() >= {"candidates", "base signals", "anchors and graph", "score"}
    for name in ("calls", "waits", "uploads", "passes"):
        assert work["all"][name] == sum(each[name] for each in stages.values())
    assert report["rich"] and work["all"]["calls"] > 300


def test_report_of_graphs_counts_what_is_sent_beside_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shape = ["--device", "cpu", "--atoms", "90", "--batch", "1", "3", "--seconds", "0"]
    assert main([*shape, "--mode", "graph", "--rich"]) == 0
    (report,) = map(json.loads, capsys.readouterr().out.splitlines())
    for count, each in report["batches"].items():
        assert each["work"]["all"]["calls"] == 3 and each["work"]["all"]["waits"] == 1
        (graph,) = each["graphs"]
        assert graph["bucket"].startswith({"1": "1 questions", "3": "8 questions"}[count])
        assert graph["replays"] == graph["uses"] - 1 and graph["refused"] is None


def test_rich_memory_gives_every_signal_something_to_read() -> None:
    data = made_memory(600, rich=True)
    asked = questions(data, 60, rich=True, masked=True)
    assert asked.allowed is not None and 0.9 < float(asked.allowed.float().mean()) < 1.0
    index = MemoryIndex.build(data, load_config("default"))
    found = index(asked, k=20)
    told = dict(zip(index.signal_names, found.shares.abs().sum((0, 1)).tolist(), strict=True))
    for name in ("role", "date", "event", "named", "hop", "derived_semantic", "lexical_unread"):
        assert told[name] > 0, name
    share = {
        "derived": len(index.tensors.derived_source) / 600,
        "documents": float(index.tensors.hops.document.float().mean()),  # type: ignore[union-attr]
        "hub": float((index.graph.target == 600).sum()) / 600,
    }
    assert 0.03 < share["derived"] < 0.08 and 0.2 < share["documents"] < 0.3
    assert share["hub"] > 0.08


def test_a_memory_drawn_on_a_device_is_one_that_an_index_takes() -> None:
    state, asked = made_on("cpu", 500, torch.float16, 40)
    check_buffers(state)
    index = MemoryIndex.from_state_dict(state, load_config("default"))
    found = index(asked, k=1)
    cosine = asked.embedding @ index.embeddings.float().T
    assert (cosine.argmax(1) == found.rows[:, 0]).float().mean() > 0.9
    later = index.tensors.next.long()
    there = later >= 0
    assert (index.tensors.session[later[there]] == index.tensors.session[there]).all()
    assert int(there.sum()) == 500 - 21  # sessions of 24 turns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "grahp"], "expected eager, fixed, graph, compile, got grahp"),
        (["--rich", "--drawn-on-device"], "--rich: expected a memory that the host builds"),
    ],
)
def test_options_are_refused_by_name(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--device", "cpu", *options])
    assert message in capsys.readouterr().err


def _script(*options: str, out: Path | None) -> subprocess.CompletedProcess[str]:
    folder = {} if out is None else {"OUT": str(out)}
    given = {name: value for name, value in os.environ.items() if name != "OUT"}
    return subprocess.run(
        ["bash", str(Path(__file__).parents[2] / "bench" / "gpu.sh"), *options],
        env={**given, **folder, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_script_for_a_device_runs_here(tmp_path: Path) -> None:
    """All steps of both parts, small; each writes its figures as it ends."""
    steps: dict[str, dict[str, object]] = {}
    for part in ("1", "2"):
        done = _script(part, "--device", "cpu", "--small", out=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / f"part{part}.jsonl").read_text("utf-8").splitlines()
        steps |= {each["step"]: each for each in map(json.loads, lines) if "step" in each}
    log = (tmp_path / "part1.log").read_text("utf-8") + (tmp_path / "part2.log").read_text("utf-8")
    failed = {name: each for name, each in steps.items() if each.get("status", 0) != 0}
    assert not failed, log
    assert steps.keys() >= {"ceilings", "rich", "graph", "drawn", "compile", "indexing", "ncu"}
    assert "skipped" not in steps["rich"] and steps["indexing"]["skipped"] == "TEXTS names no file"


@pytest.mark.parametrize(
    ("options", "folder", "message"),
    [
        ((), True, "part: expected 1 or 2, got ''"),
        (("3",), True, "part: expected 1 or 2, got '3'"),
        (("1", "--device", "tpu"), True, "--device: expected cuda or cpu, got 'tpu'"),
        (("1", "--fast"), True, "--fast: expected --device or --small"),
        (("1", "--device"), True, "--device: expected cuda or cpu, got ''"),
        (("2",), False, "OUT: expected a folder for the figures, got none"),
    ],
)
def test_script_for_a_device_refuses_by_name(
    options: tuple[str, ...], folder: bool, message: str, tmp_path: Path
) -> None:
    done = _script(*options, out=tmp_path if folder else None)
    assert done.returncode != 0 and message in done.stderr


@pytest.mark.cuda
def test_a_gpu_finds_what_the_cpu_does() -> None:
    (report,) = run(Setting(2000, (1, 64), seconds=0.0), ["default"])
    assert report["same_hits"] > 0.98 and report["score_error"] < 1e-2
    for one in report["batches"].values():
        assert one["launches"] > 0 and one["busy_ms"] > 0 and one["peak_bytes"] > 0
