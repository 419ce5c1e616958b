"""Measure mode retrieval at scale: agreement with exact search, reads, speed and size."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.modes import search_modes
from graphmem_torch.ops import IVF, topk_cosine
from graphmem_torch.progress import Progress

from ..common.measure import framed, interleaved_medians
from ..request import Request
from .grid import ASSIGNMENTS, depths, index_bytes, partition
from .search import Found, agreement, by_lists, by_modes, by_typical, flat
from .source import Source, open_source, sentences

__all__ = ["ROUNDS", "judge_scale", "measure_scale"]
_SIZES = (10_000, 100_000)
_DESIGN = 50  # modes in the paper's example
_MANY = (100_000, 1_000)  # rows from which on 1,000 modes are measured, too
_HELD_OUT = 256  # rows that are asked for and not indexed
_SENTENCES = 256  # texts of which a sentence is asked for, if they have one
_K = 10
_TAKEN = (_K, 3, 1)  # maximum atoms of a mode
_BATCH = 64  # questions of a timed batch
ROUNDS = (32, 5)
"""Numbers of timed single questions, and of timed batches."""


@dataclass(frozen=True, eq=False)
class _Questions:
    """Two kinds of questions: texts that are not indexed, and sentences of texts that are.

    Attributes:
        vectors: [B, d], held-out rows first.
        origin: [B] row of a sentence's text, -1 for a held-out row.
        exact: [B, 10] results of exact search.
    """

    vectors: Tensor
    origin: Tensor
    exact: Tensor


@dataclass(frozen=True, eq=False)
class _Run:
    """Common input of the measurements of every index.

    Attributes:
        x: [N, d] rows.
        asked: Questions about them.
        seed: Seed of clusterings and of the bootstrap.
        resamples: Bootstrap resamples.
        rounds: Timed questions and batches, see `ROUNDS`.
    """

    x: Tensor
    asked: _Questions
    seed: int
    resamples: int
    rounds: tuple[int, int]


def judge_scale(request: Request, *, rounds: tuple[int, int] = ROUNDS) -> dict[str, Any]:
    """Return the report of `graphmem eval modes` on texts or a store."""
    found = measure_scale(
        open_source(request), seed=request.seed, rounds=rounds, progress=request.progress
    )
    return framed("modes", request.settings, request.seed, **found)


def measure_scale(
    source: Source,
    *,
    seed: int = 0,
    resamples: int = 2000,
    rounds: tuple[int, int] = ROUNDS,
    progress: bool = False,
) -> dict[str, Any]:
    """Return curves at 10,000 rows and at 100,000, or at all rows if there are fewer.

    `agreement` is the found share of the exact ten best; `known_item` is the share of sentences
    whose own text is among the first ten. An inverted file with as many lists, the same idea
    without a spectrum, is the baseline.

    Args:
        source: Texts with their vectors.
        seed: Seed of the held-out rows, of clusterings and of the bootstrap.
        resamples: Bootstrap resamples.
        rounds: Timed single questions, and timed batches.
        progress: Whether to show a bar on stderr.

    Raises:
        InputError: Fewer than 20 rows.
    """
    total = len(source.vectors)
    if total < 20:
        raise InputError(f"expected at least 20 texts, got {total}; add more")
    generator = torch.Generator().manual_seed(seed)
    place = torch.randperm(total, generator=generator)
    held_out = min(_HELD_OUT, total // 10)
    left = total - held_out
    sizes = sorted({min(size, left) for size in _SIZES})
    parts = []
    for size in sizes:
        rows = place[:size]
        x = source.vectors[rows.to(source.vectors.device)].float().contiguous()
        asked = _questions(source, x, rows, place[left:])
        parts.append(_at(_Run(x, asked, seed, resamples, rounds), progress))
    return {"n": {"held_out": held_out, "rows": sizes}, "sizes": parts}


def _questions(source: Source, x: Tensor, rows: Tensor, held_out: Tensor) -> _Questions:
    texts, origin = sentences(source.texts, rows[:_SENTENCES])
    own = source.vectors[held_out.to(x.device)].float()
    vectors, origins = [own], [torch.full((len(own),), -1)]
    if texts:
        vectors.append(source.embedder.encode(texts).pooled.float().to(x.device))
        # Texts were taken in the order of the rows.
        origins.append((rows[:_SENTENCES][:, None] == origin).nonzero()[:, 0])
    queries = torch.cat(vectors)
    exact = flat(x, queries, _K)
    return _Questions(queries, torch.cat(origins).to(x.device), exact.ranking)


def _at(run: _Run, progress: bool) -> dict[str, Any]:
    x = run.x
    counts = {min(_DESIGN, len(x)), math.isqrt(len(x))}
    if len(x) >= 0.99 * _MANY[0]:
        counts.add(_MANY[1])
    indices, lists = [], []
    for count in Progress(sorted(counts), f"{len(x)} rows", shown=progress):
        for assign in ASSIGNMENTS if count == min(counts) else ASSIGNMENTS[:1]:
            indices.append(_modes(run, count, assign))
        lists.append(_lists(run, count))
    exact = Found(run.asked.exact, torch.full((len(run.asked.vectors),), float(len(x))).double())
    return {
        "rows": len(x),
        "width": x.shape[1],
        "flat": _figures(run, exact) | {"bytes": x.numel() * x.element_size()},
        "modes": indices,
        "ivf": lists,
    }


def _modes(run: _Run, count: int, assign: str) -> dict[str, Any]:
    x, queries = run.x, run.asked.vectors
    start = time.perf_counter()
    modes = partition(x, str(count), assign, seed=run.seed)
    built = time.perf_counter() - start

    def search(searched: int) -> list[Found]:
        return by_modes(modes, x, queries, searched=searched, taken=_TAKEN)

    def timed(queries: Tensor, searched: int) -> object:
        return search_modes(modes, x, queries, modes_k=searched, per_mode=_K)

    points = _curve(run, len(modes), search, timed)
    return {
        "asked": count,
        "assign": assign,
        "count": len(modes),
        "axes": len(modes.spectrum.values),
        "largest": int(modes.size.max()),
        "exponent": modes.exponent,
        "bound": modes.bound,
        "measured_error": modes.measured_error,
        "centroid_error": modes.centroid_error,
        "build_s": built,
        "bytes": index_bytes(modes, x),
        "points": points,
        "without_atoms": {
            "statistics": _figures(run, by_typical(modes, queries)),
            "representatives": _figures(run, by_typical(modes, queries, x)),
        },
    }


def _lists(run: _Run, count: int) -> dict[str, Any]:
    start = time.perf_counter()
    index = IVF.build(run.x, count, generator=torch.Generator().manual_seed(run.seed))
    built = time.perf_counter() - start

    def search(searched: int) -> list[Found]:
        return [by_lists(index, run.asked.vectors, probes=searched, k=_K)]

    def timed(queries: Tensor, searched: int) -> object:
        return index.search(queries, _K, probes=searched)

    points = _curve(run, count, search, timed)
    return {"count": count, "build_s": built, "points": points}


def _curve(
    run: _Run,
    count: int,
    search: Callable[[int], list[Found]],
    timed: Callable[[Tensor, int], object],
) -> list[dict[str, Any]]:
    """Return quality and time by the number of modes or lists searched."""
    points = []
    for searched in depths(count):
        whole, *fewer = search(searched)
        point: dict[str, Any] = {"searched": searched, **_figures(run, whole)}
        if fewer:
            point["taken"] = {
                str(taken): _figures(run, found)
                for taken, found in zip(_TAKEN[1:], fewer, strict=True)
            }
        points.append(point | _times(run, timed, searched))
    return points


def _times(run: _Run, timed: Callable[[Tensor, int], object], searched: int) -> dict[str, Any]:
    """Return median milliseconds a question, alone and in batches, with those of exact search."""
    x, queries = run.x, run.asked.vectors
    result: dict[str, Any] = {}
    for name, size, rounds in (("one", 1, run.rounds[0]), ("batch", _BATCH, run.rounds[1])):
        # Different questions every time, or all reads would hit the cache.
        parts = [queries.roll(-size * i, 0)[:size] for i in range(rounds)]

        def exact(i: int, parts: Sequence[Tensor] = parts) -> object:
            return topk_cosine(parts[i], x, _K)

        def own(i: int, parts: Sequence[Tensor] = parts) -> object:
            return timed(parts[i], searched)

        calls: Mapping[str, Callable[[int], object]] = {"flat": exact, "own": own}
        found = interleaved_medians(calls, rounds)
        result[f"ms_{name}"] = found["own"] / min(size, len(queries))
        result[f"faster_{name}"] = found["flat"] / found["own"]
    return result


def _figures(run: _Run, found: Found) -> dict[str, Any]:
    asked, drawn = run.asked, {"seed": run.seed, "resamples": run.resamples}
    inside = asked.origin >= 0
    share = agreement(found.ranking, asked.exact).cpu()
    item = (found.ranking[:, :_K] == asked.origin[:, None]).any(1).double().cpu()
    return {
        "agreement": mean_interval(share[~inside.cpu()], **drawn),
        "agreement_sentences": mean_interval(share[inside.cpu()], **drawn),
        "known_item": mean_interval(item[inside.cpu()], **drawn),
        "read": float(found.read.mean()),
    }
