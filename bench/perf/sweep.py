"""Sweep: growth of time and memory of the operations with nodes, edges and questions.

`python -m bench.perf.sweep [--only NAMES] [--trial] [--json OUT] [--markdown OUT]`

One CPU thread, CPU time. Every point is a fresh process with its own peak memory; points of a trial
share a fork of this process.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.perf.growth import Operation, grown, measure, slope
from bench.perf.inputs import memory_graph, unit_rows
from bench.perf.machine import describe, limited
from bench.perf.table import cells, render
from graphmem_torch.graph import Graph
from graphmem_torch.ops import (
    SparseRows,
    knn_graph,
    maxsim,
    personalized_pagerank,
    propagate,
    spread_activation,
    topk_cosine,
)
from graphmem_torch.ops.bm25 import BM25

__all__ = ["OPERATIONS", "main", "sweep"]

Call = Callable[[], Any]
Point = dict[str, int]

_VOCABULARY, _WORDS, _ASKED = 50_000, 40, 8  # terms, words of a document, words of a question
_WIDTH = 384
_TOKENS, _TOKEN_WIDTH, _ASKED_TOKENS = 15, 128, 12
_SHORT = (0.25, 0.5, 1.0, 2.0, 4.0)
_LONG = (*_SHORT, 8.0, 16.0)


def _graph(point: Point) -> Graph:
    graph = memory_graph(point["n"], degree=max(1, round(point["e"] / point["n"])))
    point["e"] = graph.num_edges  # after merging parallel edges
    return graph


def _anchors(point: Point) -> SparseRows:
    """Return five anchors a question."""
    columns = torch.randint(
        point["n"], (point["batch"], 5), generator=torch.Generator().manual_seed(1)
    )
    return SparseRows.of(columns, torch.ones(columns.shape), point["n"])


def _propagate(point: Point) -> Call:
    graph, generator = _graph(point), torch.Generator().manual_seed(1)
    activation = torch.rand(point["batch"], point["n"], generator=generator)
    return lambda: propagate(graph, activation)


def _spread_dense(point: Point) -> Call:
    graph, start = _graph(point), _anchors(point).to_dense()
    return lambda: spread_activation(graph, start, method="dense")


def _spread_frontier(point: Point) -> Call:
    graph, start = _graph(point), _anchors(point)
    return lambda: spread_activation(graph, start, method="frontier")


def _pagerank_power(point: Point) -> Call:
    graph, seeds = _graph(point), _anchors(point).to_dense()
    return lambda: personalized_pagerank(graph, seeds, k=30, method="power")


def _pagerank_push(point: Point) -> Call:
    graph, seeds = _graph(point), _anchors(point)
    return lambda: personalized_pagerank(graph, seeds, k=30, method="push")


def _topk(point: Point) -> Call:
    queries, keys = unit_rows(point["batch"], _WIDTH, seed=1), unit_rows(point["n"], _WIDTH)
    return lambda: topk_cosine(queries, keys, 30)


def _knn_exact(point: Point) -> Call:
    rows = unit_rows(point["n"], _WIDTH)
    return lambda: knn_graph(rows, 15, method="exact")


def _knn_ivf(point: Point) -> Call:
    rows = unit_rows(point["n"], _WIDTH)
    return lambda: knn_graph(rows, 15, method="ivf")


def _bm25(point: Point) -> Call:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:  # Zipf-distributed terms
        draws = torch.rand(*shape, generator=generator)
        return (_VOCABULARY**draws - 1).long().clamp(max=_VOCABULARY - 1)

    offsets = torch.arange(point["n"] + 1) * _WORDS
    index = BM25.build(draw(point["n"] * _WORDS), offsets, _VOCABULARY)
    questions = draw(point["batch"], _ASKED)
    return lambda: index.topk(questions, 30)


def _maxsim(point: Point) -> Call:
    rows = unit_rows(point["n"] * _TOKENS, _TOKEN_WIDTH)
    tokens, offsets = (rows * 127).round().to(torch.int8), torch.arange(point["n"] + 1) * _TOKENS
    shape = (point["batch"], _ASKED_TOKENS, _TOKEN_WIDTH)
    queries = unit_rows(shape[0] * shape[1], _TOKEN_WIDTH, seed=1).reshape(shape)
    weights = torch.ones(shape[:2])
    return lambda: maxsim(queries, weights, tokens, offsets)


_GRAPH = {"n": 50_000, "e": 600_000, "batch": 16}
_GRAPH_GROWS = {"n e": _LONG, "n": _SHORT, "e": _SHORT, "batch": _SHORT}
_GRAPH_TINY = {"n": 400, "e": 4_000, "batch": 2}
_ROWS = {"n": 25_000, "batch": 16}
_ROWS_GROW = {"n": _LONG, "batch": _SHORT}
_ROWS_TINY = {"n": 150, "batch": 2}
_FEW_ROWS = {"n": 5_000, "batch": 16}

OPERATIONS = (
    Operation("propagate", _propagate, _GRAPH, _GRAPH_GROWS, _GRAPH_TINY),
    Operation("spread dense", _spread_dense, _GRAPH, _GRAPH_GROWS, _GRAPH_TINY),
    Operation("spread frontier", _spread_frontier, _GRAPH, _GRAPH_GROWS, _GRAPH_TINY),
    Operation("pagerank power", _pagerank_power, _GRAPH, _GRAPH_GROWS, _GRAPH_TINY),
    Operation("pagerank push", _pagerank_push, _GRAPH, _GRAPH_GROWS, _GRAPH_TINY),
    Operation("topk_cosine", _topk, _ROWS, _ROWS_GROW, _ROWS_TINY),
    Operation("knn_graph exact", _knn_exact, {"n": 8_000}, {"n": _SHORT}, {"n": 150}),
    Operation("knn_graph ivf", _knn_ivf, {"n": 16_000}, {"n": _SHORT}, {"n": 150}),
    Operation("BM25.topk", _bm25, _ROWS, _ROWS_GROW, _ROWS_TINY),
    Operation("maxsim", _maxsim, _FEW_ROWS, _ROWS_GROW, _ROWS_TINY),
)


def sweep(operations: list[Operation], *, trial: bool = False) -> list[dict[str, Any]]:
    """Return one entry for each operation and growing parameter, with its points and slopes."""
    known: dict[str, dict[str, Any]] = {}
    entries: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ExitStack() as end:
        pool = end.enter_context(_process(trial))
        for operation in operations:
            for names, parameters in grown(operation, trial=trial):
                key = f"{operation.name} {parameters}"
                if key not in known:
                    if not trial and known:
                        end.close()
                        pool = end.enter_context(_process(trial))
                    point = known[key] = _measured(pool, operation.name, parameters, trial)
                    said = {k: v for k, v in point.items() if k in ("seconds", "bytes", "error")}
                    print(key, said, file=sys.stderr)
                entries.setdefault((operation.name, names), []).append(known[key])
    return [_entry(name, names, points) for (name, names), points in entries.items()]


def _process(trial: bool) -> ProcessPoolExecutor:
    """Return a process with all imports; except in a trial, it has done nothing else."""
    context = multiprocessing.get_context("fork" if trial else "forkserver")
    context.set_forkserver_preload(["bench.perf.sweep"])
    # Imported objects need not be scanned before every peak.
    return ProcessPoolExecutor(1, mp_context=context, initializer=gc.freeze)


def _measured(
    pool: ProcessPoolExecutor, name: str, parameters: Point, trial: bool
) -> dict[str, Any]:
    try:
        return {"name": name, **pool.submit(_point, name, parameters, trial).result()}
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return {"name": name, "parameters": parameters, "error": why}


def _point(name: str, parameters: Point, trial: bool) -> dict[str, Any]:
    (operation,) = (one for one in OPERATIONS if one.name == name)
    with limited(1):
        return measure(operation, parameters, trial=trial)


def _entry(name: str, names: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    good = [point for point in points if "error" not in point]
    x = [float(point["parameters"][names.split()[0]]) for point in good]
    return {
        "operation": name,
        "grows": names,
        "points": points,
        "time_slope": slope(x, [point["seconds"] for point in good]),
        "memory_slope": slope(x, [float(point["bytes"]) for point in good]),
    }


def _table(entries: list[dict[str, Any]]) -> list[str]:
    header = ["operation", "grows", "others", "ms", "time slope", "peak MB", "memory slope"]
    lines = [cells(header), cells(["---"] * len(header))]
    for entry in entries:
        good = [point for point in entry["points"] if "error" not in point]
        if not good:
            lines.append(cells([entry["operation"], entry["grows"], "failed", "", "", "", ""]))
            continue
        first, last = good[0], good[-1]
        moving = entry["grows"].split()
        spans = (f"{k} {first['parameters'][k]:,} .. {last['parameters'][k]:,}" for k in moving)
        still = (f"{k} {v:,}" for k, v in first["parameters"].items() if k not in moving)
        row = [f"`{entry['operation']}`", ", ".join(spans), ", ".join(still)]
        row += [f"{1000 * first['seconds']:.3g} .. {1000 * last['seconds']:.3g}"]
        row += [f"{entry['time_slope']:.2f}"]
        row += [f"{first['bytes'] / 1e6:.3g} .. {last['bytes'] / 1e6:.3g}"]
        lines.append(cells([*row, f"{entry['memory_slope']:.2f}"]))
    return lines


def main(arguments: list[str]) -> int:
    """Run the sweep, or one point of it, and print the table of slopes."""
    parser = argparse.ArgumentParser(prog="python -m bench.perf.sweep", description=__doc__)
    parser.add_argument("--only", default="", help="operations whose names begin so, with commas")
    parser.add_argument("--trial", action="store_true", help="two tiny points of everything")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    chosen = parser.parse_args(arguments)
    starts = tuple(name.strip() for name in chosen.only.split(","))
    operations = [one for one in OPERATIONS if one.name.startswith(starts)]
    if not operations:
        names = ", ".join(one.name for one in OPERATIONS)
        parser.error(f"--only: no operation begins with {chosen.only!r}; there are {names}")
    entries = sweep(operations, trial=chosen.trial)
    machine = describe()
    text = "\n".join([*_table(entries), "", *render(machine)[:1]])
    print(text)
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine, "entries": entries}, indent=1))
    if chosen.markdown:
        chosen.markdown.write_text(text + "\n", encoding="utf-8")
    return int(any("error" in point for entry in entries for point in entry["points"]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
