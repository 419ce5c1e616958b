"""Triton kernel of BM25: adds the postings of each question's terms, one term after another.

A program owns some documents of one question and is the only one that writes to them. It therefore
needs no atomics, and its sums have the same bits on every run.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_add_postings"]

_BLOCK = 1024  # postings that a program adds at once
_PROGRAMS = 4224  # of 128 threads: twice what the largest cards hold at once
_LEAST = 4096  # minimum number of documents of a program


@triton.jit
def _first_from(docs, low, high, document):
    """First of the ascending postings `low` to `high` whose document is not below `document`."""
    while low < high:
        middle = (low + high) // 2
        below = tl.load(docs + middle) < document
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    return low


@triton.jit
def _add_postings_kernel(
    out, indptr, docs, scores, terms, width, num_docs, own, shares, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[b, docs[i]] += scores[i] for every posting i of every term of question b."""
    question = tl.program_id(0) // shares
    start = tl.program_id(0) % shares * own
    row = out + question.to(tl.int64) * num_docs
    for nth in range(0, width):
        term = tl.load(terms + question * width + nth)
        if term >= 0:
            last = tl.load(indptr + term + 1)
            first = _first_from(docs, tl.load(indptr + term), last, start)
            last = _first_from(docs, first, last, start + own)
            for begin in range(first, last, BLOCK):
                at = begin + tl.arange(0, BLOCK)
                live = at < last
                doc = row + tl.load(docs + at, mask=live, other=0)
                score = tl.load(scores + at, mask=live, other=0.0)
                tl.store(doc, tl.load(doc, mask=live, other=0.0) + score, mask=live)
            # All threads must see this term's sums before any of them adds the next term.
            tl.debug_barrier()


def launch_add_postings(
    out: Tensor,  # [B, N] contiguous, added to
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32, ascending inside a term
    scores: Tensor,  # [nnz]
    query_terms: Tensor,  # [B, Q] int64 below V, negative for none
    block: int = _BLOCK,
    least: int = _LEAST,
) -> None:
    """Add the postings of the terms of each question to its row; never waits for the device."""
    questions, width = query_terms.shape
    documents = out.shape[1]
    if questions == 0 or documents == 0 or docs.numel() == 0:
        return
    indptr, docs, scores = (part.contiguous() for part in (indptr, docs, scores))
    wanted = min(triton.cdiv(_PROGRAMS, questions), triton.cdiv(documents, least))
    own = triton.cdiv(documents, wanted)
    shares = triton.cdiv(documents, own)
    _add_postings_kernel[(questions * shares,)](
        out, indptr, docs, scores, query_terms.contiguous(),
        width, documents, own, shares, BLOCK=block,
    )  # fmt: skip
