"""The benchmark scripts run from start to end on a small input."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import histories, plans, reach, scale
from graphmem_torch.index.data import GrowingIndex
from tests.processes import Command, start


@pytest.fixture(scope="module", autouse=True)
def beside(launcher: socket.socket, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """Scripts that fork, in processes with one thread, run beside the others."""
    crowd = ["--adding", "2", "--asking", "2", "--writing", "1", "--reading", "1"]
    crowd = ["bench.concurrency", "--seconds", "0.3", "--atoms", "40", *crowd]
    commands = {
        "0": crowd,
        "0.05": [*crowd, "--refining", "0.05", "--reconciling"],
        "crash_test": ["bench.crash_test", "--rounds", "2", "--atoms", "40"],
    }
    return {
        name: start(launcher, tmp_path_factory.mktemp("beside"), *command)
        for name, command in commands.items()
    }


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
    options = ["--data", str(data), "--atoms", "60", "--questions", "9", "--device", "cpu"]
    models = ["--batch", "4", "--embedder", "hashing", "--concepts", "pattern"]
    report = _run(scale.main, tmp_path / "out.json", *options, *models)
    assert report["atoms"] == 60
    assert {size: each["batches"] for size, each in report["query"].items()} == {"1": 9, "4": 2}
    assert set(report["index"]["stages_s"]) >= {"encoder", "concepts", "similarity", "store"}


def test_reach_by_age(tmp_path: Path) -> None:
    data = tmp_path / "novels.jsonl"
    texts = [f"Captain Ahab sailed ship {i} to Port Elsa before the storm." for i in range(40)]
    rows = [{"book": "b", "chapter": i, "par": 0, "text": text} for i, text in enumerate(texts)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--data", str(data), "--atoms", "30", "--questions", "4", "--batch", "3"]
    report = _run(reach.main, tmp_path / "out.json", *options)
    for preset in ("synapse", "default"):
        found = report["reached"][preset]["30"]
        assert len(found["deciles"]) == 10 and found["edges"] > 0
        assert 0 < max(found["deciles"]) <= 1.0


def test_shares_of_ten_parts_by_hand() -> None:
    reached = torch.zeros(2, 20, dtype=torch.bool)
    reached[0, :2] = reached[1, 0] = reached[1, 19] = True
    expected = [0.75, *[0.0] * 8, 0.25]
    assert reach.deciles(reached).tolist() == expected


def test_plans_leave_fewer_at_each_step(tmp_path: Path) -> None:
    options = ["--atoms", "500", "--questions", "3", "--batch", "2", "--embedder", "hashing:32"]
    report = _run(plans.main, tmp_path / "out.json", *options, "--device", "cpu")
    steps = [report["steps"][name] for name in ("time", "semantic", "relational")]
    assert steps[0][0] == 500 and 0 < steps[0][1] < 50
    assert steps[1][0] == 500, "so few are inside that the others are looked at behind them"
    assert steps[2][0] == steps[1][1] <= 500
    assert report["recall@10"]["plan"] == 1.0
    assert set(report["latency"]["plan"]) == set(report["latency"]["no plan"])


def test_histories_find_no_difference(tmp_path: Path) -> None:
    options = ["--histories", "1", "--steps", "12", "--every", "3"]
    outcome = _run(histories.main, tmp_path / "out.json", *options)
    assert sum(outcome["steps"].values()) == 12 and outcome["comparisons"] >= 1
    assert outcome["problems"] == []


def test_histories_find_an_index_that_keeps_what_went(monkeypatch: pytest.MonkeyPatch) -> None:
    append = GrowingIndex.append
    monkeypatch.setattr(
        GrowingIndex, "append", lambda self, added, _, modes: append(self, added, None, modes)
    )
    outcome = histories.run(histories.Histories(histories=1, steps=40, first=3, every=1))
    (problem,) = outcome.problems
    assert problem.startswith("history 3: step ") and "graph" in problem


def test_crash_test_loses_nothing(beside: dict[str, Command]) -> None:
    command = beside["crash_test"]
    assert command.wait() == 0, command.told()
    outcome = json.loads(command.out.read_text())
    assert outcome["killed"] == 2 or outcome["rounds"] == 6
    assert outcome["lost"] == outcome["unopened"] == outcome["not_whole"] == 0


@pytest.mark.parametrize("refining", ["0", "0.05"])
def test_many_write_and_ask_at_once(beside: dict[str, Command], refining: str) -> None:
    command = beside[refining]
    assert command.wait() == 0, command.told()
    report = json.loads(command.out.read_text())
    assert report["holds"]
    for part in ("threads", "processes"):
        assert report[part]["added"] >= 1 and report[part]["asked"] >= 2
        there = report[part]["atoms"] + report[part]["archived"]
        assert there == 40 + report[part]["added"] - report[part]["deleted"]
    if refining != "0":  # which turns are there until the end is a matter of chance
        parts = [report[part] for part in ("threads", "processes")]
        assert sum(part["conflicts"] + part["superseded"] for part in parts) >= 1
