"""LoCoMo conversations with their questions and the turns that answer them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.readers.locomo import read_locomo

from .texts import json_rows

__all__ = ["Conversation", "Question", "find_evidence", "read_conversations", "resolve_evidence"]
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        text: Wording.
        category: Number of its category, which the set names; `ADVERSARIAL` has no answer.
        gold: Ids of the atoms that answer it, empty if unknown.
        sessions: Names of the sessions that hold the answer, if sessions are judged as well.
        id: Id in a file of rankings; its number in the set by default.
        relevance: Positive grades of the gold; equal by default.
        absent: Grades of relevant documents that the collection lacks; never found.
        answer: Answer in the data, or empty.
        time: Time of asking in seconds since the epoch, UTC; None if unknown.
    """

    text: str
    category: int
    gold: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    id: str = ""
    relevance: tuple[float, ...] = ()
    time: float | None = None
    absent: tuple[tuple[str, float], ...] = ()
    answer: str = ""

    @property
    def grades(self) -> dict[str, float]:
        """Return the grades of the gold and of absent documents by id."""
        relevance = self.relevance or (1.0,) * len(self.gold)
        return dict(zip(self.gold, relevance, strict=True)) | dict(self.absent)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Conversation as atoms, with its questions."""

    name: str
    atoms: tuple[Atom, ...]
    questions: tuple[Question, ...]


def read_conversations(
    data: str | Path,
    *,
    evidence: str | Path | None = None,
    input: str = "raw",
) -> list[Conversation]:
    """Read a LoCoMo file, or the one LoCoMo file in a folder.

    Args:
        data: Path of LoCoMo JSON (a list of conversations), or of a folder with such a file.
        evidence: JSON lines with `sample_id`, `qa_index` and `evidence_resolved`. Without it the
            evidence in the file is repaired by `resolve_evidence`.
        input: `raw` (turns) or `observations` (turns and the facts in the file).

    Raises:
        InputError: Not a LoCoMo file, a question without a field, or evidence of other data.
    """
    path = _find(Path(data))
    repaired = _read_evidence(Path(evidence)) if evidence is not None else None
    conversations = []
    for sample in read_locomo(path, input=input):
        turns = {_turn_id(atom): atom.id for atom in sample.atoms if atom.kind == "turn"}
        questions = []
        for number, entry in enumerate(sample.qa):
            where = f"{path}: {sample.sample_id} question {number}"
            raw = entry.get("evidence") or []
            if repaired is not None:
                if (sample.sample_id, number) not in repaired:
                    raise InputError(
                        f"expected its evidence in {evidence}, got none; "
                        "give the evidence file of this data, or none",
                        where=where,
                    )
                raw = repaired[sample.sample_id, number]
            questions.append(_question(entry, resolve_evidence(raw, turns), where))
        conversations.append(Conversation(sample.sample_id, tuple(sample.atoms), tuple(questions)))
    if not any(conversation.questions for conversation in conversations):
        raise InputError("expected questions under `qa`, got none; add them", where=str(path))
    return conversations


def find_evidence(folder: Path) -> Path | None:
    """Return the repaired evidence of a LoCoMo folder, its only `*evidence*.jsonl`, or None."""
    files = sorted(folder.glob("*evidence*.jsonl"))
    return files[0] if len(files) == 1 else None


def resolve_evidence(raw: str | Sequence[str], turns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the atom ids named by LoCoMo evidence, which is sometimes malformed.

    Several ids in one string (`D8:6; D9:17`), a stray colon (`D:11:26`) and leading zeros
    (`D30:05`) are repaired; ids of no turn are dropped.

    Args:
        raw: Evidence in the file.
        turns: Map from turn id in the file (`D8:6`) to atom id.
    """
    text = raw if isinstance(raw, str) else " ".join(str(part) for part in raw)
    named = dict.fromkeys(f"D{int(a)}:{int(b)}" for a, b in _TURN_ID.findall(text))
    return tuple(turns[name] for name in named if name in turns)


def _question(entry: Mapping[str, Any], gold: tuple[str, ...], where: str) -> Question:
    text, category = entry.get("question"), entry.get("category")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected a text under `question`, got {text!r}; add it", where=where)
    if category not in (1, 2, 3, 4, 5):
        raise InputError(
            f"expected a `category` from 1 to 5, got {category!r}; correct it", where=where
        )
    return Question(text, int(category), gold, answer=str(entry.get("answer", "")))


def _turn_id(atom: Atom) -> str:
    return atom.id.rsplit("/", 1)[-1]


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [file for file in sorted(path.glob("*.json")) if _is_locomo(file)]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(
            f"expected one LoCoMo file in the folder, got {names}; name the file", where=str(path)
        )
    return found[0]


def _is_locomo(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as stream:
        # The file may be tens of megabytes; its first keys are enough.
        return '"qa"' in stream.read(65536)


def _read_evidence(path: Path) -> dict[tuple[str, int], list[str]]:
    table: dict[tuple[str, int], list[str]] = {}
    for row, where in json_rows(path, ("sample_id", "qa_index", "evidence_resolved")):
        number, ids = row["qa_index"], row["evidence_resolved"]
        if not isinstance(number, int) or not isinstance(ids, list):
            raise InputError(
                "expected a number as qa_index and a list as evidence_resolved, got "
                f"{number!r:.80} and {ids!r:.80}; correct the line",
                where=where,
            )
        table[str(row["sample_id"]), number] = ids
    return table
