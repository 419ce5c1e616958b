"""Random histories of a memory: compares the index that follows each with one built at once.

`python -m bench.histories --histories 1000 --steps 200 [--json OUT]`

A history is a folder and a series of events: turns are added alone, together or late; edges are
added and removed; memories are changed, deleted, forgotten, used and pinned; questions are asked;
other processes write; the memory is closed and reopened, with a snapshot or without; and a writer
is killed. Now and then, and at the end, every tensor of the index is compared with an index built
from the store at once, and the store with the data put into it. The number of a history determines
it, except for the instants of kills.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.command import command
from bench.crash_test import texts
from graphmem_torch.atoms import CONCEPT, Atom, EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.memory import Memory
from graphmem_torch.memory.index_builder import IndexBuilder
from graphmem_torch.text.embedder import HashingEmbedder

__all__ = ["Histories", "Outcome", "differences", "main", "run"]

_PRESETS = ("default", "synapse", "contextos", "sgrm")
_QUESTIONS = ("Where is the silver lantern of Ada?", "What did Boris say of the bay, and when?")
_LONGEST_LIFE = 0.5  # maximum seconds of a writer before it is killed
_EPOCH = 1.6e9
_ROUNDING = 1e-5  # of a PageRank that is computed at once, relative L1


@dataclass(frozen=True)
class Histories:
    """Run many memories through random histories.

    Attributes:
        histories: Number of histories.
        steps: Steps of each history.
        first: Number of the first history.
        every: Mean number of steps between two comparisons.
        seconds: Time after which no further history starts.
        json: File to write the counts to; standard output by default.
    """

    histories: int = 100
    steps: int = 200
    first: int = 0
    every: int = 10
    seconds: float | None = None
    json: Path | None = None


@dataclass
class Outcome:
    """Counts over all histories; `problems` must be empty.

    Attributes:
        histories: Number of finished histories.
        steps: Number of steps by kind.
        acknowledged: Actions that writers had acknowledged before they were killed.
        comparisons: Comparisons of an index with one built at once.
        rank_error: Largest bound of an incremental PageRank.
        problems: Differences, with the numbers of the history and of the step.
    """

    histories: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    comparisons: int = 0
    rank_error: float = 0.0
    problems: list[str] = field(default_factory=list)


def differences(memory: Memory) -> list[str]:
    """Return the names of differences between the memory's index and one built at once.

    PageRank is incremental and may differ by its stated bound. Sums over rows round in the order in
    which rows came and went.
    """
    pieces = memory.embedder.num_pieces if memory.store.token_dim is not None else 0
    anew, found = IndexBuilder(), memory._state.current()
    expected = anew(memory.store, memory.config, pieces)
    wrong = [
        name
        for name in ("state", "kinds", "speakers")
        if getattr(found, name) != getattr(expected, name)
    ]
    if found.vocabulary.to_bytes() != expected.vocabulary.to_bytes():
        wrong.append("vocabulary")
    own, other = (
        {name: part.cpu() for name, part in each.index.state_dict().items()}
        for each in (found, expected)
    )
    wrong += sorted(own.keys() ^ other.keys())
    sums = [each.pop("moment_bits", None) for each in (own, other)]
    if None not in sums:
        carried_sums, exact_sums = (part.view(torch.float64) for part in sums if part is not None)
        if not torch.allclose(carried_sums, exact_sums, rtol=1e-9, atol=1e-9):
            wrong.append("moment_bits")
    wrong += [n for n in own.keys() & other.keys() - {"pagerank"} if not _equal(own[n], other[n])]
    ranks = [each._growing._graph.rank for each in (memory._state.builder, anew)]
    if None in ranks:
        return wrong if ranks == [None, None] else [*wrong, "pagerank, carried by one only"]
    carried, exact = (rank.values for rank in ranks if rank is not None)
    missed = float((carried - exact).abs().sum() / exact.sum()) if len(exact) else 0.0
    atoms = carried[found.node].float()
    if missed > memory._state.builder.rank_error + _ROUNDING or not torch.equal(
        own["pagerank"], atoms / atoms.max() if len(atoms) else atoms
    ):
        wrong.append(f"pagerank, off by {missed:.2g}")
    return wrong


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


class _History:
    """Memory with its expected contents."""

    def __init__(self, folder: Path, number: int, outcome: Outcome) -> None:
        self._folder, self._outcome = folder, outcome
        self._chance = chance = random.Random(number)
        own = {"link.concepts": "pattern", "link.batch_atoms": chance.choice([4, 64])}
        if chance.random() < 0.5:
            own["rank.exhaustive_up_to"] = 5  # uses the other ranking method
        self._config = load_config(chance.choice(_PRESETS), own)
        self._embedder = HashingEmbedder(32)
        self._rows = texts(3000, number, prefix="n")
        self._next = 0  # next number of a turn that never existed
        self._kept: dict[str, list[str]] = {}  # texts of all versions, by id
        self._memory = self._opened()
        self._steps: dict[str, tuple[int, Callable[[], None]]] = {
            "one": (6, lambda: self._add(1)),
            "many": (2, lambda: self._add(chance.randint(2, 9))),
            "late": (2, lambda: self._add(chance.randint(1, 3), late=True)),
            "again": (1, self._again),
            "elsewhere": (2, self._elsewhere),
            "connect": (2, self._connect),
            "disconnect": (1, self._disconnect),
            "update": (2, self._update),
            "delete": (3, self._delete),
            "touch": (1, self._touch),
            "ask": (4, self._ask),
            "reopen": (1, lambda: self._reopen(self._memory.close)),
            "leave": (1, lambda: self._reopen(self._memory.store.close)),
            "kill": (1, self._kill),
        }

    def live(self, steps: int, every: int) -> str | None:
        """Run the steps; return the differences after the first step that causes any."""
        names = list(self._steps)
        weights = [weight for weight, _ in self._steps.values()]
        done = []
        for number in range(steps):
            done += self._chance.choices(names, weights)
            self._steps[done[-1]][1]()
            count = self._outcome.steps
            count[done[-1]] = count.get(done[-1], 0) + 1
            if self._chance.random() * every < 1 or number == steps - 1:
                wrong = self._wrong()
                if wrong:
                    return f"step {number} (after {', '.join(done[-4:])}): {', '.join(wrong)}"
        self._memory.close()
        return None

    def _wrong(self) -> list[str]:
        memory = self._memory
        wrong = differences(memory) + memory.check()
        self._outcome.comparisons += 1
        self._outcome.rank_error = max(self._outcome.rank_error, memory._state.builder.rank_error)
        there = [name for name in memory.store.ids() if not name.startswith(CONCEPT)]
        if sorted(there) != sorted(self._kept):
            wrong.append(f"ids: {sorted(set(there) ^ set(self._kept))[:3]}")
        else:
            wrong += [a.id for a in memory.get(there) if a.text != self._kept[a.id][-1]]
            for name in self._some(5):
                if [each.atom.text for each in memory.facts.versions(name)] != self._kept[name]:
                    wrong.append(f"versions of {name}")
        return wrong

    def _opened(self) -> Memory:
        return Memory.open(self._folder, config=self._config, embedder=self._embedder, device="cpu")

    def _turns(self, count: int, *, late: bool = False) -> list[Atom]:
        """Return new turns of a few sessions; some have neither session, speaker nor time."""
        turns, chance = [], self._chance
        for row in self._rows[self._next : self._next + count]:
            when = chance.uniform(0, self._next) if late else self._next
            time_of = None if not late and chance.random() < 0.2 else _EPOCH + when
            session = chance.choice([None, "a", "b", f"c{self._next // 50}"])
            plain = chance.random() < 0.2
            speaker = None if plain else row["speaker"]
            turns.append(
                Atom(row["id"], row["text"], speaker=speaker, session=session, time=time_of)
            )
            self._next += 1
        return turns

    def _some(self, most: int) -> list[str]:
        return self._chance.sample(sorted(self._kept), min(most, len(self._kept)))

    def _add(self, count: int, *, late: bool = False, to: Memory | None = None) -> None:
        turns = self._turns(count, late=late)
        (to or self._memory).add(turns)
        self._kept |= {turn.id: [turn.text] for turn in turns}

    def _again(self) -> None:
        """Add atoms that are stored already, and deleted ones under their old ids."""
        row = self._chance.choice(self._rows[: self._next + 1])
        if row["id"] not in self._kept and row is not self._rows[self._next]:
            self._memory.add(Atom(row["id"], row["text"]))
            self._kept[row["id"]] = [row["text"]]
        elif self._kept:
            self._memory.add(self._memory.get(self._some(3)))

    def _elsewhere(self) -> None:
        """Let another memory of the folder write, as another process would."""
        with self._opened() as other:
            if self._chance.random() < 0.3 and self._kept:
                self._drop(other, self._some(2))
            self._add(2, to=other)

    def _connect(self) -> None:
        ids, kinds = self._some(4), ("supports", "causes", "contradicts", "derived_from")
        edges = [(a, b, self._chance.choice(kinds)) for a, b in pairwise(ids)]
        self._memory.graph.connect(edges)

    def _disconnect(self) -> None:
        """Remove existing edges, including temporal ones."""
        store = self._memory.store
        edges, node = store.edges(), store.columns().node.tolist()
        name = dict(zip(node, store.ids(), strict=True))
        for i in self._chance.sample(range(len(edges)), min(6, len(edges))):
            ends = name[int(edges.source[i])], name[int(edges.target[i])]
            if set(ends) <= self._kept.keys():
                self._memory.graph.disconnect(*ends)

    def _update(self) -> None:
        for name in self._some(2):
            text = f"{self._chance.choice(self._rows)['text']} That was wrong before."
            if text != self._kept[name][-1]:
                moved: list[dict[str, Any]] = [{"session": "b"}, {"time": _EPOCH + self._next / 2}]
                self._memory.update(name, text=text, **self._chance.choice([{}, *moved]))
                self._kept[name].append(text)

    def _delete(self) -> None:
        self._drop(self._memory, self._some(self._chance.choice([1, 1, 1, 8])))

    def _drop(self, memory: Memory, ids: list[str]) -> None:
        gone = set(ids)
        if self._chance.random() < 0.3:
            gone |= self._derived(memory, gone)
            memory.forget(ids)
        else:
            memory.delete(ids)
        for name in gone:
            del self._kept[name]

    def _derived(self, memory: Memory, ids: set[str]) -> set[str]:
        """Return everything derived from the ids, directly or not, which is forgotten with them."""
        edges, node = memory.store.edges(), memory.store.columns().node.tolist()
        name = dict(zip(node, memory.store.ids(), strict=True))
        kind = edges.type == int(EdgeType.DERIVED_FROM)
        ends = torch.stack([edges.source, edges.target], 1)[kind].tolist()
        found, before = set(ids), 0
        while len(found) > before:
            before = len(found)
            found |= {name[source] for source, target in ends if name[target] in found}
        return found - ids

    def _touch(self) -> None:
        self._memory.touch(self._some(3))
        self._memory.pin(self._some(1))
        self._memory.unpin(self._some(1))

    def _ask(self) -> None:
        self._memory.retrieve(list(_QUESTIONS))

    def _reopen(self, close: Callable[[], None]) -> None:
        close()
        self._memory = self._opened()

    def _kill(self) -> None:
        """Kill a separate writer at some instant; everything it acknowledged must be stored."""
        self._memory.store.close()
        work = _work(self._turns(12))
        note = self._folder.with_suffix(".note")
        note.unlink(missing_ok=True)
        writer = multiprocessing.get_context("fork").Process(
            target=_write, args=(str(self._folder), self._config, work, str(note))
        )
        writer.start()
        time.sleep(self._chance.uniform(0, _LONGEST_LIFE))
        writer.kill()
        writer.join()
        said = note.stat().st_size if note.exists() else 0
        self._outcome.acknowledged += said
        self._memory = self._opened()
        # The next action may be done: the kill can precede its acknowledgement.
        for count in (said + 1, said):
            kept = _done(work[:count])
            there = [name for name in {turn.id for _, turn in work} if name in self._memory]
            now = {atom.id: atom.text for atom in self._memory.get(there)}
            if now == {name: texts[-1] for name, texts in kept.items()}:
                break
        self._kept |= kept


def _work(turns: Sequence[Atom]) -> list[tuple[str, Atom]]:
    """Return the actions of a writer: it adds turns, and changes, deletes and forgets some."""
    work = []
    for i, turn in enumerate(turns):
        work.append(("add", turn))
        if i % 3 == 2:
            changed = f"{turns[i - 1].text} That was wrong before."
            work.append(("update", replace(turns[i - 1], text=changed)))
        if i % 4 == 3:
            work.append((("delete", "forget")[i % 8 == 7], turns[i - 3]))
    return work


def _done(work: Sequence[tuple[str, Atom]]) -> dict[str, list[str]]:
    """Return the texts of the versions that exist after all of it is done."""
    kept: dict[str, list[str]] = {}
    for what, turn in work:
        if what in ("delete", "forget"):
            del kept[turn.id]
        else:
            kept.setdefault(turn.id, []).append(turn.text)
    return kept


def _write(folder: str, config: Config, work: Sequence[tuple[str, Atom]], note: str) -> None:
    """Perform the actions, and note each one when it is done."""
    said = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Memory.open(folder, config=config, embedder=HashingEmbedder(32), device="cpu") as memory:
        for what, turn in work:
            if what == "add":
                memory.add(turn)
            elif what == "update":
                memory.update(turn.id, text=turn.text)
            elif what == "delete":
                memory.delete(turn.id)
            else:
                memory.forget(turn.id)
            os.write(said, b".")
            memory.retrieve(_QUESTIONS[0])


def run(options: Histories) -> Outcome:
    """Go through all histories."""
    torch.set_num_threads(1)  # writers are forks of this process
    outcome, begin = Outcome(), time.perf_counter()
    for number in range(options.first, options.first + options.histories):
        if options.seconds is not None and time.perf_counter() - begin > options.seconds:
            break
        folder = Path(tempfile.mkdtemp(prefix="graphmem-history-"))
        try:
            wrong = _History(folder / "store", number, outcome).live(options.steps, options.every)
        except Exception as error:  # any error counts, and the other histories continue
            wrong = repr(error)
            traceback.print_exc()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        outcome.histories += 1
        if wrong is not None:
            outcome.problems.append(f"history {number}: {wrong}")
            print(f"\r{outcome.problems[-1]}", file=sys.stderr)
        said = f"\r{outcome.histories} histories, {len(outcome.problems)} with differences"
        print(said, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run histories and write the counts; return 1 if anything differs."""
    report = command(Histories, lambda options: asdict(run(options)), arguments, __doc__)
    return int(bool(report["problems"]))


if __name__ == "__main__":
    raise SystemExit(main())
