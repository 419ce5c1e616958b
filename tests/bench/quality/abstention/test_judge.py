"""`graphmem eval abstention`: what a memory does not hold is told from what it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from graphmem_torch.cli.main import main
from graphmem_torch.errors import InputError
from graphmem_torch.quality.abstention.judge import calibration_error, judge, promises
from graphmem_torch.quality.request import Request
from tests.bench.quality.made import PATTERN, locomo_file, passage_files

FAST = ["--embedder", "hashing:16", "--config.link.concepts", "pattern"]


def test_abstention_asks_what_there_is_and_what_there_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "locomo").mkdir()
    locomo_file(tmp_path / "locomo")
    passage_files(tmp_path / "passages")
    out = tmp_path / "out.json"
    assert (
        main(["eval", "abstention", "--data", str(tmp_path), "--cv", "--json", str(out), *FAST])
        == 0
    )
    report = json.loads(out.read_text())
    assert set(report["sets"]) == {"locomo", "locomo observations", "small"}
    for name, found in report["sets"].items():
        counts = found["n"]
        assert counts["removed"] == counts["answerable"] == report["n"][name]
        assert counts["foreign"] > 0 and bool(counts["adversarial"]) is (name != "small")
        assert set(found["gates"]) == {
            *("default", "default, other sets", "default, other sets, no speaker")
        }
        for own in found["gates"].values():
            assert (own["auroc"]["adversarial"] is None) is (name == "small")
            area, low, high = own["auroc"]["foreign"]
            assert 0.0 <= low <= area <= high <= 1.0
            assert 0.0 <= own["calibration_error"] <= 1.0
            assert all(value is None or 0.0 <= value <= 1.0 for value in own["refused"].values())
            assert own["promised"]["elsewhere"]["n"] == counts["answerable"]
    shown = capsys.readouterr().out
    assert "AUROC foreign" in shown and "5 % by elsewhere" in shown


def test_abstention_of_one_source_has_no_other_to_learn_from(tmp_path: Path) -> None:
    passage_files(tmp_path)
    request = Request(data=tmp_path, config=PATTERN, embedder="hashing:16", cv=True)
    with pytest.raises(InputError, match="at least 2 sources"):
        judge(request, resamples=2)


def test_calibration_error_against_a_loop(generator: torch.Generator) -> None:
    sure, weight = torch.rand(2, 300, generator=generator)
    sure[:2] = torch.tensor([0.0, 1.0])
    truth = torch.rand(300, generator=generator) < sure**2
    expected = 0.0
    for lower in range(10):
        inside = [i for i in range(300) if min(int(float(sure[i]) * 10), 9) == lower]
        share = sum(float(weight[i]) for i in inside)
        if share:
            said = sum(float(weight[i] * sure[i]) for i in inside) / share
            held = sum(float(weight[i]) * bool(truth[i]) for i in inside) / share
            expected += share * abs(said - held)
    expected /= float(weight.double().sum())
    assert calibration_error(sure, truth, weight) == pytest.approx(expected, abs=1e-6)
    assert calibration_error(truth.float(), truth, weight) == 0.0


def test_promises_against_a_loop(generator: torch.Generator) -> None:
    own = [torch.rand(size, generator=generator) for size in (61, 45, 80)]
    others = [torch.rand(300, generator=generator) ** 2]
    found = promises(own, others, seed=0, resamples=2)
    first, second = [*own[0].tolist(), *own[2].tolist()], own[1].tolist()
    folds = {"half": [(first, second), (second, first)], "elsewhere": [(others[0].tolist(), None)]}
    for name, pairs in folds.items():
        for rate in (0.025, 0.05, 0.1):
            refused = []
            for known, sure in pairs:
                rank = int(rate * (len(known) + 1))
                least = sorted(known)[rank - 1] if rank else 0.0
                refused += [value < least for value in sure or first + second]
            assert found[name][str(rate)][0] == pytest.approx(sum(refused) / len(refused))
        assert found[name]["n"] == 186


def test_promises_where_there_is_little() -> None:
    # Questions of one memory are halved; with two a threshold of 10 % cannot close.
    found = promises([torch.tensor([0.1, 0.2, 0.3, 0.4])], [], seed=0, resamples=2)
    assert found == {"half": {"n": 4, **dict.fromkeys(["0.025", "0.05", "0.1"], [0.0] * 3)}} | {
        "elsewhere": None
    }
    nothing = promises([torch.empty(0)], [torch.rand(5)], seed=0, resamples=2)
    assert nothing == {"half": None, "elsewhere": None}
