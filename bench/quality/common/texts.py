"""Read texts for judges: passages with questions (MuSiQue, HotpotQA, 2Wiki), and sentences."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers.jsonl import read_records
from graphmem_torch.readers.read import check_paths, read_atoms
from graphmem_torch.readers.source import decode, parse_json, read_bytes

__all__ = [
    "Passage",
    "PassageQuestion",
    "PassageSet",
    "Span",
    "json_rows",
    "read_passage_sets",
    "sentence_spans",
    "split_at_marks",
    "text_atoms",
]
_CORPUS = "_corpus.jsonl"
_QUERIES = "_queries.jsonl"
# Plain on purpose: needles, cut sentences and their figures must not change with the splitter of
# the library (`graphmem_torch.text.sentences`), which is itself under test.
_BREAK = re.compile(r"(?<=[.!?])\s+")

Span = tuple[int, int]
"""Start and end, in characters."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Passage of an encyclopaedia."""

    title: str
    text: str

    @property
    def whole(self) -> str:
        """Return the title on the first line, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """Question about passages.

    Attributes:
        text: Wording.
        gold: Indices of the passages that are needed to answer it.
        answers: Accepted answers; empty if the set has none.
    """

    text: str
    gold: tuple[int, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageSet:
    """Passages of one pair of files, in file order, with their questions."""

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[PassageQuestion, ...]


def read_passage_sets(folder: Path) -> list[PassageSet]:
    """Read the pairs `NAME_corpus.jsonl` and `NAME_queries.jsonl` in a folder and below it.

    A corpus line has `id`, `title` and `text`; a question line `question`, `gold_ids` (ids of the
    corpus) and, where known, `answer` (a text or several).

    Returns:
        Sets ordered by path, named NAME, or by their path below the folder if a NAME repeats; empty
        without pairs.

    Raises:
        InputError: Invalid line, with file and line, or a gold id that the corpus lacks.
    """
    paths = [
        path.with_name(path.name.removesuffix(_QUERIES))
        for path in sorted(folder.rglob(f"*{_QUERIES}"))
    ]
    paths = [path for path in paths if path.with_name(path.name + _CORPUS).is_file()]
    times = Counter(path.name for path in paths)
    return [
        _read_set(path, path.name if times[path.name] == 1 else str(path.relative_to(folder)))
        for path in paths
    ]


def _read_set(path: Path, name: str) -> PassageSet:
    corpus, queries = path.with_name(path.name + _CORPUS), path.with_name(path.name + _QUERIES)
    place: dict[Any, int] = {}
    passages: list[Passage] = []
    for row, where in json_rows(corpus, ("id", "text")):
        place[_id(row["id"], where)] = len(passages)
        passages.append(Passage(str(row.get("title") or ""), str(row["text"])))
    questions = []
    for row, where in json_rows(queries, ("question", "gold_ids")):
        ids = row["gold_ids"]
        if not isinstance(ids, list) or not ids:
            raise InputError(
                f"gold_ids: expected a list of passage ids, got {ids!r}; correct it", where=where
            )
        missing = [i for i in ids if _id(i, where) not in place]
        if missing:
            raise InputError(
                f"gold_ids: expected ids of {corpus.name}, got {missing[0]!r}, which it lacks; "
                "correct it",
                where=where,
            )
        gold = tuple(dict.fromkeys(place[i] for i in ids))
        answers = row.get("answer") or []
        answers = answers if isinstance(answers, list) else [answers]
        questions.append(
            PassageQuestion(str(row["question"]), gold, tuple(str(a) for a in answers))
        )
    return PassageSet(name, tuple(passages), tuple(questions))


def _id(value: Any, where: str) -> Any:
    if not isinstance(value, (str, int)):
        raise InputError(f"id: expected a text or a number, got {value!r}; correct it", where=where)
    return value


def json_rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects of a file of JSON lines, each with its place for messages."""
    lines = decode(read_bytes(path), str(path)).split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        row = parse_json(line, str(path), line=number)
        if not isinstance(row, dict):
            raise InputError(f"expected a JSON object, got {line[:60]!r}; correct it", where=where)
        missing = [name for name in needed if name not in row]
        if missing:
            raise InputError(
                f"expected the field {missing[0]!r}, got {sorted(row)}; add it", where=where
            )
        yield row, where


def sentence_spans(text: str) -> list[Span]:
    """Return the spans of a text that end with a mark (. ! ?) before white space.

    The last span extends to the end of the text; it is empty if white space follows the last mark.
    """
    breaks = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in breaks)]
    ends = [*(start for start, _ in breaks), len(text)]
    return list(zip(starts, ends, strict=True))


def split_at_marks(text: str) -> list[str]:
    """Return the parts of `sentence_spans`, without the white space between them."""
    return [text[start:end] for start, end in sentence_spans(text)]


def text_atoms(data: Path, memory: Memory) -> Iterator[Atom]:
    """Yield the atoms that a memory would index of a file or folder, xz-compressed or not.

    Raises:
        InputError: Unreadable data.
    """
    if data.suffix == ".xz":
        try:
            with lzma.open(data, "rb") as lines:
                yield from read_records(lines, str(data))
        except (OSError, lzma.LZMAError) as error:
            raise InputError(
                f"expected xz-compressed lines, got: {error}; check the file", where=str(data)
            ) from error
        return
    check_paths([data])
    tokenizer, limit = memory._state.chunker, memory.config.embedder.max_tokens
    yield from read_atoms([data], tokenizer=tokenizer, max_tokens=limit)
