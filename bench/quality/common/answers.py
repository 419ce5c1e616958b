"""Judging a short answer against the accepted ones (SQuAD; Rajpurkar et al. 2016)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

__all__ = ["answer_f1", "holds_answer"]
_WORD = re.compile(r"\w+")
_ARTICLES = frozenset({"a", "an", "the"})


def answer_f1(text: str, answers: Sequence[str]) -> float:
    """Token F1 of what was said with the nearest accepted answer; NaN where none is known.

    Lower case, without marks and articles; two texts without a word are alike.
    """
    if not answers:
        return float("nan")
    said = Counter(_words(text))
    return max(_f1(said, Counter(_words(answer))) for answer in answers)


def holds_answer(text: str, answers: Sequence[str]) -> float:
    """Whether the words of an accepted answer stand in the text one after another; NaN: none known.

    Lower case, without marks and articles.
    """
    wanted = [words for words in map(_words, answers) if words]
    if not wanted:
        return float("nan")
    said = f" {' '.join(_words(text))} "
    return float(any(f" {' '.join(words)} " in said for words in wanted))


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _ARTICLES]


def _f1(said: Counter[str], wanted: Counter[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = (said & wanted).total()
    return 2 * common / (said.total() + wanted.total())
