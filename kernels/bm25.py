"""Triton kernels of BM25: scores of documents, and which of them have a term.

Scores add the postings of each question's terms, one term after another. A program owns some
documents of one question and is the only one that writes to them. It therefore needs no atomics,
and its sums have the same bits on every run.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_add_postings", "launch_holds"]

_BLOCK = 1024  # postings that a program adds at once
_PROGRAMS = 4224  # of 128 threads: twice what the largest cards hold at once
_LEAST = 4096  # minimum number of documents of a program
_ROWS = 256  # documents that a program looks up at once


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


@triton.jit
def _holds_kernel(
    out, indptr, docs, terms, rows, width, count, LISTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[b, q, c] = 1 if term q of question b has a posting of row c, else 0."""
    entry = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    row = at
    if LISTED:
        row = tl.load(rows + entry // width * count + at, mask=inside, other=-1).to(tl.int32)
    term = tl.load(terms + entry)
    end = tl.load(indptr + tl.maximum(term, 0) + 1)
    begin = tl.where(term >= 0, tl.load(indptr + tl.maximum(term, 0)), end)
    low = tl.where(inside & (row >= 0), begin, end)
    high = tl.zeros_like(low) + end
    while tl.max((low < high).to(tl.int32), axis=0) > 0:
        open = low < high
        middle = (low + high) // 2
        below = tl.load(docs + middle, mask=open, other=0) < row
        low = tl.where(open & below, middle + 1, low)
        high = tl.where(open & (below == 0), middle, high)
    found = low < end
    doc = tl.load(docs + low, mask=found, other=-1)
    tl.store(out + entry * count + at, (found & (doc == row)).to(tl.float32), mask=inside)


def launch_holds(
    out: Tensor,  # [B, Q, C] float32, contiguous, overwritten
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32, ascending inside a term
    query_terms: Tensor,  # [B, Q] int64 below V, negative for none
    rows: Tensor | None,  # [B, C] int64, negative for none; None: every document
    block: int = _ROWS,
) -> None:
    """Write which rows have which terms, by bisection; never waits for the device."""
    count = out.shape[2]
    if not out.numel():
        return
    if not docs.numel():
        out.zero_()
        return
    terms = query_terms.contiguous()
    _holds_kernel[(terms.numel(), triton.cdiv(count, block))](
        out, indptr.contiguous(), docs.contiguous(), terms,
        docs if rows is None else rows.contiguous(),
        terms.shape[1], count, LISTED=rows is not None, BLOCK=block,
    )  # fmt: skip
