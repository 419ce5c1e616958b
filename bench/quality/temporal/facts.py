"""Made-up facts that change, told in varied wording among small talk, with their true history.

Everything is drawn from a seed: people, products and projects, each with slots (where somebody
lives, what something costs) whose value changes a few times. A change is told on the same day or
days later, by the subject or by somebody else, with or without the previous value.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphmem_torch.atoms import Atom

from .wording import (
    CITIES,
    CODES,
    FIRMS,
    FIRST,
    HELD_OUT,
    LAST,
    MAKES,
    PEOPLE,
    PRODUCT,
    PROJECT,
    TALK,
    THINGS,
    Slot,
)

__all__ = ["BEGIN", "DAY", "END", "Fact", "Question", "Version", "evolving_facts"]

DAY = 86400.0
BEGIN = 1672531200.0
"""2023-01-01, UTC."""
END = BEGIN + 730 * DAY

_TELLER = "Robin"
_LATE = 0.25  # share of changes that are told days later
_LATEST = 10  # maximum days of delay
_LEAST = 20  # minimum days that a value is true
_AGAIN = 0.1  # share of values that were true before
_SLOTS_OF_ONE = 5  # changing slots of one person
_PRODUCTS, _PROJECTS = 0.1, 0.06  # share of the facts


@dataclass(frozen=True)
class Version:
    """Value of a fact.

    Attributes:
        value: Wording of the value.
        begun: Start of its validity, seconds since the epoch, UTC.
        told: Time of the statement.
        id: Id of the atom that states it.
        again: Ids of atoms that repeat it before the next value begins.
    """

    value: str
    begun: float
    told: float
    id: str
    again: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all atoms that state it."""
        return (self.id, *self.again)


@dataclass(frozen=True)
class Question:
    """Question about a fact.

    Attributes:
        fact: Number of the fact.
        text: Wording.
        answer: Requested value if the question itself determines it; None for the value of the
            moment.
    """

    fact: int
    text: str
    answer: str | None = None


@dataclass(frozen=True)
class Fact:
    """Slot of a subject, with its values in order of time.

    Attributes:
        subject: Subject of the slot.
        slot: Name of the slot.
        versions: Values.
    """

    subject: str
    slot: str
    versions: tuple[Version, ...]

    def true_at(self, when: float) -> str | None:
        """Return the value that was true at a moment; None before the first."""
        return self._last([version.begun for version in self.versions], when)

    def known_at(self, when: float) -> str | None:
        """Return the last value that had been told at a moment."""
        return self._last([version.told for version in self.versions], when)

    def _last(self, times: Sequence[float], when: float) -> str | None:
        place = bisect_right(times, when)
        return self.versions[place - 1].value if place else None


def evolving_facts(
    count: int,
    versions: int | Sequence[int],
    distractors: int,
    *,
    seed: int,
    mentions: int = 1,
    held_out: bool = False,
) -> tuple[list[Fact], list[Atom], list[Question], list[Question]]:
    """Return facts, all turns in the order of telling, and a question on each fact.

    Args:
        count: Number of facts.
        versions: Number of values of each; one of several numbers is drawn for each.
        distractors: Number of unrelated turns in the same wording.
        seed: Seed of all random draws.
        mentions: Maximum mentions of a value; the number is drawn.
        held_out: Whether to use the held-out wording, `wording.HELD_OUT`.

    Returns:
        Facts; atoms with ids `f<fact>v<version>`, `f<fact>v<version>m<time>` for repetitions, and
        `d<number>`; a question on the value of a moment for each fact; and one on the value before
        another, if only one value was before it.
    """
    dice = random.Random(seed)
    told: list[Atom] = []
    facts: list[Fact] = []
    now: list[Question] = []
    past: list[Question] = []
    for subject, name, slot in _subjects(count, dice):
        others, own = HELD_OUT[name] if held_out else (slot.others, slot.own)
        forms = [(form, _TELLER) for form in others] + [(form, subject) for form in own]
        number = len(facts)
        changes = versions if isinstance(versions, int) else dice.choice(versions)
        values = _values(slot, name, changes, dice)
        days = _days(changes, dice)
        made: list[Version] = []
        for i, (value, day) in enumerate(zip(values, days, strict=True)):
            begun = BEGIN + day * DAY + dice.randrange(int(DAY))
            late = dice.randrange(1, _LATEST) * DAY if dice.random() < _LATE else 0.0
            version = Version(value, begun, begun + late, f"f{number}v{i}")
            before = values[i - 1] if i else None
            told.append(_told(forms, subject, before, version, (version.id, version.told), dice))
            made.append(version)
        if mentions > 1:
            ends = [*(version.begun for version in made[1:]), END]
            for i, (version, until) in enumerate(zip(made, ends, strict=True)):
                more = range(1, dice.randrange(1, mentions + 1))
                made[i] = replace(version, again=tuple(f"{version.id}m{k}" for k in more))
                before = values[i - 1] if i else None
                for each in made[i].again:
                    when = dice.uniform(version.told, until)
                    told.append(_told(forms, subject, before, version, (each, when), dice))
        facts.append(Fact(subject, name, tuple(made)))
        now.append(Question(number, dice.choice(slot.asked).format(who=subject)))
        sure = [i for i in range(1, changes) if values.count(values[i]) == 1]
        if sure:
            i = dice.choice(sure)
            text = dice.choice(slot.before).format(who=subject, v=values[i])
            past.append(Question(number, text, values[i - 1]))
    people = sorted({fact.subject for fact in facts if fact.slot in PEOPLE})
    told += [_talk(f"d{i}", dice.choice(people), dice) for i in range(distractors)]
    told.sort(key=lambda atom: (atom.time, atom.id))
    return facts, [_seated(atom) for atom in told], now, past


def _subjects(count: int, dice: random.Random) -> list[tuple[str, str, Slot]]:
    """Return the subjects: subject, name of the slot, and the slot."""
    products = [f"{make} {thing}" for make in MAKES for thing in THINGS]
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    codes = list(CODES)
    for each in (products, names, codes):
        dice.shuffle(each)
    found = [(name, "price", PRODUCT) for name in products[: round(count * _PRODUCTS)]]
    found += [(name, "progress", PROJECT) for name in codes[: round(count * _PROJECTS)]]
    for name in names:
        for slot in dice.sample(sorted(PEOPLE), _SLOTS_OF_ONE):
            if len(found) < count:
                found.append((name, slot, PEOPLE[slot]))
    if len(found) < count:
        raise ValueError(f"count: expected at most {len(found)} facts, got {count}; ask for fewer")
    return found


def _values(slot: Slot, name: str, count: int, dice: random.Random) -> list[str]:
    """Return values, no two consecutive ones equal."""
    found: list[str] = []
    while len(found) < count:
        if len(found) > 1 and dice.random() < _AGAIN:
            value = dice.choice(found[:-1])
        elif slot.values:
            value = dice.choice([each for each in slot.values if each not in found[-4:]])
        elif name == "phone":
            value = f"0{dice.randrange(20, 99)} {dice.randrange(100_000, 999_999)}"
        else:
            value = f"{dice.randrange(12, 400)} euros"
        if not found or value != found[-1]:
            found.append(value)
    return found


def _days(count: int, dice: random.Random) -> list[int]:
    """Return days within two years, none too near another."""
    room = 700 - _LEAST * (count - 1)
    return [day + _LEAST * i for i, day in enumerate(sorted(dice.choices(range(room), k=count)))]


def _told(
    forms: Sequence[tuple[str, str]],
    subject: str,
    before: str | None,
    version: Version,
    said: tuple[str, float],  # id, time
    dice: random.Random,
) -> Atom:
    form, speaker = dice.choice([each for each in forms if before or "{old}" not in each[0]])
    text = form.format(who=subject, v=version.value, old=before)
    return Atom(
        said[0],
        text[0].upper() + text[1:],
        speaker=speaker,
        time=said[1],
        event_time=version.begun,
    )


def _talk(name: str, subject: str, dice: random.Random) -> Atom:
    text = dice.choice(TALK).format(
        who=subject,
        city=dice.choice(CITIES),
        firm=dice.choice(FIRMS),
        **{part: dice.choice(PEOPLE[part].values) for part in ("car", "drink", "hobby", "room")},
        manager=dice.choice(PEOPLE["manager"].values),
    )
    return Atom(name, text, speaker=_TELLER, time=BEGIN + dice.random() * (END - BEGIN))


def _seated(atom: Atom) -> Atom:
    """Return the atom in the session of its week."""
    assert atom.time is not None
    week = int((atom.time - BEGIN) // (7 * DAY))
    return Atom(
        atom.id,
        atom.text,
        speaker=atom.speaker,
        session=f"week {week}",
        time=atom.time,
        event_time=atom.event_time,
    )
