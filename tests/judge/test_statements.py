"""Statements of texts: subject, predicate, and truth."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphmem_torch.judge.propositions import Proposition
from graphmem_torch.judge.statements import read_statements, split_speaker


def stated(text: str) -> tuple[Proposition, ...]:
    return read_statements([text])[0].propositions


@pytest.mark.parametrize(
    ("text", "subject", "predicate", "words"),
    [
        ("Kim: I live in Oslo.", {"kim"}, "live", ("in", "oslo")),
        ("user: We've got two kids.", {"user"}, "have", ("2", "child")),
        ("assistant: You live in Oslo.", {"user"}, "live", ("in", "oslo")),
        ("The door is locked.", {"door"}, "be", ("locked",)),
        ("The temperature is -5 degrees.", {"temperature"}, "be", ("-5", "degree")),
        ("Cleo lives in Turin.", {"cleo"}, "live", ("in", "turin")),
        ("The nightly job emails a report.", {"nightly", "job"}, "email", ("report",)),
        ("The stand-up meets on Friday.", {"stand-up"}, "meet", ("on", "friday")),
        ("The rate rose to 83 euros.", {"rate"}, "be", ("83", "euro")),
        ("The lift works fine.", {"lift"}, "be", ("working",)),
        ("Use 8080 as the proxy port.", {"proxy", "port"}, "be", ("8080",)),
        ("By the way, my office is in Oslo.", {"i", "office"}, "be", ("in", "oslo")),
        ("Kim: Good news: I work as a driver.", {"kim"}, "work", ("as", "driver")),
        ("Kim: I go running with Tilda.", {"kim"}, "run", ("with", "tilda")),
        ("Gregor signs it, he is the head of sales.", {"gregor"}, "be", ("head", "of", "sale")),
    ],
)
def test_a_clause_is_of_somebody(
    text: str, subject: set[str], predicate: str, words: tuple[str, ...]
) -> None:
    found = {(said.subject, said.predicate, said.words) for said in stated(text)}
    assert (frozenset(subject), predicate, words) in found


@pytest.mark.parametrize(
    ("text", "predicate", "words"),
    [
        ("Kim: Our flat here in Bremen is noisy.", "live", ("in", "bremen")),
        ("Kim: My job at Initech keeps me busy.", "work", ("at", "initech")),
        ("Kim: My three children swim.", "have", ("3", "child")),
        ("Kim: I wash my car.", "have", ("car",)),
        ("Kim: My employer Bosch pays well.", "be", ("bosch",)),
    ],
)
def test_a_noun_phrase_implies(text: str, predicate: str, words: tuple[str, ...]) -> None:
    implied = {(said.predicate, said.words) for said in stated(text) if said.implied}
    assert (predicate, words) in implied


@pytest.mark.parametrize(
    ("text", "tense", "denied", "explicit"),
    [
        ("Kim smokes.", "present", False, False),
        ("Kim never smokes.", "present", True, False),
        ("Kim smoked.", "past", False, False),
        ("Kim used to smoke.", "ended", False, False),
        ("Kim no longer smokes.", "ended", False, True),
        ("Kim doesn't smoke anymore.", "ended", False, True),
        ("Kim has stopped smoking.", "ended", False, True),
        ("Kim gave up learning Rust.", "ended", False, True),
    ],
)
def test_when_it_holds(text: str, tense: str, denied: bool, explicit: bool) -> None:
    (said,) = stated(text)
    assert (said.tense, said.denied, said.explicit) == (tense, denied, explicit)


@pytest.mark.parametrize(
    "text",
    [
        "Is the door locked?",
        "is the door locked",
        "If it rains, the match is cancelled.",
        "Unless it rains we go hiking.",
        "I would buy the car.",
        "Maybe the door is locked.",
        "Kim says: The door is locked.",
        "In the story: The door is locked.",
        '"The door is locked."',
        "He lives in Oslo.",
        "This is broken.",
        "Suppose the door is locked.",
        "Das Haus ist groß und der Garten ist klein.",
        "La puerta está cerrada y la casa es grande.",
        "",
        " \n\t",
        "\x00\x01\x02",
        "👍🎉👍",
        "...!!!???",
        "a" * 5000,
        "The door is locked. " * 200,
    ],
)
def test_what_states_nothing(text: str) -> None:
    assert not stated(text)


@pytest.mark.parametrize(
    ("text", "kind", "old", "new"),
    [
        ("Kim: I moved from Oslo to Rome.", "moved", ("oslo",), ("rome",)),
        ("The port was changed from 1 to 2.", "became", ("1",), ("2",)),
        ('We renamed the tool from "shovel" to "trowel".', "renamed", ("shovel",), ("trowel",)),
        ("We replaced Jenkins with Buildkite.", "became", ("jenkins",), ("buildkite",)),
        ("Kim traded the Tesla in for a Volvo.", "became", ("tesla",), ("volvo",)),
        ("Ana took over the data group from Ben.", "became", ("ben",), ("ana",)),
        ("I sold the red car.", "gone", ("red", "car"), ()),
        ("Sold the red car.", "gone", ("red", "car"), ()),
    ],
)
def test_a_change(text: str, kind: str, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    (change,) = [said.change for said in stated(text) if said.change is not None]
    assert (change.kind, change.old, change.new) == (kind, old, new)


def test_a_speaker_is_no_label() -> None:
    assert split_speaker("Kim: I am here.") == ("Kim", "I am here.")
    assert split_speaker("Kim says: I am here.") == (None, "Kim says: I am here.")
    assert split_speaker("no speaker") == (None, "no speaker")


def test_each_text_alone_is_as_among_others() -> None:
    texts = [f"Kim: I have {i} {thing}." for i in range(40) for thing in ("cats", "dogs")]
    together = read_statements(texts)
    assert together == [read_statements([text])[0] for text in reversed(texts)][::-1]
    assert read_statements([]) == []


def test_threads_read_as_one_thread_does() -> None:
    texts = [f"Kim: I own {i} boats and {i + 1} cars in Oslo." for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda text: read_statements([text])[0], [*texts, *texts]))
    assert read == [*read_statements(texts), *read_statements(texts)]


def test_without_a_parser_a_warning_and_no_flags() -> None:
    code = """
import logging, sys
sys.modules["spacy"] = None
logging.basicConfig(level=logging.WARNING)
from graphmem_torch import Memory
from graphmem_torch.config import load_config
config = load_config("default", {"link.concepts": "pattern"})
with Memory.open(None, config=config, embedder="hashing") as memory:
    memory.add(["The port is 8080.", "The port is 9090."])
    done = memory.facts.reconcile()
    assert not memory.facts.conflicts() and done.superseded == 0
    assert memory.retrieve("port").hits
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("contradictions are not detected without a parser") == 1
