"""Names of one person, as the memories show it (`docs/mathematics.md` 4.1).

A turn that addresses somebody shows that the name belongs to the next speaker of the session, if it
may be short for that speaker's name. A text may also state it. A name that two persons may have is
left alone. The result depends on the memories and their order in sessions only, not on the time of
counting.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.text.naming import (
    Naming,
    are_alike,
    articled,
    may_be_short_for,
    namings,
    persons,
    plain_name,
    thanks,
    word_uses,
)
from graphmem_torch.text.question import role_of
from graphmem_torch.text.terms import GENERIC

__all__ = ["People"]

_START = 2  # letters that index words: no name is short for another with fewer
_OFTEN = 2  # turns needed without a fitting reply; with one, a single turn is enough
_ARTICLE = "the "

_Pair = tuple[str, str]  # a name, and the name that it stands for


class _Turn(NamedTuple):
    """Evidence that a turn gives together with its neighbours.

    Attributes:
        speaker: Speaker of the turn.
        named: The speaker, if that is a name.
        calls: Names by which it addresses somebody, and whether with a "you".
        thanks: Whether it thanks somebody.
    """

    speaker: str
    named: str
    calls: tuple[tuple[str, bool], ...]
    thanks: bool

    def shown(self, after: _Turn) -> Iterator[tuple[_Pair, bool]]:
        """Yield the names addressed with the next speaker, and whether the reply fits."""
        if not after.named or after.speaker == self.speaker:
            return
        answer = after.thanks or any(
            name == self.named or _alike(name, self.named) for name, _ in after.calls if self.named
        )
        for name, direct in self.calls:
            if name != after.named:
                yield (name, after.named), direct or answer


@dataclass(eq=False)
class _Session:
    """The turns of a session in their order, with their positions."""

    places: array[int] = field(default_factory=lambda: array("q"))
    turns: list[_Turn] = field(default_factory=list)

    def around(self, at: int) -> list[tuple[_Pair, bool]]:
        """Return what the turn at an index and its neighbours show."""
        near = self.turns[max(at - 1, 0) : at + 2]
        return [each for one, next_ in pairwise(near) for each in one.shown(next_)]

    def between(self, at: int) -> list[tuple[_Pair, bool]]:
        """Return what the turn before an index and the turn at it show together."""
        near = self.turns[max(at - 1, 0) : at + 1]
        return [each for one, next_ in pairwise(near) for each in one.shown(next_)]


class People:
    """Names of persons in a memory, updated as memories are added and deleted."""

    def __init__(self) -> None:
        """Create without a name."""
        self._sessions = defaultdict[str | None, _Session](_Session)
        self._speakers = Counter[str]()
        self._called, self._answered = Counter[_Pair](), Counter[_Pair]()  # by turns
        self._same = dict[_Turn, _Turn]()  # one for all turns that show nothing else
        self._stated, self._claimed = Counter[_Pair](), Counter[_Pair]()  # by texts
        # Uses of words by their first letters; None: not counted yet, as no name is addressed.
        self._uses: dict[str, dict[str, Counter[str]]] | None = None
        self._persons = Counter[str]()  # counted as `_uses` are
        self._rivals: dict[_Pair, bool] = {}  # whether another person may have the name
        # Names of one word after a lower-case "the", which is no part of the name, by texts;
        # and the names for which that has changed.
        self._articled, self._turned = Counter[str](), set[str]()
        self._mates: dict[str, frozenset[str]] = {}
        self._settled = True

    def mates(self, name: str) -> frozenset[str]:
        """Return the other names of the person of a name, as of the last `settle`."""
        mates = self._mates.get(name, frozenset())
        bare = name.removeprefix(_ARTICLE)
        if bare in self._articled:
            mates |= {bare if bare != name else _ARTICLE + name}
        return mates

    @property
    def names(self) -> Iterable[str]:
        """Names that have `mates`."""
        return [*self._mates, *(_ARTICLE + name for name in self._articled)]

    def add(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        """Count memories, with their places in the order of all; concepts show nothing."""
        self._count(atoms, 1)

    def drop(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        """Remove memories that were counted at the same places."""
        self._count(atoms, -1)

    def settle(self, texts: Callable[[], Iterable[str]]) -> set[str]:
        """Decide again, and return the names whose `mates` have changed.

        Args:
            texts: Function that returns the texts of all counted memories.
        """
        turned, self._turned = self._turned, set()
        if self._settled:
            return turned
        if self._uses is None and self._looks_at_words():
            self._uses = {}
            for text in texts():
                self._count_words(text, 1)
        before, self._mates = self._mates, _groups(self._pairs())
        self._settled = True
        names = before.keys() | self._mates.keys()
        return turned | {name for name in names if before.get(name) != self._mates.get(name)}

    def _count(self, atoms: Iterable[tuple[int, Atom]], step: int) -> None:
        for place, atom in atoms:
            if atom.kind == CONCEPT:
                continue
            speaker = plain_name(atom.speaker or "")
            found = namings(atom.whole, spoken=bool(speaker))
            named = speaker if speaker and not role_of(speaker) else ""
            for each in found:
                self._count_naming(each, named, step)
            if speaker:
                calls = dict[str, bool]()
                for each in found:
                    if each.way == "address":
                        calls[each.name] = calls.get(each.name, False) or each.direct
                turn = _Turn(speaker, named, tuple(calls.items()), thanks(atom.whole))
                self._count_turn(atom.session, place, turn, step)
            for bare in articled(atom.whole):
                there = bare in self._articled
                _step(self._articled, bare, step)
                if there != (bare in self._articled):
                    self._turned ^= {bare, _ARTICLE + bare}
            if self._uses is not None:
                self._count_words(atom.whole, step)

    def _count_naming(self, said: Naming, speaker: str, step: int) -> None:
        if said.way == "stated":
            self._add(self._stated, (said.name, said.full), step)
        elif said.way == "claim" and (full := speaker or said.full) not in ("", said.name):
            sure = not speaker or are_alike(said.name, full)
            self._add(self._stated if sure else self._claimed, (said.name, full), step)

    def _count_turn(self, session: str | None, place: int, turn: _Turn, step: int) -> None:
        own = self._sessions[session]
        at = bisect_left(own.places, place)
        if turn.named:
            self._add(self._speakers, turn.named, step)
        if step > 0:
            apart = own.between(at)
            own.places.insert(at, place)
            own.turns.insert(at, self._same.setdefault(turn, turn))
            near = own.around(at)
        else:
            near = own.around(at)
            del own.places[at], own.turns[at]
            apart = own.between(at)
        for shown, sign in ((near, step), (apart, -step)):
            for pair, answered in shown:
                _step(self._called, pair, sign)
                if answered:
                    _step(self._answered, pair, sign)
                self._settled, self._rivals = False, {}
        if not own.turns:
            del self._sessions[session]

    def _count_words(self, text: str, step: int) -> None:
        assert self._uses is not None
        for word in persons(text):
            _step(self._persons, word, step)
            self._settled &= not any(word in pair for pair in self._stated)
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
        """Return pairs of names that belong to one person."""
        claimed = {pair for pair in self._claimed if pair in self._called}
        stated = {pair for pair in self._stated if self._are_persons(pair)} | claimed
        every = stated | {pair for pair in self._called if self._fits(pair)}
        full = Counter(name for name, _ in every)
        return [pair for pair in every if full[pair[0]] == 1 and self._holds(pair, pair in stated)]

    def _looks_at_words(self) -> bool:
        """Return whether the decision needs the words of all texts."""
        odd = any(not are_alike(*pair) for pair in self._stated)
        return odd or any(_alike(*pair) for pair in self._called)

    def _fits(self, pair: _Pair) -> bool:
        """Return whether turns alone show that a name belongs to the next speaker."""
        shown = pair in self._answered or self._called[pair] >= _OFTEN
        return shown and _alike(*pair)

    def _are_persons(self, pair: _Pair) -> bool:
        """Return whether two names stated to be one may be: they are alike, or both of persons."""
        if are_alike(*pair):
            return True
        called = {name for name, _ in self._called}
        return all(
            name in self._persons or name in self._speakers or name in called for name in pair
        )

    def _holds(self, pair: _Pair, stated: bool) -> bool:
        """Return whether a name can mean nobody else."""
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
        """Return whether texts use a name as a word, or have other names it may be short for."""
        assert self._uses is not None
        words = self._uses.get(short[:_START], {})
        own = words.get(pair[0], Counter())
        if own["lower"] >= own["name"] + own["first"]:
            return True
        known = {part for name in pair for part in name.split()}
        for word, uses in words.items():
            if word in known or not may_be_short_for(short, word) or uses["place"]:
                continue
            if (word, pair[1]) in self._called:
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
    """Return whether either of two names may be short for the other."""
    return may_be_short_for(one, other) or may_be_short_for(other, one)


def _groups(pairs: Iterable[_Pair]) -> dict[str, frozenset[str]]:
    """Return the other names that pairs connect with each name."""
    groups: dict[str, set[str]] = {}
    for one, other in pairs:
        joined = groups.get(one, {one}) | groups.get(other, {other})
        groups |= dict.fromkeys(joined, joined)
    return {name: frozenset(group - {name}) for name, group in groups.items()}
