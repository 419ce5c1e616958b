"""A particle is its atom, its edges, times and uses; an oracle's word stands before the rules'."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import SIGNIFIERS, Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.insight import KEYS, read_insight
from graphmem_torch.oracle.prompts import insight_question
from graphmem_torch.results import Understood
from graphmem_torch.store.receipts import find_traces
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
        a, b, c = memory.upkeep.particles(["a", "b", "c"])
        assert (a.id, a.content, a.uses, a.accessed) == ("a", atoms()[0].text, 2, NOW - 5)
        assert {"Lisbon", "Anna Berg"} <= {*a.keys} and a.signifiers == ("assertion", "event")
        source = {"kind": "turn", "speaker": "Nora", "session": "s"}
        assert a.imprint == {"source": source, "environment": "phone"}
        assert (a.created, a.modified, a.event_start, a.event_end) == (1.7e9, None, 1.6e9, None)
        assert ("temporal", "b", 1.0) in a.strands and ("supports", "c", 0.5) in a.strands
        assert a.importance == memory.upkeep.importance("a")["a"]
        assert b.modified == NOW and b.accessed is None and b.signifiers == ("question",)
        assert ("supports", "a", 0.5) in c.strands and c.created == NOW
        assert memory.upkeep.particles([]) == []
        with pytest.raises(InputError, match="not in the store"):
            memory.upkeep.particles("nobody")


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
        rules = memory.upkeep.particles("b")
        assert memory.upkeep.understand(extract) == Understood(1, 2)
        said = memory.upkeep.particles("a")[0]
        assert (said.signifiers, said.keys) == (("plan",), ("Lisbon trip",))
        assert said.importance == pytest.approx(0.9, abs=1e-3)  # faded by minutes
        assert memory.upkeep.particles("b") == rules
        assert memory.upkeep.understand(lambda texts: 1 / 0) == Understood(0, 2)
        answers[:] = [{"signifiers": ["event"], "keys": [], "importance": 0}] * 2
        assert memory.upkeep.understand(extract) == Understood(2, 0)
        assert [len(texts) for texts in asked] == [3, 2]
        assert memory.upkeep.understand(extract) == Understood(0, 0)
        with pytest.raises(InputError, match="extract"):
            memory.upkeep.understand(object())
        memory.update("a", text="We flew to Porto.")
        assert "plan" not in memory.upkeep.particles("a")[0].signifiers  # said of another text
        memory.forget("a")
        assert memory.check() == []
    assert find_traces(tmp_path / "m", ["Lisbon trip"]) == []
    with opened(tmp_path / "m", mode="r") as memory, pytest.raises(StoreError, match="read"):
        memory.upkeep.understand(extract, ["c"])


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
    assert keys[:2] == ("Anna Berg", "Oslo")
    assert {"met", "old", "harbour"} <= {*keys} and not {"Anna", "Berg", "the"} & {*keys}
    assert len(read_insight(" ".join(f"word{i}" for i in range(50))).keys) == KEYS
    assert len(read_insight("wet " * 100_000).keys) == 1


KEYED = {
    "Since Tuesday I adored the synchronised calendars.": "adored synchronised calendars",
    "Batteries died again. Batteries! Every battery: batteries are cheap.": "batteries cheap",
    "The bees left. I saw NASA's rover and my iPhone near Zürich.": "bees left NASA's rover iPhone",
    "Priya Natarajan paid, and Priya left.": "Priya Natarajan paid left",
    "Look: https://example.com/search?q=trams or www.example.org!": "look",
    "Πού ήσουν χθες; Σε περίμενα.": "χθες περίμενα",
    "Wir fuhren mit den Fahrrädern nach Wien.": "fuhren Fahrrädern Wien",
    "the and of is": "",
}


@pytest.mark.parametrize("text", KEYED)
def test_keys_are_words_of_the_text(text: str) -> None:
    keys = read_insight(text).keys
    assert {*KEYED[text].split()} <= {*keys}
    assert all(key.lower() in text.lower() for key in keys)
    assert not {"since", "the", "and", "of", "is", "https", "example"} & {*keys}
    assert len({key.lower() for key in keys}) == len(keys)


def test_a_name_that_a_text_writes_otherwise_is_as_it_is_known() -> None:
    assert read_insight("Caro called.", ["caroline"]).keys[0] == "caroline"
    assert (
        read_insight("We rode to New   York; NEW YORK, New York!", ["new york"]).keys[0]
        == "New York"
    )


SAID = datetime(2023, 6, 14, 10, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("We adopted a cat last Friday.", "2023-06-09"),
        ("Yesterday I ran ten miles.", "2023-06-13"),
        ("On 3 May we moved.", "2023-05-03"),
        ("We met on 2022-11-30 in Graz.", "2022-11-30"),
        ("I'll be in Rome next week.", "2023-06-19"),
        ("Nothing of note.", None),
        ("I was there last year.", None),
    ],
)
def test_an_event_starts_on_the_day_that_is_told(text: str, day: str | None) -> None:
    with opened() as memory:
        memory.add([Atom("a", text, time=SAID.timestamp()), Atom("b", text)])
        memory.add([Atom("c", text, time=SAID.timestamp(), event_time=5.0)])
        a, b, c = memory.upkeep.particles(["a", "b", "c"])
        start = SAID if day is None else datetime.fromisoformat(day).replace(tzinfo=UTC)
        assert a.event_start == start.timestamp() and a.created == SAID.timestamp()
        absolute = day is not None and day in text
        assert b.event_start == (start.timestamp() if absolute else None)
        assert c.event_start == 5.0
        memory.facts.set_validity("a", start=7.0)
        assert memory.upkeep.particles("a")[0].event_start == 7.0


def test_an_event_starts_before_it_ends() -> None:
    with opened() as memory:
        memory.add([Atom("a", "I'll be in Rome next week.", time=SAID.timestamp())])
        memory.facts.set_validity("a", stop=SAID.timestamp() + 60)
        (found,) = memory.upkeep.particles("a")
        assert found.event_start == SAID.timestamp()
