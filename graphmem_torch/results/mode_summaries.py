"""Modes of a memory, their summaries, and switches of regime."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mode", "ModeAlignment", "ModePair", "ModeSummary", "RegimeSwitch", "Statement"]


@dataclass(frozen=True, slots=True)
class RegimeSwitch:
    """Change of topic in the stream of added memories.

    Attributes:
        atom: Id of the atom that raised the alarm.
        session, time: Session and time of this atom.
        statistic, threshold: Value of the detector, and the threshold that it exceeds.
        position: Number of the first atom of the new regime, from 0 in the order of adding: this
            one or the previous one.
    """

    atom: str
    session: str | None
    time: float | None
    statistic: float
    threshold: float
    position: int


@dataclass(frozen=True, slots=True)
class Statement:
    """Text of an atom, or a sentence of it, with the id of the atom."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Mode:
    """Theme: a cluster of memories (`docs/mathematics.md` 1.3).

    Attributes:
        number: Place among the modes, largest first; `Hit.mode` names it.
        size: Number of atoms.
        variance: Mean squared distance of their embeddings to the mean, in [0, 1].
        latest: Latest time of an atom, in seconds since the epoch UTC; None if no time is known.
        energy: Share of the squared length of all embeddings that the mean accounts for.
        typical: The three atoms nearest to the mean.
    """

    number: int
    size: int
    variance: float
    latest: float | None
    energy: float
    typical: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """Sufficient statistic of a mode (`docs/mathematics.md` 1.6): at most three sentences.

    Attributes:
        mode, size, variance: Number, size and variance of the `Mode`; a large variance means that
            the sentences represent dissimilar memories.
        claim, evidence, question: One sentence each; None if the mode has none of the kind.
        weight: Weight of the mode for the question, if one was asked.
    """

    mode: int
    size: int
    variance: float
    claim: Statement | None
    evidence: Statement | None
    question: Statement | None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class ModePair:
    """Matched pair of modes, with the cosine of their means."""

    first: Mode
    second: Mode
    similarity: float


@dataclass(frozen=True, slots=True)
class ModeAlignment:
    """Correspondence of the modes of two parts of a memory.

    Attributes:
        angles: Principal angles between the two eigenspaces, in degrees, ascending.
        pairs: Matched modes, most similar first.
        only_first, only_second: Modes without a match.
    """

    angles: tuple[float, ...]
    pairs: tuple[ModePair, ...]
    only_first: tuple[Mode, ...]
    only_second: tuple[Mode, ...]
