"""Judge of the cost of a change and of the next question (`docs/evaluation.md` 4)."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.store.folder import DATABASE_NAME

from ..common.encoder import TimedEmbedder
from ..common.measure import Stopwatch, percentiles
from ..common.run import Run
from ..common.texts import split_at_marks, text_atoms
from ..request import Judged, Request
from .systems import PEERS, Own, System, installed

__all__ = ["COMPARED", "ROUNDS", "SIZES", "format_table", "judge", "life"]
SIZES = (1_000, 10_000, 100_000)
"""Default numbers of atoms."""

ROUNDS = 100
"""Repetitions of each operation at each size."""

COMPARED = 64
"""Questions that the rebuilt index is asked as well."""

_SINGLY = 3000  # maximum turns added one by one, compared with as many at once
_SESSION = 200  # turns of a session
_START, _STEP = 1.6e9, 60.0  # seconds since the epoch of the first turn, and between two
_SELDOM = 5  # additions per correction, and per deletion
_ENOUGH = 120.0  # seconds of these; beyond it there are fewer
_WORDS = range(5, 31)  # words of a sentence that is asked for


@dataclass(eq=False)
class _Times:
    """Seconds of operations by name, one entry each; the encoder's are separate."""

    clock: Stopwatch
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    encoder: dict[str, list[float]] = field(default_factory=dict)

    def of(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call and record its time."""
        clock = self.clock
        clock.seconds, clock.cpu = {"encoder": 0.0}, {"encoder": 0.0}
        with clock.running("all"):
            result = call(*arguments)
        for kept, spent in ((self.wall, clock.seconds), (self.cpu, clock.cpu)):
            kept.setdefault(name, []).append(spent["all"] - spent["encoder"])
        self.encoder.setdefault(name, []).append(clock.seconds["encoder"])
        return result

    def summary(self) -> dict[str, Any]:
        """Percentiles in milliseconds."""
        parts = {"ms": self.wall, "cpu_ms": self.cpu, "encoder_ms": self.encoder}
        return {
            key: {name: percentiles(seconds) for name, seconds in part.items()}
            for key, part in parts.items()
        }


def judge(request: Request, *, rounds: int = ROUNDS, compared: int = COMPARED) -> Judged:
    """Grow a memory and use it a while at each size, beside the installed peers.

    Every system keeps the same turns on disk, with vectors of the same encoder.

    Raises:
        InputError: Data that cannot be read, sizes that do not grow.
    """
    sizes = SIZES if request.sizes is None else request.sizes
    run = Run(request)
    config = run.config
    if not sizes or sizes[0] < 2 or any(b - a < rounds for a, b in pairwise(sizes)):
        raise InputError(
            f"--sizes: expected numbers of atoms that grow by at least {rounds}, got "
            f"{' '.join(map(str, sizes)) or 'none'}; give such as 1000 10000"
        )
    clock, peers = Stopwatch(), installed()
    embedder = TimedEmbedder(run.encoder, clock)
    options: dict[str, Any] = {"config": config, "embedder": embedder, "device": request.device}
    folder = Path(tempfile.mkdtemp(prefix="graphmem-growth-"))
    parts, begin = [], 0
    try:
        with ExitStack() as stack:
            memory = stack.enter_context(Memory.open(folder / "own", **options))
            turns = life(request.data, memory, sizes[-1] + rounds)
            asked = request.chance.choices(turns[: sizes[0]], k=compared)
            few = turns[: min(sizes[0], _SINGLY)]
            singly = _singly(folder, options, few, asked, clock)
            systems: dict[str, System] = {config.name: Own(memory)}
            for name in (name for name, there in peers.items() if there):
                systems[name] = PEERS[name](folder / name, embedder)
                stack.callback(systems[name].close)
            for size in Progress(sizes, "sizes", shown=request.progress):
                found = {}
                for name, system in systems.items():
                    start = time.perf_counter()
                    system.fill(turns[begin:size])
                    seconds = time.perf_counter() - start
                    times = _Times(clock)
                    shares = _live(system, turns, (begin, size, rounds), request.chance, times)
                    found[name] = {**times.summary(), **shares, "fill_s": seconds}
                asked = request.chance.choices(turns[:size], k=compared)
                questions = [_sentence(turn) for turn in asked]
                # Nobody has closed the memory, so there is no snapshot that could be read instead.
                with Memory.open(folder / "own", mode="r", **options) as reader:
                    rebuilt = _rebuilt(memory, reader, questions, _Times(clock))
                parts.append({"atoms": size, "systems": found, "rebuild": rebuilt})
                begin = size + rounds
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return run.judged(
        "growth",
        format_table,
        n={"sizes": list(sizes), "rounds": rounds},
        embedder=embedder.name,
        token_dim=embedder.token_dim,
        peers=peers,
        singly=singly,
        sizes=parts,
    )


def life(data: Path, memory: Memory, count: int) -> list[Atom]:
    """Return turns of user and agent, one a minute, with the texts of a file or folder.

    If there are fewer texts, the first half of each is joined to the second of another.

    Raises:
        InputError: Data that cannot be read, or holds no text.
    """
    texts = [atom.text for atom in islice(text_atoms(data, memory), count)]
    if not texts:
        raise InputError("expected texts, got none; name another file", where=str(data))
    turns = []
    for i in range(count):
        again, place = divmod(i, len(texts))
        text = texts[place]
        if again:
            text = _mixed(text, texts[(place + again) % len(texts)])
        speaker, session = ("user", "agent")[i % 2], f"session {i // _SESSION}"
        turns.append(Atom(f"t{i}", text, speaker=speaker, session=session, time=_START + _STEP * i))
    return turns


def _singly(
    folder: Path,
    options: Mapping[str, Any],
    turns: Sequence[Atom],
    asked: Sequence[Atom],
    clock: Stopwatch,
) -> dict[str, Any]:
    """Measure a memory filled turn by turn, and one filled at once: size and questions.

    Both are closed and reopened; the index is that of the snapshot.
    """
    parts: dict[str, list[Sequence[Atom]]]
    parts = {"at once": [turns], "one by one": [[turn] for turn in turns]}
    questions = [_sentence(turn) for turn in asked]
    times, megabytes, memories = _Times(clock), {}, {}
    with ExitStack() as stack:
        for name, adds in parts.items():
            with Memory.open(folder / name, **options) as memory:
                for some in adds:
                    memory.add(some)
            megabytes[name] = (folder / name / DATABASE_NAME).stat().st_size / 1e6
            memories[name] = stack.enter_context(Memory.open(folder / name, mode="r", **options))
            memories[name].retrieve(questions[:1])
        for question in questions:
            for name, memory in memories.items():
                times.of(name, memory.retrieve, question)
    return {"atoms": len(turns), "database_mb": megabytes, **times.summary()}


def _live(
    system: System,
    turns: Sequence[Atom],
    part: tuple[int, int, int],  # begin and end of the turns filled last, rounds
    chance: random.Random,
    times: _Times,
) -> dict[str, float]:
    """Correct some turns, delete some, then add others one by one, each before a question.

    Every second question is a sentence of the turn just added, the others of any turn. After a
    correction it is of the new text, after a deletion of the deleted one.

    Returns:
        Share of questions that find the latest text, and that still find a deleted one.
    """
    begin, size, rounds = part
    old, found, stale = turns[:size], [], []
    few = min(max(1, rounds // _SELDOM), (size - begin) // 2)
    changing = chance.sample(turns[begin:size], 2 * few)
    system.ask(_sentence(old[0]))  # work after the filling is not part of the measurement
    start = time.perf_counter()
    for turn, other in zip(changing[:few], changing[few:], strict=True):
        now = replace(turn, text=_mixed(turn.text, other.text))
        times.of("correct", system.correct, now)
        found.append(turn.id in times.of("ask, corrected", system.ask, _sentence(now)))
        times.of("delete", system.delete, other.id)
        stale.append(other.id in times.of("ask, deleted", system.ask, _sentence(other)))
        if time.perf_counter() - start > _ENOUGH:
            break
    for number, turn in enumerate(turns[size : size + rounds]):
        times.of("add", system.add, turn)
        about = chance.choice(old) if number % 2 else turn
        hits = times.of("ask", system.ask, _sentence(about))
        if about is turn:
            found.append(turn.id in hits)
        times.of("ask again", system.ask, _sentence(chance.choice(old)))
    share = {"fresh": sum(found) / len(found), "stale": sum(stale) / len(stale)}
    return {**share, "changes": len(stale)}


def _mixed(text: str, other: str) -> str:
    """Return the first half of a text's words with the second half of another's."""
    words, others = text.split(), other.split()
    return " ".join(words[: (len(words) + 1) // 2] + others[len(others) // 2 :])


def _sentence(turn: Atom) -> str:
    """Return the first sentence of 5 to 30 words, else the first words."""
    parts = split_at_marks(turn.text)
    fitting = [part for part in parts if len(part.split()) in _WORDS]
    return fitting[0] if fitting else " ".join(turn.text.split()[: _WORDS[-1]])


def _rebuilt(
    memory: Memory, reader: Memory, questions: Sequence[str], times: _Times
) -> dict[str, Any]:
    """Measure a reader that builds the index at once, and the difference of its answers."""
    times.of("rebuild", lambda: reader.index)
    same, worst = 0, 0.0
    both = zip(memory.retrieve(questions), reader.retrieve(questions), strict=True)
    for own, other in both:
        scores = {hit.id: hit.raw for hit in other.hits}
        same += list(scores) == [hit.id for hit in own.hits]
        worst = max([worst, *(abs(hit.raw - scores.get(hit.id, 0.0)) for hit in own.hits)])
    summary = {key: part["rebuild"]["p50"] for key, part in times.summary().items()}
    return {**summary, "n": len(questions), "same": same / len(questions), "worst": worst}


def format_table(report: Mapping[str, Any]) -> str:
    """Format median / 95th percentile in milliseconds without the encoder, by size and system."""
    first = next(iter(report["sizes"][0]["systems"].values()))
    rows, lines = [["atoms, system", *first["ms"], "fresh", "stale"]], []
    for part in report["sizes"]:
        for name, found in part["systems"].items():
            shares = [f"{100 * found[key]:.0f} %" for key in ("fresh", "stale")]
            for key, what, more in (("ms", "", shares), ("cpu_ms", ", CPU", ["", ""])):
                cells = [f"{each['p50']:.1f} / {each['p95']:.1f}" for each in found[key].values()]
                rows.append([f"{part['atoms']:,} {name}{what}", *cells, *more])
        again = part["rebuild"]
        lines.append(
            f"{part['atoms']:,} atoms: the index at once {again['ms']:,.0f} ms (CPU "
            f"{again['cpu_ms']:,.0f}); the same ranking for {100 * again['same']:.0f} % of "
            f"{again['n']} questions, scores off by at most {again['worst']:.1g}"
        )
    single = report["singly"]
    for name, size in single["database_mb"].items():
        asked = single["cpu_ms"][name]["p50"]
        lines.append(
            f"{single['atoms']:,} atoms {name}: a database of {size:.2f} MB, then a question in "
            f"{asked:.1f} ms (CPU)"
        )
    lines += [f"{name}: not installed" for name, there in report["peers"].items() if not there]
    return "\n".join([*text_table(rows), "", *lines])
