"""The gate: is there a record at all? A confidence from a few statistics of the ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.config import GateConfig
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.rank.scope import Scope

__all__ = ["GATE_STATISTICS", "confidence", "conformal_threshold", "gate_statistics"]
Statistic = Callable[[Scope, Tensor], Tensor]  # (scope, top place [B, k]) -> [B]


def _activation(scope: Scope, top: Tensor) -> Tensor:
    """The largest activation; at a cold start that of an anchor before it spreads, its cosine."""
    if scope.activation is None:
        return _of_best("semantic")(scope, top).clamp(min=0.0)
    return scope.activation.topk(1)[0].squeeze(1)


def _of_top(name: str) -> Statistic:
    return lambda scope, top: scope.memo(name).expand(scope.shape).gather(1, top[:, :1]).squeeze(1)


def _of_best(name: str) -> Statistic:
    def best(scope: Scope, top: Tensor) -> Tensor:
        return scope.memo(name).masked_fill(~scope.valid, -torch.inf).amax(1).clamp(min=-1.0)

    return best


GATE_STATISTICS: dict[str, Statistic] = {
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
"""What the gate can look at: the best value of any atom, or the value of the first hit."""


def gate_statistics(scope: Scope, top: Tensor, names: Sequence[str]) -> Tensor:  # [B, G]
    """The named statistics.

    Raises:
        ConfigError: A name that is no statistic.
    """
    for name in names:
        if name not in GATE_STATISTICS:
            raise ConfigError(
                f"unknown gate statistic {name!r} (known: {', '.join(sorted(GATE_STATISTICS))})"
            )
    if scope.shape[1] == 0:
        return scope.query.embedding.new_zeros(len(scope.query), len(names), dtype=torch.float32)
    return torch.stack([GATE_STATISTICS[name](scope, top) for name in names], dim=1)


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
            f"expected a rate in [0, 1) and at least one confidence, got {rate} and "
            f"{confidences.numel()}"
        )
    # 0.57 * 100 is 56.99...: the product of a decimal rate must not lose a whole rank.
    rank = math.floor(rate * (confidences.numel() + 1) + 1e-9)
    return -math.inf if rank == 0 else float(confidences.sort().values[rank - 1])
