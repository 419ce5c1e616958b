"""Concurrent writers and readers of one store: processes, then threads with one memory.

`python -m bench.concurrency --seconds 600 [--refining 2 [--reconciling]] [--json OUT]`

Writers add turns to a few sessions, one by one and not always in order, and change or delete some
of their own. Readers ask for stored memories: these must be found, and every hit must have the text
of its id. At the end, the temporal edges must equal those of a loop over the sessions, `check` must
find nothing, and the index must equal one built from the store at once.

With `--refining`, every writer also refines in the background: the least important memories are
archived, and must then be in the archive. With `--reconciling`, some turns also say where their
speaker lives now, and refining reconciles them. In the end, no sure enough conflict may be open.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from bench.command import command
from bench.crash_test import texts
from bench.histories import differences
from graphmem_torch.atoms import AGGREGATE, CONCEPT, Atom, EdgeType
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError, StoreLockedError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.reconcile import SURE
from graphmem_torch.quality.common.measure import percentiles
from graphmem_torch.text.embedder import HashingEmbedder

__all__ = ["Concurrency", "main", "run"]

_SESSIONS = 5
_TOWNS = ("Lisbon", "Oslo", "Turin", "Ghent", "Riga", "Graz", "Cork")
_LEAST = 3  # turns of a writer before its first deletion
_WAITING = 30.0  # seconds after the end of a run before a worker counts as stuck


@dataclass(frozen=True)
class Concurrency:
    """Write and ask concurrently, and inspect the result.

    Attributes:
        seconds: Duration of each of the two parts.
        adding: Number of threads that add.
        asking: Number of threads that ask.
        writing: Number of processes that add.
        reading: Number of processes that only read.
        atoms: Number of atoms at the start.
        pause: Seconds between two turns of a writer, so that the store keeps its size.
        refining: Seconds between two checks for changes by writers that keep the initial number of
            atoms and build aggregates; 0: no refining.
        reconciling: Whether refining reconciles, and some turns say where their speaker lives now.
        preset: Preset or path of a YAML file.
        json: File to write the counts to; standard output by default.
    """

    seconds: float = 600.0
    adding: int = 8
    asking: int = 8
    writing: int = 2
    reading: int = 4
    atoms: int = 1000
    pause: float = 0.05
    refining: float = 0.0
    reconciling: bool = False
    preset: str = "default"
    json: Path | None = None


class _Counts:
    """Actions and observations of one worker; `wrong` must stay empty."""

    def __init__(self) -> None:
        self.added = self.changed = self.deleted = self.asked = self.locked = self.away = 0
        self.seconds: list[float] = []  # wall time of questions
        self.cpu: list[float] = []  # CPU time of their threads
        self.wrong: list[str] = []

    @contextmanager
    def watched(self) -> Any:
        """Count an error as a fault, unless it is that of a lock."""
        try:
            yield
        except StoreLockedError:
            self.locked += 1
        except Exception as error:
            self.wrong.append(repr(error))


def _opened(folder: Path, options: Concurrency, mode: Any = "w") -> Memory:
    settings: dict[str, Any] = {"link.concepts": "pattern"}
    if options.refining:
        settings |= {"refine.max_memories": options.atoms, "aggregate.build": True}
    if options.reconciling:
        settings["reconcile.automatic"] = True
    config = load_config(options.preset, settings)
    return Memory.open(folder, config=config, embedder=HashingEmbedder(32), device="cpu", mode=mode)


def _turns(name: str, count: int, options: Concurrency) -> list[Atom]:
    """Return the turns of a writer; texts contain the id, times are distinct and unordered."""
    chance, rows = random.Random(name), texts(count, 7, prefix=name)
    turns = []
    for i, row in enumerate(rows):
        text = f"{row['text']} It is noted as {row['id']}."
        if options.reconciling and chance.random() < 1 / 4:
            text = f"I now live in {chance.choice(_TOWNS)}. {text}"
        when = 1.6e9 + i + (chance.random() if chance.random() < 0.8 else -chance.uniform(0, 40))
        session = f"session {chance.randrange(_SESSIONS)}"
        turns.append(Atom(row["id"], text, speaker=row["speaker"], session=session, time=when))
    return turns


def _write(
    memory: Memory,
    name: str,
    counts: _Counts,
    options: Concurrency,
    goes_on: Callable[[], bool],
    alive: set[str],  # ids that are stored and not about to be deleted
) -> None:
    """Add turns one by one; now and then change or delete one of them."""
    chance, own = random.Random(name), list[str]()
    most = 100 + int(options.seconds / max(options.pause, 0.002))
    for turn in _turns(name, most, options):
        if not goes_on():
            return
        with counts.watched():
            memory.add(turn)
            counts.added += 1
            own.append(turn.id)
            alive.add(turn.id)
        if len(own) > _LEAST and chance.random() < 1 / 8:
            changed = chance.choice(own)
            with counts.watched(), _unless_archived(memory, changed, counts):
                memory.update(changed, text=f"{turn.text} Now it is noted as {changed}.")
                counts.changed += 1
        if len(own) > _LEAST and chance.random() < 1 / 8:
            gone = own.pop(chance.randrange(len(own)))
            alive.discard(gone)
            with counts.watched(), _unless_archived(memory, gone, counts):
                memory.delete(gone)
                counts.deleted += 1
            if _archived(memory, gone):
                alive.add(gone)
        time.sleep(options.pause)


def _archived(memory: Memory, name: str) -> bool:
    archive = memory.upkeep.archived()
    return archive is not None and name in archive


@contextmanager
def _unless_archived(memory: Memory, name: str, counts: _Counts) -> Any:
    """Ignore that an atom archived meanwhile can be neither changed nor deleted."""
    try:
        yield
    except InputError:
        if not _archived(memory, name):
            raise
        counts.away += 1


def _ask(
    memory: Memory,
    name: str,
    counts: _Counts,
    goes_on: Callable[[], bool],
    alive: Callable[[], set[str]],
) -> None:
    """Ask for stored memories, by id and without."""
    chance = random.Random(name)
    while goes_on():
        known = sorted(alive())
        wanted = chance.choice(known)
        with counts.watched():
            begin, busy = time.perf_counter(), time.thread_time()
            free = memory.retrieve(f"What is noted as {wanted} near the bay?", k=10)
            counts.seconds.append(time.perf_counter() - begin)
            counts.cpu.append(time.thread_time() - busy)
            hits = memory.retrieve("What is noted?", k=1, where={"id": wanted}).hits
            counts.asked += 2
            if [hit.id for hit in hits] != [wanted] and wanted in alive():
                if _archived(memory, wanted):
                    counts.away += 1
                else:
                    counts.wrong.append(f"{wanted}: not found, found {[hit.id for hit in hits]}")
            for hit in (*free.hits, *hits):
                if hit.kind != AGGREGATE and not hit.text.endswith(f"noted as {hit.id}."):
                    counts.wrong.append(f"{hit.id}: has the text {hit.text!r:.120}")


def _threads(folder: Path, options: Concurrency) -> dict[str, Any]:
    """Run threads with one memory."""
    alive: set[str] = set()
    with _opened(folder, options) as memory:
        first = _turns("start", options.atoms, options)
        memory.add(first)
        alive |= {turn.id for turn in first}
        refining = memory.upkeep.in_background(every=options.refining) if options.refining else None
        end = time.monotonic() + options.seconds

        def goes_on() -> bool:
            return time.monotonic() < end

        counts, threads = [], []
        for number in range(options.adding + options.asking):
            counts.append(_Counts())
            if number < options.adding:
                work = (memory, f"thread{number}", counts[-1], options, goes_on, alive)
                threads.append(threading.Thread(target=_write, args=work, daemon=True))
            else:
                asks = (memory, f"thread{number}", counts[-1], goes_on, alive.copy)
                threads.append(threading.Thread(target=_ask, args=asks, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(options.seconds + _WAITING)
        stuck = sum(thread.is_alive() for thread in threads)
        if refining is not None:
            refining.stop()
        return _summary(counts, stuck) | _looked_at(memory, alive, options)


def _process(
    folder: Path,
    name: str,
    options: Concurrency,
    mode: str,
    seconds: float,
    all_ready: Barrier,
    queue: Queue[Any],
) -> None:
    counts, alive = _Counts(), set[str]()
    with counts.watched(), _opened(folder, options, mode) as memory:
        memory.retrieve("What is noted?")
        refine = memory.upkeep.in_background  # loads what it needs before the time runs
        all_ready.wait(_WAITING)
        end = time.monotonic() + seconds

        def goes_on() -> bool:
            return time.monotonic() < end

        if mode == "w":
            if options.refining:
                refine(every=options.refining)
            _write(memory, name, counts, options, goes_on, alive)
        else:
            known = {turn.id for turn in _turns("start", options.atoms, options)}
            _ask(memory, name, counts, goes_on, lambda: known)
    queue.put((mode, counts, alive))


def _processes(folder: Path, options: Concurrency) -> dict[str, Any]:
    """Run processes with one folder, and then the readers alone."""
    with _opened(folder, options) as memory:
        first = _turns("start", options.atoms, options)
        memory.add(first)
    alive = {turn.id for turn in first}
    context = multiprocessing.get_context("fork")
    found: list[_Counts] = []
    latency, stuck = {}, 0
    for part, writing, seconds in (
        ("beside writers", options.writing, options.seconds),
        ("alone", 0, min(options.seconds, 20.0)),
    ):
        modes = ["w"] * writing + ["r"] * options.reading
        queue, all_ready = context.Queue(), context.Barrier(len(modes))
        processes = [
            context.Process(
                target=_process,
                args=(folder, f"process{i}", options, mode, seconds, all_ready, queue),
            )
            for i, mode in enumerate(modes)
        ]
        for process in processes:
            process.start()
        ended = []
        for _ in processes:
            try:
                ended.append(queue.get(timeout=seconds + 3 * _WAITING))
            except Empty:  # a silent process is stuck, or has died
                break
        stuck += len(processes) - len(ended)
        for process in processes:
            process.join(_WAITING)
            process.kill()
        for _, counts, added in ended:
            found.append(counts)
            alive |= added
        readers = [counts for mode, counts, _ in ended if mode == "r"]
        latency[part] = {
            "ms": percentiles([s for each in readers for s in each.seconds]),
            "cpu_ms": percentiles([s for each in readers for s in each.cpu]),
        }
    with _opened(folder, options) as memory:
        return _summary(found, stuck) | {"reading": latency} | _looked_at(memory, alive, options)


def _summary(counts: Sequence[_Counts], stuck: int) -> dict[str, Any]:
    totals = {
        name: sum(getattr(each, name) for each in counts)
        for name in ("added", "changed", "deleted", "asked", "locked", "away")
    }
    wrong = [fault for each in counts for fault in each.wrong]
    asked = percentiles([s for each in counts for s in each.seconds])
    return {**totals, "stuck": stuck, "ask_ms": asked, "faults": len(wrong), "first": wrong[:10]}


def _looked_at(memory: Memory, alive: set[str], options: Concurrency) -> dict[str, Any]:
    """Inspect the store and the index at the end."""
    store = memory.store
    conflicts: dict[str, int] = {}
    if options.reconciling:
        replaced = _superseded(memory)  # as left by refining
        memory.facts.reconcile()
        found = memory.facts.conflicts()
        unresolved = [each for each in found if each.state == "open" and each.confidence >= SURE]
        conflicts = {
            "superseded": replaced,
            "conflicts": len(found),
            "unresolved": len(unresolved),
        }
    columns, names = store.columns(), store.ids()
    name = dict(zip(columns.node.tolist(), names, strict=True))
    every = memory.get([each for each in names if not each.startswith(CONCEPT)])
    atoms = [atom for atom in every if atom.kind != AGGREGATE]
    archive = memory.upkeep.archived()
    away = set() if archive is None else {*archive.store.ids()}
    sessions: dict[str, list[Atom]] = {}
    for atom in atoms:
        sessions.setdefault(str(atom.session), []).append(atom)
    expected = {
        (a.id, b.id)
        for turns in sessions.values()
        for a, b in pairwise(sorted(turns, key=lambda atom: atom.time or 0.0))
    }
    edges = store.edges()
    own = edges.type == int(EdgeType.TEMPORAL)
    ends = zip(edges.source[own].tolist(), edges.target[own].tolist(), strict=True)
    return conflicts | {
        "atoms": len(atoms),
        "aggregates": len(every) - len(atoms),
        "archived": len(alive & away),
        "lost": len(alive - away - {atom.id for atom in atoms}),
        "risen": len({atom.id for atom in atoms} - alive),
        "wrong_edges": len(expected ^ {(name[a], name[b]) for a, b in ends}),
        "problems": memory.check(),
        "differences": differences(memory),
    }


def _superseded(memory: Memory) -> int:
    """Return the number of superseded memories, in the memory and in its archive."""
    archive = memory.upkeep.archived()
    count = 0
    for part in (memory,) if archive is None else (memory, archive):
        names = [name for name in part.store.ids() if not name.startswith(CONCEPT)]
        count += sum(span.by is not None for span in part.facts.validity(names).values())
    return count


def run(options: Concurrency) -> dict[str, Any]:
    """Run both parts, each with its own store."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="graphmem-concurrency-"))
    try:
        # The processes are forks, which are safe while there is one thread.
        parts = {"processes": _processes(folder / "processes", options)}
        parts["threads"] = _threads(folder / "threads", options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    none = ("stuck", "faults", "lost", "risen", "wrong_edges", "problems", "differences")
    holds = not any(part.get(name) for part in parts.values() for name in (*none, "unresolved"))
    return {"seconds": options.seconds, "holds": holds, **parts}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and ask, and write the counts; return 1 if anything is wrong."""
    return int(not command(Concurrency, run, arguments, __doc__)["holds"])


if __name__ == "__main__":
    raise SystemExit(main())
