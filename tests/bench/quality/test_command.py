"""`graphmem eval`: the judge from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.quality.planning import judge as planning
from graphmem_torch.quality.request import Judged

FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]


def test_eval_writes_the_report_and_prints_the_table(
    locomo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    locomo.write_text(json.dumps(json.loads(locomo.read_text())[:1]))  # one conversation
    arguments = ["eval", "locomo", "--data", str(locomo), "--preset", "synapse", "--json", str(out)]
    assert main([*arguments, *FAST]) == 0
    report = json.loads(out.read_text())
    assert report["preset"] == "synapse" and report["input"] == "raw" and report["seed"] == 0
    assert report["config"]["link"]["concepts"] == "pattern"
    table = capsys.readouterr().out
    assert all(name in table for name in report["systems"])
    assert [path.name for path in tmp_path.glob("report*")] == ["report.json"]


def test_eval_finds_out_at_once_that_it_could_not_write(
    locomo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere" / "report.json"
    for path in (out, tmp_path):
        assert main(["eval", "locomo", "--data", str(locomo), "--json", str(path), *FAST]) == 2
        printed = capsys.readouterr()
        assert str(path) in printed.err and "--json" in printed.err
        assert printed.out == ""


def test_eval_of_unusable_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "data.json", tmp_path / "report.json"
    data.write_text('{"rows": []}')
    assert main(["eval", "locomo", "--data", str(data), "--json", str(out), *FAST]) == 2
    assert "data.json" in capsys.readouterr().err
    assert not out.exists()


def test_a_judge_that_draws_all_it_needs_takes_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "judge", lambda request: Judged({"seed": request.seed}, "drawn"))
    out = ["--json", str(tmp_path / "out.json")]
    assert main(["eval", "planning", *out, *FAST]) == 0
    assert "drawn" in capsys.readouterr().out
    assert main(["eval", "planning", "--data", str(tmp_path), *out, *FAST]) == 2
    assert "--data: expected nothing for planning" in capsys.readouterr().err
