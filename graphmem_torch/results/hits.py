"""Hits of a question, and the trace of its retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from graphmem_torch.results.query_plan import QueryPlan

__all__ = ["Grounds", "Hit", "PathStep", "Result", "Trace", "certainty"]


@dataclass(frozen=True, slots=True)
class PathStep:
    """One edge of a path of activation, from `source` to `target` (atom ids)."""

    source: str
    target: str
    type: str
    weight: float


class Grounds(Protocol):
    """State that a retrieval keeps so that its hits can give their reasons."""

    def reasons(self, hit: Hit) -> tuple[str, ...]:
        """Return the reasons for a hit in words, the strongest first."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved memory with its reasons.

    Attributes:
        id: Atom id.
        text: Text of the atom (`Atom.rendered`).
        score: Probability in [0, 1] that the memory is relevant to the question; see
            `Result.calibrated`.
        signals: Share of each signal in `raw`: weight times value.
        path: Strongest chain of edges from an anchor to this atom; empty for an anchor.
        kind, speaker, session, time, meta, title: Fields of the `Atom`.
        mode: Number of its mode, if the index has modes.
        duplicates: Ids of memories that say the same (`Memory.duplicates`) and that this hit
            replaces (`rank.unique`).
        raw: Sum of `signals`, which ranks the hits; comparable within one question only.
        grounds: Source of the reasons in `why`.
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
        """At most three reasons in words, strongest first; computed on access.

        They describe the largest shares in `signals`, such as "same words: oven, restored" or
        "answers the turn before". Empty if no signal supports the hit.
        """
        return () if self.grounds is None else self.grounds.reasons(self)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with `why`."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        del own["grounds"]
        own |= {"path": [asdict(step) for step in self.path], "duplicates": list(self.duplicates)}
        return own | {"why": list(self.why)}


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace of a retrieval, from `Memory.retrieve(..., trace=True)`.

    Attributes:
        seconds: Wall-clock seconds of each stage, in order, for the whole batch: `encode` (with the
            filters), `candidates`, `base signals`, `anchors and graph`, `score`, `paths and gate`,
            `read`, `verify`. Stages that a preset or a question skips are left out.
        questions: Number of questions in the batch.
        atoms: Number of atoms in the memory.
        rule: Rule that chose the candidates.
        candidates: Number of candidates.
        activated: Number of memories that activation reached; None if none spread.
        anchors: Ids of the anchors that the settings choose, with their activation.
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
    """Ranked memories of one question.

    Attributes:
        question: The question.
        hits: Hits, best first; or in the order of the plan, and then scores may rise.
        confidence: Confidence of the gate, in [0, 1], that the memory holds an answer. For a
            language that the encoder does not know: the largest share of the words in one hit.
        known: True if the gate opens; False if it closes: the memory has no record. None if it
            cannot tell: the encoder does not know the language of the question, and no hit has 35 %
            of its words, by idf. Hits are listed in all three cases.
        verified: Verdict of an oracle on whether the hits mention an answer. None if the oracle
            failed or was not asked, for example because the gate had closed: the gate alone decides
            then. If the gate cannot tell, the oracle is asked.
        trace: Trace of the retrieval, if it was asked for and the memory is not empty.
        plan: Plan that narrowed the question, with the memories it left; None if there was none.
        calibrated: Whether the scores are probabilities fitted to the preset with this encoder
            (`calibration` in the settings). False: a rough estimate, as for other encoders and for
            learned weights.
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
        """Texts of the hits, in their order."""
        return "\n\n".join(hit.text for hit in self.hits)

    def __repr__(self) -> str:
        """Show the question, the number of hits, the best hit and the confidence."""
        best = f", best {self.hits[0].id!r} at {self.hits[0].score:.2f}" if self.hits else ""
        sure = certainty(self.confidence, self.known)
        return f"Result({self.question!r:.80}, {len(self.hits)} hits{best}, {sure})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; `verified`, `trace` and `plan` are left out if None."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        own["hits"] = [hit.as_dict() for hit in self.hits]
        for name in ("verified", "trace", "plan"):
            if own[name] is None:
                del own[name]
            elif name != "verified":
                own[name] = asdict(own[name])
        return own


def certainty(confidence: float, known: bool | None) -> str:
    """Return the confidence of the gate in words."""
    told = {True: "known", False: "not known", None: "cannot tell"}[known]
    return f"confidence {confidence:.2f}, {told}"
