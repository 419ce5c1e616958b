"""Abstention: is there a record at all? A confidence from a few statistics of the ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.config import GateConfig
from graphmem_torch.errors import ConfigError, InputError, unknown
from graphmem_torch.linalg.logistic import minimise_log_loss
from graphmem_torch.rank.candidates import Candidates

__all__ = [
    "ABSTENTION_STATISTICS",
    "abstention_statistics",
    "confidence",
    "conformal_threshold",
    "fit_abstention",
]
Statistic = Callable[[Candidates, Tensor], Tensor]  # (candidates, top place [B, k]) -> [B]


def _activation(candidates: Candidates, top: Tensor) -> Tensor:
    """The largest activation; at a cold start that of an anchor before it spreads, its cosine."""
    activation = candidates.reached.activation
    if activation is None:
        return _of_best("semantic")(candidates, top).clamp(min=0.0)
    return activation.topk(1)[0].squeeze(1)


def _of_top(name: str) -> Statistic:
    def first(candidates: Candidates, top: Tensor) -> Tensor:
        return candidates.signal(name).expand(candidates.shape).gather(1, top[:, :1]).squeeze(1)

    return first


def _of_best(name: str) -> Statistic:
    def best(candidates: Candidates, top: Tensor) -> Tensor:
        there = candidates.signal(name).masked_fill(~candidates.valid, -torch.inf)
        return there.amax(1).clamp(min=-1.0)

    return best


ABSTENTION_STATISTICS: dict[str, Statistic] = {
    "activation": _activation,
    "top_interaction": _of_top("interaction_focus"),
    "top_sharp": _of_top("interaction_sharp"),
    "top_passage": _of_top("interaction_passage"),
    "top_semantic": _of_top("semantic"),
    "top_lexical": _of_top("lexical"),
    "top_speaker": _of_top("speaker"),
    "best_interaction": _of_best("interaction_focus"),
    "best_sharp": _of_best("interaction_sharp"),
    "best_semantic": _of_best("semantic"),
    "best_lexical": _of_best("lexical"),
}
"""What abstention can look at: the best value of any atom, or the value of the first hit."""


def abstention_statistics(
    candidates: Candidates, top: Tensor, names: Sequence[str]
) -> Tensor:  # [B, G]
    """The named statistics.

    Raises:
        ConfigError: A name that is no statistic.
    """
    for name in names:
        if name not in ABSTENTION_STATISTICS:
            known = sorted(ABSTENTION_STATISTICS)
            raise ConfigError(unknown("gate.weights", name, known, what="statistics among"))
    if candidates.shape[1] == 0:
        return candidates.query.embedding.new_zeros(
            len(candidates.query), len(names), dtype=torch.float32
        )
    return torch.stack([ABSTENTION_STATISTICS[name](candidates, top) for name in names], dim=1)


def confidence(statistics: Tensor, config: GateConfig) -> Tensor:  # [B, G] -> [B] in [0, 1]
    """The weighted sum of the statistics, through the link of the preset."""
    weights = statistics.new_tensor(list(config.weights.values()))
    total = statistics @ weights + config.bias
    return torch.sigmoid(total) if config.link == "sigmoid" else total.clamp(0.0, 1.0)


def conformal_threshold(confidences: Tensor, rate: float) -> float:
    """The threshold that refuses at most `rate` of exchangeable answerable questions.

    `docs/mathematics.md` 7: the floor(rate * (n + 1))-th smallest of n held-out confidences; minus
    infinity where n is too small to promise.

    Raises:
        InputError: A rate outside [0, 1), or no confidences.
    """
    if not 0.0 <= rate < 1.0 or confidences.numel() == 0:
        raise InputError(
            f"rate: expected a share in [0, 1) and at least one confidence, got {rate} and "
            f"{confidences.numel()}; give answerable questions held back"
        )
    # 0.57 * 100 is 56.99...: the product of a decimal rate must not lose a whole rank.
    rank = math.floor(rate * (confidences.numel() + 1) + 1e-9)
    return -math.inf if rank == 0 else float(confidences.sort().values[rank - 1])


def fit_abstention(
    statistics: Tensor,  # [n, G]
    answerable: Tensor,  # [n] bool
    *,
    penalty: float = 1e-2,
) -> tuple[Tensor, float]:  # [G] weights, bias
    """Logistic regression of answerable against unanswerable questions.

    Both classes weigh the same.

    Raises:
        InputError: One of the classes is empty.
    """
    if answerable.all() or not answerable.any():
        raise InputError(
            "answerable: expected both answerable and unanswerable questions, got one kind; add "
            "some of the other"
        )
    mean, scale = statistics.mean(0), statistics.std(0).clamp(min=1e-6)
    x, y = (statistics - mean) / scale, answerable.float()
    balance = torch.where(answerable, 0.5 / y.sum(), 0.5 / (1 - y).sum())
    fitted = minimise_log_loss(x, y, balance, penalty=penalty, steps=60)
    slope = fitted[:-1] / scale
    return slope, float(fitted[-1] - slope @ mean)
