"""Recall against cost on conversations."""

from __future__ import annotations

import json
import random

import pytest
import torch

from graphmem_torch.config import ModesConfig
from graphmem_torch.quality.modes.curve import (
    SearchTask,
    cheapest,
    leave_one_out,
    measure_curves,
    pareto_front,
)
from graphmem_torch.quality.modes.grid import ASSIGNMENTS
from tests.bench.quality.made import clusters, unit


def test_measure_curves_on_conversations() -> None:
    rules = ("energy", "gap", "50")
    fields = []
    for number in range(2):
        x = clusters(6, 8) if number else unit(40, 16, seed=4)
        gold = torch.arange(12)[:, None]
        noise = 0.3 * unit(12, 16, seed=number)
        queries = torch.nn.functional.normalize(x[:12] + noise, dim=1)
        fields.append(SearchTask(x, queries, gold, torch.full((len(x),), 5)))
    own = ModesConfig(count=6, modes_searched=6, atoms_per_mode=50)
    report = measure_curves(fields, preset=own, resamples=20, rounds=2, rules=rules)
    assert report["preset"]["agreement"] == 1.0
    assert report["preset"]["difference"] == [0.0, 0.0, 0.0]
    # The exact search, by hand.
    tops = [(f.queries @ f.vectors.T).topk(10).indices for f in fields]
    hits = torch.cat([(t == torch.arange(12)[:, None]).any(1).double() for t in tops])
    assert report["reference"]["recall"]["10"] == pytest.approx(float(hits.mean()))
    assert report["reference"]["share"] == report["reference"]["agreement"] == 1.0
    assert set(report["curves"]) == {f"{r}/{a}" for r in rules for a in ASSIGNMENTS}
    for curve in report["curves"].values():
        everything = [p for p in curve["points"] if p["modes"] == 0 and p["atoms"] == 50]
        assert len(everything) == 1 and everything[0]["agreement"] == 1.0
        assert everything[0]["share"] > 1.0
        for atoms in (1, 50):
            reads = [p["read"] for p in curve["points"] if p["atoms"] == atoms and p["modes"]]
            assert reads == sorted(reads)
    front = report["front"]
    assert [p["share"] for p in front] == sorted(p["share"] for p in front)
    chosen = report["recommended"]
    assert chosen["recall"]["10"] >= report["reference"]["recall"]["10"] - 0.01 - 1e-9
    assert len(report["left_out"]["chosen"]) == 2
    json.dumps(report, allow_nan=False)
    assert measure_curves(fields[:1], resamples=20, rounds=0, rules=rules[:1])["left_out"] is None


def test_pareto_front_holds_what_nothing_beats() -> None:
    chance = random.Random(1)
    points = {i: (chance.randrange(6) / 6, chance.randrange(6) / 6) for i in range(40)}
    front = pareto_front(points)
    for name, (quality, cost) in points.items():
        beaten = any(
            q >= quality and c <= cost and (q, c) != (quality, cost) for q, c in points.values()
        )
        assert ((quality, cost) in {points[i] for i in front}) == (not beaten), name
    assert [points[i][1] for i in front] == sorted(points[i][1] for i in front)


def test_cheapest_of_those_that_lose_next_to_nothing() -> None:
    points = {"a": (0.50, 1.0), "b": (0.495, 0.4), "c": (0.48, 0.1), "d": (0.497, 0.4)}
    assert cheapest(points, 0.5) == "d"
    assert cheapest(points, 0.5, tolerance=0.03) == "c"
    assert cheapest(points, 0.9) == "a"  # none is good enough: the best


def test_leave_one_out_judges_a_group_by_a_choice_that_did_not_see_it() -> None:
    group = torch.tensor([0, 0, 1, 1, 2])
    reference = torch.ones(5, dtype=torch.float64)
    cost = {"cheap": torch.full((5,), 0.1).double(), "dear": torch.full((5,), 0.9).double()}
    # Cheap fails only in group 0: the others, chosen with group 0 in view, must be dear.
    cheap = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = leave_one_out({"cheap": cheap, "dear": reference}, cost, reference, group)
    assert found is not None
    assert found.chosen == ["cheap", "dear", "dear"]
    assert found.quality.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert torch.allclose(found.cost, torch.tensor([0.1, 0.1, 0.9, 0.9, 0.9]).double())
    alone = torch.zeros(5, dtype=torch.int64)
    assert leave_one_out({"cheap": cheap}, cost, reference, alone) is None
