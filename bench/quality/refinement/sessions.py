"""Simulate a life of many sessions: turns about changing facts, and questions with their gold."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphmem_torch.atoms import Atom

from ..temporal.facts import Fact, evolving_facts

__all__ = ["Asked", "Life", "Told", "lived"]

_TURNS = 1.2  # turns of a session
_SHARE = 0.5  # share of turns without a fact
_VERSIONS, _MENTIONS = (1, 2, 5), 3
_TELLING = sum(_VERSIONS) / len(_VERSIONS) * (1 + _MENTIONS) / 2  # turns of a fact
_ASKS = 0.5  # share of the sessions with a question
_FAME = 0.8  # exponent of Zipf's law for the popularity of facts


@dataclass(frozen=True)
class Asked:
    """Question about a fact.

    Attributes:
        text: Wording.
        gold: Ids of earlier turns with the value known last.
    """

    text: str
    gold: frozenset[str]


@dataclass(frozen=True)
class Told:
    """Turns and questions of some sessions.

    Attributes:
        session: Number of the last session.
        now: Time of the last turn, seconds since the epoch, UTC.
        atoms: Turns, in order.
        superseded: Pairs of ids: an older turn, and the one with the value that replaced its own.
        asked: Questions at their end.
    """

    session: int
    now: float
    atoms: tuple[Atom, ...]
    superseded: tuple[tuple[str, str], ...]
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Life:
    """Facts in turns with small talk, divided into sessions.

    Attributes:
        facts: Facts, each with a few successive values.
        questions: Wording of the question on each.
        atoms: Turns, in order.
        sessions: Number of equal sessions.
        seed: Seed of the times of questions.
    """

    facts: tuple[Fact, ...]
    questions: tuple[str, ...]
    atoms: tuple[Atom, ...]
    sessions: int
    seed: int

    def blocks(self, size: int) -> Iterator[Told]:
        """Yield turns and questions of `size` sessions at a time.

        Facts are asked for after their first turn, by popularity.
        """
        dice = random.Random(self.seed)
        fame = [1 / rank**_FAME for rank in range(1, len(self.facts) + 1)]
        dice.shuffle(fame)
        begins = sorted((fact.versions[0].told, i) for i, fact in enumerate(self.facts))
        new = {
            version.id: [(old, version.id) for old in before.ids]
            for fact in self.facts
            for before, version in zip(fact.versions, fact.versions[1:], strict=False)
        }
        start, there = 0, set[str]()
        for first in range(0, self.sessions, size):
            last = min(first + size, self.sessions)
            stop = last * len(self.atoms) // self.sessions
            atoms, start = self.atoms[start:stop], stop
            if not atoms:
                continue
            now = atoms[-1].time or 0.0
            there |= {atom.id for atom in atoms}
            known = [i for _, i in begins[: bisect_left(begins, (now, len(self.facts)))]]
            count = sum(dice.random() < _ASKS for _ in range(first, last)) if known else 0
            drawn = dice.choices(known, [fame[i] for i in known], k=count) if known else []
            yield Told(
                last,
                now,
                atoms,
                tuple(pair for atom in atoms for pair in new.get(atom.id, ())),
                tuple(self.asked(i, now, there) for i in drawn),
            )

    def asked(self, fact: int, now: float, there: set[str]) -> Asked:
        """Return the question about a fact at a time, given the turns before it."""
        value = self.facts[fact].known_at(now)
        told = [version for version in self.facts[fact].versions if version.told <= now]
        gold = {name for v in told if v.value == value for name in v.ids if name in there}
        return Asked(self.questions[fact], frozenset(gold))


def lived(sessions: int, *, seed: int) -> Life:
    """Return a life of so many sessions; half of the turns are small talk."""
    turns = round(_TURNS * sessions)
    count = max(1, round(turns * (1 - _SHARE) / _TELLING))
    talk = round(turns * _SHARE)
    facts, atoms, now, _ = evolving_facts(count, _VERSIONS, talk, seed=seed, mentions=_MENTIONS)
    seated = (
        replace(atom, session=f"session {i * sessions // len(atoms)}")
        for i, atom in enumerate(atoms)
    )
    return Life(tuple(facts), tuple(q.text for q in now), tuple(seated), sessions, seed)
