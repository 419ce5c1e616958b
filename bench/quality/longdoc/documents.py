"""Build long documents with known evidence: joined passages, and joined texts with cut sentences.

Passages have gold. They are joined in random order, so that the evidence of a question lies far
apart and only similarity can connect it. The gold is surrounded by the passages next to it in the
file, where some sets keep distractors.

Plain texts have no gold. Two sentences, one from each half of a text, are cut out and asked for
together: the inverse cloze task of Lee et al. 2019 (arXiv 1906.00300) at two places. The gold is
their surroundings. Such a question needs local and long-range context, as section 6 of
Segment-Graph Retrieval Memory recommends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmem_torch.errors import InputError
from graphmem_torch.readers.source import decode, read_bytes

from ..common.texts import PassageQuestion, PassageSet, Span, read_passage_sets, sentence_spans

__all__ = ["Asked", "Collection", "Document", "join_passages", "join_texts", "read_collections"]
_PASSAGES = 200  # passages of a document: some 25,000 tokens, more than ten windows of 2,048
_QUESTIONS = 8  # minimum questions of a document
_CHARACTERS = 120_000  # characters of a document joined from texts, about as long
_DOCUMENTS = 10  # maximum documents of a collection: each is encoded once for every chunk size
_PAIRS = 3  # maximum questions a text is cut for
_WORDS = range(8, 41)  # words of a sentence that is cut out
_SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """Question about a document.

    Attributes:
        text: Wording.
        gold: Spans of its evidence.
        answers: Accepted answers; empty if unknown.
    """

    text: str
    gold: tuple[Span, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """Long document with its questions."""

    name: str
    text: str
    questions: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents made from one source; `kind` is `passages` or `texts`."""

    name: str
    kind: str
    documents: tuple[Document, ...]


def read_collections(data: Path, seed: int) -> list[Collection]:
    """Read a folder (or one text file): a collection for each passage set, and one for the texts.

    Raises:
        InputError: Neither is there, or one is unreadable or too short.
    """
    if not data.exists():
        raise InputError("expected a path, got no such file or folder; check it", where=str(data))
    sets = read_passage_sets(data) if data.is_dir() else []
    files = [data]
    if data.is_dir():
        files = sorted(data.rglob("*.txt")) or ([] if sets else sorted(data.rglob("*.md")))
    found = [join_passages(each, random.Random(seed)) for each in sets]
    if files:
        texts = [decode(read_bytes(file), str(file)) for file in files if file.stat().st_size]
        name = data.resolve().stem
        name = f"{name} texts" if name in {each.name for each in found} else name
        joined = join_texts(name, texts, random.Random(seed))
        found += [joined] if joined.documents else []
    if not found:
        raise InputError(
            "expected *_corpus.jsonl with *_queries.jsonl beside them, or texts (*.txt, *.md) of "
            "at least ten sentences; found neither",
            where=str(data),
        )
    return found


def join_passages(source: PassageSet, chance: random.Random) -> Collection:
    """Return the passages of a set as long documents, each question asked of one of them."""
    enough = -(-len(source.passages) // _PASSAGES)
    count = min(enough, max(1, len(source.questions) // _QUESTIONS), _DOCUMENTS)
    questions = list(source.questions)
    chance.shuffle(questions)
    documents = [
        _joined(f"{source.name}-{number}", source, questions[number::count], chance)
        for number in range(count)
    ]
    return Collection(source.name, "passages", tuple(d for d in documents if d.questions))


def _joined(
    name: str, source: PassageSet, questions: Sequence[PassageQuestion], chance: random.Random
) -> Document:
    gold = {place for question in questions for place in question.gold}
    near = sorted(range(len(source.passages)), key=lambda i: (_distance(i, gold), i))
    kept = near[: max(_PASSAGES, len(gold))]
    chance.shuffle(kept)
    parts, spans, at = [], {}, 0
    for place in kept:
        parts.append(source.passages[place].whole)
        spans[place] = (at, at + len(parts[-1]))
        at += len(parts[-1]) + len(_SEPARATOR)
    asked = tuple(
        Asked(q.text, tuple(spans[place] for place in q.gold), q.answers) for q in questions
    )
    return Document(name, _SEPARATOR.join(parts), asked)


def _distance(place: int, gold: set[int]) -> int:
    return min((abs(place - g) for g in gold), default=0)


def join_texts(name: str, texts: Sequence[str], chance: random.Random) -> Collection:
    """Join texts to long documents; sentences are cut out and asked for in pairs."""
    order = [text[:_CHARACTERS] for text in texts]
    chance.shuffle(order)
    documents: list[Document] = []
    parts: list[str] = []
    asked: list[Asked] = []
    at = 0
    for text in order:
        rest, questions = _cut(text, chance)
        parts.append(rest)
        asked += [_moved(question, at) for question in questions]
        at += len(rest) + len(_SEPARATOR)
        if at >= _CHARACTERS:
            documents.append(_closed(name, documents, parts, asked))
            parts, asked, at = [], [], 0
        if len(documents) == _DOCUMENTS:
            break
    if parts:
        documents.append(_closed(name, documents, parts, asked))
    return Collection(name, "texts", tuple(d for d in documents if d.questions))


def _closed(
    name: str, before: Sequence[Document], parts: Sequence[str], asked: Sequence[Asked]
) -> Document:
    return Document(f"{name}-{len(before)}", _SEPARATOR.join(parts), tuple(asked))


def _moved(question: Asked, by: int) -> Asked:
    return Asked(question.text, tuple((start + by, end + by) for start, end in question.gold))


def _cut(text: str, chance: random.Random) -> tuple[str, list[Asked]]:
    """Return a text without some of its sentences, and a question for each pair of them.

    No two neighbours are cut out, so that the surroundings of a sentence remain.
    """
    spans = sentence_spans(text)
    middle = len(spans) // 2
    fitting = [i for i in range(1, len(spans) - 1) if len(text[slice(*spans[i])].split()) in _WORDS]
    halves = [_apart([i for i in fitting if i < middle], chance)]
    halves.append(_apart([i for i in fitting if i > middle], chance))
    pairs = list(zip(*halves, strict=False))
    removed = {i for pair in pairs for i in pair}
    kept, place, shorter, last = [], {}, 0, 0
    for i, (start, end) in enumerate(spans):
        if i in removed:
            kept.append(text[last:start])
            shorter, last = shorter + end - start, end
        else:
            place[i] = (start - shorter, end - shorter)
    rest = "".join([*kept, text[last:]])
    questions = [
        Asked(
            " ".join(" ".join(text[slice(*spans[i])].split()) for i in pair),
            tuple((place[i - 1][0], place[i + 1][1]) for i in pair),
        )
        for pair in pairs
    ]
    return rest, questions


def _apart(places: Sequence[int], chance: random.Random) -> list[int]:
    """Return some of the places, at least three apart."""
    drawn: list[int] = []
    for i in chance.sample(list(places), len(places)):
        if len(drawn) < _PAIRS and all(abs(i - j) > 2 for j in drawn):
            drawn.append(i)
    return drawn
