"""Bootstrap intervals and a randomisation test over questions, resamples in one product.

The percentile bootstrap (Efron 1979). For a difference of two systems give the differences of their
values, question by question: resampled in pairs, the difficulty of a question cancels.
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

_BLOCK = 4_000_000  # 32 MB of float64
_KEPT = 500_000  # weights of a draw that is kept for the next table


def bootstrap_interval(
    values: Tensor,  # [n, K] float, NaN = no value: the row is dropped
    *,
    generator: torch.Generator | int,
    resamples: int = 2000,
    level: float = 0.95,
    block: int = _BLOCK,
) -> list[Interval | None]:
    """Mean and percentile interval of each column; None for every column when no row has values.

    Args:
        values: One row per question, one column per measure. A row is dropped when any column is
            NaN.
        generator: Source of the resamples, or the seed of one of its own; the same seed gives the
            same intervals.
        resamples: Number of resamples.
        level: Coverage in (0, 1).
        block: Entries of the resampling weights that are held at a time.

    Raises:
        ValueError: if `level` or `resamples` is out of range.
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
    """How often each of n rows is in each resample, block by block."""
    step = max(1, block // count)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = torch.randint(count, (size, count), generator=generator)
        weights = torch.zeros(size, count, dtype=torch.float64)
        yield weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


@lru_cache(maxsize=8)
def _kept(count: int, resamples: int, seed: int) -> tuple[Tensor, ...]:
    """`_drawn` by a seed: the tables of a report, as many as its systems, are of the same draw."""
    return tuple(_drawn(count, resamples, torch.Generator().manual_seed(seed), _KEPT))


def _quantiles(values: np.ndarray, *shares: float) -> list[np.ndarray]:  # [n, K] -> [K] each
    """Of each column, between the two values beside it; what numpy has looks for NaN, too."""
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
    """`bootstrap_interval` of each column by name, as JSON has it: [mean, low, high] or None.

    Every table starts from the seed anew, so that one more system changes no other's interval.
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
    """`interval_table` of a single column."""
    return interval_table(values[:, None], [""], seed=seed, resamples=resamples)[""]


def stratified_interval(
    values: Sequence[Tensor],  # each [n_i] float, NaN = no value
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> list[float] | None:
    """Mean of the means of several groups, and its percentile interval; None without values.

    Each group is resampled by itself, so its share of the mean stays what it is.

    Args:
        values: The groups, one value per question.
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
    """Probabilities of several tests, corrected for their number (Holm 1979); None stays None.

    The i-th smallest of m, from 0, is multiplied by m - i; none is below a smaller one's result,
    none above 1.
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
    """How often the mean of differences whose signs are drawn is as far from 0; None without any.

    The two-sided paired randomisation test (Fisher 1935; Smucker, Allan and Carterette 2007): were
    the systems alike, each difference could as well have had the other sign. All choices of signs
    are tried where there are no more of them than resamples; else the given one counts as one of
    those drawn, so that the probability is never 0.

    Args:
        values: One difference a question.
        generator: Source of the signs.
        resamples: Choices of signs that are drawn.
        block: Signs that are held at a time.
    """
    known = values[~torch.isnan(values)].double()
    if len(known) == 0:
        return None
    # Where two systems agree, either sign is the same.
    known = known[known != 0]
    count = len(known)
    # Sums that differ by rounding alone are equal.
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
