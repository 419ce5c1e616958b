"""The baselines by name. Each is a function: an arena and its questions to scores of the turns.

To add one, write such a function and decorate it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.graph import Graph
from graphmem_torch.rank.scope import Scope

from .arena import Arena
from .baselines import (
    add_neighbours,
    concept_seeds,
    contextos_score,
    fuse,
    hipporag_score,
    reciprocal_rank_fusion,
    segment_traversal,
)

__all__ = ["BASELINES", "Baseline", "baseline"]
Baseline = Callable[[Arena, Sequence[str]], Tensor]

BASELINES: dict[str, Baseline] = {}
"""By name, in the order of `docs/evaluation.md` 5; `linear` is fitted and lives in `fitting.py`."""


def baseline(name: str) -> Callable[[Baseline], Baseline]:
    """Register a function as the baseline `name`."""

    def register(function: Baseline) -> Baseline:
        BASELINES[name] = function
        return function

    return register


@baseline("bm25")
def _bm25(arena: Arena, questions: Sequence[str]) -> Tensor:
    """BM25, stop words and stemming."""
    return arena.of_turns(arena.scope(questions).memo("lexical"))


@baseline("dense")
def _dense(arena: Arena, questions: Sequence[str]) -> Tensor:
    """Cosine of pooled vectors."""
    return arena.of_turns(arena.scope(questions).memo("semantic"))


@baseline("rrf")
def _rrf(arena: Arena, questions: Sequence[str]) -> Tensor:
    """Reciprocal rank fusion of the two."""
    scope = arena.scope(questions)
    return arena.of_turns(reciprocal_rank_fusion(scope.memo("semantic"), scope.memo("lexical")))


@baseline("fusion")
def _fusion(arena: Arena, questions: Sequence[str]) -> Tensor:
    """z(dense) + 0.7 z(BM25)."""
    return _fused(arena, arena.scope(questions))


@baseline("fusion_neighbours")
def _fusion_neighbours(arena: Arena, questions: Sequence[str]) -> Tensor:
    """The same + 0.25 of each neighbouring turn."""
    return add_neighbours(_fused(arena, arena.scope(questions)), arena.session)


@baseline("interaction")
def _interaction(arena: Arena, questions: Sequence[str]) -> Tensor:
    """IDF late interaction (`docs/mathematics.md` 8.1)."""
    return arena.of_turns(arena.scope(questions).memo("interaction"))


@baseline("ppr")
def _ppr(arena: Arena, questions: Sequence[str]) -> Tensor:
    """HippoRAG-2-style PageRank over concepts and passages."""
    graph = arena.undirected(EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
    similarity = _similarity(arena, questions)
    concepts = torch.arange(arena.num_atoms, graph.num_nodes)
    passages = torch.arange(graph.num_nodes) < arena.num_atoms
    seeds = concept_seeds(
        similarity,
        concepts,
        _mentions(graph, arena.num_atoms),
        named=_named(arena, questions),
    )
    return arena.of_turns(hipporag_score(graph, similarity, passages, seeds))


@baseline("sgrm")
def _sgrm(arena: Arena, questions: Sequence[str]) -> Tensor:
    """Seed and traversal over temporal and similarity edges."""
    graph = arena.undirected(EdgeType.TEMPORAL, EdgeType.SIMILARITY)
    similarity = _similarity(arena, questions)
    similarity[:, arena.num_atoms :] = -torch.inf
    return arena.of_turns(segment_traversal(graph, similarity))


@baseline("contextos")
def _contextos(arena: Arena, questions: Sequence[str]) -> Tensor:
    """50 relevance + 10 PageRank decay."""
    graph = arena.undirected()
    return arena.of_turns(contextos_score(graph, _similarity(arena, questions), arena.age_hours))


def _fused(arena: Arena, scope: Scope) -> Tensor:
    return arena.of_turns(fuse(scope.memo("semantic"), scope.memo("lexical")))


def _similarity(arena: Arena, questions: Sequence[str]) -> Tensor:  # [B, N]
    return arena.scope(questions).query.embedding.cpu() @ arena.embeddings.T


def _mentions(graph: Graph, num_atoms: int) -> Tensor:  # [N]
    """How many atoms each node has an edge to."""
    to_atom = graph.target < num_atoms
    return torch.bincount(graph.source[to_atom].long(), minlength=graph.num_nodes).float()


def _named(arena: Arena, questions: Sequence[str]) -> Tensor:  # [B, K] bool
    """Which concepts a question names, by the extractor that found them in the conversation."""
    number = {name: i for i, name in enumerate(arena.concepts)}
    named = torch.zeros(len(questions), len(number), dtype=torch.bool)
    if number:
        for row, names in enumerate(arena.extractor.extract(questions)):
            named[row, [number[name] for name in names if name in number]] = True
    return named
