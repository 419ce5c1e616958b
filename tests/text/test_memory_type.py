"""Rules that find memory types, on sentences that they were not made from."""

from __future__ import annotations

import pytest

from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.text.memory_type import memory_types

LABELLED = {
    "semantic": [
        "The Danube flows through ten countries.",
        "My mother is a dentist.",
        "Copper conducts electricity better than iron.",
        "A sonnet has fourteen lines.",
        "The library holds forty thousand books.",
        "I prefer window seats on long flights.",
        "Whales are mammals that live in the sea.",
        "An even number is divisible by two.",
    ],
    "episodic": [
        "Yesterday we visited the old harbour.",
        "She sold her car two weeks ago.",
        "The user opened three files at 9:15.",
        "I ran into Paul on Tuesday and we talked about the trip.",
        "He broke his arm last winter.",
        "They moved house in 2021.",
        "The agent called the weather service and received an error.",
        "I went to the dentist this morning.",
    ],
    "procedural": [
        "Never store passwords in plain text.",
        "To open the case, remove both screws on the back.",
        "Always greet the caller by name.",
        "You must log out before closing the window.",
        "If the pump overheats, switch it off and wait ten minutes.",
        "Make sure the door is locked at night.",
        "Please answer every question in two sentences.",
        "Do not mention competitors.",
    ],
    "working": [
        "TODO: order new filters.",
        "Currently waiting for the second invoice.",
        "Next step: compare the two drafts.",
        "Right now I'm sorting the photos.",
        "Remind me to call Lena tomorrow.",
        "In progress: cleaning the address list.",
    ],
}


def _atoms(texts: list[str], **fields: str) -> list[Atom]:
    return [Atom(str(i), text, **{"kind": "chunk", **fields}) for i, text in enumerate(texts)]


@pytest.mark.parametrize("name", MEMORY_TYPES)
def test_memory_types_of_clear_sentences(name: str) -> None:
    found = memory_types(_atoms(LABELLED[name]))
    right = sum(answer == name for answer in found)
    assert right >= 0.75 * len(found), list(zip(LABELLED[name], found, strict=True))


def test_memory_types_of_dialogue_and_of_statements() -> None:
    talk = ["Hey! How was your weekend?", "That's great, congrats!", "See you then.", "Yes, Tim."]
    assert memory_types(_atoms(talk, kind="turn", speaker="Ada")) == ["episodic"] * 4
    facts = ["Run x twice.", "If a then b, a entails b."]
    for kind in ("theorem", "definition", "claim"):
        assert memory_types(_atoms(facts, kind=kind)) == ["semantic"] * 2
    assert memory_types(_atoms(["Paris is large."], kind="task")) == ["working"]


def test_memory_types_of_the_examples_of_the_paper() -> None:
    # ContextOS, sections 4.2, 5.1 and appendix A.
    facts = ["Python uses indentation for blocks.", "My name is Aryan."]
    assert memory_types(_atoms(facts)) == ["semantic"] * 2
    assert memory_types(_atoms(["User ran test.py at 10:00 AM."])) == ["episodic"]


def test_memory_types_of_any_text() -> None:
    odd = ["", " ", "?", "\u2603 \u00fc \U0001f600", "1 2 3", "a" * 10_000, "never " * 5_000, "\n"]
    assert set(memory_types(_atoms(odd))) <= set(MEMORY_TYPES)
    assert memory_types([]) == []


def test_memory_types_do_not_read_the_stated_one() -> None:
    one = Atom("a", "Never share keys.", kind="chunk", type="working")
    assert memory_types([one]) == ["procedural"]


def test_memory_types_of_other_languages_read_no_cues_of_english() -> None:
    texts = [
        "Das war, was wir am Sonntag hatten: add ist kein Wort.",
        "昨日、図書館で本を借りました！",
    ]
    plain = memory_types([Atom("a", "Copper")])
    assert memory_types([Atom("a", text) for text in texts]) == plain * 2
