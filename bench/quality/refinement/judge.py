"""Judge of the cost and savings of refinement over a long life (`docs/evaluation.md` 4)."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress

from ..common.encoder import CachingEmbedder
from ..common.measure import percentiles
from ..common.run import Run
from ..common.scores import gain
from ..common.tables import Head, Table
from ..request import Judged, Request
from .sessions import Asked, Life, lived
from .sweep import GRID, sweep, sweep_table

__all__ = ["SESSIONS", "judge"]

SESSIONS = (1_000, 2_000, 5_000, 10_000)
"""Default numbers of sessions to measure after; the last are all."""

_RUNS = 25  # number of consolidations of a life
_CUTOFF = 10

Keep = Callable[[Memory, int], object]
"""Function that reduces a memory to a number of atoms."""


def judge(
    request: Request,
    *,
    shares: Sequence[float] = (0.5, 0.25),
    together: int = 100,
    timed: int = 50,
    grid: Sequence[tuple[float, float]] = GRID,
    resamples: int = 2000,
) -> Judged:
    """Run many sessions with memories that keep all, or half, and ask along the way.

    Answers are recorded as used. Two baselines keep as much as refinement: the newest turns, and
    random ones. On LoCoMo, memory and recall under decay are measured.

    Args:
        request: Evaluation request; its data is a LoCoMo file.
        shares: Final shares of all turns that are kept.
        together: Sessions that are added before their questions are asked.
        timed: Single questions, at each number of sessions.
        grid: Grid of decay on LoCoMo, see `sweep.GRID`.
        resamples: Number of resamples of the intervals.

    Raises:
        InputError: Data that cannot be used, numbers of sessions that do not grow.
    """
    sizes = SESSIONS if request.sizes is None else request.sizes
    if not sizes or sizes[0] < _RUNS or any(b <= a for a, b in pairwise(sizes)):
        raise InputError(
            f"--sizes: expected numbers of sessions from {_RUNS} on that grow, got "
            f"{' '.join(map(str, sizes)) or 'none'}; give such as 1000 10000"
        )
    run = Run(request, resamples)
    config, encoder, drawn = run.config, run.encoder, run.drawn
    life = lived(sizes[-1], seed=request.seed)
    with encoder.caching():
        lives = {
            name: _live(life, sizes, own, keep, (config, encoder), request, (together, timed))
            for name, own, keep in _systems(len(life.atoms), shares, request.seed)
        }
        locomo = sweep(request, config, encoder, drawn, grid)
    first = next(iter(lives.values()))
    return run.judged(
        "refinement",
        lambda report: [*_tables(report), *sweep_table(locomo)],
        n={
            "sessions": life.sessions,
            "turns": len(life.atoms),
            "facts": len(life.facts),
            "asked": len(first.found),
            "at the end": len(first.last),
            "alone": timed,
        },
        embedder=encoder.name,
        systems={name: one.summary(sizes, first, drawn) for name, one in lives.items()},
        locomo=locomo,
    )


@dataclass(eq=False)
class _Lived:
    """Results of a memory along its life.

    Attributes:
        when: [Q] session of each question.
        found: [Q] whether the value known last was in the first ten.
        last: [F] the same for every fact, at the end.
        sizes: Contents and question times by number of sessions.
        refining: CPU seconds of all consolidations, and their number.
    """

    when: list[int] = field(default_factory=list)
    found: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    sizes: list[dict[str, Any]] = field(default_factory=list)
    refining: list[float] = field(default_factory=list)

    def summary(
        self, sizes: Sequence[int], full: _Lived, drawn: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return means with intervals, and differences to the memory that keeps all."""
        when, found = torch.tensor(self.when), torch.tensor(self.found, dtype=torch.float64)
        beside = found - torch.tensor(full.found, dtype=torch.float64)
        last = torch.tensor(self.last, dtype=torch.float64)
        parts = []
        for begin, end, size in zip([0, *sizes], sizes, self.sizes, strict=False):
            own = (when > begin) & (when <= end)
            parts.append(
                {
                    "sessions": end,
                    "asked": int(own.sum()),
                    **size,
                    "recall": mean_interval(found[own], **drawn),
                    "difference": mean_interval(beside[own], **drawn),
                }
            )
        apart = last - torch.tensor(full.last, dtype=torch.float64)
        return {
            "sizes": parts,
            "recall": mean_interval(last, **drawn),
            "difference": mean_interval(apart, **drawn),
            "refining_cpu_s": sum(self.refining),
            "longest_cpu_s": max(self.refining, default=0.0),
        }


def _systems(
    turns: int, shares: Sequence[float], seed: int
) -> list[tuple[str, dict[str, Any], Keep | None]]:
    """Return names, differing settings, and the periodic operation of each system."""

    def refined(memory: Memory, count: int) -> object:
        return memory.upkeep.consolidate()

    def newest(memory: Memory, count: int) -> object:
        columns = memory.store.columns()
        own = ~columns.is_concept
        order = columns.time[own].argsort(stable=True)
        return _archive(memory, columns.node[own][order], count)

    dice = torch.Generator().manual_seed(seed)

    def any_of_them(memory: Memory, count: int) -> object:
        columns = memory.store.columns()
        nodes = columns.node[~columns.is_concept]
        return _archive(memory, nodes[torch.randperm(len(nodes), generator=dice)], count)

    found: list[tuple[str, dict[str, Any], Keep | None]] = [("all", {}, None)]
    for share in shares:
        own = {"max_memories": max(1, round(turns * share))}
        found.append((f"{100 * share:g} %, refined", own, refined))
    own = {"max_memories": max(1, round(turns * shares[0]))}
    name = f"{100 * shares[0]:g} %"
    return [*found, (f"{name}, the newest", own, newest), (f"{name}, any", own, any_of_them)]


def _archive(memory: Memory, nodes: Tensor, count: int) -> int:
    """Archive the first of some nodes, so that `count` are left."""
    over = len(nodes) - count
    if over <= 0:
        return 0
    return memory.upkeep.archive([atom.id for atom in memory.store.atoms(nodes[:over].tolist())])


def _live(
    life: Life,
    sizes: Sequence[int],
    own: Mapping[str, Any],
    keep: Keep | None,
    made: tuple[Config, CachingEmbedder],
    request: Request,
    numbers: tuple[int, int],  # sessions added together, and single questions
) -> _Lived:
    """Run a life with a memory that refines itself in some way."""
    config, encoder = made
    together, timed = numbers
    config = replace(
        config,
        refine=replace(config.refine, max_memories=0, prune_below=0.0)
        if keep is None
        else replace(config.refine, **own),
    )
    lived, now = _Lived(), [0.0]
    every = max(together, life.sessions // _RUNS)
    with tempfile.TemporaryDirectory(prefix="graphmem-refinement-") as folder:
        options: dict[str, Any] = {
            "config": config,
            "embedder": encoder,
            "concepts": encoder.extractor(config.link.concepts),
            "device": request.device,
            "clock": lambda: now[0],
        }
        with Memory.open(Path(folder) / "memory", **options) as memory:
            blocks = Progress(
                list(life.blocks(min(together, sizes[0]))), "sessions", shown=request.progress
            )
            marks = list(sizes)
            refined = 0
            for told in blocks:
                now[0] = told.now
                memory.add(told.atoms)
                there = memory.store.known([old for old, _ in told.superseded])
                for old, new in told.superseded:
                    if old in there:
                        memory.facts.supersede(old, new)
                hits = _hits(memory, told.asked)
                lived.when += [told.session] * len(hits)
                lived.found += [float(first is not None) for first in hits]
                memory.touch([first for first in hits if first is not None])
                if keep is not None and told.session - refined >= every:
                    refined, start = told.session, time.process_time()
                    keep(memory, int(own["max_memories"]))
                    lived.refining.append(time.process_time() - start)
                if marks and told.session >= marks[0]:
                    marks.pop(0)
                    lived.sizes.append(_measured(memory, life, timed, request.seed))
            names = {*memory.store.ids()}
            archive = memory.upkeep.archived()
            names |= {*archive.store.ids()} if archive is not None else set()
            every_fact = [life.asked(i, now[0], names) for i in range(len(life.facts))]
            lived.last += [float(first is not None) for first in _hits(memory, every_fact)]
    return lived


def _hits(memory: Memory, asked: Sequence[Asked]) -> list[str | None]:
    """Return for each question the first answering hit in ten."""
    if not asked:
        return []
    results = memory.retrieve([each.text for each in asked], k=_CUTOFF)
    return [
        next((hit.id for hit in result.hits if hit.id in each.gold), None)
        for each, result in zip(asked, results, strict=True)
    ]


def _measured(memory: Memory, life: Life, timed: int, seed: int) -> dict[str, Any]:
    """Measure the contents of a memory, and CPU milliseconds of single questions."""
    dice, seconds = random.Random(seed), []
    memory.retrieve(life.questions[0], k=_CUTOFF)
    for question in dice.choices(life.questions, k=timed):
        start = time.process_time()
        memory.retrieve(question, k=_CUTOFF)
        seconds.append(time.process_time() - start)
    buffers = memory.index.buffers()
    archive = memory.upkeep.archived()
    return {
        "atoms": len(memory),
        "archived": 0 if archive is None else len(archive),
        "index_mb": sum(each.numel() * each.element_size() for each in buffers) / 1e6,
        "cpu_ms": percentiles(seconds),
    }


def _interval(value: Sequence[float] | None) -> str:
    return "-" if value is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * v for v in value))


def _tables(report: Mapping[str, Any]) -> list[Table]:
    n = report["n"]
    heads = [
        Head("memory"),
        Head("sessions", lambda value: f"{value:,}"),
        Head("atoms", lambda value: f"{value:,}"),
        Head("index, MB", lambda value: f"{value:.1f}"),
        Head("p50", lambda value: f"{value:.1f}"),
        Head("p95", lambda value: f"{value:.1f}"),
        Head("recall@10 since", _interval),
        Head("less than all", gain),
    ]
    rows = []
    for name, found in report["systems"].items():
        for part in found["sizes"]:
            times = part["cpu_ms"]
            rows.append(
                [
                    *(name, part["sessions"], part["atoms"], part["index_mb"]),
                    *(times["p50"], times["p95"], part["recall"], part["difference"]),
                ]
            )
    said = (
        f"{n['turns']:,} turns on {n['facts']:,} facts in {n['sessions']:,} sessions, "
        f"{n['asked']:,} questions; {n['alone']} alone, CPU milliseconds; {report['embedder']}"
    )
    last = [
        [
            name,
            found["recall"],
            found["difference"],
            found["refining_cpu_s"],
            found["longest_cpu_s"],
        ]
        for name, found in report["systems"].items()
    ]
    return [
        Table(heads, rows, [said]),
        Table(
            [
                Head("memory"),
                Head("recall@10 of every fact", _interval),
                Head("less than all", gain),
                Head("refining, CPU s", lambda value: f"{value:.1f}"),
                Head("longest", lambda value: f"{value:.1f}"),
            ],
            last,
            [f"at the end, {n['at the end']:,} questions"],
        ),
    ]
