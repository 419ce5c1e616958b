"""Bootstrap intervals and a randomisation test over questions, resampled by one product.

The percentile bootstrap (Efron 1979). To compare two systems, pass the differences of their values,
question by question: paired resampling cancels the difficulty of a question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "Interval",
    "bootstrap_interval",
    "holm",
    "interval_table",
    "mean_interval",
    "randomization_test",
    "stratified_interval",
]

Interval = tuple[float, float, float]
"""Mean, lower end, upper end."""

_BLOCK = 4_000_000  # entries, 32 MB of float64
_KEPT = 500_000  # weights of a draw that is kept for the next table


def bootstrap_interval(
    values: Tensor,  # [n, K] float, NaN = no value: the row is dropped
    *,
    generator: torch.Generator | int,
    resamples: int = 2000,
    level: float = 0.95,
    block: int = _BLOCK,
) -> list[Interval | None]:
    """Return mean and percentile interval of each column; None for all columns without a full row.

    Args:
        values: One row per question, one column per measure. Rows with a NaN are dropped.
        generator: Random generator for the resamples, or its seed, which determines the intervals.
        resamples: Number of resamples.
        level: Coverage in (0, 1).
        block: Resampling weights held at a time.

    Raises:
        ValueError: `level` or `resamples` is out of range.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: expected a number in (0, 1), got {level}; use 0.95")
    if resamples < 1:
        raise ValueError(f"resamples: expected at least 1, got {resamples}; use 2000")
    rows = values[~torch.isnan(values).any(1)].double()
    count = len(rows)
    if count == 0:
        return [None] * values.shape[1]
    weights: Iterable[Tensor]
    if isinstance(generator, int) and count * resamples <= _KEPT:
        weights = _kept(count, resamples, generator)
    else:
        if isinstance(generator, int):
            generator = torch.Generator().manual_seed(generator)
        weights = _drawn(count, resamples, generator, block)
    means = torch.cat([part @ rows / count for part in weights]).numpy()
    low, high = _quantiles(means, (1 - level) / 2, (1 + level) / 2)
    return list(zip(rows.mean(0).tolist(), low.tolist(), high.tolist(), strict=True))


def _drawn(
    count: int, resamples: int, generator: torch.Generator, block: int
) -> Iterator[Tensor]:  # [r, n] float64
    """Yield the counts of each of n rows in each resample, block by block."""
    step = max(1, block // count)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = torch.randint(count, (size, count), generator=generator)
        weights = torch.zeros(size, count, dtype=torch.float64)
        yield weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


@lru_cache(maxsize=8)
def _kept(count: int, resamples: int, seed: int) -> tuple[Tensor, ...]:
    """Return `_drawn` of a seed, cached: the tables of one report use the same draw."""
    return tuple(_drawn(count, resamples, torch.Generator().manual_seed(seed), _KEPT))


def _quantiles(values: np.ndarray, *shares: float) -> list[np.ndarray]:  # [n, K] -> [K] each
    """Interpolate quantiles of each column; numpy's own function also checks for NaN."""
    places = [share * (len(values) - 1) for share in shares]
    beside = [(math.floor(place), math.ceil(place)) for place in places]
    found = np.partition(values, [at for pair in beside for at in pair], axis=0)
    return [
        found[below] + (place - below) * (found[above] - found[below])
        for place, (below, above) in zip(places, beside, strict=True)
    ]


def interval_table(
    values: Tensor,  # [n, K] float, NaN = no value
    names: Sequence[object],  # [K]
    *,
    seed: int,
    resamples: int = 2000,
) -> dict[str, list[float] | None]:
    """Return `bootstrap_interval` of each column by name, for JSON: [mean, low, high] or None.

    Every table restarts from the seed, so that another system changes no interval.
    """
    found = bootstrap_interval(values, generator=seed, resamples=resamples)
    return {
        str(name): None if interval is None else list(interval)
        for name, interval in zip(names, found, strict=True)
    }


def mean_interval(
    values: Tensor,  # [n] float, NaN = no value
    *,
    seed: int,
    resamples: int = 2000,
) -> list[float] | None:
    """Return `interval_table` of a single column."""
    return interval_table(values[:, None], [""], seed=seed, resamples=resamples)[""]


def stratified_interval(
    values: Sequence[Tensor],  # each [n_i] float, NaN = no value
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> list[float] | None:
    """Return the mean of several group means and its percentile interval; None without values.

    Each group is resampled separately, which keeps its share of the mean.

    Args:
        values: Groups, one value per question.
        seed: Seed of the resamples.
        resamples: Number of resamples.
        level: Coverage in (0, 1).
    """
    generator = torch.Generator().manual_seed(seed)
    groups = [known for each in values if len(known := each[~torch.isnan(each)].double())]
    if not groups:
        return None
    means = torch.stack(
        [
            torch.cat(
                [
                    part @ rows / len(rows)
                    for part in _drawn(len(rows), resamples, generator, _BLOCK)
                ]
            )
            for rows in groups
        ]
    ).mean(0)
    low, high = _quantiles(means[:, None].numpy(), (1 - level) / 2, (1 + level) / 2)
    middle = sum(float(rows.mean()) for rows in groups) / len(groups)
    return [middle, float(low[0]), float(high[0])]


def holm(probabilities: Sequence[float | None]) -> list[float | None]:
    """Correct the probabilities of several tests for their number (Holm 1979); None stays None.

    The i-th smallest of m, from 0, is multiplied by m - i. Results ascend and are at most 1.
    """
    known = sorted((value, place) for place, value in enumerate(probabilities) if value is not None)
    corrected: list[float | None] = [None] * len(probabilities)
    highest = 0.0
    for rank, (value, place) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - rank)))
        corrected[place] = highest
    return corrected


def randomization_test(
    values: Tensor,  # [n] differences of two systems, NaN = no value
    *,
    generator: torch.Generator,
    resamples: int = 10_000,
    block: int = _BLOCK,
) -> float | None:
    """Return the probability of so large a mean under random signs; None without differences.

    The two-sided paired randomisation test (Fisher 1935; Smucker, Allan and Carterette 2007): if
    the systems were equal, each difference could have either sign. If there are no more sign
    choices than resamples, all are tried; otherwise the given one counts as one of the draws, so
    that the probability is never 0.

    Args:
        values: One difference a question.
        generator: Random generator for the signs.
        resamples: Number of sign choices drawn.
        block: Signs held at a time.
    """
    known = values[~torch.isnan(values)].double()
    if len(known) == 0:
        return None
    # For equal systems, either sign is the same.
    known = known[known != 0]
    count = len(known)
    # Sums that differ only by rounding are equal.
    reached = known.sum().abs() - 1e-9 * known.abs().sum()
    if count < 63 and 1 << count <= resamples:
        choices = torch.arange(1 << count)[:, None] >> torch.arange(count) & 1
        sums = (choices.double() * 2 - 1) @ known
        return float((sums.abs() >= reached).double().mean())
    far, step = 1, max(1, block // count)
    for start in range(0, resamples, step):
        shape = min(step, resamples - start), count
        signs = torch.randint(2, shape, generator=generator).double() * 2 - 1
        far += int(((signs @ known).abs() >= reached).sum())
    return far / (resamples + 1)
