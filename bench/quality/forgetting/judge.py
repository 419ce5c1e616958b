"""Judge of forgetting: remains of forgotten memories, and the cost (`docs/evaluation.md` 4)."""

from __future__ import annotations

import mmap
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.results import Receipt
from graphmem_torch.store.folder import DATABASE_NAME

from ..common.encoder import TimedEmbedder
from ..common.measure import Stopwatch, percentiles
from ..common.run import Run
from ..growth.judge import life
from ..request import Judged, Request

__all__ = ["GROUPS", "SIZES", "format_table", "found_in", "judge"]
SIZES = (1_000, 10_000)
"""Default numbers of atoms."""

GROUPS = ((1, 20), (100, 3), (1_000, 1))
"""Pairs of memories of one call, and number of calls; at most a third of all in calls of a size."""

_WORD = re.compile(r"[^\W\d_]{8,}")
_PIECE, _STEP = 64, 256  # bytes of a long text that are searched for, and their distance
_KEY, _LONG = 8, 32  # bytes that identify places and long needles
_BITS = 22  # bits of an index into the table of these
_MIX = np.uint64(0x9E3779B97F4A7C15)

T = TypeVar("T")


def judge(
    request: Request,
    *,
    groups: Sequence[tuple[int, int]] = GROUPS,
    session: int = 40,
    questions: int = 64,
) -> Judged:
    """Forget memories one by one, by hundreds and by session, and look for remains.

    Forgotten memories have unique ids, speakers, a session and notes. A memory built from the rest,
    which never held them, is the reference.

    Args:
        request: Evaluation request; its data are texts.
        groups: Sizes and numbers of calls, see `GROUPS`.
        session: Turns of the session that is forgotten by its name.
        questions: Questions to both memories.

    Raises:
        InputError: Data that cannot be read, sizes of less than five sessions.
    """
    sizes = SIZES if request.sizes is None else request.sizes
    if not sizes or min(sizes) < 5 * session:
        raise InputError(
            f"--sizes: expected numbers of atoms from {5 * session} on, got "
            f"{' '.join(map(str, sizes)) or 'none'}; give such as 1000 10000"
        )
    run, clock, asked = Run(request), Stopwatch(), (session, questions)
    embedder = TimedEmbedder(run.encoder, clock)
    options: dict[str, Any] = {"config": run.config, "embedder": embedder, "device": request.device}
    parts = []
    for size in Progress(sizes, "sizes", shown=request.progress):
        folder = Path(tempfile.mkdtemp(prefix="graphmem-forgetting-"))
        try:
            parts.append(_one_size(request, options, folder, size, groups, clock, asked))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return run.judged(
        "forgetting",
        format_table,
        n={"sizes": list(sizes)},
        embedder=embedder.name,
        token_dim=embedder.token_dim,
        sizes=parts,
    )


def _one_size(
    request: Request,
    options: Mapping[str, Any],
    folder: Path,
    size: int,
    groups: Sequence[tuple[int, int]],
    clock: Stopwatch,
    numbers: tuple[int, int],  # turns of a session, and questions
) -> dict[str, Any]:
    chance = request.chance
    own, other = folder / "own", folder / "rebuild"
    with Memory.open(own, **options) as memory:
        turns, calls, session = _marked(
            life(request.data, memory, size), groups, numbers[0], chance
        )
        gone = {name for call in calls for name in call} | {
            turn.id for turn in turns if turn.session == session
        }
        left = [turn for turn in turns if turn.id not in gone]
        memory.add(turns)
        questions = [turn.text for turn in chance.choices(turns, k=numbers[1])]
        memory.retrieve(questions[0])
        needles = _needles(memory, [turn for turn in turns if turn.id in gone])
        receipts, times, asked = list[Receipt](), dict[str, list[float]](), list[float]()
        for number, call in enumerate([*calls, None]):
            named: dict[str, Any] = {"session": session} if call is None else {"ids": call}
            key = "session" if call is None else str(len(call))
            receipt, spent = _cpu(clock, partial(memory.forget, **named))
            receipts.append(receipt)
            times.setdefault(key, []).append(spent / max(1, receipt.atoms))
            question = questions[number % len(questions)]
            asked.append(_cpu(clock, partial(memory.retrieve, question))[1])
        with Memory.open(other, **options) as rebuilt:

            def again() -> None:
                rebuilt.add(left)
                rebuilt.retrieve(questions[0])

            spent = _cpu(clock, again)[1]
            scores = _compared(memory, rebuilt, questions)
            checked = _receipts(memory, rebuilt, receipts)
            names = {n for n in memory.store.ids() if n.startswith(f"{CONCEPT}:")}
        needles["concept"] = [name for name in needles["concept"] if name.decode() not in names]
        problems = memory.check()
    found, allowed = found_in(own, needles), found_in(other, needles)
    return {
        "atoms": size,
        "forgotten": len(gone),
        "traces": {
            kind: {"asked": len(each), "found": len(found[kind] - allowed[kind])}
            for kind, each in needles.items()
        },
        "cpu_ms_per_atom": {key: percentiles(each) for key, each in times.items()},
        "ask_cpu_ms": percentiles(asked),
        "rebuild_cpu_ms": 1000 * spent,
        "scores": scores,
        "receipts": checked,
        "problems": len(problems),
        "database_mb": {
            name: (part / DATABASE_NAME).stat().st_size / 1e6
            for name, part in (("own", own), ("rebuild", other))
        },
    }


def _marked(
    turns: list[Atom], groups: Sequence[tuple[int, int]], size: int, chance: random.Random
) -> tuple[list[Atom], list[list[str]], str]:
    """Return the turns, the ids forgotten by each call, and the forgotten session of that size.

    Forgotten turns have an id, a speaker, a session and a note of their own.
    """

    def word() -> str:
        return f"{chance.getrandbits(64):016x}"

    session, start = f"meeting {word()}", chance.randrange(len(turns) - size)
    for i in range(start, start + size):
        turns[i] = replace(turns[i], id=word(), speaker=word(), session=session)
    places = [i for i in range(len(turns)) if turns[i].session != session]
    chance.shuffle(places)
    calls = []
    for each, count in groups:
        for _ in range(count):
            if each * count > len(turns) // 3 or len(places) < 2 * each:
                break
            call, places = places[:each], places[each:]
            for i in call:
                turns[i] = replace(turns[i], id=word(), speaker=word(), meta={"note": word()})
            calls.append([turns[i].id for i in call])
    return turns, calls, session


def _cpu(clock: Stopwatch, call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its CPU seconds without the encoder's."""
    clock.seconds, clock.cpu = {}, {"encoder": 0.0}
    with clock.running("all"):
        result = call()
    return result, clock.cpu["all"] - clock.cpu["encoder"]


def _needles(memory: Memory, gone: Sequence[Atom]) -> dict[str, list[bytes]]:
    """Return bytes that must be gone, by kind: each of at least eight."""
    store, ids = memory.store, [atom.id for atom in gone]
    known = store.known(ids)
    embeddings, tokens = store.vectors([known[name][0] for name in ids])
    sessions = {atom.session or "" for atom in gone}
    words = {word for atom in gone for word in _WORD.findall(atom.text)}
    rows = () if tokens is None else {row.numpy().tobytes() for row in tokens.tokens}
    kinds: dict[str, Iterable[bytes]] = {
        "text": (piece for atom in gone for piece in _pieces(atom.text)),
        "word": (form.encode() for word in words for form in {word, word.lower()}),
        "id": (name.encode() for name in ids),
        "speaker": ((atom.speaker or "").encode() for atom in gone),
        "session": {name.encode() for name in sessions if "meeting" in name},
        "note": (str(atom.meta["note"]).encode() for atom in gone if atom.meta),
        "concept": (name.encode() for name in store.ids() if name.startswith(f"{CONCEPT}:")),
        "embedding": (row.numpy().tobytes() for row in embeddings),
        "token vector": rows,
    }
    return {
        kind: sorted({each for each in found if len(each) >= _KEY}) for kind, found in kinds.items()
    }


def _pieces(text: str) -> Iterator[bytes]:
    data = text.encode()
    if len(data) <= _STEP:
        yield data
    else:
        yield from (data[at : at + _PIECE] for at in range(0, len(data) - _PIECE, _STEP))


def found_in(
    folder: Path, needles: Mapping[str, Sequence[bytes]], *, tile: int = 1 << 24
) -> dict[str, set[bytes]]:
    """Return the needles, of at least eight bytes, that the files of a folder contain, by kind.

    `tile` bytes of a file are searched at once.
    """
    places: dict[bytes, list[tuple[str, bytes, int]]] = {}
    for kind, each in needles.items():
        for needle in each:
            # Where it is least like all else, and no run of zeros.
            first = max(range(len(needle) - _KEY + 1), key=lambda i: len({*needle[i : i + _KEY]}))
            # Few numbers make up the vectors of some encoders: one pair of them says little.
            size = _LONG if first + _LONG <= len(needle) else _KEY
            places.setdefault(needle[first : first + size], []).append((kind, needle, first))
    keys = np.frombuffer(b"".join(place[:_KEY] for place in places), dtype=np.uint64)
    table = np.zeros(1 << _BITS, dtype=bool)
    table[(keys * _MIX) >> np.uint64(64 - _BITS)] = True
    found: dict[str, set[bytes]] = {kind: set() for kind in needles}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if not path.stat().st_size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for start in range(0, len(data), tile):
                part = data[start : start + tile + _KEY - 1]
                for shift in range(min(_KEY, max(0, len(part) - _KEY + 1))):
                    count = (len(part) - shift) // _KEY
                    values = np.frombuffer(part, np.uint64, count, shift)
                    near = table[(values * _MIX) >> np.uint64(64 - _BITS)]
                    for at in np.flatnonzero(near).tolist():
                        place = start + shift + _KEY * at
                        for size in (_KEY, _LONG):
                            for kind, needle, first in places.get(data[place : place + size], ()):
                                begin = place - first
                                if begin >= 0 and data[begin : begin + len(needle)] == needle:
                                    found[kind].add(needle)
    return found


def _compared(memory: Memory, rebuilt: Memory, questions: Sequence[str]) -> dict[str, Any]:
    """Return the difference of answers to those of a memory that never held the forgotten."""
    same, worst = 0, 0.0
    both = zip(memory.retrieve(questions), rebuilt.retrieve(questions), strict=True)
    for own, other in both:
        scores = {hit.id: hit.raw for hit in other.hits}
        same += list(scores) == [hit.id for hit in own.hits]
        worst = max([worst, *(abs(hit.raw - scores.get(hit.id, 0.0)) for hit in own.hits)])
    return {"n": len(questions), "same": same, "worst": worst}


def _receipts(
    memory: Memory, rebuilt: Memory, receipts: Sequence[Receipt]
) -> dict[str, dict[str, int]]:
    """Count receipts that verify, and altered or foreign ones that fail."""
    held = sum(not memory.upkeep.check_receipt(receipt) for receipt in receipts)
    forged = [
        change
        for receipt in receipts
        for change in (
            replace(receipt, atoms=receipt.atoms + 1),
            replace(receipt, when=receipt.when - 1.0),
            replace(receipt, erased=receipt.erased[1:]),
            replace(receipt, salt=receipt.salt[::-1] + "0"),
            replace(receipt, previous="0" * 64),
        )
    ]
    forged += [replace(each, digest=each.content_digest()) for each in forged]
    refused = sum(bool(memory.upkeep.check_receipt(each)) for each in forged)
    refused += sum(bool(rebuilt.upkeep.check_receipt(each)) for each in receipts)
    return {
        "verified": {"n": len(receipts), "right": held},
        "refused": {"n": len(forged) + len(receipts), "right": refused},
    }


def format_table(report: Mapping[str, Any]) -> str:
    """Return a line for each size; below it the remains, and the rebuilt memory."""
    groups = list(report["sizes"][-1]["cpu_ms_per_atom"])
    rows = [["atoms", "forgotten", *(f"by {key}" for key in groups), "question", "traces"]]
    lines = []
    for part in report["sizes"]:
        times = part["cpu_ms_per_atom"]
        cells = [f"{times[key]['p50']:.1f}" if key in times else "" for key in groups]
        traces = sum(each["found"] for each in part["traces"].values())
        asked, size = f"{part['ask_cpu_ms']['p50']:.0f}", f"{part['atoms']:,}"
        rows.append([size, f"{part['forgotten']:,}", *cells, asked, str(traces)])
        scores, checked = part["scores"], part["receipts"]
        megabytes = part["database_mb"]
        lines += [
            f"{size} atoms: looked for "
            + ", ".join(f"{each['asked']:,} x {kind}" for kind, each in part["traces"].items()),
            f"{size} atoms: made anew of the rest in {part['rebuild_cpu_ms']:,.0f} ms (CPU), "
            f"{megabytes['rebuild']:.1f} MB against {megabytes['own']:.1f}; the same ranking for "
            f"{scores['same']} of {scores['n']} questions, scores off by at most "
            f"{scores['worst']:.1g}",
            f"{size} atoms: {checked['verified']['right']} of {checked['verified']['n']} receipts "
            f"verified, {checked['refused']['right']} of {checked['refused']['n']} false ones "
            f"refused; problems {part['problems']}",
        ]
    heading = "CPU milliseconds an atom, by how many go in one call, and of the question after it"
    return "\n".join([heading, "", *text_table(rows), "", *lines])
