"""The scans of a question over all atoms: cosine top-k, BM25, late interaction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.neighbors import NearestNeighbors

from bench.perf.inputs import unit_rows
from graphmem_torch.ops import maxsim, topk_cosine
from graphmem_torch.rank.bm25 import BM25

_ATOMS = 100_000
_TERMS = 50_000


@pytest.mark.parametrize("batch", [1, 64])
def test_topk_cosine(race: Callable[..., None], batch: int) -> None:
    """Exact top-30 of 100,000 vectors of width 384."""
    keys, queries = unit_rows(_ATOMS, 384), unit_rows(batch, 384, seed=1)
    neighbours = NearestNeighbors(n_neighbors=30, metric="cosine", algorithm="brute").fit(
        keys.numpy()
    )

    def ours() -> torch.Tensor:
        return topk_cosine(queries, keys, 30)[0]

    def by_torch() -> torch.Tensor:
        return (queries @ keys.T).topk(30, dim=1).values

    def by_sklearn() -> np.ndarray:
        return neighbours.kneighbors(queries.numpy())[0]

    assert torch.allclose(ours(), by_torch(), atol=1e-5)
    race(ours, rounds=7, torch=by_torch, sklearn=by_sklearn)


@pytest.mark.parametrize("batch", [1, 64])
def test_bm25(race: Callable[..., None], batch: int) -> None:
    """Scores of 100,000 documents of 40 Zipf-distributed terms, 8 terms a question."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(_ATOMS * 40, generator=generator)
    terms = (_TERMS**draws - 1).long().clamp(max=_TERMS - 1)
    offsets = torch.arange(_ATOMS + 1) * 40
    index = BM25.build(terms, offsets, _TERMS)
    questions = (_TERMS ** torch.rand(batch, 8, generator=generator) - 1).long()
    counts = sp.csr_matrix(
        (np.ones(batch * 8, np.float32), questions.flatten().numpy(), np.arange(batch + 1) * 8),
        shape=(batch, _TERMS),
    )
    matrix = sp.csr_matrix(
        (index.scores.numpy(), index.docs.numpy(), index.indptr.numpy()), shape=(_TERMS, _ATOMS)
    )

    def ours() -> torch.Tensor:
        return index.score(questions)

    def by_scipy() -> np.ndarray:
        return (counts @ matrix).toarray()

    assert np.allclose(ours().numpy(), by_scipy(), atol=1e-3)
    race(ours, scipy=by_scipy)


def test_maxsim(race: Callable[..., None]) -> None:
    """1,000 atoms of 15 token vectors of width 128, 64 questions of 12; floor: the product."""
    tokens = (unit_rows(15_000, 128) * 127).round().to(torch.int8)
    offsets = torch.arange(1_001) * 15
    queries = unit_rows(64 * 12, 128, seed=1).reshape(64, 12, 128)
    weights = torch.rand(64, 12, generator=torch.Generator().manual_seed(2)) + 0.1
    packed = tokens.float() / 127

    def ours() -> torch.Tensor:
        return maxsim(queries, weights, tokens, offsets)

    def by_einsum() -> torch.Tensor:
        cosine = torch.einsum("bqm,ntm->bqnt", queries, packed.reshape(1_000, 15, 128))
        best = cosine.amax(3)
        return torch.einsum("bq,bqn->bn", weights, best) / weights.sum(1, keepdim=True)

    def product() -> torch.Tensor:
        return queries.flatten(0, 1) @ packed.T

    assert torch.allclose(ours(), by_einsum(), atol=1e-2)
    race(ours, rounds=7, torch_einsum=by_einsum, product_alone=product)
