"""BM25: the lexical index, a sparse tensor of precomputed scores, one column a term."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.bm25_scores import bm25_score, bm25_topk

__all__ = ["BM25"]


@dataclass(frozen=True, eq=False)
class BM25:
    """What each term adds to the score of each document that has it (term-major, compressed).

    Robertson and Zaragoza 2009 with Lucene's idf: ln(1 + (n - df + 1/2) / (df + 1/2)), which is
    never negative; tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length)). A question only adds
    up columns.

    Attributes:
        indptr: `[V + 1]` int64; term v has entries `indptr[v]:indptr[v + 1]`.
        docs: `[nnz]` int32, ascending inside a term.
        scores: `[nnz]` float32.
        idf: `[V]` float32.
        num_docs: N.
    """

    indptr: Tensor
    docs: Tensor
    scores: Tensor
    idf: Tensor
    num_docs: int

    @classmethod
    def build(
        cls,
        terms: Tensor,  # [T] int64, the term of every occurrence, document after document
        offsets: Tensor,  # [N + 1] int64
        vocab_size: int,
        *,
        k1: float = 1.2,
        b: float = 0.75,
    ) -> BM25:
        """Counts and scores.

        Args:
            terms: Term ids in 0..vocab_size - 1.
            offsets: Document i has `terms[offsets[i]:offsets[i + 1]]`.
            vocab_size: V.
            k1: How soon repeating a term stops to count, in [0, 1e6].
            b: How much long documents are discounted, in [0, 1].

        Raises:
            InputError: For wrong dtypes or devices, offsets that do not end with T, constants or
                terms out of range.
        """
        _check_build(terms, offsets, vocab_size)
        check_range("k1", k1, 0.0, 1e6)
        check_range("b", b, 0.0, 1.0)
        docs, device = offsets.shape[0] - 1, terms.device
        lengths = offsets.diff()
        # Documents come in order, so a stable sort by term alone sorts by document too.
        small = terms.to(torch.int32) if vocab_size < 1 << 31 else terms
        ordered = torch.sort(small, stable=True)
        doc = torch.arange(docs, dtype=torch.int32, device=device)
        doc = doc.repeat_interleave(lengths, output_size=terms.shape[0])
        doc = doc.index_select(0, ordered.indices)  # several times as fast as [] on a CPU
        begins = torch.ones_like(doc, dtype=torch.bool)
        begins[1:] = (ordered.values[1:] != ordered.values[:-1]) | (doc[1:] != doc[:-1])
        first = begins.nonzero().squeeze(1)
        tf = torch.diff(first, append=first.new_tensor([terms.shape[0]]))
        doc = doc.index_select(0, first)
        df = torch.bincount(ordered.values.index_select(0, first), minlength=vocab_size)
        idf = torch.log1p((docs - df + 0.5) / (df + 0.5))
        mean = max(1.0, terms.shape[0] / max(1, docs))
        norm = k1 * (1 - b + b * lengths / mean)
        scores = tf * (k1 + 1) / (tf + norm.index_select(0, doc))
        scores *= idf.repeat_interleave(df, output_size=len(doc))
        return cls(
            indptr=offsets_of(df),
            docs=doc,
            scores=scores.to(torch.float32),
            idf=idf.to(torch.float32),
            num_docs=docs,
        )

    def score(
        self,
        query_terms: Tensor,  # [B, Q] int64, -1 for padding and for unknown words
        weights: Tensor | None = None,  # [B, Q]
    ) -> Tensor:  # [B, N]
        """The score of every document for every question; a term that comes twice counts twice.

        Raises:
            InputError: For shapes, dtypes or devices that do not fit, or a term that is not in the
                index.
        """
        self._check_questions(query_terms)
        if weights is not None and weights.shape != query_terms.shape:
            raise InputError(
                f"weights must have shape {list(query_terms.shape)}; got {list(weights.shape)}. "
                "Give one weight for each question term."
            )
        if weights is not None and weights.device != self.docs.device:
            raise InputError(
                f"weights must be on {self.docs.device} like the index; got {weights.device}. "
                "Move them."
            )
        return bm25_score(self.indptr, self.docs, self.scores, query_terms, weights, self.num_docs)

    def topk(
        self,
        query_terms: Tensor,  # [B, Q] int64
        k: int,
    ) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
        """The k best scores of each question, descending, and their documents.

        Documents without any of the terms have score 0 and come last, in no particular order.
        Scores [B, N] are never held at once: memory is 4 MB, or one row where that is larger.

        Raises:
            InputError: As `score` does, or if k is below 1.
        """
        check_count("k", k)
        self._check_questions(query_terms)
        return bm25_topk(self.indptr, self.docs, self.scores, query_terms, k, self.num_docs)

    def to(self, device: torch.device | str) -> BM25:
        """The same index on another device."""
        return replace(
            self,
            indptr=self.indptr.to(device),
            docs=self.docs.to(device),
            scores=self.scores.to(device),
            idf=self.idf.to(device),
        )

    def _check_questions(self, query_terms: Tensor) -> None:
        if query_terms.dim() != 2 or query_terms.dtype != torch.int64:
            raise InputError(
                f"query_terms must be int64 [B, Q]; got {query_terms.dtype} "
                f"{list(query_terms.shape)}. "
                "Pad with -1."
            )
        if query_terms.device != self.docs.device:
            raise InputError(
                f"query_terms must be on {self.docs.device} like the index; got "
                f"{query_terms.device}. Move them."
            )


def _check_build(terms: Tensor, offsets: Tensor, vocab_size: int) -> None:
    if terms.dtype != torch.int64 or terms.dim() != 1:
        raise InputError(
            f"terms must be int64 [T]; got {terms.dtype} {list(terms.shape)}. Encode them with a "
            "vocabulary."
        )
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or offsets.shape[0] < 1:
        raise InputError(
            f"offsets must be int64 [N + 1]; got {offsets.dtype} {list(offsets.shape)}."
        )
    if offsets.device != terms.device:
        raise InputError(
            f"offsets must be on {terms.device} like the terms; got {offsets.device}. Move them."
        )
    check_count("vocab_size", vocab_size, 0)
    if (
        int(offsets[-1]) != terms.shape[0]
        or int(offsets[0]) != 0
        or bool((offsets.diff() < 0).any())
    ):
        raise InputError(
            f"offsets must rise from 0 to {terms.shape[0]}; got {int(offsets[0])} to "
            f"{int(offsets[-1])}."
            " Give the running count of terms."
        )
    if terms.numel() and (int(terms.min()) < 0 or int(terms.max()) >= vocab_size):
        raise InputError(
            f"terms must be in 0..{vocab_size - 1}; got {int(terms.min())}..{int(terms.max())}. "
            "Give the size of the vocabulary that encoded them."
        )
