"""Indexing beside its encoder alone: CPU, wall, what each stage is busy, and memory.

`python -m bench.indexing --data FILE.jsonl --atoms 2000 --concepts pattern --json OUT`

The encoder alone, a serial run and runs in stages follow each other, `rounds` times, each in a
process of its own. All CPU is that of the process and its workers.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
from tyro.conf import arg

from bench.command import command
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.readers.jsonl import read_records
from graphmem_torch.text.embedder import Embedder, Encoded
from graphmem_torch.text.sentence_transformer import load_embedder

__all__ = ["main", "run"]

_BATCH = 256  # texts of one call of the encoder alone


@dataclass(frozen=True)
class Indexing:
    """Measure `Memory.add_files` with and without stages, beside the encoder alone.

    Attributes:
        data: JSON lines, one paragraph each.
        atoms: Lines to index.
        embedder: Name of the encoder.
        concepts: Finder of concepts: `spacy`, `pattern` or `none`.
        workers: Numbers of worker processes to compare.
        threads: Threads of torch.
        rounds: Times that all is measured; medians are reported.
        json: File to write the figures to; standard output by default.
        part: Measure only this part, in this process: `encoder`, or a number of workers.
    """

    data: Annotated[Path, arg(metavar="FILE")]
    atoms: int = 2_000
    embedder: str = "all-MiniLM-L6-v2"
    concepts: str = "pattern"
    workers: tuple[int, ...] = (0, 1)
    threads: int = 1
    rounds: int = 1
    json: Path | None = None
    part: str = ""


class _Timed:
    """Encoder that adds up the CPU of its calls, in whichever thread they run."""

    def __init__(self, inner: Embedder) -> None:
        self._inner, self.seconds = inner, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        start = time.thread_time()
        try:
            return self._inner.encode(texts)
        finally:
            self.seconds += time.thread_time() - start


def run(options: Indexing) -> dict[str, Any]:
    """Run the measurement and return its figures."""
    if options.part:
        return _measured(options)
    parts = ["encoder", *map(str, options.workers)]
    found: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    for _ in range(options.rounds):
        for part in parts:
            found[part].append(_apart(options, part))
    medians = {
        part: {name: statistics.median(each[name] for each in own) for name in own[0]}
        for part, own in found.items()
    }
    alone = medians["encoder"]["cpu_s"]
    for part in parts[1:]:
        medians[part]["cpu_over_encoder"] = medians[part]["cpu_s"] / alone
    return {
        **{name: getattr(options, name) for name in ("atoms", "embedder", "concepts", "threads")},
        "load": os.getloadavg()[0],
        "rounds": options.rounds,
        "runs": medians,
    }


def _apart(options: Indexing, part: str) -> dict[str, float]:
    """Measure a part in a fresh process."""
    given = [f"--{name}={getattr(options, name)}" for name in ("data", "atoms", "embedder")]
    given += [f"--concepts={options.concepts}", f"--threads={options.threads}", f"--part={part}"]
    words = [sys.executable, "-m", "bench.indexing", *given]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def _measured(options: Indexing) -> dict[str, float]:
    torch.set_num_threads(options.threads)
    encoder = _Timed(load_embedder(options.embedder, "cpu"))
    encoder.encode(["warm up"])
    with options.data.open("rb") as lines:
        own = list(islice(lines, options.atoms))
    if options.part == "encoder":
        texts = [atom.rendered for atom in read_records(own, str(options.data))]
        start, encoder.seconds = time.perf_counter(), 0.0
        for at in range(0, len(texts), _BATCH):
            encoder.encode(texts[at : at + _BATCH])
        return {"cpu_s": encoder.seconds, "wall_s": time.perf_counter() - start}
    config = load_config("default", {"link.concepts": options.concepts})
    with tempfile.TemporaryDirectory(prefix="graphmem-indexing-") as folder:
        file = Path(folder, "part.jsonl")
        file.write_bytes(b"".join(own))
        with Memory.open(Path(folder, "store"), config=config, embedder=encoder) as memory:
            memory.add(["Load the finder of concepts."])
            return _indexed(memory, file, int(options.part), encoder)


def _indexed(memory: Memory, file: Path, workers: int, encoder: _Timed) -> dict[str, float]:
    """Return the figures of adding a file, without building the index."""
    encoder.seconds = 0.0
    begun = time.perf_counter(), time.process_time(), time.thread_time()
    done = memory.add_files(file, workers=workers)
    wall, process, writer = (
        end - start
        for end, start in zip(
            (time.perf_counter(), time.process_time(), time.thread_time()), begun, strict=True
        )
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    beside = children.ru_utime + children.ru_stime
    cpu, thread = process + beside, process - writer
    busiest = max(writer, thread, beside / max(workers, 1))
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "writer_s": writer,
        "encoder_thread_s": thread,
        "workers_s": beside,
        "without_encoder_ms": 1e3 * (cpu - encoder.seconds) / max(done.new, 1),
        # What two cores that do nothing else need at least.
        "bound_over_half_cpu": max(busiest, cpu / 2) / (cpu / 2),
        "wall_over_half_cpu": wall / (cpu / 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "worker_peak_mb": children.ru_maxrss / 1e3,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the report."""
    command(Indexing, run, arguments, __doc__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
