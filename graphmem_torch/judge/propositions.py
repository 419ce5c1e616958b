"""Propositions: who or what a sentence is about, and what it says of it.

They are read from texts in `judge.statements` and compared in `judge.contradiction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.text.times import MONTHS

__all__ = ["CALENDAR", "Proposition", "StatedChange", "Tense", "is_number", "is_time"]

Tense = Literal["present", "past", "ended"]

_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
CALENDAR = frozenset([*_DAYS, *MONTHS, "am", "pm", "noon", "midnight"])
"""Names of days and months, and words for times of a day."""


@dataclass(frozen=True, slots=True)
class StatedChange:
    """Change that a sentence states.

    Attributes:
        kind: `moved`, `became` (a value took the place of another), `renamed`, or `gone` (what was
            had, used or held is so no more).
        of: Subjects it may be said of.
        new: Words of the new value.
        old: Words of the old value; empty if it is not said.
    """

    kind: Literal["moved", "became", "renamed", "gone"]
    of: tuple[frozenset[str], ...]
    new: tuple[str, ...]
    old: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposition:
    """A clause that its speaker states.

    Attributes:
        subject: Words of the subject with its modifiers, without articles; whoever speaks is the
            name of the speaker.
        named: Whether the subject is a person or a thing with a name.
        predicate: Lemma of the verb.
        words: Words that go with it, in order: lemmas, numbers as digits, without articles.
        tense: When it holds; `ended`: it did once, and no longer does ("used to", "no longer").
        denied: Whether it is denied.
        explicit: Whether it says that it no longer is so ("no longer", "not any more").
        hedged: Whether a number in it is about right only.
        added: Whether it is said to be so beside others ("also", "another").
        change: Change that it states.
        proper: Words of it that are names.
        clausal: Whether a clause of its own is among its words.
        implied: Whether a noun phrase or a pronoun implies it ("my car", "he"): what is implied
            ends nothing, and is not ended.
        definite: Whether the value is the only one ("the captain of the team").
    """

    subject: frozenset[str]
    named: bool
    predicate: str
    words: tuple[str, ...]
    tense: Tense
    denied: bool = False
    explicit: bool = False
    hedged: bool = False
    added: bool = False
    change: StatedChange | None = None
    proper: frozenset[str] = frozenset()
    clausal: bool = False
    implied: bool = False
    definite: bool = False

    @property
    def times(self) -> frozenset[str]:
        """Its words that say when."""
        return frozenset(word for word in self.words if is_time(word))


def is_time(word: str) -> bool:
    """Whether a word says when: a day, a month, a clock time, a season, "before"."""
    return word in CALENDAR or word in say.TIMES or ":" in word


def is_number(word: str) -> bool:
    """Whether a word is a number, as `Proposition.words` has it."""
    return word.lstrip("-+$\u20ac\u00a3")[:1].isdigit()
