"""Facts that change, and the judge that asks for them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.quality.request import Request
from graphmem_torch.quality.temporal.facts import BEGIN, DAY, END, evolving_facts
from graphmem_torch.quality.temporal.judge import carried, judge


@pytest.mark.parametrize("held_out", [False, True])
def test_facts_are_what_is_told_of_them(held_out: bool) -> None:
    facts, atoms, now, past = evolving_facts(60, 5, 30, seed=3, held_out=held_out)
    assert (len(facts), len(atoms), len(now)) == (60, 330, 60)
    by_id = {atom.id: atom for atom in atoms}
    assert len(by_id) == 330 and [atom.time for atom in atoms] == sorted(a.time for a in atoms)  # type: ignore[type-var]
    for fact in facts:
        assert len(fact.versions) == 5
        for version in fact.versions:
            atom = by_id[version.id]
            assert version.value.lower() in atom.text.lower()
            assert (atom.time, atom.event_time) == (version.told, version.begun)
            assert fact.subject in f"{atom.speaker}: {atom.text}"
            assert BEGIN <= version.begun <= version.told <= END
        for before, after in pairwise(fact.versions):
            assert before.value != after.value and after.begun - before.begun >= 19 * DAY
            assert before.told < after.begun
            # What was true and what was known, as a plain list of spans says it.
            assert fact.true_at(before.begun) == fact.true_at(after.begun - 1.0) == before.value
            assert fact.known_at(before.told) == fact.known_at(after.told - 1.0) == before.value
        assert fact.true_at(fact.versions[0].begun - 1.0) is None
    for question in past:
        values = [version.value for version in facts[question.fact].versions]
        named = max((v for v in values if v in question.text), key=len)
        assert values[values.index(named) - 1] == question.answer and values.count(named) == 1
    again = evolving_facts(60, 5, 30, seed=3, held_out=held_out)
    assert again == (facts, atoms, now, past) != evolving_facts(60, 5, 30, seed=4)


def test_the_first_hit_about_a_fact_counts() -> None:
    value = {"a": (0, "Oslo"), "b": (1, "Rome"), "c": (1, "Bern")}
    assert carried(["x", "a", "b", "c"], 1, value) == "Rome"
    assert carried(["x", "a"], 1, value) is None


def test_the_judge(locomo: Path) -> None:
    moments = BEGIN + 300 * DAY, BEGIN + 600 * DAY
    config = load_config("default", {"link.concepts": "pattern"})
    request = Request(data=locomo, config=config, embedder="hashing", device="cpu")
    judged = judge(request, facts=(8, 3, 4), weights=(0.0, -50.0), instants=moments, resamples=20)
    report = judged.report
    assert report["n"]["facts"] == 8 and report["n"]["atoms"] == 28
    systems = report["facts"]
    assert set(systems["cosine"]) == {"now", "first hit", "before", "as of", "true at"}
    assert systems["superseded as it was"]["true at"][0] >= systems["cosine"]["true at"][0]
    # What has ended is behind all else: no hit of it comes before one that is true.
    assert report["weights"]["-50.0"]["now"][0] >= 0.9 > report["weights"]["0.0"]["now"][0]
    assert report["weights"]["-50.0"]["before"] == report["weights"]["0.0"]["before"]
    for found in report["found"].values():
        assert 0 <= found["ended and found"] <= found["ended"] == 16
    assert report["locomo"]["variants"]["as it is"]["temporal"]["difference"] is None
    assert "weight of ended" in judged.table
