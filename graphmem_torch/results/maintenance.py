"""Upkeep of a memory: consolidation, learned values, insight particles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

__all__ = ["Consolidated", "Learned", "Particle", "Reconciled", "Understood"]


@dataclass(frozen=True, slots=True)
class Particle:
    """A memory as an insight particle (Cognitive Weave, section 3.2), by `Memory.particles`.

    Attributes:
        id: Of the atom.
        content: Its text.
        keys: Resonance keys: concepts that it mentions, then its own words, as its text has them.
        signifiers: What it is, of `atoms.SIGNIFIERS`.
        imprint: Situational imprint: `source` (speaker, session, kind), and what its `meta` has
            under `agent_state` and `environment`; of an aggregate its `value`, too.
        created: When it was said, else when it was stored, seconds since the epoch UTC.
        modified: When its latest version took the place of the one before.
        accessed: When it was last used.
        event_start, event_end: When it began and ceased to be true, as far as it is known today; if
            nothing else is stated, it began on the first day that its text tells of. Of an
            aggregate, the first and the last day that its members tell of.
        strands: Edges to other memories: type, id of the other, weight; those from it first.
        importance: Of now, in [0, 1].
        uses: How often it was used.
    """

    id: str
    content: str
    keys: tuple[str, ...]
    signifiers: tuple[str, ...]
    imprint: Mapping[str, Any]
    created: float | None
    modified: float | None
    accessed: float | None
    event_start: float | None
    event_end: float | None
    strands: tuple[tuple[str, str, float], ...]
    importance: float
    uses: int


@dataclass(frozen=True, slots=True)
class Learned:
    """Something that a memory has learned, and from what (`Memory.learned`).

    Attributes:
        kind: `weights` of the signals (`fit`), their `correction` by feedback, or the `threshold`
            of the gate (`calibrate`).
        value: Weights by signal, or a threshold.
        applied: Whether questions are answered by it.
        reason: Why not; empty where it is.
        when: Seconds since the epoch UTC.
        questions: How many it was learned from.
        atoms: How many memories there were: those that are no evidence are what it was told from.
        evidence: Ids of those that answer the questions; of a threshold, of the best hits.
        gone: How many of them have been deleted since.
        settings: Digest of the settings and the encoder that it was learned with.
        measure: Of the following: `recall@10` or `auc` of questions that were not learned from, or
            the share that was `refused`.
        held_out: How many questions; 0: none were held back, and the following are None.
        before, after: Mean of the measure.
        difference: Mean of after minus before, and the ends of its 95 % bootstrap interval.
    """

    kind: str
    value: Mapping[str, float] | float
    applied: bool
    reason: str
    when: float
    questions: int
    atoms: int
    evidence: tuple[str, ...]
    gone: int
    settings: str
    measure: str
    held_out: int
    before: float | None
    after: float | None
    difference: tuple[float, float, float] | None

    def __str__(self) -> str:
        """Whether it is applied, of how many questions and memories, and what it gained."""
        state = "applied" if self.applied else f"not applied ({self.reason})"
        gain = ""
        if self.before is not None and self.after is not None:
            gain = f"; {self.measure} {self.before:.3f} before, {self.after:.3f} after"
        if self.held_out:
            gain += f", on {self.held_out:,} questions held back"
        return f"{state}; from {self.questions:,} questions, {self.atoms:,} memories{gain}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Understood:
    """What a `Memory.understand` did.

    Attributes:
        said: Memories of which the oracle said what they are.
        failed: Those it gave no usable answer for: the local rules read them, and the next call
            asks again.
    """

    said: int = 0
    failed: int = 0

    def __add__(self, other: Understood) -> Understood:
        """Both together."""
        return Understood(self.said + other.said, self.failed + other.failed)


def _done(counts: Mapping[str, int]) -> str:
    """`4 compared, 1 conflict`; what there is nothing of is not named."""
    named = (
        (count, name.removesuffix("s") if count == 1 else name) for name, count in counts.items()
    )
    return ", ".join(f"{count:,} {name}" for count, name in named if count) or "nothing to do"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a `Memory.reconcile` did.

    Attributes:
        compared: Pairs of memories that were judged.
        conflicts: Contradictions that were found, and not known before.
        superseded: Memories in whose place another one was put.
        stated: Aggregates that state a conflict.
        duplicates: Memories that were found to say again what an earlier one says.
        failed: Pairs without a usable verdict, or with verdicts that contradict each other.
    """

    compared: int = 0
    conflicts: int = 0
    superseded: int = 0
    stated: int = 0
    duplicates: int = 0
    failed: int = 0

    def __add__(self, other: Reconciled) -> Reconciled:
        """Both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Reconciled(*(one + more for one, more in pairs))

    def __str__(self) -> str:
        """What it did, in a line."""
        return _done(asdict(self))


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a `Memory.consolidate` did.

    Attributes:
        linked: Memories whose concepts waited to be found.
        reinforced: Memories whose importance was raised by uses.
        reconciled: What contradicts or repeats each other.
        aggregated: Aggregates that were made.
        dissolved: Aggregates that were taken away, as what they were made of has changed.
        archived: Memories that were put aside.
        learned: 1 if a correction of the weights was learned from feedback, applied or not.
    """

    linked: int = 0
    reinforced: int = 0
    reconciled: Reconciled = field(default_factory=Reconciled)
    aggregated: int = 0
    dissolved: int = 0
    archived: int = 0
    learned: int = 0

    def __add__(self, other: Consolidated) -> Consolidated:
        """Both together."""
        names = (
            "linked",
            "reinforced",
            "reconciled",
            "aggregated",
            "dissolved",
            "archived",
            "learned",
        )
        return Consolidated(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        """What it did, in a line."""
        counts = asdict(self)
        return _done(counts.pop("reconciled") | counts)
