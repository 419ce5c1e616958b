"""The present: of hits that are like each other the later ones, where they fit as well.

An order of the query plan (`docs/mathematics.md` 5.7) for who asks how things are now and has not
had recorded what took the place of what.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["present_scores"]

_FIT = (2.0, 2.5)  # slope and half-way point, in standard deviations behind the best
_ALIKE = 5.0  # slope in the cosine of what two hits have beside what all have
_OWN = 1e-2  # length below which what a hit has of its own is rounding
_SURE = 0.99  # at most: no hit is out of the question because of one other


def present_scores(
    scores: Tensor,  # [B, K]
    vectors: Tensor,  # [B, K, d]
    time: Tensor,  # [B, K]
) -> Tensor:
    """The logarithm of the chance that a hit is what holds now, in the units of the scores.

    A hit answers in the measure of its score; it holds still if no later one that answers is of the
    same thing. Vectors are compared without what they have in common, such as whom all are about.

    Args:
        scores: Of the hits of B questions, -inf where there is none.
        vectors: Of the same; of any length.
        time: Of the same, seconds; NaN where unknown: such a hit is later than none, none than it.

    Returns:
        [B, K] float32, at most the scores.
    """
    there = scores.isfinite()
    count = there.sum(1, keepdim=True).clamp(min=1)
    known = scores.float().masked_fill(~there, 0.0)
    mean = known.sum(1, keepdim=True) / count
    spread = (known - mean).masked_fill(~there, 0.0).square().sum(1, keepdim=True)
    spread = (spread / (count - 1).clamp(min=1)).sqrt()
    spread = spread.masked_fill(spread == 0, 1.0)  # all fit alike
    behind = (known.masked_fill(~there, -torch.inf).amax(1, keepdim=True) - known) / spread
    slope, half = _FIT
    fits = torch.sigmoid(slope * (half - behind)).masked_fill(~there, 0.0)
    unit = torch.nn.functional.normalize(vectors.float(), dim=2)
    common = (unit * there[..., None]).sum(1, keepdim=True) / count[..., None]
    own = torch.nn.functional.normalize(unit - common, dim=2, eps=_OWN)
    alike = torch.sigmoid(_ALIKE * (own @ own.mT))
    later = time[:, None, :] > time[:, :, None]  # [B, i, j]: j after i; of NaN never
    gone = torch.log1p(-_SURE * alike * fits[:, None, :]).masked_fill(~later, 0.0).sum(2)
    return (known + spread * gone).masked_fill(~there, -torch.inf)
