"""The grid against a loop over its settings, and the judge from file to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.config import AnchorConfig, SpreadConfig, load_config
from graphmem_torch.quality.common.encoder import load_encoder
from graphmem_torch.quality.common.sets import locomo_set
from graphmem_torch.quality.common.task import RetrievalTask, build_tasks
from graphmem_torch.quality.request import Request
from graphmem_torch.quality.spreading.grid import (
    Patterns,
    Setting,
    activations,
    anchors_of,
    drawn_settings,
    one_by_one,
    with_controls,
)
from graphmem_torch.quality.spreading.judge import judge
from graphmem_torch.quality.spreading.regimes import (
    BASES,
    FACTORS,
    Judgement,
    background,
    best_published,
    confirmed,
    recall_of,
)
from tests.bench.quality.made import PATTERN, TITLES, chat_files, locomo_file, passage_files

DRAWN = {"seed": 0, "resamples": 50}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> RetrievalTask:
    """A conversation of twelve turns as `default` links it."""
    data = locomo_file(tmp_path_factory.mktemp("locomo"))
    encoder = load_encoder(Request(data=data, config=PATTERN, embedder="hashing:64", device="cpu"))
    return build_tasks(locomo_set(data).conversations[:1], PATTERN, encoder, "cpu", False)[0][0]


def _starts(
    task: RetrievalTask, settings: list[Setting], patterns: Patterns
) -> dict[AnchorConfig, torch.Tensor]:
    return anchors_of(task, BASES["cosine"](task, {}), settings, patterns)


def test_grid_is_what_a_loop_over_its_settings_is(task: RetrievalTask) -> None:
    settings = with_controls(
        drawn_settings(12, [load_config("synapse"), load_config("synapse-published"), PATTERN], 0)
    )
    patterns = Patterns.of(task.memory, settings)
    starts = _starts(task, settings, patterns)
    found = dict(activations(patterns, settings, starts))
    assert sorted(found) == list(range(len(settings)))
    for place, expected in enumerate(one_by_one(task.memory, settings, starts)):
        torch.testing.assert_close(found[place], expected)


def test_grid_has_the_activation_and_the_edges_of_the_index(task: RetrievalTask) -> None:
    """The signal of `default`, and the conducting graph that it is made with."""
    own = Setting("default", PATTERN.spread, PATTERN.anchors)
    patterns = Patterns.of(task.memory, [own])
    graph = task.memory.index.tensors.graph
    assert torch.equal(patterns.graph.edge_index, graph.edge_index)
    torch.testing.assert_close(patterns.weight[0], graph.weight)
    index = task.memory.index
    query = task.encode(task.questions)
    found = index.candidates(query)
    assert found.reached.anchors is not None and found.reached.value is not None
    start = torch.zeros(len(query), graph.num_nodes)
    there = found.reached.value > 0
    rows = index.tensors.nodes(found.reached.anchors)
    start[there.nonzero()[:, 0], rows[there]] = found.reached.value[there]
    ((_, got),) = activations(patterns, [own], {own.anchors: start})
    torch.testing.assert_close(got, found.signal("activation").float())


def _judgement(recall: list[list[float]], half: list[bool]) -> Judgement:
    found = torch.tensor(recall, dtype=torch.float64)
    base = torch.full_like(found[0], 0.5)
    published = found[:: len(FACTORS)]
    return Judgement(base, found, published, found[0], torch.tensor(half))


def test_confirmed_counts_only_what_was_not_chosen_on() -> None:
    """A setting that is good on one half alone is chosen there and pays on the other."""
    settings = [
        Setting(name, SpreadConfig(), AnchorConfig()) for name in ("synapse-published", "other")
    ]
    flat = [0.5] * 4
    lucky = [1.0, 1.0, 0.0, 0.0]
    half = [True, True, False, False]
    found = confirmed(_judgement([flat] * 7 + [lucky], half), settings, DRAWN)
    assert found["tried"] == 8
    assert found["best"] == pytest.approx(0.25)
    # Chosen on the first half, it loses 0.5 on the other; on the second nothing is chosen.
    assert found["gain"][0] == pytest.approx(-0.25)
    assert found["chosen"][0]["name"] == "other" and found["chosen"][0]["factor"] == FACTORS[3]
    assert found["chosen"][1] is None
    assert found["of_presets"]["synapse-published"][0] == 0.0 and found["preset"] == [0.0] * 3
    assert found["anchors"] == [0.0] * 3 and found["of_graph"] == found["gain"]
    good = [1.0] * 4
    assert confirmed(_judgement([flat] * 7 + [good], half), settings, DRAWN)["gain"] == [0.5] * 3
    # What anchors alone bring is not the graph's.
    controls = [settings[0], Setting("other", SpreadConfig(rounds=0), AnchorConfig())]
    held = confirmed(_judgement([flat] * 3 + [good] + [flat] * 3 + [good], half), controls, DRAWN)
    assert held["tried"] == 4 and held["gain"] == held["anchors"] == [0.5] * 3
    assert held["of_graph"] == [0.0] * 3
    best = best_published(_judgement([flat] * 4 + [good] * 4, half), settings, DRAWN)
    assert best["gain"] == [0.5] * 3 and best["chosen"][0]["name"] == "other"


def test_recall_and_background_by_hand() -> None:
    score = torch.tensor([[0.1, 0.9, 0.5, 0.4], [1.0, 0.0, 0.0, 0.0]])
    gold = torch.tensor([[1, 3], [-1, -1]])
    assert recall_of(score, gold, 2)[0] == 0.5
    assert recall_of(score, gold, 3)[0] == 1.0
    assert recall_of(score, gold, 2)[1].isnan()
    found = background(torch.tensor([[0.0, 0.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0]]))
    assert found[0].mean().item() == pytest.approx(0.0, abs=1e-6)
    assert found[0].std().item() == pytest.approx(1.0)
    assert found[1].tolist() == [0.0] * 4


def test_judge_reports_every_regime(tmp_path: Path) -> None:
    (tmp_path / "locomo").mkdir()
    locomo_file(tmp_path / "locomo")
    passage_files(tmp_path / "multihop")
    chat_files(tmp_path / "longmemeval")
    request = Request(data=tmp_path, config=PATTERN, embedder="hashing:64", device="cpu")
    judged = judge(request, resamples=20, settings=2, large=2, steps=1)
    report: dict[str, Any] = judged.report
    names = set(report["regimes"])
    assert {"strong seeds: linear", "all conversations in one store", "multi-hop"} <= names
    assert {"passages @5, apart", "passages @5, the gold alone", "small @5, apart"} <= names
    # The question that has no answer in the chats counts in nothing.
    assert report["regimes"]["chats @5"]["n"] == report["regimes"]["chats @5, weak seeds"]["n"] == 2
    assert report["regimes"]["strong seeds: linear"]["tried"] == 2 * len(FACTORS)
    assert report["speed"]["largest_difference"] < 1e-4
    assert set(report["learned"]["gains"]) >= {"temporal", "similarity reverse"}
    assert [row["spare"] for row in report["spared"]][-1] == "no inhibition"
    json.dumps(report, allow_nan=False)
    assert all(name in judged.table for name in names)


def test_judge_of_passages_alone_has_them_apart_and_merged(tmp_path: Path) -> None:
    passage_files(tmp_path / "multihop")
    passage_files(tmp_path / "multihop", "other", [f"{title}burg" for title in TITLES])
    request = Request(data=tmp_path, config=PATTERN, embedder="hashing:64", device="cpu")
    judged = judge(request, resamples=20, settings=2, large=2)
    regimes = judged.report["regimes"]
    for kind in ("the gold alone", "apart", "merged"):
        assert regimes[f"passages @5, {kind}"]["n"] == 4
        assert [regimes[f"{name} @5, {kind}"]["n"] for name in ("other", "small")] == [2, 2]
    # Five hits of three passages: nothing can be missed without distractors.
    assert regimes["small @5, the gold alone"]["base"] == 1.0
    assert regimes["small @5, the gold alone"]["preset"] == [0.0] * 3
    assert "published" not in judged.report and judged.report["n"] == {"passages": 4}
    json.dumps(judged.report, allow_nan=False)
