"""Baselines that a preset is compared with: flat rankings, and three that walk a graph.

A baseline is a decorated function from a task and its questions to scores of the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import ConfigError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import personalized_pagerank
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.paths import discounted, hop_discount

from .task import RetrievalTask

__all__ = [
    "BASELINES",
    "Baseline",
    "add_neighbours",
    "baseline",
    "concept_seeds",
    "contextos_score",
    "fuse",
    "hipporag_score",
    "reciprocal_rank_fusion",
    "segment_traversal",
    "standardise",
]
Baseline = Callable[[RetrievalTask, Sequence[str]], Tensor]

BASELINES: dict[str, Baseline] = {}
"""Baselines by name, in the order of `docs/evaluation.md` 5; `linear` is fitted (`fitting.py`)."""


def baseline(name: str) -> Callable[[Baseline], Baseline]:
    """Register a function as the baseline `name`.

    Raises:
        ConfigError: The name is taken.
    """

    def register(function: Baseline) -> Baseline:
        known = BASELINES.get(name)
        if name == "linear" or (known is not None and known.__module__ != function.__module__):
            raise ConfigError(
                f"baseline: expected a new name, got {name!r}, which is taken; choose another"
            )
        BASELINES[name] = function
        return function

    return register


def standardise(
    scores: Tensor,  # [B, N]
) -> Tensor:  # [B, N], each row of mean 0 and deviation 1; a constant row becomes 0
    """Return z-scores over the candidates of each question."""
    deviation, mean = torch.std_mean(scores.float(), dim=1, keepdim=True, correction=0)
    return (scores - mean) / deviation.clamp(min=1e-9)


def fuse(
    dense: Tensor,  # [B, N] cosine
    lexical: Tensor,  # [B, N] BM25
    weight: float = 0.7,
) -> Tensor:  # [B, N]
    """Return z(dense) + weight * z(lexical)."""
    return standardise(dense) + weight * standardise(lexical)


def reciprocal_rank_fusion(
    *systems: Tensor,  # each [B, N]
    offset: int = 60,
) -> Tensor:  # [B, N]
    """Return the sum of 1 / (offset + rank), ranks from 1 (Cormack, Clarke and Buettcher 2009).

    Candidates with equal scores share the mean of their ranks. All turns without a word of the
    question have BM25 0, and ranking them by place would favour the beginning of the conversation.
    """
    return torch.stack([1.0 / (offset + _mean_ranks(scores)) for scores in systems]).sum(0)


def _mean_ranks(scores: Tensor) -> Tensor:  # [B, N] -> [B, N], 1 = best
    ascending = scores.sort(dim=1).values
    lower = torch.searchsorted(ascending, scores.contiguous(), side="left")
    upper = torch.searchsorted(ascending, scores.contiguous(), side="right")
    return scores.shape[1] - (lower + upper - 1) / 2.0


def add_neighbours(
    scores: Tensor,  # [B, N], candidates in the order of the conversation
    session: Tensor,  # [N] session number of each candidate, -1 = none
    weight: float = 0.25,
) -> Tensor:  # [B, N]
    """Return each candidate's score plus `weight` of those before and after it in its session."""
    same = (session[1:] == session[:-1]) & (session[1:] >= 0)  # [N - 1]
    together = same.to(scores.dtype) * weight
    result = scores.clone()
    result[:, 1:] += together * scores[:, :-1]
    result[:, :-1] += together * scores[:, 1:]
    return result


def concept_seeds(
    similarity: Tensor,  # [B, N] cosine of question and node
    concepts: Tensor,  # [C] node numbers of the concepts
    fan: Tensor,  # [N] number of passages that mention a node
    *,
    named: Tensor | None = None,  # [B, C] bool: the question names the concept
    top: int = 5,
) -> Tensor:  # [B, N], 0 elsewhere
    """Return the weights of the concepts a walk starts from: the most similar, rare ones first.

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
    """Return personalised PageRank from the question's concepts and, faintly, from every passage.

    HippoRAG 2 (arXiv 2502.14802) starts passages with `passage_weight` times their cosine scaled to
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
    """Return hop-discounted similarity around the most similar node (`docs/mathematics.md` 3)."""
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
    """Return 50 * relevance + 10 * PageRank * decay, seeded by the most similar nodes.

    Source: `docs/mathematics.md` 6. `decay` is per hour: 0.90 is ContextOS's factor of episodic
    memories.
    """
    relevance = similarity.clamp(min=0.0)
    best = relevance.topk(min(seeds, relevance.shape[1]), dim=1)
    start = torch.zeros_like(relevance).scatter_(1, best.indices, best.values + 1e-6)
    rank = personalized_pagerank(graph, start, damping=damping).values
    return 50.0 * relevance + 10.0 * rank * decay ** age_hours.to(rank.dtype)


@baseline("bm25")
def _bm25(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by BM25 with stop words and stemming."""
    return task.of_turns(task.candidates(questions).signal("lexical"))


@baseline("dense")
def _dense(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by the cosine of pooled vectors."""
    return task.of_turns(task.candidates(questions).signal("semantic"))


@baseline("rrf")
def _rrf(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by reciprocal rank fusion of the two."""
    found = task.candidates(questions)
    return task.of_turns(reciprocal_rank_fusion(found.signal("semantic"), found.signal("lexical")))


@baseline("fusion")
def _fusion(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by z(dense) + 0.7 z(BM25)."""
    return _fused(task, task.candidates(questions))


@baseline("fusion_neighbours")
def _fusion_neighbours(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by fusion + 0.25 of each neighbouring turn."""
    return add_neighbours(_fused(task, task.candidates(questions)), task.session)


@baseline("interaction")
def _interaction(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by IDF late interaction (`docs/mathematics.md` 8.1)."""
    return task.of_turns(task.candidates(questions).signal("interaction"))


@baseline("ppr")
def _ppr(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by HippoRAG-2-style PageRank over concepts and passages."""
    graph = task.undirected(EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
    similarity = _similarity(task, questions)
    concepts = torch.arange(task.num_atoms, graph.num_nodes)
    passages = torch.arange(graph.num_nodes) < task.num_atoms
    seeds = concept_seeds(
        similarity,
        concepts,
        _mentions(graph, task.num_atoms),
        named=_named(task, questions),
    )
    return task.of_turns(hipporag_score(graph, similarity, passages, seeds))


@baseline("sgrm")
def _sgrm(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by seed and traversal over temporal and similarity edges."""
    graph = task.undirected(EdgeType.TEMPORAL, EdgeType.SIMILARITY)
    similarity = _similarity(task, questions)
    similarity[:, task.num_atoms :] = -torch.inf
    return task.of_turns(segment_traversal(graph, similarity))


@baseline("contextos")
def _contextos(task: RetrievalTask, questions: Sequence[str]) -> Tensor:
    """Score by 50 relevance + 10 PageRank decay."""
    graph = task.undirected()
    return task.of_turns(contextos_score(graph, _similarity(task, questions), task.age_hours))


def _fused(task: RetrievalTask, found: Candidates) -> Tensor:
    return task.of_turns(fuse(found.signal("semantic"), found.signal("lexical")))


def _similarity(task: RetrievalTask, questions: Sequence[str]) -> Tensor:  # [B, N]
    return task.candidates(questions).query.embedding.cpu() @ task.embeddings.T


def _mentions(graph: Graph, num_atoms: int) -> Tensor:  # [N]
    """Return the number of atoms that each node has an edge to."""
    to_atom = graph.target < num_atoms
    return torch.bincount(graph.source[to_atom].long(), minlength=graph.num_nodes).float()


def _named(task: RetrievalTask, questions: Sequence[str]) -> Tensor:  # [B, K] bool
    """Return which concepts a question names, by the extractor of the conversation."""
    number = {name: i for i, name in enumerate(task.concepts)}
    named = torch.zeros(len(questions), len(number), dtype=torch.bool)
    if number:
        for row, names in enumerate(task.extractor.extract(questions)):
            named[row, [number[name] for name in names if name in number]] = True
    return named
