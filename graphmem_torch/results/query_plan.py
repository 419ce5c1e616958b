"""Plans that narrow a question down before ranking."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PRESENT", "PlanStep", "QueryPlan"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Step of a plan, with the numbers of memories before and after it.

    Attributes:
        name: `succession`, `time`, `semantic` or `relational`.
        does: Description of the step, with its settings.
        before, after: Number of memories before and after the step; for `succession`, the memories
            in a chain, and those that match the question.
    """

    name: str
    does: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Plan that narrows a question before ranking: by time, then meaning, then relations.

    `Memory.plan` returns one with its steps. A plan of your own needs no steps, and works for any
    question. `docs/mathematics.md` 5.7 has the formulas.

    Attributes:
        between: Time window, as in `Memory.retrieve`; None: any time. A memory is in the window if
            its event (`event_time` to `event_end`) overlaps it. Without a stated event, it must
            have been said in the window or name days that overlap it.
        best: Number of memories taken from the window by cosine, and as many by BM25. None: all;
            without a window and without `hops`, nothing is pruned.
        hops: Maximum number of edges followed from these; 0: none.
        edges: Types of edges that are followed, in the directions in which the preset lets them
            conduct; empty: every type.
        concepts: Names of concepts from which edges are followed, too.
        kept: Maximum number of memories that remain.
        discount: Factor applied at each edge, in (0, 1].
        order: Order of the first `reorder_top` hits: `relevance`; `first` or `latest` by time;
            `present`: a hit moves after later ones that are similar and fit about as well. It
            examines all of these hits, even if fewer are asked for.
        reorder_top: Number of hits that are reordered.
        min_in_window: Minimum number of memories in the window; if it has fewer, others are listed
            after them: those of unknown time, then those outside.
        match: Others are also listed if the best BM25 in the window is below this share of the
            best of any time. If this and `min_in_window` are 0, none are listed.
        window_slack_days: Days after a window with two ends in which people still mention it.
            Memories said in these days come before the others outside the window.
        succession: Position in a chain of successive values: `before` or `after` the value `of`,
            or the `first`; empty: no condition.
        of: Words of a value; empty: the current value.
        steps: Steps of a plan that was carried out; empty before.
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
        """Show each step on a line, with the memories before and after it."""
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
"""Plan that lists what holds now first, and prunes nothing."""
