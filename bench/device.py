"""Whole questions on a GPU: agreement with the CPU, speed, and waits of the host.

`python -m bench.device [--atoms 100000 1000000] [--batch 1 64 256] [--json OUT]`; needs only torch
and numpy. Memories are made up: sessions of turns in time, topics in the embeddings, Zipf words,
int8 token vectors, and edges as linking would draw them. A question is a noisy copy of a memory.
`--device cpu` measures the CPU alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval, Stages
from graphmem_torch.rank.query import QueryBatch

__all__ = ["columns", "main", "questions", "run"]

_WIDTH, _TOKEN_WIDTH = 384, 128
_WORDS, _TOKENS, _ASKED = 9, 15, 7  # mean words of an atom; tokens of an atom; tokens of a question
_VOCABULARY, _PIECES = 40_000, 20_000
_SESSION, _SPEAKERS, _TOPIC = 24, 50, 200  # turns of a session; speakers; atoms of a topic


def columns(atoms: int, *, seed: int = 0) -> IndexInput:
    """Return a memory of `atoms` turns, with a concept for every ten of them."""
    g = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=g)

    def zipf(high: int, count: int) -> Tensor:
        return (high ** torch.rand(count, generator=g) - 1).long().clamp_(max=high - 1)

    topics = max(1, atoms // _TOPIC)
    centre = torch.randn(topics, _WIDTH, generator=g)
    topic = integers(topics, atoms)
    embeddings = torch.randn(atoms, _WIDTH, generator=g).add_(centre[topic])
    lengths = 2 + integers(2 * _WORDS - 3, atoms)
    concepts, node = max(1, atoms // 10), torch.arange(atoms)
    session = node // _SESSION
    after = node[1:][session[1:] == session[:-1]]
    # Link near atoms of one topic, as linking by cosine would.
    by_topic = topic.argsort(stable=True)
    near = [torch.stack([by_topic[step:], by_topic[:-step]]) for step in (1, 2, 3)]
    mention = torch.stack([integers(atoms, 2 * atoms), atoms + zipf(concepts, 2 * atoms)])
    parts = [torch.stack([after - 1, after]), *near, mention]
    types = [EdgeType.TEMPORAL, *[EdgeType.SIMILARITY] * 3, EdgeType.ABSTRACTION]
    ends = torch.cat(parts, 1)
    kind = torch.cat([torch.full((p.shape[1],), int(t)) for p, t in zip(parts, types, strict=True)])
    start = 1.6e9 + 3600.0 * session.double() + 60.0 * (node % _SESSION)
    tokens = torch.randint(-60, 61, (atoms * _TOKENS, _TOKEN_WIDTH), generator=g, dtype=torch.int8)
    return IndexInput(
        embeddings=normalize(embeddings, dim=1),
        terms=zipf(_VOCABULARY, int(lengths.sum())),
        term_offsets=pad(lengths.cumsum(0), (1, 0)),
        vocab_size=_VOCABULARY,
        kind=torch.zeros(atoms, dtype=torch.int64),
        speaker=integers(_SPEAKERS, atoms),
        num_speakers=_SPEAKERS,
        session=session,
        time=start,
        log_words=torch.log1p(lengths.float()),
        is_question=integers(5, atoms) == 0,
        tells_time=integers(9, atoms) == 0,
        edges=EdgeBlock.of(ends[0], ends[1], kind, torch.rand(ends.shape[1], generator=g) + 0.05),
        num_nodes=atoms + concepts,
        tokens=tokens,
        pieces=zipf(_PIECES, atoms * _TOKENS).to(torch.int32),
        token_offsets=torch.arange(atoms + 1) * _TOKENS,
        num_pieces=_PIECES,
    )


def questions(data: IndexInput, count: int, *, seed: int = 1) -> QueryBatch:
    """Return noisy copies of random memories: most of their words, some of their tokens."""
    g = torch.Generator().manual_seed(seed)
    row = torch.randint(len(data.embeddings), (count,), generator=g)
    noise = torch.randn(count, _WIDTH, generator=g) / _WIDTH**0.5
    lane = torch.arange(_ASKED)
    length = data.term_offsets.diff()[row]
    place = data.term_offsets[row, None] + lane % length[:, None]
    assert data.tokens is not None and data.pieces is not None
    token = row[:, None] * _TOKENS + lane
    words = data.tokens[token].float()
    words += 20 * torch.randn(words.shape, generator=g)
    return QueryBatch(
        embedding=normalize(data.embeddings[row] + noise, dim=1),
        terms=data.terms[place].where(lane < length[:, None], -1),
        tokens=normalize(words, dim=2),
        pieces=data.pieces[token].long(),
        speakers=torch.zeros(count, data.num_speakers, dtype=torch.bool),
        asks_when=torch.rand(count, generator=g) < 0.1,
    )


def run(
    atoms: int,
    batches: list[int],
    device: str,
    presets: list[str],
    *,
    compared: int = 64,
    seconds: float = 2.0,
) -> list[dict[str, Any]]:
    """Report on each preset; each batch size is timed for the given seconds."""
    data = columns(atoms)
    asked = questions(data, max(*batches, compared))
    reports = []
    for preset in presets:
        begin = time.perf_counter()
        index = MemoryIndex.build(data, load_config(preset)).eval()
        report: dict[str, Any] = {"preset": preset, "atoms": atoms, "edges": index.graph.num_edges}
        report["build_s"] = time.perf_counter() - begin
        few = asked.rows(slice(0, compared))
        with torch.inference_mode():
            expected = index(few)
            begin = time.perf_counter()
            index(few)
            report["cpu_ms"] = {str(compared): (time.perf_counter() - begin) * 1000}
            if device == "cuda":
                index, asked = index.to("cuda"), asked.to("cuda")
                report["bytes"] = torch.cuda.memory_allocated()
                report |= _agreement(index(asked.rows(slice(0, compared))), expected)
            report["batches"] = {
                str(size): _measured(index, asked.rows(slice(0, size)), device, seconds)
                for size in batches
            }
        index, asked = index.to("cpu"), asked.to("cpu")
        reports.append(report)
        print(json.dumps(report), flush=True)
    return reports


def _agreement(found: Retrieval, expected: Retrieval) -> dict[str, float]:
    """Return the overlap of each list of hits, and the difference of scores at one place."""
    rows, scores = found.rows.cpu(), found.scores.cpu()
    common = (rows[:, :, None] == expected.rows[:, None, :]).any(2).float().mean()
    return {
        "same_hits": float(common),
        "score_error": float((scores - expected.scores).abs().nan_to_num(nan=0.0).max()),
        "confidence_error": float((found.confidence.cpu() - expected.confidence).abs().max()),
    }


def _measured(index: MemoryIndex, asked: QueryBatch, device: str, seconds: float) -> dict[str, Any]:
    """Return milliseconds of a batch; on a GPU also stages, launches, waits and idle share."""

    def once() -> None:
        index(asked)
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        once()
    spent: list[float] = []
    while len(spent) < 5 or (sum(spent) < seconds and len(spent) < 200):
        begin = time.perf_counter()
        once()
        spent.append(time.perf_counter() - begin)
    spent.sort()
    median, late = spent[len(spent) // 2], spent[int(0.95 * (len(spent) - 1))]
    report: dict[str, Any] = {
        "p50_ms": median * 1000,
        "p95_ms": late * 1000,
        "per_s": len(asked) / median,
        "n": len(spent),
    }
    stages = Stages()
    index(asked, stages=stages)
    report["stages_ms"] = {name: s * 1000 for name, s in stages.seconds.items()}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        once()
        report["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        report["waits"] = _waits(lambda: index(asked))
        report |= _launches(once, median)
    return report


def _waits(call: Callable[[], Any]) -> dict[str, int]:
    """Count the waits of the host for the device, by line of the package."""
    with _warning_of_waits(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    places = Counter(
        f"{Path(one.filename).parent.name}/{Path(one.filename).name}:{one.lineno}"
        for one in caught
        if "synchroniz" in str(one.message)
    )
    return dict(places.most_common())


@contextmanager
def _warning_of_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("warn")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _launches(once: Callable[[], Any], median: float) -> dict[str, Any]:
    """Return the kernels of a batch, their duration, and the share of time without any."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        once()
    spent: Counter[str] = Counter()
    launches = 0
    for one in seen.key_averages():
        if one.self_device_time_total > 0:
            spent[_short(one.key)] += one.self_device_time_total / 1000
            launches += one.count
    busy = sum(spent.values())
    return {
        "launches": launches,
        "busy_ms": busy,
        "idle_share": max(0.0, 1 - busy / (median * 1000)),
        "longest_ms": dict(spent.most_common(14)),
    }


def _short(name: str) -> str:
    """Return the name of a kernel without the part shared by all templates."""
    plain = (
        name.removeprefix("void ")
        .replace("at::native::", "")
        .replace("(anonymous namespace)::", "")
    )
    return plain[:90]


def main(arguments: list[str]) -> int:
    """Measure, print a line for each preset and size, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m bench.device", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--atoms", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--presets", nargs="+", default=["default"])
    parser.add_argument("--seconds", type=float, default=2.0, help="that each size is timed for")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    on = torch.cuda.get_device_name() if chosen.device == "cuda" else "cpu"
    found = [
        report
        for atoms in chosen.atoms
        for report in run(
            atoms, chosen.batch, chosen.device, chosen.presets, seconds=chosen.seconds
        )
    ]
    if chosen.json:
        whole = {"device": on, "torch": torch.__version__, "reports": found}
        chosen.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
