"""Learning the weights of a linear score from questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.logistic import minimise_log_loss

__all__ = ["fit_gate", "fit_listwise"]


def fit_listwise(
    batches: Sequence[tuple[Tensor, Tensor]],  # ([B, C, F] signals, [B, C] bool evidence)
    *,
    penalty: float = 1e-2,
    steps: int = 60,
) -> Tensor:  # [F]
    """Weights that make the evidence likely among the candidates (`docs/mathematics.md` 8.2).

    Listwise softmax: the mean over questions of -sum_i g_i log softmax(X w)_i, with g uniform
    over the evidence, plus penalty * |w|² on signals of unit variance; convex, solved by L-BFGS.
    Questions without evidence among their candidates are left out. Candidates of padding carry
    -inf in every signal.

    Raises:
        InputError: No question has evidence, or a penalty that is negative or not finite.
    """
    if not 0.0 <= penalty < torch.inf:
        raise InputError(f"penalty must be a finite number, at least 0, got {penalty!r}")
    kept = [(x[g.any(1)], g[g.any(1)]) for x, g in batches]
    kept = [(x, g) for x, g in kept if len(x)]
    if not kept:
        raise InputError(
            "expected questions whose evidence is in the store, got none; check the evidence ids"
        )
    sample = torch.cat([x.flatten(0, 1) for x, _ in kept])
    sample = sample[torch.isfinite(sample).all(1)]
    scale = sample.std(0)
    scale = torch.where(scale > 1e-6, scale, torch.inf)  # a constant signal gets weight 0
    inputs = [
        (torch.isfinite(x).all(2), x.nan_to_num(neginf=0.0) / scale, g.float()) for x, g in kept
    ]
    inputs = [(known, x, g / g.sum(1, keepdim=True)) for known, x, g in inputs]
    count = sum(len(g) for _, _, g in inputs)
    weights = torch.zeros(sample.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], lr=1, max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = penalty * weights.square().sum()
        for known, x, g in inputs:
            score = (x @ weights).masked_fill(~known, -1e9)
            loss = loss - (g * score.log_softmax(1)).sum() / count
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    return (weights / scale).detach()


def fit_gate(
    statistics: Tensor,  # [n, G]
    answerable: Tensor,  # [n] bool
    *,
    penalty: float = 1e-2,
    steps: int = 60,
) -> tuple[Tensor, float]:  # [G] weights, bias
    """Logistic regression of answerable against unanswerable questions.

    Both classes weigh the same.

    Raises:
        InputError: One of the classes is empty.
    """
    if answerable.all() or not answerable.any():
        raise InputError(
            "expected both answerable and unanswerable questions to fit the gate, got one kind"
        )
    mean, scale = statistics.mean(0), statistics.std(0).clamp(min=1e-6)
    x, y = (statistics - mean) / scale, answerable.float()
    balance = torch.where(answerable, 0.5 / y.sum(), 0.5 / (1 - y).sum())
    fitted = minimise_log_loss(x, y, balance, penalty=penalty, steps=steps)
    slope = fitted[:-1] / scale
    return slope, float(fitted[-1] - slope @ mean)
