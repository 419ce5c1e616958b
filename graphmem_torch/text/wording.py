"""Wording: a text as the sequence of its words and signs, without what changes no meaning.

Two texts of one wording say the same. Whatever may tell two statements apart is kept, in its order:
every word, number, sign, path, emoji and question mark. What differs between two ways to write one
sentence is not: case, white space, punctuation around words, contractions, and greetings or
interjections at either end. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from graphmem_torch.text.terms import STOP_WORDS

__all__ = ["wording"]

_PLAIN = str.maketrans(
    dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
    | {"\u2014": " - ", "\u2026": "..."}
    # What shows nothing: soft hyphens, joints of width zero, how a sign is drawn.
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff\ufe0e\ufe0f", "")
)
_ASCII_MARKS = "!\"'(),.:;?[]{}"
_COUNTS = frozenset("%&@#*/\\-_\u00a7\u2030\u2032\u2033")  # marks that are no mere punctuation
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# Between words that nothing else parts ("rain,snow"), and not inside of numbers.
_PARTED = re.compile(r"(?<=[^\W\d])(?:[,;!?\"]+|\.{2,})(?=[^\W\d])")
_CODE = re.compile(r"[/\\_=]")  # what holds one is read by machines, which tell cases apart
_QUESTION = frozenset("?\uff1f\u061f")

_IRREGULAR = {
    "can't": "can not",
    "cannot": "can not",
    "won't": "will not",
    "shan't": "shall not",
    "let's": "let us",
    "n't": "not",
}
_SHORT = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will"}
_SHORTENED = re.compile(r"(?<=[a-z])(n't|'m|'re|'ve|'ll)$")
_PRONOUNS = "it he she that there here what who where when how"
_SUBJECTS = frozenset(_PRONOUNS.split())
_PERFECT = frozenset(("been", "got"))  # in front of these forms 's is "has"

_INTERJECTIONS = """
ah aha alright anyway anyways btw eh ha haha hahaha hehe hey hi hello hm hmm lol mhm mm oh ok okay
ooh so uh um well whoa wow yay yeah yep yes yup
"""
_FILLERS = frozenset(_INTERJECTIONS.split())
_SMALL = STOP_WORDS - _FILLERS
_PHRASES = frozenset(("by the way", "you know", "i mean", "you see"))
_GREETINGS = frozenset(("hi", "hello", "hey", "hiya", "greetings", "dear", "morning"))
_DAYTIMES = frozenset(("morning", "afternoon", "evening", "day"))
_EVERYBODY = "there again all everyone everybody guys folks team friend friends"
_ADDRESSED = frozenset(_EVERYBODY.split())
_NAMES = 2  # words of whoever is greeted


class _Token(NamedTuple):
    """A word or a sign.

    Attributes:
        form: As it is compared.
        named: Whether it begins with a capital letter.
        ends: Whether punctuation or a line break stands behind it.
    """

    form: str
    named: bool
    ends: bool


def wording(text: str) -> tuple[str, ...]:
    """The words and signs of a text in their order, as they are compared with those of another."""
    found = _contracted(_tokens(_GROUPED.sub(_ungrouped, _plain(text))))
    return tuple(token.form for token in _without_openings(found))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(_PLAIN)


def _ungrouped(match: re.Match[str]) -> str:
    """1,000 as 1000."""
    return match[0].replace(",", "")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    shouted = text.isupper()
    for line in text.split("\n"):
        for chunk in _PARTED.sub(lambda match: f"{match[0]} ", line).split():
            _read_chunk(chunk, shouted, found)
        if found:
            found[-1] = found[-1]._replace(ends=True)
    return found


def _read_chunk(chunk: str, shouted: bool, found: list[_Token]) -> None:
    """Appends what a run of characters without white space holds, punctuation around it aside."""
    begun = chunk.lstrip(_marks(chunk))
    if begun[:1].isdigit() and chunk.endswith(f".{begun}") and not chunk.endswith(f"..{begun}"):
        begun = f".{begun}"  # .5 is no 5
    core = begun.rstrip(_marks(chunk))
    before, behind = chunk[: len(chunk) - len(begun)], begun[len(core) :]
    alone = not core.strip("-")
    if (before or alone) and found:
        found[-1] = found[-1]._replace(ends=True)
    if not alone:
        after_number = bool(found) and found[-1].form[-1].isdigit()
        for part in _parts(core):
            form = _folded(part, shouted=shouted, unit=after_number)
            found.append(_Token(form, part[0].isupper(), bool(behind)))
            after_number = False
    elif core == "-" and not behind:  # a dash between words, or a minus that stands apart
        found.append(_Token("-", False, True))
    asks = not _QUESTION.isdisjoint(before + behind)
    if asks and not (found and found[-1].form == "?"):
        found.append(_Token("?", False, True))


def _marks(text: str) -> str:
    """The punctuation that may stand around the words of a text."""
    if text.isascii():
        return _ASCII_MARKS
    own = {character for character in text if unicodedata.category(character)[0] == "P"}
    return _ASCII_MARKS + "".join(own - _COUNTS)


def _parts(core: str) -> list[str]:
    """A word, with each pictogram in it by itself."""
    if core.isascii():
        return [core]
    parts: list[str] = []
    word = ""
    for character in core:
        joins = bool(parts) and not word and unicodedata.category(character) in ("Sk", "Cf", "Mn")
        if joins or (parts and not word and parts[-1].endswith("\u200d")):
            parts[-1] += character  # a colour of skin, or a picture of several
        elif unicodedata.category(character) == "So":
            parts += [word, character] if word else [character]
            word = ""
        else:
            word += character
    return [*parts, word] if word else parts


def _folded(word: str, *, shouted: bool, unit: bool) -> str:
    """A word in lower case, unless its case tells what it is."""
    if _CODE.search(word):
        return word
    if unit and len(word) < 4 and word.isalpha():
        # mW is no MW, and 5 m are no 5 M; "PM" is "pm".
        return word if len(word) == 1 or not (word.isupper() or word.islower()) else word.lower()
    lower = word.lower()
    if not shouted and len(word) > 1 and word.isupper() and lower in _SMALL:
        return word  # US, IT and WHO are no pronouns
    return lower


def _contracted(tokens: Sequence[_Token]) -> list[_Token]:
    """Tokens with contractions written out."""
    found: list[_Token] = []
    for place, token in enumerate(tokens):
        word = token.form
        if "'" in word or word in _IRREGULAR:
            following = tokens[place + 1].form if place + 1 < len(tokens) else ""
            *before, word = _written_out(word, following).split()
            found += [_Token(part, token.named, False) for part in before]
        found.append(token._replace(form=word))
    return found


def _written_out(word: str, following: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    subject = word.removesuffix("'s")
    if subject != word and subject in _SUBJECTS:
        return f"{subject} {'has' if following in _PERFECT else 'is'}"
    return _SHORTENED.sub(lambda match: _SHORT[match[0]], word)


def _without_openings(tokens: list[_Token]) -> list[_Token]:
    """Tokens without greetings and interjections in front, and interjections at the end."""
    behind = [*tokens[1:], None]
    # A dash alone is punctuation, unless a number stands behind it.
    left = [
        token
        for token, other in zip(tokens, behind, strict=False)
        if token.form != "-" or (other is not None and other.form[0].isdigit())
    ]
    while left:
        size = next((i for i, token in enumerate(left, 1) if token.ends), len(left))
        if size == len(left) or not (_is_filler(left[:size]) or _is_greeting(left[:size])):
            break
        left = left[size:]
    while left:
        size = next((i for i, token in enumerate(left[-2::-1], 1) if token.ends), len(left))
        if size == len(left) or not _is_filler(left[-size:]):
            break
        left = left[:-size]
    return left


def _is_filler(tokens: Sequence[_Token]) -> bool:
    words = [token.form for token in tokens]
    return all(word in _FILLERS for word in words) or " ".join(words) in _PHRASES


def _is_greeting(tokens: Sequence[_Token]) -> bool:
    words, named = [token.form for token in tokens], [token.named for token in tokens]
    begun = 2 if words[0] == "good" and words[1:2] and words[1] in _DAYTIMES else 0
    begun = begun or int(words[0] in _GREETINGS)
    rest = zip(words[begun:], named[begun:], strict=True)
    return (
        begun > 0
        and len(words) <= begun + _NAMES
        and all(word in _ADDRESSED or capital for word, capital in rest)
    )
