"""Peers: what the shards of one memory tell each other while a question is asked.

A shard ranks its own atoms. What a score compares them with belongs to the whole memory: the
background of each signal, the anchors, the places in the ranking. Each shard computes its part,
`Peers.gather` returns the parts of all, and every shard combines them in the same order, so all
get the same bits in any number of processes. A memory of one store has no peers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.ops.tiles import stable_topk

__all__ = ["Background", "Peers", "Ranking"]


class Background(NamedTuple):
    """Moments of F signals over the atoms that B questions are compared with.

    Attributes:
        atoms: [B, 1] float64, number of atoms.
        mean, deviation, largest: [B, F].
    """

    atoms: Tensor
    mean: Tensor
    deviation: Tensor
    largest: Tensor


class Ranking(NamedTuple):
    """The best candidates of B questions, best first, in a memory or in all of its shards.

    Attributes:
        places: [B, K] int64, places of the own best among the own candidates.
        scores: [B, n] scores of the best of all; -inf for no hit.
        source: [B, n] int64, entry of each among the K best of every shard, shard after shard.
            None in a memory of one store, where n = K and all are its own.
        place: [B, K] int64, place of each own one among the best of all; n if it is not there.
        peers: The other shards.
    """

    places: Tensor
    scores: Tensor
    source: Tensor | None = None
    place: Tensor | None = None
    peers: Peers | None = None

    def values(self, values: Tensor) -> Tensor:  # [B, C] -> [B, n]
        """Return a value of every candidate for the best."""
        return self.of_own(values.gather(1, self.places))

    @property
    def own_places(self) -> Tensor:  # [B, n] int64
        """Place of each of the best among the own candidates, -1 if it is of another shard."""
        assert self.peers is not None and self.source is not None
        entry = self.source - self.peers.place * self.places.shape[1]
        there = (entry >= 0) & (entry < self.places.shape[1])
        return self.places.gather(1, entry.where(there, 0)).where(there, -1)

    def of_own(self, own: Tensor) -> Tensor:  # [B, K] -> [B, n]
        """Return a value of the own best for the best of all."""
        if self.peers is None or self.source is None:
            return own
        return self.peers.side_by_side("best", own).gather(1, self.source)


@dataclass(frozen=True, eq=False)
class Peers:
    """The shards that answer a question together, as one of them sees them.

    Attributes:
        place: Number of this shard among them.
        starts: Whether any of them has anchors to start from.
        leads: Whether any of them has documents that hops lead to.
        lends: Whether all of them spread, so that concepts lend their activation.
        gather: Function (name of the exchange, own tensor [...]) -> [S, ...], the tensors of all
            shards. All shards call it with the same names in the same order, and equal shapes.
    """

    place: int
    starts: bool
    leads: bool
    lends: bool
    gather: Callable[[str, Tensor], Tensor]

    def largest(self, what: str, own: Tensor) -> Tensor:
        """Return the largest value of any shard."""
        return self.gather(what, own).amax(0)

    def smallest(self, what: str, own: int) -> int:
        """Return the smallest number of any shard."""
        return int(self.gather(what, torch.tensor(own)).amin())

    def any(self, what: str, own: bool) -> bool:
        """Return whether it holds in any shard."""
        return bool(self.gather(what, torch.tensor(own)).any())

    def side_by_side(self, what: str, own: Tensor) -> Tensor:  # [B, K] -> [B, S * K]
        """Return the values of all shards, shard after shard."""
        return self.gather(what, own).transpose(0, 1).flatten(1)

    def mean(
        self, what: str, atoms: Tensor, own: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # [B, 1] each
        """Return the mean over all shards of a value, the number of atoms, and that of another.

        Args:
            what: Name of the exchange.
            atoms: [B, 1] float64, number of atoms of this shard.
            own: [B, 1] mean over them.
            other: [B, 1] mean of another value over them.
        """
        parts = self.gather(what, torch.cat([atoms, own.double(), other.double()], dim=1))
        total = parts[:, :, :1].sum(0)
        share = parts[:, :, :1] / total.clamp(min=1)
        found = (share * parts[:, :, 1:]).sum(0).to(own.dtype)
        return found[:, :1], total.to(own.dtype), found[:, 1:]

    def background(self, what: str, own: Background) -> Background:
        """Return the moments over the atoms of all shards (Chan, Golub and LeVeque 1979)."""
        every = self.gather(what, torch.cat([each.double() for each in own], dim=1))
        width = own.mean.shape[1]
        count, mean, deviation, largest = every.split([1, width, width, width], dim=2)
        total = count.sum(0)
        share = count / total.clamp(min=1)
        middle = (share * mean).sum(0)
        square = (share * (deviation.square() + (mean - middle).square())).sum(0)
        found = middle, square.sqrt(), largest.amax(0)
        return Background(total, *(each.to(own.mean.dtype) for each in found))

    def ranking(self, what: str, places: Tensor, scores: Tensor, k: int) -> Ranking:
        """Return the k best of all shards; equal ones by shard, then by their own order.

        Args:
            what: Name of the exchange.
            places: [B, K] places of the own best among the own candidates.
            scores: [B, K] their scores, best first, K <= k.
            k: Number of the best of every shard.
        """
        missing = k - scores.shape[1]
        padded = torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
        every = self.side_by_side(what, padded.detach())
        best, source = stable_topk(every, min(k, every.shape[1]))
        own = source - self.place * k
        there = (own >= 0) & (own < scores.shape[1]) & (best > -torch.inf)
        place = torch.full((len(scores), k + 1), best.shape[1], device=scores.device)
        lane = torch.arange(best.shape[1], device=scores.device).expand_as(own)
        place = place.scatter(1, own.where(there, k), lane)[:, : scores.shape[1]]
        places = torch.nn.functional.pad(places, (0, missing))
        return Ranking(places, best, source, place, self)
