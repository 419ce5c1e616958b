"""LexicalJudge: does a text support another, contradict it, or neither? By rule, without a model.

It reads what lies on the surface, and what patterns read of states that change (`text.slots`):
arithmetic and knowledge of the world are beyond it. Denials, opposites, months and patterns are
those of English: about texts of other languages (`text.words.foreign`) it says nothing.
`graphmem eval claims` measures how far that goes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from torch import Tensor

from graphmem_torch.oracle.protocol import Verdict, check_pairs
from graphmem_torch.text.embedder import Embedder, encode_checked, rescaled
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.slots import CUES, Reading, at_odds
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = [
    "RELATED",
    "Claim",
    "Evidence",
    "LexicalJudge",
    "conflicts",
    "opposites",
    "read_text",
]

_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|hardly|"
    r"fail(?:s|ed)? to|stopped|quit|g[ai]ven? up|refus(?:es|ed))\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*)\s*(%|[^\W\d_]+)?")
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_YEARS = range(1000, 2200)

_OPPOSITES = """
accept reject | accepted denied | active inactive | agree disagree | alive dead | allow ban |
allow forbid | allow prevent | always never | arrive leave | asleep awake | begin end |
best worst | better worse | big small | bought sold | buy sell | cause prevent | cheap expensive |
correct wrong | decrease increase | deny confirm | different same | dry wet | early late |
easy difficult | easy hard | effective ineffective | empty full | enable disable | enemy friend |
expand shrink | fall rise | fast slow | fewer more | first last | gain lose | good bad |
guilty innocent | happy sad | healthy sick | heavy light | high low | higher lower | hate like |
hate love | hot cold | improve worsen | inhibit promote | inhibit induce | join quit |
large small | less more | long short | lower raise | married divorced | maximum minimum |
negative positive | old new | old young | open close | open shut | pass fail |
possible impossible | present absent | quiet loud | reduce increase | reduce raise | rich poor |
right wrong | safe dangerous | safe unsafe | similar different | start stop | strong weak |
success failure | support oppose | true false | up down | weaken strengthen | win lose |
before after | above below | with without
"""


@cache  # on first use: the stemmer is not loaded at import
def opposites() -> Mapping[str, frozenset[str]]:
    """Each word's opposites, both ways, as stems; stop words as they are."""
    table: dict[str, set[str]] = {}
    for pair in _OPPOSITES.replace("\n", " ").split("|"):
        one, other = (_stem(word) for word in pair.split())
        table.setdefault(one, set()).add(other)
        table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


def _stem(word: str) -> str:
    found = terms(word)
    return found[0] if found else word


@dataclass(frozen=True, slots=True)
class _Sentence:
    stems: frozenset[str]  # content words
    told: frozenset[str]  # those of them that are neither names nor numbers
    words: frozenset[str]  # all of them, stemmed where they are content
    negated: bool
    denied: frozenset[str]  # content words behind the last denial
    numbers: Mapping[str, frozenset[str]]  # by unit: a word, "year" or "month"


@dataclass(frozen=True, slots=True)
class Claim:
    """A text as its sentences, each with its words, its numbers and whether it denies."""

    sentences: tuple[_Sentence, ...]

    @classmethod
    def read(cls, text: str) -> Claim:
        """The claim of a text."""
        parts = [part for line in text.split("\n") for part in split_at_marks(line, ".!?;")]
        return cls(tuple(_sentence(part) for part in parts if part.strip()))

    @property
    def stems(self) -> frozenset[str]:
        """The content words of all sentences."""
        return frozenset[str]().union(*(sentence.stems for sentence in self.sentences))


def conflicts(premise: Claim, hypothesis: Claim) -> tuple[float, tuple[str, ...]]:
    """How much of a hypothesis a premise holds, and in what they are at odds.

    Both are about the premise's sentence that shares most words with the hypothesis: another one
    may deny something else.

    Returns:
        The share of the hypothesis's content words that are in that sentence (0 without any), and
        the names of the conflicts: `negation`, `opposite`, `number`.
    """
    wanted = hypothesis.stems
    if not wanted or not premise.sentences:
        return 0.0, ()
    said = max(premise.sentences, key=lambda sentence: len(sentence.stems & wanted))
    found = [
        name
        for name, at_odds in (
            ("negation", _contradicted(said, hypothesis)),
            ("opposite", _opposed(said, hypothesis)),
            ("number", _miscounted(said, hypothesis)),
        )
        if at_odds
    ]
    return len(said.stems & wanted) / len(wanted), tuple(found)


def _contradicted(said: _Sentence, hypothesis: Claim) -> bool:
    """One denies, the other does not, and most of what is denied is in the other.

    An even number of denials cancels.
    """
    denying = [sentence for sentence in hypothesis.sentences if sentence.negated]
    if (len(denying) % 2 == 1) == said.negated:
        return False
    denied, other = (
        (said.denied, hypothesis.stems) if said.negated else (denying[-1].denied, said.stems)
    )
    return 2 * len(denied & other) > len(denied)


def _opposed(said: _Sentence, hypothesis: Claim) -> bool:
    """A word of the hypothesis is missing in the sentence, which has its opposite instead."""
    words = frozenset[str]().union(*(sentence.words for sentence in hypothesis.sentences))
    table = opposites()
    return any(
        bool(table.get(word, frozenset()) & (said.words - words)) for word in words - said.words
    )


def _miscounted(said: _Sentence, hypothesis: Claim) -> bool:
    """Both count the same unit, no number is in both, and half of what else is told is.

    Names are left out: that two things happen to the same people is no reason to call them one.
    """
    return any(
        unit in said.numbers
        and not (numbers & said.numbers[unit])
        and 2 * len(sentence.told & said.told - {unit}) >= len(sentence.told - {unit})
        for sentence in hypothesis.sentences
        for unit, numbers in sentence.numbers.items()
    )


def _sentence(text: str) -> _Sentence:
    lowered = text.lower()
    numbers: dict[str, set[str]] = {}
    for value, unit in _NUMBER.findall(lowered):
        plain = value.replace(",", "")
        if len(plain) == 4 and plain.isdigit() and int(plain) in _YEARS and unit != "%":
            numbers.setdefault("year", set()).add(plain)
        elif unit and unit not in STOP_WORDS:
            numbers.setdefault(_stem(unit), set()).add(plain)
    words = re.findall(r"[^\W_]+", lowered)
    denials = list(_NEGATION.finditer(lowered))
    months = set(words).intersection(MONTHS)
    if months:
        numbers.setdefault("month", set()).update(months)
    return _Sentence(
        stems=frozenset(terms(text)),
        told=frozenset(terms(" ".join(word for word in _WORD.findall(text) if word[0].islower()))),
        words=frozenset(_stem(word) for word in words),
        negated=len(denials) % 2 == 1,
        denied=frozenset(terms(lowered[denials[-1].end() :])) if denials else frozenset(),
        numbers={unit: frozenset(values) for unit, values in numbers.items()},
    )


RELATED = 0.5
"""Cosine below which two texts are not about the same, by `text.embedder.rescaled`."""

_COVERED = 0.7  # share of the hypothesis's words that the premise must hold to entail it
_SHARED = 0.5  # the same for a conflict of words, which is about the rest
_DOUBT = 0.5  # what a certain conflict takes from the support of a hypothesis

# Log odds of a verdict, for pairs that give reason for one: fitted by `graphmem eval claims` on the
# first half of its data, whose report prints them (`fitted`).
_CONTRADICTION: Mapping[str, float] = {
    "bias": 5.24,
    "shared": -2.08,
    "negation": -0.73,
    "opposite": 0.78,
    "number": 0.38,
    "slot": 0.39,
    "attribute": 0.3,
    "ended": 0.57,
    "strangers": 0.43,
    "changed": 0.88,
}
_ENTAILMENT: Mapping[str, float] = {
    "bias": -3.63,
    "shared": 4.28,
    "slot": -2.4,
    "attribute": -3.15,
    "ended": -3.13,
    "agreed": 3.42,
    "strangers": -0.18,
    "changed": -0.04,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a premise and a hypothesis show.

    Attributes:
        shared: Share of the hypothesis's content words that are in the premise's sentence which has
            most of them.
        cues: 0 or 1 each: conflicts of words (`negation`, `opposite`, `number`) and what slots say
            (`slots.CUES`).
    """

    shared: float
    cues: Mapping[str, float]

    def conflict(self, cosine: float, related: float) -> bool:
        """Whether there is reason to call it a contradiction."""
        if self.cues["slot"] or self.cues["attribute"] or self.cues["ended"]:
            return True
        known = not self.cues["strangers"]  # what one is not, another may be
        return self._at_odds and known and cosine >= related and self.shared >= _SHARED

    def agreement(self, cosine: float, related: float) -> bool:
        """Whether there is reason to call it an entailment."""
        return not self._at_odds and cosine >= related and self.shared >= _COVERED

    @property
    def _at_odds(self) -> bool:
        return any(self.cues[name] for name in _OF_WORDS)

    def probability(self, model: Mapping[str, float]) -> float:
        """By a logistic model of `shared`, the cues and a bias."""
        features = {"bias": 1.0, "shared": self.shared, **self.cues}
        return _logistic(sum(weight * features[name] for name, weight in model.items()))


_OF_WORDS = ("negation", "opposite", "number")


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


class LexicalJudge:
    """The local default `Oracle`: shared words, what speaks against each other, and slots.

    Contradicted is a hypothesis of whose subject the premise tells another value of the same slot
    or that it has ended, or one that shares most of its words with a sentence of the premise and
    differs in a negation, an antonym, a number with its unit, a year or a month. Entailed is one
    whose content words are nearly all in one sentence of a premise that is about the same, with no
    conflict between the two. Either verdict is given where it is likelier than not, and the
    confidence is how often such a verdict is right (`docs/mathematics.md` 5.2). Anything else is
    neutral, with the confidence 0 where nothing speaks for either.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Judges by the vectors of this encoder."""
        self._embedder = embedder

    @property
    def related(self) -> float:
        """Cosine below which two texts are not about the same."""
        return rescaled(RELATED, self._embedder)

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """One verdict for each premise with the hypothesis of the same place.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        return self.judge_near(premises, hypotheses, self._cosines(premises, hypotheses))

    def judge_near(
        self,
        premises: Sequence[str],
        hypotheses: Sequence[str],
        cosine: Tensor,  # [P] of each pair
    ) -> list[Verdict]:
        """`judge` of texts whose vectors are known."""
        related = self.related
        found = self.evidence(premises, hypotheses)
        pairs = zip(found, cosine.tolist(), strict=True)
        return [
            Verdict("neutral", 0.0) if each is None else _verdict(each, near, related)
            for each, near in pairs
        ]

    def support(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        """How much each premise speaks for its hypothesis, in [-1, 1], to rank pairs by.

        Three parts cosine and one part shared words, less half the probability of a conflict.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        cosine = self._cosines(premises, hypotheses)
        related = self.related
        shared, doubt = [], []
        for each, near in zip(self.evidence(premises, hypotheses), cosine.tolist(), strict=True):
            shared.append(0.0 if each is None else each.shared)
            against = each is not None and each.conflict(near, related)
            doubt.append(each.probability(_CONTRADICTION) if each and against else 0.0)
        return 0.75 * cosine + 0.25 * torch.tensor(shared) - _DOUBT * torch.tensor(doubt)

    def evidence(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Evidence | None]:
        """What each pair shows; None where one is of another language.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        known = {text: read_text(text) for text in dict.fromkeys([*premises, *hypotheses])}
        found: list[Evidence | None] = []
        odds: dict[frozenset[str], tuple[float, ...]] = {}  # whichever comes first
        for premise, hypothesis in zip(premises, hypotheses, strict=True):
            one, other = known[premise], known[hypothesis]
            if one is None or other is None:
                found.append(None)
                continue
            pair = frozenset([premise, hypothesis])
            if pair not in odds:
                odds[pair] = at_odds(one[1], other[1])
            shared, at = conflicts(one[0], other[0])
            cues = dict(zip(CUES, odds[pair], strict=True))
            found.append(Evidence(shared, {n: float(n in at) for n in _OF_WORDS} | cues))
        return found

    def _cosines(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        texts = {text: place for place, text in enumerate(dict.fromkeys([*premises, *hypotheses]))}
        vectors = encode_checked(self._embedder, list(texts)).pooled
        ends = [[texts[text] for text in side] for side in (premises, hypotheses)]
        one, other = (vectors[torch.tensor(side, dtype=torch.int64)] for side in ends)
        return (one * other).sum(1)


@lru_cache(maxsize=4096)  # what is compared is compared with many
def read_text(text: str) -> tuple[Claim, Reading] | None:
    """What a text says; None where it is of another language."""
    return None if foreign(text, STOP_WORDS) else (Claim.read(text), Reading.of(text))


def _verdict(evidence: Evidence, cosine: float, related: float) -> Verdict:
    if evidence.conflict(cosine, related):
        sure = evidence.probability(_CONTRADICTION)
        return Verdict("contradict", sure) if sure >= 0.5 else Verdict("neutral", 1.0 - sure)
    if evidence.agreement(cosine, related):
        sure = evidence.probability(_ENTAILMENT)
        return Verdict("entail", sure) if sure >= 0.5 else Verdict("neutral", 1.0 - sure)
    return Verdict("neutral", 0.0)
