"""Text of an aggregate: sentences of its members that stand alone, and their value.

`docs/mathematics.md` 5.6. A sentence counts if it says something of its own, and if its days are
told absolutely; which of them are said maximises relevance minus complexity.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from graphmem_torch.atoms import Atom
from graphmem_torch.context.coverage import select_coverage
from graphmem_torch.text.absolute import absolute, absolute_sentences, spelled_day
from graphmem_torch.text.question import is_question, name_words, role_of
from graphmem_torch.text.tense import PAST_VERBS
from graphmem_torch.text.terms import GENERIC, STOP_WORDS, terms
from graphmem_torch.text.times import dated_places, told_days, undated
from graphmem_torch.text.unicode_forms import composed
from graphmem_torch.text.words import foreign

__all__ = [
    "Digest",
    "SpeakerNames",
    "Telling",
    "claims_nothing_new",
    "digest",
    "retold",
    "tellings",
    "together",
]

_TOLD = 3  # words of a sentence that says something by itself
_STAMP = 3  # words of a day
_MEMBERS = 3  # a theme is said by one member in so many at least,
_GROUPS = 4  # and in one aggregate in so many at most
_NICK = 3  # letters that a short form shares with a name
_FACT = re.compile(r"\d+(?:[.,:]\d+)*|(?<=[a-z,;] )[A-Z]\w+")  # numbers, and names inside sentences
_BRACKETED = re.compile(r"\s*\[[^\]]*\]")  # captions of images and the like, which nobody says
# Nouns that no extractor of runs finds: alone between an article and what is no word of a topic.
_NOUN = re.compile(
    r"\b(?:an?|the|my|our|his|her|their|its) ([^\W\d_]+)(?= ?[^\w\s'-]| ?$| ([^\W\d_]+))",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# Somebody or something that there is, or what happened: without either a sentence is a saying.
_PARTICULAR = re.compile(
    r"\b(?:I|my|mine|we(?! (?:can|could|all|should|must|need)\b)|he|she|his|hers?|him|been"
    rf"|\w{{2,}}[^\We]ed|{PAST_VERBS})\b"
    r"|^(?:(?:and|but|so|plus|also|yes|yeah|oh|well),? )*(?:the|our) ",
    re.IGNORECASE,
)
# What an assistant says out of courtesy, or of itself.
_COURTESY = re.compile(
    r"(?:oh|wow|ah|and|yes|well)?,? ?(?:congrat\w*|thanks|thank you|sorry|apologies|welcome"
    r"|good luck|best of luck|enjoy|happy \w+ing|stay \w+,|(?:you're|you are) welcome"
    r"|great (?:choice|question)|as an? (?:ai|artificial|(?:large )?language)\b"
    r"|I(?:['\u2019]m| am|['\u2019]d be|['\u2019]ll be| would be)(?: so| very| always| more than)?"
    r" (?:glad|happy|thrilled|excited|sorry|delighted|pleased|confident|here))\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"#{1,6} .*|\*\*[^*]*\*\*\W*|[^*]*\*\*")
_MARKER = re.compile(r"^(?:[*+\u2022-]|\d{1,3}[.)]) +")
_YOURS = re.compile(r"\b(?:you|your|yours|yourself|u|ya|let['\u2019]s)\b", re.IGNORECASE)


class Telling(NamedTuple):
    """A sentence that says something of its own.

    Attributes:
        speaker: Who says it; empty: nobody is named.
        kind: Kind of its memory.
        text: The sentence, its days absolute; empty: it has a relative time that cannot be placed,
            and is not said by an aggregate.
        day: When it was said, where only that places its days; else empty.
        units: Stems of its names and nouns, its numbers and days.
        words: Stems of all its words that may be a topic.
    """

    speaker: str
    kind: str
    text: str
    day: str
    units: frozenset[str]
    words: frozenset[str]

    @property
    def length(self) -> int:
        """Words, those of its day included."""
        return len(self.text.split()) + (_STAMP if self.day else 0)


class SpeakerNames:
    """The names of those who speak in a memory, which are no topic, and their short forms."""

    def __init__(self, speakers: Iterable[str]) -> None:
        """Take the names apart."""
        self._parts = {part for name in speakers for part in name_words(name)}
        self._known: dict[str, bool] = {}

    def __contains__(self, word: str) -> bool:
        """Whether a word, in lower case, is one of the names: "mel", "mell" for Melanie."""
        if word not in self._known:
            self._known[word] = word in self._parts or any(
                len(word) <= len(part) and len(word) >= _NICK and part[:_NICK] == word[:_NICK]
                for part in self._parts
            )
        return self._known[word]


def tellings(atom: Atom, concepts: Iterable[str], names: SpeakerNames) -> list[Telling]:
    """Return the sentences of a memory that say something of their own.

    Left out are questions, captions, headings, scraps, what has no name, number, date or noun, what
    one person says to another of the two of them, sayings ("Flowers bring joy."), and the courtesy
    of assistants. Marks of lists and of bold type are no part of a sentence. Of a text in another
    language than English nobody knows which times are relative, or which words are nouns: it is
    quoted with the day it was said, and all its words count.

    Args:
        atom: The memory.
        concepts: Names of the concepts that it mentions.
        names: Names of all who speak.
    """
    other = foreign(atom.text, STOP_WORDS)
    topic = {stem for name in concepts for stem in _topics(name.split(), names)}
    role = -2 if atom.speaker is None else role_of(atom.speaker)
    day = _day_of(atom) if other else ""
    found = []
    for sentence, dated in absolute_sentences(_BRACKETED.sub("", atom.text), atom.time):
        sentence, own = sentence.strip(), {*terms(sentence)}
        announces = sentence.rstrip("*_ ").endswith(":")  # a heading, or what a list follows
        heads = _HEADING.fullmatch(_MARKER.sub("", sentence)) is not None
        if len(own) < _TOLD or announces or heads or is_question(sentence):
            continue
        sentence = _unmarked(sentence)
        if not other:
            facts = _facts(sentence, atom.time, names)
            # What an assistant says to its user is advice, and stays.
            if role == -1 and _COURTESY.match(sentence):
                continue
            if role == 0 and not facts and _YOURS.search(sentence):
                continue
            if role >= 0 and not facts and not _PARTICULAR.search(sentence):
                continue
            words = {*_topics(_WORD.findall(undated(sentence)), names)}
            own = (words & topic) | facts | {*_topics(_nouns(sentence), names)}
        text = sentence if other else _unmarked((dated or "").strip())
        if own:
            units, all_words = frozenset(own), frozenset(own if other else words)
            who = composed(atom.speaker or "")
            found.append(Telling(who, atom.kind, text, day, units, all_words))
    return found


def _unmarked(sentence: str) -> str:
    """A sentence without the mark of a list in front, and without bold type."""
    return _MARKER.sub("", sentence).replace("**", "")


def together(members: Sequence[Sequence[Telling]]) -> list[list[Telling]]:
    """The sentences of a cluster: what is a noun in one of them is the same noun in the others."""
    nouns = frozenset().union(*(each.units for own in members for each in own))
    return [
        [each._replace(units=each.units | (each.words & nouns)) for each in own] for own in members
    ]


def _day_of(atom: Atom) -> str:
    """When a memory was said; empty where nobody knows."""
    return "" if atom.time is None else spelled_day(datetime.fromtimestamp(atom.time, UTC).date())


def _topics(words: Iterable[str], names: SpeakerNames) -> list[str]:
    """Stems of the words that are no names of speakers, and not too general to be a topic."""
    return terms(
        " ".join(w for word in words if (w := word.lower()) not in GENERIC and w not in names)
    )


def _nouns(sentence: str) -> list[str]:
    return [
        match[1]
        for match in _NOUN.finditer(sentence)
        if match[2] is None or match[2].lower() in GENERIC
    ]


def _facts(sentence: str, said: float | None, names: SpeakerNames) -> set[str]:
    """Numbers, names and days of an English sentence."""
    found = {*_topics(_FACT.findall(sentence), names)}
    if (days := told_days(sentence, said)) != (0, 0):
        found.add(f"days {days[0]} {days[1]}")
    return found


class Digest(NamedTuple):
    """Text of an aggregate.

    Attributes:
        text: Sentences of its members.
        relevance: Share of the weight of what its members are about, in [0, 1].
        complexity: Its words as a share of those that it may have.
        value: Relevance minus `price` times complexity.
        bound: Upper bound of all choices of sentences; `value` if these are the best.
        weight: Weight of each unit that its members are about.
    """

    text: str
    relevance: float
    complexity: float
    value: float
    bound: float
    weight: Mapping[str, float]

    def said(self, text: str, words: int, price: float) -> Digest:
        """The same of another text, such as an oracle's."""
        own = {*terms(text)}
        covered = sum(value for unit, value in self.weight.items() if unit in own)
        relevance = covered / (sum(self.weight.values()) or 1.0)
        complexity = len(text.split()) / words
        value = relevance - price * complexity
        return self._replace(
            text=text, relevance=relevance, complexity=complexity, value=value, bound=value
        )


def digest(
    members: Sequence[Sequence[Telling]],
    frequency: Mapping[str, int],
    groups: int,
    *,
    words: int,
    price: float,
) -> Digest | None:
    """Choose the sentences of an aggregate: relevance minus complexity; None if none is worth it.

    Args:
        members: The sentences of each member, by time.
        frequency: Aggregates that are about each unit.
        groups: All aggregates.
        words: That the text may have, or its shortest sentence if that is longer.
        price: Cost of these words, in shares of the relevance.
    """
    said = Counter(unit for own in members for unit in {u for each in own for u in each.units})
    theme = {
        unit
        for unit, count in said.items()
        if count > 1
        and count * _MEMBERS >= len(members)
        and frequency.get(unit, 1) <= max(2, groups / _GROUPS)
    }
    every = [
        each for own in members for each in own if each.text and not theme.isdisjoint(each.units)
    ]
    if not every:
        return None
    weight = {unit: n * math.log1p(groups / frequency.get(unit, 1)) for unit, n in said.items()}
    lengths = [each.length for each in every]
    units = [each.units for each in every]
    limit = max(words, min(lengths))
    best = select_coverage(units, lengths, weight, limit=limit, price=price)
    if not best.chosen:
        return None
    return Digest(_written([every[place] for place in best.chosen]), *best[1:], weight)


def _written(chosen: Sequence[Telling]) -> str:
    """Sentences, with who says them wherever that changes."""
    named = any(each.speaker for each in chosen)
    parts, before = [], ""
    for each in chosen:
        who = each.speaker or (each.kind if named else "")
        if each.day:
            who = f"{who} ({each.day})".strip()
        parts.append(f"{who}: {each.text}" if who and who != before else each.text)
        before = who
    return " ".join(parts)


def retold(atom: Atom) -> str:
    """A memory as an oracle is given it: its days absolute, or the day it was said in front."""
    parts = [part for _, part in absolute_sentences(atom.text, atom.time)]
    text = "".join(part for part in parts if part is not None)
    known = len(parts) == sum(part is not None for part in parts)
    if atom.time is not None and (not known or foreign(atom.text, STOP_WORDS)):
        text = f"(said on {_day_of(atom)}) {atom.text}"
    return f"{atom.speaker}: {text}" if atom.speaker else text


def claims_nothing_new(text: str, members: str) -> bool:
    """Whether every number, name and day of a text is said by the members, and none is relative."""
    days = {place[2:4] for place in dated_places(members, None)}
    return (
        all(fact in members for fact in _FACT.findall(text))
        and absolute(text, None) is not None
        and all(place[2:4] in days for place in dated_places(text, None))
    )
