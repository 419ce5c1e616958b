"""Upkeep of a memory: consolidation, learned values, insight particles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

__all__ = ["Consolidated", "Learned", "Particle", "Reconciled", "Understood"]


@dataclass(frozen=True, slots=True)
class Particle:
    """Memory as an insight particle (Cognitive Weave, section 3.2), from `Memory.particles`.

    Attributes:
        id: Id of the atom.
        content: Text of the atom.
        keys: Resonance keys: concepts that it mentions, then its own words, as written.
        signifiers: Types of the memory, from `atoms.SIGNIFIERS`.
        imprint: Situational imprint: `source` (speaker, session, kind), and `agent_state` and
            `environment` of its `meta`; for an aggregate also its `value`.
        created: Time it was said, else stored, in seconds since the epoch UTC.
        modified: Time of its latest version.
        accessed: Time of its last use.
        event_start, event_end: Start and end of its validity, as known today. If none is stated,
            it starts on the first day that its text names. For an aggregate, the first and the
            last day that its members name.
        strands: Edges to other memories: type, id of the other, weight; outgoing ones first.
        importance: Current importance, in [0, 1].
        uses: Number of uses.
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
    """Learned weights or threshold of a memory, with their evidence (`Memory.learned`).

    Attributes:
        kind: `weights` of the signals (`fit`), their `correction` by feedback, or the `threshold`
            of the gate (`calibrate`).
        value: Weights by signal, or a threshold.
        applied: Whether retrieval uses it.
        reason: Reason why it is not applied; empty if it is.
        when: Time of learning, in seconds since the epoch UTC.
        questions: Number of questions it was learned from.
        atoms: Number of memories at that time; those not in `evidence` were the contrast.
        evidence: Ids of the memories that answer the questions; for a threshold, of the best hits.
        gone: Number of them that have been deleted since.
        settings: Digest of the settings and the encoder that it was learned with.
        measure: Name of the measure below: `recall@10` or `auc` on held-out questions, or the
            share that was `refused`.
        held_out: Number of held-out questions; if 0, the following are None.
        before, after: Mean of the measure without and with it.
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
        """Show its state, the numbers of questions and memories, and its gain."""
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
    """Outcome of a `Memory.understand`.

    Attributes:
        said: Number of memories that the oracle classified.
        failed: Number of memories without a usable answer: the local rules classify them until the
            next call asks again.
    """

    said: int = 0
    failed: int = 0

    def __add__(self, other: Understood) -> Understood:
        """Add the counts of two calls."""
        return Understood(self.said + other.said, self.failed + other.failed)


def _done(counts: Mapping[str, int]) -> str:
    """Format counts as `4 compared, 1 conflict`; zero counts are left out."""
    named = (
        (count, name.removesuffix("s") if count == 1 else name) for name, count in counts.items()
    )
    return ", ".join(f"{count:,} {name}" for count, name in named if count) or "nothing to do"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Outcome of a `Memory.reconcile`.

    Attributes:
        compared: Number of pairs of memories that were judged.
        conflicts: Number of new contradictions.
        superseded: Number of memories that another one superseded.
        stated: Number of aggregates that state a conflict.
        duplicates: Number of memories that repeat an earlier one.
        failed: Number of pairs without a usable verdict, or with verdicts that contradict each
            other.
    """

    compared: int = 0
    conflicts: int = 0
    superseded: int = 0
    stated: int = 0
    duplicates: int = 0
    failed: int = 0

    def __add__(self, other: Reconciled) -> Reconciled:
        """Add the counts of two calls."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Reconciled(*(one + more for one, more in pairs))

    def __str__(self) -> str:
        """Show the counts in one line."""
        return _done(asdict(self))


@dataclass(frozen=True, slots=True)
class Consolidated:
    """Outcome of a `Memory.consolidate`.

    Attributes:
        linked: Number of waiting memories that were linked to their concepts.
        reinforced: Number of memories whose importance was raised by uses.
        reconciled: Counts of the contradictions and duplicates.
        aggregated: Number of aggregates that were made.
        dissolved: Number of aggregates that were removed because their members changed.
        archived: Number of memories that were archived.
        learned: 1 if a correction of the weights was learned from feedback, applied or not.
        expired: Number of memories that were deleted because they had expired.
    """

    linked: int = 0
    reinforced: int = 0
    reconciled: Reconciled = field(default_factory=Reconciled)
    aggregated: int = 0
    dissolved: int = 0
    archived: int = 0
    learned: int = 0
    expired: int = 0

    def __add__(self, other: Consolidated) -> Consolidated:
        """Add the counts of two calls."""
        names = (
            "linked",
            "reinforced",
            "reconciled",
            "aggregated",
            "dissolved",
            "archived",
            "learned",
            "expired",
        )
        return Consolidated(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        """Show the counts in one line."""
        counts = asdict(self)
        return _done(counts.pop("reconciled") | counts)
