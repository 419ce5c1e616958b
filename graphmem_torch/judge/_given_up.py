"""Read what sentences say has ended: sold, stopped, replaced, changed to something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge._clauses import SentenceReader

_CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "NUM", "ADV", "X")
_YEARS = range(1900, 2100)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Something that has ended by a sentence.

    Attributes:
        words: Its content words.
        heads: Words that name it, without their modifiers.
        of: Its former owner or subject; empty if the sentence does not say.
        new: Content words of its replacement.
        kind: `value` (another one replaced it), `activity` (somebody did it), `thing` (somebody
            had, used or held it) or `end` (it no longer exists).
        verb: Verb of an activity.
    """

    words: frozenset[str]
    heads: frozenset[str]
    of: frozenset[str]
    new: frozenset[str] = frozenset()
    kind: Literal["value", "activity", "thing", "end"] = "value"
    verb: str = ""


class GivenUpReader(SentenceReader):
    """Reader of what a parsed sentence says has ended."""

    def given_up(self, words: Sequence[Any]) -> Iterator[GivenUp]:
        """Yield what the main clauses of a sentence say has ended."""
        if self._long_ago(words):
            return
        for verb in words:
            stated = self._is_main(verb) or (self._omits_speaker(verb) and verb.dep_ == "ccomp")
            if verb.pos_ not in ("VERB", "AUX") or not stated:
                continue
            helpers = {child.lower_ for child in verb.children}
            if helpers & say.MODALS or ("to" in helpers and verb.dep_ == "xcomp"):
                continue
            yield from self._given_up_by(verb)

    def _long_ago(self, words: Sequence[Any]) -> bool:
        """Return whether it is about another time: a year, "ago", "as a child", "when I was"."""
        for word in words:
            year = word.text.isdigit() and int(word.text) in _YEARS
            stage = word.dep_ == "pobj" and word.head.lower_ == "as" and word.lemma_ in say.STAGES
            when = word.lower_ == "when" and any(w.lower_ in ("was", "were") for w in words)
            if year or stage or when or word.lower_ in ("ago", "childhood"):
                return True
        return False

    def _given_up_by(self, verb: Any) -> Iterator[GivenUp]:
        """Yield what a verb says has ended."""
        of = self._actor(verb)
        inner = [word for word in verb.subtree if word.i != verb.i]
        if any(map(_is_daytime, inner)):
            return  # given up at that time of day, or for that day
        lows = [word.lower_ for word in inner]
        denied = any(child.dep_ == "neg" or child.lower_ in say.DENIALS for child in verb.children)
        longer = any(
            (one, other) in (("no", "longer"), ("any", "more")) for one, other in pairwise(lows)
        )
        for preposition in ("instead", "rather", "from"):
            yield from self._replaced(verb, preposition, of or frozenset())
        if of is None:
            return
        if longer or (denied and "anymore" in lows):
            yield self._made(self._arguments(verb), of, verb)
            return
        if denied:
            return
        inner_verb = next(
            (
                c
                for c in verb.children
                if c.dep_ in ("xcomp", "pcomp") and c.pos_ in ("VERB", "AUX")
            ),
            None,
        )
        if inner_verb is not None and self._stops(verb, inner_verb):
            yield self._made(self._arguments(inner_verb), of, inner_verb)
            return
        if verb.lemma_ == "be" and lows and {*lows} & say.OVER:
            subject = self._subject_of(verb)
            if any(
                c.lower_ in say.OVER and c.dep_ in ("acomp", "advmod", "attr")
                for c in verb.children
            ):
                yield self._made([subject], of)
        if verb.tag_ in ("VBD", "VBN"):
            yield from self._lost(verb, of)

    def _stops(self, verb: Any, inner: Any) -> bool:
        """Return whether a verb says that the activity of another verb has ended."""
        if verb.lower_ == "used" and any(c.lower_ == "to" for c in inner.children):
            return True
        up = verb.lemma_ == "give" and any(c.lower_ == "up" for c in verb.children)
        return (verb.lemma_ in say.STOPS or up) and inner.tag_ == "VBG"

    def _actor(self, verb: Any) -> frozenset[str] | None:
        """Return the subject of a verb; None if only the context resolves it."""
        subject = self._subject_of(verb)
        if subject is None:
            return frozenset([self._speaker]) if self._omits_speaker(verb) else None
        if subject.lower_ in say.SPEAKING | say.ADDRESSED:
            return frozenset([self._whose(subject)]) - {""} or None
        if subject.lower_ in say.UNRESOLVED or subject.dep_ == "expl":
            return None
        return self._content(subject.subtree) or None

    def _arguments(self, verb: Any) -> list[Any]:
        """Return the objects of a verb; without any, those of its prepositions."""
        found = [c for c in verb.children if c.dep_ in ("dobj", "attr", "acomp", "oprd", "dative")]
        found += [c for c in verb.children if c.dep_ == "xcomp" and c.pos_ == "VERB"]
        return found or [
            each
            for child in verb.children
            if child.dep_ in ("prep", "agent") and child.lower_ != "because"
            for each in child.children
            if each.dep_ in ("pobj", "pcomp")
        ]

    def _made(self, things: Sequence[Any], of: frozenset[str], verb: Any | None = None) -> GivenUp:
        """Return something given up, by its words; with a verb, an activity."""
        tokens = [word for each in things for word in each.subtree]
        heads = frozenset(self._word(each) for each in things if each.pos_ in _CONTENT) - {""}
        if verb is None:
            return GivenUp(self._content(tokens), heads, of, kind="end")
        words = self._content([*tokens, verb])
        named = self._word(verb)
        return GivenUp(words, heads or frozenset([named]), of, kind="activity", verb=named)

    def _replaced(self, verb: Any, word: str, of: frozenset[str]) -> Iterator[GivenUp]:
        """Yield what follows "instead of", "rather than", or stands between "from" and "to"."""
        marks = [w for w in verb.subtree if w.lower_ == word and w.i > verb.i]
        for mark in marks:
            if next((w for w in mark.ancestors if w.pos_ in ("VERB", "AUX")), None) != verb:
                continue
            if word == "from":
                if verb.lemma_ not in say.TURNS:
                    continue
                old = [c for c in mark.children if c.dep_ in ("pobj", "pcomp")]
                to = [
                    c
                    for w in verb.subtree
                    if w.lower_ in ("to", "into") and w.dep_ == "prep" and w.i > mark.i
                    for c in w.children
                    if c.dep_ == "pobj"
                ]
                if not to:
                    continue
                new = self._content(w for each in to for w in each.subtree)
            else:
                link = mark.nbor() if mark.i + 1 < self._sentence.end else mark
                if link.lower_ not in ("of", "than"):
                    continue
                old = [c for c in (*link.children, *mark.children) if c.dep_ in ("pobj", "pcomp")]
                old += [c for c in link.head.children if c.dep_ == "conj" and c.i > link.i]
                new = frozenset[str]()
            if old:
                made = self._made(old, of)
                about = of | self._content(
                    w for c in verb.children if c.dep_ in ("dobj", "nsubjpass") for w in c.subtree
                )
                verb_of = "" if word == "from" else self._word(verb)
                yield GivenUp(made.words - new, made.heads, about, new, verb=verb_of)

    def _lost(self, verb: Any, of: frozenset[str]) -> Iterator[GivenUp]:
        """Yield what was sold, left, cancelled or replaced."""
        lemma = verb.lemma_.lower()
        particles = {c.lower_ for c in verb.children if c.dep_ in ("prt", "advmod", "prep")}
        passive = any(child.dep_ == "auxpass" for child in verb.children)
        phrasal = any(f"{lemma}-{each}" in say.GONE_WITH for each in particles)
        rid = lemma == "get" and any(child.lower_ == "rid" for child in verb.children)
        held = lemma in say.ENDING and any(
            child.lemma_ in say.HOLDINGS and child.dep_ in ("dobj", *say.SUBJECTS)
            for child in verb.children
        )
        if not (lemma in say.LEFT - {"give", "step"} or phrasal or rid or held):
            return
        objects = [c for c in verb.children if c.dep_ in ("dobj", "oprd", "attr")]
        if passive:
            objects = [c for c in verb.children if c.dep_ == "nsubjpass"]
        links = [c for c in verb.children if c.dep_ in ("prep", "agent")]
        if lemma == "get" and any(c.lower_ == "rid" for c in verb.subtree):
            objects = [each for w in verb.subtree if w.lower_ == "of" for each in below(w)][:1]
        if (lemma, *sorted(particles & {"over"})) == ("take", "over"):
            objects = [each for link in links if link.lower_ == "from" for each in below(link)]
        if lemma in say.SWAPS and not any(c.lower_ == "for" for c in links):
            return  # "exchanged numbers"
        placed = any(c.lower_ in ("at", "in", "on") for c in links)
        if lemma in ("leave", "drop", "lose") and not passive and objects and placed:
            return  # "left my jacket at the office"
        if not objects or lemma in say.ROLES:
            objects = objects + [
                each
                for link in links
                if link.lower_ in ("as", "from", "of", "with", "out", "on", "off", "up")
                for each in below(link)
            ]
        if not objects and (phrasal or held):
            objects = [c for c in verb.children if c.dep_ in say.SUBJECTS]
        if not objects:
            return
        made = self._made(objects, of)
        owned = of if not passive else self._content(w for o in objects for w in o.subtree)
        new = self._content(
            w for link in links if link.lower_ in ("by", "with", "for") for w in link.subtree
        )
        ceased = lemma in say.CEASED or (phrasal and lemma in say.CEASING)
        heads = made.heads - new or made.heads
        yield GivenUp(
            made.words - new or made.words, heads, owned | of, new, "end" if ceased else "thing"
        )

    def _whose(self, word: Any) -> str:
        if word.lower_ in say.SPEAKING:
            return "" if self._machine else self._speaker
        return self._addressed or ""

    def _content(self, words: Iterable[Any]) -> frozenset[str]:
        """Return the content words among some words."""
        found = {
            self._word(word)
            for word in words
            if word.pos_ in _CONTENT
            and word.dep_ not in ("aux", "auxpass", "neg")
            and not (word.pos_ == "ADV" and word.lower_ in say.NEUTRAL)
            and word.lower_ not in say.SPEAKING | say.ADDRESSED | say.ARTICLES
        }
        return frozenset(found - {"", "be", "have", "do", "get"})


def below(link: Any) -> list[Any]:
    """Return the nouns under a preposition, through a second one: "out of law school"."""
    found = []
    for child in link.children:
        if child.dep_ in ("pobj", "pcomp"):
            found.append(child)
        elif child.dep_ == "prep":
            found += below(child)
    return found


def _is_daytime(word: Any) -> bool:
    """Return whether a word says when in the day: "at night", "at five", "early"."""
    if word.dep_ == "pobj" and word.head.lower_ in ("at", "in"):
        return word.lower_ in say.DAYTIMES or (word.head.lower_ == "at" and word.like_num)
    return bool(word.lower_ == "early")
