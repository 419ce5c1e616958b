"""Explanation of one score: signals, paths, gradients and influences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem_torch.results.hits import PathStep

__all__ = ["EdgeGradient", "Explanation", "Start", "WeighedPath"]

_SHOWN = 6  # reasons of a kind in an explanation as a text


_LINE = 100  # characters of the memory in it


@dataclass(frozen=True, slots=True)
class Start:
    """Where activation started: an anchor, or a concept that `seed_entities` named.

    Attributes:
        id: Of the atom, or of the concept.
        activation: There.
        gradient: What the score gains by a unit more of it.
    """

    id: str
    activation: float
    gradient: float


@dataclass(frozen=True, slots=True)
class WeighedPath:
    """The strongest chain of edges from an anchor; `strength` is what would arrive by it alone."""

    strength: float
    steps: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class EdgeGradient:
    """An edge (ids of its ends), and what the score gains by a unit more of its weight."""

    source: str
    target: str
    type: str
    weight: float
    gradient: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a memory has its score for a question, by `Memory.explain`.

    Attributes:
        question: As asked.
        id: Of the atom.
        text: As it is shown.
        score: As in `Hit`.
        raw: The sum of `signals`.
        why: As in `Hit`.
        rank: Its place among the hits, from 1, the first of those that score alike; 0 where it can
            be none.
        signals: Each signal's share of `raw`, which all figures below are in units of.
        starts: Where activation started, the strongest first.
        paths: The strongest chain from each of these to the atom, where there is one, the
            strongest first; none to an anchor from itself.
        edges: Those of largest |weight x gradient|: what the score owes to them, to first order.
        gradients: By id of an atom or a concept, the derivative of the score in how much of its
            activation it sends on, from none (0) to all (1), at 1; the largest first.
        influences: By id, the score minus what it were without that memory, the largest first;
            memories that are not named have none. `index.explain` says what stays.
        members: Ids of the memories that it is of and leads to, if it is an aggregate; it is a hit
            only if aggregates are asked for.
    """

    question: str
    id: str
    text: str
    score: float
    raw: float
    why: tuple[str, ...]
    rank: int
    signals: dict[str, float]
    starts: tuple[Start, ...]
    paths: tuple[WeighedPath, ...]
    edges: tuple[EdgeGradient, ...]
    gradients: dict[str, float]
    influences: dict[str, float]
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The reasons that count most, a line each, below what their numbers mean."""
        place = f"rank {self.rank}" if self.rank else "no hit"
        score = f"score {self.score:.2f} ({self.raw:.4g} before calibration)"
        lines = [f"{self.id!r} for {self.question!r:.80}: {score}, {place}"]
        lines.append("  " + " ".join(self.text.split())[:_LINE])
        if self.why:
            lines.append("why: " + " · ".join(self.why))
        if self.members:
            lines.append(f"an aggregate, listed if asked for; leads to {', '.join(self.members)}")

        def tell(heading: str, rows: Iterable[tuple[float, str]]) -> None:
            told = [f"  {number:>+10.3g}  {what}" for number, what in rows]
            lines.extend([heading, *told] if told else [])

        tell("signals: the share of each in the score before calibration", _largest(self.signals))
        starts = self.starts[:_SHOWN]
        tell(
            "starts: what the score gains by more activation there",
            [(s.gradient, f"{s.id} (has {s.activation:.3g})") for s in starts],
        )
        paths = [
            (path.strength, path.steps[0].source + "".join(map(_stepped, path.steps)))
            for path in self.paths[:_SHOWN]
        ]
        tell("paths: what arrives by each alone", paths)
        tell(
            "edges: what the score gains by more weight",
            [(e.gradient, f"{e.source}{_stepped(e)}") for e in self.edges if e.gradient],
        )
        passed = [(gradient, id) for id, gradient in self.gradients.items() if gradient]
        tell("passed on: what the score gains by what each sends on", passed)
        removed = [(-gain, id) for gain, id in _largest(self.influences)]
        tell("without: how the score changes where one memory is not there", removed)
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The question, the memory, its score, and how many others it depends on."""
        return (
            f"Explanation({self.question!r:.80}, {self.id!r}, score {self.score:.2f}, rank "
            f"{self.rank}, {len(self.paths)} paths, {len(self.influences)} influences)"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def _largest(values: Mapping[str, float]) -> list[tuple[float, str]]:
    ordered = sorted(values.items(), key=lambda item: -abs(item[1]))[:_SHOWN]
    return [(value, name) for name, value in ordered if value]


def _stepped(step: PathStep | EdgeGradient) -> str:
    return f" ─{step.type} {step.weight:.2f}→ {step.target}"
