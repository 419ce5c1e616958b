"""The measurement of the local judge, on claims whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.quality.claims.model import _decided, _drawn, measure, read_claims
from graphmem_torch.errors import InputError
from graphmem_torch.oracle import Usage, Verdict
from graphmem_torch.quality.common.encoder import CachingEmbedder
from graphmem_torch.text.embedder import HashingEmbedder


def test_measure_claims_that_the_rule_can_tell() -> None:
    rows = []
    for i in range(40):
        evidence = [f"The harbour of town{i} has {i + 3} red boats."]
        rows.append(
            {"claim": f"The harbour of town{i} has {i + 3} red boats", "label": "SUPPORTED"}
        )
        rows.append({"claim": f"The harbour of town{i} has no red boats", "label": "REFUTED"})
        rows.append({"claim": f"The harbour of town{i} has {i + 4} red boats", "label": "REFUTED"})
        for row in rows[-3:]:
            row["evidence"] = evidence  # type: ignore[assignment]
    report = measure(rows, CachingEmbedder(HashingEmbedder(128)))
    assert report["n"] == {"claims": 120, "supported": 40, "evidence": 40}
    systems = report["systems"]
    assert systems["majority"]["accuracy"][0] == pytest.approx(2 / 3)
    assert systems["majority"]["auroc"] == pytest.approx(0.5)
    assert systems["judge"]["accuracy"][0] > 0.95 and systems["judge"]["auroc"] == 1.0
    assert report["verdicts"]["supported_by_label"]["entail"] == [40, 40]
    assert report["verdicts"]["accuracy_of_decided"][0] == 1.0
    json.dumps(report)


def test_measure_with_a_language_model_beside_it() -> None:
    labels = ["SUPPORTED", "REFUTED"] * 40
    rows = [
        {"claim": f"claim {i}", "evidence": [f"page {i // 2}"], "label": label}
        for i, label in enumerate(labels)
    ]

    class Knows:
        """Right wherever it answers, which is three times in four."""

        client = SimpleNamespace(model="m", usage=Usage(calls=80, failures=20))

        def judge(self, premises: Any, hypotheses: Any) -> list[Verdict | None]:
            said = [("contradict", "entail")[label == "SUPPORTED"] for label in labels]
            return [None if i % 4 == 3 else Verdict(said[i], 0.9) for i in range(80)]  # type: ignore

    encoder = CachingEmbedder(HashingEmbedder(32))
    report = measure(rows, encoder, oracle=Knows())  # type: ignore[arg-type]
    found = report["verdicts_of_model"]
    assert (found["decided"], found["lost"], found["accuracy_of_decided"][0]) == (0.75, 20, 1.0)
    assert found["supported_by_label"] == {
        "entail": [40, 40],
        "contradict": [20, 0],
        "neutral": [0, 0],
    }
    assert report["systems"]["model"]["auroc"] == 1.0
    assert report["usage"]["calls"] == 80 and report["model"] == "m"
    json.dumps(report)
    assert "model" not in measure(rows, encoder)["systems"]
    drawn = _drawn(rows, 10, 3)
    assert len(drawn) == 10 and [row for row in rows if row in drawn] == drawn
    assert _drawn(rows, 10, 3) == drawn != _drawn(rows, 10, 4)
    with pytest.raises(InputError, match="limit: expected"):
        _drawn(rows, 0, 3)


def test_decided_by_thresholds_of_the_other_folds() -> None:
    fold = torch.tensor([0, 0, 1, 1, 2, 2])
    score = torch.tensor([0.9, 0.1, 0.8, 0.2, 0.7, 0.3])
    truth = torch.tensor([True, False, True, False, False, True])
    # Learned from folds 1 and 2, fold 0 is decided above 0.8; from 0 and 1, fold 2 above 0.8.
    assert _decided(score, truth, fold)[[0, 1, 4, 5]].tolist() == [True, False, False, False]


def test_read_tells_unusable_files(tmp_path: Path) -> None:
    file = tmp_path / "claims.jsonl"
    file.write_text("")
    with pytest.raises(InputError, match="empty file"):
        read_claims(tmp_path)
    file.write_text('{"claim": "x", "label": "MAYBE", "evidence": ["y"]}\n')
    with pytest.raises(InputError, match=r"claims\.jsonl:1"):
        read_claims(file)
