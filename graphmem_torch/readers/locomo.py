"""Read LoCoMo conversations (arXiv 2402.17753): dated sessions of turns, facts, and questions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.source import decode, parse_json, read_bytes
from graphmem_torch.text.surrogates import HALVES, replace_surrogates
from graphmem_torch.text.times import parse_time

__all__ = ["LocomoSample", "is_locomo", "locomo_atoms", "read_locomo"]
_log = logging.getLogger(__name__)
_INPUTS = ("raw", "observations")
_SESSION = lazy_pattern(r"session_(\d+)")
_TURN_ID = lazy_pattern(r"[^\s,;]+")


@dataclass(frozen=True)
class LocomoSample:
    """Conversation with its questions.

    Attributes:
        sample_id: Id in the file.
        atoms: Turns (and observations) in order; the id of a turn is its `dia_id`.
        qa: Questions in the form of the file.
    """

    sample_id: str
    atoms: list[Atom]
    qa: list[dict[str, Any]]


def is_locomo(data: object) -> bool:
    """Return whether parsed JSON looks like LoCoMo: samples with a `conversation`."""
    samples = data if isinstance(data, list) else [data]
    return bool(samples) and all(
        isinstance(s, Mapping) and isinstance(s.get("conversation"), Mapping) for s in samples
    )


def read_locomo(path: str | Path, *, input: str = "raw") -> list[LocomoSample]:
    """Read the conversations of a LoCoMo file separately.

    Args:
        path: Path of the file, which holds a list of samples or one sample.
        input: Parts to read: "raw" for the turns, "observations" for the facts of the data set as
            well.

    Raises:
        InputError: Not LoCoMo, or an invalid turn.
    """
    where = str(path)
    if not Path(path).is_file():
        raise InputError("expected a file, got no such file; check its path", where=where)
    samples = _parse(decode(read_bytes(Path(path)), where), where)
    return [
        LocomoSample(
            _sample_id(sample, i),
            list(_sample_atoms(sample, "", where, input)),
            list(sample.get("qa") or []),
        )
        for i, sample in enumerate(samples)
    ]


def locomo_atoms(text: str, where: str, *, input: str = "raw") -> Iterator[Atom]:
    """Yield the atoms of a LoCoMo file.

    Ids and sessions begin with "<sample_id>/" if the file holds several conversations.
    """
    samples = _parse(text, where)
    for i, sample in enumerate(samples):
        prefix = f"{_sample_id(sample, i)}/" if len(samples) > 1 else ""
        yield from _sample_atoms(sample, prefix, where, input)


def _parse(text: str, where: str) -> Sequence[Mapping[str, Any]]:
    data, halves = replace_surrogates(parse_json(text, where))
    if halves:
        _log.warning("%s: %d x %s", where, halves, HALVES)
    if not is_locomo(data):
        raise InputError(
            'expected LoCoMo, a list of samples with a "conversation", or the export of a chat, '
            "got other JSON; use .jsonl for one atom a line",
            where=where,
        )
    return data if isinstance(data, list) else [data]


def _sample_id(sample: Mapping[str, Any], number: int) -> str:
    return str(sample.get("sample_id") or f"conv-{number}")


def _sample_atoms(sample: Mapping[str, Any], prefix: str, where: str, input: str) -> Iterator[Atom]:
    if input not in _INPUTS:
        raise InputError(unknown("input", input, _INPUTS))
    conversation = sample["conversation"]
    numbers = [
        int(m[1]) for key in conversation if (m := _SESSION.fullmatch(key)) and conversation[key]
    ]
    sessions = [f"session_{number}" for number in sorted(numbers)]
    turns: set[str] = set()
    times: dict[str, float | None] = {}
    for session in sessions:
        place = f"{where}: {prefix}{session}"
        date = conversation.get(f"{session}_date_time")
        times[session] = None if date is None else parse_time(date, where=place)
        for atom in _turns(conversation[session], prefix, session, times[session], place):
            turns.add(atom.id)
            yield atom
    for session in sessions if input == "observations" else ():
        facts = (sample.get("observation") or {}).get(f"{session}_observation") or {}
        place = f"{where}: {prefix}{session}"
        yield from _observations(facts, prefix, session, times[session], place, turns)


def _turns(
    turns: object, prefix: str, session: str, time: float | None, where: str
) -> Iterator[Atom]:
    if not isinstance(turns, list):
        raise InputError(
            f"expected a list of turns, got {turns!r:.60}; leave out a session without any",
            where=where,
        )
    for number, turn in enumerate(turns, start=1):
        place = f"{where}, turn {number}"
        if not isinstance(turn, Mapping) or not isinstance(turn.get("dia_id"), str):
            raise InputError(
                f'expected a turn with "speaker", "dia_id" and "text", got {turn!r:.80}; add them',
                where=place,
            )
        text, speaker = turn.get("text") or "", turn.get("speaker")
        caption = turn.get("blip_caption")
        if not isinstance(text, str) or not isinstance(speaker, str):
            raise InputError(
                f'expected strings as "speaker" and "text", got {turn!r:.80}; put them in quotes',
                where=place,
            )
        # The query of the image search is left out: it was written to find the image and is not
        # part of the dialogue.
        shown = " ".join(
            part for part in (text.strip(), f"[image: {caption}]" if caption else "") if part
        )
        if shown:
            yield Atom(
                prefix + turn["dia_id"],
                shown,
                kind="turn",
                speaker=speaker,
                session=prefix + session,
                time=time,
            )


def _observations(
    facts: object, prefix: str, session: str, time: float | None, where: str, turns: set[str]
) -> Iterator[Atom]:
    if not isinstance(facts, Mapping):
        raise InputError(
            f"expected facts by speaker, got {facts!r:.60}; read the turns alone: input='raw'",
            where=where,
        )
    for speaker, entries in facts.items():
        for number, entry in enumerate(entries, start=1):
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
                raise InputError(
                    f"expected an observation [text, evidence], got {entry!r:.80}; correct it",
                    where=f"{where}, observation {number} of {speaker}",
                )
            text, evidence = entry
            # Evidence is an id, a list of ids, or ids in one string.
            given = evidence if isinstance(evidence, str) else " ".join(map(str, evidence or ()))
            ids = [prefix + name for name in dict.fromkeys(_TURN_ID.findall(given))]
            yield Atom(
                f"{prefix}obs:{session}:{speaker}:{number}",
                text,
                kind="observation",
                speaker=speaker,
                session=prefix + session,
                time=time,
                edges=tuple(Link(name, EdgeType.DERIVED_FROM) for name in ids if name in turns),
            )
