"""Reached: results of the graph for a batch of questions, which signals read."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.hops import HopPairs

__all__ = ["Reached"]


@dataclass(frozen=True, eq=False)
class Reached:
    """Results of the graph for B questions; None for each that no signal reads.

    Attributes:
        anchors: [B, K] int64 rows of the anchors, -1 = none.
        value: [B, K] initial activation of the anchors.
        relevance: [B, K] in [0, 1], relevance of each anchor to its question.
        start: [B, N] initial activation; None also if a matrix replaces it.
        activation: [B, A] activation after the last round, dense if a gradient flows through it.
        gate: [B, A] activation as it spreads for the gate; None if it is the same.
        walk: [B, A] personalised PageRank from the anchors.
        traversal: [B, A] discount^hops from the seeds of a traversal.
        title_hop, entity_hop: [B, A] values by mentions of titles and by shared entities, dense in
            a compiled graph.
        heights: [B, K] base scores of the anchors of all shards, infinite for none; None in a
            memory of one store, whose anchors are candidates.
        named: [B] in [0, 1], share of the question that names a document.
        base: Names of the base signals and their weights [forms, F], which chose the anchors.
        lifts: Lifts by a hop from each anchor, as pairs, or [B, K, A] in a compiled graph.
    """

    anchors: Tensor | None = None
    value: Tensor | None = None
    relevance: Tensor | None = None
    start: SparseRows | None = None
    activation: SparseRows | Tensor | None = None
    gate: SparseRows | Tensor | None = None
    walk: SparseRows | Tensor | None = None
    traversal: SparseRows | Tensor | None = None
    title_hop: SparseRows | Tensor | None = None
    entity_hop: SparseRows | Tensor | None = None
    heights: Tensor | None = None
    named: Tensor | None = None
    base: tuple[tuple[str, ...], Tensor] | None = None
    lifts: HopPairs | Tensor | None = None
