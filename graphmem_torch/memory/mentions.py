"""Mentions: the edges from turns to the concepts that they, or turns after them, name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, EdgeType
from graphmem_torch.edges import EdgeBlock

__all__ = ["concept_id", "mention_ties", "own_mentions"]

_WINDOW_DECAY = 0.9  # a mention ties its own turn strongest, so that the cap keeps that edge


def concept_id(name: str) -> str:
    """Id of the node of a concept."""
    return f"{CONCEPT}:{name}"


def mention_ties(concepts: Iterable[int], window: Sequence[int]) -> list[tuple[int, int, float]]:
    """Abstraction edges (turn, concept, weight) of a turn's mentions.

    `window` is the turn itself and those before it, the nearest first.
    """
    weight = DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION]
    return [
        (node, concept, weight * _WINDOW_DECAY**distance)
        for concept in concepts
        for distance, node in enumerate(window)
    ]


def own_mentions(edges: EdgeBlock) -> Tensor:  # [E] bool
    """Which edges lead from turns to what they mention themselves.

    The turns before them are tied by less (`mention_ties`).
    """
    whole = torch.tensor(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])  # float32, as it is stored
    return (edges.type == int(EdgeType.ABSTRACTION)) & (edges.weight == whole)
