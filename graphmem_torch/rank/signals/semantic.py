"""Pooled-vector similarity."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._tile_scores import FEW, tile_scores
from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__: list[str] = []


@signal("semantic")
def _semantic(scope: Scope) -> Tensor:
    """Cosine of question and atom."""
    embeddings, query = scope.index.embeddings, scope.query.embedding
    if scope.rows is None:
        if len(query) <= FEW and not query.is_cuda:
            return tile_scores(query, embeddings, query.new_empty(len(query) * len(embeddings)))
        return query @ embeddings.float().T
    rows = embeddings[scope.rows.clamp(min=0)].float()
    return torch.bmm(rows, query[:, :, None]).squeeze(2)


@signal("semantic_positive")
def _semantic_positive(scope: Scope) -> Tensor:
    """max(cosine, 0), SYNAPSE's semantic term."""
    return torch.clamp(scope.memo("semantic"), min=0.0)


@signal("semantic_previous")
def _previous(scope: Scope) -> Tensor:
    """Cosine of question and the turn before."""
    return scope.step(scope.memo("semantic"), -1)
