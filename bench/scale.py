"""Indexing and querying at scale, on disk: where the seconds and the megabytes go.

`python -m bench.scale --data PATH/novels.jsonl.xz --atoms 100000 --embedder NAME --json OUT`

Wrappers time the encoder and the other stages separately. One question in two is a sentence of an
indexed paragraph, the other of a paragraph that is not indexed.
"""

from __future__ import annotations

import json
import lzma
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from tyro.conf import arg

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory, asking
from graphmem_torch.memory.index_builder import IndexBuilder
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.quality.common.encoder import TimedEmbedder
from graphmem_torch.quality.common.measure import (
    Stopwatch,
    code_version,
    peak_memory,
    percentiles,
)
from graphmem_torch.quality.common.texts import split_at_marks
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.concepts import PatternConcepts, SpacyConcepts
from graphmem_torch.text.sentence_transformer import load_embedder

__all__ = ["main", "run"]


@dataclass(frozen=True)
class Scale:
    """Index paragraphs into a store on disk, open it again, ask questions alone and in batches.

    Attributes:
        data: JSON lines (`.xz` or plain) with `text`, `book`, `chapter`, `par`.
        atoms: Paragraphs to index.
        embedder: Name of the encoder, as for `graphmem index`; `hashing` omits the cost of a model.
        preset: Preset or path of a YAML file.
        concepts: Concept extractor: `auto`, `spacy`, `pattern` or `none`.
        device: `auto`, `cpu`, `cuda`.
        questions: Questions asked one at a time, and again in batches.
        batch: Questions of a batch.
        store: Folder for the store, kept afterwards; a temporary one by default.
        json: File to write the figures to; standard output by default.
        seed: Seed of the choice of questions.
    """

    data: Annotated[Path, arg(metavar="FILE")]
    atoms: int = 100_000
    embedder: str = "all-MiniLM-L6-v2"
    preset: str = "default"
    concepts: str = "auto"
    device: str = "auto"
    questions: int = 256
    batch: int = 64
    store: Path | None = None
    json: Path | None = None
    seed: int = 0


def run(options: Scale) -> dict[str, Any]:
    """Run the measurement and return its figures."""
    kept = options.store is not None
    folder = options.store or Path(tempfile.mkdtemp(prefix="graphmem-scale-"))
    clock = Stopwatch()
    try:
        return _measure(options, folder, clock)
    finally:
        clock.stop()
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _measure(options: Scale, folder: Path, clock: Stopwatch) -> dict[str, Any]:
    # The parts do not overlap: the rest of the whole is reading, linking and book-keeping.
    clock.watch(SpacyConcepts, "extract", "concepts")
    clock.watch(PatternConcepts, "extract", "concepts")
    clock.watch(SimilarRows, "edges", "similarity")
    clock.watch(MemoryStore, "append", "store")
    clock.watch(IndexBuilder, "__call__", "index")
    clock.watch(IndexBuilder, "save", "snapshot")
    config = load_config(options.preset, {"link.concepts": options.concepts})
    inner = load_embedder(options.embedder, options.device, token_dim=config.embedder.token_dim)
    embedder = TimedEmbedder(inner, clock)
    embedder.encode(["warm up"])
    clock.seconds.clear()
    opening = {"config": config, "device": options.device, "embedder": embedder}

    with peak_memory() as peak_index:
        start = time.perf_counter()
        with Memory.open(folder, **opening) as memory:
            added = memory.add(paragraphs(options.data, options.atoms), progress=True)
            stats = memory.stats()
        total = time.perf_counter() - start
    stages = dict(clock.seconds)
    encoder = stages.get("encoder", 0.0)
    indexing = {
        "seconds": total,
        "stages_s": stages | {"other": total - sum(stages.values())},
        "atoms_per_s": added.new / total,
        "atoms_per_s_without_encoder": added.new / max(total - encoder, 1e-9),
        "peak_mb": peak_index.megabytes,
        "disk_mb": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6,
    }

    asked = questions(options.data, options.atoms, options.questions, options.seed)
    with peak_memory() as peak_query:
        start = time.perf_counter()
        with Memory.open(folder, mode="r", **opening) as memory:
            memory.index  # noqa: B018 - opened at first access
            open_seconds = time.perf_counter() - start
            start = time.perf_counter()
            memory.retrieve(asked[:1])
            first_seconds = time.perf_counter() - start
            clock.watch(asking, "encode_questions", "question")
            clock.watch(memory.index, "forward", "rank")
            sizes = (1, options.batch)
            batches = {str(size): _latency(memory, clock, asked, size) for size in sizes}
    return {
        "atoms": added.new,
        "embedder": options.embedder,
        "preset": options.preset,
        "concepts": options.concepts,
        "commit": code_version(),
        "threads": torch.get_num_threads(),
        "stats": stats,
        "index": indexing,
        "open_s": open_seconds,
        "first_query_s": first_seconds,
        "query": batches,
        "query_peak_mb": peak_query.megabytes,
        "seed": options.seed,
    }


def _latency(memory: Memory, clock: Stopwatch, asked: Sequence[str], size: int) -> dict[str, Any]:
    """Return milliseconds of a batch: in all, without the encoder, and of its parts."""
    memory.retrieve(list(asked[:size]))
    whole: list[float] = []
    parts: dict[str, list[float]] = {}
    for start in range(0, len(asked) - size + 1, size):
        # An encoder that caches its last texts may not be called at all.
        clock.seconds = {"encoder": 0.0}
        begin = time.perf_counter()
        memory.retrieve(list(asked[start : start + size]))
        whole.append(time.perf_counter() - begin)
        spent = dict(clock.seconds)
        # The time of the question's tensors includes the encoder.
        spent["question"] -= spent["encoder"]
        spent["answer"] = whole[-1] - sum(spent.values())
        for part, seconds in spent.items():
            parts.setdefault(part, []).append(seconds)
    own = [total - encoder for total, encoder in zip(whole, parts.get("encoder", []), strict=True)]
    return {
        "batches": len(whole),
        "ms": percentiles(whole),
        "ms_without_encoder": percentiles(own),
        "ms_per_question_without_encoder": percentiles([seconds / size for seconds in own]),
        "stages_ms": {part: percentiles(seconds) for part, seconds in parts.items()},
    }


def paragraphs(path: Path, count: int | None) -> Iterator[Atom]:
    """Yield the first `count` paragraphs as chunks; a book is a session."""
    for number, row in enumerate(_rows(path)):
        if number == count:
            return
        name = f"{row['book']}/{row['chapter']}/{row['par']}"
        yield Atom(id=name, text=row["text"], kind="chunk", session=row["book"])


def questions(path: Path, indexed: int, count: int, seed: int) -> list[str]:
    """Return sentences of 5 to 30 words, half of them from indexed paragraphs."""
    inside: list[str] = []
    outside: list[str] = []
    for number, row in enumerate(_rows(path)):
        found = [
            sentence for sentence in split_at_marks(row["text"]) if 5 <= len(sentence.split()) <= 30
        ]
        (inside if number < indexed else outside).extend(found[:1])
    chance = random.Random(seed)
    half = count // 2 if outside else 0
    chosen = chance.sample(inside, min(count - half, len(inside)))
    chosen += chance.sample(outside, min(half, len(outside)))
    chance.shuffle(chosen)
    return chosen


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            if row["text"].strip():
                yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the report."""
    command(Scale, run, arguments, __doc__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
