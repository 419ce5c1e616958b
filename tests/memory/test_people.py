"""Variants of one person's name: what the memories show, against a memory that holds only that."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.people import People
from graphmem_torch.memory.split_names import SPLIT_NAMES
from graphmem_torch.text.concepts import PatternConcepts
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import config_of, opened
from tests.memory.test_names import graph

CONFIG = config_of(**{"link.min_similarity": 0.1, "spread.max_edges": 3})
SPEAKERS = ["Caroline", "Melanie", "Melvin", "Samuel", None]
TEXTS = [
    "Hey Mel! It is good to see you.",
    "It was fun with Mel and Melanie yesterday.",
    "We saw Caro at the lake with Caroline Brook.",
    "Thanks, Caro! It is a lovely kayak.",
    "Did you hear that Melvin bought a kayak?",
    "It is Sam who won. Samuel was second.",
    "Everyone calls me Sam, and Samantha is my sister.",
    "It is a long walk, said Melanie to Sam.",
    "Bob is short for Robert, and Robert met Bob.",
    "The man by the lake is nobody.",
]


def open_chat(path: Path | None = None) -> Memory:
    return opened(path, config=CONFIG)


def turn(number: int, text: int, speaker: int, session: int) -> Atom:
    said = f"{TEXTS[text]} Number {number}."
    return Atom(f"a{number}", said, speaker=SPEAKERS[speaker], session=f"s{session}")


turns = st.lists(
    st.tuples(st.integers(0, len(TEXTS) - 1), st.integers(0, 4), st.integers(0, 1)),
    min_size=2,
    max_size=9,
)


@settings(max_examples=12, deadline=None)
@given(turns, st.data())
def test_names_are_those_of_what_stays_however_it_came(
    said: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    atoms = [turn(i, *each) for i, each in enumerate(said)]
    gone = data.draw(st.lists(st.integers(0, len(atoms) - 1), unique=True))
    alone = data.draw(st.sampled_from([None, "mel", "melanie", "caro", "bob"]))
    with open_chat() as memory, open_chat() as fresh, open_chat() as batch:
        for atom in atoms:
            memory.add([atom])
        batch.add(atoms)
        assert graph(memory) == graph(batch)
        names = batch.store.concepts([alone or ""])
        if names:
            assert memory.facts.split_name(alone) and batch.facts.split_name(alone)
            assert graph(memory) == graph(batch)
        for i in gone:
            memory.forget(f"a{i}")
        batch.forget([f"a{i}" for i in gone])
        stays = [atom for i, atom in enumerate(atoms) if i not in gone]
        fresh.add(stays)
        if names and alone in fresh.store.concepts([alone]):
            fresh.facts.split_name(alone)
        assert graph(memory) == graph(fresh) == graph(batch)
        assert memory.check() == batch.check() == []
        for each in (memory, batch, fresh):
            each.add(turn(99, 1, 0, 0))
        assert graph(memory) == graph(fresh) == graph(batch)


CALLS = ["Mel", "Caro", "Sam", "Melvin"]
MENTIONS = ["Melvin", "Melanie", "Carolina", "Samson", "the mel", "in Melbourne"]
PERSONS = ["Melanie", "Melvin", "Caroline", "Samuel"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*PERSONS, "user", None]),
            st.integers(0, 1),
            st.sampled_from(["calls", "mentions"]),
            st.integers(0, 5),
        ),
        max_size=12,
    ),
    st.data(),
)
def test_who_is_called_what_against_all_turns_looked_at(
    said: list[tuple[str | None, int, str, int]], data: st.DataObject
) -> None:
    """Addresses and mentions whose words are known, so that the oracle reads no text."""
    atoms, facts = list[Atom](), list[tuple[str | None, int, str, str, bool]]()
    for i, (speaker, session, what, which) in enumerate(said):
        word = CALLS[which % len(CALLS)] if what == "calls" else MENTIONS[which]
        you = " You won" * (i % 2)
        text = f"Hey {word}!{you} It is on." if what == "calls" else f"And we saw {word} again."
        atoms.append(Atom(f"{i}", text, speaker=speaker, session=f"{session}"))
        facts.append((speaker, session, what, word, bool(i % 2)))
    gone = data.draw(st.sets(st.sampled_from(range(len(atoms))))) if atoms else set()
    people = People()
    for i, atom in enumerate(atoms):
        people.add([(i, atom)])
        people.settle(lambda upto=atom: [a.text for a in atoms[: atoms.index(upto) + 1]])
    people.drop([(i, atoms[i]) for i in gone])
    people.settle(lambda: [atom.text for i, atom in enumerate(atoms) if i not in gone])
    kept = [fact for i, fact in enumerate(facts) if i not in gone]
    assert {frozenset({name, *people.mates(name)}) for name in people.names} == called(kept)


def called(facts: list[tuple[str | None, int, str, str, bool]]) -> set[frozenset[str]]:
    """Groups of names of one person, by loops over all pairs of turns."""
    speakers = {who for who, *_ in facts if who in PERSONS}
    shown = list[tuple[str, str, bool]]()
    for i, (who, session, what, word, you) in enumerate(facts):
        turns = [f for f in facts[i + 1 :] if f[1] == session and f[0] is not None]
        if who is None or what != "calls" or not turns:
            continue
        after, _, does, called_back, _ = turns[0]
        if after in PERSONS and after not in (who, word) and after.startswith(word):
            back = does == "calls" and who in PERSONS and who.startswith(called_back)
            shown.append((word, after, you or back))
    pairs = {each[:2] for each in shown if each[2] or [s[:2] for s in shown].count(each[:2]) > 1}
    groups = dict[str, set[str]]()
    for name, person in pairs:
        if sum(other == name for other, _ in pairs) > 1 or name in speakers:
            continue
        if any(p.startswith(name) for p in speakers - {person}):
            continue
        words = [word for *_, word, _ in facts]
        small = sum(word == f"the {name.lower()}" for word in words)
        if small >= sum(word == name for word in words):
            continue
        if any(w.startswith(name) and w not in (name, person) for w in words if " " not in w):
            continue
        groups.setdefault(person, {person}).add(name)
    return {frozenset(each.lower() for each in group) for group in groups.values()}


CHAT = [
    Atom("1", "Hey Mel! How is your pottery class?", speaker="Caroline", session="s"),
    Atom("2", "It is fun. I made a bowl.", speaker="Melanie", session="s"),
    Atom("3", "I told them that Melanie is good. I made a chair.", speaker="Caroline", session="s"),
]


def shared(memory: Memory, *names: str) -> bool:
    """Whether names are those of one concept."""
    found = memory.store.concepts(names)
    return len(found) == len(names) and len({*found.values()}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The ASR1603 chip", "The ASR1605 chip"),
        ("Chapter 3", "Chapter 4"),
        ("Formula 1", "Formula 2"),
        ("Nora Berg", "Nora Bergh"),
        ("Michael Jordan", "Michael B. Jordan"),
        ("GPT-3", "GPT-4"),
        ("Section 230", "Section 240"),
    ],
)
def test_names_a_digit_or_a_letter_apart(one: str, other: str) -> None:
    """To an encoder that takes all texts for the same."""

    class Blind(HashingEmbedder):
        def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
            return super().encode(["x" for _ in texts])

    with opened(config=CONFIG, embedder=Blind(32)) as memory:
        memory.add([Atom("a", f"{one} is stable."), Atom("b", f"{other} is stable.")])
        assert memory.store.aliases() == [] and memory.check() == []


def test_who_comes_later_parts_two_names_and_joins_them_again() -> None:
    with open_chat() as memory:
        for atom in CHAT:
            memory.add([atom])
        assert shared(memory, "mel", "melanie")
        memory.add(Atom("4", "My brother Melvin is here.", speaker="Caroline", session="t"))
        assert not shared(memory, "mel", "melanie")
        memory.forget("4")
        assert shared(memory, "mel", "melanie") and memory.check() == []
        memory.update("1", text="Hey you! How is your pottery class with Mel?")
        assert not shared(memory, "mel", "melanie")


def test_a_question_finds_who_is_called_so() -> None:
    with open_chat() as memory:
        memory.add(CHAT)
        signals = {h.id: h.signals["speaker"] for h in memory.retrieve("What did Mel make?").hits}
        assert signals["2"] > 0 > signals["1"]
        memory.facts.split_name("mel")
        assert not any(h.signals["speaker"] for h in memory.retrieve("What did Mel make?").hits)


def test_a_split_lasts(tmp_path: Path) -> None:
    with open_chat(tmp_path / "one") as memory, open_chat() as apart:
        memory.add(CHAT)
        assert memory.facts.split_name(" MEL ") and not memory.facts.split_name("mel")
        assert not shared(memory, "mel", "melanie") and memory.check() == []
        with pytest.raises(InputError, match="did you mean 'mel'"):
            memory.facts.split_name("Mell")
        memory.export(tmp_path / "file")
        apart.import_(tmp_path / "file")
        assert graph(apart) == graph(memory)
    with open_chat(tmp_path / "one") as memory:
        memory.add(Atom("4", "Thanks, Mel! It was Melanie.", speaker="Caroline", session="s"))
        assert not shared(memory, "mel", "melanie")
        memory.forget("4")
        assert not shared(memory, "mel", "melanie")
        memory.forget("1")
        assert "mel" not in memory.store.concepts(["mel"])
        with pytest.raises(InputError, match="did you mean 'melanie'"):
            memory.facts.join_name("mel")
        with pytest.raises(InputError, match="name one that a memory says"):
            memory.facts.join_name("zzyzx")
        memory.add([CHAT[0], Atom("5", "Fine.", speaker="Melanie", session="s")])
        assert shared(memory, "mel", "melanie")  # nothing is kept of a name that was forgotten
        assert memory.facts.split_name("Mel") and not shared(memory, "mel", "melanie")
        assert memory.facts.join_name("Mel") and not memory.facts.join_name("Mel")
        assert shared(memory, "mel", "melanie") and memory.check() == []


def test_what_is_forgotten_leaves_no_split_name(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with open_chat(folder) as memory:
        memory.add([Atom("a", "We saw The Quokka"), Atom("b", "They like Quokka here")])
        assert not shared(memory, "quokka", "the quokka")
        memory.add(Atom("d", "They like the Quokka here"))
        memory.add(Atom("c", "hello comet"))
        assert shared(memory, "quokka", "the quokka")
        memory.facts.split_name("quokka")
        assert not shared(memory, "quokka", "the quokka")
        kept = json.loads(memory.store.meta_get(SPLIT_NAMES) or "")
        (hash_,) = kept["hashes"]
        data = f"{kept['salt']}\nname\nquokka"
        assert kept["salt"] and hash_ == hashlib.sha256(data.encode()).hexdigest()
        receipt = memory.forget(["a", "b", "d"])
        assert memory.upkeep.check_receipt(receipt) == memory.check() == []
        memory.export(tmp_path / "file")
    files = [*folder.iterdir(), tmp_path / "file"]
    left = b"".join(f.read_bytes() for f in files).lower()
    assert b"quokka" not in left and hash_.encode() not in left


@pytest.mark.parametrize("way", ["delete", "forget"])
def test_splits_of_an_early_store_last_as_long_as_their_names(way: str) -> None:
    with open_chat() as memory:
        memory.add(CHAT)
        memory.facts.split_name("mel")
        hashes = [hashlib.sha256(f"name\n{name}".encode()).hexdigest() for name in ("mel", "zorb")]
        memory.store.meta_set(SPLIT_NAMES, json.dumps(hashes))
        with pytest.raises(InputError, match="name: expected a name"):
            memory.facts.split_name(None)  # type: ignore[arg-type]
        getattr(memory, way)(["3"])
        kept = json.loads(memory.store.meta_get(SPLIT_NAMES) or "")
        assert len(kept["hashes"]) == 1 and not shared(memory, "mel", "melanie")
        assert memory.facts.join_name("mel") and not memory.facts.join_name("mel")


FAR = [
    ("Hey Mel! Sit! Good dog.", "Your dog is a beauty.", "mel", "melanie"),
    ("I told my brother, great job Dan!", "Oh, did you?", "dan", "danielle"),
    ("Hello Paris! We landed.", "Nice.", "paris", "parisa"),
    ("Hey Jude, what a song by the Beatles!", "It is.", "jude", "judeline"),
    ("I am Melanie and nobody may call me Ellie.", "Fine.", "ellie", "melanie"),
    ("I'm German but friends call me Gerd.", "Fine.", "gerd", "german"),
    ("Max is short for Basketball.", "Fine.", "max", "basketball"),
    ("Kim was short for Cash last week.", "Fine.", "kim", "cash"),
    ("Tom thinks Lee is short for Leeland. He is wrong.", "Fine.", "lee", "leeland"),
    ("We met An Nguyen and Nguyen.", "Fine.", "an nguyen", "nguyen"),
    ("We saw The Edge and Edge.", "Fine.", "the edge", "edge"),
]
NEAR = [
    ("Hey Mel! How are you?", "Fine.", "mel", "melanie"),
    ("Hey Mel! It is late.", "Thanks for the news!", "mel", "melanie"),
    ("Hey Mel! It is late.", "Hey Caroline! It is.", "mel", "melanie"),
    ("Bob is short for Robert.", "Fine.", "bob", "robert"),
    (
        "Zed is short for Quentin.",
        "My friend Zed met Quentin. I told Quentin so.",
        "zed",
        "quentin",
    ),
    ("We saw The Edge and the Edge, and Edge.", "Fine.", "the edge", "edge"),
]


@pytest.mark.parametrize(
    ("first", "second", "one", "other", "same"),
    [*((*each, False) for each in FAR), *((*each, True) for each in NEAR)],
)
def test_two_turns_show_that_names_are_one(
    first: str, second: str, one: str, other: str, same: bool
) -> None:
    who = other.capitalize() if second and " " not in other else "Melanie"
    who = who if first.startswith(("He", "I told")) else "Ann"
    with open_chat() as memory:
        texts = [f"It was fun with {n.title()} at the lake." for n in (one, other)]
        memory.add([Atom(f"{i}", text) for i, text in enumerate(texts)])
        memory.add(Atom("x", first, speaker="Caroline", session="s"))
        memory.add(Atom("y", second, speaker=who, session="s"))
        assert shared(memory, one, other) == same and memory.check() == []


def test_two_who_write_to_one_store(tmp_path: Path) -> None:
    """Names that one joins and splits are those of the other, who has read the store before."""
    with open_chat(tmp_path) as one, open_chat(tmp_path) as two, open_chat() as fresh:
        one.add(Atom("0", "Mel and Melanie and Mel's bowl."))
        two.add(Atom("x", "hello comet"))
        one.add(CHAT)
        two.add(Atom("4", "It is Mel again.", speaker="Melanie", session="s"))
        assert shared(two, "mel", "melanie")
        one.facts.split_name("mel")
        two.add(Atom("5", "It is Mel, and it is Melanie.", session="s"))
        two.facts.join_name("mel")
        one.add(Atom("6", "Melanie it is, or Mel.", session="s"))
        stored = one.get(["0", "x", "1", "2", "3", "4", "5", "6"])
        fresh.add(stored)
        assert graph(one) == graph(two) == graph(fresh)
        assert one.check() == []


def test_names_that_an_older_release_joined_are_parted(tmp_path: Path) -> None:
    class Extractor(PatternConcepts):
        """Finds what it is told, as if an older release had found other names."""

        name = "own"

        def __init__(self, names: dict[str, list[str]]) -> None:
            self.names = names

        def extract(self, texts: Sequence[str]) -> list[list[str]]:
            return [self.names[text] for text in texts]

    atoms = [Atom("a", "Nora Berg sang", session="s"), Atom("b", "Nora Bergh sang", session="s")]
    both = Atom("c", "Nora Berg met Nora Bergh", session="s")
    told = {
        atoms[0].text: ["nora berg"],
        atoms[1].text: ["nora bergh"],
        both.text: ["nora berg", "nora bergh"],
        "late": [],
    }
    older = Extractor({text: ["nora berg"] for text in told} | {"late": []})
    config = config_of(**{"link.concepts": "auto", "link.min_similarity": 0.1})
    with opened(tmp_path, config=config, concepts=older) as memory:
        memory.add([*atoms, both])
        node = memory.store.concepts(["nora berg"])["nora berg"]
    with sqlite3.connect(tmp_path / "memory.sqlite") as connection:
        connection.execute("INSERT INTO alias (name, node) VALUES ('nora bergh', ?)", (node,))
    with (
        opened(tmp_path, config=config, concepts=Extractor(told)) as memory,
        opened(config=config, concepts=Extractor(told)) as fresh,
    ):
        assert memory.check() == [] and shared(memory, "nora berg", "nora bergh")
        memory.add(Atom("d", "late", session="s"))
        fresh.add([*atoms, both])
        fresh.add(Atom("d", "late", session="s"))
        assert memory.check() == [] and not shared(memory, "nora berg", "nora bergh")
        assert graph(memory) == graph(fresh)
