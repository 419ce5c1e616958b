"""Explanation of one score: signals, paths, gradients and influences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem_torch.results.hits import PathStep

__all__ = ["EdgeGradient", "Explanation", "Start", "WeighedPath"]

_SHOWN = 6  # reasons of each kind in the printed explanation


_LINE = 100  # characters of the memory in the printed explanation


@dataclass(frozen=True, slots=True)
class Start:
    """Start of activation: an anchor, or a concept named in `seed_entities`.

    Attributes:
        id: Id of the atom or the concept.
        activation: Initial activation.
        gradient: Derivative of the score in it.
    """

    id: str
    activation: float
    gradient: float


@dataclass(frozen=True, slots=True)
class WeighedPath:
    """Strongest chain of edges from an anchor; `strength` is the activation it alone delivers."""

    strength: float
    steps: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class EdgeGradient:
    """Edge (ids of its ends) with the derivative of the score in its weight."""

    source: str
    target: str
    type: str
    weight: float
    gradient: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of the score of a memory for a question, from `Memory.explain`.

    Attributes:
        question: The question.
        id: Id of the atom.
        text: Text of the atom (`Atom.rendered`).
        score: Score; see `Hit`.
        raw: Sum of `signals`.
        why: Reasons in words; see `Hit`.
        rank: Rank among the hits, from 1; with ties, that of the first. 0 if it cannot be a hit.
        signals: Share of each signal in `raw`; all figures below are in the units of `raw`.
        starts: Starts of activation, strongest first.
        paths: Strongest chain from each start to the atom, if there is one, strongest first. An
            anchor has none from itself.
        edges: Edges of largest |weight x gradient|, their first-order contribution to the score.
        gradients: Derivative of the score in the share of its activation that an atom or a concept
            passes on (0 to 1), taken at 1; by id, largest first.
        influences: Change of the score due to each memory: score minus the score without it; by
            id, largest first. Memories not named have none; see `index.explain` for what is fixed.
        members: Ids of the members of an aggregate, which is a hit only if aggregates are asked
            for; empty for other memories.
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
        """Show the most important reasons, one a line, under headings that name their units."""
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
        """Show the question, the memory, its score, and the numbers of paths and influences."""
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
