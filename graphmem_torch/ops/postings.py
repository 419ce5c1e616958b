"""Postings: term counts of the documents of a growing memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.ops.bm25 import BM25, count_terms, first_of, weights_of
from graphmem_torch.ops.growing import GrowingLists
from graphmem_torch.ops.ragged import lower_bounds, ranges, runs

__all__ = ["ListedBM25", "PostingLists", "Postings"]


class PostingLists(NamedTuple):
    """Postings of terms, in lists anywhere in their columns.

    Attributes:
        first: `[V]` int64, place of the first posting of each term.
        df: `[V]` int64, number of postings of each term.
        docs, counts: Columns as for `BM25`, with unused entries between the lists.
    """

    first: Tensor
    df: Tensor
    docs: Tensor
    counts: Tensor

    def compact(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return `indptr`, `docs` and `counts` of `BM25`."""
        with torch.inference_mode(False):  # the result is shared with code outside inference mode
            entry = ranges(self.first, self.df)[1]
            docs, counts = self.docs.index_select(0, entry), self.counts.index_select(0, entry)
            return offsets_of(self.df), docs, counts


class ListedBM25(BM25):
    """Lexical index of a growing memory; reads lists, and compresses them only on demand."""

    def __init__(self, lists: PostingLists, norm: Tensor, idf: Tensor, k1: float = BM25.k1) -> None:
        """Keep the lists without copying them."""
        self.__dict__.update(lists=lists, norm=norm, idf=idf, k1=k1)

    def __getattr__(self, name: str) -> Tensor:
        if name not in ("indptr", "docs", "counts"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        lists: PostingLists = self.__dict__["lists"]
        # Set all three at once, under their names; concurrent threads write equal values.
        self.__dict__.update(zip(("indptr", "docs", "counts"), lists.compact(), strict=True))
        part: Tensor = self.__dict__[name]
        return part

    @property
    def df(self) -> Tensor:  # [V] int64
        """Number of documents with each term, as for `BM25`."""
        lists: PostingLists = self.__dict__["lists"]
        return lists.df

    def weighed(self, norm: Tensor, idf: Tensor) -> ListedBM25:  # [N], [V]
        """Return the same lists with other weights, as for `BM25`."""
        return ListedBM25(self.__dict__["lists"], norm, idf, self.k1)

    def first_documents(self) -> Tensor:  # [V] int32
        """First document of each term, as for `BM25`."""
        lists: PostingLists = self.__dict__["lists"]
        return first_of(lists.docs, lists.first, lists.df > 0)

    def _spans(self, term: Tensor) -> tuple[Tensor, Tensor]:
        lists: PostingLists = self.__dict__["lists"]
        return lists.first.index_select(0, term), lists.df.index_select(0, term)

    @property
    def _columns(self) -> tuple[Tensor, Tensor]:
        lists: PostingLists = self.__dict__["lists"]
        return lists.docs, lists.counts


class Postings:
    """Term counts of documents, which BM25 scores; texts can be added.

    Attributes:
        lengths: `[N]` int64, number of terms of each document.
        listed: Postings as lists after the first addition; None before.
    """

    def __init__(self) -> None:
        """Start without terms and documents."""
        none = torch.empty(0, dtype=torch.int32)
        # Compressed at first; lists after the first addition.
        self._whole = torch.zeros(1, dtype=torch.int64), none, none
        self._lists: GrowingLists | None = None
        self.listed: PostingLists | None = None
        self.lengths = torch.empty(0, dtype=torch.int64)

    @classmethod
    def of(cls, indptr: Tensor, docs: Tensor, counts: Tensor, lengths: Tensor) -> Postings:
        """Start from the postings of a `BM25`."""
        postings = cls()
        postings._whole, postings.lengths = (indptr, docs, counts), lengths
        return postings

    def add(
        self,
        terms: Tensor,  # [T] int64, the term of every occurrence, text after text
        offsets: Tensor,  # [n + 1] int64
        documents: Tensor,  # [n] int32
        *,
        vocab_size: int,
        num_docs: int,
    ) -> None:
        """Add the terms of texts.

        Postings returned earlier do not change. The cost for a few texts is at most the postings of
        their terms.

        Args:
            terms: Term ids below `vocab_size`.
            offsets: `terms[offsets[i]:offsets[i + 1]]` are the terms of text i.
            documents: Document of each text, new or existing.
            vocab_size: New V.
            num_docs: New N.
        """
        term, doc, counts = count_terms(terms, offsets, documents, vocab_size)
        if self._lists is None and not len(self._whole[1]):
            self._whole = offsets_of(torch.bincount(term, minlength=vocab_size)), doc, counts
        else:  # a memory that grows is on the CPU
            self._insert(term.numpy(), doc.numpy(), counts.numpy(), vocab_size)
        lengths = torch.nn.functional.pad(self.lengths, (0, num_docs - len(self.lengths)))
        self.lengths = lengths.index_add(0, documents, offsets.diff())

    def _insert(
        self, term: np.ndarray, doc: np.ndarray, counts: np.ndarray, vocab_size: int
    ) -> None:
        """Insert entries, each (term, document) once, in order."""
        lists = self._as_lists()
        lists.resize(vocab_size)
        begin, size = runs(term)
        named = term[begin]
        held, end = lists.spans(named)
        behind = held == 0
        behind[~behind] = lists.columns["docs"][end[~behind] - 1] < doc[begin[~behind]]
        row = np.repeat(behind, size)
        lists.append(term[row], {"docs": doc[row], "counts": counts[row]})
        if not behind.all():
            _put_among(lists, named[~behind], term[~row], doc[~row], counts[~row])
        self._give_out(lists)

    def _as_lists(self) -> GrowingLists:
        if self._lists is not None:
            return self._lists
        indptr, docs, counts = self._whole
        return GrowingLists.of(indptr.diff(), {"docs": docs, "counts": counts})

    def _give_out(self, lists: GrowingLists) -> None:
        """Use these lists from now on."""
        self._lists = lists
        self._whole = self._whole[0], self._whole[1][:0], self._whole[2][:0]
        self.listed = PostingLists(lists.first.clone(), lists.count.clone(), **lists.tensors)

    def remove(
        self,
        terms: Tensor,  # [T] int64
        offsets: Tensor,  # [n + 1] int64
        documents: Tensor,  # [n] int32
        *,
        kept_terms: Tensor | None,  # [V] int64
        number: Tensor,  # [N] integers
    ) -> None:
        """Remove texts that `add` added, and renumber terms and documents.

        Args:
            terms: Terms of the texts.
            offsets: Offsets as for `add`.
            documents: Documents as for `add`.
            kept_terms: Old numbers of the terms that stay, in their new order; None keeps all.
            number: New number of each document, in any order; -1 for documents without texts.
        """
        lists = self._as_lists().copy()  # lists that were returned are not overwritten
        counted = count_terms(terms, offsets, documents, len(lists))
        term, doc, taken = (each.numpy() for each in counted)
        column = lists.columns
        held, end = lists.spans(term)
        column["counts"][lower_bounds(end - held, end, column["docs"], doc)] -= taken
        named = np.unique(term)
        lists.keep(named, column["counts"][lists.entries(named)[1]] > 0)
        if kept_terms is not None:
            lists.take(kept_terms.numpy())
        new = number.to(torch.int32).numpy()
        if not np.array_equal(new, np.arange(len(new))):
            # Unused entries are renumbered too, to any valid number.
            column["docs"][:] = new.take(column["docs"], mode="clip")
            if (np.diff(new[new >= 0]) < 0).any():
                lists = _in_order(lists)
        lengths = self.lengths.index_add(0, documents.long(), -offsets.diff())
        kept = (number >= 0).nonzero().squeeze(1)
        self.lengths = torch.empty_like(lengths[kept]).index_copy_(
            0, number[kept].long(), lengths[kept]
        )
        self._give_out(lists)

    def weighed(self, *, k1: float = BM25.k1, b: float = 0.75) -> BM25:
        """Return the lexical index of these counts; arguments as for `BM25.build`.

        Takes time in proportion to documents and terms; scores are computed later.
        """
        listed = self.listed
        df = self._whole[0].diff() if listed is None else listed.df
        norm, idf = weights_of(df, self.lengths, k1, b)
        if listed is None:
            return BM25(*self._whole, norm=norm, idf=idf, k1=k1)
        return ListedBM25(listed, norm, idf, k1)


def _in_order(lists: GrowingLists) -> GrowingLists:
    """Return the lists with ascending documents."""
    count, column = lists.compact()
    row = torch.arange(len(count)).repeat_interleave(count)
    order = ((row << 32) + column["docs"]).argsort()
    return GrowingLists.of(count, {name: each[order] for name, each in column.items()})


def _put_among(
    lists: GrowingLists,
    named: np.ndarray,  # [l] int64, ascending
    term: np.ndarray,  # [n] int64, each one of `named`
    doc: np.ndarray,  # [n] int32
    counts: np.ndarray,  # [n] int32
) -> None:
    """Insert entries into lists of terms that continue after them, in the order of documents."""
    place, entry = lists.entries(named)
    place = np.concatenate([place, named.searchsorted(term)])
    doc = np.concatenate([lists.columns["docs"][entry], doc])
    counts = np.concatenate([lists.columns["counts"][entry], counts])
    key = (place << 32) + doc
    order = key.argsort(kind="stable")
    begin, _ = runs(key[order])
    fresh = order[begin]
    sums = np.add.reduceat(counts[order], begin, dtype=np.int32)
    number = np.bincount(place[fresh], minlength=len(named))
    lists.replace(named, number, {"docs": doc[fresh], "counts": sums})
