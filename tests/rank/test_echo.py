"""Stored questions that are what is asked, against loops over texts; all presets and both rules."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
import torch

from graphmem_torch import Memory
from graphmem_torch.config import load_config
from graphmem_torch.rank.echo import without_echoes
from graphmem_torch.text.asked import read_asked
from tests.memories import retrieved

FILL = (
    "The weather was lovely on the walk.",
    "I baked bread with rye flour.",
    "The train was late again.",
    "My neighbour plays the trumpet.",
    "The garden needs water.",
    "We painted the kitchen yellow.",
)
HOME, SISTER = "Where do I live?", "Where does my sister live?"


def turns(*said: tuple[str, str], session: str, start: float = 1.7e9) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{session}{number}",
            "text": text,
            "speaker": speaker,
            "session": session,
            "time": start + 60.0 * number,
        }
        for number, (speaker, text) in enumerate(said)
    ]


def memory_of(*sessions: Sequence[dict[str, Any]], **options: Any) -> Memory:
    memory = Memory.open(None, embedder="hashing", **options)
    memory.add(turns(*(("user", text) for text in FILL), session="f", start=1.6e9))
    for session in sessions:
        memory.add(session)
    return memory


EARLIER = turns(("user", HOME), ("assistant", "In Lisbon, you said."), session="e")
LATEST = turns(("user", HOME), session="l", start=1.8e9)


def ids(memory: Memory, question: str, **options: Any) -> list[str]:
    return [hit.id for hit in retrieved(memory, question, **options).hits]


@pytest.mark.parametrize("preset", ["default", "synapse", "spectral", "contextos", "sgrm", "weave"])
def test_no_preset_finds_what_it_is_asked(preset: str) -> None:
    with memory_of(EARLIER, LATEST, preset=preset) as memory:
        found = memory.retrieve(HOME)
        assert {"e0", "l0"}.isdisjoint(hit.id for hit in found.hits) and found.hits
        assert memory.explain(HOME, "l0").rank == 0
        if preset in ("default", "weave"):  # the others rank as their papers do
            assert found.hits[0].id == "e1" and found.hits[0].signals["reply"] > 0


@pytest.mark.parametrize("limit", [0, 2048])
def test_what_is_found_is_what_was_found_before(limit: int) -> None:
    """One session more, which holds nothing but the question, changes no hit."""
    told = turns(("user", "I live in Lisbon."), ("assistant", "How nice!"), session="t")
    options: dict[str, Any] = {"config": load_config("default", {"rank.exhaustive_up_to": limit})}
    with memory_of(told, **options) as memory:
        before = ids(memory, HOME, k=5)
        memory.add(LATEST)
        assert ids(memory, HOME, k=5) == before
        batch = memory.retrieve([HOME, "the garden"], k=5)
        assert [hit.id for hit in batch[0].hits] == before


def test_equal_questions_are_found_as_a_loop_finds_them() -> None:
    asked = [HOME, SISTER, "where do i live", "Tom, where do I live?", "I live in Lisbon.", "live"]
    with memory_of(turns(*(("user", text) for text in asked), session="q")) as memory:
        query = memory.tensors.encode([HOME, SISTER, "live", "I live in Lisbon."])
        found = without_echoes(memory.index.tensors, query)
        texts = [*FILL, *asked]
        assert found.allowed is not None
        for row, question in enumerate([HOME, SISTER, "live", "I live in Lisbon."]):
            key = read_asked(question).key
            for place, text in enumerate(texts):
                if key and read_asked(text).key == key:
                    assert not found.allowed[row, place]
                elif not read_asked(text).key or not key:
                    assert found.allowed[row, place]


def test_a_memory_without_questions_is_asked_as_it_was() -> None:
    with memory_of() as memory:
        query = memory.tensors.encode([HOME])
        assert without_echoes(memory.index.tensors, query) is query


def test_what_must_stay() -> None:
    said = turns(
        ("Bea", "You are coming on Friday."),
        ("Bea", "How long is the trip?"),
        ("Jo", "Q: How do I reset the router? A: Hold the button."),
        ("Jo", "Who has the office keys?"),
        session="s",
    )
    with memory_of(said) as memory:
        assert "s0" in ids(memory, "You are coming on Friday?")
        assert "s1" in ids(memory, "What did Bea ask about the trip?")
        assert "s2" in ids(memory, "How do I reset the router?")
        assert "s3" in ids(memory, "office keys")
        assert "s3" not in ids(memory, "Who has the office keys?")


def test_an_entry_with_metadata_is_no_turn() -> None:
    entry = {"id": "faq", "text": HOME, "meta": {"answer": "In Lisbon."}}
    with memory_of() as memory:
        memory.add([entry])
        assert "faq" in ids(memory, HOME)


def test_who_does_not_know_gives_no_reply() -> None:
    said = turns(
        ("user", HOME),
        ("assistant", "I do not know that yet."),
        ("user", "In Lisbon."),
        session="e",
    )
    with memory_of(said, LATEST) as memory:
        assert ids(memory, HOME)[0] == "e2"


def test_what_follows_no_answer_leads_as_far_as_it_is_like_the_question() -> None:
    said = turns(
        ("user", HOME),
        ("assistant", "I do not know that, you have not told me."),
        ("user", "My tooth hurts."),
        ("assistant", "Oh dear!"),
        session="e",
    )
    told = turns(("user", "I live in Lisbon."), session="t", start=1.75e9)
    with memory_of(said, told, LATEST) as memory:
        assert ids(memory, HOME)[0] == "t0"
        query = memory.tensors.encode([HOME])
        found = without_echoes(memory.index.tensors, query)
        assert found.replies is not None and found.reply_weight is not None
        row = memory.tensors.rows(["e2"])[0]
        cosine = memory.index.tensors.embeddings[row].float() @ query.embedding[0].float()
        weight = found.reply_weight[0][found.replies[0] == row].max()
        assert float(weight) <= max(0.0, float(cosine)) + 1e-6


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_latest_reply_leads_in_whatever_order_turns_are_stored(order: tuple[int, ...]) -> None:
    towns = ("Oslo", "Rome", "Lima")
    chats = [
        turns(
            ("user", HOME),
            ("assistant", f"You live in {town}."),
            session=f"c{number}-",
            start=1.7e9 + 1e6 * number,
        )
        for number, town in enumerate(towns)
    ]
    with memory_of(*(chats[number] for number in order)) as memory:
        assert ids(memory, HOME, k=3) == ["c2-1", "c1-1", "c0-1"]


def test_an_entry_with_a_title_is_no_turn() -> None:
    with memory_of() as memory:
        memory.add([{"id": "song", "text": "What's going on?", "title": "Marvin Gaye"}])
        assert "song" in ids(memory, "What's going on?")


@pytest.mark.parametrize("statements", range(4))
def test_a_list_of_questions_finds_its_questions(statements: int) -> None:
    entries = [{"id": f"q{i}", "text": f"How do I repair part {i}?"} for i in range(39)]
    entries += [{"text": f"Drawer {i} is green."} for i in range(statements)]
    with memory_of() as memory:
        memory.add(entries)
        is_list = Fraction(39, 39 + statements) >= Fraction(95, 100)
        assert ("q7" in ids(memory, "How do I repair part 7?")) is is_list


def test_who_asks_again_and_again_makes_no_list() -> None:
    asked = [HOME, SISTER, "What is my pet?"]
    with Memory.open(None, embedder="hashing") as memory:
        memory.add("I live in Lisbon.")
        for number in range(60):
            memory.add(f"{asked[number % 3]}{' ' * number}")
        assert memory.retrieve(HOME).hits[0].text == "I live in Lisbon."


def test_only_what_may_be_seen_leads_and_is_led_to() -> None:
    with memory_of(EARLIER, LATEST) as memory:
        assert "e1" not in ids(memory, HOME, exclude=["e1"])
        early = memory.retrieve(HOME, between=(None, 1.65e9)).hits
        assert all(hit.signals["reply"] == 0 for hit in early)


def test_the_index_as_a_module_gives_the_same() -> None:
    with memory_of(EARLIER, LATEST) as memory:
        query = memory.tensors.encode([HOME, SISTER])
        index = memory.index
        other = type(index).from_state_dict(index.state_dict(), index.config)
        with torch.inference_mode():
            one, two = index(query, k=5), other(query, k=5)
            alone = index(query.rows(slice(0, 1)), k=5)
            scores = index.score(query)
        assert torch.equal(one.rows, two.rows) and torch.equal(one.rows[:1], alone.rows)
        assert scores[0, one.rows[0, 0]] == pytest.approx(float(one.scores[0, 0]), rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_same_on_a_device() -> None:
    with memory_of(EARLIER, LATEST) as memory:
        query = memory.tensors.encode([HOME, SISTER])
        with torch.inference_mode():
            here = memory.index(query, k=5).rows
            there = memory.index.to("cuda")(query.to("cuda"), k=5).rows
        assert torch.equal(here, there.cpu())
