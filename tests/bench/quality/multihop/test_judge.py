"""`graphmem eval multihop`: every set of passages, and all of them merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.config import load_config
from graphmem_torch.quality.multihop.judge import judge
from graphmem_torch.quality.request import Request
from tests.bench.quality.made import TITLES, passage_files

FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]


def _eval(data: Path, out: Path) -> int:
    return main(["eval", "multihop", "--data", str(data), "--json", str(out), *FAST])


def test_multihop_measures_each_set_and_all_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passage_files(tmp_path / "sets")
    passage_files(tmp_path / "sets", "more", (*TITLES[:6], "Oboe", "Lemon"))
    assert _eval(tmp_path / "sets", tmp_path / "out.json") == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["n"] == {"more": 2, "small": 2, "merged": 4}
    for found in report["sets"].values():
        systems = found["systems"]
        assert set(systems) >= {"dense", "bm25", "fusion_neighbours", "linear", "ppr", "default"}
        # Passages have no session: there is no neighbour to learn from.
        assert systems["fusion_neighbours"]["recall"] == systems["fusion"]["recall"]
        for name, (mean, _, _) in (
            (name, groups["all"]["5"])
            for name, groups in systems["default"]["ci"]["difference"].items()
        ):
            own, other = (systems[each]["recall"]["all"]["5"] for each in ("default", name))
            assert mean == pytest.approx(own - other)
    table = capsys.readouterr().out
    assert "merged: 4 questions" in table and "over dense" in table


def test_multihop_of_one_set_merges_nothing(tmp_path: Path) -> None:
    passage_files(tmp_path / "sets")
    config = load_config("default", {"link.concepts": "pattern"})
    request = Request(data=tmp_path / "sets", config=config, embedder="hashing:16")
    assert set(judge(request, resamples=5, timed=0).report["sets"]) == {"small"}


def test_multihop_wants_passages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _eval(tmp_path, tmp_path / "out.json") == 2
    assert "_corpus.jsonl" in capsys.readouterr().err
