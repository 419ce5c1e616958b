"""Slopes, peaks and points of the sweep."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench.perf.growth import Operation, grown, measure, slope
from bench.perf.sweep import main


def test_slope_of_a_power() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    assert slope(x, [3 * value**1.5 for value in x]) == pytest.approx(1.5)
    assert slope(x, [7.0] * 4) == pytest.approx(0.0)
    # Least squares: one point above and one below the line leave it where it is.
    assert slope([1, 10, 100], [1, 10 * 2, 100]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "y"), [([1.0], [1.0]), ([2.0, 2.0], [1.0, 3.0]), ([1.0, 2.0], [0.0, 1.0]), ([], [])]
)
def test_slope_of_too_little_is_nan(x: list[float], y: list[float]) -> None:
    assert math.isnan(slope(x, y))


def test_points_grow_one_thing_at_a_time() -> None:
    operation = Operation(
        "fake",
        lambda point: lambda: None,
        {"n": 100, "e": 1_000, "batch": 4},
        {"n e": (0.5, 2.0), "batch": (2.0,)},
        {"n": 1, "e": 2, "batch": 1},
    )
    assert list(grown(operation)) == [
        ("n e", {"n": 50, "e": 500, "batch": 4}),
        ("n e", {"n": 200, "e": 2_000, "batch": 4}),
        ("batch", {"n": 100, "e": 1_000, "batch": 8}),
    ]
    assert [point["n"] for _, point in grown(operation, trial=True)] == [1, 2, 1, 1]


def test_measure_sees_the_peak_of_a_call() -> None:
    def make(point: dict[str, int]) -> Callable[[], torch.Tensor]:
        return lambda: torch.ones(point["mb"] * 2**18).sum()

    found = measure(Operation("fake", make, {}, {}, {"mb": 1}), {"mb": 64})
    assert found["parameters"] == {"mb": 64}
    assert 0.9 * 64 * 2**20 < found["bytes"] < 1.5 * 64 * 2**20
    assert found["seconds"] > 0


def test_sweep_of_tiny_points(tmp_path: Path) -> None:
    out, text = tmp_path / "sweep.json", tmp_path / "sweep.md"
    assert main(["--trial", "--json", str(out), "--markdown", str(text)]) == 0
    entries = json.loads(out.read_text())["entries"]
    assert {"propagate", "pagerank push", "BM25.topk"} <= {one["operation"] for one in entries}
    assert all(point["seconds"] > 0 for one in entries for point in one["points"])
    assert len(text.read_text().splitlines()) > len(entries)
