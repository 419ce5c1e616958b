"""The sums behind BM25: a sparse product of questions with term-major postings, and its top k.

The postings of a question's terms are runs of consecutive entries. On a CPU a long run is a tile of
its own, added where it lies. Short runs are gathered in blocks that fit the cache: a few passes a
posting, but none of the cost of a call. Temporaries take 28 bytes a posting of a block, 4 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.running_topk import empty_best, merge_tile

__all__ = ["bm25_score", "bm25_topk", "score_postings", "topk_postings"]

_LONG = 1024  # postings from which a run is worth a call
_POSTINGS = 1 << 17  # postings that are read together: 0.5 MB in each temporary
_SCORES = 1 << 20  # dense scores that a top-k keeps: 4 MB
_CUDA = 64  # a GPU takes this much more at a time


def score_postings(
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32
    scores: Tensor,  # [nnz]
    query_terms: Tensor,  # [B, Q] int64, negative for none
    weights: Tensor | None,  # [B, Q]
    num_docs: int,
    *,
    long: int = _LONG,
    together: int = _POSTINGS,
) -> Tensor:  # [B, N]
    """`graphmem::bm25_score`: the sum of a document's scores over the terms of each question.

    Args:
        indptr: Where the postings of each term begin.
        docs: Document of each posting.
        scores: Score of each posting.
        query_terms: Terms of each question.
        weights: Weight of each term; ones when omitted.
        num_docs: N.
        long: Postings from which a CPU adds a run where it lies.
        together: Postings that a CPU reads together; a GPU more.
    """
    out = scores.new_zeros(query_terms.shape[0], num_docs)
    _add_postings(out, indptr, docs, scores, query_terms, weights, long, together)
    return out


def topk_postings(
    indptr: Tensor,
    docs: Tensor,
    scores: Tensor,
    query_terms: Tensor,
    k: int,
    num_docs: int,
    *,
    held: int = _SCORES,
    long: int = _LONG,
    together: int = _POSTINGS,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """`graphmem::bm25_topk`: the k largest of `score_postings`, of `held` scores at a time."""
    device = docs.device
    values, indices = empty_best(query_terms.shape[0], min(k, num_docs), device)
    questions = max(1, held * (_CUDA if docs.is_cuda else 1) // max(1, num_docs))
    dense = scores.new_empty(min(questions, query_terms.shape[0]), num_docs)
    for first in range(0, query_terms.shape[0], questions):
        part = slice(first, first + questions)
        own = query_terms[part]
        out = dense[: len(own)].zero_()
        _add_postings(out, indptr, docs, scores, own, None, long, together)
        merge_tile(values[part], indices[part], out, 0)
    return values, indices


def _add_postings(
    out: Tensor,  # [B, N], contiguous
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32
    scores: Tensor,  # [nnz]
    query_terms: Tensor,  # [B, Q] int64, negative for none
    weights: Tensor | None,  # [B, Q]
    long: int,
    together: int,
) -> None:
    flat = query_terms.flatten()
    if flat.numel() and int(flat.max()) >= indptr.shape[0] - 1:
        raise InputError(
            f"query_terms: expected terms below the vocabulary's {indptr.shape[0] - 1}, got "
            f"{int(flat.max())}; encode questions without growing the vocabulary"
        )
    place = (flat >= 0).nonzero().squeeze(1)
    term = flat[place]
    start, stop = indptr[term], indptr[term + 1]
    row = torch.div(place, max(1, query_terms.shape[1]), rounding_mode="floor")
    weight = scores.new_ones(len(place)) if weights is None else weights.flatten()[place]
    weight = weight.to(scores.dtype)
    if not docs.is_cuda:
        own, rows = stop - start >= long, out.unbind()
        lists = (part[own].tolist() for part in (row, start, stop, weight))
        for r, first, last, factor in zip(*lists, strict=True):
            rows[r].index_add_(0, docs[first:last], scores[first:last], alpha=factor)
        row, start, stop, weight = row[~own], start[~own], stop[~own], weight[~own]
    base = (row * out.shape[1]).to(torch.int32 if out.numel() < 1 << 31 else torch.int64)
    sums, count = out.view(-1), stop - start
    for runs, total in _blocks(count, together * (_CUDA if docs.is_cuda else 1)):
        run, entry = ranges(start[runs], count[runs], total=total)
        value = scores.index_select(0, entry)
        value *= weight[runs].index_select(0, run)
        goal = base[runs].index_select(0, run)
        goal += docs.index_select(0, entry)
        sums.index_add_(0, goal, value)


def _blocks(count: Tensor, budget: int) -> Iterator[tuple[slice, int]]:
    """Cuts runs into blocks of about `budget` postings, one run at least; no empty block."""
    if not len(count):
        return
    ends = count.cumsum(0)
    block = torch.div((ends - 1).clamp(min=0), budget, rounding_mode="floor")
    last = torch.nn.functional.pad(block.diff() > 0, (0, 1), value=True).nonzero().squeeze(1)
    begin = before = 0
    for stop, end in zip((last + 1).tolist(), ends[last].tolist(), strict=True):
        if end > before:
            yield slice(begin, stop), end - before
        begin, before = stop, end


def _score_fake(*inputs: Any) -> Tensor:
    return inputs[2].new_empty(inputs[3].shape[0], inputs[5])


def _topk_fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    shape = (inputs[3].shape[0], min(inputs[4:]))
    return inputs[2].new_empty(shape), inputs[0].new_empty(shape)


bm25_score = register(
    "bm25_score(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, Tensor? weights, "
    "int num_docs) -> Tensor",
    score_postings,
    fake=_score_fake,
)
bm25_topk = register(
    "bm25_topk(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, int k, int num_docs) "
    "-> (Tensor, Tensor)",
    topk_postings,
    fake=_topk_fake,
)
