"""Detect texts that only ask, and their question without greetings, names and politeness.

Two texts with one key ask the same. Questions without a mark and polite requests are recognised in
English only; other languages need a question mark. `docs/mathematics.md` 8.9.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.question import asks, is_question, tells_time, without_links
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import terms
from graphmem_torch.text.unicode_forms import visible
from graphmem_torch.text.wording import wording

__all__ = ["FORMS", "NOTHING_ASKED", "Asked", "asks_for_questions", "read_asked"]

_WH = r"(?:who|whom|whose|what|which|when|where|why|how)"
_AUXILIARY = (
    r"(?:am|are|is|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might"
    r"|must)"
)
_PERSON = r"(?:i|you|he|she|it|we|they|there)"
_OWNER = r"(?:my|your|his|her|its|our|their|the|this|that|these|those|any|anyone|anybody|someone)"
# "Where do I", "how many books did", "what's", "who called"; "when I was young" is none.
_OPEN = lazy_pattern(
    rf"{_WH}(?:'s|'re|'d| (?!(?:{_PERSON}|{_OWNER}|a|an)\b)(?:[\w'-]+ ){{0,3}}{_AUXILIARY}"
    rf"| {_AUXILIARY})\b|who(?:se|m)? (?!{_PERSON}\b)\w+|how (?:come|about)\b|what about\b"
)
_CLOSED = lazy_pattern(
    rf"(?:(?:do|does|did|has|had|have)(?:n't)? {_PERSON}"
    rf"|(?:does|did|has|had|am|is|are|was|were|can|could|would|should|will)(?:n't)?"
    rf" (?:{_PERSON}|{_OWNER}))\b"
)
_INDIRECT = lazy_pattern(
    r"(?:(?:can|could|would|will|do|did|may|might) you (?:(?:please|kindly|possibly|maybe|perhaps"
    r"|happen to|still|by any chance) )*(?:tell|remind|know|remember|recall|say|let)\b"
    r"|(?:please )?(?:tell|remind) (?:me|us)\b|let (?:me|us) know\b"
    r"|(?:i|we) (?:was|were|am|'m|are|just|have been|'ve been)? ?(?:just )?wonder(?:ing)?\b"
    r"|(?:i|we)(?: would|'d)? (?:like|want|need) to know\b"
    r"|(?:do you have )?any idea\b|(?:can|could|may) i ask\b|quick question\b)"
    r"(?: (?:me|us|please|again|know|you))*[,:]? ?(?:about )?",
    re.IGNORECASE,
)
# "Tell me my password" asks; "tell me that ..." and "remind me to call" do not.
_REQUEST = lazy_pattern(
    r"(?:please )?(?:tell (?:me|us)(?! that\b)(?: again)?(?: (?:all|everything|more))?(?: about\b"
    rf"| {_OWNER}\b)|remind (?:me|us)(?: again)? of\b)",
    re.IGNORECASE,
)
_BEFORE = lazy_pattern(
    r"(?:(?:so|and|but|well|ok(?:ay)?|hey|hi|hello|please|sorry|excuse me|by the way|btw|just"
    r"|actually|again|oh|hm+|um+|thanks|thank you)\b[\s,.;:!\u2013\u2014-]*)+",
    re.IGNORECASE,
)
_BEHIND = lazy_pattern(
    r"(?:[\s,;\u2013\u2014-]+(?:please|thanks|thank you|again|by the way|btw|do you know"
    r"|do you remember|can you (?:tell|remind) me|if you know|if you don't mind))+(?=[\s?.!]*$)",
    re.IGNORECASE,
)
# Each alternative of the pattern above has one of these.
_POLITE = ("please", "thank", "again", "by the way", "btw", "do you ", "can you ", "if you ")
_NAME = r"[^\W\d_][\w'-]+(?: [^\W\d_][\w'-]+)?"
_CALLED = (
    lazy_pattern(rf"(?P<name>{_NAME}),\s+(?=\w)"),
    lazy_pattern(rf",\s*(?P<name>{_NAME})(?=\W*$)"),
)
_CAPTION = lazy_pattern(r"\s*\[[^\[\]]*\]\s*$")
_MARKS = lazy_pattern(r"[\s?!.;\u037e\uff1f\u061f\u055e\u1367\u2047-\u2049\u203d]+$")
# Signs that a text proposes something: names, codes and numbers.
_PROPER = lazy_pattern(r"(?<=[\s(])[^\W\d_a-z]\w+|\d")
_FOR_QUESTIONS = lazy_pattern(
    r"\b(?:ask(?:s|ed|ing)?|questions?|quer(?:y|ies|ied)|[ie]nquir\w+|wonder(?:s|ed|ing)?)\b",
    re.IGNORECASE,
)
_UNKNOWN = (
    r"(?:(?:i|we) (?:\w+ )?(?:don't|do not|didn't|did not|cannot|can't|couldn't) (?:\w+ ){0,2}"
    r"(?:know|remember|recall|have|find|see|say|tell)"
    r"|(?:i'm|i am) not (?:\w+ )?(?:sure|certain|aware)"
    r"|not sure|(?:(?:there's|there is|i have|we have) )?no (?:idea|record|information|memory|clue)"
    r"|you (?:haven't|have not|didn't|did not|never) (?:\w+ )?"
    r"(?:tell|told|mention|mentioned|said|shared))(?:(?!\bbut\b)[^.!?,;])*"
)
_NO_ANSWER = lazy_pattern(
    r"(?:(?:sorry|oh|well|hm+|um+|unfortunately|honestly|actually|i'm afraid|i am afraid)\b"
    r"[\s,.!]*)*"
    rf"{_UNKNOWN}(?:[,;.]+ (?:(?:and|as|because|since|so) )?{_UNKNOWN})*[.!?]*(?:\s+[^.!]*\?)*$",
    re.IGNORECASE,
)
_BLANKS = lazy_pattern(r"[^\S\n]{2,}")  # the patterns above are slow on long runs of them
_LONG = 4000  # maximum characters of a text that is likely to be asked twice in the same words
_ANNOUNCED = lazy_pattern(
    r"(?:(?:i have|i've|i've got|i got|here is|here's|just) )?(?:a|one|another|my)"
    r" (?:\w+ )?question(?: for you)?[\s.:,!]*$",
    re.IGNORECASE,
)
_PLEASANT = 3  # maximum words of a sentence beside a question that may be pleasantry


class Asked(NamedTuple):
    """Question of a text.

    Attributes:
        key: Hash of the question's wording, equal for texts that ask the same; 0 if the text asks
            nothing.
        terms: Distinct terms of the question if the text only asks; otherwise empty.
        form: One of `FORMS`. `open`: the text only asks, and proposes no name and no number. `no
            answer`: it only says that its speaker does not know.
    """

    key: int
    terms: tuple[str, ...]
    form: Literal["", "open", "no answer"]

    @property
    def places(self) -> list[int]:
        """Return a number from 0 to 62 for each term, a function of the term alone."""
        return [zlib.crc32(term.encode("utf-8", "surrogatepass")) % 63 for term in self.terms]

    @property
    def bits(self) -> int:
        """Return the places as bits of one number: a superset of the set of terms."""
        return sum(1 << place for place in set(self.places))


FORMS = ("", "open", "no answer")
"""Forms of texts that ask, or that give no answer."""

NOTHING_ASKED = Asked(0, (), "")
"""Result for a text that asks nothing."""
NO_ANSWER = Asked(0, (), "no answer")
"""Result for a text that only says that it has no answer."""


def read_asked(text: str) -> Asked:
    """Return the question of a text without greetings, names of the addressed and politeness.

    A text of more than 4,000 characters asks nothing.
    """
    text = _BLANKS.sub(" ", text)
    if len(text) > _LONG:
        return NOTHING_ASKED
    plain = without_links(visible(text))
    plain = (_CAPTION.sub("", plain) if "]" in plain else plain).strip()
    if not plain:
        return NOTHING_ASKED
    questions, others = list[str](), list[str]()
    for sentence in split_sentences(plain):
        core = _core(sentence)
        if core is None:
            others.append(sentence)
        elif core:
            questions.append(core)
    if not questions:
        return NO_ANSWER if _NO_ANSWER.match(plain) else NOTHING_ASKED
    if any(len(terms(each)) > 0 and not _is_pleasant(each) for each in others):  # it tells as well
        return Asked(_key(plain), (), "") if asks(plain) else NOTHING_ASKED
    core = " ".join(questions)
    bears = any(_PROPER.search(each) for each in questions)
    opens = all(_OPEN.match(each.lower().replace("\u2019", "'")) for each in questions)
    form: Literal["", "open"] = "open" if opens and not bears else ""
    return Asked(_key(core), tuple(dict.fromkeys(terms(core))), form)


def asks_for_questions(question: str) -> bool:
    """Return whether earlier questions are asked for, by English words: "What did Anna ask?"."""
    return _FOR_QUESTIONS.search(_core(question) or question) is not None


def _core(sentence: str) -> str | None:
    """Return the question in a sentence; None if there is none."""
    marked = is_question(sentence) or asks(sentence)  # the first lacks the Greek question mark
    said = sentence.strip()
    before = None
    while said != before:
        before = said
        said = _uncalled(_without_end(said[_end(_BEFORE, said) :]))
        indirect = _end(_INDIRECT, said)
        rest = said[indirect:].lower()
        requested = _REQUEST.match(said) or re.match(rf"{_WH}\b|if\b|whether\b", rest)
        if indirect and (marked or requested):
            said, marked = said[indirect:], True
    said = _MARKS.sub("", said)
    folded = said.lower().replace("\u2019", "'")
    if marked or _OPEN.match(folded) or _CLOSED.match(folded):
        return said
    return None


def _without_end(sentence: str) -> str:
    """Return a sentence without politeness at its end, which a word or two of it tell."""
    low = sentence.lower()
    if sentence.isascii() and not any(word in low for word in _POLITE):
        return sentence  # the pattern is slow
    return _BEHIND.sub("", sentence)


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return 0 if found is None else found.end()


def _uncalled(text: str) -> str:
    """Return a sentence without the name of the addressed at its beginning or end."""
    for pattern in _CALLED:
        found = pattern.match(text) if pattern is _CALLED[0] else pattern.search(text)
        if found is None:
            continue
        name = found["name"]
        if all(word[0].isupper() for word in name.split()) and not tells_time(name):
            text = (text[: found.start()] + text[found.end() :]).strip()
    return text


def _is_pleasant(sentence: str) -> bool:
    """Return whether a sentence beside a question is mere pleasantry: a greeting or thanks."""
    words = wording(sentence)
    if _ANNOUNCED.match(sentence.strip().replace("\u2019", "'")):
        return True
    return not words or (len(words) <= _PLEASANT and "thank" in words[0]) or not _core_words(words)


def _core_words(words: Sequence[str]) -> bool:
    return any(not _BEFORE.fullmatch(word) for word in words)


def _key(core: str) -> int:
    """Return a nonzero 64-bit hash of the wording without its mark."""
    words = [word for word in wording(core) if word != "?"]
    text = "\n".join(words or [core.casefold()])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1
