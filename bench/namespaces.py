"""Namespaces that share everything but their content: leaks, and the cost of a question.

`python -m bench.namespaces --questions 1000000 [--json OUT]`

Ids, sessions, speakers, times and most texts of every namespace occur in others, and names are
similar (case, Unicode forms, characters of paths). Questions are texts, words and names of other
namespaces. Each answer of a batch over many namespaces is compared with that of a separate store of
the same memories: ids, texts, owners, scores, shares and confidence, to the last bit, so that a
count or an idf of another namespace would show. Half way through, all add memories and some delete.

`--stores N` then creates N namespaces and times one question at a time, in CPU time of one thread.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.quality.common.measure import code_version
from graphmem_torch.results import Result
from graphmem_torch.text.embedder import HashingEmbedder

__all__ = ["Crossing", "main", "run"]

_NOUNS = "oven kite canoe violin comet bakery harbour saddle garden ledger".split()  # noqa: SIM905
_VERBS = "restores sells paints borrows hides repairs forgets steals".split()  # noqa: SIM905
_PEOPLE = ["Nora", "Theo", "Ada", "Ben", "Cleo", "Bertrand"]
_BATCH = 20_000  # questions asked at once
_ALIKE = ("user {}", "USER {}", "user/{}", "../user {}", "us\u00e9r {}", "use\u0301r {}", "{}")


@dataclass(frozen=True)
class Crossing:
    """Options of the measurement.

    Attributes:
        namespaces: Number of namespaces.
        atoms: Memories of each namespace.
        questions: Number of questions, an equal part for each namespace.
        k: Hits of each question.
        stores: Namespaces of the timing; 0 omits it.
        timed: Timed questions of each kind.
        seed: Seed of texts and questions.
        json: File to write the report to; printed by default.
    """

    namespaces: int = 100
    atoms: int = 100
    questions: int = 1_000_000
    k: int = 10
    stores: int = 1000
    timed: int = 200
    seed: int = 0
    json: Path | None = None


def _texts(rng: random.Random, count: int) -> list[str]:
    """Return the sentences that the namespaces draw from."""
    return [
        f"{rng.choice(_PEOPLE)} {rng.choice(_VERBS)} the {rng.choice(_NOUNS)} number "
        f"{rng.randrange(40)} beside the {rng.choice(_NOUNS)}."
        for _ in range(count)
    ]


def _atoms(rng: random.Random, pool: list[str], owner: str, start: int, stop: int) -> list[Atom]:
    """Return the memories of one owner, who is named only in `meta`; the rest is shared."""
    return [
        Atom(
            f"m{i}",
            rng.choice(pool),
            session=f"s{i // 10}",
            speaker=_PEOPLE[i % len(_PEOPLE)],
            time=1.7e9 + 3600.0 * i,
            meta={"owner": owner},
        )
        for i in range(start, stop)
    ]


def _questions(rng: random.Random, pool: list[str], names: list[str], count: int) -> list[str]:
    """Return questions of a user who wants the memories of others."""
    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(pool),
        lambda: f"What did {rng.choice(_PEOPLE)} say about the {rng.choice(_NOUNS)}?",
        lambda: f"Which memories of {rng.choice(names)} are there?",
        lambda: f"m{rng.randrange(200)} s{rng.randrange(20)} {rng.choice(_NOUNS)}",
        lambda: f"{rng.choice(_VERBS)} {rng.choice(_NOUNS)} {rng.randrange(40)}",
    ]
    return [rng.choice(kinds)() for _ in range(count)]


def _seen(result: Result) -> tuple[Any, ...]:
    """Return everything that an answer shows."""
    hits = tuple(
        (h.id, h.text, h.score, h.why, tuple(h.signals.items()), h.path) for h in result.hits
    )
    return hits, result.confidence, result.known


def _open(path: Path | None = None) -> Memory:
    config = load_config("default", {"link.concepts": "pattern"})
    return Memory.open(path, config=config, embedder=HashingEmbedder(64), device="cpu")


def run(options: Crossing, folder: Path, say: Callable[[str], object] = print) -> dict[str, Any]:
    """Ask and compare; then measure times, if requested."""
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    pool = _texts(rng, 4 * options.atoms)
    names = [_ALIKE[i % len(_ALIKE)].format(i // len(_ALIKE)) for i in range(options.namespaces)]
    leaks = other = answers = hits = 0
    start = time.process_time()
    with _open(folder / "crossing") as memory:
        alone = {name: _open() for name in names}
        half = options.atoms // 2
        for part, (first, last) in enumerate(((0, half), (half, options.atoms))):
            for name, own in alone.items():
                view, state = memory.namespaces.create(name), rng.getstate()
                for each in (view, own):
                    rng.setstate(state)
                    each.add(_atoms(rng, pool, name, first, last))
                    if part and rng.random() < 0.3:
                        each.delete([f"m{rng.randrange(half)}"])
            for asked in _batches(rng, pool, names, options.questions // 2):
                found = memory.retrieve(
                    [q for q, _ in asked],
                    scope=Scope(namespaces=[n for _, n in asked]),
                    k=options.k,
                )
                at: dict[str, list[int]] = {}
                for place, (_, name) in enumerate(asked):
                    at.setdefault(name, []).append(place)
                for name, places in at.items():
                    right = alone[name].retrieve([asked[i][0] for i in places], k=options.k)
                    for place, expected in zip(places, right, strict=True):
                        got = found[place]
                        leaks += any((hit.meta or {}).get("owner") != name for hit in got.hits)
                        other += _seen(got) != _seen(expected)
                        hits += len(got.hits)
                answers += len(asked)
                say(f"{answers:,} questions: {leaks} leaks, {other} other answers")
        for own in alone.values():
            own.close()
    report: dict[str, Any] = {
        "namespaces": options.namespaces,
        "atoms": options.atoms,
        "questions": answers,
        "hits": hits,
        "leaks": leaks,
        "other_answers": other,
        "cpu_seconds": time.process_time() - start,
        "code": code_version(),
    }
    if options.stores:
        report["cost"] = _costs(options, folder, rng, pool)
    return report


def _batches(
    rng: random.Random, pool: list[str], names: list[str], count: int
) -> Iterator[list[tuple[str, str]]]:
    """Return questions and namespaces, in equal parts for each namespace and mixed."""
    while count > 0:
        size = min(count, _BATCH)
        drawn = [names[i % len(names)] for i in range(size)]
        rng.shuffle(drawn)
        yield list(zip(_questions(rng, pool, names, size), drawn, strict=True))
        count -= size


def _costs(options: Crossing, folder: Path, rng: random.Random, pool: list[str]) -> dict[str, Any]:
    """Return CPU milliseconds of a question: in a separate store, and in one of many namespaces."""
    names = [f"user {i}" for i in range(options.stores)]
    asked = _questions(rng, pool, names, options.timed)
    with _open(folder / "many") as memory, _open(folder / "own") as own:
        with _open(folder / "single") as single:
            for each in (single, own):
                each.add(_atoms(rng, pool, "own", 0, options.atoms))
        begun = time.process_time()
        for name in names:
            memory.namespaces.create(name).add(_atoms(rng, pool, name, 0, options.atoms))
        made = (time.process_time() - begun) / len(names)
        for name in names:  # a warm-up, as in a service that has asked each of them before
            memory.retrieve(["anything"], scope=Scope(namespaces=[name]))
        view = memory.namespaces[names[-1]]
        lately = names[-8:]
        return {
            "stores": options.stores,
            "atoms": options.atoms,
            "ms_make_and_fill": 1e3 * made,
            "ms_own_store": _timed(own.retrieve, asked),
            "ms_held_namespace": _timed(view.retrieve, asked),
            "ms_by_name_lately_used": _timed(
                lambda q: memory.retrieve([q], scope=Scope(namespaces=[rng.choice(lately)])), asked
            ),
            "ms_by_name_any": _timed(
                lambda q: memory.retrieve([q], scope=Scope(namespaces=[rng.choice(names)])), asked
            ),
            "ms_own_store_opened": _timed(lambda q: _ask_opened(folder / "single", q), asked[:50]),
            "open_files": _open_files(folder / "many"),
        }


def _ask_opened(path: Path, question: str) -> None:
    """Open a store, ask it and close it."""
    with _open(path) as memory:
        memory.retrieve(question)


def _timed(ask: Callable[[str], object], questions: list[str]) -> dict[str, float]:
    """Return median and 95th percentile of CPU milliseconds of a call, without the first ones."""
    taken = []
    for question in questions:
        start = time.process_time()
        ask(question)
        taken.append(1e3 * (time.process_time() - start))
    taken = sorted(taken[len(taken) // 10 :])
    return {"p50": statistics.median(taken), "p95": taken[int(0.95 * (len(taken) - 1))]}


def _open_files(folder: Path) -> int:
    """Return the files in a folder that this process has open; 0 if the system does not say."""
    found = Path("/proc/self/fd")
    links = [each.resolve() for each in found.iterdir()] if found.is_dir() else []
    return sum(each.is_relative_to(folder.resolve()) for each in links)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement; the exit code is 1 if anything leaked."""

    def crossing(options: Crossing) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            return run(options, Path(folder), lambda line: print(line, file=sys.stderr))

    report = command(Crossing, crossing, arguments, __doc__)
    return int(bool(report["leaks"] or report["other_answers"]))


if __name__ == "__main__":
    sys.exit(main())
