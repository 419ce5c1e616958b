"""Whole questions on a GPU: agreement with the CPU, speed, calls and waits of the host.

`python -m bench.device [--atoms 100000 1000000] [--batch 1 64 256] [--rich] [--mode MODE] [--half]
[--drawn-on-device] [--json OUT]`; needs only torch and numpy. Memories and questions are made up
(`bench.made_memory`). Each report is a line of JSON as soon as it is measured. Calls, waits and
passes by stage (`bench.counting`) need no GPU: `--device cpu` shows those of the CPU's path.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.counting import counted
from bench.made_memory import made_memory, made_on, questions
from bench.recorder import StandInRecorder
from graphmem_torch.config import Config, load_config
from graphmem_torch.index.captured import CapturedGraphs
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval, Stages
from graphmem_torch.rank.query import QueryBatch

__all__ = ["MODES", "Setting", "main", "run"]

MODES = ("eager", "fixed", "graph", "compile")
"""Ways to run a question. On a CPU, `graph` runs recorded operators again (`bench.recorder`)."""

_WHOLE = 1 << 40  # tile of all questions, so that one matrix is [B, A]


@dataclass(frozen=True)
class Setting:
    """Settings of a measurement.

    Attributes:
        atoms: Atoms of the memory.
        batches: Numbers of questions that are timed.
        device: `cpu` or `cuda`.
        rich: Whether the memory has documents, derived atoms, roles and days, and the questions a
            mask.
        mode: One of `MODES`.
        half: Whether floating-point buffers have half precision.
        drawn: Whether the memory is drawn on the device, without comparison with the CPU.
        compared: Questions that are compared with the CPU.
        seconds: Duration of the timing of each batch size.
    """

    atoms: int
    batches: tuple[int, ...] = (1, 64, 256)
    device: str = "cuda"
    rich: bool = False
    mode: str = "eager"
    half: bool = False
    drawn: bool = False
    compared: int = 64
    seconds: float = 2.0


def run(setting: Setting, presets: list[str]) -> list[dict[str, Any]]:
    """Report on each preset."""
    reports = []
    for preset in presets:
        begin = time.perf_counter()
        index, asked = _made(setting, load_config(preset))
        report: dict[str, Any] = {
            "preset": preset,
            "atoms": setting.atoms,
            "edges": index.graph.num_edges,
            "rich": setting.rich,
            "mode": setting.mode,
            "dtype": str(index.embeddings.dtype).removeprefix("torch."),
            "build_s": time.perf_counter() - begin,
        }
        with torch.inference_mode():
            if not setting.drawn:
                few = asked.rows(slice(0, setting.compared))
                expected = index(few)
                begin = time.perf_counter()
                index(few)
                elapsed = (time.perf_counter() - begin) * 1000
                report["cpu_ms"] = {str(setting.compared): elapsed}
                if setting.device == "cuda":
                    index, asked = index.to("cuda"), asked.to("cuda")
                    report |= _agreement(index(asked.rows(slice(0, setting.compared))), expected)
            if setting.device == "cuda":
                report["bytes"] = torch.cuda.memory_allocated()
            report["batches"] = {
                str(size): _measured(index, asked.rows(slice(0, size)), setting)
                for size in setting.batches
            }
        reports.append(report)
        print(json.dumps(report), flush=True)
    return reports


def _made(setting: Setting, config: Config) -> tuple[MemoryIndex, QueryBatch]:
    """Return the index of a made-up memory, and questions for it."""
    count = max(*setting.batches, setting.compared)
    if setting.drawn:
        dtype = torch.float16 if setting.half else torch.float32
        state, asked = made_on(setting.device, setting.atoms, dtype, count)
        index = MemoryIndex(state, config).to(setting.device).eval()
        return index.fix_shapes(setting.mode == "fixed"), asked
    data = made_memory(setting.atoms, rich=setting.rich)
    index = MemoryIndex.build(data, config).eval().fix_shapes(setting.mode == "fixed")
    return (
        index.half() if setting.half else index,
        questions(data, count, rich=setting.rich, masked=setting.rich),
    )


def _agreement(found: Retrieval, expected: Retrieval) -> dict[str, float]:
    """Return the overlap of each list of hits, and the difference of scores at one place."""
    rows, scores = found.rows.cpu(), found.scores.cpu()
    common = (rows[:, :, None] == expected.rows[:, None, :]).any(2).float().mean()
    return {
        "same_hits": float(common),
        "score_error": float((scores - expected.scores).abs().nan_to_num(nan=0.0).max()),
        "confidence_error": float((found.confidence.cpu() - expected.confidence).abs().max()),
    }


def _measured(index: MemoryIndex, asked: QueryBatch, setting: Setting) -> dict[str, Any]:
    """Return milliseconds of a batch, and calls and waits by stage; on a GPU also launches."""
    ask: Callable[..., Retrieval] = index
    report: dict[str, Any] = {}
    if setting.mode == "compile":
        begin = time.perf_counter()
        torch.compiler.reset()
        ask = torch.compile(index, dynamic=False)
        ask(asked)
        report["compile_s"] = time.perf_counter() - begin

    def once() -> None:
        ask(asked)
        if setting.device == "cuda":
            torch.cuda.synchronize()

    index.capture(_graphs(setting))
    for _ in range(3):
        once()
    spent: list[float] = []
    while len(spent) < 5 or (sum(spent) < setting.seconds and len(spent) < 200):
        begin = time.perf_counter()
        once()
        spent.append(time.perf_counter() - begin)
    spent.sort()
    median, late = spent[len(spent) // 2], spent[int(0.95 * (len(spent) - 1))]
    report |= {
        "p50_ms": median * 1000,
        "p95_ms": late * 1000,
        "per_s": len(asked) / median,
        "n": len(spent),
    }
    if index.graphs.records:
        report["graphs"] = index.graphs.report()
        work = counted(lambda _: index(asked, tile=_WHOLE))
        report["work"] = {"all": work["all"].report()}
    elif setting.mode != "compile":
        stages = Stages()
        index(asked, stages=stages)
        report["stages_ms"] = {name: s * 1000 for name, s in stages.seconds.items()}
        cells = len(asked) * setting.atoms
        work = counted(lambda own: index(asked, stages=own, tile=_WHOLE), cells)
        report["work"] = {stage: counts.report() for stage, counts in work.items()}
    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        once()
        report["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        report["waits"] = _waits(lambda: ask(asked))
        report |= _launches(once, median)
    return report


def _graphs(setting: Setting) -> CapturedGraphs | None:
    """Return the graphs that answer a batch, if the mode has any."""
    if setting.mode != "graph":
        return None
    return CapturedGraphs.on(setting.device) or CapturedGraphs(StandInRecorder())


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
    parser.add_argument("--rich", action="store_true", help="documents, derived atoms, a mask")
    parser.add_argument("--mode", default="eager", help=", ".join(MODES))
    parser.add_argument("--half", action="store_true", help="buffers in half precision")
    parser.add_argument(
        "--drawn-on-device",
        action="store_true",
        help="draw the memory on the device; for sizes that the host cannot build",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="that each size is timed for")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.mode not in MODES:
        parser.error(f"--mode: expected {', '.join(MODES)}, got {chosen.mode}; choose another")
    if chosen.rich and chosen.drawn_on_device:
        parser.error(
            "--rich: expected a memory that the host builds, got --drawn-on-device; leave out one"
        )
    on = torch.cuda.get_device_name() if chosen.device == "cuda" else "cpu"
    found = [
        report
        for atoms in chosen.atoms
        for report in run(
            Setting(
                atoms=atoms,
                batches=tuple(chosen.batch),
                device=chosen.device,
                rich=chosen.rich,
                mode=chosen.mode,
                half=chosen.half,
                drawn=chosen.drawn_on_device,
                seconds=chosen.seconds,
            ),
            chosen.presets,
        )
    ]
    if chosen.json:
        whole = {"device": on, "torch": torch.__version__, "reports": found}
        chosen.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
