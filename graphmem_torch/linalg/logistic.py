"""Weighted logistic regression, of rows or of lists: weights of signals, fitted in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["Logistic", "fit_listwise", "fit_logistic", "minimise_log_loss"]
_STEPS, _LISTWISE_STEPS = 100, 60  # of L-BFGS at most


@dataclass(frozen=True, eq=False)
class Logistic:
    """log odds = signals @ weights + bias.

    Attributes:
        weights: `[F]`.
        bias: Log odds where every signal is 0.
    """

    weights: Tensor
    bias: float

    def log_odds(self, signals: Tensor) -> Tensor:  # [..., F] -> [...]
        """Log odds of each row of signals."""
        return signals @ self.weights + self.bias

    def probability(self, signals: Tensor) -> Tensor:  # [..., F] -> [...]
        """Probability of each row of signals."""
        return self.log_odds(signals).sigmoid()


def fit_logistic(
    signals: Tensor,  # [n, F]
    positive: Tensor,  # [n] bool
    weight: Tensor | None = None,  # [n], > 0
    *,
    penalty: float = 1e-3,
) -> Logistic:
    """Maximum likelihood of a logistic model whose rows count `weight` times.

    Minimises the weighted log loss for each unit of positive weight, plus penalty * |w|² on
    signals of unit variance; convex, solved by L-BFGS. Rows that were sampled are weighted by the
    inverse of the share that was drawn, so the probabilities are those of the whole.

    Raises:
        InputError: Shapes that do not fit, signals that are not finite, weights that are not above
            0, or only one class.
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
    """Where sum of weight * log loss + penalty * |w|² is least, from w = 0 and `bias` on."""
    weights = x.new_zeros(x.shape[1] + 1)
    weights[-1] = bias

    def loss() -> Tensor:
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            x @ weights[:-1] + weights[-1], y, weight=weight, reduction="sum"
        )
        return losses + penalty * weights[:-1].square().sum()

    return _minimised(weights, loss, steps)


def fit_listwise(
    batches: Sequence[tuple[Tensor, Tensor]],  # ([B, C, F] signals, [B, C] bool evidence)
    counts: Sequence[float] = (),
    *,
    penalty: float | Sequence[float] = 1e-2,
    start: Tensor | None = None,  # [F]
) -> Tensor:  # [F]
    """Weights that make the evidence likely among the candidates (`docs/mathematics.md` 8.2).

    Listwise softmax: the mean over questions of -sum_i g_i log softmax(X w)_i, with g uniform
    over the evidence, plus penalty * |w|² (one for all, or one each) on signals of unit variance;
    convex, solved by L-BFGS.
    Questions without evidence among their candidates are left out. Candidates of padding carry
    -inf in every signal. `counts` says what a question of each batch counts in the mean, all alike
    by default. The penalty is of the distance from `start`, by default from 0.

    Raises:
        InputError: No question has evidence, or a penalty that is negative or not finite.
    """
    penalties = torch.tensor(penalty, dtype=torch.float32)
    if not bool(((penalties >= 0.0) & torch.isfinite(penalties)).all()):
        raise InputError(
            f"penalty: expected a finite number of at least 0, got {penalty!r}; give one"
        )
    counted = zip(batches, counts or [1.0] * len(batches), strict=True)
    kept = [(x[g.any(1)], g[g.any(1)], count) for (x, g), count in counted]
    kept = [(x, g, count) for x, g, count in kept if len(x)]
    if not kept:
        raise InputError(
            "evidence: expected questions whose evidence is in the store, got none; check the ids"
        )
    sample = torch.cat([x.flatten(0, 1) for x, _, _ in kept])
    sample = sample[torch.isfinite(sample).all(1)]
    scale = sample.std(0)
    scale = torch.where(scale > 1e-6, scale, torch.inf)  # a constant signal gets weight 0
    total = sum(count * len(g) for _, g, count in kept)
    start = sample.new_zeros(sample.shape[1]) if start is None else start
    inputs = [
        (
            (x.nan_to_num(neginf=0.0) @ start).masked_fill(~torch.isfinite(x).all(2), -1e9),
            x.nan_to_num(neginf=0.0) / scale,
            g.float() * (count / total / g.sum(1, keepdim=True)),
        )
        for x, g, count in kept
    ]
    step = torch.zeros_like(start)

    def loss() -> Tensor:
        value = (penalties * step.square()).sum()
        for score, x, g in inputs:
            value = value - (g * (score + x @ step).log_softmax(1)).sum()
        return value

    return start + _minimised(step, loss, _LISTWISE_STEPS) / scale


def _minimised(weights: Tensor, loss: Callable[[], Tensor], steps: int) -> Tensor:
    """Where the loss, a function of these weights, is least; L-BFGS from where they are."""
    weights.requires_grad_(True)
    optimiser = torch.optim.LBFGS([weights], lr=1, max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(closure)
    return weights.detach()
