"""A short life: what is counted, and what the report says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.quality.growth import judge as module
from graphmem_torch.quality.growth.judge import judge, life
from tests.bench.quality.made import PATTERN, novel, of_sizes

ADDED = ["add", "ask", "ask again"]
CHANGED = ["correct", "ask, corrected", "delete", "ask, deleted"]


def test_judge_of_a_short_life(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda: {"chromadb": False, "mem0": False})
    found = judge(of_sizes(texts, 8, 20), rounds=2, compared=3)
    report = found.report
    json.dumps(report, allow_nan=False)
    assert report["n"] == {"sizes": [8, 20], "rounds": 2} and report["token_dim"] > 0
    assert [part["atoms"] for part in report["sizes"]] == [8, 20]
    for part in report["sizes"]:
        assert list(part["systems"]) == ["default"]
        own = part["systems"]["default"]
        assert own["fresh"] == 1.0  # what was just added is found
        assert own["stale"] == 0.0
        for key in ("ms", "cpu_ms"):
            assert list(own[key]) == [*CHANGED, *ADDED]
            assert all(0 < each["p50"] <= each["p95"] for each in own[key].values())
        assert own["encoder_ms"]["add"]["p50"] > 0
        assert part["rebuild"]["same"] == 1.0 and part["rebuild"]["worst"] < 1e-3
    single = report["singly"]
    assert single["atoms"] == 8 and min(single["database_mb"].values()) > 0
    assert list(single["cpu_ms"]) == ["at once", "one by one"]
    assert "chromadb: not installed" in found.table and "20 default" in found.table


def test_life_goes_on_when_all_is_told(texts: Path) -> None:
    with Memory.open(None, config=PATTERN, embedder="hashing:32") as memory:
        turns = life(texts, memory, 70)
    told = novel(30)
    assert [turn.text for turn in turns[:30]] == told
    half = [text.split() for text in told]
    assert turns[30].text.split() == half[0][:11] + half[1][10:]
    assert turns[69].text.split() == half[9][:11] + half[11][10:]
    assert len({turn.id for turn in turns}) == len({turn.time for turn in turns}) == 70


@pytest.mark.parametrize("sizes", [(), (0, 10), (10, 9), (10, 13)])
def test_sizes_that_do_not_grow(texts: Path, sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="sizes: expected numbers of atoms that grow"):
        judge(of_sizes(texts, *sizes), rounds=4)
