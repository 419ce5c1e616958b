"""Memory nodes by the published contract: what is one, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.oracle import ask_classifier, memory_node, method_of

GOOD = {"content": "Python uses indentation.", "type": "semantic", "decay_factor": 0.9995}


@pytest.mark.parametrize("name", ["semantic", "episodic", "procedural", "working"])
def test_memory_node(name: str) -> None:
    assert memory_node({**GOOD, "type": name}) == {**GOOD, "type": name}
    assert memory_node({**GOOD, "type": f" {name.title()}", "centrality_score": 3}) == {
        **GOOD,
        "type": name,
    }
    assert memory_node({**GOOD, "decay_factor": np.float32(0.5)}) == {**GOOD, "decay_factor": 0.5}
    assert memory_node({**GOOD, "decay_factor": 1}) == {**GOOD, "decay_factor": 1.0}


def test_relations_of_a_memory_node() -> None:
    good = {"target": "log", "type": "resulted_in", "more": 1}
    bad = [{"target": "log"}, {"target": 1, "type": "x"}, None, "log"]
    assert memory_node({**GOOD, "relations": [*bad, good]}) == {
        **GOOD,
        "relations": [("log", "resulted_in")],
    }
    for none in ("log", {}, None, bad, 7):
        assert memory_node({**GOOD, "relations": none}) == GOOD


BAD: list[Any] = [
    None,
    7,
    "semantic",
    [],
    {},
    {**GOOD, "type": "eternal"},
    {**GOOD, "type": None},
    {**GOOD, "type": ["semantic"]},
    {**GOOD, "content": " "},
    {**GOOD, "content": 3},
    {**GOOD, "decay_factor": 0},
    {**GOOD, "decay_factor": 1.01},
    {**GOOD, "decay_factor": -0.5},
    {**GOOD, "decay_factor": float("nan")},
    {**GOOD, "decay_factor": True},
    {**GOOD, "decay_factor": "0.9"},
    {**GOOD, "decay_factor": 10**400},
    {"content": "x", "type": "semantic"},
]


@pytest.mark.parametrize("answer", BAD)
def test_memory_node_of_anything_else(answer: Any) -> None:
    assert memory_node(answer) is None


def test_language_model_alone_is_no_oracle() -> None:
    class Client:
        def complete(self, prompt: str) -> str:
            return prompt

        __call__ = complete

    for name in ("classify", "judge"):
        with pytest.raises(InputError, match=r"oracle: .*wrap it: OpenAIOracle\(client\)"):
            method_of(Client(), name)


def test_classifier_that_fails_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["a", "b"]
    assert ask_classifier(lambda t: [GOOD, "?"], texts) == [GOOD, None]
    assert "1 of 2 memory nodes" in caplog.text and "local rules" in caplog.text
    assert ask_classifier(lambda t: [GOOD], texts) == [None, None]
    assert ask_classifier(lambda t: iter(lambda: GOOD, None), texts) == [None, None]
    assert ask_classifier(lambda t: 3, texts) == [None, None]

    def breaks(texts: Any) -> Any:
        raise TimeoutError("late")

    assert ask_classifier(breaks, texts) == [None, None]
    assert "TimeoutError: late" in caplog.text
    assert ask_classifier(lambda t: [], []) == []


def test_method_of() -> None:
    class Has:
        def classify(self, texts: list[str]) -> list[Any]:
            return [GOOD for _ in texts]

    assert method_of(Has(), "classify")(["a"]) == [GOOD]
    with pytest.raises(InputError, match=r"oracle: expected classify\(texts\)"):
        method_of(3, "classify")
