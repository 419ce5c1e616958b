"""LexicalJudge: does a text support another, contradict it, or neither? By rule, without a model.

It reads what lies on the surface and nothing else: paraphrase, arithmetic and knowledge of the
world are beyond it. Denials, opposites and months are those of English: about texts of other
languages (`text.words.foreign`) it says nothing. `bench/quality/claims.py` measures how far that
goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from graphmem_torch.oracle.protocol import Verdict, check_pairs
from graphmem_torch.text.embedder import Embedder, encode_checked, rescaled
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = ["Claim", "LexicalJudge", "conflicts"]
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|hardly|"
    r"fail(?:s|ed)? to|stopped|refus(?:es|ed))\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*)\s*(%|[^\W\d_]+)?")
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
def _opposites() -> Mapping[str, frozenset[str]]:
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
    words: frozenset[str]  # all of them, stemmed where they are content
    negated: bool
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
            ("negation", _denied(hypothesis) != said.negated),
            ("opposite", _opposed(said, hypothesis)),
            ("number", _miscounted(said, hypothesis)),
        )
        if at_odds
    ]
    return len(said.stems & wanted) / len(wanted), tuple(found)


def _denied(claim: Claim) -> bool:
    """An even number of denials cancels."""
    return sum(sentence.negated for sentence in claim.sentences) % 2 == 1


def _opposed(said: _Sentence, hypothesis: Claim) -> bool:
    """A word of the hypothesis is missing in the sentence, which has its opposite instead."""
    words = frozenset[str]().union(*(sentence.words for sentence in hypothesis.sentences))
    table = _opposites()
    return any(
        bool(table.get(word, frozenset()) & (said.words - words)) for word in words - said.words
    )


def _miscounted(said: _Sentence, hypothesis: Claim) -> bool:
    """Both count the same unit and no number is in both."""
    return any(
        unit in said.numbers and not (numbers & said.numbers[unit])
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
        elif unit:
            numbers.setdefault(_stem(unit), set()).add(plain)
    words = re.findall(r"[^\W_]+", lowered)
    months = set(words).intersection(MONTHS)
    if months:
        numbers.setdefault("month", set()).update(months)
    return _Sentence(
        stems=frozenset(terms(text)),
        words=frozenset(_stem(word) for word in words),
        negated=len(_NEGATION.findall(lowered)) % 2 == 1,
        numbers={unit: frozenset(values) for unit, values in numbers.items()},
    )


_RELATED = 0.5  # cosine below which two texts are not about the same, by `rescaled`
_COVERED = 0.7  # share of the hypothesis's words that the premise must hold to entail it
_SHARED = 0.5  # the same for a conflict, which is about the rest
_DOUBT = 0.5  # what a conflict takes from the support of a hypothesis


class LexicalJudge:
    """The local default `Oracle`: similarity, shared words, and what speaks against each other.

    Entailed is a hypothesis whose content words are nearly all in one sentence of a premise that is
    about the same, with no conflict between the two; contradicted, one that shares most of its
    words with such a sentence and differs in a negation, an antonym, a number with its unit, a year
    or a month. The confidence is the share of its words. Anything else is neutral.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Judges by the vectors of this encoder."""
        self._embedder = embedder

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """One verdict for each premise with the hypothesis of the same place.

        Raises:
            InputError: Lengths that differ.
        """
        cosine, shared, conflict = self._evidence(premises, hypotheses)
        columns = (cosine.tolist(), shared.tolist(), conflict.tolist())
        related = rescaled(_RELATED, self._embedder)
        sides = zip(premises, hypotheses, strict=True)
        return [
            Verdict("neutral", 0.0)
            if any(foreign(text, STOP_WORDS) for text in texts)
            else _verdict(*row, related)
            for texts, row in zip(sides, zip(*columns, strict=True), strict=True)
        ]

    def support(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        """How much each premise speaks for its hypothesis, in [-1, 1], to rank pairs by.

        The mean of cosine and shared words, less a half where there is a conflict.

        Raises:
            InputError: Lengths that differ.
        """
        cosine, shared, conflict = self._evidence(premises, hypotheses)
        return (cosine + shared) / 2 - _DOUBT * conflict

    def _evidence(
        self, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> tuple[Tensor, Tensor, Tensor]:  # [P] cosine, [P] share of words, [P] bool
        check_pairs(premises, hypotheses)
        texts = {text: place for place, text in enumerate(dict.fromkeys([*premises, *hypotheses]))}
        vectors = encode_checked(self._embedder, list(texts)).pooled
        ends = [[texts[text] for text in side] for side in (premises, hypotheses)]
        one, other = (vectors[torch.tensor(side, dtype=torch.int64)] for side in ends)
        claims = {text: Claim.read(text) for text in texts}
        found = [
            conflicts(claims[premise], claims[hypothesis])
            for premise, hypothesis in zip(premises, hypotheses, strict=True)
        ]
        shared = torch.tensor([share for share, _ in found], dtype=torch.float32)
        conflict = torch.tensor([bool(cues) for _, cues in found], dtype=torch.bool)
        return (one * other).sum(1), shared, conflict


def _verdict(cosine: float, shared: float, conflict: bool, related: float) -> Verdict:
    if cosine >= related and conflict and shared >= _SHARED:
        return Verdict("contradict", shared)
    if cosine >= related and not conflict and shared >= _COVERED:
        return Verdict("entail", shared)
    return Verdict("neutral", 1.0 - shared)
