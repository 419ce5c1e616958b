"""The ablations from file to report, and what they are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.locomo.ablation import variants
from graphmem_torch.quality.locomo.experiments import paraphrase
from graphmem_torch.quality.locomo.judge import judge
from graphmem_torch.quality.request import Request
from graphmem_torch.quality.request import judge as any_judge
from tests.bench.quality.made import locomo_file


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The report on two short conversations, and its tables."""
    config = load_config("synapse", {"link.concepts": "pattern"})
    data = locomo_file(tmp_path_factory.mktemp("locomo"))
    asked = {"embedder": "hashing:64", "device": "cpu", "config": config, "preset": "synapse"}
    found = judge(Request(data=data, ablate=True, **asked), resamples=50)
    return found.report, found.table


def test_ablations_have_every_part_of_the_paper(judged: tuple[dict[str, Any], str]) -> None:
    report, table = judged
    parts = ["gate", "inhibition", "fan", "node decay", "edge decay", "activation", "graph"]
    rarer = {f"consolidated every {every}" for every in (10, 20)}
    undone = {"silence fires", "fires in every round", "whole fan", "gate of the score"}
    undone |= {"all compete", "waiting undiluted"}
    every = {"as it is", "vectors only", *(f"no {part}" for part in parts), *rarer, *undone}
    assert set(report["ablations"]) == every
    assert all(name in table for name in report["ablations"])
    assert report["n"] == {"1-4": 8, "5": 2, "foreign": 0}
    json.dumps(report, allow_nan=False)


def test_ablation_of_the_gate_changes_what_is_refused_alone(
    judged: tuple[dict[str, Any], str],
) -> None:
    whole, free = (judged[0]["ablations"][name] for name in ("as it is", "no gate"))
    assert free["recall"] == whole["recall"]
    assert free["refused"] == free["refused_adversarial"] == 0.0
    assert free["difference"]["1-4"]["10"] == [0.0, 0.0, 0.0]
    recall = free["recall"]["1-4"]["10"][0]
    # Six of ten questions have gold, two without a gate refuse nothing; the other two have none.
    assert free["score"][0] == pytest.approx(recall * 6 / 8)


def test_a_higher_threshold_refuses_more(judged: tuple[dict[str, Any], str]) -> None:
    rows = judged[0]["gate"]
    threshold = load_config("synapse").gate.threshold
    swept = [threshold * place / 12 for place in range(5, 21)]
    assert [row["threshold"] for row in rows] == pytest.approx(swept)
    for key in ("refused", "adversarial"):
        shares = [row[key] for row in rows]
        assert shares == sorted(shares)
    at = next(row for row in rows if row["threshold"] == threshold)
    assert at["refused"] == judged[0]["ablations"]["as it is"]["refused"]
    assert at["score"] == pytest.approx(judged[0]["ablations"]["as it is"]["score"][0])


def test_memories_that_have_begun_are_beside_a_buffer(judged: tuple[dict[str, Any], str]) -> None:
    """Ten turns of twelve: two questions a conversation lie in them whole."""
    rows = {(row["turns"], row["system"]): row for row in judged[0]["cold_start"]}
    assert {turns for turns, _ in rows} == {"any 10", "first 10"}
    for row in rows.values():
        assert row["n"] == 4
        assert row["newest"] == 0.5  # of the tenth turn back, and the fourth
        assert row["tokens"] < row["tokens_of_all"]


def test_variants_leave_out_what_a_preset_has_not() -> None:
    published = variants(load_config("synapse-published"))
    assert published.keys().isdisjoint({"silence fires", "all compete", "waiting undiluted"})
    found = variants(load_config("default"))
    assert "no inhibition" not in found
    assert "activation" not in found["no activation"].rank.weights
    assert set(found["no graph"].rank.weights).isdisjoint(
        {"activation", "hop", "title_hop", "entity_hop"}
    )
    assert variants(load_config("synapse"))["no graph"].rank.weights == {
        "semantic_positive": 1.0,
        "lexical": 0.1,
    }


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "What did Caroline realize after her charity race?",
            "After her charity race, what did Caroline notice?",
        ),
        ("Which motorbike did Bruno sell?", "Do you remember: which motorbike did Bruno sell?"),
        (
            "What did Ada buy for her sister in the town at the lake?",
            "At the lake, what did Ada purchase for her sister in the town?",
        ),
        ("Why", "Do you remember: why"),
    ],
)
def test_a_paraphrase_has_other_words_and_another_order(question: str, said: str) -> None:
    assert paraphrase(question) == said


def test_ablations_are_asked_for_on_conversations_alone(locomo: Path) -> None:
    with pytest.raises(InputError, match="--ablate: expected nothing for custom"):
        any_judge("custom", Request(data=locomo, questions=locomo, ablate=True))
