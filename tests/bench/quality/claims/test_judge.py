"""`graphmem eval claims`: pairs whose truth is known, and what confidences are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench.quality.claims.judge import judge, reliability
from bench.quality.claims.supersessions import KINDS, Pair, _slots, supersessions
from graphmem_torch.oracle import Verdict
from graphmem_torch.quality.request import Request


def test_supersessions_are_different_pairs_half_of_them_superseded() -> None:
    pairs = supersessions(1000, seed=1)
    assert len(set(pairs)) == 1000 and pairs == supersessions(1000, seed=1)
    assert pairs != supersessions(1000, seed=2)
    assert sum(pair.superseded for pair in pairs) == pytest.approx(500, abs=60)
    assert {pair.kind for pair in pairs if pair.superseded} == set(KINDS)
    assert {pair.kind for pair in pairs if not pair.superseded} == {
        *("same", "beside", "other_subject", "other")
    }
    assert Pair not in pairs and all("{" not in pair.earlier + pair.later for pair in pairs)


def test_what_is_held_out_shares_no_wording_with_what_is_fitted() -> None:
    said = [
        {
            text
            for slot in _slots(group)
            for text in (*slot.states, *slot.changes, *slot.ends, *slot.beside)
        }
        for group in ("fit", "held_out")
    ]
    assert not said[0] & said[1]
    people = [set(_slots(group)[0].subjects) for group in ("fit", "held_out")]
    places = [set(_slots(group)[0].values) for group in ("fit", "held_out")]
    assert not people[0] & people[1] and not places[0] & places[1]


def test_reliability_counts_the_verdicts_of_a_label_by_confidence() -> None:
    sure = [0.55, 0.58, 0.97, 1.0, 0.6]
    verdicts = [Verdict("contradict", each) for each in sure] + [Verdict("entail", 0.9)]
    truth = torch.tensor([True, False, True, True, False, True])
    rows = reliability(verdicts, truth, "contradict")
    assert [row["n"] for row in rows] == [2, 1, 2]
    assert [row["right"] for row in rows] == [0.5, 0.0, 1.0]
    assert rows[0]["confidence"] == pytest.approx(0.565)
    assert rows[2]["confidence"] == pytest.approx(0.985)
    assert reliability(verdicts, truth, "neutral") == []


def test_judge_beside_always_yes(tmp_path: Path) -> None:
    rows = [
        {"claim": f"The pool number {i} is {word}.", "label": label, "evidence": [text]}
        for i in range(8)
        for text in [f"The pool number {i} is open."]
        for word, label in (("open", "SUPPORTED"), ("closed", "REFUTED"))
    ]
    file = tmp_path / "claims.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = judge(Request(data=file, embedder="hashing"), pairs=40)
    found = judged.report["supersessions"]["systems"]
    assert found["always_yes"]["auroc"] == 0.5 and found["always_yes"]["recall"] == 1.0
    # The rules do not see most of these wordings; but what they call superseded is.
    assert found["judge"]["precision"] == 1.0 > found["cosine"]["precision"]
    assert found["judge"]["auroc"] > found["always_yes"]["auroc"]
    claims = judged.report["claims"]["all"]["systems"]
    assert claims["majority"]["auroc"] == 0.5 and claims["judge"]["auroc"] == 1.0
    fitted = judged.report["fitted"]
    assert fitted["contradiction"] is None, "all that give reason are contradictions here"
    assert set(fitted["entailment"]) >= {"bias", "shared"}
    assert "always_yes" in judged.table and json.dumps(judged.report)
