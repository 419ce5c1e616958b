"""BM25: the lexical index, a sparse tensor of precomputed scores, one column a term."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_count, check_range
from graphmem_torch.ops._library import register

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
            k1: How soon repeating a term stops to count.
            b: How much long documents are discounted, in [0, 1].

        Raises:
            InputError: For wrong dtypes, offsets that do not end with T, or a term out of range.
        """
        _check_build(terms, offsets, vocab_size)
        check_range("k1", k1, 0.0)
        check_range("b", b, 0.0, 1.0)
        docs, device = offsets.shape[0] - 1, terms.device
        lengths = offsets.diff()
        doc = torch.repeat_interleave(lengths)
        key = torch.sort(terms * max(1, docs) + doc).values
        key, tf = torch.unique_consecutive(key, return_counts=True)
        term, doc = key // max(1, docs), key % max(1, docs)
        df = torch.bincount(term, minlength=vocab_size)
        idf = torch.log1p((docs - df + 0.5) / (df + 0.5))
        mean = max(1.0, terms.shape[0] / max(1, docs))
        norm = k1 * (1 - b + b * lengths / mean)
        scores = idf[term] * tf * (k1 + 1) / (tf + norm[doc])
        return cls(
            indptr=torch.cat([torch.zeros(1, dtype=torch.int64, device=device), df.cumsum(0)]),
            docs=doc.to(torch.int32),
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
        if query_terms.dim() != 2 or query_terms.dtype != torch.int64:
            raise InputError(
                f"query_terms must be int64 [B, Q]; got {query_terms.dtype} "
                f"{list(query_terms.shape)}. "
                "Pad with -1."
            )
        if weights is not None and weights.shape != query_terms.shape:
            raise InputError(
                f"weights must have shape {list(query_terms.shape)}; got {list(weights.shape)}. "
                "Give one weight for each question term."
            )
        if query_terms.device != self.docs.device:
            raise InputError(
                f"query_terms must be on {self.docs.device} like the index; got "
                f"{query_terms.device}. Move them."
            )
        return _bm25_score(self.indptr, self.docs, self.scores, query_terms, weights, self.num_docs)

    def topk(
        self,
        query_terms: Tensor,  # [B, Q] int64
        k: int,
    ) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
        """The k best scores of each question and their documents."""
        check_count("k", k)
        best = self.score(query_terms).topk(min(k, self.num_docs), dim=1)
        return best.values, best.indices

    def to(self, device: torch.device | str) -> BM25:
        """The same index on another device."""
        return replace(
            self,
            indptr=self.indptr.to(device),
            docs=self.docs.to(device),
            scores=self.scores.to(device),
            idf=self.idf.to(device),
        )


def _score(
    indptr: Tensor,
    docs: Tensor,
    scores: Tensor,
    query_terms: Tensor,
    weights: Tensor | None,
    num_docs: int,
) -> Tensor:
    """Adds the columns of each question's terms into its row."""
    if query_terms.numel() and int(query_terms.max()) >= indptr.shape[0] - 1:
        raise InputError(
            f"query_terms must be below the vocabulary's {indptr.shape[0] - 1}; got "
            f"{int(query_terms.max())}. "
            "Encode questions without growing the vocabulary."
        )
    out = torch.zeros(query_terms.shape[0] * num_docs, device=docs.device)
    question, place = (query_terms >= 0).nonzero(as_tuple=True)
    term = query_terms[question, place]
    count = indptr[term + 1] - indptr[term]
    total = int(count.sum())
    column = torch.repeat_interleave(count, output_size=total)
    entry = (indptr[term] - count.cumsum(0) + count)[column]
    entry += torch.arange(total, device=docs.device)
    value = scores.index_select(0, entry)
    if weights is not None:
        value *= weights[question, place].to(scores.dtype)[column]
    goal = (question * num_docs)[column]
    goal += docs.index_select(0, entry)
    return out.scatter_add_(0, goal, value).view(query_terms.shape[0], num_docs)


def _fake(
    indptr: Tensor,
    docs: Tensor,
    scores: Tensor,
    query_terms: Tensor,
    weights: Tensor | None,
    num_docs: int,
) -> Tensor:
    return scores.new_empty(query_terms.shape[0], num_docs)


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


_bm25_score = register(
    "bm25_score(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, Tensor? weights, "
    "int num_docs)"
    " -> Tensor",
    _score,
    fake=_fake,
)
