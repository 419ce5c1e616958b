"""Baselines that walk a graph: HippoRAG-2-style PageRank, segment traversal, ContextOS."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops import personalized_pagerank
from graphmem_torch.rank.segment import discounted, hop_discount

__all__ = ["concept_seeds", "contextos_score", "hipporag_score", "segment_traversal", "undirected"]


def undirected(graph: Graph) -> Graph:
    """The graph with every edge usable in both directions, by |weight|; parallel edges merge."""
    index = graph.edge_index
    both = torch.cat([index, index.flip(0)], dim=1)
    weight = graph.weight.abs().repeat(2)
    return Graph.from_edges(both, weight, num_nodes=graph.num_nodes)


def concept_seeds(
    similarity: Tensor,  # [B, N] cosine of question and node
    concepts: Tensor,  # [C] node numbers of the concepts
    fan: Tensor,  # [N] number of passages that mention a node
    *,
    named: Tensor | None = None,  # [B, C] bool: the question names the concept
    top: int = 5,
) -> Tensor:  # [B, N], 0 elsewhere
    """Weights of the concepts a walk starts from: the most similar to the question, rare first.

    HippoRAG 2 (arXiv 2502.14802) keeps the 5 best phrases and divides the score of each by the
    number of passages it occurs in. Without an LLM that filters facts, similarity to the question
    selects; concepts that the question names come first, with similarity 1.
    """
    seeds = torch.zeros_like(similarity)
    if len(concepts) == 0:
        return seeds
    score = similarity[:, concepts].clamp(min=0.0)
    order = score if named is None else torch.where(named, score + 2.0, score)
    chosen = order.topk(min(top, len(concepts)), dim=1).indices  # [B, top]
    value = score if named is None else torch.where(named, torch.ones_like(score), score)
    weight = value.gather(1, chosen) / fan[concepts].clamp(min=1.0)[chosen]
    return seeds.scatter_(1, concepts[chosen], weight)


def hipporag_score(
    graph: Graph,  # undirected, N nodes: passages and concepts
    similarity: Tensor,  # [B, N] cosine of question and node
    passages: Tensor,  # [N] bool
    seeds: Tensor,  # [B, N] weights of concepts, as of `concept_seeds`
    *,
    passage_weight: float = 0.05,
    damping: float = 0.5,
) -> Tensor:  # [B, N]
    """Personalised PageRank from the question's concepts and, faintly, from every passage.

    HippoRAG 2 (arXiv 2502.14802): passages start with `passage_weight` times their cosine scaled to
    [0, 1] over the passages; damping 0.5.
    """
    low = similarity.masked_fill(~passages, torch.inf).amin(1, keepdim=True)
    high = similarity.masked_fill(~passages, -torch.inf).amax(1, keepdim=True)
    scaled = ((similarity - low) / (high - low).clamp(min=1e-9)).masked_fill(~passages, 0.0)
    return personalized_pagerank(graph, seeds + passage_weight * scaled, damping=damping).values


def segment_traversal(
    graph: Graph,  # undirected, N nodes
    similarity: Tensor,  # [B, N] cosine; -inf where a node may not be the seed nor a result
    *,
    hops: int = 2,
    discount: float = 0.9,
) -> Tensor:  # [B, N], -inf where the seed does not reach
    """Hop-discounted similarity around the most similar node (`mathematics.md` 3)."""
    seed = similarity.argmax(1, keepdim=True)
    reach = hop_discount(graph, seed, hops=hops, discount=discount).to_dense()
    return discounted(similarity, reach).masked_fill(reach == 0, -torch.inf)


def contextos_score(
    graph: Graph,  # undirected, N nodes
    similarity: Tensor,  # [B, N] cosine
    age_hours: Tensor,  # [N] hours since the last access
    *,
    decay: float = 0.90,
    seeds: int = 5,
    damping: float = 0.85,
) -> Tensor:  # [B, N]
    """50 * relevance + 10 * PageRank * decay (`mathematics.md` 6), seeded by the most similar.

    `decay` is per hour: 0.90 is ContextOS's factor of episodic memories.
    """
    relevance = similarity.clamp(min=0.0)
    best = relevance.topk(min(seeds, relevance.shape[1]), dim=1)
    start = torch.zeros_like(relevance).scatter_(1, best.indices, best.values + 1e-6)
    rank = personalized_pagerank(graph, start, damping=damping).values
    return 50.0 * relevance + 10.0 * rank * decay ** age_hours.to(rank.dtype)
