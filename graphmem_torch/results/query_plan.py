"""Plans that narrow a question down before ranking."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PRESENT", "PlanStep", "QueryPlan"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """What a step of a plan did.

    Attributes:
        name: `succession`, `time`, `semantic` or `relational`.
        does: What it does, by which settings.
        before, after: How many memories it was given, and how many it left; of `succession` how
            many are in a chain, and how many are what is asked for.
    """

    name: str
    does: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a question is narrowed down before it is ranked: time, then meaning, then relations.

    `Memory.plan` gives one, with what its steps did; one of your own needs the settings alone, and
    may be given for any question. `docs/mathematics.md` 5.7 has the formulas.

    Attributes:
        between: The window of time, as `Memory.retrieve` takes it; None: any time. A memory is in
            it whose event (`event_time` to `event_end`) it touches; of those that state none, one
            that was said in it, or tells of days that it touches.
        best: Memories that are taken by cosine, and as many by BM25, of those in the window; None:
            all of them, where there is neither a window nor any `hops`: nothing is pruned.
        hops: Edges that are followed from these at most; 0: none.
        edges: Names of the types of edges that are followed, in the directions in which the preset
            lets them conduct; empty: every type.
        concepts: Names of concepts that edges are followed from as well.
        kept: Memories that are left in the end at most.
        discount: What an edge takes off, in (0, 1].
        order: Order of the first `reorder_top` hits: `relevance`; `first` or `latest` by time;
            `present`: a hit gives way to later ones that are like it and fit about as well. Then as
            many are looked at, however few are asked for (`PRESENT` looks at 30).
        reorder_top: Number of these hits.
        min_in_window: Minimum number of memories in the window; if it has fewer, others are listed
            after them: those of unknown time, then those outside.
        match: So they are where the best BM25 in the window is a smaller share of the best of any
            time. Nothing outside is listed where both are 0.
        window_slack_days: Days after a window with two ends in which people still tell of it; of
            the memories outside, those said then stand before the rest.
        succession: What is asked for of values that took the place of each other: the one `before`
            or `after` the value `of`, or the `first`; empty: nothing.
        of: The words of a value; empty: the one that is in force.
        steps: What they did; empty where nobody asked yet.
    """

    between: tuple[Any, Any] | None = None
    best: int | None = 96
    hops: int = 1
    edges: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    kept: int = 192
    discount: float = 0.9
    order: str = "relevance"
    reorder_top: int = 5
    min_in_window: int = 0
    match: float = 0.0
    window_slack_days: float = 0.0
    succession: str = ""
    of: str = ""
    steps: tuple[PlanStep, ...] = ()

    def __str__(self) -> str:
        """A line for each step, with the memories before and after it."""
        lines = [
            f"{step.name:<10} {step.before:>9,} -> {step.after:>9,}  {step.does}"
            for step in self.steps
        ]
        if self.order != "relevance":
            how = "what holds now" if self.order == "present" else f"by time, the {self.order} one"
            lines.append(f"{'order':<10} the best {self.reorder_top}: {how} first")
        return "\n".join(lines) or "no steps yet"

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


PRESENT = QueryPlan(best=None, hops=0, order="present", reorder_top=30)
"""Asks what holds now, and narrows nothing down."""
