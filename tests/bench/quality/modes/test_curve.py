"""Recall against cost on conversations."""

from __future__ import annotations

import json

import pytest
import torch

from graphmem_torch.config import ModesConfig
from graphmem_torch.quality.modes import curve as modes_curve
from graphmem_torch.quality.modes.curve import Field, measure_curves
from graphmem_torch.quality.modes.grid import ASSIGNMENTS, RULES
from tests.bench.quality.made import clusters, unit


def test_curves_of_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes_curve, "_ROUNDS", 2)  # what is timed is not tested
    rules = {rule: RULES[rule] for rule in ("energy", "gap", "50")}
    monkeypatch.setattr(modes_curve, "RULES", rules)
    fields = []
    for number in range(2):
        x = clusters(6, 8) if number else unit(40, 16, seed=4)
        gold = torch.arange(12)[:, None]
        noise = 0.3 * unit(12, 16, seed=number)
        queries = torch.nn.functional.normalize(x[:12] + noise, dim=1)
        fields.append(Field(x, queries, gold, torch.full((len(x),), 5)))
    own = ModesConfig(count=6, look=6, per_mode=50)
    report = measure_curves(fields, preset=own, resamples=20)
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
    assert measure_curves(fields[:1], resamples=20)["left_out"] is None
