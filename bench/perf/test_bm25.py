"""BM25 against bm25s, tantivy and scipy: the best of a batch, all scores, and building."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, peer, sizes
from graphmem_torch.coo import offsets_of
from graphmem_torch.ops.bm25 import BM25

_K1, _B = 1.2, 0.75
_SLACK = 1e-4  # scores closer than this are ties, and either may be among the best


@pytest.mark.parametrize("size", sizes("bm25"), ids=str)
def test_bm25_topk(race: Race, size: Size) -> None:
    """The best documents of each question."""
    terms, offsets, questions = _inputs(size)
    index = BM25.build(terms, offsets, size["vocab"], k1=_K1, b=_B)
    k, there, asked = size["k"], index.to(size.device), questions.to(size.device)
    exact = _exact(terms, offsets, questions, size["vocab"])

    def lists() -> list[list[int]]:
        return _documents(terms, offsets)

    race(
        ours=lambda: there.topk(asked, k)[1],
        peers={
            "bm25s": size.beyond("bm25s") or _bm25s(lists(), questions, size, "numpy"),
            "bm25s numba": size.beyond("bm25s numba")
            or ("compiling it takes longer than this size" if size.smoke else None)
            or _bm25s(lists(), questions, size, "numba"),
            "tantivy": size.beyond("tantivy") or _tantivy(lists(), questions, k),
            "scipy": _scipy_topk(index, questions, k),
        },
        accuracy=lambda found: _recall(found, exact, k),
        # tantivy keeps the length of a document in one byte, so its ranking is a little off.
        measure=f"recall@{k}",
        at_least=0.9,
        target={"bm25s": 0.5, "tantivy": 1.0},
    )


@pytest.mark.parametrize("size", sizes("bm25"), ids=str)
def test_bm25_score(race: Race, size: Size) -> None:
    """The scores of all documents for each question."""
    terms, offsets, questions = _inputs(size)
    index = BM25.build(terms, offsets, size["vocab"], k1=_K1, b=_B)
    there, asked = index.to(size.device), questions.to(size.device)
    exact = _exact(terms, offsets, questions, size["vocab"])
    counts, matrix = _matrices(index, questions)
    race(
        ours=lambda: there.score(asked),
        peers={"scipy": lambda: (counts @ matrix).toarray()},
        floors={"scipy, left sparse": lambda: counts @ matrix},
        accuracy=lambda found: _largest_error(found, exact),
        measure="largest error",
        at_most=1e-3,
        target=1.0,
        against="scipy",
    )


@pytest.mark.parametrize("size", sizes("bm25_build"), ids=str)
def test_bm25_build(race: Race, size: Size) -> None:
    """Building the index from term ids."""
    terms, offsets, _ = _inputs(size)
    lists = _documents(terms, offsets)
    term_of = {str(i): i for i in range(size["vocab"])}
    document = torch.repeat_interleave(offsets.diff())
    postings = len((terms * size["n"] + document).unique())
    module: Any = peer("bm25s")

    def by_bm25s() -> int:
        built = module.BM25(method="lucene", k1=_K1, b=_B)
        built.index((lists, dict(term_of)), show_progress=False)
        return len(built.scores["data"])

    race(
        ours=lambda: len(BM25.build(terms, offsets, size["vocab"], k1=_K1, b=_B).docs),
        peers={"bm25s": "not installed" if module is None else by_bm25s},
        accuracy=lambda found: found / postings,
        measure="postings found",
        at_least=1.0,
        target=0.1,
        against="bm25s",
    )


def _inputs(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Return Zipf-distributed terms, and questions of distinct terms without the commonest."""
    generator = torch.Generator().manual_seed(0)
    mean, vocab = size["words"], size["vocab"]
    lengths = torch.randint(mean // 2, mean + mean // 2, (size["n"],), generator=generator)
    offsets = offsets_of(lengths)
    draws = torch.rand(int(offsets[-1]), generator=generator)
    terms = (vocab**draws - 1).long().clamp(max=vocab - 1)
    share = 0.3 + 0.7 * torch.rand(size["batch"], 4 * size["terms"], generator=generator)
    drawn = (vocab**share - 1).long().clamp(max=vocab - 1)
    rows = [list(dict.fromkeys(row))[: size["terms"]] for row in drawn.tolist()]
    padded = [row + [-1] * (size["terms"] - len(row)) for row in rows]
    return terms, offsets, torch.tensor(padded)


def _documents(terms: Tensor, offsets: Tensor) -> list[list[int]]:
    return [part.tolist() for part in terms.split(offsets.diff().tolist())]


def _exact(terms: Tensor, offsets: Tensor, questions: Tensor, vocab: int) -> np.ndarray:
    """Compute the formula term by term: [B, N] float64."""
    docs = len(offsets) - 1
    lengths = offsets.diff().numpy()
    document = np.repeat(np.arange(docs), lengths)
    counts = sp.csc_matrix((np.ones(len(document)), (document, terms.numpy())), shape=(docs, vocab))
    counts.sum_duplicates()
    norm = _K1 * (1 - _B + _B * lengths / lengths.mean())
    out = np.zeros((len(questions), docs))
    for row, question in zip(out, questions.tolist(), strict=True):
        for term in (t for t in question if t >= 0):
            own = slice(counts.indptr[term], counts.indptr[term + 1])
            doc, tf = counts.indices[own], counts.data[own]
            idf = np.log1p((docs - len(doc) + 0.5) / (len(doc) + 0.5))
            row[doc] += idf * tf * (_K1 + 1) / (tf + norm[doc])
    return out


def _recall(
    found: Tensor | np.ndarray | Sequence[Sequence[int]], exact: np.ndarray, k: int
) -> float:
    """Return the share of the answers in the k best, including ties with the last."""
    k = min(k, exact.shape[1])
    bar = -np.partition(-exact, k - 1, axis=1)[:, k - 1] - _SLACK
    rows = found.cpu().tolist() if isinstance(found, Tensor) else found
    good = [
        sum(exact[b, doc] >= bar[b] for doc in set(map(int, row))) for b, row in enumerate(rows)
    ]
    return float(np.mean(good)) / k


def _largest_error(found: Tensor | np.ndarray, exact: np.ndarray) -> float:
    values = found.cpu().numpy() if isinstance(found, Tensor) else found
    return float(np.abs(values - exact).max())


def _matrices(index: BM25, questions: Tensor) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    vocab = len(index.indptr) - 1
    row, place = (questions >= 0).nonzero(as_tuple=True)
    ones = np.ones(len(row), np.float32)
    shape = (len(questions), vocab)
    counts = sp.csr_matrix((ones, (row.numpy(), questions[row, place].numpy())), shape=shape)
    parts = (index.scores.numpy(), index.docs.numpy(), index.indptr.numpy())
    return counts, sp.csr_matrix(parts, shape=(vocab, index.num_docs))


def _scipy_topk(index: BM25, questions: Tensor, k: int) -> Callable[[], np.ndarray]:
    counts, matrix = _matrices(index, questions)
    k = min(k, index.num_docs)

    def call() -> np.ndarray:
        scores = (counts @ matrix).toarray()
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        return np.take_along_axis(best, order, 1)

    return call


def _bm25s(
    lists: list[list[int]], questions: Tensor, size: Size, backend: str
) -> Callable[[], np.ndarray] | str:
    module: Any = peer("bm25s")
    if module is None or (backend == "numba" and peer("numba") is None):
        return "not installed"
    index = module.BM25(method="lucene", k1=_K1, b=_B, backend=backend)
    index.index((lists, {str(i): i for i in range(size["vocab"])}), show_progress=False)
    words = [[str(t) for t in row if t >= 0] for row in questions.tolist()]
    k = min(size["k"], len(lists))
    return lambda: index.retrieve(words, k=k, show_progress=False).documents


def _tantivy(
    lists: list[list[int]], questions: Tensor, k: int
) -> Callable[[], list[list[int]]] | str:
    module: Any = peer("tantivy")
    if module is None:
        return "not installed"
    builder = module.SchemaBuilder()
    builder.add_text_field("body", stored=False, tokenizer_name="whitespace")
    schema = builder.build()
    index = module.Index(schema)
    writer = index.writer(heap_size=1 << 30, num_threads=1)
    for document in lists:
        writer.add_document(module.Document(body=" ".join(map(str, document))))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    queries = [
        module.Query.boolean_query(
            [
                (module.Occur.Should, module.Query.term_query(schema, "body", str(term)))
                for term in row
                if term >= 0
            ]
        )
        for row in questions.tolist()
    ]

    # Documents went in one after another by one thread: with one segment, its ids are ours.
    def call() -> list[list[int]]:
        return [[hit[1].doc for hit in searcher.search(query, k).hits] for query in queries]

    return call if searcher.num_segments == 1 else "more than one segment"
