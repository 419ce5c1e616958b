"""Lifts: hops raise the scores of documents up to just below their anchor.

`docs/mathematics.md` 8.4. With s the weighted sum of the signals that need no graph, a hop from the
anchor a raises s(c) to min(s(c) + lift, s(a) - 0.001). It fills places after its anchor and never
passes it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.hops import HopPairs
from graphmem_torch.rank.listed_rows import columns_of
from graphmem_torch.rank.peers import Peers

__all__ = ["Heights", "led_from", "raised_by_hops", "raises", "shared_heights"]
_BEHIND = 0.001  # score difference between an anchor and its hops


class Heights(NamedTuple):
    """Base scores that limit a lift.

    Attributes:
        anchor: [B, K], scores of the anchors; infinite if there is none.
        own: [B, C], scores of the candidates.
    """

    anchor: Tensor
    own: Tensor


def raised_by_hops(c: Candidates) -> Tensor:  # [B, C]
    """Return how much hops raise the base score of each candidate; at least 0."""
    lifts, anchors = c.reached.lifts, c.reached.anchors
    if lifts is None or anchors is None or 0 in c.shape or not anchors.shape[1]:
        return c.zeros
    heights = _heights(c, anchors)
    if isinstance(lifts, Tensor):
        return _dense_gain(c, lifts, heights).amax(1)
    return raises(lifts, heights, *_columns(c, lifts))


def led_from(c: Candidates, places: Tensor) -> Tensor:  # [B, k] -> [B, k] int64 rows, -1 = none
    """Return the anchor whose hop raises each candidate the most; the best one on a tie.

    Args:
        c: The candidates.
        places: Places among the candidates.
    """
    lifts, anchors = c.reached.lifts, c.reached.anchors
    none = torch.full_like(places, -1)
    if lifts is None or anchors is None or 0 in c.shape or not anchors.shape[1]:
        return none
    heights = _heights(c, anchors)
    if isinstance(lifts, Tensor):
        gain, slot = _dense_gain(c, lifts, heights).max(1)
        return anchors.gather(1, slot.gather(1, places)).where(gain.gather(1, places) > 0, -1)
    if not len(lifts.value):
        return none
    column, there = _columns(c, lifts)
    row, place, _, value = lifts
    gain = _gain(heights.own[row, column], value, heights.anchor[row, place])
    flat = row * c.shape[1] + column
    best = raises(lifts, heights, column, there).flatten()
    last = anchors.shape[1]
    slot = place.masked_fill(~there | (gain <= 0) | (gain < best[flat]), last)
    first = flat.new_full(best.shape, last).scatter_reduce(0, flat, slot, "amin").view(c.shape)
    return torch.nn.functional.pad(anchors, (0, 1), value=-1).gather(1, first.gather(1, places))


def _heights(c: Candidates, anchors: Tensor) -> Heights:
    own = c.base_scores.expand(c.shape)
    if c.reached.heights is not None:
        return Heights(c.reached.heights, own)
    place, there = _places(c, anchors)
    return Heights(own.gather(1, place).where(there, torch.inf), own)


def shared_heights(c: Candidates, peers: Peers, anchors: Tensor) -> Tensor:  # [B, K]
    """Return the base scores of the anchors of all shards; infinite for none."""
    place, there = _places(c, anchors)
    own = c.base_scores.expand(c.shape).gather(1, place).where(there, -torch.inf)
    every = peers.largest("heights", own)
    return every.masked_fill(every == -torch.inf, torch.inf)


def _dense_gain(c: Candidates, lifts: Tensor, heights: Heights) -> Tensor:  # [B, K, A] -> [B, K, C]
    if c.rows is not None:
        at = c.rows.clamp(min=0)[:, None].expand(-1, lifts.shape[1], -1)
        lifts = lifts.gather(2, at) * (c.rows >= 0)[:, None]
    return _gain(heights.own[:, None], lifts, heights.anchor[:, :, None])


def raises(
    lifts: HopPairs,
    heights: Heights,
    column: Tensor,  # [P] int64, place of each target in the candidates
    there: Tensor,  # [P] bool, mask of the targets that are candidates
) -> Tensor:  # [B, C]
    """Return the largest raise of each candidate by any of the pairs."""
    row, place, _, lift = lifts
    gain = _gain(heights.own[row, column], lift, heights.anchor[row, place])
    flat = row * heights.own.shape[1] + column
    none = torch.zeros_like(heights.own).flatten()
    return none.scatter_reduce(0, flat, gain.where(there, 0.0), "amax").view_as(heights.own)


def _gain(own: Tensor, lift: Tensor, anchor: Tensor) -> Tensor:
    return (torch.minimum(own + lift, anchor - _BEHIND) - own).clamp(min=0.0)


def _places(c: Candidates, rows: Tensor) -> tuple[Tensor, Tensor]:  # [B, n] each
    """Return the places of rows among the candidates, and a mask of those that are present."""
    if c.rows is None:
        return rows.clamp(min=0), rows >= 0
    place = torch.searchsorted(c.rows, rows).clamp(max=c.rows.shape[1] - 1)
    return place, (c.rows.gather(1, place) == rows) & (rows >= 0)


def _columns(c: Candidates, lifts: HopPairs) -> tuple[Tensor, Tensor]:  # [P] each
    """Return the places of targets among their question's candidates, and a mask of present."""
    if c.rows is None:
        return lifts.target, torch.ones_like(lifts.target, dtype=torch.bool)
    return columns_of(c.rows, lifts.row, lifts.target, c.memory.num_atoms)
