"""Bootstrap confidence intervals over questions, all columns and resamples in one product.

The percentile bootstrap (Efron 1979). For a difference of two systems give the differences of their
values, question by question: resampled in pairs, the difficulty of a question cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Interval", "bootstrap_interval", "interval_table", "mean_interval"]

Interval = tuple[float, float, float]
"""Mean, lower end, upper end."""

_BLOCK = 4_000_000  # 32 MB of float64


def bootstrap_interval(
    values: Tensor,  # [n, K] float, NaN = no value: the row is dropped
    *,
    generator: torch.Generator,
    resamples: int = 2000,
    level: float = 0.95,
    block: int = _BLOCK,
) -> list[Interval | None]:
    """Mean and percentile interval of each column; None for every column when no row has values.

    Args:
        values: One row per question, one column per measure. A row is dropped when any column is
            NaN.
        generator: Source of the resamples; the same seed gives the same intervals.
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
    means = []
    step = max(1, block // count)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = torch.randint(count, (size, count), generator=generator)
        weights = torch.zeros(size, count, dtype=torch.float64)
        weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        means.append(weights @ rows / count)
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.cat(means).quantile(ends, dim=0)
    middle = rows.mean(0)
    return list(zip(middle.tolist(), low.tolist(), high.tolist(), strict=True))


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
    generator = torch.Generator().manual_seed(seed)
    found = bootstrap_interval(values, generator=generator, resamples=resamples)
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
