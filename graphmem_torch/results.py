"""What a question gets back: plain values, no tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Context", "Hit", "PathStep", "Result"]


@dataclass(frozen=True, slots=True)
class PathStep:
    """One edge on the way that brought activation: from `source` to `target` (atom ids)."""

    source: str
    target: str
    type: str
    weight: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved memory with its reasons.

    Attributes:
        id: Atom id.
        text: The atom's text as it is shown (`Atom.rendered`).
        score: Hybrid score: the sum of `signals`.
        signals: Each signal's share of the score (weight times value).
        path: Strongest chain of edges from an anchor to this atom; empty for an anchor.
        kind, speaker, session, time: As in `Atom`.
    """

    id: str
    text: str
    score: float
    signals: dict[str, float]
    path: tuple[PathStep, ...] = ()
    kind: str = "turn"
    speaker: str | None = None
    session: str | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The ranked memories of one question.

    Attributes:
        question: As asked.
        hits: Best first.
        confidence: In [0, 1]: how sure the gate is that the memory holds an answer.
        known: False where the gate closes: the memory has no record of it. Hits are listed all the
            same.
    """

    question: str
    hits: tuple[Hit, ...]
    confidence: float
    known: bool

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Context:
    """A ready-to-send context.

    Attributes:
        question: As asked.
        text: The rendered context.
        tokens: Tokens of `text`, counted by `tokenizer`; never above `budget`.
        budget: Tokens allowed.
        tokenizer: Name of the tokenizer that counted.
        sources: Ids of the atoms in the context, in their order.
        omitted: Ids of retrieved atoms that did not fit, best first.
        confidence, known: As in `Result`.
    """

    question: str
    text: str
    tokens: int
    budget: int
    tokenizer: str
    sources: tuple[str, ...]
    omitted: tuple[str, ...]
    confidence: float
    known: bool

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)
