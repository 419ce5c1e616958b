"""Judge of data in BEIR form (Thakur et al. 2021): corpus, queries and qrels."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
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
"""Numbers of hits of the measures."""

_COLUMNS = (("recall", 10), ("ndcg", 10), ("map", 100), ("mrr", 10), ("recall", 100))
_KIND = "passage"
_log = logging.getLogger(__name__)


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run presets and every baseline on a collection; its documents are the candidates.

    The document with the id of a query is left out of its ranking, as BEIR does: in ArguAna and
    Quora the queries are documents.

    Raises:
        InputError: Files that cannot be read, a line that is not what it should be, or no query
            with a relevant document.
    """
    for name, value in (("queries", request.queries), ("qrels", request.qrels)):
        if value is None:
            raise InputError(f"{name}: expected a file, got none; give --{name}")
    assert request.queries is not None and request.qrels is not None
    collection, counts = read_collection(request.data, request.queries, request.qrels)
    return judge_questions(
        request,
        "retrieval",
        collection,
        load_encoders(request),
        cutoffs=CUTOFFS,
        columns=_COLUMNS,
        resamples=resamples,
        counts=counts,
        without_own=True,
    )


def read_collection(
    corpus: Path, queries: Path, qrels: Path
) -> tuple[Conversation, dict[str, int]]:
    """Read the documents, and the judged queries with the grades of relevant documents.

    Published collections may be incomplete. Missing entries cause a warning: a relevant document
    that the corpus lacks counts, and no system finds it.

    Args:
        corpus: JSON lines with `_id`, `text` and optionally `title`.
        queries: JSON lines with `_id` and `text`.
        qrels: Lines of query, document and grade between tabs, with or without a header, or the
            four columns of TREC. A grade above 0 is relevant.

    Returns:
        Documents and queries; and counts by name: `unjudged` queries, which have no line in the
        qrels and are dropped, and oddities (see the warnings). Queries whose lines all have grade 0
        are kept without gold.

    Raises:
        InputError: Invalid line, with file and line; a duplicate id; no relevant document.
    """
    counts: Counter[str] = Counter()
    atoms = []
    for name, row, where in _records(corpus):
        parts = _text(row, "title", where), _text(row, "text", where)
        text = Passage(*parts).whole.strip()
        if text:
            atoms.append(Atom(id=name, text=text, kind=_KIND))
        else:
            _warn(counts, "empty", where, f"document {name!r} has neither title nor text")
    asked = {}
    for name, row, where in _records(queries):
        text = _text(row, "text", where)
        if text.strip():
            asked[name] = text
        else:
            _warn(counts, "empty", where, f"query {name!r} has no text")
    if not atoms or not asked:
        raise InputError(
            "expected lines, got none; name another file", where=str(queries if atoms else corpus)
        )
    held = {atom.id for atom in atoms}
    grades = _read_qrels(qrels, asked, counts)
    questions = []
    for name, judged in grades.items():
        if name not in asked:
            _warn(counts, "absent_queries", str(qrels), f"{queries.name} lacks query {name!r}")
            continue
        relevant = {document: grade for document, grade in judged.items() if grade > 0}
        gold = [document for document in relevant if document in held]
        absent = [(document, relevant[document]) for document in relevant if document not in held]
        for document, _ in absent:
            lacks = f"{corpus.name} lacks document {document!r}, relevant for {name!r}"
            _warn(counts, "absent_documents", str(qrels), lacks)
        counts["own_documents"] += name in held
        questions.append(
            Question(
                asked[name],
                1,
                tuple(gold),
                id=name,
                relevance=tuple(relevant[document] for document in gold),
                absent=tuple(absent),
            )
        )
    if not any(question.gold for question in questions):
        raise InputError(
            "expected a grade above 0 for some query and document of these files, got none; give "
            "the files of one collection",
            where=str(qrels),
        )
    for what, count in counts.items():
        if count > 1 and what in _ODD:
            _log.warning("%s: %d %s in all", qrels.parent, count, _ODD[what])
    collection = Conversation(corpus.name, tuple(atoms), tuple(questions))
    counts["unjudged"] = len(asked) - len(questions)
    return collection, {name: count for name, count in counts.items() if count or name in _ALWAYS}


_ALWAYS = ("unjudged",)
_ODD = {
    "empty": "documents and queries without a text, left out",
    "absent_queries": "judged queries that are not there, not asked",
    "absent_documents": "relevant documents that are not there, found by no system",
    "repeated": "documents judged again for a query, the last grade counts",
}


def _warn(counts: Counter[str], what: str, where: str, told: str) -> None:
    """Count an oddity, and warn of the first of its kind."""
    counts[what] += 1
    if counts[what] == 1:
        _log.warning("%s: %s", where, told)


def _text(row: Mapping[str, object], field: str, where: str) -> str:
    """Return a field of a line, empty if missing or null."""
    value = row.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"{field}: expected a text, got {value!r:.80}; put it in quotes", where=where
        )
    return value


def _records(path: Path) -> Iterator[tuple[str, dict[str, object], str]]:
    """Yield the lines of a file with their ids and places."""
    places: dict[str, str] = {}
    for row, where in json_rows(path, ("_id", "text")):
        if not isinstance(row["_id"], (str, int)) or isinstance(row["_id"], bool):
            raise InputError(
                f"_id: expected a text or a number, got {row['_id']!r:.80}; correct it", where=where
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
    path: Path, asked: Collection[str], counts: Counter[str]
) -> dict[str, dict[str, float]]:
    """Return the grades by query and document."""
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
        named, first = first and len(parts) == 3 and parts[0] not in asked, False
        if grade is None and named:
            continue  # names of the columns
        if grade is None:
            raise InputError(
                f"expected query, document and grade between tabs, got {line!r:.80}; write the "
                "line anew",
                where=where,
            )
        query, document = parts[:2]
        judged = grades.setdefault(query, {})
        if judged.get(document, grade) != grade:
            _warn(counts, "repeated", where, f"{query!r} has another grade for {document!r} before")
        judged[document] = grade
    return grades


def _number(text: str) -> float | None:
    """Return a finite number; None for other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
