"""knn_graph beside faiss, hnswlib, torch and scikit-learn; building an index counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.neighbours import clustered_rows, recall
from graphmem_torch.ops import knn_graph, topk_cosine

_K = 15
_SAMPLE = 1000  # rows whose true neighbours are known


@pytest.mark.parametrize("size", sizes("knn_graph"), ids=str)
def test_knn_graph(race: Race, size: Size) -> None:
    """The 15 nearest of every row, or of a sample of rows for the recall."""
    x = clustered_rows(size["n"], size["d"]).to(size.device)
    method = size["method"]
    sample = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))[:_SAMPLE]
    sample = sample.to(x.device)
    near = topk_cosine(x[sample], x, _K + 1)[1]
    truth = _others(near, sample)

    def found(result: Any) -> float:
        ids = torch.as_tensor(result[1])
        ids = ids[sample]
        return recall(ids if ids.shape[1] == _K else _others(ids, sample), truth)

    peers: dict[str, Call | str] = {
        "torch": size.beyond("torch") or (lambda: _by_torch(x)),
    }
    if size.device == "cpu":
        peers |= {
            "faiss flat": size.beyond("faiss flat") or _faiss(x, race.threads),
            "hnswlib": size.beyond("hnswlib") or _hnswlib(x, race.threads),
            "sklearn": size.beyond("sklearn") or _sklearn(x),
        }
    race(
        ours=lambda: knn_graph(x, _K, method=method),
        peers=peers,
        floors={"half the products": size.beyond("torch") or (lambda: _half(x))},
        accuracy=found,
        measure="recall@15",
        at_least=0.999 if method == "exact" else 0.95,
        target=0.7 if method == "exact" and size.device == "cpu" else None,
        against="faiss flat" if method == "exact" and size.device == "cpu" else None,
    )


def _others(ids: Tensor, rows: Tensor) -> Tensor:  # [B, k + 1] -> [B, k]
    """Drop the row itself, or the last one if the row is absent."""
    own = ids == rows[:, None]
    own[:, -1] |= ~own.any(1)
    return ids[~own].view(len(ids), -1)


def _by_torch(x: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply blocks of 1,024 rows by all rows, then take topk."""
    parts = [(rows @ x.T).topk(_K + 1, dim=1) for rows in x.split(1024)]
    return torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])


def _half(x: Tensor) -> None:
    for first in range(0, len(x), 1024):
        x[first : first + 1024] @ x[first:].T


def _faiss(x: Tensor, threads: int) -> Call | str:
    faiss: Any = peer("faiss")
    if faiss is None:
        return "not installed"
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x.numpy())

    def search() -> Any:
        faiss.omp_set_num_threads(threads)
        return index.search(x.numpy(), _K + 1)

    return search


def _hnswlib(x: Tensor, threads: int) -> Call | str:
    module: Any = peer("hnswlib")
    if module is None:
        return "not installed"

    def run() -> Any:
        index = module.Index(space="ip", dim=x.shape[1])
        index.init_index(max_elements=len(x), M=16, ef_construction=200)
        index.add_items(x.numpy(), num_threads=threads)
        index.set_ef(64)
        labels, distances = index.knn_query(x.numpy(), _K + 1, num_threads=threads)
        return distances, labels.astype("int64")

    return run


def _sklearn(x: Tensor) -> Call | str:
    module: Any = peer("sklearn.neighbors")
    if module is None:
        return "not installed"
    return lambda: (
        module.NearestNeighbors(n_neighbors=_K + 1, metric="cosine", algorithm="brute")
        .fit(x.numpy())
        .kneighbors(x.numpy())
    )
