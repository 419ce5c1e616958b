"""The age of the present regime of a stream, as a probability for every answer.

Bayesian online change point detection (Adams and MacKay 2007) for coordinates along slow modes: in
a regime, coordinate k has a mean drawn from N(0, p_k) and values around it with variance 1 - p_k,
so that over all regimes its variance is 1 and its persistence p_k.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["advance", "log_evidence"]

_TILE = 1 << 21  # floats of the largest temporary


def log_evidence(
    z: Tensor,  # [S, m + n, K]: m steps that are known and n new ones
    count: int,  # n
    persistence: Tensor,  # [K]
    longest: int,  # R
) -> Tensor:  # [S, n, R]
    """What each step says for its regime having begun r steps ago, r = 1..R, and not now.

    log p(z_t | r steps before it are of its regime) - log p(z_t | none is).

    Given r steps of its regime, z_t has the mean r p / (r p + 1 - p) times theirs and the variance
    1 - p + p (1 - p) / (r p + 1 - p), with p the persistence. -inf where there are no r steps.
    """
    streams, have = z.shape[0], z.shape[1] - count
    length = torch.arange(1, longest + 1)
    shrunk = length[:, None] * persistence + 1 - persistence
    gain = persistence / shrunk
    variance = 1 - persistence + (1 - persistence) * gain
    constant = -0.5 * variance.log().sum(1)
    total = torch.nn.functional.pad(z.cumsum(1), (0, 0, 1, 0))
    out = torch.empty(streams, count, longest, dtype=z.dtype)
    step = max(1, _TILE // (streams * longest * max(1, z.shape[2])))
    for start in range(0, count, step):
        now = torch.arange(start, min(start + step, count)) + have  # [c]
        first = now[:, None] - length  # [c, R]
        run = total[:, now, None] - total[:, first.clamp(min=0)]
        new = z[:, now, None]
        misfit = ((new - gain * run).square() / variance).sum(3)
        part = constant + 0.5 * (new.square().sum(3) - misfit)
        out[:, now - have] = part.masked_fill(first < 0, -torch.inf)
    return out


def advance(
    log_run: Tensor,  # [S, R]: log P(r steps of the present regime were read), r = 1..R
    evidence: Tensor,  # [S, n, R], of `log_evidence`
    hazard: float,
) -> tuple[Tensor, Tensor]:  # [S, R], [S, n, 2]
    """The posterior after n more steps, one after the other, as a filter has to go.

    Returns:
        `log_run` after the last step, and after every step log P(r = 1) and log P(r = 2). What is
        older than R steps counts as R steps old.
    """
    stay, leave = math.log1p(-hazard), math.log(hazard)
    heads = torch.empty(*evidence.shape[:2], 2, dtype=log_run.dtype)
    grown = evidence + stay
    for step in range(evidence.shape[1]):
        older = log_run + grown[:, step]
        moved = torch.empty_like(log_run)
        moved[:, 0] = log_run.logsumexp(1) + leave
        moved[:, 1:] = older[:, :-1]
        moved[:, -1] = torch.logaddexp(moved[:, -1], older[:, -1])
        log_run = moved - moved.logsumexp(1, keepdim=True)
        heads[:, step] = log_run[:, :2]
    return log_run, heads
