"""What a question says about itself: the names, months and days in it, and whether it asks when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = [
    "TIME_EXPRESSION",
    "asks_when",
    "is_question",
    "named_dates",
    "named_speakers",
    "tells_time",
]

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_WORD = re.compile(r"[^\W_]+")
_DAY = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\b")
_WHEN = re.compile(
    r"\b(?:when|how long|how recently|(?:what|which) (?:date|day|week|month|year|time))\b",
    re.IGNORECASE,
)
TIME_EXPRESSION = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|weeks?|weekend|months?|years?|mon|tues|wednes|thurs|fri"
    r"|satur|sun)(?:day)?\b|\b(?:morning|since|recently|" + "|".join(_MONTHS) + r"|\d{4})\b",
    re.IGNORECASE,
)
"""What tells a time: a weekday, a month, a year, a span, a word such as `yesterday`."""


def asks_when(questions: Sequence[str]) -> Tensor:
    """[B] bool: whether a time is asked for."""
    return torch.tensor([_WHEN.search(q) is not None for q in questions], dtype=torch.bool)


def tells_time(text: str) -> bool:
    """Whether the text holds a time expression."""
    return TIME_EXPRESSION.search(text) is not None


def is_question(text: str) -> bool:
    """Whether the text ends by asking; a caption in brackets behind it does not count."""
    return re.sub(r"\s*\[[^\]]*\]\s*$", "", text).rstrip().endswith("?")


def named_dates(questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """[B, 12] and [B, 31] bool: the months that a question names, and its days if it does.

    "may" counts as a month only when it is written with a capital and is not the first word.
    """
    months = torch.zeros(len(questions), 12, dtype=torch.bool)
    days = torch.zeros(len(questions), 31, dtype=torch.bool)
    for row, question in enumerate(questions):
        words = _WORD.findall(question)
        for place, word in enumerate(words):
            if word.lower() in _MONTHS and (word.lower() != "may" or (word == "May" and place > 0)):
                months[row, _MONTHS.index(word.lower())] = True
        if months[row].any():
            for day in _DAY.findall(question):
                if 1 <= int(day) <= 31:
                    days[row, int(day) - 1] = True
    return months, days


def named_speakers(
    questions: Sequence[str], speakers: Mapping[str, Sequence[int]], count: int
) -> Tensor:
    """[B, count] bool: the speakers a question names.

    Args:
        questions: B questions.
        speakers: For each lower-case word of a name, the speakers of that name.
        count: Number of speakers.
    """
    named = torch.zeros(len(questions), count, dtype=torch.bool)
    for row, question in enumerate(questions):
        for word in _WORD.findall(question.lower()):
            for speaker in speakers.get(word, ()):
                named[row, speaker] = True
    return named
