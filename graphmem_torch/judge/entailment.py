"""LexicalJudge: does a text support another, contradict it, or neither? By rule, without a model.

It compares what two texts state (`judge.contradiction`) and which words they share: arithmetic and
knowledge of the world are beyond it. Its rules are for English: about texts of other languages
(`text.words.foreign`) it says nothing. `graphmem eval claims` measures how far that goes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from graphmem_torch.judge.contradiction import Finding, compare
from graphmem_torch.judge.opposites import opposites, stem
from graphmem_torch.judge.statements import Statements, read_statements
from graphmem_torch.judge.suspicion import suspect
from graphmem_torch.oracle.protocol import Verdict, check_pairs
from graphmem_torch.text.embedder import Embedder, encode_checked, rescaled
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = ["RELATED", "Claim", "Contradiction", "Evidence", "LexicalJudge", "conflicts"]

_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|hardly|"
    r"fail(?:s|ed)? to|stopped|quit|g[ai]ven? up|refus(?:es|ed))\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*)\s*(%|[^\W\d_]+)?")
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_YEARS = range(1000, 2200)


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
            numbers.setdefault(stem(unit), set()).add(plain)
    words = re.findall(r"[^\W_]+", lowered)
    denials = list(_NEGATION.finditer(lowered))
    months = set(words).intersection(MONTHS)
    if months:
        numbers.setdefault("month", set()).update(months)
    return _Sentence(
        stems=frozenset(terms(text)),
        told=frozenset(terms(" ".join(word for word in _WORD.findall(text) if word[0].islower()))),
        words=frozenset(stem(word) for word in words),
        negated=len(denials) % 2 == 1,
        denied=frozenset(terms(lowered[denials[-1].end() :])) if denials else frozenset(),
        numbers={unit: frozenset(values) for unit, values in numbers.items()},
    )


RELATED = 0.5
"""Cosine below which two texts are not about the same, by `text.embedder.rescaled`."""

_COVERED = 0.7  # share of the hypothesis's words that the premise must hold to entail it
_SHARED = 0.5  # the same for a conflict of words, which is about the rest
_DOUBT = 0.5  # what a certain conflict takes from the support of a hypothesis
_CUES = ("negation", "opposite", "number")
# Cosine of two names from which they may name one thing. With the default encoder NYC / New York
# City has .92, Munich / München .80; Lisbon / Porto .69, Toyota / Honda .66.
_ALIKE = 0.75
# Cosine of two values from which they are of one kind: green / yellow have .66, marble / bronze
# .42; tall / kind .25, big / red .37.
_KIN = 0.4

# Log odds of a verdict by words, for pairs that give reason for one: fitted by `graphmem eval
# claims` on the first half of its data, whose report prints them (`fitted`).
_CONTRADICTION: Mapping[str, float] = {
    "bias": 5.24,
    "shared": -2.08,
    "negation": -0.73,
    "opposite": 0.78,
    "number": 0.38,
}
_ENTAILMENT: Mapping[str, float] = {"bias": -3.63, "shared": 4.28}
# Share of contradictions that are right (`docs/mathematics.md` 5.2): of those that state the end of
# a memory, and of all others; no kind of these has five flags in real talk.
_ENDING = 0.9
_FLAGGED = 0.7


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Why two texts cannot both be true now.

    Attributes:
        kind: Kind of the finding (`Finding.kind`).
        values: Values in the earlier and the later text.
        confidence: Share of such findings that are right.
        ends: Whether the later text states that the earlier one, which says nothing else, is no
            longer true.
    """

    kind: str
    values: tuple[str, str]
    confidence: float
    ends: bool

    def __str__(self) -> str:
        """The reason in words: `number: 8080 / 9090`."""
        return f"{self.kind}: {self.values[0]} / {self.values[1]}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which words a premise and a hypothesis share.

    Attributes:
        shared: Share of the hypothesis's content words that are in the premise's sentence which has
            most of them.
        cues: Conflicts of words, 0 or 1 each: `negation`, `opposite`, `number`.
    """

    shared: float
    cues: Mapping[str, float]

    def conflict(self, cosine: float, related: float) -> bool:
        """Whether there is reason to call it a contradiction."""
        return any(self.cues.values()) and cosine >= related and self.shared >= _SHARED

    def agreement(self, cosine: float, related: float) -> bool:
        """Whether there is reason to call it an entailment."""
        return not any(self.cues.values()) and cosine >= related and self.shared >= _COVERED

    def probability(self, model: Mapping[str, float]) -> float:
        """Probability by a logistic model of `shared`, the cues and a bias."""
        features = {"bias": 1.0, "shared": self.shared, **self.cues}
        odds = sum(weight * features[name] for name, weight in model.items())
        return 1.0 / (1.0 + math.exp(-odds))


class LexicalJudge:
    """The local default `Oracle`: what texts state, and shared words.

    `judge` takes both texts for claims about the same: contradicted is a hypothesis if what it
    states and what the premise states cannot both be true (`judge.contradiction`), or if it shares
    most of its words with a sentence of the premise and differs in a negation, an antonym, a number
    with its unit, a year or a month. Entailed is one whose content words are nearly all in one
    sentence of a premise that is about the same, with no conflict of words between the two. The
    confidence is how often such a verdict is right (`docs/mathematics.md` 5.2). Anything else is
    neutral. `compare` takes the texts for memories, which may both be true of different things.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Judges by the vectors of this encoder."""
        self._embedder = embedder

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """One verdict for each premise with the hypothesis of the same place.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        cosine = self._cosines(premises, hypotheses)
        return self.judge_near(premises, hypotheses, cosine)

    def judge_near(
        self,
        premises: Sequence[str],
        hypotheses: Sequence[str],
        cosine: Tensor,  # [P] of each pair
    ) -> list[Verdict]:
        """`judge` of texts whose vectors are known."""
        ways = self.compare(premises, hypotheses), self.compare(hypotheses, premises)
        related = rescaled(RELATED, self._embedder)
        evidence = self.evidence(premises, hypotheses)
        return [
            _verdict([each for each in found if each is not None], words, near, related)
            for *found, words, near in zip(*ways, evidence, cosine.tolist(), strict=True)
        ]

    def compare(self, earlier: Sequence[str], later: Sequence[str]) -> list[Contradiction | None]:
        """The contradiction between each earlier text and the later one of the same place.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(earlier, later)
        stated = read_statements([*earlier, *later])
        found = [
            _contradictions(one, other)
            for one, other in zip(stated[: len(earlier)], stated[len(earlier) :], strict=True)
        ]
        values = [each.values for some in found for each in some if each.names]
        if values:
            one, other = zip(*values, strict=True)
            alike = dict(zip(values, self._cosines(one, other).tolist(), strict=True))
            found = [
                [each for each in some if not each.names or _differ(each, alike[each.values])]
                for some in found
            ]
        first = [
            next((each for each in some if each.ends), some[0]) if some else None for some in found
        ]
        return [
            None
            if each is None
            else Contradiction(
                each.kind,
                each.values,
                _ENDING if each.ends else _FLAGGED,
                each.ends and said.single,
            )
            for each, said in zip(first, stated, strict=False)
        ]

    def support(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        """How much each premise speaks for its hypothesis, in [-1, 1], to rank pairs by.

        Three parts cosine and one part shared words, less half the probability of a conflict.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        cosine = self._cosines(premises, hypotheses)
        related = rescaled(RELATED, self._embedder)
        shared, doubt = [], []
        for each, near in zip(self.evidence(premises, hypotheses), cosine.tolist(), strict=True):
            shared.append(0.0 if each is None else each.shared)
            against = each is not None and each.conflict(near, related)
            doubt.append(each.probability(_CONTRADICTION) if each and against else 0.0)
        return 0.75 * cosine + 0.25 * torch.tensor(shared) - _DOUBT * torch.tensor(doubt)

    def evidence(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Evidence | None]:
        """Return the evidence of words for each pair; None if one is of another language.

        Raises:
            InputError: Lengths that differ.
        """
        check_pairs(premises, hypotheses)
        found: list[Evidence | None] = []
        for premise, hypothesis in zip(premises, hypotheses, strict=True):
            one, other = _claim(premise), _claim(hypothesis)
            if one is None or other is None:
                found.append(None)
                continue
            shared, at = conflicts(one, other)
            found.append(Evidence(shared, {name: float(name in at) for name in _CUES}))
        return found

    def _cosines(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        texts = {text: place for place, text in enumerate(dict.fromkeys([*premises, *hypotheses]))}
        vectors = encode_checked(self._embedder, list(texts)).pooled
        ends = [[texts[text] for text in side] for side in (premises, hypotheses)]
        one, other = (vectors[torch.tensor(side, dtype=torch.int64)] for side in ends)
        return (one * other).sum(1)


@lru_cache(maxsize=4096)  # what is compared is compared with many
def _claim(text: str) -> Claim | None:
    """The words of a text; None where it is of another language."""
    return None if foreign(text, STOP_WORDS) else Claim.read(text)


def _contradictions(earlier: Statements, later: Statements) -> list[Finding]:
    """The contradictions of two texts; suspicions only where there are no others."""
    found = [
        each
        for one in earlier.propositions
        for other in later.propositions
        if (each := compare(one, other)) is not None
        and not (each.kin and earlier.speaker != later.speaker)
    ]
    return found or [
        each for one in earlier.sketches for other in later.sketches for each in suspect(one, other)
    ]


def _differ(found: Finding, alike: float) -> bool:
    """Whether two values are two, by their cosine, and of one kind if need be."""
    least = _KIN if found.kin else -1.0
    return least <= alike < _ALIKE and not _abbreviates(*found.values)


def _abbreviates(one: str, other: str) -> bool:
    """Whether one of two names is the first letters of the other."""
    short, long = sorted((one.replace(".", ""), other), key=len)
    return short == "".join(word[0] for word in long.split())


def _verdict(
    found: Sequence[Contradiction], words: Evidence | None, cosine: float, related: float
) -> Verdict:
    if found:
        return Verdict("contradict", max(each.confidence for each in found))
    label: Literal["contradict", "entail"]
    if words is None:
        return Verdict("neutral", 0.0)
    if words.conflict(cosine, related):
        label, sure = "contradict", words.probability(_CONTRADICTION)
    elif words.agreement(cosine, related):
        label, sure = "entail", words.probability(_ENTAILMENT)
    else:
        return Verdict("neutral", 0.0)
    return Verdict(label, sure) if sure >= 0.5 else Verdict("neutral", 1.0 - sure)
