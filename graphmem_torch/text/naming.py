"""Decide whether two spellings are one name, and whether two names are one person's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.terms import GENERIC
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.unicode_forms import composed, visible

__all__ = [
    "Naming",
    "are_alike",
    "articled",
    "may_be_short_for",
    "name_parts",
    "namings",
    "persons",
    "plain_name",
    "thanks",
    "word_uses",
]

_MARKED = lazy_pattern(r"([a-z])[\u0300-\u036f]+")
# "a", "an" and, before one word, "the" may be part of a name: "An Nguyen", "The Edge".
_ARTICLE = lazy_pattern(r"^the\s+(?=\S+\s+\S)")
_POSSESSIVE = lazy_pattern(r"(?<=\w)\s?'\s?s\b|(?<=s)'(?=\s|$)")
_INITIALS = lazy_pattern(r"\b(?:[^\W\d_]\.)+(?:[^\W\d_]\b)?")
_PART = lazy_pattern(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+|[^\w\s.,;:!?()'\"\u2013\u2014-]+")

_NAME = r"[A-Z\u00c0-\u00d6\u00d8-\u00de][^\W\d_]+(?:['\u2019-][^\W\d_]+)*"
_GREETING = (
    r"(?:(?:hey|hi|hiya|hello|dear|thanks|thank you|thx|cheers|congrats|congratulations|wow|yeah"
    r"|yes|yep|no|nope|oh|ah|ok|okay|sure|sorry|bye|goodbye|welcome|well|absolutely|definitely"
    r"|totally|exactly|right)(?:\s+(?:again|so|very|much|a|lot|bunch|ton|there|you|my|dear))*"
    r"|(?:good|great|nice|happy|merry|well)\s+[a-z]+)"
)
_START = r"(?:^|[.!?\u2026:;]\s+|[\n\"\u201c]\s*)"
_END = r"(?=\s*(?:[,.!?\u2026;:]|$)|\s+[-\u2013\u2014(]|\n)"
# Not in a list: "Mel, Tom and I".
_ALONE = r"(?!,?\s+(?:and|or|&)\b)(?!,\s+[A-Z]\w+(?:,|\s+(?:and|or|&)\b))"
_ADDRESSES = (
    # "Hey Mel!", "Thanks so much, Mel.", "Good morning Mel, ..."
    lazy_pattern(rf"(?:{_START}|,\s+)(?i:{_GREETING}),?\s+({_NAME}){_END}{_ALONE}"),
    # "Hi Mel how are you"
    lazy_pattern(rf"{_START}(?i:hey|hi|hiya|hello|dear)\s+({_NAME})(?=\s+(?!and\b|or\b)[a-z])"),
    # "Mel, you ...", "Mel! ..."
    lazy_pattern(rf"{_START}({_NAME}){_ALONE}(?:,(?=\s)|!|\?)"),
)
# "... so strong, Mel!", but not "with my friend, Mel."
_CLOSING = lazy_pattern(rf"(?<=[a-z)'\u2019]),\s+({_NAME})(?=\s*[.!?\u2026]|\s*$)")
_SOMEBODY = lazy_pattern(r"\b(?:my|his|her|our|their|your|an?|the)\s+(?:[a-z]+\s+){0,2}[a-z]+$")

_QUOTE = r"[\"'\u2018\u2019\u201c\u201d]"
_GIVEN = rf"{_QUOTE}?({_NAME}){_QUOTE}?"
_WHOLE = r"(?!\w)(?!\s+[A-Z]\w)"  # no further word of a name after it: "Trouble Maker"
_CLAIM = lazy_pattern(
    rf"(?:\b(?i:can|please|just|to|may|could|always|everyone|everybody|people|friends?|family|they"
    rf"|and|but)\s+(?:just\s+|always\s+)?|{_START})(?i:calls?\s+me)\s+{_GIVEN}{_WHOLE}"
    rf"|\b(?i:i(?:\s+a|['\u2019])m called|i go by)\s+{_GIVEN}{_WHOLE}"
)
_INTRODUCED = lazy_pattern(rf"\b(?i:my name(?:\s+is|['\u2019]s)|(i am|i['\u2019]m))\s+({_NAME})")
# After a full name: "Melanie (Mel)", 'Melanie "Mel" Brooks', "Melanie, known as Mel"
_BESIDE = lazy_pattern(
    rf"\((?:(?i:aka|a\.k\.a\.|called|or|just)\s+)?{_GIVEN}\)|[\"\u201c]({_NAME})[\"\u201d]"
    rf"|\b(?i:known as|nicknamed|goes by|aka)\s+{_GIVEN}"
)
_BESIDES = "(", '"', "\u201c", "known as", "nicknamed", "goes by", "aka"
_FULL = lazy_pattern(rf"((?:{_NAME}\s+)*{_NAME}),?\s+(?:(?i:also|better|who is|is|was)\s+){{0,3}}$")
_SURNAME = lazy_pattern(rf"\s+({_NAME})")
_SHORT_FOR = lazy_pattern(rf"{_GIVEN}\s*(?:,|\(|is|was|as)\s*(?i:short for)\s+{_GIVEN}")
_FOR_SHORT = lazy_pattern(rf"({_NAME})\s*[,(]?\s*(?:(?i:or|called)\s+)?{_GIVEN} (?i:for short)\b")
_LAST = lazy_pattern(rf"({_NAME})\s+$")

# Signs that a sentence does not assert a fact of its speaker.
_UNSURE = lazy_pattern(
    r"\b(?:not|never|no|nobody|none|neither|nor|without|cannot|refuses?|stop|hates?|if|unless"
    r"|whether|wish(?:es)?|hopes?|suppose|imagine|pretend|would|could|might|maybe|perhaps|almost"
    r"|wrong(?:ly)?|mistakenly|used to|jok(?:e|ingly)|kidding)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_REPORTED = lazy_pattern(
    r"\b(?<!you )(?:thinks?|thought|sa(?:id|ys?|ying)|tells?|told|asks?|asked|claim(?:s|ed)"
    r"|believes?|believed|guess(?:es|ed)?|hear(?:s|d)?|yell(?:s|ed)|shout(?:s|ed)|wrote|writes"
    r"|text(?:s|ed)|repl(?:ies|ied)|whispers?|whispered|cried|s[aiu]ngs?|singing|reads"
    r"|according to|quote)\b",
    re.IGNORECASE,
)
_TAKEN_BACK = lazy_pattern(
    r"\s*(?:(?:he|she|they|that|this|it|which)(?:\s+(?:is|was|are|were)|['\u2019](?:s|re))\s+"
    r"(?:\w+\s+)?(?:wrong|false|untrue|not|nonsense|a\s+(?:joke|lie))|(?:just\s+)?kidding|not?\b"
    r"|wrong)",
    re.IGNORECASE,
)
_BREAK = lazy_pattern(r"[.!?\u2026]+[\"'\u201d\u2019)]*\s+|\n")
_END_OF_SENTENCE = lazy_pattern(r"\s*[.!?\u2026]")
_YOU = lazy_pattern(r"(?<!thank )(?<!see )\b(?:you|yours?|ya)\b", re.IGNORECASE)
_THANKS = lazy_pattern(r"\b(?:thanks|thank you|thx)\b", re.IGNORECASE)

# Nicknames without the letters of the name.
_NICKNAMES = {
    *("bob robert", "bobby robert", "bill william", "billy william", "dick richard", "jack john"),
    *("peggy margaret", "meg margaret", "molly mary", "polly mary", "ted edward", "ned edward"),
    *("ted theodore", "chuck charles", "hank henry", "harry henry", "jim james", "jimmy james"),
    *("kate catherine", "kitty katherine", "betsy elizabeth", "bess elizabeth", "sally sarah"),
    *("nancy anne", "nell helen", "nelly eleanor", "fanny frances", "tony anthony", "rex reginald"),
}
_KIN = (
    r"brother|sister|mother|mom|mum|father|dad|son|daughter|uncle|aunt|cousin|nephew|niece"
    r"|grand(?:ma|pa|mother|father|son|daughter)|friend|colleague|neighbou?r|husband|wife"
    r"|boyfriend|girlfriend|fianc[e\u00e9]e?|boss|teacher|mr\.?|mrs\.?|ms\.?|dr\.?"
)
_PERSON = lazy_pattern(
    rf"\b(?i:{_KIN}|met|told|asked|married|hugged|thanked|kissed|phoned),?\s+({_NAME})"
    rf"|({_NAME})\s+(?:and I\b|(?:said|says|told|tells|asked|asks|thinks|thought|laughed|smiled"
    r"|met|married|knows|loves|lives|wrote|phoned|cried|works|(?:is|was) my)\b)"
)
# A lower-case article, which belongs to no name: "we saw the Edge".
_SMALL_ARTICLE = lazy_pattern(rf"\bthe\s+({_NAME})(?!\w)(?!\s+[A-Z]\w)")
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NO_NAMES = GENERIC | {*MONTHS, *_WEEKDAYS}

_WORD = lazy_pattern(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_OWNER = lazy_pattern(r"['\u2019]s?$")
_PLACED = lazy_pattern(r"\b(?:in|at|near|across|around)$")
_LOOK = 16  # characters before a word that are read
_BACK = 80  # characters before a name that are read
_DIMINUTIVE = lazy_pattern(r"(?:ie|ey|y|i)$")


@lru_cache(maxsize=1 << 16)
def name_parts(name: str) -> tuple[str, ...]:
    """Return the parts that identify a name.

    Two names agree if they have equal parts in the same order. Ignored are case, hyphens, dots,
    "the" before several words, a possessive and marks on Latin letters; all else counts.

    Args:
        name: Name in any script.

    Returns:
        Lower-cased runs of letters, numbers (`3.10` is one), and runs of signs such as `+`.
    """
    if name.isascii() and name.replace(" ", "").isalpha():  # most names
        words = name.lower().split()
        return tuple(words[1:] if len(words) > 2 and words[0] == "the" else words)
    text = unicodedata.normalize("NFC", name).lower().replace("\u2019", "'").replace("_", " ")
    text = _MARKED.sub(r"\1", unicodedata.normalize("NFD", text))
    text = unicodedata.normalize("NFC", text).strip()
    text = _POSSESSIVE.sub("", _ARTICLE.sub("", text)).replace("&", " and ")
    text = _INITIALS.sub(lambda run: f" {run[0].replace('.', '')} ", text)
    return tuple(_PART.findall(text.replace("'", ""))) or (name,)


def plain_name(name: str) -> str:
    """Return a name in its stored form: lower-cased, in NFC, with single blanks."""
    return " ".join(visible(composed(name)).lower().split())


class Naming(NamedTuple):
    """Evidence in a text that two names are one person's.

    Attributes:
        way: `address`: the text addresses somebody by it. `claim`: its speaker claims it. `stated`:
            the text equates the two names.
        name: Name, lower-cased.
        full: Other name, lower-cased; empty for the name of the addressed or of the speaker.
        direct: Whether an address comes with a "you".
    """

    way: str
    name: str
    full: str = ""
    direct: bool = False


def namings(text: str, *, spoken: bool = True) -> list[Naming]:
    """Return the evidence in a text for names of persons; reads English forms only.

    Args:
        text: Text of a memory.
        spoken: Whether somebody says the text, so that it may address others.
    """
    found = dict[Naming, None]()
    for match in _calls(text) if spoken else ():
        direct = _directed(text, match)
        if _is_name(match[1]) and direct is not None:
            found[Naming("address", match[1].lower(), direct=direct)] = None
    # Most texts have none of these words and need no further search.
    for match in _CLAIM.finditer(text) if _has(text, "call", "Call", "go by") else ():
        name = match[1] or match[2]
        full = _introduced(text, name)
        if _is_name(name, *filter(None, [full])) and _is_asserted(text, match):
            found[Naming("claim", name.lower(), full.lower())] = None
    for match in _BESIDE.finditer(text) if _has(text, *_BESIDES) else ():
        before = text[max(0, match.start() - _BACK) : match.start()]
        plain = match[3] is None or _is_asserted(text, match)
        if plain and (full_name := _FULL.search(before)) is not None:
            name = next(filter(None, match.groups()))
            found |= dict.fromkeys(_beside(name, full_name[1], _SURNAME.match(text, match.end())))
    for pattern, order in ((_SHORT_FOR, (1, 2)), (_FOR_SHORT, (2, 1))):
        for match in pattern.finditer(text) if _has(text, "short") else ():
            name, full = (match[place].lower() for place in order)
            whole = _is_whole(text, match) and _is_asserted(text, match)
            if whole and _is_name(match[1], match[2]) and name != full:
                found[Naming("stated", name, full)] = None
    return list(found)


def _calls(text: str) -> Iterator[re.Match[str]]:
    """Yield the places where a text may address somebody, by the first group."""
    for pattern in _ADDRESSES:
        yield from pattern.finditer(text)
    for match in _CLOSING.finditer(text):
        if not _SOMEBODY.search(text[max(0, match.start() - _BACK) : match.start()]):
            yield match


def _directed(text: str, match: re.Match[str]) -> bool | None:
    """Return whether a possible address comes with a "you"; None if it is not an address.

    An address is in the first sentence of a turn, or comes with a "you" or with thanks. It is not
    in quoted or reported speech.
    """
    begin, end = _sentence(text, match)
    if _is_quoted(text, match.start(1)) or _REPORTED.search(text, begin, match.start(1)):
        return None
    if _END_OF_SENTENCE.match(text, match.end(1)):  # "Hey Mel! How is your class?"
        following = _BREAK.search(text, end)
        end = len(text) if following is None else following.end()
    direct = _YOU.search(text, begin, end) is not None
    first = begin == 0
    return direct if first or direct or _THANKS.search(text, begin, match.end(1)) else None


def _is_asserted(text: str, match: re.Match[str]) -> bool:
    """Return whether a sentence asserts something: not denied, asked, wished or reported."""
    begin, end = _sentence(text, match)
    return not (
        _UNSURE.search(text, begin, end)
        or "?" in text[begin:end]
        or _REPORTED.search(text, begin, match.end())
        or _is_quoted(text, match.start() + 1)
        or _TAKEN_BACK.match(text, end)
    )


def _sentence(text: str, match: re.Match[str]) -> tuple[int, int]:
    """Return the begin and end of the sentence of a match's last group."""
    place = match.start(match.lastindex or 0)
    begin = max((each.end() for each in _BREAK.finditer(text, 0, place)), default=0)
    after = _BREAK.search(text, place)
    return begin, len(text) if after is None else after.end()


def _is_quoted(text: str, place: int) -> bool:
    """Return whether a quotation is open at a place."""
    before = text[:place]
    return before.count('"') % 2 == 1 or before.count("\u201c") > before.count("\u201d")


def _introduced(text: str, name: str) -> str:
    """Return the name a speaker introduces themself by, other than the nickname; empty: none."""
    for match in _INTRODUCED.finditer(text):
        # "I'm German" gives none.
        sure = match[1] is None or may_be_short_for(name.lower(), match[2].lower())
        if match[2] != name and sure:
            return match[2]
    return ""


def _is_whole(text: str, match: re.Match[str]) -> bool:
    """Return whether no further word of a name stands before or after a match."""
    before = _LAST.search(text[max(0, match.start() - _BACK) : match.start()])
    more = before is not None and before[1].lower() not in GENERIC
    return not more and _SURNAME.match(text, match.end()) is None


def _beside(name: str, full: str, after: re.Match[str] | None) -> Iterator[Naming]:
    """Yield the evidence of a name beside a full one; with a known family name, it is included.

    In a large group "Ben" is not always Benjamin, but "Ben Carson" is Benjamin Carson.
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
        short: Lower-cased word.
        full: One or several lower-cased words; the first is compared.
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


def are_alike(one: str, other: str) -> bool:
    """Return whether either of two lower-cased names may be a nickname of the other.

    Tested by beginning (`may_be_short_for`), by letters within ("liz" of "elizabeth"), and by a
    list.
    """
    if may_be_short_for(one, other) or may_be_short_for(other, one):
        return True
    short, full = sorted((one, other), key=len)
    return (len(short) > 2 and short in full.split()[0]) or f"{short} {full}" in _NICKNAMES


def articled(text: str) -> set[str]:
    """Return the one-word names, lower-cased, that follow a lower-case "the" in a text."""
    if "the" not in text:
        return set()
    return {match[1].lower() for match in _SMALL_ARTICLE.finditer(text)}


def persons(text: str) -> set[str]:
    """Return the words, lower-cased, that a text uses as names of persons."""
    return {(match[1] or match[2]).lower() for match in _PERSON.finditer(text)}


def thanks(text: str) -> bool:
    """Return whether a text thanks somebody."""
    return _THANKS.search(text) is not None


def word_uses(text: str) -> set[tuple[str, str]]:
    """Return the words of a text, lower-cased, with their uses that distinguish names.

    Returns:
        Pairs of a word and its use. `lower`: in lower case; `first`: capitalised at the beginning
        of a sentence; `name`: capitalised elsewhere; `place`: capitalised after "in", "at" or the
        like.
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
    """Return whether a text contains one of some strings."""
    return any(mark in text for mark in marks)


def _is_name(*words: str) -> bool:
    """Return whether words may be names: none in all capitals, a weekday, month or generic."""
    return not any(word.isupper() or word.lower() in _NO_NAMES for word in words)
