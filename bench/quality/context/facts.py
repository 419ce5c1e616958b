"""Made-up facts: needles to hide in other text, and chains of two facts that a question joins."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["LAUNCH_CODE", "LITERAL", "PARAPHRASED", "Chain", "Needle", "make_chains"]


@dataclass(frozen=True, slots=True)
class Needle:
    """Sentence unrelated to the rest of a text, with the question that it answers."""

    text: str
    question: str


LAUNCH_CODE = Needle("The launch code is 9988.", "What is the launch code?")
"""Needle of ContextOS's experiment 1."""

LITERAL: tuple[Needle, ...] = (
    LAUNCH_CODE,
    Needle(
        "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a "
        "sunny day.",
        "What is the best thing to do in San Francisco?",
    ),
    Needle(
        "The spare key of the lighthouse hangs behind the blue barometer.",
        "Where does the spare key of the lighthouse hang?",
    ),
    Needle(
        "Captain Ilse Brandt lost her compass in the harbour of Bergen in 1911.",
        "Where did Captain Ilse Brandt lose her compass?",
    ),
    Needle(
        "The secret ingredient of Odile's onion soup is a spoonful of smoked honey.",
        "What is the secret ingredient of Odile's onion soup?",
    ),
    Needle(
        "The inspection of the Halvorsen bridge was moved to Thursday at half past four.",
        "When is the inspection of the Halvorsen bridge?",
    ),
    Needle(
        "The red bell on Marta's bicycle was brought from Utrecht by her uncle.",
        "Who brought the red bell on Marta's bicycle?",
    ),
    Needle(
        "The password of the observatory's night log is marigold-lantern.",
        "What is the password of the observatory's night log?",
    ),
    Needle(
        "The museum of Kestrel Bay keeps its only meteorite in drawer seventeen.",
        "In which drawer does the museum of Kestrel Bay keep its meteorite?",
    ),
    Needle(
        "Doctor Amara Nwosu is allergic to walnuts and to penicillin.",
        "What is Doctor Amara Nwosu allergic to?",
    ),
    Needle(
        "The orchestra of Lisse tunes to an oboe that Benedikt Falk made in 1783.",
        "Who made the oboe that the orchestra of Lisse tunes to?",
    ),
)
"""Needles whose question uses their own words."""

PARAPHRASED: tuple[Needle, ...] = (
    Needle(
        "The cat's vaccination booklet lies in the piano stool.",
        "Where are the medical papers of the pet?",
    ),
    Needle(
        "Our landlord raises the rent every second January.",
        "How often does living in the flat become more expensive?",
    ),
    Needle(
        "The baker on Elm Lane shuts his shop on Mondays.",
        "On which day can one not buy bread there?",
    ),
    Needle(
        "Grandfather rowed across the lake to school until he was twelve.",
        "By what means did the old man travel to his lessons as a child?",
    ),
    Needle(
        "The ferry to the island sails only when the wind is below six knots.",
        "Under which weather does the boat run?",
    ),
    Needle(
        "A fox stole two of the hens on Easter night.",
        "Which animal took the poultry?",
    ),
    Needle(
        "The choir rehearses in the cellar of the fire station.",
        "Where do the singers practise?",
    ),
    Needle(
        "Lena gave up coffee after her operation.",
        "Which drink does the patient no longer have?",
    ),
    Needle(
        "The violin was pawned to pay for the funeral.",
        "Why was the instrument given away for money?",
    ),
    Needle(
        "The vineyard was planted by monks nine hundred years ago.",
        "Who began to grow grapes there?",
    ),
    Needle(
        "The twins' birthday cake was decorated with marzipan dragons.",
        "What was on the dessert at the children's party?",
    ),
)
"""Needles whose question uses other words."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Two facts, and a question that names only the subject of the first."""

    first: str
    second: str
    question: str


_PATTERNS = (
    (
        "Project {a} is written in {b}.",
        "{b} is a language that guarantees {c}.",
        "What does the language of Project {a} guarantee?",
        ("memory safety", "thread safety", "fixed latency", "exact arithmetic", "small binaries"),
    ),
    (
        "{a} works for {b}.",
        "The head office of {b} is in {c}.",
        "In which city is the head office of {a}'s employer?",
        ("Lisbon", "Osaka", "Tallinn", "Quito", "Dakar", "Perth", "Turin", "Hanoi"),
    ),
    (
        "The ship {a} was built by {b}.",
        "{b} was founded in the year {c}.",
        "In which year was the builder of the ship {a} founded?",
        ("1702", "1788", "1811", "1834", "1859", "1871", "1893", "1907"),
    ),
    (
        "The novel {a} was written by {b}.",
        "{b} was born in {c}.",
        "Where was the author of the novel {a} born?",
        ("Bruges", "Riga", "Porto", "Graz", "Cork", "Malmo", "Split", "Ghent"),
    ),
    (
        "The outage of {a} was caused by {b}.",
        "{b} is repaired by {c}.",
        "How can the cause of the outage of {a} be repaired?",
        ("a restart", "a new certificate", "a larger disk", "an older driver", "a longer timeout"),
    ),
)
"""First fact, second fact, question and answer; after "Project Apollo -> Memory Safety"."""

_STARTS = ("Bal", "Cor", "Dru", "Fen", "Gal", "Hes", "Kor", "Lum", "Mar", "Nor", "Pel", "Quil")
_MIDDLES = ("a", "e", "i", "o", "u", "an", "el", "ir", "or", "un")
_ENDS = ("bek", "dane", "fax", "gard", "lis", "mont", "nix", "rath", "sil", "tor", "vane", "wick")


def make_chains(count: int, seed: int) -> list[Chain]:
    """Return chains with distinct names; the patterns take turns."""
    chance = random.Random(seed)
    names = [start + middle + end for start in _STARTS for middle in _MIDDLES for end in _ENDS]
    chance.shuffle(names)
    chains = []
    for i in range(count):
        first, second, question, told = _PATTERNS[i % len(_PATTERNS)]
        fields = {"a": names[2 * i], "b": names[2 * i + 1], "c": chance.choice(told)}
        chains.append(
            Chain(first.format(**fields), second.format(**fields), question.format(**fields))
        )
    return chains
