"""BM25: the lexical index, a sparse tensor of term counts, one column a term.

A question adds up the scores in the columns of its terms, the *postings*, each a run of consecutive
entries. The score of an entry depends on all documents, so a new index holds counts only. A few
questions compute the scores of their own postings; many questions compute all scores once.

On a CPU, a long run is added in place as a tile of its own. Short runs are gathered in blocks that
fit the cache, which saves calls for a few more passes. Temporaries take 28 bytes for each posting
of a block, 4 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_entries, check_range, check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import import_kernels, register
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.ragged import blocks, ranges, row_entries
from graphmem_torch.ops.tiles import empty_best, merge_tile

__all__ = [
    "BM25",
    "count_terms",
    "first_of",
    "held_postings",
    "score_postings",
    "score_squares_postings",
    "topk_postings",
    "weights_of",
]

_LONG = 1024  # minimum postings of a run that is worth a call
_POSTINGS = 1 << 17  # postings read together: 0.5 MB in each temporary
_SCORES = 1 << 20  # dense scores held by a top-k: 4 MB
_CUDA = 64  # factor by which a GPU takes more at a time
_FEW = 8  # maximum number of questions that score only their own postings
_SPARSE = 4  # scores for each posting from which reading the postings is cheaper
_K1 = 1.2
_ENCODE = "encode the texts with a vocabulary, padding is -1"


@dataclass(frozen=True, eq=False)
class BM25:
    """Term counts of documents and their scores, ordered by term.

    Robertson and Zaragoza 2009 with Lucene's idf: ln(1 + (n - df + 1/2) / (df + 1/2)), which is
    never negative; tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length)).

    Attributes:
        indptr: `[V + 1]` int64; term v has entries `indptr[v]:indptr[v + 1]`.
        docs: `[nnz]` int32, ascending inside a term.
        counts: `[nnz]` int32, tf.
        norm: `[N]` float32, k1 (1 - b + b length / mean length).
        idf: `[V]` float32.
        k1: Saturation of the term count; repetitions count more if it is larger.
    """

    indptr: Tensor
    docs: Tensor
    counts: Tensor
    norm: Tensor
    idf: Tensor
    k1: float = _K1

    @classmethod
    def build(
        cls,
        terms: Tensor,  # [T] int64, the term of every occurrence, document after document
        offsets: Tensor,  # [N + 1] int64
        vocab_size: int,
        *,
        k1: float = _K1,
        b: float = 0.75,
    ) -> BM25:
        """Count the terms of documents.

        Args:
            terms: Term ids in 0..vocab_size - 1.
            offsets: `terms[offsets[i]:offsets[i + 1]]` are the terms of document i.
            vocab_size: V.
            k1: Saturation of the term count, in [0, 1e6].
            b: Discount of long documents, in [0, 1].

        Raises:
            InputError: A dtype or device is wrong, the offsets do not end with T, or a constant or
                term is out of range.
        """
        _check_build(terms, offsets, vocab_size)
        documents = torch.arange(len(offsets) - 1, dtype=torch.int32, device=terms.device)
        term, docs, counts = count_terms(terms, offsets, documents, vocab_size)
        df = torch.bincount(term, minlength=vocab_size)
        return cls(offsets_of(df), docs, counts, *weights_of(df, offsets.diff(), k1, b), k1)

    @property
    def num_docs(self) -> int:
        """Number of documents N."""
        return self.norm.shape[0]

    @property
    def scores(self) -> Tensor:  # [nnz] float32
        """Score that each entry adds to its document; computed at first access."""
        known: Tensor | None = self.__dict__.get("_scores")
        if known is None:
            idf = self.idf.repeat_interleave(self.indptr.diff(), output_size=self.docs.shape[0])
            known = self._weighed(self.docs, self.counts, idf)
            self.__dict__["_scores"] = known
        return known

    def _weighed(self, docs: Tensor, counts: Tensor, idf: Tensor) -> Tensor:  # [n] each
        """Return the scores of postings, given the idf of their terms."""
        most = self.norm.index_select(0, docs).add_(counts)
        return counts.float().mul_(self.k1 + 1).div_(most).mul_(idf)

    def score(self, query_terms: Tensor) -> Tensor:  # [B, Q] int64 -> [B, N]
        """Return the score of every document for every question; repeated terms count repeatedly.

        Args:
            query_terms: Terms of each question, -1 for padding and for unknown words.

        Raises:
            InputError: A shape, dtype or device does not fit, or a term is not in the index.
        """
        if not self._reads_few(query_terms):
            return _score(self.indptr, self.docs, self.scores, query_terms, self.num_docs)
        return self._score_few(query_terms)[0]

    def score_sums(
        self, query_terms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # [B, N], [B] float64, [B] float64
        """Return `score`, and the sum of each question's scores and of their squares.

        With s_t the score that term t adds to a document and s their sum, the squares add up to
        sum_t s_t s over the postings. A CPU reads these if they are few, and else the scores.

        Raises:
            InputError: See `score`.
        """
        if not self._reads_few(query_terms):
            parts = self.indptr, self.docs, self.scores
            out, squares = _score_squares(*parts, query_terms, self.num_docs)
            known = self.term_sums.index_select(0, query_terms.flatten().clamp(min=0))
            known = known.view(query_terms.shape).where(query_terms >= 0, 0.0)
            return out, known.sum(1), squares
        out, question, entry, score = self._score_few(query_terms)
        none = torch.zeros(len(out), dtype=torch.float64)
        sums = none.index_add(0, question, score.double())
        if _SPARSE * len(entry) > out.numel():
            return out, sums, _row_squares(out)
        own = score * out.view(-1).index_select(0, entry)
        return out, sums, none.index_add(0, question, own.double())

    @property
    def term_sums(self) -> Tensor:  # [V] float64
        """Sum of the scores of each term's postings; computed at first access."""
        known: Tensor | None = self.__dict__.get("_sums")
        if known is None:
            ends = torch.nn.functional.pad(self.scores.double().cumsum(0), (1, 0))
            known = ends.index_select(0, self.indptr.long()).diff()
            self.__dict__["_sums"] = known
        return known

    def _score_few(
        self, query_terms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # [B, N], [T], [T], [T]
        """Return the scores of few questions, and question, entry and score of each posting."""
        (questions, width), docs = query_terms.shape, self.num_docs
        place, _, run, doc, score = self._postings_of(query_terms)
        asks = torch.tensor([i // width for i in place], dtype=torch.int64)
        question = asks.index_select(0, run)
        entry = (asks * docs).index_select(0, run).add_(doc)
        out = score.new_zeros(questions * docs)
        out.index_add_(0, entry, score)
        return out.view(questions, docs), question, entry, score

    def topk(
        self,
        query_terms: Tensor,  # [B, Q] int64
        k: int,
    ) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
        """Return the k best scores of each question, descending, and their documents.

        Documents without any of the terms have score 0 and come last, in no particular order. The
        whole [B, N] is never held: memory is 4 MB, or one row if that is larger.

        Raises:
            InputError: See `score`, or k is below 1.
        """
        check_count("k", k)
        return _topk(*self._asked(query_terms), k, self.num_docs)

    def holds(
        self,
        query_terms: Tensor,  # [B, Q] int64
        rows: Tensor | None = None,  # [B, C] int64, -1 for padding
    ) -> Tensor:  # [B, Q, N] or [B, Q, C] float32
        """Return 1 where a document has a term of a question, else 0; padding has 0.

        Args:
            query_terms: Terms of each question, as for `score`.
            rows: Documents of each question; all when omitted.

        Raises:
            InputError: See `score`.
        """
        indptr, docs, _, asked = self._asked(query_terms)
        return _holds(indptr, docs, asked, rows, self.num_docs)

    def _asked(self, query_terms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the index and the questions; for few questions, the index of their terms only."""
        if not self._reads_few(query_terms):
            return self.indptr, self.docs, self.scores, query_terms
        place, df, _, docs, scores = self._postings_of(query_terms)
        asked = torch.full((query_terms.numel(),), -1)
        asked[place] = torch.arange(len(place))
        return offsets_of(df), docs, scores, asked.view(query_terms.shape)

    def _reads_few(self, query_terms: Tensor) -> bool:
        """Return whether the questions read too little to score all postings."""
        device = self.norm.device
        check_tensor("query_terms", query_terms, "int64", ("B", "Q"), _ENCODE, device=device)
        few = query_terms.shape[0] <= _FEW and device.type == "cpu"
        return few and "_scores" not in self.__dict__ and not shapes_are_fixed()

    def _postings_of(
        self, query_terms: Tensor
    ) -> tuple[list[int], Tensor, Tensor, Tensor, Tensor]:  # n places, [n], [T], [T], [T]
        """Return the places of terms in the questions, their posting counts, and these postings.

        A posting is the index of its term among the places, its document and its score.
        """
        flat = query_terms.flatten().tolist()
        place = [i for i, term in enumerate(flat) if term >= 0]
        if place:
            _check_terms(max(flat), len(self.idf))
        term = torch.tensor([flat[i] for i in place], dtype=torch.int64)
        first, df = self._spans(term)
        run, entry = ranges(first, df)
        docs, counts = (column.index_select(0, entry) for column in self._columns)
        idf = self.idf.index_select(0, term).index_select(0, run)
        return place, df, run, docs, self._weighed(docs, counts, idf)

    def first_documents(self) -> Tensor:  # [V] int32
        """First document of each term; -1 for terms without documents."""
        held = self.indptr[1:] > self.indptr[:-1]
        return first_of(self.docs, self.indptr[:-1], held)

    def _spans(self, term: Tensor) -> tuple[Tensor, Tensor]:  # [n] int64 -> [n], [n] int64
        """Return first place in `_columns` and number of the postings of each term."""
        first = self.indptr.index_select(0, term)
        return first, self.indptr.index_select(0, term + 1) - first

    @property
    def _columns(self) -> tuple[Tensor, Tensor]:
        """Return documents and counts of all postings."""
        return self.docs, self.counts

    @property
    def df(self) -> Tensor:  # [V] int64
        """Number of documents with each term."""
        return self.indptr.diff()

    @property
    def lengths(self) -> Tensor:  # [N] int64
        """Number of terms of each document; reads all postings."""
        none = torch.zeros(self.num_docs, dtype=torch.int64, device=self.docs.device)
        return none.index_add_(0, self.docs.long(), self.counts.long())

    def knowing(self, scores: Tensor, sums: Tensor) -> BM25:  # [nnz], [V] float64
        """Return the same index with known `scores` and `term_sums`."""
        other = BM25(self.indptr, self.docs, self.counts, self.norm, self.idf, self.k1)
        other.__dict__.update(_scores=scores, _sums=sums)
        return other

    def weighed(self, norm: Tensor, idf: Tensor) -> BM25:  # [N], [V]
        """Return the same postings with other weights, as those of a larger collection."""
        return BM25(self.indptr, self.docs, self.counts, norm, idf, self.k1)

    def to(self, device: torch.device | str) -> BM25:
        """Return the same index on another device."""
        parts = (self.indptr, self.docs, self.counts, self.norm, self.idf)
        indptr, docs, counts, norm, idf = (part.to(device) for part in parts)
        return BM25(indptr, docs, counts, norm, idf, self.k1)


def first_of(docs: Tensor, start: Tensor, held: Tensor) -> Tensor:  # [V] int32
    """Return the first document of each list, or -1 for an empty list."""
    first = docs.new_full(start.shape, -1)
    first[held] = docs[start[held]]
    return first


def count_terms(
    terms: Tensor,  # [T] int64
    offsets: Tensor,  # [n + 1] int64
    documents: Tensor,  # [n] int32
    vocab_size: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [m] int64, [m] int32, [m] int32
    """Count each term of each document, in order; arguments as for `Postings.add`."""
    doc = documents.repeat_interleave(offsets.diff(), output_size=terms.shape[0])
    key, counts = torch.unique((terms << 32) + doc, return_counts=True)
    return key >> 32, (key & 0xFFFFFFFF).to(torch.int32), counts.to(torch.int32)


def weights_of(
    df: Tensor,  # [V] int64
    lengths: Tensor,  # [N] int64
    k1: float,
    b: float,
    *,
    whole: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # [N], [V] float32
    """Return `norm` and `idf` of `BM25` from document frequencies and lengths; see `build`.

    Args:
        df: Number of documents with each term.
        lengths: Number of terms of each document.
        k1: Saturation of the term count.
        b: Discount of long documents.
        whole: Number of documents and of their terms, if these are a part of a collection to which
            `df` belongs.
    """
    check_range("k1", k1, 0.0, 1e6)
    check_range("b", b, 0.0, 1.0)
    docs, total = (len(lengths), int(lengths.sum())) if whole is None else whole
    idf = (docs + 0.5 - df).div_(df + 0.5).log1p_()
    mean = max(1.0, total / max(1, docs))
    norm = (lengths * float(b)).div_(mean).add_(1 - b).mul_(k1)
    return norm.to(torch.float32), idf.to(torch.float32)


def _check_terms(most: int, size: int) -> None:
    """Raise `InputError` for a term outside the vocabulary."""
    if most >= size:
        raise InputError(
            f"query_terms: expected terms below the vocabulary's {size}, got {most}; encode "
            "questions without growing the vocabulary"
        )


def _check_build(terms: Tensor, offsets: Tensor, vocab_size: int) -> None:
    check_tensor("terms", terms, "int64", ("T",), _ENCODE)
    do = "give the running count of terms"
    check_tensor("offsets", offsets, "int64", ("N + 1",), do, device=terms.device)
    check_count("vocab_size", vocab_size, 0)
    ends = offsets[[0, -1]].tolist() if len(offsets) else []
    if ends != [0, len(terms)] or bool((offsets.diff() < 0).any()):
        raise InputError(
            f"offsets: expected to ascend from 0 to {len(terms)}, got others with ends {ends}; {do}"
        )
    check_entries("terms", terms, 0, vocab_size - 1, "give the size of their vocabulary")


def score_postings(
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32
    scores: Tensor,  # [nnz]
    query_terms: Tensor,  # [B, Q] int64, negative for none
    num_docs: int,
    *,
    long: int = _LONG,
    together: int = _POSTINGS,
) -> Tensor:  # [B, N]
    """`graphmem::bm25_score`: sum of a document's scores over the terms of each question.

    A CPU adds runs of at least `long` postings in place, and reads about `together` postings of
    shorter runs at once. A GPU adds all runs in place (`kernels/bm25.py`).
    """
    out = scores.new_zeros(query_terms.shape[0], num_docs)
    _add_postings(out, indptr, docs, scores, query_terms, long, together)
    return out


def score_squares_postings(
    indptr: Tensor,
    docs: Tensor,
    scores: Tensor,
    query_terms: Tensor,
    num_docs: int,
    *,
    long: int = _LONG,
    together: int = _POSTINGS,
    sparse: int = _SPARSE,
) -> tuple[Tensor, Tensor]:  # [B, N], [B] float64
    """`graphmem::bm25_score_squares`: `score_postings` and the sum of each row's squares.

    A CPU reads the postings again, if they are less than one in `sparse` of the scores; else, and
    on a GPU, the squares are those of the rows.
    """
    out = score_postings(indptr, docs, scores, query_terms, num_docs, long=long, together=together)
    if docs.is_cuda or not out.numel():
        return out, _row_squares(out)
    runs = _runs(indptr, query_terms, long)
    if sparse * runs.total > out.numel():
        return out, _row_squares(out)
    rows, squares = out.unbind(), torch.zeros(len(out), dtype=torch.float64)
    parts = [
        (scores[first:last] * rows[r].index_select(0, docs[first:last])).sum()
        for r, first, last in runs.long
    ]
    if parts:
        place = torch.tensor([r for r, _, _ in runs.long])
        squares.index_add_(0, place, torch.stack(parts).double())
    for row, goal, score in _short_postings(runs, docs, scores, num_docs, together):
        own = score * out.view(-1).index_select(0, goal)
        squares.index_add_(0, row, own.double())
    return out, squares


def _row_squares(out: Tensor) -> Tensor:  # [B, N] -> [B] float64
    return torch.linalg.vector_norm(out, dim=1).double().square()


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
    """`graphmem::bm25_topk`: the k largest of `score_postings`, at most `held` scores at a time."""
    device = docs.device
    values, indices = empty_best(query_terms.shape[0], min(k, num_docs), device)
    questions = max(1, held * (_CUDA if docs.is_cuda else 1) // max(1, num_docs))
    dense = scores.new_empty(min(questions, query_terms.shape[0]), num_docs)
    for first in range(0, query_terms.shape[0], questions):
        part = slice(first, first + questions)
        own = query_terms[part]
        out = dense[: len(own)].zero_()
        _add_postings(out, indptr, docs, scores, own, long, together)
        merge_tile(values[part], indices[part], out, 0, finite=True)
    return values, indices


def held_postings(
    indptr: Tensor,
    docs: Tensor,
    query_terms: Tensor,
    rows: Tensor | None,
    num_docs: int,
) -> Tensor:  # [B, Q, num_docs] or [B, Q, C] float32
    """`graphmem::bm25_holds`: looks up each row among the postings of each term."""
    flat = query_terms.flatten()
    if flat.numel() and not shapes_are_fixed():
        _check_terms(int(flat.max()), indptr.shape[0] - 1)
    if docs.is_cuda:
        out = _holds_fake(indptr, docs, query_terms, rows, num_docs)
        import_kernels("bm25").launch_holds(out, indptr, docs, query_terms, rows)
        return out
    place = (flat >= 0).nonzero().squeeze(1)
    own, entry = row_entries(indptr, flat[place])
    key = place[own] * num_docs + docs[entry]  # ascending
    if rows is None:
        out = torch.zeros(len(flat), num_docs, dtype=torch.float32, device=docs.device)
        out.view(-1)[key] = 1.0
        return out.view(*query_terms.shape, num_docs)
    first = torch.arange(len(flat), device=docs.device).view(query_terms.shape) * num_docs
    wanted = first[:, :, None] + rows[:, None]
    if not len(key):
        return torch.zeros(wanted.shape, dtype=torch.float32, device=docs.device)
    found = key[torch.searchsorted(key, wanted).clamp_(max=len(key) - 1)] == wanted
    return found.logical_and_(rows[:, None] >= 0).float()


def _add_postings(
    out: Tensor,  # [B, N], contiguous
    indptr: Tensor,  # [V + 1] int64
    docs: Tensor,  # [nnz] int32
    scores: Tensor,  # [nnz]
    query_terms: Tensor,  # [B, Q] int64, negative for none
    long: int,
    together: int,
) -> None:
    flat = query_terms.flatten()
    if flat.numel() and not shapes_are_fixed():
        _check_terms(int(flat.max()), indptr.shape[0] - 1)
    if docs.is_cuda:
        import_kernels("bm25").launch_add_postings(out, indptr, docs, scores, query_terms)
        return
    runs, rows = _runs(indptr, query_terms, long), out.unbind()
    for r, first, last in runs.long:
        rows[r].index_add_(0, docs[first:last], scores[first:last])
    sums = out.view(-1)
    for _, goal, score in _short_postings(runs, docs, scores, out.shape[1], together):
        sums.index_add_(0, goal, score)


class _Runs(NamedTuple):
    """Runs of the postings of the terms of some questions.

    Attributes:
        long: Question, begin and end of each long run.
        row, start, length: [R] each, question, begin and length of the short runs.
        total: Postings of all runs.
    """

    long: list[list[int]]
    row: Tensor
    start: Tensor
    length: Tensor
    total: int


def _runs(indptr: Tensor, query_terms: Tensor, long: int) -> _Runs:
    flat = query_terms.flatten()
    place = (flat >= 0).nonzero().squeeze(1)
    term = flat[place]
    start, stop = indptr[term], indptr[term + 1]
    row = torch.div(place, max(1, query_terms.shape[1]), rounding_mode="floor")
    own = stop - start >= long
    listed = torch.stack([row, start, stop])[:, own].T.tolist()
    count = stop - start
    return _Runs(listed, row[~own], start[~own], count[~own], int(count.sum()))


def _short_postings(
    runs: _Runs, docs: Tensor, scores: Tensor, num_docs: int, together: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:  # [T] each
    """Yield question, entry of [B, N] and score of the postings of short runs, in blocks."""
    last = int(runs.row[-1]) + 1 if len(runs.row) else 0
    kind = torch.int32 if last * num_docs < 1 << 31 else torch.int64
    base = (runs.row * num_docs).to(kind)
    for part, total in blocks(runs.length, together):
        run, entry = ranges(runs.start[part], runs.length[part], total=total)
        goal = base[part].index_select(0, run)
        goal += docs.index_select(0, entry)
        yield runs.row[part].index_select(0, run), goal, scores.index_select(0, entry)


def _score_fake(*inputs: Any) -> Tensor:
    return inputs[2].new_empty(inputs[3].shape[0], inputs[4])


def _score_squares_fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    out = _score_fake(*inputs)
    return out, out.new_empty(out.shape[0], dtype=torch.float64)


def _topk_fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    shape = (inputs[3].shape[0], min(inputs[4:]))
    return inputs[2].new_empty(shape), inputs[0].new_empty(shape)


def _holds_fake(*inputs: Any) -> Tensor:
    documents = inputs[4] if inputs[3] is None else inputs[3].shape[1]
    return inputs[0].new_empty(*inputs[2].shape, documents, dtype=torch.float32)


_score = register(
    "bm25_score(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, int num_docs)"
    " -> Tensor",
    score_postings,
    fake=_score_fake,
)
_score_squares = register(
    "bm25_score_squares(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, "
    "int num_docs) -> (Tensor, Tensor)",
    score_squares_postings,
    fake=_score_squares_fake,
)
_topk = register(
    "bm25_topk(Tensor indptr, Tensor docs, Tensor scores, Tensor query_terms, int k, int num_docs) "
    "-> (Tensor, Tensor)",
    topk_postings,
    fake=_topk_fake,
)
_holds = register(
    "bm25_holds(Tensor indptr, Tensor docs, Tensor query_terms, Tensor? rows, int num_docs) "
    "-> Tensor",
    held_postings,
    fake=_holds_fake,
)
