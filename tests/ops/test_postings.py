"""Postings that are added to and taken from, against a lexical index of the same documents."""

from __future__ import annotations

import copy

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.postings import Postings

Texts = list[tuple[int, list[int]]]  # document, terms
TEXTS = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 6), max_size=6)))


def packed(texts: Texts) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.tensor([t for _, terms in texts for t in terms], dtype=torch.int64),
        torch.tensor([0, *np.cumsum([len(terms) for _, terms in texts])], dtype=torch.int64),
        torch.tensor([document for document, _ in texts], dtype=torch.int32),
    )


def index_of(documents: list[list[int]], vocab: int = 7) -> BM25:
    terms, offsets, _ = packed(list(enumerate(documents)))
    return BM25.build(terms, offsets, vocab, k1=0.9, b=0.4)


def assert_same(index: BM25, expected: BM25) -> None:
    vocab = len(expected.idf)
    query = torch.tensor([[*range(vocab)], [-1] * vocab], dtype=torch.int64)
    few = copy.copy(index)  # before all are weighed, as a question on a CPU has it
    assert torch.allclose(few.score(query), expected.score(query))
    for name in ("indptr", "docs", "counts", "norm", "idf", "scores"):
        assert torch.equal(getattr(index, name), getattr(expected, name)), name


@given(st.lists(TEXTS))
def test_texts_added_by_and_by_are_those_of_whole_documents(parts: list[Texts]) -> None:
    """Texts of new and of old documents, in any order; earlier indexes stay as they are."""
    postings, before = Postings(), []
    documents: list[list[int]] = []
    for texts in parts:
        count = max([len(documents), *(document + 1 for document, _ in texts)])
        documents += [[] for _ in range(count - len(documents))]
        for document, terms in texts:
            documents[document] = documents[document] + terms
        postings.add(*packed(texts), vocab_size=7, num_docs=count)
        before.append((postings.weighed(k1=0.9, b=0.4), index_of(documents)))
    for index, expected in before:
        assert_same(index, expected)


@given(TEXTS, TEXTS, st.data())
def test_what_is_left_when_texts_are_taken_out_is_that_of_the_rest(
    first: Texts, then: Texts, data: st.DataObject
) -> None:
    """Documents and terms are numbered anew, in an order of their own; and it can be added to."""
    postings, texts = Postings(), [*first, *then]
    for part in (first, then):
        postings.add(*packed(part), vocab_size=7, num_docs=6)
    goes = [data.draw(st.booleans()) for _ in texts]
    gone = [text for text, out in zip(texts, goes, strict=True) if out]
    kept = [text for text, out in zip(texts, goes, strict=True) if not out]
    terms = data.draw(st.permutations(sorted({t for _, own in kept for t in own})))
    there = data.draw(st.permutations(sorted({document for document, _ in kept})))
    number = torch.full((6,), -1)
    number[torch.tensor(there, dtype=torch.int64)] = torch.arange(len(there))
    before = postings.weighed()
    was = before.indptr.clone(), before.docs.clone(), before.counts.clone()
    postings.remove(*packed(gone), kept_terms=torch.tensor(terms, dtype=torch.int64), number=number)
    new_term = {term: place for place, term in enumerate(terms)}
    documents: list[list[int]] = [[] for _ in there]
    for document, own in kept:
        documents[there.index(document)] += [new_term[term] for term in own]
    assert_same(postings.weighed(k1=0.9, b=0.4), index_of(documents, len(terms)))
    postings.add(
        *packed([(len(there), [0, 0])]), vocab_size=len(terms) + 1, num_docs=len(there) + 1
    )
    expected = index_of([*documents, [0, 0]], len(terms) + 1)
    assert_same(postings.weighed(k1=0.9, b=0.4), expected)
    assert all(map(torch.equal, was, (before.indptr, before.docs, before.counts)))
