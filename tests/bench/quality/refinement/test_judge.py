"""A life of sessions, what a memory keeps of it, and LoCoMo under decay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.refinement.judge import judge
from graphmem_torch.quality.refinement.sessions import lived
from graphmem_torch.quality.request import Request


def test_a_life_is_told_once_and_asked_for_what_was_told() -> None:
    life = lived(60, seed=1)
    told = list(life.blocks(7))
    atoms = [atom for block in told for atom in block.atoms]
    assert atoms == [*life.atoms] and told[-1].session == 60
    assert len({atom.session for atom in atoms}) == 60
    time = {atom.id: atom.time or 0.0 for atom in atoms}
    for block in told:
        assert block.now == block.atoms[-1].time
        for asked in block.asked:
            number = life.questions.index(asked.text)
            versions = [v for v in life.facts[number].versions if v.told <= block.now]
            last = versions[-1].value
            assert asked.gold == {
                name
                for v in versions
                if v.value == last
                for name in v.ids
                if time[name] <= block.now
            }
            assert asked.gold
    superseded = {old: new for block in told for old, new in block.superseded}
    for fact in life.facts:
        for i, version in enumerate(fact.versions[:-1]):
            assert {superseded[name] for name in version.ids} == {fact.versions[i + 1].id}
        assert not {*fact.versions[-1].ids} & {*superseded}
    assert any(len(v.ids) > 1 for fact in life.facts for v in fact.versions)
    assert [*lived(60, seed=1).blocks(7)] == told


def request(locomo: Path, **more: Any) -> Request:
    config = load_config("default", {"link.concepts": "none"})
    return Request(data=locomo, config=config, embedder="hashing", device="cpu", **more)


def test_the_judge(locomo: Path) -> None:
    few: dict[str, Any] = {"together": 10, "timed": 2, "grid": ((0.0, 0.0), (15.0, 0.9))}
    found = judge(request(locomo, sizes=(30, 40)), shares=(0.5,), resamples=20, **few)
    report = found.report
    turns = report["n"]["turns"]
    assert {*report["systems"]} == {"all", "50 %, refined", "50 %, the newest", "50 %, any"}
    full = report["systems"]["all"]
    assert full["sizes"][-1]["atoms"] == turns and full["sizes"][-1]["archived"] == 0
    assert full["difference"] == [0.0, 0.0, 0.0] and full["refining_cpu_s"] == 0
    for name, own in report["systems"].items():
        last = own["sizes"][-1]
        assert last["atoms"] + last["archived"] == turns, "nothing is lost"
        assert name == "all" or last["atoms"] <= round(turns / 2)
        assert sum(part["asked"] for part in own["sizes"]) == report["n"]["asked"]
    rows = report["locomo"]["rows"]
    assert [row["half_life"] for row in rows] == [None, 0.0, 15.0]
    assert rows[0]["left"] == 1 and rows[0]["recall"] == rows[0]["any"]
    assert rows[2]["left"] == 1, "nothing falls below a base above what is pruned"
    assert "recall@10 since" in found.table


@pytest.mark.parametrize("sizes", [(), (10, 60), (60, 60)])
def test_sessions_must_grow(locomo: Path, sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="--sizes: expected numbers of sessions"):
        judge(request(locomo, sizes=sizes))
