"""Modes of a memory, their summaries, and switches of regime."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mode", "ModeAlignment", "ModePair", "ModeSummary", "RegimeSwitch", "Statement"]


@dataclass(frozen=True, slots=True)
class RegimeSwitch:
    """The stream of added memories has turned to something else.

    Attributes:
        atom: Id of the atom that raised the alarm.
        session, time: Of this atom.
        statistic, threshold: By what it did so.
        position: Number, in the order of adding and from 0, of the atom with which the new regime
            begins: this one or the one before.
    """

    atom: str
    session: str | None
    time: float | None
    statistic: float
    threshold: float
    position: int


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that is remembered: the atom's id, and its text or a sentence of it."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Mode:
    """One of the themes that the memories gather around (`docs/mathematics.md` 1.3).

    Attributes:
        number: Its place among the modes, the largest first; `Hit.mode` names it.
        size: Atoms.
        variance: Mean squared distance of their embeddings to the mean, in [0, 1].
        latest: Latest time of any, seconds since the epoch UTC; None where no time is known.
        energy: Share of all embeddings' squared length that the mean keeps of them.
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
    """The sufficient statistic of a mode (`docs/mathematics.md` 1.6): at most three sentences.

    Attributes:
        mode, size, variance: `Mode.number` and its figures; a large variance means that the
            sentences stand for unlike memories.
        claim, evidence, question: A sentence each; None where the mode has nothing of the kind.
        weight: How much the mode matters to the question, where there was one.
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
    """Two modes that were matched, and the cosine of their means."""

    first: Mode
    second: Mode
    similarity: float


@dataclass(frozen=True, slots=True)
class ModeAlignment:
    """How the modes of two parts of a memory correspond.

    Attributes:
        angles: Principal angles between the two eigenspaces, in degrees, ascending.
        pairs: The most alike first.
        only_first, only_second: Modes that found no partner.
    """

    angles: tuple[float, ...]
    pairs: tuple[ModePair, ...]
    only_first: tuple[Mode, ...]
    only_second: tuple[Mode, ...]
