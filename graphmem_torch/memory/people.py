"""Which names are of one person, as the memories show it (`docs/mathematics.md` 4.1).

A turn that addresses somebody in a session shows that the name is that of the only other speaker
whose name it may be short for; a text may also say so. Nothing is assumed where a name may be that
of two. What comes out depends on the memories alone, not on the order in which they came.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.text.naming import Naming, may_be_short_for, namings, plain_name, word_uses
from graphmem_torch.text.question import role_of
from graphmem_torch.text.terms import GENERIC

__all__ = ["People"]

_START = 2  # letters by which words are found: no name is short for another with fewer

_Pair = tuple[str, str]  # a name, and the name that it stands for


@dataclass(eq=False)
class _Session:
    """Who speaks in a session, and how they address each other.

    Attributes:
        speakers: Turns by name.
        addresses: Turns by speaker and the name that they call.
    """

    speakers: Counter[str] = field(default_factory=Counter)
    addresses: Counter[tuple[str, str]] = field(default_factory=Counter)

    def shown(self) -> tuple[set[_Pair], set[_Pair]]:
        """Names with the one speaker that each may be short for, and with the only listener."""
        fitting, only = set[_Pair](), set[_Pair]()
        for speaker, name in self.addresses:
            others = [other for other in self.speakers if other != speaker]
            fits = [other for other in others if _alike(name, other)]
            fitting |= {(name, other) for other in fits if len(fits) == 1}
            only |= {(name, other) for other in others if len(others) == 1 and other != name}
        return fitting, only


class People:
    """The names of persons in a memory, followed as memories come and go."""

    def __init__(self) -> None:
        """Knows nobody."""
        self._sessions = defaultdict[str | None, _Session](_Session)
        self._speakers = Counter[str]()
        self._fitting, self._only = Counter[_Pair](), Counter[_Pair]()  # by sessions
        self._stated, self._claimed = Counter[_Pair](), Counter[_Pair]()  # by texts
        # By the first letters, uses of words; None: not counted yet, as no name is addressed.
        self._uses: dict[str, dict[str, Counter[str]]] | None = None
        self._rivals: dict[_Pair, bool] = {}  # whether somebody else may be called so
        self._mates: dict[str, frozenset[str]] = {}
        self._settled = True

    def mates(self, name: str) -> frozenset[str]:
        """The other names of the person of a name, as of the last `settle`."""
        return self._mates.get(name, frozenset())

    @property
    def names(self) -> Iterable[str]:
        """The names that have `mates`."""
        return self._mates.keys()

    def add(self, atoms: Iterable[Atom]) -> None:
        """Count memories in; concepts show nothing."""
        self._count(atoms, 1)

    def drop(self, atoms: Iterable[Atom]) -> None:
        """Count memories out that were counted in."""
        self._count(atoms, -1)

    def settle(self, texts: Callable[[], Iterable[str]]) -> set[str]:
        """Decide anew, and return the names whose `mates` have changed.

        Args:
            texts: Function that gives the texts of all memories that are counted in.
        """
        if self._settled:
            return set()
        if self._uses is None and self._fitting:
            self._uses = {}
            for text in texts():
                self._count_words(text, 1)
        before, self._mates = self._mates, _groups(self._pairs())
        self._settled = True
        names = before.keys() | self._mates.keys()
        return {name for name in names if before.get(name) != self._mates.get(name)}

    def _count(self, atoms: Iterable[Atom], step: int) -> None:
        for atom in atoms:
            if atom.kind == CONCEPT:
                continue
            speaker = plain_name(atom.speaker or "")
            found = namings(atom.text, spoken=bool(speaker))
            named = speaker if speaker and not role_of(speaker) else ""
            for each in found:
                self._count_naming(each, named, step)
            if speaker:
                calls = [each.name for each in found if each.way == "address"]
                self._count_turn(atom.session, speaker, named, calls, step)
            if self._uses is not None:
                self._count_words(atom.text, step)

    def _count_naming(self, said: Naming, speaker: str, step: int) -> None:
        if said.way == "stated":
            self._add(self._stated, (said.name, said.full), step)
        elif said.way == "claim" and (full := said.full or speaker) not in ("", said.name):
            sure = said.full or _alike(said.name, full)
            self._add(self._stated if sure else self._claimed, (said.name, full), step)

    def _count_turn(
        self, session: str | None, speaker: str, named: str, calls: list[str], step: int
    ) -> None:
        own = self._sessions[session]
        before = own.shown() if calls or named not in own.speakers or step < 0 else None
        if named:
            _step(own.speakers, named, step)
            self._add(self._speakers, named, step)
        for name in calls:
            _step(own.addresses, (speaker, name), step)
        if before is not None:
            after = own.shown()
            for counter, old, new in zip((self._fitting, self._only), before, after, strict=True):
                for pair in old ^ new:
                    self._add(counter, pair, 1 if pair in new else -1)
        if not own.speakers and not own.addresses:
            del self._sessions[session]

    def _count_words(self, text: str, step: int) -> None:
        assert self._uses is not None
        starts = {pair[0][:_START] for pair in self._rivals}
        for word, use in word_uses(text):
            uses = self._uses.setdefault(word[:_START], {}).setdefault(word, Counter())
            _step(uses, use, step)
            if word[:_START] in starts:
                self._rivals = {p: r for p, r in self._rivals.items() if p[0][:_START] != word[:2]}
                self._settled = False

    def _add(self, counter: Counter[str] | Counter[_Pair], key: str | _Pair, step: int) -> None:
        there = key in counter
        _step(counter, key, step)
        if there != (key in counter):
            self._settled, self._rivals = False, {}

    def _pairs(self) -> list[_Pair]:
        """Names that are of one person."""
        claimed = {pair for pair in self._claimed if pair in self._only or pair in self._fitting}
        stated = self._stated.keys() | claimed
        every = stated | self._fitting.keys()
        full = Counter(name for name, _ in every)
        return [pair for pair in every if full[pair[0]] == 1 and self._holds(pair, pair in stated)]

    def _holds(self, pair: _Pair, stated: bool) -> bool:
        """Whether nobody else may be meant by a name."""
        if pair[0] in self._speakers and pair[1] in self._speakers:
            return False
        short = pair[0] if may_be_short_for(pair[0], pair[1]) else min(pair, key=len)
        if any(may_be_short_for(short, other) for other in self._speakers if other not in pair):
            return False
        if stated:
            return True
        if pair not in self._rivals:
            self._rivals[pair] = self._has_rivals(pair, short)
        return not self._rivals[pair]

    def _has_rivals(self, pair: _Pair, short: str) -> bool:
        """Whether texts use the name as a word, or name others that it may be short for."""
        assert self._uses is not None
        words = self._uses.get(short[:_START], {})
        own = words.get(pair[0], Counter())
        if own["lower"] >= own["name"] + own["first"]:
            return True
        known = {part for name in pair for part in name.split()}
        for word, uses in words.items():
            if word in known or not may_be_short_for(short, word) or uses["place"]:
                continue
            if (word, pair[1]) in self._fitting:
                continue  # the same person, called so
            if uses["name"] > uses["lower"]:
                return True
            if uses["first"] and not uses["lower"] and word not in GENERIC:
                return True
        return False


def _step(counter: Counter[Any], key: Any, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _alike(one: str, other: str) -> bool:
    """Whether either of two names may be short for the other."""
    return may_be_short_for(one, other) or may_be_short_for(other, one)


def _groups(pairs: Iterable[_Pair]) -> dict[str, frozenset[str]]:
    """Of each name the others that pairs lead to."""
    groups: dict[str, set[str]] = {}
    for one, other in pairs:
        joined = groups.get(one, {one}) | groups.get(other, {other})
        groups |= dict.fromkeys(joined, joined)
    return {name: frozenset(group - {name}) for name, group in groups.items()}
