"""IVF beside hnswlib and faiss IVF: searching at the recall reached, and building."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.neighbours import clustered_rows, ids_of, recall
from graphmem_torch.ops import IVF, topk_cosine

_K = 30
_LEAST = 0.95  # recall@30; each takes the fewest probes, or the least ef, that reach it
_TRIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


@pytest.mark.parametrize("size", sizes("ivf"), ids=str)
def test_ivf_search(race: Race, size: Size) -> None:
    """Approximate top 30 at a recall of 0.95."""
    keys, queries = _split(size)
    truth = topk_cosine(queries, keys, _K)[1]
    # Never less than 64 questions, a batch after the other: the recall of one says nothing.
    asked = queries[: max(64, size["batch"])].split(size["batch"])
    count = sum(map(len, asked))
    index = IVF.build(keys)
    probes = _fewest(lambda tried: index.search(queries, _K, tried), truth)
    race(
        ours=_in_turn(lambda rows: index.search(rows, _K, probes), asked),
        peers={}
        if size.device != "cpu"
        else {
            "hnswlib": _hnswlib(keys, queries, asked, truth, race.threads),
            "faiss ivf": _faiss(keys, queries, asked, truth, race.threads, len(index.centroids)),
        },
        floors={"exact": _in_turn(lambda rows: topk_cosine(rows, keys, _K), asked)},
        accuracy=lambda result: recall(result, truth[:count]),
        measure="recall@30",
        # Of fewer questions than the probes were chosen for, so that they may fall short by chance.
        at_least=_LEAST if count == len(queries) else _LEAST - 0.1,
        target=1.5 if size.device == "cpu" else None,
        against="hnswlib" if size.device == "cpu" else None,
    )


@pytest.mark.parametrize("size", sizes("ivf_build"), ids=str)
def test_ivf_build(race: Race, size: Size) -> None:
    """Building the index."""
    keys, queries = _split(size)
    truth = topk_cosine(queries, keys, _K)[1]

    def found(index: Any) -> float:
        if isinstance(index, IVF):
            return recall(index.search(queries, _K, 16), truth)
        if hasattr(index, "set_ef"):
            index.set_ef(128)
            return recall(index.knn_query(queries.numpy(), _K)[0].astype("int64"), truth)
        index.nprobe = 16
        return recall(index.search(queries.numpy(), _K), truth)

    lists = len(IVF.build(keys, iterations=0).centroids)
    race(
        ours=lambda: IVF.build(keys),
        peers={}
        if size.device != "cpu"
        else {
            "hnswlib": size.beyond("hnswlib") or _built_hnswlib(keys, race.threads),
            "faiss ivf": size.beyond("faiss ivf") or _built_faiss(keys, race.threads, lists),
        },
        accuracy=found,
        measure="recall@30 with 16 probes or ef 128",
        at_least=0.9,
        target=0.5 if size.device == "cpu" else None,
        against="hnswlib" if size.device == "cpu" else None,
    )


def _split(size: Size) -> tuple[Tensor, Tensor]:
    """Return keys, and 1,000 questions of the same topics (fewer at the smoke size)."""
    asked = min(1000, size["n"] // 4)
    rows = clustered_rows(size["n"] + asked, size["d"]).to(size.device)
    return rows[:-asked], rows[-asked:]


def _in_turn(search: Callable[[Tensor], Any], asked: Sequence[Tensor]) -> Call:
    """Search one batch after another and return the ids of all."""
    return lambda: torch.cat([ids_of(search(rows)) for rows in asked])


def _fewest(search: Any, truth: Tensor) -> int:
    """Return the first of `_TRIES` with enough recall over all questions, else the last."""
    return next((tried for tried in _TRIES if recall(search(tried), truth) >= _LEAST), _TRIES[-1])


def _hnswlib(
    keys: Tensor, queries: Tensor, asked: Sequence[Tensor], truth: Tensor, threads: int
) -> Call | str:
    build = _built_hnswlib(keys, threads)
    if isinstance(build, str):
        return build
    index: Any = build()

    def search(rows: Tensor, ef: int) -> Any:
        index.set_ef(max(_K, ef))
        return index.knn_query(rows.numpy(), _K, num_threads=threads)[0].astype("int64")

    ef = _fewest(lambda tried: search(queries, tried), truth)
    return _in_turn(lambda rows: search(rows, ef), asked)


def _built_hnswlib(keys: Tensor, threads: int) -> Call | str:
    module: Any = peer("hnswlib")
    if module is None:
        return "not installed"

    def run() -> Any:
        index = module.Index(space="ip", dim=keys.shape[1])
        index.init_index(max_elements=len(keys), M=16, ef_construction=200)
        index.add_items(keys.numpy(), num_threads=threads)
        return index

    return run


def _faiss(
    keys: Tensor,
    queries: Tensor,
    asked: Sequence[Tensor],
    truth: Tensor,
    threads: int,
    lists: int,
) -> Call | str:
    build = _built_faiss(keys, threads, lists)
    if isinstance(build, str):
        return build
    index: Any = build()

    def search(rows: Tensor, probes: int) -> Any:
        peer("faiss").omp_set_num_threads(threads)
        index.nprobe = probes
        return index.search(rows.numpy(), _K)

    probes = _fewest(lambda tried: search(queries, tried), truth)
    return _in_turn(lambda rows: search(rows, probes), asked)


def _built_faiss(keys: Tensor, threads: int, lists: int) -> Call | str:
    faiss: Any = peer("faiss")
    if faiss is None:
        return "not installed"

    def run() -> Any:
        faiss.omp_set_num_threads(threads)
        coarse = faiss.IndexFlatIP(keys.shape[1])
        index = faiss.IndexIVFFlat(coarse, keys.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        index.train(keys.numpy())
        index.add(keys.numpy())
        return index

    return run
