"""RAPTOR-style retrieval: a tree of clusters with extractive summaries, searched collapsed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops import IVF, topk_cosine
from graphmem_torch.ops.ragged import segment_topk
from graphmem_torch.spectral.community import communities

__all__ = [
    "CommunityIndex",
    "Encode",
    "Tree",
    "build_communities",
    "build_tree",
    "first_mentions",
    "quotes",
    "summaries",
]
Encode = Callable[[Sequence[str]], Tensor]
"""Function from texts to unit rows [n, d]."""

_CHILDREN = 7  # mean children of a node: 6.7 in the paper
_SHOWN = 3  # leaves that a summary quotes
_ITERATIONS = 10  # iterations of k-means
_LEVELS = 12  # maximum levels; the first has 7^-12 of the leaves, which is never reached


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes of all levels, concatenated, leaves first.

    Attributes:
        vectors: [M, d] unit rows: a leaf's own, or those of a node's summary.
        shown: [M, 3] int64 leaves that a node shows, -1 = padding; a leaf shows itself.
        leaves: Number of leaves, N.
    """

    vectors: Tensor
    shown: Tensor
    leaves: int

    def search(self, queries: Tensor) -> Tensor:  # [B, d] -> [B, N] int64, -1 = padding
        """Return the leaves in the order of the most similar nodes of the collapsed tree."""
        order = topk_cosine(queries, self.vectors, len(self.vectors))[1]
        return first_mentions(self.shown[order].flatten(1), self.leaves)


def build_tree(
    vectors: Tensor,  # [N, d] unit rows of the leaves
    texts: Sequence[str],
    encode: Encode,
    *,
    seed: int = 0,
) -> Tree:
    """Build the tree of Sarthi et al., "RAPTOR" (2024), without a language model.

    The nodes of a level are clustered, and summaries of the clusters are the nodes of the next
    level, until one cluster would hold them all. A summary is the three leaves nearest to the mean
    of its leaves, in order, encoded as one text, where the paper's model writes one. k-means
    replaces the paper's Gaussian mixture after UMAP.

    Args:
        vectors: Vectors of the leaves.
        texts: Texts of the leaves.
        encode: Encoder of `vectors`.
        seed: Seed of k-means.
    """
    level, shown = [vectors], [_alone(len(vectors))]
    label = torch.arange(len(vectors))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_LEVELS):
        count = math.ceil(len(level[-1]) / _CHILDREN)
        if count < 2:
            break
        index = IVF.build(level[-1], count, iterations=_ITERATIONS, generator=generator)
        parent = torch.empty(len(index), dtype=torch.int64)
        parent[index.ids] = torch.repeat_interleave(index.offsets.diff())
        label = parent[label].unique(return_inverse=True)[1]
        quoted = summaries(vectors, label)
        if len(quoted) >= len(level[-1]):
            break
        level.append(encode(quotes(quoted, texts)))
        shown.append(quoted)
    return Tree(torch.cat(level), torch.cat(shown), len(vectors))


def summaries(
    vectors: Tensor,  # [N, d] unit rows
    label: Tensor,  # [N] int64, dense from 0
) -> Tensor:  # [C, 3] int64, ascending, -1 = padding
    """Return the three rows of each cluster that are nearest to its mean, in their order."""
    size = torch.bincount(label)
    mean = torch.zeros(len(size), vectors.shape[1]).index_add_(0, label, vectors.float())
    axis = torch.nn.functional.normalize(mean, dim=1)
    nearest = segment_topk((vectors.float() * axis[label]).sum(1), label, size, _SHOWN)
    last = len(vectors)
    ordered = nearest.masked_fill(nearest < 0, last).sort(dim=1).values
    return ordered.masked_fill(ordered == last, -1)


def first_mentions(shown: Tensor, count: int) -> Tensor:  # [B, K] -> [B, count] int64
    """Return numbers below `count` in order of first mention, padded with -1."""
    width = shown.shape[1]
    position = torch.full((len(shown), count + 1), width, dtype=torch.int64)
    where = torch.arange(width).expand_as(shown)
    position.scatter_reduce_(1, shown.masked_fill(shown < 0, count), where, "amin")
    place, order = position[:, :count].sort(dim=1, stable=True)
    return order.masked_fill(place == width, -1)


def quotes(quoted: Tensor, texts: Sequence[str]) -> list[str]:  # [C, 3]
    """Return the text of each summary: the rows it quotes, one a line."""
    return ["\n".join(texts[i] for i in row if i >= 0) for row in quoted.tolist()]


def _alone(count: int) -> Tensor:  # [count, 3]
    own = torch.arange(count)[:, None]
    return torch.cat([own, torch.full((count, _SHOWN - 1), -1)], dim=1)


_OPENED = 8  # communities whose atoms are ranked


@dataclass(frozen=True, eq=False)
class CommunityIndex:
    """Atoms by community, and a summary of each community.

    Attributes:
        vectors: [N, d] unit rows of the atoms.
        label: [N] int64, the community of each atom.
        summary: [C, d] unit rows.
    """

    vectors: Tensor
    label: Tensor
    summary: Tensor

    def search(self, queries: Tensor) -> Tensor:  # [B, d] -> [B, N] int64
        """Return the atoms of the communities with the most similar summaries, then the others."""
        opened = topk_cosine(queries, self.summary, _OPENED)[1]
        inside = (self.label[None, :, None] == opened[:, None, :]).any(2)
        # A cosine is at most 1, so that 4 separates the two parts.
        scores = queries.float() @ self.vectors.float().T + 4.0 * inside
        return scores.argsort(dim=1, descending=True, stable=True)


def build_communities(
    graph: Graph,  # atoms and concepts, usable both ways
    atoms: Tensor,  # [N] nodes of the atoms
    vectors: Tensor,  # [N, d] their unit rows
    texts: Sequence[str],
    encode: Encode,
) -> CommunityIndex:
    """Build communities as in Edge et al., "From Local to Global: A Graph RAG Approach" (2024).

    Their graph has entities that a language model names. Here it is the engine's concepts with the
    atoms that mention them, partitioned by one level of Leiden. A summary is the three atoms
    nearest to the mean of the community, encoded as one text. Atoms without a concept are
    communities of their own.

    Args:
        graph: Graph of concepts and atoms.
        atoms: Nodes that are atoms; only they are ranked.
        vectors: Vectors of these atoms.
        texts: Texts of these atoms.
        encode: Encoder of `vectors`.
    """
    found = communities(graph, method="leiden").long()
    label = found[atoms].unique(return_inverse=True)[1]
    quoted = summaries(vectors, label)
    return CommunityIndex(vectors, label, encode(quotes(quoted, texts)))
