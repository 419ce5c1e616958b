"""topk_cosine beside torch, faiss and scikit-learn; floors: the product, reading the keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import unit_rows
from bench.perf.neighbours import recall
from graphmem_torch.ops import topk_cosine

_K = 30


@pytest.mark.parametrize("size", sizes("topk_cosine"), ids=str)
def test_topk_cosine(race: Race, size: Size) -> None:
    """Exact top 30 by cosine."""
    dtype = getattr(torch, size.get("dtype", "float32"))
    keys = unit_rows(size["n"], size["d"]).to(size.device, dtype)
    queries = unit_rows(size["batch"], size["d"], seed=1).to(size.device)
    one = size["batch"] == 1

    def product() -> Tensor:
        asked = queries.to(keys.dtype)
        return torch.mv(keys, asked[0]) if one else asked @ keys.T

    def by_torch() -> tuple[Tensor, Tensor]:
        values, indices = (queries @ keys.T.to(queries.dtype)).topk(_K, dim=1)
        return values, indices

    truth = by_torch()[1]
    peers: dict[str, Call | str] = {"torch": by_torch}
    if size.device == "cpu":
        peers |= {
            "faiss": _faiss(queries, keys, race.threads),
            "sklearn": size.beyond("sklearn") or _sklearn(queries, keys),
        }
    # Half precision is a hundred times as slow on a CPU; on a GPU it is the floor.
    halved = dtype != torch.float32 and size.device == "cpu"
    race(
        ours=lambda: topk_cosine(queries, keys, _K),
        peers=peers,
        floors={"reading the keys": keys.sum, **({} if halved else {"product alone": product})},
        accuracy=lambda result: recall(result, truth),
        measure="recall@30",
        at_least=0.999,
        target=None if halved else 1.1 if one else 1.15,
        against=None if halved else "product alone",
        bytes_moved=keys.numel() * keys.element_size(),
    )


def _faiss(queries: Tensor, keys: Tensor, threads: int) -> Call | str:
    faiss: Any = peer("faiss")
    if faiss is None:
        return "not installed"
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys.float().numpy())

    def search() -> Any:
        faiss.omp_set_num_threads(threads)
        return index.search(queries.numpy(), _K)

    return search


def _sklearn(queries: Tensor, keys: Tensor) -> Call | str:
    module: Any = peer("sklearn.neighbors")
    if module is None:
        return "not installed"
    neighbours = module.NearestNeighbors(n_neighbors=_K, metric="cosine", algorithm="brute")
    neighbours.fit(keys.float().numpy())
    return lambda: neighbours.kneighbors(queries.numpy())
