from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.readers import read_atoms, read_locomo
from graphmem_torch.text.times import parse_time
from graphmem_torch.text.tokens import WordTokenizer


def test_read_locomo_turns_in_order_with_their_dates_and_captions(locomo_file: Path) -> None:
    (sample,) = read_locomo(locomo_file)
    assert sample.sample_id == "conv-7"
    assert [entry["answer"] for entry in sample.qa] == ["canoe"]
    assert [(a.id, a.kind, a.speaker, a.session) for a in sample.atoms] == [
        ("D1:1", "turn", "Ada", "session_1"),
        ("D1:2", "turn", "Ben", "session_1"),
        ("D2:1", "turn", "Ada", "session_2"),
    ]
    assert sample.atoms[1].rendered == "Ben: Show me! [image: a red canoe on a lake]"
    assert not any("secret" in repr(atom) for atom in sample.atoms)
    assert sample.atoms[0].time == parse_time("2023-05-08T13:56Z")
    assert sample.atoms[2].time == parse_time("2023-05-09T10:05Z")


def test_read_locomo_observations_link_to_their_turns(locomo_file: Path) -> None:
    (sample,) = read_locomo(locomo_file, input="observations")
    facts = sample.atoms[3:]
    assert [a.id for a in facts] == [
        "obs:session_1:Ada:1",
        "obs:session_2:Ada:1",
        "obs:session_2:Ada:2",
    ]
    assert {a.kind for a in facts} == {"observation"}
    assert [[e.target for e in a.edges] for a in facts] == [
        ["D1:1"],
        ["D2:1", "D1:1"],
        ["D2:1", "D1:2"],
    ]
    assert {e.type for a in facts for e in a.edges} == {EdgeType.DERIVED_FROM}
    assert facts[0].time == sample.atoms[0].time
    assert facts[2].session == "session_2"


def test_read_locomo_does_not_mix_conversations(tmp_path: Path, sample: dict[str, Any]) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps([sample, {**sample, "sample_id": "conv-8"}]))
    atoms = list(read_atoms([path], tokenizer=WordTokenizer(), locomo_input="observations"))
    assert len({a.id for a in atoms}) == len(atoms) == 12
    assert atoms[0].id == "conv-7/D1:1"
    assert atoms[-1].id == "conv-8/obs:session_2:Ada:2"
    assert {e.target.split("/")[0] for e in atoms[-1].edges} == {"conv-8"}
    assert {a.session.split("/")[0] for a in atoms if a.session} == {"conv-7", "conv-8"}
    alone = [s.atoms for s in read_locomo(path, input="observations")]
    assert [a.id for a in alone[0]] == [a.id for a in alone[1]]


def test_read_locomo_of_one_sample_without_a_list(tmp_path: Path, sample: dict[str, Any]) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(sample))
    assert [a.id for a in read_atoms([path], tokenizer=WordTokenizer())] == ["D1:1", "D1:2", "D2:1"]


def test_read_locomo_refuses_other_inputs(locomo_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got 'facts'"):
        read_locomo(locomo_file, input="facts")
    with pytest.raises(InputError, match="no such file"):
        read_locomo(tmp_path / "none.json")
