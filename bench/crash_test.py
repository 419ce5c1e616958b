"""Kill a writer at random instants and count lost atoms.

`python -m bench.crash_test --rounds 200 [--json OUT]`

In turn, a child process runs `graphmem index` on a file, or calls `Memory.add` repeatedly. SIGKILL
comes at a random instant of its life. Acknowledged atoms must be there afterwards: for `Memory.add`
the ids it noted after each return, for `graphmem index` those a reader saw in the store just before
the kill. Then the store must open for writing, pass `check`, and answer a question.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.cli.main import main as graphmem
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import GraphMemError
from graphmem_torch.memory import Memory
from graphmem_torch.store import MemoryStore

__all__ = ["CrashTest", "Outcome", "main", "run"]

_WORDS = (
    *("amber", "anchor", "bridge", "candle", "castle", "cedar", "copper", "desert", "ember"),
    *("falcon", "forest", "garden", "glacier", "harbour", "island", "jasmine", "kettle", "lemon"),
    *("meadow", "mirror", "needle", "orchard", "paper", "piano", "quarry", "river", "saddle"),
    *("silver", "spruce", "summer", "temple", "thunder", "tower", "valley", "violin", "willow"),
)
_PEOPLE = ("Ada", "Boris", "Chandra", "Dmitri", "Esra", "Farid")


@dataclass(frozen=True)
class CrashTest:
    """Kill writers and inspect the stores they leave.

    Attributes:
        rounds: Number of kills; every second one hits `graphmem index`.
        atoms: Number of atoms that a writer adds if it is not killed.
        preset: Preset or path of a YAML file.
        concepts: Concept extractor; a fast one, so that a writer spends its life writing.
        fresh: Rounds after which a new store is started.
        seed: Seed of the texts and of the instants.
        json: File to write the counts to; standard output by default.
    """

    rounds: int = 200
    atoms: int = 300
    preset: str = "default"
    concepts: str = "pattern"
    fresh: int = 10
    seed: int = 0
    json: Path | None = None


@dataclass
class Outcome:
    """Counts over all rounds; `lost` and `unopened` must be 0."""

    rounds: int = 0
    killed: int = 0
    finished_before_kill: int = 0
    acknowledged: int = 0
    lost: int = 0
    unopened: int = 0
    not_whole: int = 0
    problems: list[str] = field(default_factory=list)


def run(options: CrashTest) -> Outcome:
    """Run all rounds."""
    # Fork the children from here, where torch is loaded, so that they spend their life writing; a
    # fork is safe from a process with one thread.
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    outcome = Outcome()
    chance = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="graphmem-crash-test-"))
    try:
        spans = [_span(context, options, folder / f"span{kind}", kind) for kind in range(2)]
        acknowledged: set[str] = set()
        # A writer may finish first; only kills count, up to a limit of rounds.
        while outcome.killed < options.rounds and outcome.rounds < 3 * options.rounds:
            number = outcome.rounds
            store = folder / f"store{number // options.fresh}"
            if number % options.fresh == 0:
                acknowledged = set()
                shutil.rmtree(folder / f"store{number // options.fresh - 1}", ignore_errors=True)
            kind = number % 2
            process = _start(context, options, store, kind, number)
            time.sleep(chance.uniform(0.0, spans[kind]))
            seen = _visible(store) if kind else set()
            time.sleep(chance.uniform(0.0, 0.05))
            _kill(process, outcome)
            new = (seen | _noted(store)) - acknowledged
            acknowledged |= new
            outcome.acknowledged += len(new)
            _inspect(options, store, acknowledged, outcome, number)
            outcome.rounds += 1
            print(f"\r{outcome.killed} kills, {outcome.lost} lost", end="", file=sys.stderr)
    finally:
        print(file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _span(context: ForkContext, options: CrashTest, store: Path, kind: int) -> float:
    """Return the seconds of a writer's whole life, on its second run; kills are spread over it."""
    seconds = 0.0
    for number in (-2, -1):
        start = time.perf_counter()
        process = _start(context, options, store.with_name(store.name + str(number)), kind, number)
        process.join()
        seconds = time.perf_counter() - start
        if process.exitcode != 0:
            raise RuntimeError(f"a writer left alone ended with exit code {process.exitcode}")
    return seconds


def _start(
    context: ForkContext, options: CrashTest, store: Path, kind: int, number: int
) -> BaseProcess:
    atoms = texts(options.atoms, options.seed + 7919 * (number + 2), prefix=f"r{number}")
    if kind == 0:
        target, arguments = _add, (str(store), _settings(options), atoms)
    else:
        source = store.with_suffix(f".{number}.jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in atoms), encoding="utf-8")
        target, arguments = _index, (str(store), options, str(source))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def _settings(options: CrashTest) -> Config:
    return load_config(options.preset, {"link.concepts": options.concepts})


def _add(store: str, config: Config, atoms: list[dict[str, str]]) -> None:
    """Add atoms a few at a time and note the ids of each call after it has returned."""
    _quiet()
    note = os.open(f"{store}.noted", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Memory.open(store, config=config, embedder="hashing") as memory:
        for start in range(0, len(atoms), 20):
            part = atoms[start : start + 20]
            memory.add([Atom(**row) for row in part])
            os.write(note, "".join(f"{row['id']}\n" for row in part).encode())


def _index(store: str, options: CrashTest, source: str) -> None:
    _quiet()
    where = ["--store", store, "--preset", options.preset, "--embedder", "hashing"]
    code = graphmem(["index", source, *where, "--config.link.concepts", options.concepts])
    raise SystemExit(code)


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _visible(store: Path) -> set[str]:
    """Return the ids that a reader sees while the writer works; none before the store exists."""
    try:
        with MemoryStore.open(store, mode="r") as reader:
            return {atom.id for atom in reader.atoms(range(reader.num_nodes))}
    except GraphMemError:
        return set()


def _noted(store: Path) -> set[str]:
    notes = Path(f"{store}.noted")
    return set(notes.read_text().split()) if notes.exists() else set()


def _kill(process: BaseProcess, outcome: Outcome) -> None:
    # Not `os.kill`: the writer may end in this very moment, which `kill` ignores.
    process.kill()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        outcome.killed += 1
    else:
        outcome.finished_before_kill += 1


def _inspect(
    options: CrashTest, store: Path, acknowledged: set[str], outcome: Outcome, number: int
) -> None:
    """Open the store as a writer would, and count."""
    try:
        with Memory.open(store, config=_settings(options), embedder="hashing") as memory:
            present = memory.store.known(sorted(acknowledged))
            lost = acknowledged - set(present)
            outcome.lost += len(lost)
            problems = memory.check()
            if acknowledged:
                memory.retrieve("Where did Ada leave the silver lantern?", k=3)
    except Exception as error:
        # Count any error, and continue with the next round.
        outcome.unopened += 1
        outcome.problems.append(f"round {number}: {error!r}")
        return
    if lost:
        outcome.problems.append(f"round {number}: lost {sorted(lost)[:5]}")
        acknowledged -= lost
    if problems:
        outcome.not_whole += 1
        outcome.problems.append(f"round {number}: {problems[:3]}")


def texts(count: int, seed: int, *, prefix: str) -> list[dict[str, str]]:
    """Return made-up remarks of made-up people in a few sessions, as fields of atoms."""
    chance = random.Random(seed)
    rows = []
    for i in range(count):
        things = " and the ".join(chance.sample(_WORDS, 3))
        who, whom = chance.sample(_PEOPLE, 2)
        rows.append(
            {
                "id": f"{prefix}:{i}",
                "text": f"{whom} told me about the {things} near {chance.choice(_WORDS)} bay.",
                "speaker": who,
                "session": f"{prefix}/{i // 40}",
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill writers and write the counts; return 1 if anything was lost or would not open."""
    report = command(CrashTest, lambda options: asdict(run(options)), arguments, __doc__)
    return int(any(report[fault] for fault in ("lost", "unopened", "not_whole")))


if __name__ == "__main__":
    raise SystemExit(main())
