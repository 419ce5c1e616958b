"""Protocols of oracles, and the validation of their answers.

The engine never needs a language model. A method that asks one accepts any object with the right
method: `judge` (does a text follow from another), `classify` (which kind of memory is it),
`extract` (kind and topics), `summarise` or `verify` (does a text answer a question). A plain
function works, too. Without an oracle a local rule answers, except for `verify`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from graphmem_torch.atoms import MEMORY_TYPES, SIGNIFIERS
from graphmem_torch.errors import InputError

__all__ = [
    "LABELS",
    "Classifier",
    "Extractor",
    "Judge",
    "Label",
    "Oracle",
    "Verdict",
    "Verifier",
    "ask_checked",
    "ask_classifier",
    "ask_extractor",
    "ask_judge",
    "ask_verifier",
    "check_pairs",
    "insight_node",
    "memory_node",
    "method_of",
    "verdict_of",
]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

Label = Literal["entail", "contradict", "neutral"]

LABELS: tuple[Label, ...] = get_args(Label)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of an oracle on a premise and a hypothesis.

    Attributes:
        label: `entail`: the premise implies the hypothesis; `contradict`: both cannot be true;
            `neutral`: neither.
        confidence: Confidence in [0, 1].
    """

    label: Label
    confidence: float = 1.0


class Oracle(Protocol):
    """Judge of pairs of texts; it may be slow, fail, or return nonsense."""

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Sequence[Any]:
        """Return a `Verdict` (None: no answer) for each premise and the hypothesis at its index."""


Judge = Callable[[Sequence[str], Sequence[str]], Any]
"""Type of `judge`: premises, hypotheses -> verdicts."""

Classifier = Callable[[Sequence[str]], Any]
"""Type of `classify`: texts -> objects {content, type, decay_factor, relations}."""

Extractor = Callable[[Sequence[str]], Any]
"""Type of `extract`: texts -> objects {signifiers, keys, importance}."""

Verifier = Callable[[Sequence[str], Sequence[str]], Any]
"""Type of `verify`: questions, texts -> whether each text answers its question."""

_ARGUMENTS = {
    "judge": "premises, hypotheses",
    "classify": "texts",
    "extract": "texts",
    "summarise": "texts, question, max_tokens",
    "verify": "questions, texts",
}


def ask_judge(
    judge: Judge,
    premises: Sequence[str],
    hypotheses: Sequence[str],
) -> list[Verdict | None]:
    """Ask a judge once; a useless answer is None, with a warning, and never raises.

    A verdict is a `Verdict`, a pair (label, confidence) or a bare label. None means that the oracle
    has no answer and has already warned.
    """
    return ask_checked(
        lambda: judge(premises, hypotheses),
        len(premises),
        verdict_of,
        what=("verdicts", "pairs"),
        wanted=f"no ({' | '.join(LABELS)}) with a confidence in [0, 1]",
        lost="they get no edges, ask again later",
    )


def ask_classifier(classify: Classifier, texts: Sequence[str]) -> list[dict[str, Any] | None]:
    """Ask a classifier once; an invalid node is None, with a warning, and never raises.

    Returns:
        For each text {"content": str, "type": one of `MEMORY_TYPES`, "decay_factor": in (0, 1]},
        optionally with "relations": [(target, type), ...].
    """
    return ask_checked(
        lambda: classify(texts),
        len(texts),
        memory_node,
        what=("memory nodes", "texts"),
        wanted=f"no {{content, type: {' | '.join(MEMORY_TYPES)}, decay_factor in (0, 1]}}",
        lost="the local rules classify them",
    )


def ask_extractor(extract: Extractor, texts: Sequence[str]) -> list[dict[str, Any] | None]:
    """Ask an extractor once; an invalid answer is None, with a warning, and never raises.

    Returns:
        For each text {"signifiers": of `SIGNIFIERS`, "keys": texts, "importance": in [0, 1]}.
    """
    return ask_checked(
        lambda: extract(texts),
        len(texts),
        insight_node,
        what=("insights", "texts"),
        wanted=f"no {{signifiers: of {' | '.join(SIGNIFIERS)}, keys, importance in [0, 1]}}",
        lost="the local rules read them",
    )


def ask_verifier(
    verify: Verifier, questions: Sequence[str], texts: Sequence[str]
) -> list[bool | None]:
    """Ask once whether each text explicitly answers the question at its index.

    An answer other than true or false is None, with a warning, and never raises.
    """
    return ask_checked(
        lambda: verify(questions, texts),
        len(questions),
        lambda answer: answer if isinstance(answer, bool) else None,
        what=("checks", "questions"),
        wanted="neither true nor false",
        lost="the gate alone decides",
    )


def ask_checked(
    ask: Callable[[], Any],
    count: int,
    read: Callable[[object], _T | None],
    *,
    what: tuple[str, str],
    wanted: str,
    lost: str,
    who: str = "The oracle",
) -> list[_T | None]:
    """Ask an oracle once for `count` answers and read each; failures are None, with a warning.

    Args:
        ask: Function that returns the answers; it may raise or return anything.
        count: Number of answers expected.
        read: Function from an answer to its value, None if it is invalid.
        what: Names of the answers and of the questions, for warnings.
        wanted: Description of a valid answer, for warnings.
        lost: Consequence for questions without an answer, for warnings.
        who: Subject of the warnings.
    """
    answers_are, questions_are = what
    try:
        # One more than expected, so that an endless answer is cut off and detected.
        answers = list(islice(ask(), count + 1))
    except Exception as error:
        said = f"failed on {count} {questions_are} ({type(error).__name__}: {error})"
        _log.warning("%s %s; %s", who, said, lost)
        return [None] * count
    if len(answers) != count:
        given = len(answers) if len(answers) < count else f"over {count}"
        said = f"gave {given} {answers_are} for {count} {questions_are}, so none can be trusted"
        _log.warning("%s %s; %s", who, said, lost)
        return [None] * count
    found = [read(answer) for answer in answers]
    bad = [answer for answer, good in zip(answers, found, strict=True) if good is None]
    if bad:
        said = f"gave {len(bad)} of {count} {answers_are} that are {wanted}, such as {bad[0]!r:.80}"
        _log.warning("%s %s; %s", who, said, lost)
    return found


def verdict_of(answer: object) -> Verdict | None:
    """Return the answer as a verdict; None if it is invalid."""
    label, confidence = answer, 1.0
    if isinstance(answer, Verdict):
        label, confidence = answer.label, answer.confidence
    elif isinstance(answer, (tuple, list)) and len(answer) == 2:
        label, confidence = answer
    if not isinstance(label, str) or label not in LABELS:
        return None
    known = _fraction(confidence)
    return None if known is None else Verdict(cast(Label, str(label)), known)


def memory_node(answer: object) -> dict[str, Any] | None:
    """Return the answer as a memory node; None if a field is missing or out of range.

    The contract is the one published for the paper's ingestor (ContextOS, appendix A.1). Added are
    the types of its section 4.3 and CoALA, and the relations of its section 5.1.2: a list of
    {"target", "type"}. Other fields and invalid relations are dropped. Types are case-insensitive.
    """
    if not isinstance(answer, Mapping):
        return None
    content, type = answer.get("content"), answer.get("type")
    decay = _fraction(answer.get("decay_factor"))
    if not isinstance(content, str) or not content.strip() or not isinstance(type, str):
        return None
    if type.strip().lower() not in MEMORY_TYPES or not decay:
        return None
    node = {"content": content, "type": type.strip().lower(), "decay_factor": decay}
    stated = answer.get("relations")
    related = [
        (each["target"], each["type"])
        for each in (stated if isinstance(stated, (list, tuple)) else ())
        if isinstance(each, Mapping)
        and all(isinstance(each.get(name), str) for name in ("target", "type"))
    ]
    return node | {"relations": related} if related else node


def insight_node(answer: object) -> dict[str, Any] | None:
    """Return the answer as an insight; None if a field is missing or out of range.

    Signifiers are case-insensitive; unknown ones are dropped, and at least one must remain. Keys
    are stripped and unique.
    """
    if not isinstance(answer, Mapping):
        return None
    importance = _fraction(answer.get("importance"))
    listed = [answer.get(name) for name in ("signifiers", "keys")]
    lists = [each for each in listed if isinstance(each, (list, tuple))]
    if importance is None or len(lists) < len(listed):
        return None
    said, keys = ([" ".join(t.split()) for t in each if isinstance(t, str)] for each in lists)
    known = {text.lower() for text in said}.intersection(SIGNIFIERS)
    if not known:
        return None
    return {
        "signifiers": [name for name in SIGNIFIERS if name in known],
        "keys": [key for key in dict.fromkeys(keys) if key],
        "importance": importance,
    }


def _fraction(number: object) -> float | None:
    """Return a number in [0, 1]; None for anything else, NaN and bools included."""
    if not isinstance(number, Real) or isinstance(number, bool):  # numpy's numbers are Real
        return None
    value = cast(float, number)
    return float(value) if 0.0 <= value <= 1.0 else None


def method_of(
    oracle: Any, name: Literal["judge", "classify", "extract", "summarise", "verify"]
) -> Callable[..., Any]:
    """Return a method of an oracle by its name, or the callable itself.

    Raises:
        InputError: Neither of them, or an unwrapped language model.
    """
    signature, method = f"{name}({_ARGUMENTS[name]})", getattr(oracle, name, oracle)
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


def check_pairs(premises: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Raise `InputError` unless there are as many premises as hypotheses."""
    if len(premises) != len(hypotheses):
        raise InputError(
            f"premises: expected as many as hypotheses, got {len(premises)} premises and "
            f"{len(hypotheses)} hypotheses; give a pair for each place"
        )
