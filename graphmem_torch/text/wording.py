"""Wording: the words and signs of a text, without differences that change no meaning.

Two texts of one wording say the same. Kept, in order, is everything that may distinguish two
statements: words, numbers, signs, paths, emoji, emoticons, question marks, the case of codes, the
commas around a negation and the answer to a question. Dropped are differences of style: case of
plain words, white space, punctuation around words, contractions, and greetings or interjections at
either end. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.terms import STOP_WORDS

__all__ = ["wording"]

_PLAIN = str.maketrans(
    dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
    | {"\u2014": " - ", "\u2026": "..."}
    # Invisible characters: soft hyphens, zero-width joiners, variation selectors.
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff\ufe0e\ufe0f", "")
)
_ASCII_MARKS = "!\"'(),.:;?[]{}"
_COUNTS = frozenset("%&@#*/\\-_\u00a7\u2030\u2032\u2033")  # marks that are more than punctuation
_GROUPED = lazy_pattern(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# Between words that nothing else separates ("rain,snow"), and not inside numbers.
_PARTED = lazy_pattern(r"(?<=[^\W\d])(?:[,;!?\"]+|\.{2,})(?=[^\W\d])")
# Case counts in what machines read: paths, letters with digits, and capitals inside a word.
_CODE = lazy_pattern(r"[/\\_=]|^\.")
_LETTER, _DIGIT = lazy_pattern(r"[^\W\d_]"), lazy_pattern(r"\d")
_COUNTED = lazy_pattern(r"[\d.,:]+(?:am|pm|st|nd|rd|th)", re.IGNORECASE)  # 5PM is 5pm
_SECRETS = frozenset(("login", "passcode", "passphrase", "password", "passwords", "username"))
_EMPTY = lazy_pattern(r"(?:\(\)|\[\]|\{\})+")  # f() is no f
# Marks that begin a word and belong to it: .env, ./a, ../a, !x, :x
_LEADING = lazy_pattern(r"(?:(?<!\.)\.{1,2}(?=[/\\])|(?<!\.)\.(?=\w)|[!:](?=\w))")
_QUOTE = lazy_pattern(r"['\"]")
_NUMBER = lazy_pattern(r"(?:^|[^\w.,/])[\d.,/]*\d$")
_DIGITS = 24  # digits of a number before a quotation mark
_PRIMES = {"'": "\u2032", '"': "\u2033"}
_FACE = lazy_pattern(
    r"[:;=]['^-]{0,2}[()\[\]{}<>|]+(?=[.,!?]*$)|^[()\[\]{}]+['^-]{0,2}[:;=](?=[.,!?]*$)"
)
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
_SHORTENED = lazy_pattern(r"(?<=[a-z])(n't|'m|'re|'ve|'ll)$")
_PRONOUNS = "it he she that there here what who where when how"
_SUBJECTS = frozenset(_PRONOUNS.split())
_PERFECT = frozenset(("been", "got"))  # before these forms 's is "has"

_INTERJECTIONS = """
ah aha alright anyway anyways btw eh ha haha hahaha hehe hey hi hello hm hmm lol mhm mm oh ok okay
ooh so uh um well whoa wow yay yeah yep yes yup
"""
_FILLERS = frozenset(_INTERJECTIONS.split())
_SMALL = STOP_WORDS - _FILLERS
_NEGATIONS = frozenset(
    ("no", "not", "never", "none", "nor", "neither", "nothing", "nobody", "nowhere")
)
_CONJUNCTIONS = frozenset(("and", "but", "or", "so"))  # a comma before one changes no meaning
_AUXILIARIES = """
am are can could did do does had has have is may might must shall should was were will would
"""
_ASKING = frozenset(_AUXILIARIES.split())
_PHRASES = frozenset(("by the way", "you know", "i mean", "you see"))
_GREETINGS = frozenset(("hi", "hello", "hey", "hiya", "greetings", "dear", "morning"))
_DAYTIMES = frozenset(("morning", "afternoon", "evening", "day"))
_EVERYBODY = "there again all everyone everybody guys folks team friend friends"
_ADDRESSED = frozenset(_EVERYBODY.split())
_NAMES = 2  # maximum words of a greeted name


class _Token(NamedTuple):
    """Word or sign.

    Attributes:
        form: Form that is compared.
        named: Whether it begins with a capital letter.
        ends: Whether punctuation or a line break follows.
        opens: Whether a colon or a dash follows: the next words are about it.
    """

    form: str
    named: bool
    ends: bool
    opens: bool = False


def wording(text: str) -> tuple[str, ...]:
    """Return the words and signs of a text in order, in the form for comparison."""
    plain = unicodedata.normalize("NFC", text).translate(_PLAIN)
    found = _contracted(_tokens(_primed(_GROUPED.sub(_ungrouped, plain))))
    return tuple(_with_commas(_without_openings(found)))


def _ungrouped(match: re.Match[str]) -> str:
    """Return 1,000 as 1000."""
    return match[0].replace(",", "")


def _primed(text: str) -> str:
    """Replace quotation marks after numbers that close nothing by marks of feet and inches."""
    open_ = dict.fromkeys(_PRIMES, False)

    def read(match: re.Match[str]) -> str:
        mark, place = match[0], match.start()
        if place == 0 or text[place - 1].isspace() or text[place - 1] in "([{-":
            open_[mark] = True
        elif open_[mark] and not text[place + 1 : place + 2].isalnum():
            open_[mark] = False
        elif _NUMBER.search(text[max(0, place - _DIGITS) : place]):
            return _PRIMES[mark]
        return mark

    return _QUOTE.sub(read, text)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    shouted, exact = text.isupper(), False
    for line in text.split("\n"):
        for chunk in _PARTED.sub(lambda match: f"{match[0]} ", line).split():
            if chunk.isascii() and chunk.isalpha() and chunk.islower():
                found.append(_Token(chunk, False, False))  # most words: nothing to read in them
            else:
                _read_chunk(chunk, found, shouted=shouted, exact=exact)
            exact = exact or (bool(found) and found[-1].form in _SECRETS)
        if found:
            found[-1] = found[-1]._replace(ends=True)
    return found


def _read_chunk(chunk: str, found: list[_Token], *, shouted: bool, exact: bool) -> None:
    """Append the tokens of a run of characters without white space.

    `shouted`: all letters of the text are capitals. `exact`: case counts, as after "password".
    """
    faces: list[tuple[str, str]] = []  # each with the marks after it, the last one first
    while (face := _FACE.search(chunk)) is not None:
        faces.append((face[0], chunk[face.end() :]))
        chunk = chunk[: face.start()]
    if chunk:
        _read_word(chunk, found, shouted=shouted, exact=exact)
    for shown, behind in reversed(faces):
        if found:
            found[-1] = found[-1]._replace(ends=True)
        asks = not _QUESTION.isdisjoint(behind)
        found += [_Token(shown, False, True), *([_Token("?", False, True)] if asks else [])]


def _read_word(chunk: str, found: list[_Token], *, shouted: bool, exact: bool) -> None:
    """Append the tokens of a run of characters without an emoticon at the end."""
    marks = _marks(chunk)
    begun = chunk.lstrip(marks)
    leading = _LEADING.search(chunk, 0, len(chunk) - len(begun) + 1)
    if leading is not None and leading.end() == len(chunk) - len(begun):
        begun = chunk[leading.start() :]  # .5 is not 5
    core = begun.rstrip(marks)
    if (call := _EMPTY.match(begun, len(core))) is not None:
        core = begun[: call.end()]
    before, behind = chunk[: len(chunk) - len(begun)], begun[len(core) :]
    alone = not core.strip("-")
    if (before or alone) and found:
        found[-1] = found[-1]._replace(ends=True, opens=found[-1].opens or alone)
    if not alone:
        after_number = bool(found) and found[-1].form[-1].isdigit()
        for part in _parts(core):
            form = part if exact else _folded(part, shouted=shouted, unit=after_number)
            found.append(_Token(form, part[0].isupper(), bool(behind), ":" in behind))
            after_number = False
    elif core == "-" and not behind:  # a dash between words, or a separate minus
        found.append(_Token("-", False, True))
    asks = not _QUESTION.isdisjoint(before + behind)
    if asks and not (found and found[-1].form == "?"):
        found.append(_Token("?", False, True))


def _marks(text: str) -> str:
    """Return the punctuation marks that may surround the words of a text."""
    if text.isascii():
        return _ASCII_MARKS
    own = {character for character in text if unicodedata.category(character)[0] == "P"}
    return _ASCII_MARKS + "".join(own - _COUNTS)


def _parts(core: str) -> list[str]:
    """Split a word at its pictograms, which stand alone."""
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
    """Return a word in lower case, unless its case carries meaning."""
    if _COUNTED.fullmatch(word):
        return word.lower()
    if _CODE.search(word) or (_LETTER.search(word) and _DIGIT.search(word)):
        return word
    inner = any(one.isalpha() and other.isupper() for one, other in itertools.pairwise(word))
    if inner and any(map(str.islower, word)):
        return word  # a capital after a letter
    if unit and len(word) < 4 and word.isalpha():
        # mW is not MW, and 5 m are not 5 M; "PM" is "pm".
        return word if len(word) == 1 or not (word.isupper() or word.islower()) else word.lower()
    lower = word.lower()
    if not shouted and len(word) > 1 and word.isupper() and lower in _SMALL:
        return word  # US, IT and WHO are no pronouns
    return lower


def _contracted(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the tokens with contractions written out."""
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
    """Return the tokens without greetings at the start and interjections at either end."""
    behind = [*tokens[1:], None]
    # A dash alone is punctuation, unless a number follows.
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
    # After a question they are its answer.
    asks = bool(left) and (left[0].form in _ASKING or any(token.form == "?" for token in left))
    while left and not asks:
        size = next((i for i, token in enumerate(left[-2::-1], 1) if token.ends), len(left))
        if size == len(left) or left[-size - 1].opens or not _is_filler(left[-size:]):
            break
        left = left[:-size]
    return left


def _with_commas(tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the forms of tokens, with a comma where punctuation separates a negation."""
    for token, other in itertools.pairwise([*tokens, None]):
        assert token is not None
        yield token.form
        if not token.ends or other is None or other.form in _CONJUNCTIONS:
            continue
        if not _NEGATIONS.isdisjoint((token.form, other.form)):
            yield ","


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
