"""Firing: what a node's activation becomes at the end of a round; whole rounds over all nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.ops._check import needs_gradient
from graphmem_torch.ops.inhibit import inhibit

__all__ = ["Rule", "dense_rounds"]


@dataclass(frozen=True)
class Rule:
    """What happens to what a node received; `mathematics.md` section 4.

    Attributes:
        inhibition, top: Strength and size of the lateral inhibition; the number 0 leaves it out.
        sigmoid: Fire sigmoid(gain (u - threshold)); otherwise u itself.
        gain, threshold: Of the sigmoid.
    """

    inhibition: float | Tensor  # or []
    top: int
    sigmoid: bool
    gain: float | Tensor  # or []
    threshold: float | Tensor  # or []

    @property
    def inhibits(self) -> bool:
        """Whether there is inhibition; a tensor is taken to be not 0, without looking at it."""
        return isinstance(self.inhibition, Tensor) or self.inhibition != 0

    def inhibited(self, u: Tensor) -> Tensor:
        """`[B, N]` after lateral inhibition."""
        return inhibit(u, strength=self.inhibition, top=self.top) if self.inhibits else u

    def fired(self, u: Tensor) -> Tensor:
        """What reached nodes fire, written over u unless a gradient needs u."""
        if not self.sigmoid:
            return u
        if needs_gradient(u, self.gain, self.threshold):
            return torch.sigmoid(self.gain * (u - self.threshold))
        return u.sub_(self.threshold).mul_(self.gain).sigmoid_()


def dense_rounds(
    step: Callable[[Tensor], Tensor],  # propagate: [B, N] -> [B, N], a fresh tensor
    activation: Tensor,  # [B, N]
    touched: Tensor,  # [B, N] bool: what activation has reached so far
    rounds: int,
    rule: Rule,
) -> Tensor:  # [B, N]
    """`rounds` rounds over all nodes; nodes that were never reached stay exactly 0."""
    for _ in range(rounds):
        u = step(activation)
        touched = touched | (u != 0)
        fired = rule.fired(rule.inhibited(u))
        activation = (
            torch.where(touched, fired, 0.0) if fired.requires_grad else fired.mul_(touched)
        )
    return activation
