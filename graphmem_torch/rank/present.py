"""The present: of similar hits, prefer the later ones if they fit as well.

An order of the query plan (`docs/mathematics.md` 5.7) for questions about the current state, in
memories without recorded successions.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["present_scores"]

_FIT = (2.0, 2.5)  # slope and half-way point, in standard deviations below the best
_ALIKE = 5.0  # slope in the cosine of two hits without their common part
_OWN = 1e-2  # length below which the rest of a hit is rounding error
_SURE = 0.99  # maximum probability that one hit replaces another


def present_scores(
    scores: Tensor,  # [B, K]
    vectors: Tensor,  # [B, K, d]
    time: Tensor,  # [B, K]
) -> Tensor:
    """Return the log probability that a hit is current, in the units of the scores.

    A hit answers to the degree of its score. It is still current if no later answering hit is about
    the same thing. Vectors are compared without their common part, such as the person they are
    about.

    Args:
        scores: Scores of the hits of B questions, -inf for no hit.
        vectors: Vectors of the hits, of any length.
        time: Seconds of the hits; NaN if unknown, which is neither later nor earlier than any.

    Returns:
        [B, K] float32, at most the scores.
    """
    there = scores.isfinite()
    count = there.sum(1, keepdim=True).clamp(min=1)
    known = scores.float().masked_fill(~there, 0.0)
    mean = known.sum(1, keepdim=True) / count
    spread = (known - mean).masked_fill(~there, 0.0).square().sum(1, keepdim=True)
    spread = (spread / (count - 1).clamp(min=1)).sqrt()
    spread = spread.masked_fill(spread == 0, 1.0)  # all scores equal
    behind = (known.masked_fill(~there, -torch.inf).amax(1, keepdim=True) - known) / spread
    slope, half = _FIT
    fits = torch.sigmoid(slope * (half - behind)).masked_fill(~there, 0.0)
    unit = torch.nn.functional.normalize(vectors.float(), dim=2)
    common = (unit * there[..., None]).sum(1, keepdim=True) / count[..., None]
    own = torch.nn.functional.normalize(unit - common, dim=2, eps=_OWN)
    alike = torch.sigmoid(_ALIKE * (own @ own.mT))
    later = time[:, None, :] > time[:, :, None]  # [B, i, j]: j after i; NaN is never later
    gone = torch.log1p(-_SURE * alike * fits[:, None, :]).masked_fill(~later, 0.0).sum(2)
    return (known + spread * gone).masked_fill(~there, -torch.inf)
