"""Propositions: the subject of a sentence, and what it says about it.

`judge.statements` reads them from texts and `judge.contradiction` compares them.
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
"""Names of days and months, and words for times of day."""


@dataclass(frozen=True, slots=True)
class StatedChange:
    """Change that a sentence states.

    Attributes:
        kind: `moved`, `became` (one value replaced another), `renamed`, or `gone` (no longer had,
            used or held).
        of: Possible subjects.
        new: Words of the new value.
        old: Words of the old value; empty if not stated.
    """

    kind: Literal["moved", "became", "renamed", "gone"]
    of: tuple[frozenset[str], ...]
    new: tuple[str, ...]
    old: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposition:
    """Clause that its speaker states.

    Attributes:
        subject: Words of the subject with its modifiers, without articles; the speaker is given by
            name.
        named: Whether the subject is a person or a thing with a name.
        predicate: Lemma of the verb.
        words: Words that go with it, in order: lemmas, numbers as digits, without articles.
        tense: Time of validity; `ended`: it held and no longer does ("used to", "no longer").
        denied: Whether it is denied.
        explicit: Whether it says that it no longer holds ("no longer", "not any more").
        hedged: Whether a number in it is approximate.
        added: Whether it is stated besides others ("also", "another").
        change: Change that it states.
        proper: Words of it that are names.
        clausal: Whether its words include a clause.
        implied: Whether a noun phrase or a pronoun implies it ("my car", "he"). An implied
            proposition ends nothing, and is not ended.
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
        """Return its words for times."""
        return frozenset(word for word in self.words if is_time(word))


def is_time(word: str) -> bool:
    """Return whether a word is about time: a day, a month, a clock time, a season, "before"."""
    return word in CALENDAR or word in say.TIMES or ":" in word


def is_number(word: str) -> bool:
    """Return whether a word is a number in the form of `Proposition.words`."""
    return word.lstrip("-+$\u20ac\u00a3")[:1].isdigit()
