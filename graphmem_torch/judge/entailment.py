"""LexicalJudge: decide by rule whether a text supports another, contradicts it, or neither.

It compares the statements of two texts (`judge.contradiction`) and the words they share; arithmetic
and knowledge of the world are beyond it. Its rules are English: texts of other languages
(`text.words.foreign`) are neutral. `graphmem eval claims` measures it.
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
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.oracle.protocol import Verdict, check_pairs
from graphmem_torch.text.embedder import Embedder, encode_checked, rescaled
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = ["RELATED", "Claim", "Contradiction", "Evidence", "LexicalJudge", "conflicts"]

_NEGATION = lazy_pattern(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|hardly|"
    r"fail(?:s|ed)? to|stopped|quit|g[ai]ven? up|refus(?:es|ed))\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = lazy_pattern(r"(?<![\w.])(\d+(?:[.,]\d+)*)\s*(%|[^\W\d_]+)?")
_WORD = lazy_pattern(r"[^\W\d_][\w'-]*")
_YEARS = range(1000, 2200)


@dataclass(frozen=True, slots=True)
class _Sentence:
    stems: frozenset[str]  # content words
    told: frozenset[str]  # content words other than names and numbers
    words: frozenset[str]  # all words, content words stemmed
    negated: bool
    denied: frozenset[str]  # content words after the last denial
    numbers: Mapping[str, frozenset[str]]  # by unit: a word, "year" or "month"


@dataclass(frozen=True, slots=True)
class Claim:
    """Text as sentences, each with its words, its numbers and whether it denies."""

    sentences: tuple[_Sentence, ...]

    @classmethod
    def read(cls, text: str) -> Claim:
        """Read the claim of a text."""
        parts = [part for line in text.split("\n") for part in split_at_marks(line, ".!?;")]
        return cls(tuple(_sentence(part) for part in parts if part.strip()))

    @property
    def stems(self) -> frozenset[str]:
        """Return the content words of all sentences."""
        return frozenset[str]().union(*(sentence.stems for sentence in self.sentences))


def conflicts(premise: Claim, hypothesis: Claim) -> tuple[float, tuple[str, ...]]:
    """Return the share of a hypothesis that a premise holds, and their conflicts.

    Both are measured on the premise's sentence that shares most words with the hypothesis: another
    sentence may deny something else.

    Returns:
        Share of the hypothesis's content words in that sentence (0 without any), and the names of
        the conflicts: `negation`, `opposite`, `number`.
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
    """Return whether only one denies, and most denied words are in the other.

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
    """Return whether the sentence replaces a word of the hypothesis by its opposite."""
    words = frozenset[str]().union(*(sentence.words for sentence in hypothesis.sentences))
    table = opposites()
    return any(
        bool(table.get(word, frozenset()) & (said.words - words)) for word in words - said.words
    )


def _miscounted(said: _Sentence, hypothesis: Claim) -> bool:
    """Return whether both count one unit differently, and share half of their other words.

    Names are left out: two things that happen to the same people need not be one.
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
"""Cosine below which two texts are unrelated, adapted by `text.embedder.rescaled`."""

_COVERED = 0.7  # minimum share of the hypothesis's words in the premise for an entailment
_SHARED = 0.5  # minimum share of the other words for a conflict of words
_DOUBT = 0.5  # reduction of the support of a hypothesis by a certain conflict
_CUES = ("negation", "opposite", "number")
# Minimum cosine of two names of one thing. With the default encoder NYC / New York City has .92,
# Munich / München .80; Lisbon / Porto .69, Toyota / Honda .66.
_ALIKE = 0.75
# Minimum cosine of two values of one kind: green / yellow have .66, marble / bronze .42; tall /
# kind .25, big / red .37.
_KIN = 0.4

# Log odds of a verdict by words: fitted by `graphmem eval claims` on the first half of its data;
# its report prints them (`fitted`).
_CONTRADICTION: Mapping[str, float] = {
    "bias": 5.24,
    "shared": -2.08,
    "negation": -0.73,
    "opposite": 0.78,
    "number": 0.38,
}
_ENTAILMENT: Mapping[str, float] = {"bias": -3.63, "shared": 4.28}
# Precision of contradictions (`docs/mathematics.md` 5.2): of those that state the end of a memory,
# and of all others. Each kind alone has fewer than five flags in real talk.
_ENDING = 0.9
_FLAGGED = 0.7


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Reason why two texts cannot both be true now.

    Attributes:
        kind: Kind of the finding (`Finding.kind`).
        values: Values in the earlier and the later text.
        confidence: Precision of such findings.
        ends: Whether the later text states that the earlier one is no longer true, and the earlier
            one says nothing else.
    """

    kind: str
    values: tuple[str, str]
    confidence: float
    ends: bool

    def __str__(self) -> str:
        """Return the reason in words: `number: 8080 / 9090`."""
        return f"{self.kind}: {self.values[0]} / {self.values[1]}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Words shared by a premise and a hypothesis.

    Attributes:
        shared: Share of the hypothesis's content words in the premise's sentence with most of them.
        cues: Conflicts of words, 0 or 1 each: `negation`, `opposite`, `number`.
    """

    shared: float
    cues: Mapping[str, float]

    def conflict(self, cosine: float, related: float) -> bool:
        """Return whether the evidence suggests a contradiction."""
        return any(self.cues.values()) and cosine >= related and self.shared >= _SHARED

    def agreement(self, cosine: float, related: float) -> bool:
        """Return whether the evidence suggests an entailment."""
        return not any(self.cues.values()) and cosine >= related and self.shared >= _COVERED

    def probability(self, model: Mapping[str, float]) -> float:
        """Return the probability by a logistic model of `shared`, the cues and a bias."""
        features = {"bias": 1.0, "shared": self.shared, **self.cues}
        odds = sum(weight * features[name] for name, weight in model.items())
        return 1.0 / (1.0 + math.exp(-odds))


class LexicalJudge:
    """Local default `Oracle`, from stated propositions and shared words.

    `judge` assumes that both texts are about the same. It contradicts a hypothesis whose statements
    and the premise's cannot both be true (`judge.contradiction`). It also contradicts one that
    shares most of its words with a sentence of the premise and differs in a negation, an antonym, a
    number with its unit, a year or a month. It entails one if a sentence of a related premise has
    nearly all of its content words, without a conflict of words. All others are neutral. The
    confidence is the precision of such verdicts (`docs/mathematics.md` 5.2). `compare` takes the
    texts for memories, which may be about different things.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Use the vectors of an encoder."""
        self._embedder = embedder

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict for each premise and the hypothesis at its index.

        Raises:
            InputError: Unequal lengths.
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
        """Judge texts whose cosines are known; see `judge`."""
        ways = self.compare(premises, hypotheses), self.compare(hypotheses, premises)
        related = rescaled(RELATED, self._embedder)
        evidence = self.evidence(premises, hypotheses)
        return [
            _verdict([each for each in found if each is not None], words, near, related)
            for *found, words, near in zip(*ways, evidence, cosine.tolist(), strict=True)
        ]

    def compare(self, earlier: Sequence[str], later: Sequence[str]) -> list[Contradiction | None]:
        """Return the contradiction (or None) of each earlier text and the later one at its index.

        Raises:
            InputError: Unequal lengths.
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
        """Return the support of each premise for its hypothesis, in [-1, 1], to rank pairs.

        Three parts cosine and one part shared words, minus half the probability of a conflict.

        Raises:
            InputError: Unequal lengths.
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
        """Return the evidence of words for each pair; None if one text is of another language.

        Raises:
            InputError: Unequal lengths.
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


@lru_cache(maxsize=4096)  # a compared text is compared with many
def _claim(text: str) -> Claim | None:
    """Return the words of a text; None for other languages."""
    return None if foreign(text, STOP_WORDS) else Claim.read(text)


def _contradictions(earlier: Statements, later: Statements) -> list[Finding]:
    """Return the contradictions of two texts; suspicions only if there are no others."""
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
    """Return whether two values differ by their cosine, and are of one kind if required."""
    least = _KIN if found.kin else -1.0
    return least <= alike < _ALIKE and not _abbreviates(*found.values)


def _abbreviates(one: str, other: str) -> bool:
    """Return whether one of two names is the first letters of the other."""
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
