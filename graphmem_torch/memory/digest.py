"""Text of an aggregate: sentences of its members that stand alone, and their value.

`docs/mathematics.md` 5.6. A sentence needs content of its own and absolute days. The choice of
sentences maximises relevance minus complexity.
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
from graphmem_torch.lazy import lazy_pattern
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

_TOLD = 3  # minimum words of a sentence with content of its own
_STAMP = 3  # words of a day
_MEMBERS = 3  # a theme has at least one in this many members,
_GROUPS = 4  # and at most one in this many aggregates
_NICK = 3  # minimum letters that a short form shares with a name
# Numbers, and names inside sentences.
_FACT = lazy_pattern(r"\d+(?:[.,:]\d+)*|(?<=[a-z,;] )[A-Z]\w+")
_BRACKETED = lazy_pattern(r"\s*\[[^\]]*\]")  # captions of images and the like, which are not speech
# Nouns that extractors of runs miss: alone between an article and a word that is no topic.
_NOUN = lazy_pattern(
    r"\b(?:an?|the|my|our|his|her|their|its) ([^\W\d_]+)(?= ?[^\w\s'-]| ?$| ([^\W\d_]+))",
    re.IGNORECASE,
)
_WORD = lazy_pattern(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# A particular person, thing or past event; a sentence without any is a saying.
_PARTICULAR = lazy_pattern(
    r"\b(?:I|my|mine|we(?! (?:can|could|all|should|must|need)\b)|he|she|his|hers?|him|been"
    rf"|\w{{2,}}[^\We]ed|{PAST_VERBS})\b"
    r"|^(?:(?:and|but|so|plus|also|yes|yeah|oh|well),? )*(?:the|our) ",
    re.IGNORECASE,
)
# Courtesy of an assistant, or its words about itself.
_COURTESY = lazy_pattern(
    r"(?:oh|wow|ah|and|yes|well)?,? ?(?:congrat\w*|thanks|thank you|sorry|apologies|welcome"
    r"|good luck|best of luck|enjoy|happy \w+ing|stay \w+,|(?:you're|you are) welcome"
    r"|great (?:choice|question)|as an? (?:ai|artificial|(?:large )?language)\b"
    r"|I(?:['\u2019]m| am|['\u2019]d be|['\u2019]ll be| would be)(?: so| very| always| more than)?"
    r" (?:glad|happy|thrilled|excited|sorry|delighted|pleased|confident|here))\b",
    re.IGNORECASE,
)
_HEADING = lazy_pattern(r"#{1,6} .*|\*\*[^*]*\*\*\W*|[^*]*\*\*")
_MARKER = lazy_pattern(r"^(?:[*+\u2022-]|\d{1,3}[.)]) +")
_YOURS = lazy_pattern(r"\b(?:you|your|yours|yourself|u|ya|let['\u2019]s)\b", re.IGNORECASE)


class Telling(NamedTuple):
    """Sentence with content of its own.

    Attributes:
        speaker: Name of the speaker; empty: unknown.
        kind: Kind of its memory.
        text: The sentence with absolute days; empty: it has a relative time that cannot be
            resolved, and no aggregate says it.
        day: Day it was said, if its relative days need that; else empty.
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
        """Number of words, with those of its day."""
        return len(self.text.split()) + (_STAMP if self.day else 0)


class SpeakerNames:
    """Names of the speakers of a memory, which are no topics, and their short forms."""

    def __init__(self, speakers: Iterable[str]) -> None:
        """Split the names into words."""
        self._parts = {part for name in speakers for part in name_words(name)}
        self._known: dict[str, bool] = {}

    def __contains__(self, word: str) -> bool:
        """Return whether a lower-case word is one of the names: "mel", "mell" for Melanie."""
        if word not in self._known:
            self._known[word] = word in self._parts or any(
                len(word) <= len(part) and len(word) >= _NICK and part[:_NICK] == word[:_NICK]
                for part in self._parts
            )
        return self._known[word]


def tellings(atom: Atom, concepts: Iterable[str], names: SpeakerNames) -> list[Telling]:
    """Return the sentences of a memory with content of their own.

    Left out are:

    - questions, captions, headings, scraps and sentences without name, number, date or noun
    - words of one speaker to the other, sayings ("Flowers bring joy."), courtesy of assistants

    Marks of lists and bold type are removed. For languages other than English, relative times and
    nouns are unknown: the text is quoted with its day, and all its words count.

    Args:
        atom: The memory.
        concepts: Names of the concepts that it mentions.
        names: Names of all speakers.
    """
    other = foreign(atom.text, STOP_WORDS)
    topic = {stem for name in concepts for stem in _topics(name.split(), names)}
    role = -2 if atom.speaker is None else role_of(atom.speaker)
    day = _day_of(atom) if other else ""
    found = []
    for sentence, dated in absolute_sentences(_BRACKETED.sub("", atom.text), atom.time):
        sentence, own = sentence.strip(), {*terms(sentence)}
        announces = sentence.rstrip("*_ ").endswith(":")  # a heading, or an introduction to a list
        heads = _HEADING.fullmatch(_MARKER.sub("", sentence)) is not None
        if len(own) < _TOLD or announces or heads or is_question(sentence):
            continue
        sentence = _unmarked(sentence)
        if not other:
            facts = _facts(sentence, atom.time, names)
            # Words of an assistant to its user are advice, and stay.
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
    """Return a sentence without a leading list mark and without bold type."""
    return _MARKER.sub("", sentence).replace("**", "")


def together(members: Sequence[Sequence[Telling]]) -> list[list[Telling]]:
    """Return the sentences of a cluster: a noun in one sentence counts as a noun in all of them."""
    nouns = frozenset().union(*(each.units for own in members for each in own))
    return [
        [each._replace(units=each.units | (each.words & nouns)) for each in own] for own in members
    ]


def _day_of(atom: Atom) -> str:
    """Return the day of a memory; empty if unknown."""
    return "" if atom.time is None else spelled_day(datetime.fromtimestamp(atom.time, UTC).date())


def _topics(words: Iterable[str], names: SpeakerNames) -> list[str]:
    """Return the stems of words that are no names of speakers and not too general for a topic."""
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
    """Return the numbers, names and days of an English sentence."""
    found = {*_topics(_FACT.findall(sentence), names)}
    if (days := told_days(sentence, said)) != (0, 0):
        found.add(f"days {days[0]} {days[1]}")
    return found


class Digest(NamedTuple):
    """Text of an aggregate with its value.

    Attributes:
        text: Sentences of its members.
        relevance: Share of the weight of its members' units, in [0, 1].
        complexity: Number of words as a share of the limit.
        value: Relevance minus `price` times complexity.
        bound: Upper bound of all choices of sentences; `value` if the choice is optimal.
        weight: Weight of each unit of its members.
    """

    text: str
    relevance: float
    complexity: float
    value: float
    bound: float
    weight: Mapping[str, float]

    def said(self, text: str, words: int, price: float) -> Digest:
        """Return the digest of another text, such as an oracle's."""
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
    """Choose the sentences of an aggregate by relevance minus complexity; None if none is worth it.

    Args:
        members: Sentences of each member, by time.
        frequency: Number of aggregates with each unit.
        groups: Number of all aggregates.
        words: Maximum words of the text, or those of its shortest sentence if that is longer.
        price: Cost of this many words, as a share of the relevance.
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
    """Return sentences as a text that names each change of speaker."""
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
    """Return a memory's text for an oracle: with absolute days, or with its own day in front."""
    parts = [part for _, part in absolute_sentences(atom.text, atom.time)]
    text = "".join(part for part in parts if part is not None)
    known = len(parts) == sum(part is not None for part in parts)
    if atom.time is not None and (not known or foreign(atom.text, STOP_WORDS)):
        text = f"(said on {_day_of(atom)}) {atom.text}"
    return f"{atom.speaker}: {text}" if atom.speaker else text


def claims_nothing_new(text: str, members: str) -> bool:
    """Return whether members say every number, name and day of a text, and none is relative."""
    days = {place[2:4] for place in dated_places(members, None)}
    return (
        all(fact in members for fact in _FACT.findall(text))
        and absolute(text, None) is not None
        and all(place[2:4] in days for place in dated_places(text, None))
    )
