"""Verdicts as an oracle gives them: asked for once, checked, and None where they are no use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from numbers import Real
from typing import Any, TypeVar, cast

from graphmem_torch.oracle.protocol import Judge, Label, Verdict

__all__ = ["LABELS", "ask_judge", "asked", "fraction", "verdict_of"]

_log = logging.getLogger(__name__)

LABELS = ("entail", "contradict", "neutral")

_T = TypeVar("_T")


def ask_judge(
    judge: Judge,
    premises: Sequence[str],
    hypotheses: Sequence[str],
) -> list[Verdict | None]:
    """Asks once; an answer that cannot be used is None, with a warning, and never an exception.

    Verdicts may come as `Verdict`, as (label, confidence) or as a bare label. None says that the
    oracle has no answer; it has warned of that itself.
    """
    return asked(
        lambda: judge(premises, hypotheses),
        len(premises),
        verdict_of,
        what=("verdicts", "pairs"),
        wanted=f"no ({' | '.join(LABELS)}) with a confidence in [0, 1]",
        lost="they get no edges, ask again later",
    )


def asked(
    ask: Callable[[], Any],
    count: int,
    read: Callable[[object], _T | None],
    *,
    what: tuple[str, str],
    wanted: str,
    lost: str,
) -> list[_T | None]:
    """Asks an oracle once for `count` answers and reads each; None, with a warning, where it fails.

    Args:
        ask: Gives the answers, or raises, or gives anything else.
        count: How many are expected.
        read: The answer as it is used, None where it cannot be.
        what: What the answers and what the questions are called.
        wanted: What a bad answer is not.
        lost: What becomes of questions without an answer.
    """
    answers_are, questions_are = what
    try:
        # One more than expected, so that an endless answer ends and is seen to be wrong.
        answers = list(islice(ask(), count + 1))
    except Exception as error:
        _log.warning(
            "The oracle failed on %d %s (%s: %s); %s",
            count,
            questions_are,
            type(error).__name__,
            error,
            lost,
        )
        return [None] * count
    if len(answers) != count:
        _log.warning(
            "The oracle gave %s %s for %d %s, so none can be trusted; %s",
            len(answers) if len(answers) < count else f"over {count}",
            answers_are,
            count,
            questions_are,
            lost,
        )
        return [None] * count
    found = [read(answer) for answer in answers]
    bad = [answer for answer, good in zip(answers, found, strict=True) if good is None]
    if bad:
        _log.warning(
            "The oracle gave %d of %d %s that are %s, the first of them %.80r; %s",
            len(bad),
            count,
            answers_are,
            wanted,
            bad[0],
            lost,
        )
    return found


def verdict_of(answer: object) -> Verdict | None:
    """The answer as a verdict; None where it is none."""
    label, confidence = answer, 1.0
    if isinstance(answer, Verdict):
        label, confidence = answer.label, answer.confidence
    elif isinstance(answer, (tuple, list)) and len(answer) == 2:
        label, confidence = answer
    if not isinstance(label, str) or label not in LABELS:
        return None
    known = fraction(confidence)
    return None if known is None else Verdict(cast(Label, str(label)), known)


def fraction(number: object) -> float | None:
    """A number in [0, 1]; None for anything else: NaN is in no range, and a bool is no number."""
    if not isinstance(number, Real) or isinstance(number, bool):  # numpy's numbers are Real
        return None
    value = cast(float, number)
    return float(value) if 0.0 <= value <= 1.0 else None
