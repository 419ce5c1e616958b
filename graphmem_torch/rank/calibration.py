"""Calibration: the probability that a hit is relevant, from its score and its question's figures.

A score ranks the memories of one question, in units of the memory. The probability means the same
for every question and memory, and never changes the order. `docs/mathematics.md` 8.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.config import OTHER_ENCODERS, CalibrationConfig
from graphmem_torch.errors import ConfigError, unknown
from graphmem_torch.linalg.logistic import fit_logistic
from graphmem_torch.rank.abstention import ABSTENTION_STATISTICS

__all__ = [
    "OF_HIT",
    "TOP",
    "constants_of",
    "fit_calibration",
    "hit_features",
    "is_calibrated",
    "probabilities",
    "read_statistics",
]

OF_HIT = ("behind", "place")
"""Terms that differ between hits of one question. Both lower the probability.

`behind` is the root of the score difference to the first hit, `place` the log of the place."""

TOP = "score"
"""The statistic of abstention (`rank.abstention`) that scores are compared with."""


_ROUGH = {"bias": -2.5721, "best_semantic": 4.7421, "place": 1.6865}
"""Constants of presets without calibration: they read no score.

Fitted to `default` with all-MiniLM-L6-v2."""


def constants_of(config: CalibrationConfig, encoder: str) -> Mapping[str, float]:
    """Return the constants of an encoder by its name, or the defaults if it has none."""
    known = config.encoders
    return known.get(encoder.rpartition("/")[2], known.get(OTHER_ENCODERS, _ROUGH))


def is_calibrated(config: CalibrationConfig, encoder: str) -> bool:
    """Return whether the probabilities of an encoder were fitted to its own scores."""
    return encoder.rpartition("/")[2] in config.encoders.keys() - {OTHER_ENCODERS}


def read_statistics(config: CalibrationConfig) -> list[str]:
    """Return the names of the abstention statistics that any of the constants weigh.

    Raises:
        ConfigError: A constant is no statistic, not in `OF_HIT` and not `bias`.
    """
    keys = [
        key for own in ({OTHER_ENCODERS: _ROUGH} | dict(config.encoders)).values() for key in own
    ]
    read = [key for key in dict.fromkeys(keys) if key not in ("bias", *OF_HIT)]
    for key in read:
        if key not in ABSTENTION_STATISTICS:
            known = ["bias", *OF_HIT, *sorted(ABSTENTION_STATISTICS)]
            raise ConfigError(unknown("calibration", key, known, what="constants among"))
    return list(dict.fromkeys([TOP, *read]))


def hit_features(
    scores: np.ndarray,  # [B, k], -inf for no hit
    place: np.ndarray,  # [B, k], from 0
    top: np.ndarray,  # [B]
) -> dict[str, np.ndarray]:  # [B, k] float64 each
    """Return the values of `OF_HIT`; `behind` is 0 for a hit after hits of lower scores."""
    behind = np.where(scores > -np.inf, top[:, None] - scores, 0.0)
    return {"behind": np.sqrt(np.maximum(behind, 0.0)), "place": np.log1p(place)}


def probabilities(
    scores: Tensor,  # [B, k], -inf for no hit
    place: Tensor,  # [B, k] int64, from 0
    statistics: Tensor,  # [B, S]
    names: Sequence[str],  # S, including `TOP`
    constants: Mapping[str, float],
) -> np.ndarray:  # [B, k] float64 in [0, 1]
    """Return the probability that each hit is relevant; 0 for no hit.

    sigmoid(bias + sum of weight * statistic - behind * sqrt(s_1 - s) - place * ln(place)), with
    places from 1. It never rises along a ranking. Runs in numpy, which takes a tenth of torch's
    time on a few numbers.

    Args:
        scores: Weighted sums of signals.
        place: Place of each hit in the ranking of its question.
        statistics: Statistics of each question.
        names: Names of the statistics.
        constants: `bias`, `behind`, `place` and weights of statistics.
    """
    score, rank, read = (
        each.detach().cpu().numpy().astype(np.float64) for each in (scores, place, statistics)
    )
    own = read @ np.array([constants.get(name, 0.0) for name in names]) + constants.get("bias", 0.0)
    odds = own[:, None]
    for name, value in hit_features(score, rank, read[:, list(names).index(TOP)]).items():
        odds = odds - constants.get(name, 0.0) * value
    # float64 underflows below exp(-700).
    return np.where(score > -np.inf, 1.0 / (1.0 + np.exp(-np.maximum(odds, -700.0))), 0.0)


def fit_calibration(
    features: Mapping[str, Tensor],  # [n] each, by the names of constants
    relevant: Tensor,  # [n] bool
    weight: Tensor,  # [n], > 0
    *,
    penalty: float = 1e-3,
) -> dict[str, float]:
    """Return the constants of `probabilities` by logistic regression (Platt 1999).

    Args:
        features: Values of hits: those of `OF_HIT`, and statistics of their questions.
        relevant: Whether each hit is relevant.
        weight: Weight of each hit.
        penalty: Penalty on squared weights of features of unit variance.

    Raises:
        InputError: The input does not suit `linalg.logistic.fit_logistic`.
    """
    signals = torch.stack(list(features.values()), 1)
    fitted = fit_logistic(signals, relevant, weight, penalty=penalty)
    slopes = dict(zip(features, fitted.weights.tolist(), strict=True))
    # A probability that rose along a ranking would change its order.
    of_hit = {name: max(0.0, -slopes[name]) for name in OF_HIT if name in slopes}
    return {"bias": fitted.bias} | slopes | of_hit
