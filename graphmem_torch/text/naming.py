"""Names: when two spellings are one name, and when a text shows that two names are one person's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from graphmem_torch.text.terms import GENERIC
from graphmem_torch.text.times import MONTHS

__all__ = [
    "Naming",
    "may_be_short_for",
    "name_parts",
    "namings",
    "plain_name",
    "word_uses",
]

_MARKED = re.compile(r"([a-z])[\u0300-\u036f]+")
_ARTICLE = re.compile(r"^(?:the\s+|an?\s+(?=[^\W\d_]))(?=\S)")
_POSSESSIVE = re.compile(r"(?<=\w)\s?'\s?s\b|(?<=s)'(?=\s|$)")
_INITIALS = re.compile(r"\b(?:[^\W\d_]\.)+(?:[^\W\d_]\b)?")
_PART = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+|[^\w\s.,;:!?()'\"\u2013\u2014-]+")

_NAME = r"[A-Z\u00c0-\u00d6\u00d8-\u00de][^\W\d_]+(?:['\u2019-][^\W\d_]+)*"
_GREETING = (
    r"(?:(?:hey|hi|hiya|hello|dear|thanks|thank you|thx|cheers|congrats|congratulations|wow|yeah"
    r"|yes|yep|no|nope|oh|ah|ok|okay|sure|sorry|bye|goodbye|welcome|well|absolutely|definitely"
    r"|totally|exactly|right)(?:\s+(?:again|so|very|much|a|lot|bunch|ton|there|you|my|dear))*"
    r"|(?:good|great|nice|happy|merry|well)\s+[a-z]+)"
)
_START = r"(?:^|[.!?\u2026:;]\s+|[\n\"\u201c]\s*)"
_END = r"(?=\s*(?:[,.!?\u2026;:]|$)|\s+[-\u2013\u2014(]|\n)"
# No one of a list: "Mel, Tom and I".
_ALONE = r"(?!,?\s+(?:and|or|&)\b)(?!,\s+[A-Z]\w+(?:,|\s+(?:and|or|&)\b))"
_ADDRESSES = (
    # "Hey Mel!", "Thanks so much, Mel.", "Good morning Mel, ..."
    re.compile(rf"(?:{_START}|,\s+)(?i:{_GREETING}),?\s+({_NAME}){_END}{_ALONE}"),
    # "Hi Mel how are you"
    re.compile(rf"{_START}(?i:hey|hi|hiya|hello|dear)\s+({_NAME})(?=\s+(?!and\b|or\b)[a-z])"),
    # "Mel, you ...", "Mel! ..."
    re.compile(rf"{_START}({_NAME}){_ALONE}(?:,(?=\s)|!|\?)"),
)
# "... so strong, Mel!", but not "with my friend, Mel."
_CLOSING = re.compile(rf"(?<=[a-z)'\u2019]),\s+({_NAME})(?=\s*[.!?\u2026]|\s*$)")
_SOMEBODY = re.compile(r"\b(?:my|his|her|our|their|your|an?|the)\s+(?:[a-z]+\s+){0,2}[a-z]+$")

_QUOTE = r"[\"'\u2018\u2019\u201c\u201d]"
_GIVEN = rf"{_QUOTE}?({_NAME}){_QUOTE}?"
_CLAIM = re.compile(
    rf"(?:\b(?i:can|please|just|to|may|could|always|everyone|everybody|people|friends?|family|they"
    rf"|and|but)\s+(?:just\s+|always\s+)?|{_START})(?i:calls?\s+me)\s+{_GIVEN}(?!\w)"
    rf"|\b(?i:i(?:\s+a|['\u2019])m called|i go by)\s+{_GIVEN}(?!\w)"
)
_INTRODUCED = re.compile(rf"\b(?i:name(?:\s+is|['\u2019]s)|i am|i['\u2019]m)\s+({_NAME})")
# Behind a full name: "Melanie (Mel)", 'Melanie "Mel" Brooks', "Melanie, known as Mel"
_BESIDE = re.compile(
    rf"\((?:(?i:aka|a\.k\.a\.|called|or|just)\s+)?{_GIVEN}\)|[\"\u201c]({_NAME})[\"\u201d]"
    rf"|\b(?i:known as|nicknamed|goes by|aka)\s+{_GIVEN}"
)
_BESIDES = "(", '"', "\u201c", "known as", "nicknamed", "goes by", "aka"
_FULL = re.compile(rf"((?:{_NAME}\s+)*{_NAME}),?\s+(?:(?i:also|better|who is|is|was)\s+){{0,3}}$")
_SURNAME = re.compile(rf"\s+({_NAME})")
_SHORT_FOR = re.compile(rf"{_GIVEN}\s*(?:,|\(|is|was|as)\s*(?i:short for)\s+{_GIVEN}")
_FOR_SHORT = re.compile(rf"({_NAME})\s*[,(]?\s*(?:(?i:or|called)\s+)?{_GIVEN} (?i:for short)\b")
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NO_NAMES = GENERIC | {*MONTHS, *_WEEKDAYS}

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_OWNER = re.compile(r"['\u2019]s?$")
_PLACED = re.compile(r"\b(?:in|at|near|across|around)$")
_LOOK = 16  # characters before a word that are looked at
_BACK = 80  # and before one that names somebody
_DIMINUTIVE = re.compile(r"(?:ie|ey|y|i)$")


@lru_cache(maxsize=1 << 16)
def name_parts(name: str) -> tuple[str, ...]:
    """Return the parts by which a name is told from others.

    Two names agree if they have the same parts in the same order. Case, hyphens, dots, an article
    in front, a possessive and marks on Latin letters make no difference; every letter, digit and
    other sign does.

    Args:
        name: A name in any script.

    Returns:
        Runs of letters, numbers (`3.10` is one), and runs of signs such as `+`, lower-cased.
    """
    text = unicodedata.normalize("NFC", name).lower().replace("\u2019", "'").replace("_", " ")
    text = _MARKED.sub(r"\1", unicodedata.normalize("NFD", text))
    text = unicodedata.normalize("NFC", text).strip()
    text = _POSSESSIVE.sub("", _ARTICLE.sub("", text)).replace("&", " and ")
    text = _INITIALS.sub(lambda run: f" {run[0].replace('.', '')} ", text)
    return tuple(_PART.findall(text.replace("'", ""))) or (name,)


def plain_name(name: str) -> str:
    """Return a name as a store has it: lower-cased, with single blanks."""
    return " ".join(name.lower().split())


class Naming(NamedTuple):
    """Two names of one person, as a text has them.

    Attributes:
        way: `address`: the text addresses somebody so; `claim`: its speaker says to be called so;
            `stated`: the text says that one name stands for the other.
        name: The name, lower-cased.
        full: The other one, lower-cased; empty: that of whom it addresses, or of its speaker.
    """

    way: str
    name: str
    full: str = ""


def namings(text: str, *, spoken: bool = True) -> list[Naming]:
    """Return what a text shows of names of persons; English forms alone are understood.

    Args:
        text: Of a memory.
        spoken: Whether somebody says it, so that it may address others.
    """
    found = dict[Naming, None]()
    for match in (m for pattern in _ADDRESSES if spoken for m in pattern.finditer(text)):
        if _is_name(match[1]):
            found[Naming("address", match[1].lower())] = None
    for match in _CLOSING.finditer(text) if spoken else ():
        before = text[max(0, match.start() - _BACK) : match.start()]
        if _is_name(match[1]) and not _SOMEBODY.search(before):
            found[Naming("address", match[1].lower())] = None
    # Most texts have none of these words, and are looked at no further.
    for match in _CLAIM.finditer(text) if _has(text, "call", "Call", "go by") else ():
        name = match[1] or match[2]
        full = next((m[1] for m in _INTRODUCED.finditer(text) if m[1] != name), "")
        if _is_name(name) and (not full or _is_name(full)):
            found[Naming("claim", name.lower(), full.lower())] = None
    for match in _BESIDE.finditer(text) if _has(text, *_BESIDES) else ():
        before = text[max(0, match.start() - _BACK) : match.start()]
        if (full_name := _FULL.search(before)) is not None:
            name = next(filter(None, match.groups()))
            found |= dict.fromkeys(_beside(name, full_name[1], _SURNAME.match(text, match.end())))
    for pattern, order in ((_SHORT_FOR, (1, 2)), (_FOR_SHORT, (2, 1))):
        for match in pattern.finditer(text) if _has(text, "short") else ():
            name, full = (match[place].lower() for place in order)
            if _is_name(match[1], match[2]) and name != full:
                found[Naming("stated", name, full)] = None
    return list(found)


def _beside(name: str, full: str, after: re.Match[str] | None) -> Iterator[Naming]:
    """What a name beside a full one shows: of whom a family name is told, only with that.

    Among many people "Ben" is not always Benjamin, but "Ben Carson" is Benjamin Carson.
    """
    words = full.split()
    while len(words) > 1 and words[0].lower() in GENERIC:  # "Then Melanie (Mel) came"
        del words[0]
    first, *family = words
    family += [] if after is None else [after[1]]
    if len(family) < 2 and _is_name(name, first) and may_be_short_for(name.lower(), first.lower()):
        one, other = (" ".join([each, *family]).lower() for each in (name, first))
        yield Naming("stated", one, other)


def may_be_short_for(short: str, full: str) -> bool:
    """Return whether a name is the beginning of another, up to a diminutive ending.

    "mel" of "melanie", "andy" of "andrew", "melanie" of "melanie smith".

    Args:
        short: A lower-cased word.
        full: One or several lower-cased words, of which the first is looked at.
    """
    first, *more = full.split()
    if short == first:
        return bool(more)
    stem = _DIMINUTIVE.sub("", short)
    if len(stem) > 3 and stem[-1] == stem[-2]:  # "sammy" of "samuel", "mell" of "melanie"
        stem = stem[:-1]
    if first.startswith(short):
        return len(short) > 1
    return len(stem) > 2 and stem != short and first.startswith(stem)


def word_uses(text: str) -> set[tuple[str, str]]:
    """Return the words of a text, lower-cased, and how each is used where it may be a name.

    Returns:
        Pairs of a word and `lower`: written small; `first`: with a capital that begins a sentence;
        `name`: with a capital elsewhere; `place`: so, and after "in", "at" or the like.
    """
    found = set[tuple[str, str]]()
    for match in _WORD.finditer(text):
        word = match[0]
        if word[-1] in "s'\u2019":
            word = _OWNER.sub("", word)
        if word[0].islower():
            found.add((word, "lower"))
            continue
        before = text[max(0, match.start() - _LOOK) : match.start()].rstrip(" \"'\u201c\u2018(")
        if not before or before[-1] in ".!?\u2026:;\n]":
            use = "first"
        else:
            owner = word != match[0]  # "in Mel's house"
            use = "name" if owner or not _PLACED.search(before) else "place"
        found.add((word.lower(), use))
    return found


def _has(text: str, *marks: str) -> bool:
    """Whether a text has one of some runs of letters."""
    return any(mark in text for mark in marks)


def _is_name(*words: str) -> bool:
    """Whether words may be names: none is written in capitals, is a day, or says little."""
    return not any(word.isupper() or word.lower() in _NO_NAMES for word in words)
