"""Bridges, frontiers and frustration as lists of plain values, nodes by their names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from graphmem_torch.spectral import Bridges, Frontiers, Frustration

__all__ = ["listed_contradictions", "listed_frontiers", "listed_pairs"]

_Names = Sequence[str] | None


def listed_pairs(found: Bridges, names: _Names) -> list[dict[str, Any]]:
    """Each pair with its score; one of infinity is None, as JSON has none."""
    return [
        {
            "source": _name(source, names),
            "target": _name(target, names),
            "weight": weight,
            "score": score if math.isfinite(score) else None,
            "side": side,
        }
        for source, target, weight, score, side in zip(
            *found.pairs.tolist(),
            found.weight.tolist(),
            found.score.tolist(),
            found.side.tolist(),
            strict=True,
        )
    ]


def listed_frontiers(found: Frontiers, names: _Names) -> list[dict[str, Any]]:
    """Each frontier with its score and what that is made of."""
    return [
        {"node": _name(node, names), "score": score, "centrality": remote, "degree": degree}
        for node, score, remote, degree in zip(
            found.node.tolist(),
            found.score.tolist(),
            found.centrality.tolist(),
            found.degree.tolist(),
            strict=True,
        )
    ]


def listed_contradictions(found: Frustration) -> list[dict[str, Any]]:
    """Each component that is not balanced, the worst first."""
    worst = found.contradictory
    sizes = torch.bincount(found.component, minlength=len(found.value))
    return [
        {"component": part, "frustration": value, "contradictions": against, "nodes": nodes}
        for part, value, against, nodes in zip(
            worst.tolist(),
            found.value[worst].tolist(),
            found.contradictions[worst].tolist(),
            sizes[worst].tolist(),
            strict=True,
        )
    ]


def _name(node: int, names: _Names) -> str | int:
    return node if names is None else names[node]
