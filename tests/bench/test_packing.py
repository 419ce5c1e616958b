"""The race of the knapsack with OR-tools, on a few problems of each kind."""

from __future__ import annotations

import json

import pytest
import torch

from bench.packing import KINDS, Packing, instances, run


def test_packing_same_optimum() -> None:
    pytest.importorskip("ortools")
    report = run(Packing(instances=45))
    assert report["n"] == report["same_optimum"] == 45
    assert set(report["kinds"]) == set(KINDS)
    json.dumps(report)


@pytest.mark.parametrize("kind", KINDS)
def test_problems_are_whole_and_repeat_with_their_seed(kind: str) -> None:
    values, costs = instances(kind, 3, 20, seed=1)
    assert values.shape == costs.shape == (3, 20)
    assert values.dtype == torch.float64 and costs.dtype == torch.int64
    assert (values == values.round()).all() and (values > 0).all() and (costs > 0).all()
    again = instances(kind, 3, 20, seed=1)
    assert (again[0] == values).all() and (again[1] == costs).all()
