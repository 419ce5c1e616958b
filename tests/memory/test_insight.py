"""A particle is its atom, its edges, times and uses; an oracle's word stands before the rules'."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import SIGNIFIERS, Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.insight import KEYS, read_insight
from graphmem_torch.oracle.prompts import insight_question
from graphmem_torch.results import Understood
from graphmem_torch.store.erasure import find_traces
from tests.memories import opened

NOW = 1.7e9 + 1000.0


def atoms() -> list[Atom]:
    return [
        Atom(
            "a",
            "We went to Lisbon with Anna Berg.",
            speaker="Nora",
            session="s",
            time=1.7e9,
            event_time=1.6e9,
            meta={"environment": "phone", "page": 3},
        ),
        Atom("b", "Is Lisbon warm?", speaker="Ben", session="s", time=1.7e9 + 60),
        Atom("c", "They were in Lisbon.", edges=(Link("a", EdgeType.SUPPORTS, 0.5),)),
    ]


def filled(path: Path | None = None) -> Memory:
    memory = opened(path, clock=lambda: NOW)
    memory.add(atoms())
    return memory


def test_a_particle_is_what_is_stored() -> None:
    with filled() as memory:
        memory.touch(["a", "a"], when=NOW - 5)
        memory.touch("a", when=NOW - 7)
        memory.update("b", text="Is Lisbon warm, then?")
        a, b, c = memory.particles(["a", "b", "c"])
        assert (a.id, a.content, a.uses, a.accessed) == ("a", atoms()[0].text, 2, NOW - 5)
        assert {"lisbon", "anna berg"} <= {*a.keys} and a.signifiers == ("assertion", "event")
        source = {"kind": "turn", "speaker": "Nora", "session": "s"}
        assert a.imprint == {"source": source, "environment": "phone"}
        assert (a.created, a.modified, a.event_start, a.event_end) == (1.7e9, None, 1.6e9, None)
        assert ("temporal", "b", 1.0) in a.strands and ("supports", "c", 0.5) in a.strands
        assert a.importance == memory.importance("a")["a"]
        assert b.modified == NOW and b.accessed is None and b.signifiers == ("question",)
        assert ("supports", "a", 0.5) in c.strands and c.created == NOW
        assert memory.particles([]) == []
        with pytest.raises(InputError, match="not in the store"):
            memory.particles("nobody")


def test_an_oracle_is_asked_once_and_its_failures_cost_only_its_word(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    answers: list[Any] = [
        {"signifiers": ["PLAN", "nonsense"], "keys": ["  Lisbon  trip "], "importance": 0.9},
        {"signifiers": ["nonsense"], "keys": [], "importance": 0.5},
        {"signifiers": ["event"], "keys": [1, "x"], "importance": 1.5},
    ]

    def extract(texts: Sequence[str]) -> list[Any]:
        asked.append(texts)
        return answers[: len(texts)]

    with filled(tmp_path / "m") as memory:
        rules = memory.particles("b")
        assert memory.understand(extract) == Understood(1, 2)
        said = memory.particles("a")[0]
        assert (said.signifiers, said.keys) == (("plan",), ("Lisbon trip",))
        assert said.importance == pytest.approx(0.9, abs=1e-3)  # faded by minutes
        assert memory.particles("b") == rules
        assert memory.understand(lambda texts: 1 / 0) == Understood(0, 2)
        answers[:] = [{"signifiers": ["event"], "keys": [], "importance": 0}] * 2
        assert memory.understand(extract) == Understood(2, 0)
        assert [len(texts) for texts in asked] == [3, 2]
        assert memory.understand(extract) == Understood(0, 0)
        with pytest.raises(InputError, match="extract"):
            memory.understand(object())
        memory.update("a", text="We flew to Porto.")
        assert "plan" not in memory.particles("a")[0].signifiers  # said of another text
        memory.forget("a")
        assert memory.check() == []
    assert find_traces(tmp_path / "m", ["Lisbon trip"]) == []
    with opened(tmp_path / "m", mode="r") as memory, pytest.raises(StoreError, match="read"):
        memory.understand(extract, ["c"])


def test_one_request_is_read_as_a_list_of_its_texts() -> None:
    question = insight_question(["one", "two"])
    good = {"signifiers": ["plan"], "keys": ["k"], "importance": 0.5}
    answer = json.dumps({"particles": [good, {"signifiers": 3}]})
    assert question.read(f"Sure: {answer}") == [good, None]
    for wrong in ([good], [good] * 3, "text", [None, None]):
        assert question.read(json.dumps({"particles": wrong})) is None
    assert question.read("[]") is None


LABELLED = {
    "I love hiking in the Alps.": {"assertion", "preference"},
    "Where did you grow up?": {"question"},
    "Maybe she is still in Oslo.": {"hypothesis"},
    "We went to Paris last spring and met Anna.": {"assertion", "event"},
    "Please send me the report.": {"instruction"},
    "I'm going to start a new job in May.": {"assertion", "plan"},
    "Vienna is the capital of Austria.": {"assertion"},
    "I moved to Lisbon. Do you like it there?": {"assertion", "event", "question"},
    "Ich war gestern mit meiner Schwester in Wien.": set[str](),
    "¿Dónde vives?": {"question"},
    "": set[str](),
    "!!!": set[str](),
}


@pytest.mark.parametrize("text", LABELLED)
def test_signifiers_of_labelled_sentences(text: str) -> None:
    found = read_insight(text).signifiers
    assert {*found} == LABELLED[text]
    assert list(found) == [name for name in SIGNIFIERS if name in found]


def test_keys_are_names_first_then_words() -> None:
    keys = read_insight(
        "We met Anna Berg near the old harbour of Oslo.", ["anna berg", "oslo"]
    ).keys
    assert keys[:2] == ("anna berg", "oslo")
    assert {"met", "old", "harbour"} <= {*keys} and not {"anna", "berg", "the"} & {*keys}
    assert len(read_insight(" ".join(f"word{i}" for i in range(50))).keys) == KEYS
    assert len(read_insight("wet " * 100_000).keys) == 1
