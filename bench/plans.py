"""Query plans: their gain on human questions, and their cost at scale.

`python -m bench.plans --data ROOT [--json OUT]`

Compares plans on LoCoMo and LongMemEval below a data root: windows, concepts, both, and the first
or latest hits in front, each against no plan, with 95 % bootstrap intervals of the difference.

`python -m bench.plans --atoms 100000 [--store DIR] [--json OUT]`

Generates diaries of five years: who did what where, written on the day, in sessions of twenty. A
question names a person, a place and a month; its answers are known. It is asked with a plan chosen
from its words and without, alternately, one at a time and in batches. The window is always right,
unlike for human questions (`docs/evaluation.md` 6).
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from tyro.conf import arg

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.ops.sorted_rows import merged_order, sorted_order
from graphmem_torch.quality.common.chats import read_chats
from graphmem_torch.quality.common.encoder import CachingEmbedder, TimedEmbedder, load_encoders
from graphmem_torch.quality.common.measure import Stopwatch, code_version, percentiles
from graphmem_torch.quality.common.rankings import gold_positions
from graphmem_torch.quality.common.scores import group_masks
from graphmem_torch.quality.common.sets import locomo_set
from graphmem_torch.quality.common.task import RetrievalTask, build_tasks
from graphmem_torch.quality.request import Request
from graphmem_torch.results import QueryPlan, Result
from graphmem_torch.text.sentence_transformer import load_embedder

__all__ = ["Plans", "main", "run", "variants"]

_PEOPLE = re.findall(
    r"\w+", "Ada Ben Cleo Dora Emil Finn Greta Hugo Iris Jonas Klara Liam Mona Nils Olga"
)
_PLACES = re.findall(
    r"\w+",
    "Lisbon Oslo Kyoto Quito Porto Graz Malmo Turin Bergen Ghent Basel Krakow Seville Nantes Riga "
    "Leiden Zagreb Tartu Varna Split Bari Cork Derry Lille Namur Opole Padua Reims Sibiu Trier",
)
_DONE = re.findall(
    r"[^|]+",
    "repaired an old bicycle|sold a painting|met a cousin|lost a wallet|learned to bake rye bread|"
    "heard a string quartet|missed the last ferry|bought a violin|planted tomatoes|saw a comet|"
    "ran a half marathon|adopted a grey cat|visited a printing museum|gave a talk on bees|"
    "cooked for twelve guests|found a first edition|changed the tyres|borrowed a canoe",
)
_SAID = (
    "{who} {done} in {where} with {whom}, for {price} euros.",
    "In {where} {who} {done}; {whom} was there, too, on tram {price}.",
    "It rained in {where}, but {who} and {whom} {done} after {price} steps.",
    "{whom} says that {who} {done} near the station of {where}, platform {price}.",
)
_FIRST, _DAYS = datetime(2019, 1, 1, 9, tzinfo=UTC), 5 * 365
_SESSION = 20
_CUTOFFS = (5, 10, 25)


@dataclass(frozen=True)
class Plans:
    """Fill a store with diaries, or open a filled one, and ask it; or ask a data set.

    Attributes:
        data: Folder of the data sets; without it, diaries are generated.
        atoms: Number of memories.
        embedder: Name of the encoder, as for `graphmem index`.
        preset: Preset or path of a YAML file.
        device: `auto`, `cpu`, `cuda`.
        questions: Questions asked one at a time, and again in batches.
        batch: Questions per batch.
        store: Folder of the store, kept for reuse; a temporary one by default.
        json: File to write the figures to; standard output by default.
        seed: Seed of the diaries and the questions.
    """

    data: Annotated[Path | None, arg(metavar="ROOT")] = None
    atoms: int = 100_000
    embedder: str = "all-MiniLM-L6-v2"
    preset: str = "default"
    device: str = "auto"
    questions: int = 200
    batch: int = 64
    store: Annotated[Path | None, arg(metavar="DIR")] = None
    json: Path | None = None
    seed: int = 0


def run(options: Plans) -> dict[str, Any]:
    """Run the measurement and return its figures."""
    if options.data is not None:
        return _added(options.data, options)
    folder = options.store or Path(tempfile.mkdtemp(prefix="graphmem-plans-"))
    try:
        return _measure(options, folder)
    finally:
        if options.store is None:
            shutil.rmtree(folder, ignore_errors=True)


Variant = Callable[[QueryPlan], QueryPlan | None]
"""Function from a plan chosen from a question to the part that is kept; None: no plan."""


def variants() -> dict[str, Variant]:
    """Return variants of plans, with one part each."""

    def dated(plan: QueryPlan, **change: Any) -> QueryPlan | None:
        return None if plan.between is None else replace(plan, order="relevance", **change)

    def ordered(plan: QueryPlan) -> QueryPlan | None:
        if plan.order == "relevance":
            return None
        return QueryPlan(best=None, hops=0, order=plan.order, reorder_top=3)

    alone = {"hops": 0, "concepts": ()}
    return {
        "dates": partial(dated, **alone),
        "dates, no giving way": partial(dated, **alone, min_in_window=0, match=0.0),
        "dates, concepts": dated,
        "order": ordered,
    }


def _added(data: Path, options: Plans) -> dict[str, Any]:
    """Return questions, planned ones, and the gain in recall, by set, variant and group."""
    request = Request(data=data, preset=options.preset, device=options.device)
    (encoder,) = load_encoders(request)
    found = {}
    for name, asked in (
        ("locomo", locomo_set(data / "locomo").answerable()),
        ("longmemeval", read_chats(data / "longmemeval")),
    ):
        tasks, _ = build_tasks(
            asked.conversations, request.settings, encoder, options.device, False, kind=asked.kind
        )
        groups = dict(asked.groups)
        found[name] = _compared(tasks, request.settings, encoder, groups, options.seed)
    return {"preset": options.preset, "commit": code_version(), "sets": found}


def _compared(
    tasks: Sequence[RetrievalTask],
    settings: Config,
    encoder: CachingEmbedder,
    groups: Mapping[str, tuple[int, ...]],
    seed: int,
) -> dict[str, Any]:
    """Return questions, recall without a plan, and its gain, by variant and group of one set."""
    for task in tasks:
        task.adopt(settings)

    def recall(variant: Variant | None) -> tuple[Tensor, Tensor]:  # [B, cutoffs], [B] bool
        found, planned = [], []
        for task in tasks:
            with encoder.caching():
                results = task.retrieve(task.questions, max(_CUTOFFS), plan=variant is not None)
                if variant is not None:
                    plans = [variant(own.plan) if own.plan else None for own in results]
                    results = task.retrieve(task.questions, max(_CUTOFFS), plan=plans)
            ranked = task.positions([[hit.id for hit in result.hits] for result in results])
            places = gold_positions(ranked, task.gold, len(task.ids))
            found.append(ranking_measures(places, task.gold, _CUTOFFS)["recall"])
            planned += [result.plan is not None for result in results]
        return torch.cat(found), torch.tensor(planned)

    names = [str(cutoff) for cutoff in _CUTOFFS]
    masks = group_masks(torch.cat([task.categories for task in tasks]), groups)
    before = recall(None)[0]
    told = {}
    for name, variant in variants().items():
        after, planned = recall(variant)
        told[name] = {
            group: {
                "n": int(mask.sum()),
                "before": interval_table(before[mask], names, seed=seed),
                "difference": interval_table((after - before)[mask], names, seed=seed),
            }
            for group, mask in {"planned": planned, **masks}.items()
        }
    return told


def _measure(options: Plans, folder: Path) -> dict[str, Any]:
    clock = Stopwatch()
    config = load_config(options.preset, {"link.concepts": "pattern"})
    inner = load_embedder(options.embedder, options.device, token_dim=config.embedder.token_dim)
    embedder = TimedEmbedder(inner, clock)
    opening = {"config": config, "device": options.device, "embedder": embedder}
    told = list(_told(options.atoms, options.seed))
    with Memory.open(folder, **opening) as memory:
        memory.add([atom for atom, _ in told], progress=True)
    asked = _questions(told, options.questions, options.seed)
    with Memory.open(folder, mode="r", **opening) as memory:
        index = memory.index
        results = _asked(memory, asked, options, clock)
        when, order = index.time, index.time_order
        assert order is not None
        follow = _follow(when, order)
        edges = index.graph.num_edges
    return {
        "atoms": options.atoms,
        "nodes": index.num_nodes,
        "edges": edges,
        "embedder": options.embedder,
        "preset": options.preset,
        "questions": len(asked),
        "commit": code_version(),
        "threads": torch.get_num_threads(),
        "device": str(index.embeddings.device),
        **results,
        "one_more_atom_ms": follow,
        "seed": options.seed,
    }


def _asked(
    memory: Memory, asked: Mapping[str, set[str]], options: Plans, clock: Stopwatch
) -> dict[str, Any]:
    """Return latencies with a plan and without, interleaved; the size after each step; recall."""
    ways: dict[str, Callable[[Sequence[str]], list[Result]]] = {
        "plan": lambda part: memory.retrieve(list(part), k=10, scope=Scope(plan=True)),
        "no plan": lambda part: memory.retrieve(list(part), k=10, scope=Scope(plan=False)),
    }
    listed = list(asked)
    for ask in ways.values():
        ask(listed[: options.batch])
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    found: dict[str, list[Result]] = {name: [] for name in ways}
    for size in (1, options.batch):
        for start in range(0, len(listed) - size + 1, size):
            part = listed[start : start + size]
            for name, ask in ways.items():
                clock.seconds, clock.cpu = {"encoder": 0.0}, {"encoder": 0.0}
                begin, busy = time.perf_counter(), time.process_time()
                results = ask(part)
                wall, cpu = time.perf_counter() - begin, time.process_time() - busy
                if size == 1:
                    found[name] += results
                own = {
                    "ms": wall,
                    "ms_without_encoder": wall - clock.seconds["encoder"],
                    "cpu_ms": cpu,
                    "cpu_ms_without_encoder": cpu - clock.cpu["encoder"],
                }
                for key, seconds in own.items():
                    spent[name].setdefault(f"{size} {key}", []).append(seconds / size)
    latency = {
        name: {key: percentiles(seconds) for key, seconds in own.items()}
        for name, own in spent.items()
    }
    return {
        "latency": latency,
        "steps": _steps(found["plan"]),
        "shown": str(found["plan"][0].plan),
        "recall@10": {name: _recall(asked, results) for name, results in found.items()},
    }


def _steps(results: Sequence[Result]) -> dict[str, list[float]]:
    """Return the median number of memories before and after each step."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for result in results:
        assert result.plan is not None
        for step in result.plan.steps:
            counts.setdefault(step.name, []).append((step.before, step.after))
    return {
        name: torch.tensor(pairs, dtype=torch.float64).quantile(0.5, dim=0).tolist()
        for name, pairs in counts.items()
    }


def _recall(asked: Mapping[str, set[str]], results: Sequence[Result]) -> float:
    shares = [
        len(gold & {hit.id for hit in result.hits}) / min(10, len(gold))
        for gold, result in zip(asked.values(), results, strict=True)
    ]
    return sum(shares) / len(shares)


def _follow(when: Tensor, order: Tensor, rounds: int = 50) -> dict[str, float | None]:
    """Return CPU milliseconds to insert one atom into the order by time, and to sort it again."""
    rows = torch.arange(len(when), dtype=order.dtype, device=order.device)
    before = order[order != len(when) - 1]
    taken: dict[str, list[float]] = {"merged": [], "sorted": []}
    for _ in range(rounds):
        for name, work in (
            ("merged", lambda: merged_order(before, when, rows[-1:])),
            ("sorted", lambda: sorted_order(when, rows)),
        ):
            busy = time.process_time()
            work()
            taken[name].append(time.process_time() - busy)
    return {name: percentiles(seconds)["p50"] for name, seconds in taken.items()}


def _told(count: int, seed: int) -> Iterator[tuple[Atom, tuple[str, str, str]]]:
    """Yield the diaries, with person, place and month of each entry."""
    chance = random.Random(seed)
    for i in range(count):
        day = _FIRST + timedelta(days=_DAYS * i / count)
        who, whom = chance.sample(_PEOPLE, 2)
        where, done = chance.choice(_PLACES), chance.choice(_DONE)
        text = chance.choice(_SAID).format(
            who=who, whom=whom, where=where, done=done, price=chance.randrange(2, 9000)
        )
        session = f"s{i // _SESSION}"
        atom = Atom(f"d{i}", text, speaker=whom, session=session, time=day.timestamp())
        yield atom, (who, where, day.strftime("%B %Y"))


def _questions(
    told: Sequence[tuple[Atom, tuple[str, str, str]]], count: int, seed: int
) -> dict[str, set[str]]:
    """Return questions with the ids of their answers: what that person did there in that month."""
    answers: dict[tuple[str, str, str], set[str]] = {}
    for atom, key in told:
        answers.setdefault(key, set()).add(atom.id)
    keys = random.Random(seed + 1).sample(sorted(answers), min(count, len(answers)))
    return {
        f"What did {who} do in {where} in {month}?": answers[who, where, month]
        for who, where, month in keys
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the report."""
    command(Plans, run, arguments, __doc__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
