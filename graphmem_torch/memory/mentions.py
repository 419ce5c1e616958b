"""Mentions: the edges from turns to the concepts that they, or later turns, name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, EdgeType
from graphmem_torch.config import LinkConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.text.embedder import Embedder, rescaled

__all__ = [
    "NAME_COSINE",
    "NameCosines",
    "concept_id",
    "mention_ties",
    "name_cosines",
    "own_mentions",
]

NAME_COSINE = 0.92
"""Minimum cosine of two names of the same concept, if all their parts agree, as in SYNAPSE."""


class NameCosines(NamedTuple):
    """Minimum cosines of the names of two concepts.

    Attributes:
        same: From which names of the same parts are one concept.
        associated: From which concepts of one atom get an association edge.
    """

    same: float
    associated: float


def name_cosines(link: LinkConfig, names: Embedder) -> NameCosines:
    """Return the thresholds for cosines of an encoder of names."""
    return NameCosines(rescaled(NAME_COSINE, names), rescaled(link.min_similarity, names))


_WINDOW_DECAY = 0.9  # the turn that mentions a concept ties strongest, so the cap keeps that edge


def concept_id(name: str) -> str:
    """Return the id of a concept's node."""
    return f"{CONCEPT}:{name}"


def mention_ties(concepts: Iterable[int], window: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return the abstraction edges (turn, concept, weight) of a turn's mentions.

    `window` is the turn itself and the turns before it, the nearest first.
    """
    weight = DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION]
    return [
        (node, concept, weight * _WINDOW_DECAY**distance)
        for concept in concepts
        for distance, node in enumerate(window)
    ]


def own_mentions(edges: EdgeBlock) -> Tensor:  # [E] bool
    """Return a mask of the edges from turns to concepts that they mention themselves.

    Edges from earlier turns of the window have less weight (`mention_ties`).
    """
    whole = torch.tensor(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])  # float32, as it is stored
    return (edges.type == int(EdgeType.ABSTRACTION)) & (edges.weight == whole)
