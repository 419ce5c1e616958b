"""GraphRAG-style retrieval: communities of the entity graph, their summaries first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from graphmem_torch.evaluation.modes_tree import Encode, quotes, summaries
from graphmem_torch.graph import Graph
from graphmem_torch.ops import topk_cosine
from graphmem_torch.spectral.communities import communities

__all__ = ["CommunityIndex", "build_communities"]

_OPENED = 8  # communities whose atoms are looked at


@dataclass(frozen=True, eq=False)
class CommunityIndex:
    """Atoms by community, and a summary of each.

    Attributes:
        vectors: [N, d] unit rows of the atoms.
        label: [N] int64, the community of each atom.
        summary: [C, d] unit rows.
    """

    vectors: Tensor
    label: Tensor
    summary: Tensor

    def search(self, queries: Tensor) -> Tensor:  # [B, d] -> [B, N] int64
        """Atoms of the communities with the most similar summaries by cosine, then all others."""
        opened = topk_cosine(queries, self.summary, _OPENED)[1]
        inside = (self.label[None, :, None] == opened[:, None, :]).any(2)
        # A cosine is at most 1, so that 4 keeps the two parts apart.
        scores = queries.float() @ self.vectors.float().T + 4.0 * inside
        return scores.argsort(dim=1, descending=True, stable=True)


def build_communities(
    graph: Graph,  # atoms and concepts, usable both ways
    atoms: Tensor,  # [N] nodes of the atoms
    vectors: Tensor,  # [N, d] their unit rows
    texts: Sequence[str],
    encode: Encode,
) -> CommunityIndex:
    """Communities as in Edge et al., "From Local to Global: A Graph RAG Approach" (2024).

    Their graph has entities that a language model names; here it is the engine's concepts with the
    atoms that mention them, cut by Leiden, of which one level is used. A summary is the three atoms
    nearest to the mean of the community, encoded as one text. Atoms without a
    concept are communities of their own.

    Args:
        graph: Concepts and atoms.
        atoms: Which nodes are atoms; only they are ranked.
        vectors: One for each of these.
        texts: The atoms.
        encode: The encoder of `vectors`.
    """
    found = communities(graph, method="leiden").long()
    label = found[atoms].unique(return_inverse=True)[1]
    quoted = summaries(vectors, label)
    return CommunityIndex(vectors, label, encode(quotes(quoted, texts)))
