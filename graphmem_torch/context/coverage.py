"""Exact choice of texts by coverage: relevance minus complexity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

__all__ = ["Coverage", "select_coverage", "select_coverage_reference"]

_EVEN = 1e-12  # relative tolerance: sums of the same weights in another order are equal


class Coverage(NamedTuple):
    """Chosen texts with their value.

    Attributes:
        chosen: Places of the texts, ascending.
        relevance: Share of the total weight that they cover, in [0, 1].
        complexity: Share of the length limit that they use, in [0, 1].
        value: Relevance minus `price` times complexity.
        bound: Upper bound of all choices; equal to `value` if the choice is proven optimal.
    """

    chosen: tuple[int, ...]
    relevance: float
    complexity: float
    value: float
    bound: float


def select_coverage_reference(
    units: Sequence[Collection[str]],
    lengths: Sequence[int],
    weight: Mapping[str, float],
    *,
    limit: int,
    price: float,
) -> Coverage:
    """Try every choice, as in the definition; ties go to fewer, then to earlier texts.

    For the arguments see `select_coverage`.
    """
    total = sum(weight.values())
    best = Coverage((), 0.0, 0.0, 0.0, 0.0)
    for count in range(len(units) + 1):
        for chosen in combinations(range(len(units)), count):
            length = sum(lengths[place] for place in chosen)
            covered = {unit for place in chosen for unit in units[place]}
            relevance = sum(weight[unit] for unit in covered) / total if total else 0.0
            value = relevance - price * length / limit
            if length <= limit and value > best.value + _EVEN:
                best = Coverage(chosen, relevance, length / limit, value, value)
    return best


def select_coverage(
    units: Sequence[Collection[str]],
    lengths: Sequence[int],
    weight: Mapping[str, float],
    *,
    limit: int,
    price: float,
    work: int = 20_000,
) -> Coverage:
    """Choose the texts S of best coverage for their length (`docs/mathematics.md` 5.6).

        max  w(union of their units) / w(all units) - price * length(S) / limit,  length(S) <= limit

    Relevance is submodular and length is additive, so the gain of a text never grows as others are
    chosen. A text without gain is therefore dropped for good. The remaining gains, as a fractional
    knapsack up to the limit, bound every continuation, and branch and bound with that bound is
    exact. Texts of most gain per length come first, so the first choice is the greedy one. The
    problem is NP-hard: after `work` steps the best choice so far is returned, with its `bound`.

    Args:
        units: Units that each of n texts covers; keys of `weight`.
        lengths: Lengths of the texts, above 0.
        weight: Weights of the units, at least 0.
        limit: Maximum total length, above 0.
        price: Cost of the full length, as a share of the total weight; at least 0.
        work: Maximum number of search steps.
    """
    total = sum(weight.values()) or 1.0
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    steps, bound = 0, 0.0

    def search(
        chosen: tuple[int, ...],
        covered: frozenset[str],
        left: int,
        value: float,
        among: Sequence[int],
    ) -> None:
        nonlocal best, steps, bound
        key = (value, tuple(sorted(chosen)))
        if value > best[0] + _EVEN:
            best = key
        gains = []
        for place in among:
            if lengths[place] <= left:
                new = sum(weight[unit] for unit in units[place] if unit not in covered) / total
                gain = new - price * lengths[place] / limit
                if gain > 0:
                    gains.append((gain / lengths[place], gain, place))
        gains.sort(key=lambda each: (-each[0], each[2]))
        for at, (_, gain, place) in enumerate(gains):
            most = value + _fractional(gains[at:], lengths, left)
            if most <= best[0] + _EVEN:
                return
            if steps >= work:
                bound = max(bound, most)
                return
            steps += 1
            others = [other for *_, other in gains[at + 1 :]]
            with_it = covered.union(units[place])
            search((*chosen, place), with_it, left - lengths[place], value + gain, others)

    search((), frozenset(), limit, 0.0, range(len(units)))
    chosen = best[1]
    covered = {unit for place in chosen for unit in units[place]}
    relevance = sum(weight[unit] for unit in covered) / total
    complexity = sum(lengths[place] for place in chosen) / limit
    value = relevance - price * complexity
    return Coverage(chosen, relevance, complexity, value, max(value, bound))


def _fractional(
    gains: Sequence[tuple[float, float, int]], lengths: Sequence[int], left: int
) -> float:
    """Return the maximum gain within a length if fractions of texts count; densest first."""
    found = 0.0
    for density, gain, place in gains:
        if lengths[place] > left:
            return found + density * left
        found, left = found + gain, left - lengths[place]
    return found
