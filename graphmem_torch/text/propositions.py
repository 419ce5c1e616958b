"""Propositions: who or what a sentence is about, what it says, and whether it says that it is so.

A dependency parse gives each main clause as a subject, a predicate and the words that go with it.
A clause counts only where its speaker states it in the present or the perfect, or says that it has
ended. Questions, conditions, wishes, quotations, hearsay and subordinate clauses give none; nor
does a subject that only its context resolves ("he", "this room"). Whoever finds nothing here has
found no reason for anything: a missing proposition means that the rules cannot tell.

The rules are for English. `docs/mathematics.md` 5.2.
"""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from graphmem_torch.errors import InputError
from graphmem_torch.text import _statement_words as say
from graphmem_torch.text.pipeline import Pipeline, load_pipeline
from graphmem_torch.text.question import role_of
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import STOP_WORDS
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = [
    "Change",
    "Proposition",
    "Statements",
    "is_number",
    "is_time",
    "read_statements",
    "split_speaker",
]

_log = logging.getLogger(__name__)
_remembering = threading.Lock()
_remembered: dict[str, Statements] = {}
_REMEMBERED = 16384  # texts whose statements are kept, about 1 KB each

Tense = Literal["present", "past", "ended"]

_SENTENCES = 12  # a longer text is a document, which stays true when one sentence does not
_WORDS = 60  # of a sentence; parses of longer ones are not reliable
_LETTERS = 4000  # of a text
_SPEAKER = re.compile(r"([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}): ")
# "Good news: I moved": with the label in front the parser reads no sentence.
_LABEL = re.compile(r"(?:(?<=^)|(?<=[.!?\n] )|(?<=\n))[A-Za-z]+(?:[ -][A-Za-z]+){0,2}: (?=[A-Z])")
_HEAD = 80  # characters in which a speaker's name is looked for
# Numbers with signs, separators, units of money: one token each, whatever the tokenizer says.
_NUMBER = re.compile(
    r"(?<![\w.])[-\u2212+]?[$\u20ac\u00a3]?\d+(?:[.,:/-]\d+)*(?:st|nd|rd|th|%|k|am|pm)?(?!\w)"
)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_DIGITS = {word: str(i) for i, word in enumerate(_COUNTED.split())}
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_CALENDAR = frozenset([*_DAYS, *MONTHS, "am", "pm", "noon", "midnight"])
_PHRASE = 4  # words of a value
_BE = "be"
_HAVING = {"own": "have", "possess": "have", "get": "have"}
_REACHED = {"reach": "have", "hit": "have", "become": "be", "join": "join", "turn": "be"}


@dataclass(frozen=True, slots=True)
class Change:
    """What a sentence says to have changed.

    Attributes:
        kind: `moved`, `became` (a value took the place of another), `renamed`, or `gone` (what was
            had, used or held is so no more).
        of: Subjects it may be said of.
        new: Words of the new value.
        old: Words of the old value; empty if it is not said.
    """

    kind: Literal["moved", "became", "renamed", "gone"]
    of: tuple[frozenset[str], ...]
    new: tuple[str, ...]
    old: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposition:
    """A clause that its speaker states.

    Attributes:
        subject: Words of the subject with its modifiers, without articles; whoever speaks is the
            name of the speaker.
        named: Whether the subject is a person or a thing with a name.
        predicate: Lemma of the verb.
        words: What goes with it, in its order: lemmas, numbers as digits, without articles.
        value: Place in `words` where the last noun phrase or adjective begins.
        tense: When it holds; `ended`: it did once, and no longer does ("used to", "no longer").
        denied: Whether it is denied.
        explicit: Whether it says that it no longer is so ("no longer", "not any more").
        hedged: Whether a number in it is about right only.
        added: Whether it is said to be so beside others ("also", "another").
        change: What is said to have changed.
        proper: Words of it that are names.
        clausal: Whether a clause of its own is among its words.
    """

    subject: frozenset[str]
    named: bool
    predicate: str
    words: tuple[str, ...]
    tense: Tense
    denied: bool = False
    explicit: bool = False
    hedged: bool = False
    added: bool = False
    change: Change | None = None
    proper: frozenset[str] = frozenset()
    clausal: bool = False

    @property
    def times(self) -> frozenset[str]:
        """Its words that say when."""
        return frozenset(word for word in self.words if is_time(word))


def is_time(word: str) -> bool:
    """Whether a word says when: a day, a month, a clock time, a season, "before"."""
    return word in _CALENDAR or word in say.TIMES or ":" in word


def is_number(word: str) -> bool:
    """Whether a word is a number, as `Proposition.words` has it."""
    return word.lstrip("-+$\u20ac\u00a3")[:1].isdigit()


def split_speaker(text: str) -> tuple[str | None, str]:
    """The speaker in front of a text, if there is one, and what is said."""
    head = _SPEAKER.match(text[:_HEAD])
    return (head[1], text[head.end() :]) if head else (None, text)


@dataclass(frozen=True, slots=True)
class Statements:
    """What a text states.

    Attributes:
        propositions: In the order of its sentences.
        sentences: Number of its sentences that may state something, whether or not a proposition
            was read from them: a text with one says nothing else.
    """

    propositions: tuple[Proposition, ...] = ()
    sentences: int = 0


def read_statements(texts: Sequence[str], pipeline: Pipeline | None = None) -> list[Statements]:
    """Read what texts state; documents, other languages and long texts state nothing.

    Safe to call from threads. The last texts are remembered.

    Args:
        texts: With their speakers in front.
        pipeline: Parser; by default the installed one.

    Returns:
        Statements of each text; none if no pipeline is installed, with a warning.
    """
    with _remembering:
        found = {text: _remembered[text] for text in texts if text in _remembered}
    fresh = [text for text in dict.fromkeys(texts) if text not in found]
    if fresh and (pipeline := pipeline or _installed()) is not None:
        read = _read(fresh, pipeline)
        found |= read
        with _remembering:
            _remembered.update(read)
            while len(_remembered) > _REMEMBERED:
                del _remembered[next(iter(_remembered))]
    return [found.get(text, Statements()) for text in texts]


@cache
def _installed() -> Pipeline | None:
    try:
        return load_pipeline()
    except InputError as error:
        _log.warning("contradictions are not looked for without a parser (%s)", error)
        return None


def _read(texts: Sequence[str], pipeline: Pipeline) -> dict[str, Statements]:
    found = dict.fromkeys(texts, Statements())
    asked = []
    for text in texts:
        speaker, body = split_speaker(text)
        short = len(body) <= _LETTERS and len(split_sentences(body)) <= _SENTENCES
        if short and not foreign(body, STOP_WORDS):
            asked.append((_tokens(body, pipeline), (text, speaker)))
    for doc, (text, speaker) in pipeline.parse(asked, entities=False):
        told = [sentence for sentence in doc.sents if _says(sentence)]
        own = [p for sentence in told for p in _Sentence(sentence, speaker).propositions()]
        found[text] = Statements(tuple(own), len(told))
    return found


def _tokens(text: str, pipeline: Pipeline) -> Any:
    """A document in which each number is one token."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    text = _LABEL.sub("", text)
    doc = pipeline.nlp.make_doc(text)
    with doc.retokenize() as merged:
        for match in _NUMBER.finditer(text):
            span = doc.char_span(*match.span(), alignment_mode="expand")
            if span is not None and len(span) > 1 and span.text == match[0]:
                merged.merge(span)
    return doc


def _says(sentence: Any) -> bool:
    """Whether a sentence may state something: it has a verb or a number, and asks nothing."""
    text = sentence.text.strip()
    if text.endswith("?") or not any(word.pos_ in ("VERB", "AUX") for word in sentence):
        return any(map(str.isdigit, text)) and not text.endswith("?")
    return True


class _Sentence:
    """A parsed sentence."""

    def __init__(self, sentence: Any, speaker: str | None) -> None:
        self._sentence = sentence
        role = role_of(speaker)
        self._machine = role < 0
        self._speaker = "user" if role > 0 else (speaker or "i").lower()
        self._addressed = {1: "assistant", -1: "user", 0: None}[role]

    def propositions(self) -> Iterator[Proposition]:
        """Those of its main clauses."""
        words = [word for word in self._sentence if not word.is_space]
        if len(words) > _WORDS or not words or self._asks(words):
            return
        for verb in words:
            if verb.pos_ not in ("VERB", "AUX") or not self._is_main(verb):
                continue
            if (found := self._clause(verb)) is not None:
                yield found

    def _asks(self, words: Sequence[Any]) -> bool:
        """Whether it is a question without its mark, or begins with a condition."""
        first = next((word for word in words if word.is_alpha or word.like_num), words[0])
        if first.lower_ in say.CONDITIONS or first.lower_ in ("suppose", "imagine", "say", "let"):
            return True
        return first.pos_ == "AUX" and any(
            child.dep_ in say.SUBJECTS and child.i > first.i
            for child in (*first.children, *first.head.children)
        )

    def _is_main(self, verb: Any) -> bool:
        """Whether a verb heads a clause that is stated: a root, or one joined to it."""
        while _is_joined(verb) or (verb.dep_ == "conj" and verb.head.pos_ in ("VERB", "AUX")):
            verb = verb.head
        return verb.dep_ == "ROOT" and not self._quoted(verb)

    def _quoted(self, verb: Any) -> bool:
        before = self._sentence.text[: verb.idx - self._sentence.start_char]
        if before.count('"') % 2 == 1:
            return True
        return any(before.count(a) > before.count(b) for a, b in ("\u201c\u201d", "\u00ab\u00bb"))

    def _clause(self, verb: Any) -> Proposition | None:
        subject = self._subject_of(verb)
        if subject is None:
            return None
        about = self._about(subject)
        if about is None:
            return None
        outer, verb, tense, denied, explicit = self._ended(verb)
        inner = self._inside(outer, subject)
        if verb is not outer:
            inner = [word for word in inner if word.i > verb.i or word.head is verb]
        lowered = {word.lower_ for word in inner}
        modals = {child.lower_ for child in (*outer.children, *verb.children)}
        if modals & say.MODALS or lowered & say.HEDGES or "'d" in modals:
            return None
        if self._conditional(inner, lowered):
            return None
        if tense is None:
            tense = self._tense(outer)
        kept, flags = self._words(inner, verb)
        denied ^= flags["denied"]
        if flags["longer"]:
            explicit = True
            denied = True
        predicate = self._lemma(verb)
        predicate = _HAVING.get(predicate, predicate)
        if any(child.dep_ == "aux" and child.lower_ in ("can", "ca") for child in verb.children):
            predicate = f"can {predicate}"
        passive = any(child.dep_ == "auxpass" for child in verb.children)
        names = frozenset(word for token, word in kept if token.pos_ == "PROPN")
        words = tuple(word for _, word in kept)
        if passive:  # "is closed" is said of a state as "is open" is
            predicate, words = _BE, (verb.lower_, *words)
            if tense == "past" and verb.lower_ in say.ONCE:
                tense = "present"
        if verb.lemma_ in _REACHED:
            predicate, tense = _REACHED[verb.lemma_], "present" if tense == "past" else tense
        if denied and explicit and tense == "present":
            tense = "ended"
            denied = False
        change = None
        if not denied and tense != "ended":
            change = self._change(verb, about[0], inner, passive)
        return Proposition(
            about[0],
            about[1],
            predicate,
            words,
            tense,
            denied,
            explicit,
            flags["hedged"],
            flags["added"],
            change,
            names,
            any(word.dep_ in say.CLAUSES for word in inner),
        )

    # The parts of a clause.

    def _subject_of(self, verb: Any) -> Any:
        """The subject of a verb, or of the verb that it is joined to."""
        while True:
            for child in verb.children:
                if child.dep_ in say.SUBJECTS:
                    return None if child.dep_ == "csubj" else child
            if verb.dep_ not in ("conj", "xcomp") or verb.head.pos_ not in ("VERB", "AUX"):
                return None
            verb = verb.head

    def _about(self, subject: Any) -> tuple[frozenset[str], bool] | None:
        """The words of a subject, and whether it is named; None: only its context tells what."""
        if subject.lower_ in say.SPEAKING:
            return None if self._machine else (frozenset([self._speaker]), True)
        if subject.lower_ in say.ADDRESSED:
            return None if self._addressed is None else (frozenset([self._addressed]), True)
        if subject.lower_ in say.UNRESOLVED or subject.dep_ == "expl":
            return None
        name = next((c for c in subject.children if c.dep_ == "appos" and c.pos_ == "PROPN"), None)
        if name is not None:  # our cat Biscuit
            return frozenset(map(self._word, name.subtree)) - {""}, True
        found = set()
        for word in subject.subtree:
            low = word.lower_
            clause = word.dep_ in ("relcl", "acl", "appos") or word.pos_ in ("VERB", "AUX")
            if clause and word is not subject:
                return None
            if word.is_punct or word.is_space or low in ("the", "'s", "'", "of") or low in say.NEW:
                continue
            if low == "to" and word.dep_ == "prep":  # the door to, and of, the garden
                continue
            if low in say.VAGUE and not (word.pos_ == "PROPN" or word.head.i < word.i):
                return None
            if low in say.OTHERS or low in say.UNRESOLVED:
                return None
            if low in say.SPEAKING:
                if self._machine:
                    return None
                found.add(self._speaker)
            elif low in say.ADDRESSED:
                if self._addressed is None:
                    return None
                found.add(self._addressed)
            else:
                found.add(self._word(word))
        found.discard("")
        named = subject.pos_ == "PROPN"
        return (frozenset(found), named) if found else None

    def _ended(self, verb: Any) -> tuple[Any, Any, Tense | None, bool, bool]:
        """The verb itself, the one that tells what is or was so, its tense, denied, explicit."""
        inner = next((c for c in verb.children if c.dep_ in ("xcomp", "pcomp")), None)
        if inner is not None and inner.pos_ in ("VERB", "AUX"):
            if verb.lower_ == "used" and any(c.lower_ == "to" for c in inner.children):
                return verb, inner, "ended", False, False
            if verb.lemma_ in say.STOPS and inner.tag_ == "VBG":
                return verb, inner, "ended", False, True
        up = verb.lemma_ == "give" and any(c.lower_ == "up" for c in verb.children)
        if up and inner is not None and inner.tag_ == "VBG":
            return verb, inner, "ended", False, True
        return verb, verb, None, False, False

    def _inside(self, verb: Any, subject: Any) -> list[Any]:
        """The words of a clause without those of its subject and of clauses that are joined."""
        out = set()
        for child in verb.children:
            joined = child.dep_ in ("conj", "parataxis") and child.pos_ in ("VERB", "AUX")
            if joined or _is_joined(child) or child.dep_ in say.SUBJECTS:
                out |= {word.i for word in child.subtree}
        out |= {word.i for word in subject.subtree}
        inside = [
            word
            for word in verb.subtree
            if word.i not in out and not word.is_space and word.dep_ != "intj"
        ]
        label = [word.i for word in inside if word.text in ":!" and word.i < verb.i]
        for word in inside:  # "as of today" says when a change begins, not what it is about
            if word.lower_ == "as" and any(child.lower_ == "of" for child in word.children):
                label += [each.i for each in word.subtree if each.i < verb.i]
        return [word for word in inside if not label or word.i > max(label) or word.i > verb.i]

    def _conditional(self, inner: Sequence[Any], lowered: set[str]) -> bool:
        marks = {w.lower_ for w in inner if w.dep_ in ("mark", "advmod", "prep")}
        return bool(marks & say.CONDITIONS) or ("case" in lowered and "in" in lowered)

    @staticmethod
    def _tense(verb: Any) -> Tense:
        """Past, or anything that holds now: present, perfect, what is about to be."""
        helpers = [child for child in verb.children if child.dep_ in ("aux", "auxpass")]
        said = {child.lower_ for child in helpers}
        if said & say.PRESENT:
            return "present"
        past = said & {"did", "had"} or "VBD" in {child.tag_ for child in (*helpers, verb)}
        return "past" if past else "present"

    def _words(
        self, inner: Sequence[Any], verb: Any
    ) -> tuple[list[tuple[Any, str]], dict[str, bool]]:
        """What goes with a verb, and what small words say of it."""
        flags = dict.fromkeys(("denied", "longer", "hedged", "added"), False)
        kept: list[tuple[Any, str]] = []
        lows = [word.lower_ for word in inner]
        for place, word in enumerate(inner):
            low = word.lower_
            before = lows[place - 1] if place else ""
            if word is verb or word.dep_ in ("aux", "auxpass"):
                continue
            if (low, before) in (("longer", "no"), ("more", "any")) or low == "anymore":
                flags["longer"] = True
                if kept and kept[-1][1] == "any":
                    kept.pop()
                continue
            if low in say.DENIALS or word.dep_ == "neg":
                flags["denied"] ^= True
                continue
            if low == "no":
                follows = lows[place + 1] if place + 1 < len(lows) else ""
                if follows != "longer" and word.dep_ == "det":
                    flags["denied"] ^= True
                continue
            if low in say.ADDED:
                flags["added"] = True
                continue
            if low in say.ROUGHLY and any(map(_counts, inner[place + 1 : place + 3])):
                flags["hedged"] = True
                continue
            if word.is_punct and not is_number(word.text) and not _is_sign(word):
                continue
            if low in say.ARTICLES or low in ("'s", "'") or word.dep_ == "cc":
                continue
            if low == "that" and word.dep_ == "det":
                continue
            if low in say.NEUTRAL and word.dep_ in ("advmod", "intj", "prep", "pcomp", "discourse"):
                continue
            kept.append((word, self._word(word)))
        return [(token, word) for token, word in kept if word], flags

    def _word(self, word: Any) -> str:
        """A word as it is compared: its lemma, a number in digits, whoever speaks by name."""
        low = word.lower_
        if low in say.SPEAKING:
            return self._speaker
        if low in say.ADDRESSED:
            return self._addressed or "you"
        if is_number(word.text):
            return low.replace("\u2212", "-").replace(",", "")
        if low in _DIGITS:
            return _DIGITS[low]
        if low.removesuffix("s") in _CALENDAR:
            return low.removesuffix("s")
        if word.is_punct and not _is_sign(word):
            return ""
        if word.pos_ == "PROPN":
            return _folded(low.rstrip("."))
        return _folded(self._lemma(word))

    @staticmethod
    def _lemma(word: Any) -> str:
        return (word.lemma_ or word.text).lower()

    # What changed.

    def _change(
        self, verb: Any, subject: frozenset[str], inner: Sequence[Any], passive: bool
    ) -> Change | None:
        """What a clause in the past or the perfect says to have changed."""
        lemma = verb.lemma_.lower()
        if verb.tag_ not in ("VBD", "VBN"):
            return None
        after = [word for word in inner if word.i > verb.i]
        old, new = self._phrase_after(after, "from"), self._phrase_after(after, "to")
        cut = next((w.i for w in after if w.lower_ in ("from", "to")), verb.doc[-1].i + 1)
        objects = [c for c in verb.children if c.dep_ in ("dobj", "oprd", "attr") and c.i < cut]
        of = [subject]
        for each in objects:
            words = [self._word(w) for w in each.subtree if w.i < cut and self._says_what(w)]
            of.append(frozenset(words) - {""})
        if lemma in say.GONE:
            gone = [self._word(word) for each in objects for word in each.subtree]
            gone = sorted(subject) if passive else [word for word in gone if word]
            if lemma in say.ROLES:
                gone += [*self._phrase_after(after, "as"), *old]
            return Change("gone", tuple(of), (), tuple(gone)) if gone else None
        if lemma == "rename":
            if not new and passive and objects:
                new = self._phrase_of(objects[-1].subtree)
            return Change("renamed", tuple(of), new, old) if new else None
        if lemma == "move" and old and not new and not passive and not objects:
            return Change("gone", tuple(of), (), old)
        if not new:
            return None
        if lemma in ("move", "relocate") and not passive and not objects:
            return Change("moved", tuple(of), new, old)
        if lemma in say.CHANGES and (old or lemma not in say.MOVES):
            return Change("became", tuple(of), new, old)
        return None

    def _says_what(self, word: Any) -> bool:
        """Whether a word is part of what a thing is called."""
        low = word.lower_
        return not (
            low in say.ARTICLES
            or low in say.NEW
            or low in ("of", "to", "'s", "'")
            or (word.is_punct and not is_number(word.text))
        )

    def _phrase_after(self, words: Sequence[Any], preposition: str) -> tuple[str, ...]:
        """The words after a preposition, to the end of their phrase."""
        place = next((i for i, w in enumerate(words) if w.lower_ == preposition), None)
        return () if place is None else self._phrase_of(words[place + 1 :])

    def _phrase_of(self, words: Iterable[Any]) -> tuple[str, ...]:
        found: list[str] = []
        for place, word in enumerate(words):
            ends = word.pos_ in ("ADP", "SCONJ", "CCONJ", "PART", "AUX", "PRON")
            ends |= word.pos_ == "VERB" and place > 0  # "changed to orchid" reads as a verb
            ends |= word.is_punct and not is_number(word.text) and word.text not in "\"'\u201c"
            ends |= word.lower_ in say.DEICTIC
            if (ends and word.lower_ != "'s") or len(found) == _PHRASE:
                break
            if self._says_what(word):
                found.append(self._word(word))
        return tuple(each for each in found if each)


def _is_joined(verb: Any) -> bool:
    """Whether a clause stands beside the one after it with a comma alone, as in talk.

    The parser calls it an argument of the verb after it; with a verb of saying it is one.
    """
    return (
        verb.dep_ == "ccomp"
        and verb.pos_ in ("VERB", "AUX")
        and verb.i < verb.head.i
        and verb.head.lemma_ not in say.SAYING
        and not any(child.dep_ == "mark" for child in verb.children)
        and any(child.dep_ in say.SUBJECTS for child in verb.children)
    )


def _counts(word: Any) -> bool:
    """Whether a token is a number, in digits or in words."""
    return bool(word.like_num) or is_number(word.text)


def _is_sign(word: Any) -> bool:
    """Whether a token that counts as punctuation is a sign with a meaning, such as an emoji."""
    return any(unicodedata.category(letter) in ("So", "Sm") for letter in word.text)


def _folded(word: str) -> str:
    """A word without diacritics."""
    plain = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
