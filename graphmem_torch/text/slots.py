"""What a statement says of what has one value at a time: where somebody lives, works, what costs.

Patterns of English read *states* from a text: of whom or what (the subject), which slot (home,
employer, role, favourite, car, schedule, lead, or an attribute named by its noun), its value, and
whether the value holds or has ended ("no longer", "left", "gave up"). What is asked, wished, may be
or once was is no state. Two statements are at odds where a slot of one subject has two values, or
where one says that what the other tells has ended (`docs/mathematics.md` 5.2).

What no pattern reads is not there: absence of a state means nothing. States are of somebody or
something that is named, or of whoever speaks; a text of more than 12 sentences is a document, most
of which still holds when one of them does not, and an assistant tells nothing of itself: there none
is read, as in sentences of more than 100 words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from graphmem_torch.text import _slot_patterns as say
from graphmem_torch.text.question import role_of
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.terms import STOP_WORDS, terms

__all__ = ["CUES", "Reading", "Sides", "State", "at_odds"]

CUES = ("slot", "attribute", "ended", "agreed", "strangers", "changed")
"""What `at_odds` tells of two readings, in this order."""

_LONGEST = 100  # words of a sentence that patterns are looked for in
_STATEMENT = 12  # sentences of a text that states are looked for in
_SHORT = 6  # words of what is said in place of what has ended
_PLAIN = 8  # words of a sentence that says no more than what somebody is
_HEAD = 80  # characters that the name of a speaker is looked for in
_LONG = 32  # letters of a word


@dataclass(frozen=True, slots=True)
class State:
    """That a slot of a subject has a value, or that a value of it has ended.

    Attributes:
        slot: Its name; empty where only the value says what has ended.
        key: Stems of the noun of an attribute, or of what a favourite is of.
        subject: Stems of whom or what.
        value: Stems of the value.
        ended: Whether it no longer holds.
        core: Of what has ended, those of its noun phrase, without where and with whom it was.
    """

    slot: str
    key: frozenset[str]
    subject: frozenset[str]
    value: frozenset[str]
    ended: bool = False
    core: frozenset[str] = frozenset()

    def ends(self, said: frozenset[str]) -> bool:
        """Whether it is of words that it has ended: most of its own are among them."""
        return _covered(self.value, said) and _covered(self.core or self.value, said)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says of slots.

    Attributes:
        states: In the order of its sentences.
        names: Stems of all whom it names, its speaker where the first person tells.
        words: Stems of all its content words, and the names.
        stems: Of each sentence that neither denies, ends, asks nor wishes, its content words.
        changed: Whether it says that something is other than it was.
    """

    states: tuple[State, ...]
    names: frozenset[str]
    words: frozenset[str]
    stems: tuple[frozenset[str], ...]
    changed: bool

    @classmethod
    def of(cls, text: str) -> Reading:
        """The reading of a text, with its speaker in front of it or without."""
        text = text.replace("\u2019", "'")
        head = say.SPEAKER.match(text[:_HEAD])
        speaker = _stems(head[1]) if head else frozenset[str]()
        machine = head is not None and role_of(head[1]) < 0
        body = text[head.end() :] if head else text
        parts = [part for line in body.split("\n") for part in split_at_marks(line, ".!?;")]
        parts = [part for part in parts if part.strip()]
        states: list[State] = []
        names: set[str] = set()
        stems = []
        changed = False
        for part in parts:
            if part.rstrip().endswith("?"):
                continue
            sentence = _Sentence(part, speaker)
            if len(parts) <= _STATEMENT and not (machine and sentence.first):
                states += sentence.states()
            names |= sentence.names
            changed = changed or say.CHANGED.search(sentence.lowered) is not None
            if not any(p.search(sentence.lowered) for p in (say.DENIED, say.UNREAL, say.ENDED)):
                stems.append(_stems(part) | sentence.names)
        return cls(tuple(states), frozenset(names), _stems(body) | names, tuple(stems), changed)

    def sides(self) -> Sides:
        """What this and another reading must have in common to be at odds."""
        says, meets, subjects = set[str](), set[str](), set[str]()
        kin = _listed(say.KIN_WORDS)
        for state in self.states:
            family = sorted(state.subject & kin)
            own = sorted(state.subject - kin, key=_telling)
            subjects |= {f"{stem} {family}" for stem in own}
            # Of two subjects that are one, each word of the smaller one is in the larger.
            mine = [f"{state.slot} {family} {stem}" for stem in own]
            if not state.ended:
                held = "" if state.slot == "favourite" else sorted(state.key)
                says |= {token for one in mine[:1] for token in (f"= {held} {one}", f"< {one}")}
                meets |= {token for one in mine for token in (f"= {held} {one}", f"> {one}")}
                meets |= state.value | state.key
            elif state.slot:
                says |= {f"> {one}" for one in mine[:1]}
                meets |= {f"< {one}" for one in mine}
            else:  # if most of its words are met, one of any half of them is
                says |= {*sorted(state.value, key=_telling)[: (len(state.value) + 1) // 2]}
        meets.update(*self.stems)
        return Sides(says, meets, subjects)


class Sides(NamedTuple):
    """What tells of two readings by sets alone that `at_odds` will find nothing.

    Attributes:
        says, meets: A slot, an attribute or an end is told only where one of the first set of one
            reading is in the second set of the other.
        subjects: Two readings with states are of strangers where none is in both.
    """

    says: set[str]
    meets: set[str]
    subjects: set[str]


def at_odds(one: Reading, other: Reading) -> tuple[float, ...]:
    """What of `CUES` holds of two readings, 0 or 1 each; the order of the two does not matter.

    `slot`: a slot of one subject has two values; `attribute`: an attribute, likewise; `ended`: one
    says that what the other tells has ended; `agreed`: a slot has one value in both; `strangers`:
    both name somebody of whom the other does not speak, or their states are of different
    subjects; `changed`: one of them says that something
    is other than it was.
    """
    slot = attribute = ended = agreed = False
    for a in one.states:
        for b in other.states:
            if a.ended and b.ended:
                continue
            if not _same(a.subject, b.subject):
                continue
            if a.ended or b.ended:
                out, kept = (a, b) if a.ended else (b, a)
                if not out.slot or out.slot == kept.slot:
                    ended = ended or out.ends(kept.value | kept.key)
            elif a.slot == b.slot and _one_key(a, b):
                if _one_value(a, b):
                    agreed = True
                elif a.slot == "attribute":
                    attribute = True
                else:
                    slot = True
    for mine, theirs in ((one, other), (other, one)):
        ended = ended or any(
            state.ended
            and not state.slot
            and any(state.ends(said) for said in theirs.stems if state.subject <= said)
            for state in mine.states
        )
    named = bool(one.names) and bool(other.names)
    strangers = named and not (one.names <= other.words or other.names <= one.words)
    if one.states and other.states:
        strangers = not any(
            _same(mine.subject, theirs.subject) for mine in one.states for theirs in other.states
        )
    cues = (slot, attribute, ended, agreed, strangers, one.changed or other.changed)
    return tuple(map(float, cues))


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """One subject: all that one is called is of the other, too, and the same relatives."""
    kin = _listed(say.KIN_WORDS)
    mine, theirs = one - kin, other - kin
    alike = mine <= theirs or theirs <= mine
    return bool(mine and theirs) and alike and one & kin == other & kin


def _one_key(one: State, other: State) -> bool:
    """One attribute; a favourite of anything may be one of everything."""
    if one.slot == "favourite":
        return not one.key or not other.key or bool(one.key & other.key)
    return one.key == other.key


def _one_value(one: State, other: State) -> bool:
    """Whether two values may be one: a word in common, or all those of one of them."""
    if one.slot in say.DISTINCT:
        return one.value <= other.value or other.value <= one.value
    return bool(one.value & other.value)


def _telling(stem: str) -> tuple[int, str]:
    """Sorts the longest stems, which are the rarest, to the front."""
    return -len(stem), stem


def _covered(value: frozenset[str], said: frozenset[str]) -> bool:
    """Whether most of what has ended is in what is said."""
    return bool(value) and len(value & said) > len(value) / 2


class _Found(NamedTuple):
    """A state without its subject; fields as in `State`."""

    slot: str
    value: frozenset[str]
    ended: bool = False
    key: frozenset[str] = frozenset()
    core: frozenset[str] = frozenset()


class _Sentence:
    """A sentence as its patterns are looked for."""

    def __init__(self, text: str, speaker: frozenset[str]) -> None:
        self.words = [word[:_LONG] for word in re.findall(r"\w+(?:['-]\w+)*|[,:]", text)]
        self.lowered = " ".join(word.lower() for word in self.words)
        self.first = say.FIRST.search(self.lowered) is not None
        self.speaker = (speaker or frozenset(["i"])) if self.first else frozenset[str]()
        first = next((i for i, word in enumerate(self.words) if word[0].isalpha()), -1)
        named = {
            stem
            for i, word in enumerate(self.words)
            if word[0].isupper() and _named(word, first=i == first)
            for stem in _stems(word)
        }
        self.names = frozenset(named) | self.speaker
        self.kin = _stems(
            " ".join(w for word in self.words if (w := word.lower().removesuffix("'s")) in say.KIN)
        )

    def states(self) -> list[State]:
        """What the sentence says of slots."""
        if len(self.words) > _LONGEST:
            return []
        found = list(self._found())
        held, ended, keys = (
            frozenset[str]().union(*parts)
            for parts in (
                [each.value for each in found if not each.ended],
                [each.value for each in found if each.ended],
                [each.key for each in found if each.slot == "count"],
            )
        )
        managed = any(each.slot == "manager" for each in found)
        kin = self.kin - _listed("boss") if managed else self.kin
        somebody = ((self.names - held - ended) or (self.names - held)) | kin
        nouns = _stems(self.lowered) - _listed(say.VERBS) - _listed(say.SAID)
        thing = nouns - held - ended - keys
        # A thing without a name is what its nouns say.
        subject = somebody if somebody - kin else somebody | thing
        states = []
        for each in found:
            if each.slot in say.OWN_KEY and each.key:
                mine = each.key
            elif each.slot in say.OF_THINGS:
                mine = thing
            elif each.slot in say.OF_ANY:
                mine = subject
            else:
                mine = somebody
            if mine and each.value:
                states.append(State(each.slot, each.key, mine, each.value, each.ended, each.core))
        return states

    def _found(self) -> Iterator[_Found]:
        """All that is said of slots."""
        text = self.lowered
        before = say.ENDED_BEFORE.match(text)
        if before:
            yield _Found("", _object(before["v"]), ended=True)
        for match in () if before else say.ENDED.finditer(text):
            yield from self._ending(match)
        for match in say.EXCHANGED.finditer(text):
            out, new = (
                next((match[name] for name in names if match[name]), "") for names in ("ace", "bdf")
            )
            if out.split()[0][0].isdigit():  # of prices and numbers, which are clauses
                continue
            yield _Found("", _value(out), ended=True)
            verb, value = match[0].split()[0], _value(new)
            if verb in ("swapped", "traded", "exchanged", "trading", "replaced"):
                yield _Found("car", value)
            elif verb not in ("moved", "relocated"):
                yield _Found("employer" if value & self.names else "favourite", value)
        yield from self._leads(text)
        for part in self._affirmed():
            yield from self._clauses(part)
            yield from self._holding(part)

    def _ending(self, ended: re.Match[str]) -> Iterator[_Found]:
        """What is no longer so, and what is in its place: "no longer in Rome, it is Oslo now"."""
        gone, *rest = say.INSTEAD.split(self.lowered[ended.start("v") :], maxsplit=1)
        slots = {slot for slot, pattern in say.STATES if pattern.search(f"to {gone} ")}
        slots |= {slot for slot, pattern in say.CLAUSES if slot and pattern.search(f"is {gone}")}
        slots = {say.NAMED.get(slot, slot) for slot in slots}
        if say.LEAVING.search(self.lowered[ended.start() : ended.start("v")]):
            slots.add("employer")
        price = None if say.DEALT.search(self.lowered) else say.PRICE.search(gone)
        if price:
            yield _Found("price", _stems(price["v"]), ended=True)
        else:
            slot = next(iter(slots)) if len(slots) == 1 else ""
            core = _object(say.WHERE.split(ended["v"])[0])
            yield _Found(slot, _object(ended["v"]), ended=True, core=core)
        said = say.SO.match(rest[0]) if rest and len(rest[0].split()) <= _SHORT else None
        if said and not say.DENIED.search(rest[0]):
            for slot in slots - {"price"}:
                yield _Found(slot, _value(said["v"] or said["w"]))

    def _affirmed(self) -> list[str]:
        """The sentence, or those of its parts that neither deny nor wish."""
        parts = [self.lowered]
        if say.DENIED.search(self.lowered) or say.UNREAL.search(self.lowered):
            parts = say.INSTEAD.split(self.lowered)
        no = say.DENIED, say.UNREAL
        return [part for part in parts if not any(pattern.search(part) for pattern in no)]

    def _clauses(self, text: str) -> Iterator[_Found]:
        for slot, pattern in say.CLAUSES:
            if slot == "phone" and not say.PHONE.search(text):
                continue
            if slot == "price" and say.DEALT.search(text):
                continue
            for match in pattern.finditer(text):
                groups, value = match.groupdict(), frozenset[str]()
                if groups.get("v"):
                    value = _stems(match["v"]) if slot in say.LITERAL else _value(match["v"])
                elif groups.get("b"):
                    value = _value_before(match["b"])
                if value and (slot != "home" or value & self.names):
                    yield _Found(slot, value)
                if groups.get("o"):
                    yield _Found(
                        slot if slot in say.LITERAL else "", _value_before(match["o"]), ended=True
                    )

    def _holding(self, text: str) -> Iterator[_Found]:
        for slot, pattern in say.STATES:
            for match in pattern.finditer(text):
                value, name = _value(text[match.end() :]), slot
                if slot in say.NAMED:  # one may join a gym as well, and be moved to tears
                    name = say.NAMED[slot] if value & self.names else ""
                elif slot == "called":
                    plain = len(text.split()) <= _PLAIN
                    name = "role" if plain and say.OCCUPATION.match(text, match.end()) else ""
                elif slot == "preferred":  # in a choice, unless it is said to be new
                    name = "favourite" if say.CHANGED.search(text) or "when it" in text else ""
                if name:
                    yield _Found(name, value)
        for match in say.SCHEDULED.finditer(text):
            rest = text[: match.start()] + " " + text[match.end() :]
            of, day = _stems(rest) - _listed(say.SCHEDULING), match["v"].rstrip("s")
            yield _Found("schedule", frozenset([day]), key=of)
        counted = " ".join(say.NUMBERS.get(word, word) for word in text.split())
        for match in say.COUNTED.finditer(counted):
            unit = _stems(match["key"])
            if unit and len(match["key"]) > 1 and not unit <= _listed(say.MEASURES):
                yield _Found("count", frozenset([match["v"].replace(",", "")]), key=unit)
        for phrase in say.FAVOURITES:
            for match in phrase.finditer(text):
                of = _stems(match["key"].rstrip("s"))
                yield _Found("favourite", _value_before(match["v"]), key=of)
        for phrase in say.ATTRIBUTES:
            for match in phrase.finditer(text):
                yield from self._attribute(match["key"], match["v"])

    def _leads(self, text: str) -> Iterator[_Found]:
        for match in say.TAKES.finditer(text):
            of = _stems(match["of"] or match["of2"]) - _listed(say.LEADING)
            yield _Found("lead", _stems(match["v"]), key=of)
            yield _Found("lead", _stems(match["o"] or match["o2"]), ended=True, key=of)
        if say.DENIED.search(text) or say.UNREAL.search(text):
            return
        for pattern in (say.LEADS, say.LED_BY):
            for match in pattern.finditer(text):
                groups = match.groupdict()
                of = _stems(groups["of"] or groups.get("of2") or "") - _listed(say.LEADING)
                if of:
                    yield _Found("lead", _stems(match["v"]), key=of)
        for match in say.STEPS.finditer(text):
            of = _stems(match["of"]) - _listed(say.LEADING)
            yield _Found("lead", _stems(match["o"]), ended=True, key=of)

    def _attribute(self, key: str, said: str) -> Iterator[_Found]:
        """An attribute on either side of a copula."""
        left, right = _stems(key) - _listed(say.NEWER), _stems(said) - _listed(say.NEWER)
        nouns = {word.removesuffix("'s") for word in key.split()}
        others = {word.removesuffix("'s") for word in said.split()}
        if "favourite" in nouns | others or "favorite" in nouns | others:
            flip = "favourite" in others or "favorite" in others
            noun, value = (said, _value_before(key)) if flip else (key, _value(said))
            behind = re.split(r"favou?rite", noun, maxsplit=1)[1]
            yield _Found("favourite", value, key=_stems(behind) - self.names)
        else:
            single = _listed(say.SINGLE_WORDS)
            for named, of, value in (
                (nouns, left, _value(said)),
                (others, right, _value_before(key)),
            ):
                of = of | self.speaker
                if named & say.SINGLE:
                    # A weight, or a budget, that is nobody's is that of anything.
                    if of - single:
                        yield _Found("attribute", value - of, key=of)
                    return


def _named(word: str, *, first: bool) -> bool:
    """Whether a capitalised word is a name; the first of a sentence may be any other word."""
    plain = word.lower().removesuffix("'s")
    if "'" in plain or plain in STOP_WORDS or plain in say.BEYOND:
        return False
    if plain in say.CALENDAR or plain in say.TITLES:
        return False
    return not first or plain not in say.OPENERS


def _value(text: str) -> frozenset[str]:
    """Stems of the noun phrase that a text begins with."""
    words = text.split()
    start = 0
    while start < len(words) and (words[start] in say.ARTICLES or words[start] in say.TITLES):
        start += 1
    stop = start
    while (
        stop < min(len(words), start + 4)
        and words[stop] not in say.BEYOND
        and words[stop] not in ",:"
    ):
        stop += 1
    return _stems(" ".join(words[start:stop]))


def _value_before(text: str) -> frozenset[str]:
    """Stems of the noun phrase that a text ends with."""
    words = text.split()
    start = len(words)
    while (
        start > max(0, len(words) - 3)
        and words[start - 1] not in say.BEYOND
        and words[start - 1] != ","
    ):
        start -= 1
    return _stems(" ".join(word for word in words[start:] if word not in say.TITLES))


def _object(text: str) -> frozenset[str]:
    """Stems of what has ended, without verbs that say no more than that it was so."""
    words = re.split(r" (?:and|but|because) ", text, maxsplit=1)[0].split()
    return _stems(" ".join(word for word in words if word not in say.OBJECTLESS)) - _listed(
        say.VERBS
    )


def _stems(text: str) -> frozenset[str]:
    return frozenset(terms(text))


@cache  # on first use: the stemmer is not loaded at import
def _listed(words: str) -> frozenset[str]:
    return frozenset(stem for word in words.split() for stem in terms(word))
