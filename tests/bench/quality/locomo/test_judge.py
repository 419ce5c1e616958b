"""The judge from file to report, on a small conversation and the hashing embedder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.metrics import CUTOFFS
from graphmem_torch.quality.common.scores import GROUPS
from graphmem_torch.quality.locomo.judge import format_table, judge
from graphmem_torch.quality.request import Request
from tests.bench.quality.made import locomo_file

BASELINES = {
    "bm25",
    "dense",
    "rrf",
    "fusion",
    "fusion_neighbours",
    "interaction",
    "linear",
    "ppr",
    "sgrm",
    "contextos",
}


def _report(locomo: Path, *, timed: int = 0, **options: Any) -> dict[str, Any]:
    config = load_config(options.get("preset", "default"), {"link.concepts": "pattern"})
    settings = {"embedder": "hashing:64", "device": "cpu", "config": config}
    return judge(Request(data=locomo, **(settings | options)), resamples=50, timed=timed).report


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Both inputs, by the preset `default`."""
    locomo = locomo_file(tmp_path_factory.mktemp("locomo"))
    return {input: _report(locomo, timed=1, input=input) for input in ("raw", "observations")}


@pytest.mark.parametrize("input", ["raw", "observations"])
def test_judge_reports_as_described(reports: dict[str, dict[str, Any]], input: str) -> None:
    report = reports[input]
    assert list(report) == [
        *(
            "dataset",
            "preset",
            "commit",
            "n",
            "input",
            "made_with",
            "systems",
            "by_question",
            "config",
            "seed",
        ),
    ]
    assert report["dataset"] == "locomo"
    assert report["input"] == input
    assert report["n"] == {"1-4": 8, "all": 10, "1": 2, "2": 2, "3": 2, "4": 2, "5": 2}
    assert set(report["systems"]) == BASELINES | {"default"}
    for name, figures in report["systems"].items():
        for measure in ("recall", "any", "complete", "ndcg", "map", "mrr"):
            assert set(figures[measure]) == set(GROUPS)
            for group, row in figures[measure].items():
                assert list(row) == [str(k) for k in CUTOFFS]
                for value in row.values():
                    assert value is None if group == "3" else 0.0 <= value <= 1.0
        assert set(figures["budget_recall"]) == {"512", "1024", "2048"}
        assert figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"]
        assert figures["build_s"] > 0
        assert figures["peak_mb"] is None or figures["peak_mb"] > 1
        if name == "default":
            assert 0.0 <= figures["gate_auroc"] <= 1.0
            assert set(figures["ci"]["difference"]) == BASELINES
        else:
            assert figures["gate_auroc"] is None
            assert figures["refusal"] is None
    # The whole conversation has twelve turns.
    assert report["systems"]["default"]["recall"]["all"]["25"] == 1.0
    assert report["systems"]["dense"]["budget_recall"]["2048"] == 1.0
    json.dumps(report, allow_nan=False)
    table = str(format_table(report))
    assert all(name in table for name in report["systems"])


def test_lexical_baseline_finds_what_shares_its_words(reports: dict[str, dict[str, Any]]) -> None:
    assert reports["raw"]["systems"]["bm25"]["recall"]["4"]["5"] == 1.0


def test_judge_leaving_one_out_fits_on_the_others(locomo: Path) -> None:
    report = _report(locomo, cv=True)
    assert report["config"]["eval"] == {"cv": True, "conversations": 2}
    assert report["systems"]["default"]["recall"]["all"]["25"] == 1.0


def test_judge_leaving_one_out_needs_two(locomo: Path) -> None:
    samples = json.loads(locomo.read_text())
    locomo.write_text(json.dumps(samples[:1]))
    with pytest.raises(InputError, match="at least 2 conversations"):
        _report(locomo, cv=True)


def within(part: Any, whole: Any) -> bool:
    """Whether it is equal but for more keys of mappings."""
    if isinstance(part, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def test_judge_holds_several_presets_against_the_same_baselines(
    locomo: Path, reports: dict[str, dict[str, Any]]
) -> None:
    default = load_config("default", {"link.concepts": "pattern"})
    other = replace(
        default, name="half", rank=replace(default.rank, weights={"semantic": 1.0}, scale="raw")
    )
    request = Request(data=locomo, embedder="hashing:64", config=default, others=(other,))
    found = judge(replace(request, rankings=True), resamples=50, timed=1)
    report, alone = found.report, reports["raw"]
    assert [*report["systems"]] == [*alone["systems"], "half"]
    # And as before, for the same seed.
    for name, figures in alone["systems"].items():
        for key in ("recall", "ndcg", "budget_recall", "ci", "gate_auroc"):
            assert within(figures[key], report["systems"][name][key])
    gains = {name: report["systems"][name]["ci"]["difference"] for name in ("default", "half")}
    assert gains["default"]["half"]["1-4"]["5"][0] == -gains["half"]["default"]["1-4"]["5"][0]
    assert report["config"]["embedder"]["name"] == "hashing:64"
    assert report["configs"]["half"]["rank"]["weights"] == {"semantic": 1.0}
    # A preset of the cosine alone ranks as the baseline does.
    rows = {(row["system"], row["id"]): row for row in found.rankings}
    assert len(rows) == 10 * len(report["systems"])
    for (name, id), row in rows.items():
        if name == "half":
            assert row["preset"] and row["ids"] == rows["dense", id]["ids"]
            assert row["scores"] == pytest.approx(rows["dense", id]["scores"], abs=1e-5)
    values = report["by_question"]["systems"]["bm25"]["recall@10"]
    for id, value in zip(report["by_question"]["ids"], values, strict=True):
        row = rows["bm25", id]
        gold = set(row["gold"])
        share = len(gold & {*row["ids"][:10]}) / len(gold) if gold else None
        assert value == share


def test_judge_names_the_inputs_it_knows(locomo: Path) -> None:
    with pytest.raises(InputError, match=r"input: .*raw.*observations.*'facts'"):
        _report(locomo, input="facts")
