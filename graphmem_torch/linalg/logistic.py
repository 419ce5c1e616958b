"""Weighted logistic regression, and the optimizer of smooth convex losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["Logistic", "fit_logistic", "minimise", "minimise_log_loss"]
_STEPS = 100  # maximum steps of L-BFGS


@dataclass(frozen=True, eq=False)
class Logistic:
    """Logistic model: log odds = signals @ weights + bias.

    Attributes:
        weights: `[F]`.
        bias: Log odds if every signal is 0.
    """

    weights: Tensor
    bias: float

    def log_odds(self, signals: Tensor) -> Tensor:  # [..., F] -> [...]
        """Return the log odds of each row of signals."""
        return signals @ self.weights + self.bias

    def probability(self, signals: Tensor) -> Tensor:  # [..., F] -> [...]
        """Return the probability of each row of signals."""
        return self.log_odds(signals).sigmoid()


def fit_logistic(
    signals: Tensor,  # [n, F]
    positive: Tensor,  # [n] bool
    weight: Tensor | None = None,  # [n], > 0
    *,
    penalty: float = 1e-3,
) -> Logistic:
    """Fit a logistic model whose rows count `weight` times, by maximum likelihood.

    Minimises the weighted log loss per unit of positive weight, plus penalty * |w|² on signals of
    unit variance; convex, solved by L-BFGS. Weight sampled rows by the inverse of the sampled
    share, so that probabilities are those of the whole.

    Raises:
        InputError: Shapes do not fit, signals are not finite, weights are not above 0, or there is
            only one class.
    """
    if signals.dim() != 2 or positive.shape != signals.shape[:1]:
        raise InputError(
            f"signals and positive: expected [n, F] and [n], got {list(signals.shape)} and "
            f"{list(positive.shape)}; give one label for each row"
        )
    if weight is not None and (weight.shape != positive.shape or not bool((weight > 0).all())):
        raise InputError(
            f"weight: expected [{positive.shape[0]}], each above 0, got {list(weight.shape)} or "
            "one that is not; leave out rows that do not count"
        )
    if not bool(signals.isfinite().all()):
        raise InputError(
            "signals: expected finite values, got NaN or infinity; leave out such rows"
        )
    if bool(positive.all()) or not bool(positive.any()):
        raise InputError(
            "positive: expected rows of both kinds to fit a logistic model, got one kind; give both"
        )
    x = signals.float()
    share = torch.ones_like(x[:, 0]) if weight is None else weight.float()
    total, positives = share.sum(), share[positive].sum()
    mean = (share[:, None] * x).sum(0) / total
    spread = ((share[:, None] * (x - mean).square()).sum(0) / total).sqrt()
    scale = torch.where(spread > 1e-6, spread, torch.inf)  # a constant signal gets weight 0
    z, y, share = (x - mean) / scale, positive.float(), share / positives
    odds = torch.log(positives / (total - positives))
    fitted = minimise_log_loss(z, y, share, penalty=penalty, steps=_STEPS, bias=float(odds))
    slope = fitted[:-1] / scale
    return Logistic(slope, float(fitted[-1] - slope @ mean))


def minimise_log_loss(
    x: Tensor,  # [n, F]
    y: Tensor,  # [n], 0 or 1
    weight: Tensor,  # [n]
    *,
    penalty: float,
    steps: int,
    bias: float = 0.0,
) -> Tensor:  # [F + 1], the bias last
    """Minimise the sum of weight * log loss + penalty * |w|², from w = 0 and `bias`."""
    weights = x.new_zeros(x.shape[1] + 1)
    weights[-1] = bias
    weights.requires_grad_()

    def loss() -> Tensor:
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            x @ weights[:-1] + weights[-1], y, weight=weight, reduction="sum"
        )
        return losses + penalty * weights[:-1].square().sum()

    minimise([weights], loss, steps=steps)
    return weights.detach()


def minimise(
    parameters: Iterable[Tensor], loss: Callable[[], Tensor], *, steps: int = _STEPS
) -> None:
    """Minimise a smooth convex loss over the parameters that require a gradient, in place.

    Uses L-BFGS with a strong Wolfe line search, from their current values.
    """
    optimizer = torch.optim.LBFGS(
        [each for each in parameters if each.requires_grad],
        max_iter=steps,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
