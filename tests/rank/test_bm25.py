"""BM25 against the formula in plain Python."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.rank.bm25 import BM25

DOCUMENTS = st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=12)
QUERIES = st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), max_size=5)


def _index(documents: list[list[int]], vocab: int = 7, **constants: float) -> BM25:
    flat = torch.tensor([t for d in documents for t in d], dtype=torch.int64)
    offsets = torch.tensor([0, *np.cumsum([len(d) for d in documents])], dtype=torch.int64)
    return BM25.build(flat, offsets, vocab, **constants)


def _plain(
    documents: list[list[int]], query: list[int], weights: list[float], k1: float, b: float
) -> list[float]:
    n = len(documents)
    mean = max(1.0, sum(map(len, documents)) / n) if n else 1.0
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term, weight in zip(query, weights, strict=True):
            if term >= 0 and counts[term]:
                df = sum(term in d for d in documents)
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
                norm = k1 * (1 - b + b * len(document) / mean)
                score += weight * idf * counts[term] * (k1 + 1) / (counts[term] + norm)
        scores.append(score)
    return scores


@settings(deadline=None)
@given(DOCUMENTS, QUERIES, st.sampled_from([(1.2, 0.75), (0.9, 0.4), (0.0, 0.0), (2.0, 1.0)]))
def test_scores_match_the_formula(documents, queries, constants):
    k1, b = constants
    index = _index(documents, k1=k1, b=b)
    query = torch.tensor(queries, dtype=torch.int64).reshape(-1, 3)
    weights = torch.linspace(0.5, 2.0, query.numel()).reshape(query.shape)
    plain = [_plain(documents, q, [1.0] * 3, k1, b) for q in queries]
    expected = np.array(plain).reshape(len(queries), len(documents))
    np.testing.assert_allclose(index.score(query).numpy(), expected, rtol=1e-5, atol=1e-6)
    plain = [_plain(documents, q, w, k1, b) for q, w in zip(queries, weights.tolist(), strict=True)]
    expected = np.array(plain).reshape(len(queries), len(documents))
    np.testing.assert_allclose(index.score(query, weights).numpy(), expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(DOCUMENTS)
def test_the_index_is_compressed_by_term(documents):
    index = _index(documents)
    listed = index.docs.split(index.indptr.diff().tolist())
    for term, docs in enumerate(listed):
        assert docs.tolist() == [i for i, d in enumerate(documents) if term in d]
    assert (index.scores >= 0).all()
    assert index.num_docs == len(documents)


def test_topk_is_ordered_and_no_longer_than_the_store():
    index = _index([[0], [0, 1], [1, 1]])
    values, docs = index.topk(torch.tensor([[1, -1], [0, 1]]), 10)
    assert docs[0].tolist() == [2, 1, 0]
    assert docs[1, 0] == 1
    assert (values.diff(dim=1) <= 0).all()
    assert values.shape == (2, 3)


def test_a_term_that_comes_twice_counts_twice():
    index = _index([[0], [0, 1]])
    once, twice = index.score(torch.tensor([[1, -1], [1, 1]]))
    torch.testing.assert_close(twice, 2 * once)


def test_nothing_to_search():
    assert _index([]).score(torch.tensor([[0, 1]])).shape == (1, 0)
    assert _index([[], []]).score(torch.tensor([[0, 1]])).tolist() == [[0.0, 0.0]]
    assert _index([[1]]).score(torch.empty(0, 2, dtype=torch.int64)).shape == (0, 1)


def test_opcheck():
    index = _index([[0], [0, 1]])
    query = torch.tensor([[1, -1], [1, 0]])
    arguments = (index.indptr, index.docs, index.scores, query, torch.ones(2, 2), 2)
    torch.library.opcheck(torch.ops.graphmem.bm25_score.default, arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": torch.tensor([0, 7])}, r"terms must be in 0\.\.6; got 0\.\.7"),
        ({"terms": torch.tensor([0, -1])}, r"terms must be in 0\.\.6"),
        ({"terms": torch.zeros(2)}, "terms must be int64"),
        ({"offsets": torch.tensor([0, 1])}, "offsets must rise from 0 to 2"),
        ({"offsets": torch.tensor([0, 2, 1, 2])}, "offsets must rise"),
        ({"k1": -1.0}, "k1 must be in"),
        ({"b": 1.5}, "b must be in"),
    ],
)
def test_bad_input_to_build_is_refused_by_name(change, message):
    good = {"terms": torch.tensor([0, 1]), "offsets": torch.tensor([0, 1, 2]), "vocab_size": 7}
    with pytest.raises(InputError, match=message):
        BM25.build(**{**good, **change})


def test_bad_questions_are_refused_by_name():
    index = _index([[0], [1]])
    with pytest.raises(InputError, match=r"int64 \[B, Q\]"):
        index.score(torch.tensor([0]))
    with pytest.raises(InputError, match="below the vocabulary's 7; got 9"):
        index.score(torch.tensor([[9]]))
    with pytest.raises(InputError, match=r"weights must have shape \[1, 1\]"):
        index.score(torch.tensor([[0]]), torch.ones(1, 2))
    with pytest.raises(InputError, match="k must be an integer of at least 1"):
        index.topk(torch.tensor([[0]]), 0)
