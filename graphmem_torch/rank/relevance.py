"""Relevance: whether memories have anything to do with a question, independent of their scores.

A score ranks memories of one question, and much of it may come from speaker and length. Relevance
means the same for every question and every memory. `docs/mathematics.md` 6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.query import QueryBatch

__all__ = ["cosine", "relevance", "word_share"]


def relevance(
    memory: MemoryTensors,
    query: QueryBatch,
    rows: Tensor,  # [B, k] int64, -1 = none
) -> Tensor:  # [B, k] float32 in [0, 1]
    """Return the larger of the cosine and the share of words.

    The cosine is measured above that of unrelated texts, relative to the possible maximum. The
    share is the part of the question's idf whose terms an atom has. A turn after a question may
    answer it, so it is at least as relevant as that question. 0 for no atom.

    Args:
        memory: A atoms.
        query: B questions.
        rows: Atoms of each question.
    """
    if not memory.num_atoms:
        return torch.zeros(rows.shape, device=rows.device)
    pointers, second = memory.turns
    before = pointers.take(rows + second[1])
    asks = memory.is_question[before.clamp(min=0)] > 0
    before = before.masked_fill(~asks, -1)
    both = torch.cat([rows, before], dim=1)
    found = _alike(memory, query, both.clamp(min=0)).masked_fill(both < 0, 0.0)
    return found.view(len(rows), 2, -1).amax(1)


def cosine(memory: MemoryTensors, query: QueryBatch, rows: Tensor) -> Tensor:  # [B, n] each
    """Return cosines of questions and atoms above unrelated texts, relative to the rest."""
    vectors = memory.embeddings[rows].to(query.embedding.dtype)
    found = torch.bmm(vectors, query.embedding.detach()[:, :, None]).squeeze(2)
    if query.background is None:
        return found
    return (found - query.background[:, None]) / (1.0 - query.background[:, None])


def word_share(
    memory: MemoryTensors,
    query: QueryBatch,
    rows: Tensor,  # [B, k] int64, -1 = none
) -> Tensor:  # [B] float32 in [0, 1]
    """Return the largest share of a question's idf that one of the atoms has.

    A term that no atom of the memory has counts as a term of a single atom. 0 for a question
    without terms.
    """
    if query.terms is None or 0 in rows.shape:
        return torch.zeros(len(rows), device=rows.device)
    held, total = _words(memory, query, rows.clamp(min=0))
    if query.missing is not None:
        total = total + query.missing[:, None] * memory.rarest
    share = held / total.clamp(min=1e-9)
    return share.masked_fill(rows < 0, 0.0).amax(1).clamp(0.0, 1.0)


def _words(
    memory: MemoryTensors, query: QueryBatch, rows: Tensor
) -> tuple[Tensor, Tensor]:  # [B, n], [B, 1]
    """Return the idf of the question's terms in each atom, and of all that the memory has."""
    assert query.terms is not None
    idf = torch.nn.functional.pad(memory.bm25.idf.float(), (0, 1))[query.terms]  # padding: the last
    has = memory.bm25.holds(query.terms.contiguous(), rows)
    return (has * idf[:, :, None]).sum(1), idf.sum(1, keepdim=True)


def _alike(memory: MemoryTensors, query: QueryBatch, rows: Tensor) -> Tensor:  # [B, n] each
    found = cosine(memory, query, rows)
    if query.terms is None or not query.terms.shape[1]:
        return found.clamp(0.0, 1.0)
    held, total = _words(memory, query, rows)
    if query.foreign is not None:
        total = total + query.foreign[:, None]
    words = held / total.clamp(min=1e-9)
    return torch.maximum(found, words.to(found)).clamp(0.0, 1.0)
