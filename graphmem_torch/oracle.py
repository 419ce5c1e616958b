"""Oracle: what may judge two texts, a model or a rule, and how its answers are received.

The engine never needs a language model. Where a design asks one whether a text follows from
another, it asks whatever has a `judge`: `text.entailment.LexicalJudge` by default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any, Literal, Protocol, cast

from graphmem_torch.errors import InputError

__all__ = ["Judge", "Oracle", "Verdict", "ask_judge", "judge_of"]

_log = logging.getLogger(__name__)

Label = Literal["entail", "contradict", "neutral"]
_LABELS = ("entail", "contradict", "neutral")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an oracle says of a premise and a hypothesis.

    Attributes:
        label: `entail`: who believes the premise believes the hypothesis; `contradict`: not both
            can be true; `neutral`: neither.
        confidence: In [0, 1].
    """

    label: Label
    confidence: float = 1.0


class Oracle(Protocol):
    """Anything that can judge; it may be slow, fail, or answer nonsense."""

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Sequence[Verdict]:
        """One verdict for each premise with the hypothesis of the same place."""


Judge = Callable[[Sequence[str], Sequence[str]], Any]


def judge_of(oracle: Oracle | Judge) -> Judge:
    """The function that judges: an oracle's `judge`, or the callable itself.

    Raises:
        InputError: It is neither.
    """
    judge = getattr(oracle, "judge", oracle)
    if not callable(judge):
        raise InputError(
            f"oracle: expected judge(premises, hypotheses) or an object with it, got {oracle!r}; "
            "leave it out for the local default"
        )
    return cast(Judge, judge)


def ask_judge(
    judge: Judge,
    premises: Sequence[str],
    hypotheses: Sequence[str],
) -> list[Verdict | None]:
    """Asks once; an answer that cannot be used is None, with a warning, and never an exception.

    Verdicts may come as `Verdict`, as (label, confidence) or as a bare label.
    """
    try:
        # One more than expected, so that an endless answer ends and is seen to be wrong.
        answers = list(islice(judge(premises, hypotheses), len(premises) + 1))
    except Exception as error:
        _log.warning(
            "The oracle failed on %d pairs (%s: %s); they get no edges, ask again later",
            len(premises),
            type(error).__name__,
            error,
        )
        return [None] * len(premises)
    if len(answers) != len(premises):
        _log.warning(
            "The oracle gave %s verdicts for %d pairs, so none can be trusted; they get no edges",
            len(answers) if len(answers) < len(premises) else f"over {len(premises)}",
            len(premises),
        )
        return [None] * len(premises)
    verdicts = [_verdict(answer) for answer in answers]
    bad = [answer for answer, verdict in zip(answers, verdicts, strict=True) if verdict is None]
    if bad:
        _log.warning(
            "The oracle gave %d of %d verdicts that are no (%s) with a confidence in [0, 1], the "
            "first of them %.80r; these pairs get no edges",
            len(bad),
            len(answers),
            " | ".join(_LABELS),
            bad[0],
        )
    return verdicts


def _verdict(answer: object) -> Verdict | None:
    """The answer as a verdict; None where it is none."""
    label, confidence = answer, 1.0
    if isinstance(answer, Verdict):
        label, confidence = answer.label, answer.confidence
    elif isinstance(answer, (tuple, list)) and len(answer) == 2:
        label, confidence = answer
    if not isinstance(label, str) or label not in _LABELS:
        return None
    # numpy's numbers are Real; NaN is in no range.
    number = isinstance(confidence, Real) and not isinstance(confidence, bool)
    if not number or not 0.0 <= confidence <= 1.0:
        return None
    return Verdict(cast(Label, str(label)), float(confidence))
