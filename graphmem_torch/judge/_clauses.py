"""Read the main clauses of a parsed sentence as propositions.

A clause counts only if its speaker states it in the present or the perfect, or says that it has
ended. Questions, conditions, wishes, quotations, hearsay and subordinate clauses do not count, nor
do subjects that only the context resolves ("he", "this room").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge._statement_words import DIGITS, SAME_VERBS
from graphmem_torch.judge.propositions import CALENDAR, Proposition, StatedChange, Tense, is_number
from graphmem_torch.text.question import role_of

_WORDS = 60  # maximum tokens of a sentence; parses of longer ones are not reliable
_PHRASE = 4  # maximum words of a value
_RELATIVE = 3  # words of a clause that belongs to the name of a thing: "the firm I work for"
_BE = "be"
_REACHED = {"reach": "have", "hit": "have", "become": "be", "join": "join", "turn": "be"}


class SentenceReader:
    """Reader of a parsed sentence."""

    def __init__(self, sentence: Any, speaker: str | None) -> None:
        self._sentence = sentence
        role = role_of(speaker)
        self._machine = role < 0
        self._speaker = "user" if role > 0 else (speaker or "i").lower()
        self._addressed = {1: "assistant", -1: "user", 0: None}[role]

    def propositions(self) -> Iterator[Proposition]:
        """Yield the propositions of its main clauses."""
        words = [word for word in self._sentence if not word.is_space]
        if len(words) > _WORDS or not words or self._asks(words) or self._reported():
            return
        for verb in words:
            if not _heads_clause(verb) or not self._is_main(verb):
                continue
            if (found := self._clause(verb) or self._told(verb)) is not None:
                yield found
        if not self._sentence.text.rstrip().endswith("?"):
            yield from self._presupposed(words)

    def _reported(self) -> bool:
        """Return whether it follows a colon and a word of saying or of fiction."""
        text = self._sentence.doc.text[: self._sentence.end_char]
        before, colon, _ = re.split(r"[.!?\n]\s+(?=\S)", text)[-1].rpartition(": ")
        return bool(colon) and reports(before)

    def _told(self, verb: Any) -> Proposition | None:
        """Read the value that an instruction sets: "Use 8080 as the port"."""
        if verb.lower_ != "use" or verb.dep_ != "ROOT" or verb.i != self._sentence.start:
            return None
        value = next((c for c in verb.children if c.dep_ == "dobj"), None)
        link = next((w for w in verb.subtree if w.lower_ == "as" and w.dep_ == "prep"), None)
        what = None if link is None else next(iter(link.children), None)
        if value is None or what is None or not any(c.lower_ == "the" for c in what.children):
            return None
        words = self._phrase_of(value.subtree)
        about = self._about(what)
        if not words or about is None:
            return None
        return Proposition(*about, _BE, words, "present")

    def _presupposed(self, words: Sequence[Any]) -> Iterator[Proposition]:
        """Yield what a noun phrase implies: "our flat in Bremen", "my three children"."""
        for noun in words:
            owner = next((c for c in noun.children if c.dep_ == "poss"), None)
            if owner is None or owner.lower_ not in ("my", "our"):
                continue
            if self._machine or self._quoted(noun):
                continue
            children = [c for c in noun.children if c.i != owner.i]
            below = [c for c in children if c.i > noun.i and c.dep_ != "punct"]
            if any(
                c.i < noun.i and c.lower_ not in say.NEW and c.dep_ != "nummod" for c in children
            ):
                continue  # "my old flat", "my first job"
            if noun.lower_.startswith("ex-") and (name := self._name_of(_words_after(noun))):
                whose = frozenset([self._speaker, noun.lower_[3:]])
                yield Proposition(
                    whose, False, _BE, name, "ended", proper=frozenset(name), implied=True
                )
                continue
            said: tuple[str, tuple[str, ...]] | None = None
            count = [c for c in children if c.dep_ == "nummod" and c.i < noun.i]
            if count:
                if len(count) == 1 and all(c.lower_ in say.NEUTRAL | {"all"} for c in below):
                    said = "have", (self._word(count[0]), self._word(noun))
            else:
                said = self._located(noun)
            if said is None and not children and noun.tag_ in ("NN", "NNS"):
                said = "have", (self._word(noun),)
            if said is not None:
                proper = frozenset(said[1]) if said[0] != "have" else frozenset[str]()
                whose = frozenset([self._speaker])
                if said[0] in say.FUNCTIONAL:
                    whose, said = whose | {said[0]}, (_BE, said[1])
                yield Proposition(
                    whose, len(whose) == 1, *said, "present", proper=proper, implied=True
                )

    def _located(self, noun: Any) -> tuple[str, tuple[str, ...]] | None:
        """Return where somebody lives or works, by the words after "my flat", "my job"."""
        after = _words_after(noun)
        if after and noun.lower_ in say.FUNCTIONAL and (name := self._name_of(after)):
            return noun.lower_, name
        if after and after[0].lower_ == "here":
            after = after[1:]
        if not after or after[0].lower_ not in ("in", "at", "with") or after[0].dep_ != "prep":
            return None
        name = self._name_of(after[1:])
        if name and noun.lower_ in say.HOUSES and after[0].lower_ == "in":
            return "live", ("in", *name)
        if name and noun.lower_ in say.JOBS and after[0].lower_ != "in":
            return "work", ("at", *name)
        return None

    def _name_of(self, words: Sequence[Any]) -> tuple[str, ...]:
        """Return the name that some words begin with, with its article if it has one."""
        place = 1 if words and words[0].lower_ in say.ARTICLES else 0
        named = list(takewhile(lambda word: word.pos_ == "PROPN", words[place:]))
        return tuple(map(self._word, named))

    def _asks(self, words: Sequence[Any]) -> bool:
        """Return whether it is a question without its mark, or begins with a condition."""
        first = next((word for word in words if word.is_alpha or word.like_num), words[0])
        if first.lower_ in say.CONDITIONS or first.lower_ in ("suppose", "imagine", "say", "let"):
            return True
        return first.pos_ == "AUX" and any(
            child.dep_ in say.SUBJECTS and child.i > first.i
            for child in (*first.children, *first.head.children)
        )

    def _is_main(self, verb: Any) -> bool:
        """Return whether a verb heads a stated clause: a root, or one joined to it."""
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
        if subject is None and not self._omits_speaker(verb):
            return None
        about = self._about(subject)
        implied = False
        if about is None and (before := self._antecedent(subject)) is not None:
            about, implied = self._about(before), True
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
        predicate = SAME_VERBS.get(predicate, predicate)
        if any(child.dep_ == "aux" and child.lower_ in ("can", "ca") for child in verb.children):
            predicate = f"can {predicate}"
        passive = any(child.dep_ == "auxpass" for child in verb.children)
        names = frozenset(word for token, word in kept if self._is_name(token))
        words = tuple(word for _, word in kept)
        if words and words[0] in say.ASKING:
            return None
        if passive:  # "is closed" describes a state, as "is open" does
            predicate, words = _BE, (verb.lower_, *words)
            if tense == "past" and verb.lower_ in say.ONCE:
                tense = "present"
        if predicate == "work" and not about[1] and {*words} <= say.FINE:
            predicate, words = _BE, ("working",)
        if predicate == _BE and words[:3] == ("out", "of", "order"):
            words = ("broken", *words[3:])
        if verb.lemma_ in say.MOVES and "from" not in lowered and "to" in words:
            value = words[words.index("to") + 1 :]
            if value and is_number(value[0]):  # a value that rose to 83 is at 83
                predicate, words, tense = _BE, value, "present"
        if verb.lemma_ in _REACHED:
            predicate, tense = _REACHED[verb.lemma_], "present" if tense == "past" else tense
        if denied and explicit and tense == "present":
            tense = "ended"
            denied = False
        change = None
        if not denied and not implied and tense != "ended":
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
            any(word.dep_ in say.CLAUSES for word in inner if word.i not in (outer.i, verb.i)),
            implied,
            any(
                child.dep_ == "attr" and any(each.lower_ == "the" for each in child.children)
                for child in verb.children
            ),
        )

    # Parts of the clause.

    def _subject_of(self, verb: Any) -> Any:
        """Return the subject of a verb, or of the verb that it is joined to."""
        while True:
            for child in verb.children:
                if child.dep_ in say.SUBJECTS:
                    return None if child.dep_ == "csubj" else child
            if verb.dep_ not in ("conj", "xcomp") or verb.head.pos_ not in ("VERB", "AUX"):
                return None
            verb = verb.head

    def _antecedent(self, pronoun: Any) -> Any:
        """Return the person that "he" or "she" refers to: the only one named, as a subject."""
        if pronoun is None or pronoun.lower_ not in ("he", "she"):
            return None
        before = [word for word in self._sentence if word.i < pronoun.i]
        subjects = [word for word in before if word.dep_ in say.SUBJECTS]
        if len(subjects) != 1:
            return None
        (found,) = subjects
        inside = {word.i for word in found.subtree}
        others = any(word.pos_ == "PROPN" and word.i not in inside for word in before)
        bare = found.text.istitle() and not list(found.children)
        person = bare or self._is_name(found) or found.lower_ in say.KIN
        return found if person and not others else None

    def _omits_speaker(self, verb: Any) -> bool:
        """Return whether a sentence begins with a past verb, as in a diary: "Sold the car"."""
        return verb.tag_ in ("VBD", "VBN") and verb.i == self._sentence.start

    def _about(self, subject: Any) -> tuple[frozenset[str], bool] | None:
        """Return a subject's words, and whether it is named; None if its context resolves it."""
        if subject is None:
            return None if self._machine else (frozenset([self._speaker]), True)
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
            clause = word.dep_ in ("acl", "appos") or word.pos_ in ("VERB", "AUX")
            near = word.dep_ == "relcl" and len(list(word.subtree)) <= _RELATIVE
            if clause and word is not subject and not near:
                return None
            if low == "all" and word.head.lower_ == "of":
                continue
            if word.is_punct or word.is_space or low in ("the", "'s", "'", "of") or low in say.NEW:
                continue
            if low == "to" and word.dep_ == "prep":  # the door to and of the garden
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
            elif word.tag_ == "NNS" and word.lemma_ in say.SINGLE:
                found.add(low)  # "the colours" are several
            else:
                found.add(self._word(word))
        found.discard("")
        named = self._is_name(subject)
        return (frozenset(found), named) if found else None

    def _goes_doing(self, verb: Any) -> bool:
        after = verb.nbor() if verb.i + 1 < self._sentence.end else verb
        return after.tag_ == "VBG" and after.head.i == verb.i

    def _ended(self, verb: Any) -> tuple[Any, Any, Tense | None, bool, bool]:
        """Return the verb itself, the one that tells the state, its tense, denied, explicit."""
        inner = next((c for c in verb.children if c.dep_ in ("xcomp", "pcomp")), None)
        if inner is not None and inner.pos_ in ("VERB", "AUX"):
            if verb.lower_ == "used" and any(c.lower_ == "to" for c in inner.children):
                return verb, inner, "ended", False, False
            if verb.lemma_ in say.STOPS and inner.tag_ == "VBG":
                return verb, inner, "ended", False, True
        if verb.lemma_ == "go" and self._goes_doing(verb):
            return verb, verb.nbor(), None, False, False  # "goes running" says that somebody runs
        up = verb.lemma_ == "give" and any(c.lower_ == "up" for c in verb.children)
        if up and inner is not None and inner.tag_ == "VBG":
            return verb, inner, "ended", False, True
        return verb, verb, None, False, False

    def _inside(self, verb: Any, subject: Any) -> list[Any]:
        """Return the words of a clause without those of its subject and of joined clauses."""
        out = set()
        for child in verb.children:
            joined = child.dep_ in ("conj", "parataxis") and child.pos_ in ("VERB", "AUX")
            if joined or _is_joined(child) or child.dep_ in say.SUBJECTS:
                out |= {word.i for word in child.subtree}
        out |= {word.i for word in subject.subtree} if subject is not None else set()
        inside = [
            word
            for word in verb.subtree
            if word.i not in out and not word.is_space and word.dep_ != "intj"
        ]
        label = [word.i for word in inside if word.text in ":!" and word.i < verb.i]
        for word in inside:  # "as of today" is the start of a change, not its subject
            if word.lower_ == "as" and any(child.lower_ == "of" for child in word.children):
                label += [each.i for each in word.subtree if each.i < verb.i]
        return [word for word in inside if not label or word.i > max(label) or word.i > verb.i]

    def _conditional(self, inner: Sequence[Any], lowered: set[str]) -> bool:
        marks = {w.lower_ for w in inner if w.dep_ in ("mark", "advmod", "prep")}
        return bool(marks & say.CONDITIONS) or ("case" in lowered and "in" in lowered)

    @staticmethod
    def _tense(verb: Any) -> Tense:
        """Return the past, or the tense of what holds now: present, perfect, or near future."""
        helpers = [child for child in verb.children if child.dep_ in ("aux", "auxpass")]
        said = {child.lower_ for child in helpers}
        if said & say.PRESENT:
            return "present"
        past = said & {"did", "had"} or "VBD" in {child.tag_ for child in (*helpers, verb)}
        return "past" if past else "present"

    def _words(
        self, inner: Sequence[Any], verb: Any
    ) -> tuple[list[tuple[Any, str]], dict[str, bool]]:
        """Return the words that go with a verb, and flags for its small words."""
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
            if any(
                lows[i : i + 3] == ["from", "now", "on"]
                for i in range(max(place - 2, 0), place + 1)
            ):
                continue
            if low in say.ADDED and not (low == "second" and before in ("the", "my", "our")):
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
            degree = low == "so" and word.head.pos_ == "ADJ"
            small = word.dep_ in ("advmod", "intj", "prep", "pcomp", "discourse")
            if low in say.NEUTRAL and small and not degree:
                continue
            kept.append((word, self._word(word)))
        return [(token, word) for token, word in kept if word], flags

    def _is_name(self, word: Any) -> bool:
        """Return whether a word is a name: by its tag, or by its capital inside a sentence."""
        inside = word.i > self._sentence.start and word.nbor(-1).text not in '.!?:"\u201c'
        capital = word.text.istitle() and word.pos_ in ("NOUN", "ADJ", "X") and inside
        return word.pos_ == "PROPN" or (capital and word.tag_ not in ("NNS", "JJ"))

    def _word(self, word: Any) -> str:
        """Return a word to compare: its lemma, digits for a number, the name for the speaker."""
        low = word.lower_
        if low in say.SPEAKING:
            return self._speaker
        if low in say.ADDRESSED:
            return self._addressed or "you"
        if is_number(word.text):
            return low.replace("\u2212", "-").replace(",", "")
        if low in DIGITS:
            return DIGITS[low]
        if low.removesuffix("s") in CALENDAR:
            return low.removesuffix("s")
        if word.is_punct and not _is_sign(word):
            return ""
        if word.pos_ == "PROPN" or low[0] == '"':
            return _folded(low.strip('."'))
        lemma = _folded(self._lemma(word))
        return say.SYNONYMS.get(lemma, lemma)

    @staticmethod
    def _lemma(word: Any) -> str:
        return (word.lemma_ or word.text).lower()

    # Changes.

    def _change(
        self, verb: Any, subject: frozenset[str], inner: Sequence[Any], passive: bool
    ) -> StatedChange | None:
        """Return the change that a clause in the past or the perfect states."""
        lemma = verb.lemma_.lower()
        if verb.tag_ not in ("VBD", "VBN"):
            return None
        if (found := self._handed(verb, subject, inner, passive)) is not None:
            return found
        after = [word for word in inner if word.i > verb.i]
        old, new = self._phrase_after(after, "from"), self._phrase_after(after, "to")
        cut = next((w.i for w in after if w.lower_ in ("from", "to")), verb.doc[-1].i + 1)
        objects = [c for c in verb.children if c.dep_ in ("dobj", "oprd", "attr") and c.i < cut]
        of = [subject]
        for each in objects:
            words = [self._word(w) for w in each.subtree if w.i < cut and self._says_what(w)]
            of.append(frozenset(words) - {""})
        if lemma in say.GONE:
            gone = [
                self._word(word)
                for each in objects
                for word in each.subtree
                if self._says_what(word)
            ]
            gone = sorted(subject) if passive else [word for word in gone if word]
            if lemma in say.ROLES:
                gone += [*self._phrase_after(after, "as"), *old]
            return StatedChange("gone", tuple(of), (), tuple(gone)) if gone else None
        if lemma == "rename":
            if not new and passive and objects:
                new = self._phrase_of(objects[-1].subtree)
            return StatedChange("renamed", tuple(of), new, old) if new else None
        if lemma == "move" and old and not new and not passive and not objects:
            return StatedChange("gone", tuple(of), (), old)
        if not new:
            return None
        if lemma in ("move", "relocate") and not passive and not objects:
            return StatedChange("moved", tuple(of), new, old)
        if lemma in say.CHANGES and (old or lemma not in say.MOVES):
            return StatedChange("became", tuple(of), new, old)
        return None

    def _handed(
        self, verb: Any, subject: frozenset[str], inner: Sequence[Any], passive: bool
    ) -> StatedChange | None:
        """Return the change of a replacement: replaced by, traded in for, taken over from."""
        lemma, after = verb.lemma_.lower(), [word for word in inner if word.i > verb.i]
        thing = next((c for c in verb.children if c.dep_ == "dobj"), None)
        what = () if thing is None else self._phrase_of(thing.subtree)
        if lemma == "replace" and not any(word.lower_ == "as" for word in after):
            new = self._phrase_after(after, "with") or self._phrase_after(after, "by")
            if passive and new:
                return StatedChange("gone", (subject,), new, tuple(sorted(subject)))
            whole = frozenset(self._phrase_after(after, "for")) - {"whole", "entire"}
            return StatedChange("became", (subject, whole), new, what) if what and new else None
        if lemma in say.SWAPS and what and (new := self._phrase_after(after, "for")):
            return StatedChange("became", (subject,), new, what)
        over = any(word.lower_ == "over" for word in after)
        if lemma == "take" and over and what and (old := self._phrase_after(after, "from")):
            return StatedChange("became", (frozenset(what),), tuple(sorted(subject)), old)
        if lemma == "hand" and over and thing is not None:
            gone = self._phrase_of(thing.subtree, until=("to",))
            return StatedChange("gone", (subject,), (), gone)
        return None

    def _says_what(self, word: Any) -> bool:
        """Return whether a word is part of the name of a thing."""
        low = word.lower_
        return not (
            low in say.ARTICLES
            or low in say.NEW
            or low in ("of", "to", "'s", "'")
            or (word.is_punct and not is_number(word.text))
        )

    def _phrase_after(self, words: Sequence[Any], preposition: str) -> tuple[str, ...]:
        """Return the words after a preposition, to the end of their phrase."""
        place = next((i for i, w in enumerate(words) if w.lower_ == preposition), None)
        return () if place is None else self._phrase_of(words[place + 1 :])

    def _phrase_of(
        self, words: Iterable[Any], until: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        """Return the words of a phrase, up to its first preposition or a given word."""
        found: list[str] = []
        for place, word in enumerate(words):
            if until is not None:
                if word.lower_ in until:
                    break
                found += [self._word(word)] if self._says_what(word) else []
                continue
            ends = word.pos_ in ("ADP", "SCONJ", "CCONJ", "PART", "AUX", "PRON")
            ends |= word.pos_ == "VERB" and place > 0  # "changed to orchid" reads as a verb
            ends |= word.is_punct and not is_number(word.text) and word.text not in "\"'\u201c"
            ends |= word.lower_ in say.DEICTIC
            ends &= word.text[0] != '"' and word.lower_ != "'s"
            if ends or len(found) == _PHRASE:
                break
            if self._says_what(word):
                found.append(self._word(word))
        return tuple(each for each in found if each)


def reports(label: str) -> bool:
    """Return whether the text after a label is reported, or not asserted."""
    return any(
        word in say.REPORTS or singular(word) in say.SAYING for word in label.lower().split()
    )


def singular(word: str) -> str:
    """Return a word without the ending of a verb after a name."""
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "oes")) else word[:-1]


def _heads_clause(word: Any) -> bool:
    """Return whether a word may head a clause: a verb, or an adjective by the parser's mistake."""
    return word.pos_ in ("VERB", "AUX") or any(each.dep_ == "auxpass" for each in word.children)


def _is_joined(verb: Any) -> bool:
    """Return whether only a comma joins a clause to the next one, as in talk.

    The parser calls it an argument of the next verb, which is right for a verb of saying.
    """
    return (
        verb.dep_ == "ccomp"
        and verb.pos_ in ("VERB", "AUX")
        and verb.i < verb.head.i
        and verb.head.lemma_ not in say.SAYING
        and not any(child.dep_ == "mark" for child in verb.children)
        and any(child.dep_ in say.SUBJECTS for child in verb.children)
    )


def _words_after(noun: Any) -> list[Any]:
    return [word for word in noun.sent if word.i > noun.i]


def _counts(word: Any) -> bool:
    """Return whether a token is a number, in digits or in words."""
    return bool(word.like_num) or is_number(word.text)


def _is_sign(word: Any) -> bool:
    """Return whether a token tagged as punctuation has a meaning, such as an emoji."""
    return any(unicodedata.category(letter) in ("So", "Sm") for letter in word.text)


def _folded(word: str) -> str:
    """Return a word without diacritics."""
    plain = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
