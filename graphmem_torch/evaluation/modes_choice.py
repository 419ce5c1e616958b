"""Which setting to recommend: the cheapest that loses next to nothing, chosen without its judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["TOLERANCE", "LeftOut", "cheapest", "leave_one_out", "pareto_front"]

T = TypeVar("T")

TOLERANCE = 0.01
"""Recall that a setting may lose to the exact search and still be recommended: one point."""


def pareto_front(points: Mapping[T, tuple[float, float]]) -> list[T]:
    """The points that no other one beats in both quality (more) and cost (less), cheapest first.

    Args:
        points: Quality and cost of each.
    """
    front: list[T] = []
    best = -float("inf")
    for point in sorted(points, key=lambda p: (points[p][1], -points[p][0])):
        if points[point][0] > best:
            front.append(point)
            best = points[point][0]
    return front


def cheapest(
    points: Mapping[T, tuple[float, float]],
    reference: float,
    *,
    tolerance: float = TOLERANCE,
) -> T:
    """The point of least cost whose quality is at least `reference - tolerance`.

    Where none is, the one of best quality; equal ones go to the cheaper, then to the better, then
    to the first.

    Args:
        points: Quality and cost of each; at least one.
        reference: What the exact search reaches.
        tolerance: What may be lost.
    """
    # Sums of the same terms in another order must not decide.
    enough = [p for p in points if points[p][0] >= reference - tolerance - 1e-9]
    if not enough:
        return max(points, key=lambda p: (points[p][0], -points[p][1]))
    return min(enough, key=lambda p: (points[p][1], -points[p][0]))


@dataclass(frozen=True)
class LeftOut:
    """What a rule chooses for a group when it does not see it.

    Attributes:
        chosen: The setting chosen on all other groups, for each group.
        quality: [n] what it reached on the questions of its own group.
        cost: [n] what that cost.
    """

    chosen: Sequence[object]
    quality: Tensor
    cost: Tensor


def leave_one_out(
    quality: Mapping[T, Tensor],  # each [n]
    cost: Mapping[T, Tensor],  # each [n]
    reference: Tensor,  # [n]
    group: Tensor,  # [n] integers from 0
) -> LeftOut | None:
    """Choose with `cheapest` for each group on the others; None for a single group.

    Args:
        quality: Of every question under each setting.
        cost: The same.
        reference: Quality of the exact search.
        group: Conversation of each question.
    """
    numbers = group.unique().tolist()
    if len(numbers) < 2:
        return None
    reached, spent, chosen = torch.empty_like(reference), torch.empty_like(reference), []
    for number in numbers:
        rest, own = group != number, group == number
        points = {
            name: (float(value[rest].mean()), float(cost[name][rest].mean()))
            for name, value in quality.items()
        }
        best = cheapest(points, float(reference[rest].mean()))
        chosen.append(best)
        reached[own], spent[own] = quality[best][own], cost[best][own]
    return LeftOut(chosen, reached, spent)
