"""What an oracle is: the methods it may have, and the function behind each of them.

The engine never needs a language model. Where a design asks one, it asks whatever has the method:
`judge` (does a text follow from another), `classify` (what kind of memory is this) or `summarise`.
A plain function will do for each; a local rule stands in where there is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from graphmem_torch.errors import InputError

__all__ = [
    "Classifier",
    "Judge",
    "Label",
    "LanguageModel",
    "Oracle",
    "Verdict",
    "classifier_of",
    "judge_of",
]

Label = Literal["entail", "contradict", "neutral"]


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

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Sequence[Any]:
        """One `Verdict` (None: no answer) for each premise with the hypothesis of its place."""


Judge = Callable[[Sequence[str], Sequence[str]], Any]
"""The function behind `judge`: premises, hypotheses -> verdicts."""

Classifier = Callable[[Sequence[str]], Any]
"""The function behind `classify`: texts -> objects {content, type, decay_factor}."""

LanguageModel = Callable[[str], str]
"""Anything that answers a prompt with a text."""


def judge_of(oracle: Oracle | Judge) -> Judge:
    """The function that judges: an oracle's `judge`, or the callable itself.

    Raises:
        InputError: It is neither.
    """
    return cast(Judge, _method(oracle, "judge", "judge(premises, hypotheses)"))


def classifier_of(oracle: Any) -> Classifier:
    """The function that classifies: an oracle's `classify`, or the callable itself.

    Raises:
        InputError: It is neither.
    """
    return cast(Classifier, _method(oracle, "classify", "classify(texts)"))


def _method(oracle: Any, name: str, signature: str) -> Callable[..., Any]:
    method = getattr(oracle, name, oracle)
    if method is oracle and hasattr(oracle, "complete"):
        raise InputError(
            f"oracle: expected {signature} or an object with it, got the language model "
            f"{oracle!r}; wrap it: OpenAIOracle(client)"
        )
    if not callable(method):
        raise InputError(
            f"oracle: expected {signature} or an object with it, got {oracle!r}; "
            "leave it out for the local default"
        )
    return cast("Callable[..., Any]", method)
