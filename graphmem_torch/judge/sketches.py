"""Sketches: the content words of a sentence, and what it says has ended.

A sketch is looser than a proposition (`judge.propositions`): it keeps no order and no grammar
except who has what. Two of them only raise a suspicion (`judge.suspicion`); they end nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge._given_up import GivenUp, GivenUpReader, below

__all__ = ["GivenUp", "Sketch", "SketchReader"]

_THINGS = ("NOUN", "PROPN", "NUM")


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sentence as content words.

    Attributes:
        words: Its content words: lemmas, names without accents, numbers as digits.
        speaker: Name of the speaker.
        about: Words of its subjects and of the owners of things; the speaker is given by name.
        said: Content words without those of its subject.
        names: Its words that are names.
        modified: Modifiers before each noun.
        owners: Owners other than the speaker of each noun: names, or "his", "their".
        holds: Whether it states a present fact, and denies nothing.
        gone: Things it says have ended.
        verbs: Verbs of its main clauses.
        objects: Objects of these verbs, and of their prepositions.
        head: Predicate of its subject: an adjective, a noun, else the verb.
        has: Pairs of a person and a thing they have, eat or drink.
        lacks: Pairs of a person and a thing they do not have, eat or drink.
        states: Pairs of a person and a trait: "single", "only-child".
    """

    words: frozenset[str]
    speaker: str
    about: frozenset[str]
    said: frozenset[str]
    names: frozenset[str]
    modified: tuple[tuple[str, frozenset[str]], ...]
    owners: tuple[tuple[str, str], ...]
    holds: bool
    gone: tuple[GivenUp, ...]
    verbs: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    head: str = ""
    has: frozenset[tuple[str, str]] = frozenset()
    lacks: frozenset[tuple[str, str]] = frozenset()
    states: frozenset[tuple[str, str]] = frozenset()


class SketchReader(GivenUpReader):
    """Reader of a parsed sentence as a sketch."""

    def sketch(self) -> Sketch | None:
        """Return the sketch of the stated facts; None if the sentence states nothing."""
        words = [word for word in self._sentence if not word.is_space]
        if not words or self._asks(words) or self._reported() or self._unsaid(words):
            return None
        root = self._sentence.root
        lowered = {word.lower_ for word in words}
        if any(word.dep_ == "pobj" and word.lower_ in say.REPORTS for word in words):
            return None  # "in the story we have a dog"
        if lowered & say.HEDGES or self._conditional(words, lowered):
            return None
        subjects = [
            word for word in words if word.dep_ in say.SUBJECTS and self._is_main(word.head)
        ]
        inside = {each.i for word in subjects for each in word.subtree}
        about = self._content(each for word in subjects for each in word.subtree)
        about |= {self._whose(word) for word in words if word.lower_ in say.SPEAKING}
        about |= {self._whose(word) for word in words if word.lower_ in say.ADDRESSED}
        denied = any(word.dep_ == "neg" or word.lower_ in say.DENIALS | {"no"} for word in words)
        past = root.pos_ in ("VERB", "AUX") and self._tense(root) == "past"
        verbs = [word for word in words if word.pos_ in ("VERB", "AUX") and self._is_main(word)]
        return Sketch(
            words=self._content(words),
            speaker=self._speaker,
            about=about - {""},
            said=self._content(word for word in words if word.i not in inside),
            names=frozenset(self._word(word) for word in words if self._is_name(word)),
            modified=tuple(
                (self._word(word), before)
                for word in words
                if word.pos_ in _THINGS and (before := self._before(word))
            ),
            owners=tuple(
                (self._word(word.head), self._word(word))
                for word in words
                if word.dep_ == "poss" and word.lower_ not in say.SPEAKING | say.ADDRESSED
            ),
            holds=not denied and not past and not self._intends(root),
            gone=tuple(self.given_up(words)),
            verbs=frozenset(map(self._word, verbs)),
            objects=frozenset(
                self._word(each)
                for verb in verbs
                if verb.lemma_ not in say.LIGHT
                for child in verb.children
                for each in ([child] if child.dep_ == "dobj" else below(child))
                if child.dep_ in ("dobj", "prep", "agent")
            ),
            head=self._head(root),
            has=frozenset(self._has(words)),
            lacks=frozenset(self._lacks(words)),
            states=frozenset(self._states(root)),
        )

    def _intends(self, root: Any) -> bool:
        """Return whether it is about an intention: planned, wanted, about to be."""
        helpers = {child.lower_ for child in root.children if child.dep_ == "aux"}
        going = root.lower_ == "going" and any(c.dep_ == "xcomp" for c in root.children)
        return bool(helpers & {"will", "'ll", "wo"}) or going or root.lemma_ in say.INTENDING

    def _head(self, root: Any) -> str:
        """Return the complement of the subject: adjective or noun after "be", else the verb."""
        said = next((c for c in root.children if c.dep_ in ("acomp", "attr")), None)
        return self._word(root if said is None or root.lemma_ != "be" else said)

    def _owner(self, word: Any) -> str:
        """Return the person of a possessive or subject: the speaker, or the last word of a name."""
        if word.lower_ in say.SPEAKING | say.ADDRESSED:
            return self._whose(word)
        unknown = word.lower_ in say.UNRESOLVED | say.OTHERS or word.pos_ not in _THINGS
        return "" if unknown else self._word(word)

    def _has(self, words: Sequence[Any]) -> Iterator[tuple[str, str]]:
        """Yield who has what: "my sister", "Tina's brother", "the room's windows", "I eat tuna"."""
        for word in words:
            if word.pos_ not in _THINGS or self._quoted(word) or _is_another(word):
                continue
            old = {c.lower_ for c in word.children if c.i < word.i} & say.FORMER
            for child in word.children:
                if child.dep_ == "poss" and not old and (owner := self._owner(child)):
                    yield owner, self._word(word)
            if word.dep_ == "dobj" and (owner := self._taker(word.head)) and not old:
                verb = word.head
                denied = any(c.dep_ == "neg" or c.lower_ in say.DENIALS for c in verb.children)
                denied |= any(c.lower_ == "no" for c in word.children)
                for each in (word, *_parts(word)):
                    if not denied:
                        yield owner, self._word(each)

    def _taker(self, verb: Any) -> str:
        """Return who has, eats or drinks something, if a verb says so of the present."""
        if verb.lemma_ not in say.TAKING or not self._is_main(verb):
            return ""
        if {c.lower_ for c in verb.children} & say.MODALS:
            return ""
        eats = verb.lemma_ in ("eat", "drink")
        subject = self._subject_of(verb)
        if subject is None or (not eats and self._tense(verb) == "past"):
            return ""
        return self._owner(subject)

    def _lacks(self, words: Sequence[Any]) -> Iterator[tuple[str, str]]:
        """Yield who lacks what: "I have no pets", "Rosa never touches alcohol"."""
        for word in words:
            verb = word.head
            if word.dep_ != "dobj" or word.pos_ not in _THINGS or not (who := self._taker(verb)):
                continue
            denied = any(c.dep_ == "neg" or c.lower_ in say.DENIALS for c in verb.children)
            perfect = any(c.lower_ in ("have", "has", "'ve", "had") for c in verb.children)
            if perfect and verb.lower_ not in ("got", "touched"):
                continue  # "I've never had a cat before"
            denied ^= any(c.lower_ in ("no", "zero") for c in word.children)
            plain = all(
                c.lower_ in ("no", "any", "a", "an", "zero", "single") for c in word.children
            )
            if denied and plain:
                yield who, self._word(word)

    def _states(self, root: Any) -> Iterator[tuple[str, str]]:
        """Yield the traits of persons: "I am single", "Tina is an only child"."""
        subject = self._subject_of(root)
        if root.lemma_ != "be" or subject is None or not (who := self._owner(subject)):
            return
        if any(c.dep_ == "neg" or c.lower_ in say.DENIALS for c in root.children):
            return
        for child in root.children:
            if child.dep_ in ("acomp", "attr"):
                before = [self._word(c) for c in child.children if c.dep_ == "amod"]
                yield who, "-".join([*before, self._word(child)])

    def _unsaid(self, words: Sequence[Any]) -> bool:
        """Return whether its main verb is one of saying or wishing, or of possibility."""
        root = self._sentence.root
        helpers = {child.lower_ for child in root.children if child.dep_ == "aux"}
        said = root.lemma_ in say.SAYING and any(
            child.dep_ == "ccomp" and child.i > root.i for child in root.children
        )
        return said or bool(helpers & say.MODALS) or "'d" in helpers or len(words) > 60

    def _before(self, noun: Any) -> frozenset[str]:
        """Return the modifiers before a noun."""
        return self._content(
            child
            for child in noun.children
            if child.i < noun.i
            and child.dep_ in ("compound", "amod", "nmod", "nummod")
            and child.lower_ not in say.NEW
        )


def _is_another(word: Any) -> bool:
    """Return whether a thing is not what its noun says: "cat videos", "oat milk", "a toy car"."""
    return word.dep_ == "compound" or any(
        child.dep_ == "compound" or child.lower_ in say.OTHER_SORT for child in word.children
    )


def _parts(noun: Any) -> list[Any]:
    """Return the content of a glass or a plate."""
    return [
        each
        for link in noun.children
        if link.dep_ == "prep" and link.lower_ == "of"
        for each in link.children
        if each.dep_ == "pobj"
    ]
