"""BM25 against the formula in plain Python."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops.bm25 import (
    BM25,
    score_postings,
    score_squares_postings,
    topk_postings,
)
from tests.kernels import kernels

DOCUMENTS = st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=12)
QUERIES = st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), max_size=5)


def _index(documents: list[list[int]], vocab: int = 7, **constants: float) -> BM25:
    flat = torch.tensor([t for d in documents for t in d], dtype=torch.int64)
    offsets = torch.tensor([0, *np.cumsum([len(d) for d in documents])], dtype=torch.int64)
    return BM25.build(flat, offsets, vocab, **constants)


def _plain(documents: list[list[int]], query: list[int], k1: float, b: float) -> list[float]:
    n = len(documents)
    mean = max(1.0, sum(map(len, documents)) / n) if n else 1.0
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in query:
            if term >= 0 and counts[term]:
                df = sum(term in d for d in documents)
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
                norm = k1 * (1 - b + b * len(document) / mean)
                score += idf * counts[term] * (k1 + 1) / (counts[term] + norm)
        scores.append(score)
    return scores


@given(DOCUMENTS, QUERIES, st.sampled_from([(1.2, 0.75), (0.9, 0.4), (0.0, 0.0), (2.0, 1.0)]))
def test_score_matches_the_formula(documents, queries, constants):
    k1, b = constants
    index = _index(documents, k1=k1, b=b)
    query = torch.tensor(queries, dtype=torch.int64).reshape(-1, 3)
    plain = [_plain(documents, q, k1, b) for q in queries]
    expected = np.array(plain).reshape(len(queries), len(documents))
    np.testing.assert_allclose(index.score(query).numpy(), expected, rtol=1e-5, atol=1e-6)


@given(DOCUMENTS)
def test_build_compresses_by_term(documents):
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


@pytest.mark.parametrize("questions", [1, 3, 64, 65])
@pytest.mark.parametrize("sizes", [{}, {"long": 3, "held": 1500}, {"together": 64}])
def test_score_of_long_runs_and_blocks_give_the_same(questions, sizes):
    """Terms of every frequency, repeated terms; scores as a product of dense matrices."""
    generator = torch.Generator().manual_seed(0)
    documents, vocab = 500, 40
    terms = (vocab ** torch.rand(documents * 12, generator=generator) - 1).long()
    index = BM25.build(terms, torch.arange(documents + 1) * 12, vocab)
    postings = index.indptr, index.docs, index.scores
    of_scores = {name: value for name, value in sizes.items() if name != "held"}
    query = torch.randint(-1, vocab, (questions, 5), generator=generator)
    term = torch.repeat_interleave(index.indptr.diff())
    dense = torch.zeros(vocab, documents, dtype=torch.float64)
    dense[term, index.docs.long()] = index.scores.double()
    wanted = torch.zeros(questions, vocab + 1, dtype=torch.float64)
    count = wanted.scatter_add(1, query + 1, torch.ones(questions, 5, dtype=torch.float64))
    expected = (count[:, 1:] @ dense).float()
    torch.testing.assert_close(index.score(query), expected)
    found = score_postings(*postings, query, documents, **of_scores)
    torch.testing.assert_close(found, expected)
    values, docs = topk_postings(*postings, query, 7, documents, **sizes)
    torch.testing.assert_close(values, expected.topk(7, dim=1).values)
    torch.testing.assert_close(values, expected.gather(1, docs))
    assert all(len(set(row)) == 7 for row in docs.tolist())


@pytest.mark.usefixtures("double_by_default")
def test_score_whatever_the_default_dtype():
    index = _index([[0], [0, 1, 1], [2]])
    query = torch.tensor([[0, 1]])
    plain = _plain([[0], [0, 1, 1], [2]], [0, 1], 1.2, 0.75)
    expected = torch.tensor([plain], dtype=torch.float32)
    torch.testing.assert_close(index.score(query), expected)
    torch.testing.assert_close(index.topk(query, 3)[0], expected.sort(descending=True).values)


def test_topk_of_nothing():
    assert _index([]).topk(torch.tensor([[0, 1]]), 3)[1].shape == (1, 0)
    assert _index([[1]]).topk(torch.empty(0, 2, dtype=torch.int64), 3)[0].shape == (0, 1)
    values, docs = _index([[], [1], []]).topk(torch.tensor([[-1, -1], [5, -1]]), 3)
    assert values.tolist() == [[0.0] * 3] * 2
    assert [sorted(row) for row in docs.tolist()] == [[0, 1, 2]] * 2


def test_score_of_a_term_that_comes_twice():
    index = _index([[0], [0, 1]])
    once, twice = index.score(torch.tensor([[1, -1], [1, 1]]))
    torch.testing.assert_close(twice, 2 * once)


@given(DOCUMENTS, QUERIES, st.lists(st.integers(-1, 11), min_size=4, max_size=4))
def test_holds_matches_a_loop(documents, queries, rows):
    """Scores of all documents, and of some of them in any order."""
    index, count = _index(documents), len(documents)
    query = torch.tensor(queries, dtype=torch.int64).reshape(-1, 3)
    some = [row if row < count else -1 for row in rows]
    picked = torch.tensor([some] * len(queries), dtype=torch.int64).reshape(-1, 4)
    for given_rows, looked in ((None, range(count)), (picked, some)):
        expected = [
            [[float(row >= 0 and t >= 0 and t in documents[row]) for row in looked] for t in q]
            for q in queries
        ]
        found = index.holds(query, given_rows)
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(
            found.numpy(), np.array(expected).reshape(len(queries), 3, len(looked))
        )


def test_build_of_nothing():
    assert _index([]).score(torch.tensor([[0, 1]])).shape == (1, 0)
    assert _index([[], []]).score(torch.tensor([[0, 1]])).tolist() == [[0.0, 0.0]]
    assert _index([[1]]).score(torch.empty(0, 2, dtype=torch.int64)).shape == (0, 1)


def test_score_opcheck():
    index = _index([[0], [0, 1]])
    query = torch.tensor([[1, -1], [1, 0]])
    arguments = (index.indptr, index.docs, index.scores, query, 2)
    torch.library.opcheck(torch.ops.graphmem.bm25_score.default, arguments)
    torch.library.opcheck(torch.ops.graphmem.bm25_score_squares.default, arguments)
    arguments = (index.indptr, index.docs, index.scores, query, 1, 2)
    torch.library.opcheck(torch.ops.graphmem.bm25_topk.default, arguments)
    rows = torch.tensor([[-1, 1, 0], [0, 0, 1]])
    for given_rows in (None, rows):
        arguments = (index.indptr, index.docs, query, given_rows, 2)
        torch.library.opcheck(torch.ops.graphmem.bm25_holds.default, arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": torch.tensor([0, 7])}, r"terms: expected numbers in 0\.\.6, got 7"),
        ({"terms": torch.tensor([0, -1])}, r"terms: expected numbers in 0\.\.6"),
        ({"terms": torch.zeros(2)}, r"terms: expected int64 \[T\]"),
        ({"offsets": torch.tensor([0, 1])}, "offsets: expected to ascend from 0 to 2"),
        ({"offsets": torch.tensor([0, 2, 1, 2])}, "offsets: expected to ascend"),
        (
            {"offsets": torch.tensor([0, 1, 2], device="meta")},
            "offsets: expected int64 .* on cpu",
        ),
        ({"vocab_size": 4.0}, "vocab_size: expected an integer"),
        ({"k1": -1.0}, "k1: expected a number in"),
        ({"k1": math.inf}, "k1: expected a number in"),
        ({"b": 1.5}, "b: expected a number in"),
    ],
)
def test_build_refuses_bad_input_by_name(change, message):
    good = {"terms": torch.tensor([0, 1]), "offsets": torch.tensor([0, 1, 2]), "vocab_size": 7}
    with pytest.raises(InputError, match=message):
        BM25.build(**{**good, **change})


def test_score_and_topk_refuse_bad_questions_by_name():
    index = _index([[0], [1]])
    with pytest.raises(InputError, match=r"query_terms: expected int64 \[B, Q\]"):
        index.score(torch.tensor([0]))
    with pytest.raises(InputError, match="below the vocabulary's 7, got 9"):
        index.score(torch.tensor([[9]]))
    with pytest.raises(InputError, match="below the vocabulary's 7, got 9"):
        index.topk(torch.tensor([[9]]), 1)
    with pytest.raises(InputError, match=r"query_terms: expected int64 \[B, Q\] on cpu"):
        index.topk(torch.zeros(1, 1, dtype=torch.int64, device="meta"), 1)
    with pytest.raises(InputError, match="k: expected an integer of at least 1"):
        index.topk(torch.tensor([[0]]), 0)


@pytest.mark.parametrize("questions", [1, 3])
def test_kernel_adds_every_posting(questions):
    """Terms of no, few and many postings, in parts of 16; some asked twice, some not at all."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([0, 1, 16, 17, 40, 0, 5])
    indptr = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    drawn = [torch.randperm(50, generator=generator)[:n].sort().values for n in lengths]
    docs = torch.cat(drawn).int()
    scores = torch.rand(len(docs), generator=generator)
    query = torch.randint(-1, 7, (questions, 5), generator=generator)
    query[0] = torch.tensor([4, 4, -1, 3, 2])
    dense = torch.zeros(8, 50, dtype=torch.float64)
    dense[torch.repeat_interleave(lengths), docs.long()] = scores.double()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = [part.to(device) for part in (indptr, docs, scores, query)]
    out = torch.full((questions, 50), 2.0, device=device)
    kernels("bm25").launch_add_postings(out, *given, block=16, least=20)
    torch.testing.assert_close(out.cpu().double(), 2 + dense[query].sum(1), rtol=1e-6, atol=1e-6)
    kernels("bm25").launch_add_postings(out, given[0], given[1][:0], given[2][:0], given[3])
    kernels("bm25").launch_add_postings(out, *given[:3], given[3][:, :0])
    torch.testing.assert_close(out.cpu().double(), 2 + dense[query].sum(1), rtol=1e-6, atol=1e-6)


@given(DOCUMENTS, QUERIES, st.lists(st.integers(-1, 11), min_size=4, max_size=4))
def test_kernel_of_held_terms_gives_the_same(documents, queries, rows):
    """Over short blocks, terms without postings, repeated rows, and outputs full of NaN."""
    index, count = _index(documents), len(documents)
    query = torch.tensor(queries, dtype=torch.int64).reshape(-1, 3)
    some = torch.tensor([[row if row < count else -1 for row in rows]] * len(query))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for given_rows in (None, some.reshape(-1, 4).long()):
        expected = index.holds(query, given_rows)
        parts = [index.indptr, index.docs, query, given_rows]
        given_parts = [None if part is None else part.to(device) for part in parts]
        out = torch.full_like(expected, torch.nan, device=device)
        kernels("bm25").launch_holds(out, *given_parts, block=2)
        assert torch.equal(out.cpu(), expected)


@pytest.mark.cuda
def test_held_terms_on_cuda_are_those_of_the_cpu():
    generator = torch.Generator().manual_seed(0)
    terms = (500 ** torch.rand(30_000, generator=generator) - 1).long()
    index = BM25.build(terms, torch.arange(3001) * 10, 500)
    query = torch.randint(-1, 500, (65, 8), generator=generator)
    rows = torch.randint(-1, 3000, (65, 400), generator=generator)
    found = index.to("cuda").holds(query.cuda(), rows.cuda())
    assert torch.equal(found.cpu(), index.holds(query, rows))


@pytest.mark.cuda
def test_score_on_cuda_matches_cpu():
    generator = torch.Generator().manual_seed(0)
    terms = (500 ** torch.rand(30_000, generator=generator) - 1).long()
    index = BM25.build(terms, torch.arange(3001) * 10, 500)
    query = torch.randint(-1, 500, (65, 8), generator=generator)
    there = index.to("cuda")
    torch.testing.assert_close(there.score(query.cuda()).cpu(), index.score(query))
    torch.testing.assert_close(there.topk(query.cuda(), 30)[0].cpu(), index.topk(query, 30)[0])


@given(DOCUMENTS, QUERIES, st.sampled_from([0, 4, 10**9]), st.sampled_from([1, 3, 1024]))
def test_sums_are_those_of_the_scores(documents, queries, sparse, long):
    """From the postings or from the rows, for few questions and for many."""
    index = _index(documents)
    query = torch.tensor(queries, dtype=torch.int64).reshape(-1, 3)
    expected = index.score(query).double()
    parts = index.indptr, index.docs, index.scores  # computes the scores of all postings
    found, squares = score_squares_postings(
        *parts, query, len(documents), long=long, together=4, sparse=sparse
    )
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(squares, expected.square().sum(1), rtol=1e-5, atol=1e-6)
    for asked in (_index(documents), index):  # a new one scores its own postings only
        scores, first, second = asked.score_sums(query)
        torch.testing.assert_close(scores.double(), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(first, expected.sum(1), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(second, expected.square().sum(1), rtol=1e-5, atol=1e-6)
