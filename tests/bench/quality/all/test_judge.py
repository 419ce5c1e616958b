"""`graphmem eval all`: all sets of a data root in one table, and what is fitted elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.all.judge import format_all, judge, read_sets
from graphmem_torch.quality.common import fitting
from graphmem_torch.quality.request import Request
from tests.bench.quality.made import chat_files, locomo_file, passage_files


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations, a set of passages, three chats."""
    root = tmp_path_factory.mktemp("data")
    (root / "locomo").mkdir()
    locomo_file(root / "locomo")
    passage_files(root / "multihop")
    chat_files(root / "longmemeval")
    return root


def _report(root: Path, **options: Any) -> dict[str, Any]:
    config = load_config("default", {"link.concepts": "pattern"})
    # Few signals: they are fitted many times.
    weights = dict.fromkeys(("semantic", "lexical", "activation", "document_semantic"), 1.0)
    config = replace(config, rank=replace(config.rank, weights=weights))
    request = Request(data=root, embedder="hashing", device="cpu", config=config, **options)
    return judge(request, resamples=50).report


def test_all_is_one_table_of_every_set(root: Path) -> None:
    report = _report(root)
    names = ["locomo", "locomo observations", "small", "longmemeval"]
    assert [*report["sets"]] == names == [*report["n"]]
    assert report["n"] == {"locomo": 8, "locomo observations": 8, "small": 2, "longmemeval": 2}
    titles = [column["title"] for column in report["columns"]]
    assert titles == [
        *("locomo 1-4 @10", "locomo observations 1-4 @10", "small @5", "longmemeval @5"),
        "sessions @5",
    ]
    systems = {name: set(found["systems"]) for name, found in report["sets"].items()}
    assert all(own == systems["locomo"] >= {"dense", "default"} for own in systems.values())
    header, count, *lines = format_all(report).splitlines()
    assert all(title in header for title in titles) and count.split()[1:] == [
        "8",
        "8",
        "2",
        "2",
        "2",
    ]
    assert {line.split()[0] for line in lines[: len(systems["locomo"])]} == systems["locomo"]
    json.dumps(report, allow_nan=False)


def test_all_says_who_beats_the_preset() -> None:
    ends = {"dense": [-0.2, -0.3, -0.1], "bm25": [-0.1, -0.3, 0.1], "rrf": [0.2, 0.1, 0.3]}
    figures = {name: {"recall": {"all": {"5": 0.5}}, "ci": {}} for name in (*ends, "default")}
    figures["default"]["ci"] = {"difference": {n: {"all": {"5": e}} for n, e in ends.items()}}
    column = {"title": "made up @5", "of": "systems", "set": "made", "group": "all", "k": 5}
    report = {
        "preset": "default",
        "n": {"made": 3},
        "columns": [column],
        "sets": {"made": {"systems": figures}},
    }
    last = format_all(report).splitlines()[-1]
    assert last == "made up @5: default is beaten by dense +20.0 [+10.0, +30.0]"


def test_all_fits_on_sets_of_other_sources(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[set[str], float, bool]] = []
    whole = fitting.fit_ranking

    def seen(tasks: Any, config: Any, shares: Any = (), **options: Any) -> Any:
        if shares:
            texts = {task.questions[0] for task in tasks}
            counted = sum(s * len(t.questions) for s, t in zip(shares, tasks, strict=True))
            fitted = whole(tasks, config, shares, **options)
            asked.append((texts, counted, fitted.rank.weights["document_semantic"] != 0.0))
            return fitted
        return whole(tasks, config, shares, **options)

    monkeypatch.setattr(fitting, "fit_ranking", seen)
    report = _report(root, cv=True)
    first = {
        name: {one.questions[0].text for one in found.conversations}
        for name, found in ((one.name, one) for one in read_sets(root))
    }
    talk, chats, passages = first["locomo"], first["longmemeval"], first["small"]
    assert [texts for texts, _, _ in asked] == [
        chats | passages,
        chats | passages,
        talk | chats,
        talk | passages,
    ]
    # Signals of documents are fitted where there are some.
    assert [documents for _, _, documents in asked] == [True, True, False, True]
    # Every source counts alike, whatever its number of questions.
    assert [counted for _, counted, _ in asked] == pytest.approx([2.0] * 4)
    for name, found in report["sets"].items():
        more = {name for name in found["systems"] if "," in name}
        whose = {"default, other sets", "linear, other sets"}
        if name.startswith("locomo"):
            whose |= {"default, other conversations", "linear, other conversations"}
        assert more == whose


def test_all_leaves_one_out_of_several_sources(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        _report(tmp_path)
    passage_files(tmp_path / "multihop")
    with pytest.raises(InputError, match="at least 2 sources"):
        _report(tmp_path, cv=True)
