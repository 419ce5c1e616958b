"""The judge of data in the form of BEIR (Thakur et al. 2021): corpus, queries and qrels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.readers.source import decode, read_bytes

from ..common.encoder import load_encoders
from ..common.questions import Conversation, Question
from ..common.texts import Passage, json_rows
from ..custom.judge import judge_questions
from ..request import Judged, Request

__all__ = ["CUTOFFS", "judge", "read_collection"]
CUTOFFS: tuple[int, ...] = (1, 5, 10, 25, 100)
"""Numbers of hits at which everything is measured."""

_COLUMNS = (("recall", 10), ("ndcg", 10), ("map", 100), ("mrr", 10), ("recall", 100))
_KIND = "passage"


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run presets and every baseline on a collection; its documents are the candidates.

    Returns:
        The report (see `bench/quality/README.md`) and its table.

    Raises:
        InputError: Files that cannot be read, a line that is not what it should be, ids that the
            other files do not have, or no query with a relevant document.
        ConfigError: There is no such preset.
    """
    for name, value in (("queries", request.queries), ("qrels", request.qrels)):
        if value is None:
            raise InputError(f"{name}: expected a file, got none; give --{name}")
    assert request.queries is not None and request.qrels is not None
    collection, unjudged = read_collection(request.data, request.queries, request.qrels)
    return judge_questions(
        request,
        "retrieval",
        collection,
        load_encoders(request),
        cutoffs=CUTOFFS,
        columns=_COLUMNS,
        resamples=resamples,
        counts={"unjudged": unjudged},
    )


def read_collection(corpus: Path, queries: Path, qrels: Path) -> tuple[Conversation, int]:
    """The documents, and the queries that are judged, with the grades of what is relevant.

    Args:
        corpus: JSON lines with `_id`, `text` and, where there is one, `title`.
        queries: JSON lines with `_id` and `text`.
        qrels: Lines of query, document and grade between tabs, with or without a line of names; or
            the four columns of TREC. Relevant is what has a grade above 0.

    Returns:
        Documents and queries; and how many queries no line of the qrels is about, which are left
        out. Queries whose lines all have grade 0 are there, without gold.

    Raises:
        InputError: A line that is not what it should be, by file and line; an id twice; an id of
            the qrels that the other files do not have; no relevant document at all.
    """
    atoms = []
    for name, row, where in _records(corpus):
        title, said = row.get("title") or "", row["text"]
        for part, value in (("title", title), ("text", said)):
            if not isinstance(value, str):
                raise InputError(f"{part}: expected a text, got {value!r:.80}", where=where)
        text = Passage(str(title), str(said)).whole.strip()
        if not text:
            raise InputError(
                f"text: expected the text of document {name!r}, got none; take the line out",
                where=where,
            )
        atoms.append(Atom(id=name, text=text, kind=_KIND))
    asked = {}
    for name, row, where in _records(queries):
        if not isinstance(row["text"], str) or not row["text"].strip():
            raise InputError(f"text: expected a question, got {row['text']!r:.80}", where=where)
        asked[name] = row["text"]
    if not atoms or not asked:
        raise InputError("expected lines, got none", where=str(queries if atoms else corpus))
    grades = _read_qrels(qrels, asked.keys(), {atom.id for atom in atoms}, corpus, queries)
    questions = []
    for name, judged in grades.items():
        gold = {document: grade for document, grade in judged.items() if grade > 0}
        questions.append(
            Question(asked[name], 1, tuple(gold), id=name, relevance=tuple(gold.values()))
        )
    if not any(question.gold for question in questions):
        raise InputError(
            "expected a grade above 0 for some query, got none; without relevant documents nothing "
            "is measured",
            where=str(qrels),
        )
    collection = Conversation(corpus.name, tuple(atoms), tuple(questions))
    return collection, len(asked) - len(questions)


def _records(path: Path) -> Iterator[tuple[str, dict[str, object], str]]:
    """The lines of a file with their ids and places."""
    places: dict[str, str] = {}
    for row, where in json_rows(path, ("_id", "text")):
        if not isinstance(row["_id"], (str, int)) or isinstance(row["_id"], bool):
            raise InputError(
                f"_id: expected a text or a number, got {row['_id']!r:.80}", where=where
            )
        name = str(row["_id"])
        if name in places:
            raise InputError(
                f"_id: expected another for each line, got {name!r}, which {places[name]} has; "
                "rename or drop one of them",
                where=where,
            )
        places[name] = where
        yield name, row, where


def _read_qrels(
    path: Path,
    queries: Collection[str],
    documents: Collection[str],
    corpus_file: Path,
    queries_file: Path,
) -> dict[str, dict[str, float]]:
    """The grades by query and document."""
    grades: dict[str, dict[str, float]] = {}
    first = True
    for number, line in enumerate(decode(read_bytes(path), str(path)).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        parts = [part.strip() for part in (line.split("\t") if "\t" in line else line.split())]
        if len(parts) == 4:  # TREC: query, iteration, document, grade
            del parts[1]
        grade = _number(parts[2]) if len(parts) == 3 else None
        named, first = first and len(parts) == 3 and parts[0] not in queries, False
        if grade is None and named:
            continue  # names of the columns
        if grade is None:
            raise InputError(
                f"expected query, document and grade between tabs, got {line!r:.80}; write the "
                "line anew",
                where=where,
            )
        query, document = parts[:2]
        if query not in queries:
            raise InputError(
                f"expected queries of {queries_file.name}, got {query!r}, which it lacks; give the "
                "files of one collection",
                where=where,
            )
        if document not in documents:
            raise InputError(
                f"expected documents of {corpus_file.name}, got {document!r}, which it lacks; give "
                "the files of one collection",
                where=where,
            )
        if document in grades.setdefault(query, {}):
            raise InputError(
                f"expected one grade of a document for a query, got {query!r} and {document!r} "
                "again; keep one of the lines",
                where=where,
            )
        grades[query][document] = grade
    return grades


def _number(text: str) -> float | None:
    """A finite number; None for what is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
