"""Read chats of users with an assistant, pooled as one memory: LongMemEval (arXiv 2410.10813)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.text.times import parse_time

from .questions import Conversation, Question
from .scores import ADVERSARIAL
from .sets import QuestionSet
from .texts import json_rows

__all__ = ["find_chats", "read_chats"]
_NAME = "longmemeval"
_ABSTENTION = "_abs"  # suffix of the id of a question that the chats do not answer
_FIRST = 10  # number of the first type of questions: LoCoMo's five stay free
_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2}) \(\w+\) (\d{2}:\d{2})")


def find_chats(folder: Path) -> tuple[Path, Path] | None:
    """Return the files of a folder, `*sessions*.jsonl` and `*questions*.jsonl`, or None.

    Raises:
        InputError: Several of a kind, or one kind alone.
    """
    found = [sorted(folder.glob(f"*{kind}*.jsonl")) for kind in ("sessions", "questions")]
    if not any(found):
        return None
    if [len(files) for files in found] != [1, 1]:
        names = ", ".join(file.name for files in found for file in files)
        raise InputError(
            f"expected one *sessions*.jsonl and one *questions*.jsonl, got {names}; keep one pair "
            "in a folder",
            where=str(folder),
        )
    (sessions,), (questions,) = found
    return sessions, questions


def read_chats(folder: Path) -> QuestionSet:
    """Read the sessions of a folder as one memory, and its questions.

    A session line has `session_id`, `date` ("2023/05/28 (Sun) 21:04", or a form of `parse_time`)
    and `turns` with `role` and `content`. A question line has `question_id`, `type`, `question`,
    `gold_sessions` (ids) and `gold_turns` (pairs of id and index). A question whose id ends in
    "_abs" has no answer there: it has no type, and forms a group of its own.

    Raises:
        InputError: No such files, an invalid line (with file and line), or gold that the sessions
            lack.
    """
    files = find_chats(folder) if folder.is_dir() else None
    if files is None:
        raise InputError(
            "expected a folder with *sessions*.jsonl and *questions*.jsonl, got neither; add them",
            where=str(folder),
        )
    sessions: dict[str, dict[int, Atom]] = {}
    for row, where in json_rows(files[0], ("session_id", "turns")):
        name = str(row["session_id"])
        if name in sessions:
            raise InputError(
                f"session_id: expected another one, got {name!r} again; rename it", where=where
            )
        sessions[name] = dict(_turns(name, row, where))
    types: dict[str, int] = {}
    questions = [
        _question(row, where, sessions, types)
        for row, where in json_rows(
            files[1], ("question_id", "type", "question", "gold_sessions", "gold_turns")
        )
    ]
    groups = {
        "all": tuple(types.values()),
        **{name: (types[name],) for name in sorted(types)},
        "abstention": (ADVERSARIAL,),
    }
    atoms = tuple(atom for turns in sessions.values() for atom in turns.values())
    return QuestionSet(
        _NAME,
        (Conversation(_NAME, atoms, tuple(questions)),),
        groups=groups,
        at=5,
        sources=frozenset({_NAME}),
        data_kind="assistant",
    )


def _turns(name: str, row: Mapping[str, Any], where: str) -> Iterator[tuple[int, Atom]]:
    """Yield the non-empty turns of a session with their indices."""
    time = None if row.get("date") is None else _time(str(row["date"]), where)
    for place, turn in enumerate(row["turns"]):
        if not isinstance(turn, Mapping) or not {"role", "content"} <= turn.keys():
            raise InputError(
                f"turns: expected objects with role and content, got {turn!r:.80}; add both",
                where=where,
            )
        text = str(turn["content"])
        if text.strip():
            yield (
                place,
                Atom(f"{name}:{place}", text, speaker=str(turn["role"]), session=name, time=time),
            )


def _question(
    row: Mapping[str, Any],
    where: str,
    sessions: Mapping[str, Mapping[int, Atom]],
    types: dict[str, int],
) -> Question:
    gold = []
    for name in row["gold_sessions"]:
        if name not in sessions:
            raise InputError(
                f"gold_sessions: expected ids of sessions, got {name!r}, which none has; fix it",
                where=where,
            )
    for pair in row["gold_turns"]:
        name, place = pair if isinstance(pair, list) and len(pair) == 2 else ("", -1)
        if place not in sessions.get(name, {}):
            raise InputError(
                f"gold_turns: expected pairs of a session's id and a place, got {pair!r:.80}, "
                "where no turn is; correct it",
                where=where,
            )
        gold.append(sessions[name][place].id)
    absent = str(row["question_id"]).endswith(_ABSTENTION)
    number = ADVERSARIAL if absent else types.setdefault(str(row["type"]), _FIRST + len(types))
    return Question(
        str(row["question"]),
        number,
        tuple(dict.fromkeys(gold)),
        tuple(row["gold_sessions"]),
        time=None if row.get("date") is None else _time(str(row["date"]), where),
        answer=str(row.get("answer", "")),
    )


def _time(text: str, where: str) -> float:
    match = _DATE.fullmatch(text.strip())
    return parse_time("{}-{}-{}T{}".format(*match.groups()) if match else text, where=where)
