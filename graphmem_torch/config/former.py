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
    "calibration.others": "calibration.encoders.others",
    "aggregate.least": "aggregate.min_similarity",
    "context.floor": "context.min_relevance",
}
_FORMER = {now: former.partition(".")[2] for former, now in _RENAMED.items()}

# Former settings that are constants now, with their values, in sections with digests.
_FIXED: dict[str, dict[str, Any]] = {
    "rank": {"echoes": False},
    "spread": {"top": 7},
    "modes": {"assign": "kmeans", "drift": 0.05, "epsilon": 0.1, "absolute": False},
    "walk": {"kept": 64, "damping": 0.85},
    "regime": {"hazard": 0.1, "factor": 3.0},
}

# Settings that stand for several former ones, with the values that these had.
_MERGED: dict[str, dict[Any, dict[str, Any]]] = {
    "modes.use": {
        "none": {"build": False, "retrieve": False},
        "kept": {"build": True, "retrieve": False},
        "candidates": {"build": True, "retrieve": True},
    },
    "modes.select": {"gcv_published": {"select": "gcv_published", "absolute": True}},
}

# Former settings that are constants now, in other sections. Each is beside its code.
_CONSTANTS: dict[str, tuple[str, ...]] = {
    "link": ("window", "window_turns", "concept_dedup"),
    "decay": ("initial", "centrality"),
    "refine": ("retained", "access", "aggregates", "ended"),
    "reconcile": ("least", "shared", "rare", "duplicate", "confidence"),
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
_ARGUMENTS = {
    "context.template": "Layout(template=...) to compile or answer",
    "context.summary": "Layout(shorten=...) to compile or answer",
    "context.format": "Layout(format=...) to compile or answer, or --format",
    "structure.concepts": "concepts=True to graph.structure or report, or --concepts",
}


def now_called(name: str) -> str | None:
    """Return the replacement of a former setting, as a clause; None if it never was one."""
    if name in _RENAMED:
        unit = " (hours / 24)" if name == "decay.half_life" else ""
        return f"which is {_RENAMED[name]}{unit} now; give that"
    section, _, key = name.partition(".")
    for setting, values in _MERGED.items():
        if setting.startswith(f"{section}.") and key in set().union(*values.values()):
            return f"which {setting} says now; give one of {', '.join(values)}"
    if key in (*_FIXED.get(section, ()), *_CONSTANTS.get(section, ())):
        return "which is a constant now; leave it out"
    if name in _ARGUMENTS:
        return f"which is an argument now; give {_ARGUMENTS[name]}"
    return None


def former_section(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the settings with the names and constants that digests cover.

    Args:
        name: Name of the section.
        values: Settings of the section as plain values.
    """
    former = dict(_FIXED.get(name, {}))
    for key, value in values.items():
        own = f"{name}.{key}"
        merged = _MERGED.get(own, {}).get(value) if isinstance(value, str) else None
        former |= merged or {_FORMER.get(own, key): value}
    return former
