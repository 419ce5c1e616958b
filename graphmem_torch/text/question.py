"""Read a question: its names, months and days, and whether it asks for a time or an order.

Names are found in any script. Words for times and for earlier statements are English; in other
languages the functions return false, and their signals are silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.terms import stemmed, terms
from graphmem_torch.text.times import MONTHS, undated
from graphmem_torch.text.words import lowered, pairs, script_language, words

__all__ = [
    "LINK",
    "QUESTION_MARKS",
    "Succession",
    "asks",
    "asks_order",
    "asks_succession",
    "asks_when",
    "is_question",
    "looks_back",
    "name_words",
    "named_dates",
    "named_speakers",
    "order_terms",
    "proper_words",
    "recalls",
    "role_of",
    "tells_time",
    "value_terms",
    "without_links",
]

QUESTION_MARKS = ("?", "？", "؟", "⁇", "⁈")
"""Question marks of all scripts that end a sentence."""
LINK = lazy_pattern(r"(?:\b[a-z][a-z+.-]*://|\bwww\.)\S+", re.IGNORECASE)
"""Pattern of a web address, which counts as no words."""
# A mark that ends a question, including the Greek, Armenian and Ethiopic ones.
_ASKS = lazy_pattern(
    r"(?<=[^\W_])[\"'\u201d\u2019\u00bb)\]\u2026.!]*\s?[?\u2047\u2048\u2049\u203d](?![^\W_A-Z]|[=&%/])"
    r"|[\uff1f\u061f\u055e\u1367\ua60f\u2e2e]|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e](?=\s|$)"
)
# Quoted text and asides, which ask nobody.
_BESIDE_WORDS = lazy_pattern(r"`[^`]*`|\[[^\[\]]*\]")
_ASIDE = lazy_pattern(
    r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb"
    r"|\u300c[^\u300d]*\u300d|\u300e[^\u300f]*\u300f|\([^()]*\)|\uff08[^\uff09]*\uff09"
    r"|(?<!\w)['\u2018][^'\u2019\n]*['\u2019](?!\w)"
)
_ENDED = (".", "!", "?", "\u2026", ":\n", *"\uff1f\u061f\u3002\uff01")
_WORD = lazy_pattern(r"[^\W_]+")
_DAY = lazy_pattern(r"\b(\d{1,2})(?:st|nd|rd|th)?\b")
_WHEN = lazy_pattern(
    r"\b(?:when|how long|how recently|(?:what|which) (?:date|day|week|month|year|time))\b",
    re.IGNORECASE,
)
_TIME = lazy_pattern(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|morning|since|recently|weekend"
    r"|(?:week|month|year)s?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|\d{4}|"
    + "|".join(month for month in MONTHS if month not in ("march", "may"))
    + r")\b",
    re.IGNORECASE,
)
# "may" and "march" are ordinary words; they are months beside a day or after such a word.
_MARCH_OR_MAY = lazy_pattern(
    r"\b(?:in|on|of|since|until|by|before|after|late|early|this|\d{1,2}(?:st|nd|rd|th)?)"
    r" (?:March|May)\b"
    r"|\b(?:March|May),? \d"
)

_EARLIEST = lazy_pattern(
    r"\b(?:(?<!at )first(?![ -](?:names?|aid|places?|prizes?|floors?|class|grades?|person|hand"
    r"|languages?|lady|responders?|sight|and foremost|of all)\b)"
    r"|earliest|oldest|initially|originally|since when)\b",
    re.IGNORECASE,
)
_LATEST = lazy_pattern(
    r"\b(?:latest|newest|most recent(?:ly)?|current(?:ly)?|nowadays|these days"
    r"|(?<!at )last(?! (?:names?|resort|minute|straw|words?|long(?:er)?|forever|for|until"
    r"|(?:\w+ )?(?:day|night|week|weekend|month|year|spring|summer|fall|autumn|winter)s?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|" + "|".join(MONTHS) + r")\b))\b",
    re.IGNORECASE,
)
# "How long did it last?"
_LASTS = lazy_pattern(
    r"\b(?:did|does|do|will|would|can|could|to|must)\b[^?]*\blasts?\W*$", re.IGNORECASE
)
# "Which was first, the trip or the concert?": both are needed to compare them.
_COMPARES = lazy_pattern(
    r"\b(?:which|who|what)\b[^?]*\b(?:first|earliest|last|latest|most recent(?:ly)?)[,:]"
    r"[^?]*\bor\b"
    r"|\b(?:did|was|were|is|are)\b[^?]*\bor\b[^?]*\b(?:first|last)\W*$",
    re.IGNORECASE,
)
_RECALLS = lazy_pattern(
    r"\b(?:remind me|(?:did|have) you|you (?:\w+ )?(?:said|told|mentioned|suggested|recommended"
    r"|gave|wrote|advised|explained|listed|provided|named|described)"
    r"|(?:our|my|the|a) (?:last|previous|earlier|past) (?:chat|conversation|discussion|session))\b",
    re.IGNORECASE,
)
_BACK = lazy_pattern(
    r"\b(?:was|were|did|had|used to|before|previous(?:ly)?|former(?:ly)?|earlier|original(?:ly)?"
    r"|initial(?:ly)?|at first|back then|in the past)\b",
    re.IGNORECASE,
)
_NOW = lazy_pattern(
    r"\b(?:now|current(?:ly)?|today|these days|at the moment|at present|latest|most recent(?:ly)?"
    r"|up to date|still)\b",
    re.IGNORECASE,
)
# Words of no value: "the day before the race" is a day, and "looks after a dog" orders nothing.
_DAYS_OFF = (
    r"(?:day|night|morning|evening|weekend|week|month|year|hour|minute|(?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)day)s?"
)
_BESIDE = lazy_pattern(
    rf"(?<!\w)(?P<days>{_DAYS_OFF} )?"
    r"(?:(?P<before>before(?! long\b)|prior to|preceding)|(?P<after>"
    r"(?<!look )(?<!looks )(?<!looked )(?<!looking )(?<!named )after|following|instead of"
    r"|in place of|replaced|took over from)) (?P<of>[^?!;]+)",
    re.IGNORECASE,
)
_IN_FORCE = lazy_pattern(
    r"\b(?:current|present|newest|latest)\b|^(?:now|this|that|the new)(?: one)?$", re.IGNORECASE
)
_FORMERLY = lazy_pattern(
    r"\b(?:(?<!is )(?<!are )(?<!be )used to|did .*\buse to|previous(?:ly)?|former(?:ly)?|ex(?=-)"
    r"|before(?=\W*$))\b",
    re.IGNORECASE,
)
_PROPER = lazy_pattern(r"\b(?:[A-Z]\w+|\d[\w.,]*\w|\d)")
_BEGUN = lazy_pattern(r"^\w+ing (?:(?:to|for|at|in|into|on|as|an?|the) )*(?=\w)")
_AT_FIRST = lazy_pattern(
    r"\b(?:original(?:ly)?|initial(?:ly)?|at first|to begin with|earliest|oldest"
    r"|(?:the|his|her|its|their|my|our|your|'s) (?:very )?first)\b",
    re.IGNORECASE,
)
_USERS = frozenset({"user", "human"})
_ASSISTANTS = frozenset({"assistant", "ai", "bot", "chatbot", "model", "system", "tool"})


def role_of(speaker: str | None) -> int:
    """Return 1 for the name of a user, -1 for that of an assistant as chats call them, else 0."""
    name = (speaker or "").strip().lower()
    return int(name in _USERS) - int(name in _ASSISTANTS)


def recalls(questions: Sequence[str]) -> Tensor:
    """Return [B] bool: whether each question asks for an assistant's words; English only."""
    return torch.tensor([_RECALLS.search(q) is not None for q in questions], dtype=torch.bool)


def looks_back(questions: Sequence[str]) -> Tensor:
    """Return [B] bool: whether each question asks for the past, not the present; English only."""
    found = [_BACK.search(q) is not None and _NOW.search(q) is None for q in questions]
    return torch.tensor(found, dtype=torch.bool)


def asks_when(questions: Sequence[str]) -> Tensor:
    """Return [B] bool: whether each question asks for a time."""
    return torch.tensor([_WHEN.search(q) is not None for q in questions], dtype=torch.bool)


def asks_order(question: str) -> Literal["relevance", "first", "latest"]:
    """Return whether English words ask for what came `first` or `latest`, else `relevance`.

    The words of a date ("the first weekend of August") do not order. A comparison of two things
    ("which was first, A or B?") needs both. A question for an assistant's words "last time" needs
    them, whenever they were said.
    """
    if _COMPARES.search(question) or _RECALLS.search(question):
        return "relevance"
    if _EARLIEST.search(question) or _LATEST.search(question):
        question = undated(question)
    early, late = _EARLIEST.search(question), _LATEST.search(question)
    late = None if _LASTS.search(question) else late
    if (early is None) == (late is None):
        return "relevance"
    return "first" if late is None else "latest"


def order_terms(question: str) -> list[str]:
    """Return the terms of a question without those of dates and of an order."""
    return terms(_LATEST.sub(" ", _EARLIEST.sub(" ", undated(question))))


class Succession(NamedTuple):
    """Position of the requested value in a sequence of values.

    Attributes:
        way: `before` or `after` the value `of`, or the `first`.
        of: Words of the other value; empty for the current one.
    """

    way: Literal["before", "after", "first"]
    of: str


def asks_succession(question: str) -> Succession | None:
    """Return the requested value in a sequence, by English words; None without one.

    Examples are "Where did she live before Oslo?", "What came after the Volvo?", "Where did he use
    to work?", "What was it originally?". Dates and earlier words of an assistant are not values.
    """
    if _RECALLS.search(question):
        return None
    beside = _BESIDE.search(question)
    if beside is not None and beside["days"]:
        return None
    if beside is not None and terms(of := undated(beside["of"]).strip(" .,")):
        if not _IN_FORCE.search(of):
            return Succession("before" if beside["before"] else "after", of)
        return Succession("before", "") if beside["before"] else None
    if beside is None and _FORMERLY.search(question):
        return Succession("before", "")
    return Succession("first", "") if beside is None and _AT_FIRST.search(question) else None


def value_terms(of: str) -> list[str]:
    """Return the distinct terms of the value that some words name.

    These are its names and numbers if it has any, otherwise all terms without the verb of the
    change, as in "switching to chai".
    """
    proper = terms(" ".join(proper_words(of)))
    return list(dict.fromkeys(proper or terms(_BEGUN.sub("", of)) or terms(of)))


def proper_words(text: str) -> list[str]:
    """Return the capitalised words and the numbers."""
    return _PROPER.findall(text)


def tells_time(text: str) -> bool:
    """Return whether the text mentions a time: a weekday, month, year, span, or "yesterday"."""
    return _TIME.search(text) is not None or _MARCH_OR_MAY.search(text) is not None


def is_question(text: str) -> bool:
    """Return whether the text ends with a question, ignoring a caption in brackets after it."""
    text = text.rstrip()
    if text.endswith("]"):
        text = text.rpartition("[")[0].rstrip()
    return text.endswith(QUESTION_MARKS)


def without_links(text: str) -> str:
    """Return a text with a blank for each web address."""
    linked = "://" in text or "www." in text.lower()  # the pattern is slow
    return LINK.sub(" ", text) if linked else text


def asks(text: str) -> bool:
    """Return whether any sentence of a text asks, in any script with a question mark.

    Quotations and brackets beside other words of a sentence do not ask ("She said 'who?' and
    left."), nor do links, code and captions.
    """
    if "?" not in text and text.isascii():
        return False
    text = _BESIDE_WORDS.sub(" ", without_links(text))
    return _ASKS.search(_ASIDE.sub(lambda aside: _shown(text, aside), text)) is not None


def _shown(text: str, aside: re.Match[str]) -> str:
    """Return quoted or bracketed text if it is a sentence of its own, else a placeholder."""
    before, after = text[: aside.start()].rstrip(" "), text[aside.end() :].lstrip(" ")
    own = not before or before.endswith((*_ENDED, "\n"))
    follows = after[:1]
    goes_on = follows.islower() or follows in (",", ";", ":", "-", "\u2013", "\u2014")
    # "Have you read it (or not)?" asks with its own mark.
    return f" {aside[0][1:-1]} " if own and not goes_on else " x "


def named_dates(questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return [B, 12] and [B, 31] bool: the months and days that each question names.

    "may" counts as a month only if it is capitalised and not the first word.
    """
    months = torch.zeros(len(questions), 12, dtype=torch.bool)
    days = torch.zeros(len(questions), 31, dtype=torch.bool)
    for row, question in enumerate(questions):
        words = _WORD.findall(question)
        for place, word in enumerate(words):
            if word.lower() in MONTHS and (word.lower() != "may" or (word == "May" and place > 0)):
                months[row, MONTHS.index(word.lower())] = True
        if months[row].any():
            for day in _DAY.findall(question):
                if 1 <= int(day) <= 31:
                    days[row, int(day) - 1] = True
    return months, days


def named_speakers(
    questions: Sequence[str], speakers: Mapping[str, Sequence[int]], count: int
) -> Tensor:
    """Return [B, count] bool: the speakers that each question names.

    Args:
        questions: B questions.
        speakers: For each name word (`name_words`), the speakers of that name.
        count: Number of speakers.
    """
    named = torch.zeros(len(questions), count, dtype=torch.bool)
    spaceless = [name for name in speakers if len(name) > 1 and pairs(name)]
    for row, question in enumerate(questions):
        for word in name_words(question):
            for speaker in speakers.get(word, ()):
                named[row, speaker] = True
            if spaceless and pairs(word):
                for name in spaceless:
                    if name in word:
                        named[row, speakers[name]] = True
    return named


def name_words(text: str) -> list[str]:
    """Return the words of a name or a question for looking up names: "mary_jane" is two.

    Names of other alphabets are inflected, and are looked up by their stems.
    """
    found = [part for word in words(lowered(text)) for part in word.split("'")]
    return [part if script_language(part) == "english" else stemmed(part) for part in found]
