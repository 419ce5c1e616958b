"""Former names of settings, for error messages and for the digests of settings in stores.

A store keeps digests of the settings with which weights were learned, an index was built and
regimes were detected. They cover the names and constants that settings had when the digests were
introduced: with newer names a digest would differ, and the store would drop what it has learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["former_section", "now_called"]

# Settings by their former names. Half-lives of memory types were in hours.
_RENAMED = {
    "link.every": "link.batch_concepts",
    "link.batch": "link.batch_atoms",
    "link.window": "link.window_turns",
    "link.similarity_min": "link.min_similarity",
    "spread.fan_least": "spread.min_fan",
    "spread.temporal_decay": "spread.temporal_decay_per_hour",
    "spread.temporal_step": "spread.temporal_step_hours",
    "rank.dense_limit": "rank.exhaustive_up_to",
    "modes.look": "modes.modes_searched",
    "modes.per_mode": "modes.atoms_per_mode",
    "decay.half_life": "decay.half_life_days",
    "refine.half_life": "refine.half_life_days",
    "refine.prune": "refine.prune_below",
    "refine.keep": "refine.max_memories",
    "aggregate.least": "aggregate.min_similarity",
    "context.floor": "context.min_relevance",
}
_FORMER = {now: former.partition(".")[2] for former, now in _RENAMED.items()}

# Former settings that are constants now, with their values, in sections with digests.
_FIXED: dict[str, dict[str, Any]] = {
    "rank": {"echoes": False},
    "modes": {"assign": "kmeans"},
    "walk": {"kept": 64},
    "regime": {"hazard": 0.1, "factor": 3.0},
}

# Former settings that are constants now, in other sections. Each is beside its code.
_CONSTANTS: dict[str, tuple[str, ...]] = {
    "decay": ("initial",),
    "refine": ("retained", "access", "aggregates", "ended"),
    "reconcile": ("least", "shared", "rare", "duplicate"),
    "structure": ("resolution", "eigenpairs", "top", "columns"),
    "context": ("pool", "redundancy", "order_edges", "work", "gap"),
    "aggregate": (
        *("similarity", "relation", "time", "span", "neighbours"),
        *("smallest", "largest", "words", "price", "depth"),
    ),
    "plan": (
        *("succession", "dates", "late", "least", "match", "best"),
        *("hops", "edges", "discount", "kept", "among"),
    ),
}

# Former settings that are arguments only.
_ARGUMENTS = {"context.template": "template", "context.summary": "shorten"}


def now_called(name: str) -> str | None:
    """Return the replacement of a former setting, as a clause; None if it never was one."""
    if name in _RENAMED:
        unit = " (hours / 24)" if name == "decay.half_life" else ""
        return f"which is {_RENAMED[name]}{unit} now; give that"
    section, _, key = name.partition(".")
    if key in (*_FIXED.get(section, ()), *_CONSTANTS.get(section, ())):
        return "which is a constant now; leave it out"
    if name in _ARGUMENTS:
        return f"which is an argument now; give {_ARGUMENTS[name]}= to compile or answer"
    return None


def former_section(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the settings with the names and constants that digests cover.

    Args:
        name: Name of the section.
        values: Settings of the section as plain values.
    """
    former = {_FORMER.get(f"{name}.{key}", key): value for key, value in values.items()}
    return {**former, **_FIXED.get(name, {})}
