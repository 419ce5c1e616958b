"""The measurement of the rules for memory types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.quality.memory_types import measure
from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.errors import InputError
from graphmem_torch.readers.jsonl import read_records

_SHIPPED = Path(__file__).resolve().parents[3] / "bench" / "quality" / "memory_types.jsonl"


def test_measure_sentences_that_the_rules_can_tell() -> None:
    atoms = [
        Atom("a", "Never share the keys.", kind="chunk", type="procedural", meta={"source": "x"}),
        Atom("b", "Hi! How was it?", speaker="Ada", type="episodic", meta={"source": "y"}),
        Atom("c", "TODO: order filters.", kind="chunk", type="semantic", meta={"source": "y"}),
    ]
    report = measure(atoms)
    assert report["n"] == 3
    assert report["accuracy"]["rules"][0] == pytest.approx(2 / 3)
    assert report["accuracy"]["kind"][0] == pytest.approx(2 / 3)
    assert report["by_source"] == {"x": {"n": 1, "rules": 1.0}, "y": {"n": 2, "rules": 0.5}}
    assert report["confusion"]["semantic"]["working"] == 1
    assert sum(sum(row.values()) for row in report["confusion"].values()) == 3
    json.dumps(report)


def test_measure_refuses_texts_without_a_type() -> None:
    with pytest.raises(InputError, match="each have a `type`"):
        measure([])
    with pytest.raises(InputError, match="each have a `type`"):
        measure([Atom("a", "x")])


def test_measure_the_shipped_sentences() -> None:
    atoms = list(read_records(_SHIPPED.read_bytes().splitlines(keepends=True), _SHIPPED.name))
    assert len(atoms) == 106
    assert {atom.type for atom in atoms} == set(MEMORY_TYPES)
    low, high = measure(atoms)["accuracy"]["kind"][1:]
    assert measure(atoms)["accuracy"]["rules"][0] > high >= low
