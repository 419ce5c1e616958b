"""BM25: the lexical index, a sparse tensor of precomputed scores, one column a term."""

from __future__ import annotations

from dataclasses import dataclass

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
        _check_ids("query_terms", query_terms, "[B, Q]", self.docs.device)
        if weights is not None and weights.shape != query_terms.shape:
            raise InputError(
                f"weights: expected {list(query_terms.shape)}, got {list(weights.shape)}; give one "
                "for each question term"
            )
        if weights is not None and weights.device != self.docs.device:
            raise InputError(
                f"weights: expected on {self.docs.device}, got {weights.device}; move them"
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
        _check_ids("query_terms", query_terms, "[B, Q]", self.docs.device)
        return bm25_topk(self.indptr, self.docs, self.scores, query_terms, k, self.num_docs)

    def to(self, device: torch.device | str) -> BM25:
        """The same index on another device."""
        parts = (self.indptr, self.docs, self.scores, self.idf)
        indptr, docs, scores, idf = (part.to(device) for part in parts)
        return BM25(indptr, docs, scores, idf, self.num_docs)


def _check_ids(name: str, value: Tensor, shape: str, device: torch.device) -> None:
    if value.dtype != torch.int64 or value.dim() != len(shape.split(",")):
        raise InputError(
            f"{name}: expected int64 {shape}, got {value.dtype} {list(value.shape)}; encode the "
            "texts with a vocabulary, padding is -1"
        )
    if value.device != device:
        raise InputError(f"{name}: expected on {device}, got {value.device}; move them")


def _check_build(terms: Tensor, offsets: Tensor, vocab_size: int) -> None:
    _check_ids("terms", terms, "[T]", terms.device)
    _check_ids("offsets", offsets, "[N + 1]", terms.device)
    check_count("vocab_size", vocab_size, 0)
    ends = offsets[[0, -1]].tolist() if len(offsets) else []
    if ends != [0, len(terms)] or bool((offsets.diff() < 0).any()):
        raise InputError(
            f"offsets: expected to rise from 0 to {len(terms)}, got from and to {ends}; give the "
            "running count of terms"
        )
    if terms.numel() and (int(terms.min()) < 0 or int(terms.max()) >= vocab_size):
        raise InputError(
            f"terms: expected numbers in 0..{vocab_size - 1}, got "
            f"{int(terms.min())}..{int(terms.max())}; give the size of their vocabulary"
        )
