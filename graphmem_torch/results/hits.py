"""Hits of a question and what answering it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from graphmem_torch.results.query_plan import QueryPlan

__all__ = ["Grounds", "Hit", "PathStep", "Result", "Trace", "certainty"]


@dataclass(frozen=True, slots=True)
class PathStep:
    """One edge on the way that brought activation: from `source` to `target` (atom ids)."""

    source: str
    target: str
    type: str
    weight: float


class Grounds(Protocol):
    """Part of a question that a retrieval keeps, so that its hits can say why they were found."""

    def reasons(self, hit: Hit) -> tuple[str, ...]:
        """Return the reasons for a hit in words, the strongest first."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved memory with its reasons.

    Attributes:
        id: Atom id.
        text: The atom's text as it is shown (`Atom.rendered`).
        score: Probability in [0, 1] that the memory is relevant to the question; see
            `Result.calibrated`.
        signals: Each signal's share of `raw` (weight times value).
        path: Strongest chain of edges from an anchor to this atom; empty for an anchor.
        kind, speaker, session, time, meta, title: As in `Atom`.
        mode: Number of its mode, where the index has modes.
        duplicates: Ids of the memories that say the same (`Memory.duplicates`) and may be hits for
            the question as well, where it stands for them (`rank.unique`).
        raw: Sum of `signals`, by which hits are ranked; compare it within one question only.
        grounds: What `why` is made of.
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
    mode: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()
    title: str | None = None
    raw: float = 0.0
    grounds: Grounds | None = field(default=None, repr=False, compare=False)

    @property
    def why(self) -> tuple[str, ...]:
        """At most three reasons in words, the strongest first; made when they are asked for.

        They are those of the largest shares in `signals`, such as "same words: oven, restored" or
        "answers the turn before". Empty if nothing speaks for the hit.
        """
        return () if self.grounds is None else self.grounds.reasons(self)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, with `why`."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        del own["grounds"]
        own |= {"path": [asdict(step) for step in self.path], "duplicates": list(self.duplicates)}
        return own | {"why": list(self.why)}


@dataclass(frozen=True, slots=True)
class Trace:
    """What answering a question took, by `Memory.retrieve(..., trace=True)`.

    Attributes:
        seconds: Wall clock of each stage, in their order, for the whole batch: `encode` (with the
            filters), `candidates`, `base signals`, `anchors and graph`, `score`, `paths and gate`,
            `read`, `verify`; stages that a preset or a question does not have are left out.
        questions: How many the batch had.
        atoms: In the memory.
        rule: What the candidates are.
        candidates: How many.
        activated: How many memories activation reached; None where none spread.
        anchors: Ids and activation where it started, as the settings choose them.
    """

    seconds: dict[str, float]
    questions: int
    atoms: int
    rule: str
    candidates: int
    activated: int | None
    anchors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The ranked memories of one question.

    Attributes:
        question: As asked.
        hits: Best first, or in the order of the plan: then scores may rise along the list.
        confidence: In [0, 1]: how sure the gate is that the memory holds an answer. For a
            question that the encoder does not read: the largest share of its words in one hit.
        known: True where the gate opens. False where it closes: the memory has no record of it.
            None where it cannot tell: the encoder does not read the language of the question, and
            no hit has 35 % of its words, by idf. Hits are listed all the same. `if result.known` is
            true only where there is a record.
        verified: What an oracle said that was asked whether the hits mention an answer; None where
            none was asked, as where the gate had closed before, or it failed: then the gate alone
            decides. Where the gate cannot tell, it is asked.
        trace: What answering took, where it was asked for and anything is stored.
        plan: What narrowed the question down, and to how many memories; None: nothing did.
        calibrated: Whether the scores of the hits are probabilities that were fitted to the preset
            with this encoder (`calibration` in the settings); False: a rough estimate, as for other
            encoders and for weights that the memory has learned.
    """

    question: str
    hits: tuple[Hit, ...]
    confidence: float
    known: bool | None
    verified: bool | None = None
    trace: Trace | None = None
    plan: QueryPlan | None = None
    calibrated: bool = False

    @property
    def text(self) -> str:
        """What the hits say, best first."""
        return "\n\n".join(hit.text for hit in self.hits)

    def __repr__(self) -> str:
        """The question, how many hits, the best of them, and how sure the gate is."""
        best = f", best {self.hits[0].id!r} at {self.hits[0].score:.2f}" if self.hits else ""
        sure = certainty(self.confidence, self.known)
        return f"Result({self.question!r:.80}, {len(self.hits)} hits{best}, {sure})"

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; without a check, a trace and a plan where there is none."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        own["hits"] = [hit.as_dict() for hit in self.hits]
        for name in ("verified", "trace", "plan"):
            if own[name] is None:
                del own[name]
            elif name != "verified":
                own[name] = asdict(own[name])
        return own


def certainty(confidence: float, known: bool | None) -> str:
    """Return how sure the gate is, in words."""
    told = {True: "known", False: "not known", None: "cannot tell"}[known]
    return f"confidence {confidence:.2f}, {told}"
