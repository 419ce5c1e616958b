"""Learning the weights of a linear score from questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["fit_listwise"]


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
        raise InputError(
            f"penalty: expected a finite number of at least 0, got {penalty!r}; give one"
        )
    kept = [(x[g.any(1)], g[g.any(1)]) for x, g in batches]
    kept = [(x, g) for x, g in kept if len(x)]
    if not kept:
        raise InputError(
            "evidence: expected questions whose evidence is in the store, got none; check the ids"
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
