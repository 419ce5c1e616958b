"""What a memory learns: weights and the threshold of its gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from tests.memories import ids, opened, planted, turns


def recall(memory: Memory, questions: list[str], evidence: list[list[str]]) -> float:
    found = memory.retrieve(questions, k=3)
    kept = [len({*ids(r)} & {*gold}) / len(gold) for r, gold in zip(found, evidence, strict=True)]
    return sum(kept) / len(kept)


def test_fit_finds_what_a_planted_memory_needs() -> None:
    names = ["semantic", "lexical", "interaction_previous", "semantic_previous"]
    weights = {**dict.fromkeys(names, 1.0), "length": 9.0}
    config = load_config("default", {"link.concepts": "none"})
    config = replace(config, rank=replace(config.rank, weights=weights))
    atoms, questions, evidence = planted()
    with opened(config=config) as memory:
        memory.add(atoms)
        before = recall(memory, questions[40:], evidence[40:])
        weights = memory.fit(questions[:40], evidence[:40])
        assert weights.keys() == config.rank.weights.keys()
        assert memory.config.rank.weights == weights
        assert recall(memory, questions[40:], evidence[40:]) >= max(0.9, before + 0.3)
        with pytest.raises(InputError, match="'nowhere'"):
            memory.fit(questions[:1], [["nowhere"]])
        with pytest.raises(InputError, match="2 questions and 1 lists"):
            memory.fit(questions[:2], evidence[:1])
        with pytest.raises(InputError, match="evidence"):
            memory.fit(questions[:1], [[]])
        assert memory.config.rank.weights == weights  # what failed changed nothing


def test_calibrate_refuses_no_more_than_it_may() -> None:
    with opened() as memory:
        memory.add([f"boat number {i} is red" for i in range(40)])
        questions = [f"which boat is number {i}?" for i in range(39)]
        threshold = memory.calibrate(questions, refused=0.1)
        sure = sorted(result.confidence for result in memory.retrieve(questions))
        assert threshold == pytest.approx(sure[3])  # floor(0.1 * 40) = 4th smallest
        assert sum(not result.known for result in memory.retrieve(questions)) <= 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evidence": [["concept:says story 0"]]}, "got the concept"),
        ({"evidence": ["a"]}, "list of texts"),
        ({"questions": "?"}, "list of texts"),
        ({"held_out": "half"}, "held_out"),
        ({"penalty": float("nan")}, "penalty"),
        ({"penalty": -1.0}, "penalty"),
    ],
)
def test_fit_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    asked = {"questions": ["Which boats?"], "evidence": [["a0"]], **change}
    with opened() as memory:
        memory.add(turns())
        with pytest.raises(InputError, match=message):
            memory.fit(**asked)
