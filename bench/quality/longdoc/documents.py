"""Long documents whose evidence is known: joined passages, and joined texts with sentences cut out.

Of passages the gold is given. They are joined in a random order, so that what answers a question
lies far apart and only likeness can connect it; around the gold of a document's questions come the
passages next to it in the file, where a set keeps those that were meant to mislead.

Of plain texts nothing is given, so two sentences, one from each half of a text, are cut out and
asked for together (the inverse cloze task of Lee et al. 2019, arXiv 1906.00300, at two places):
the gold is what stood around them. Such a question needs local and long-range context, as section 6
of Segment-Graph Retrieval Memory recommends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.metrics import gold_positions, gold_tensor, ranking_measures
from graphmem_torch.memory import Memory
from graphmem_torch.readers.source import decode, read_bytes
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.tokens import count_tokens

from ..common.answers import holds_answer
from ..common.passages import PassageQuestion, PassageSet, read_passage_sets
from ..common.sentences import sentence_spans

__all__ = [
    "CUTOFFS",
    "TOKENS",
    "Asked",
    "Chunked",
    "Collection",
    "Document",
    "chunk_document",
    "join_passages",
    "join_texts",
    "read_collections",
    "remember",
    "told_answers",
]
_PASSAGES = 200  # of a document: some 25,000 tokens, more than ten windows of 2,048
_QUESTIONS = 8  # of a document at least, where the set has many more passages than that
_CHARACTERS = 120_000  # of a document joined from texts, about as long
_DOCUMENTS = 10  # of a collection at most: each is encoded once for every chunk size
_PAIRS = 3  # questions a text is cut for, at most
_WORDS = range(8, 41)  # of a sentence that is cut out
_SEPARATOR = "\n\n"

Span = tuple[int, int]
"""Start and end, in characters of the document."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a document.

    Attributes:
        text: As asked.
        gold: Where its evidence stands.
        answers: Accepted answers; empty where none is known.
    """

    text: str
    gold: tuple[Span, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One long document and its questions."""

    name: str
    text: str
    questions: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents made from one source: `kind` says whether `passages` or `texts`."""

    name: str
    kind: str
    documents: tuple[Document, ...]


def read_collections(data: Path, seed: int) -> list[Collection]:
    """What the folder (or the one text file) holds: every passage set, and the texts together.

    Raises:
        InputError: Neither is there, or one cannot be read or asked about.
    """
    if not data.exists():
        raise InputError("no such file or folder", where=str(data))
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
    """The passages of a set as long documents, each question asked of one of them."""
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
    """Texts as long documents; of each some sentences are cut out and asked for in pairs."""
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
    """A text without some of its sentences, and a question for each pair of them.

    No two neighbours are cut out, so that what stood around a sentence is still there.
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
    """Some of the places, no two of them next to or next but one to each other."""
    drawn: list[int] = []
    for i in chance.sample(list(places), len(places)):
        if len(drawn) < _PAIRS and all(abs(i - j) > 2 for j in drawn):
            drawn.append(i)
    return drawn


CUTOFFS: tuple[int, ...] = (5, 10, 20)
"""k of recall@k, in chunks."""

TOKENS: tuple[int, ...] = (512, 1024, 2048)
"""Token budgets at which chunks of different sizes can be compared."""

_SHARE = 0.25  # of the shorter of chunk and evidence: less is a stub of a sentence
_FOUND = 0.5  # of a piece of evidence

_WORDLESS = frozenset({"yes", "no"})  # answers that say nothing about where they stand


@dataclass(frozen=True, eq=False)
class Chunked:
    """A document cut into N chunks, Q questions about it.

    Attributes:
        document: What was cut.
        memory: The memory under test, filled with the chunks.
        atoms: `[N]`, in the order of the document.
    """

    document: Document
    memory: Memory
    atoms: Sequence[Atom]

    @cached_property
    def questions(self) -> list[str]:
        """What is asked."""
        return [asked.text for asked in self.document.questions]

    @cached_property
    def costs(self) -> Tensor:  # [N]
        """Tokens of each chunk."""
        return torch.tensor(count_tokens([atom.text for atom in self.atoms]))

    @cached_property
    def spans(self) -> Tensor:  # [N, 2]
        """Start and end of each chunk, in characters of the document."""
        return torch.tensor([[atom.meta["start"], atom.meta["end"]] for atom in self.atoms])

    @cached_property
    def overlaps(self) -> Tensor:  # [Q, G, N]; rows without evidence are NaN
        """Characters of each piece of evidence that stand in each chunk."""
        gold = self._gold[:, :, None]  # [Q, G, 1, 2]
        low = torch.maximum(gold[..., 0], self.spans[:, 0])
        high = torch.minimum(gold[..., 1], self.spans[:, 1])
        return (high - low).clamp(min=0).where(gold[..., 1] > 0, torch.nan)

    @cached_property
    def _gold(self) -> Tensor:  # [Q, G, 2], 0 = padding
        rows = [torch.tensor(asked.gold) for asked in self.document.questions]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).double()

    @cached_property
    def relevant(self) -> Tensor:  # [Q, R] int64, -1 = padding
        """The chunks that hold a quarter of some evidence, or consist of it to a quarter."""
        size = (self._gold[..., 1] - self._gold[..., 0])[:, :, None]  # [Q, G, 1]
        own = (self.spans[:, 1] - self.spans[:, 0]).double()
        enough = self.overlaps >= _SHARE * torch.minimum(size, own)
        return gold_tensor([row.nonzero()[:, 0].tolist() for row in enough.any(1)])

    def places(self, ranked: Sequence[Sequence[str]]) -> Tensor:  # [Q, K], -1 = padding
        """Ranked atom ids as chunk numbers."""
        number = {atom.id: i for i, atom in enumerate(self.atoms)}
        rows = [torch.tensor([number[i] for i in ids], dtype=torch.int64) for ids in ranked]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def measure(self, ranking: Tensor) -> dict[str, Tensor]:  # [Q, K] -> each [Q, 3]
        """What the first chunks of a ranking hold.

        Returns:
            `recall`: share of the relevant chunks among the first 5, 10, 20 (section 6 of the
            paper). At 512, 1,024 and 2,048 tokens of whole chunks: `evidence`, the share of the
            characters of all evidence; `complete`, whether at least half of each piece is there;
            `answer`, whether an accepted answer is, NaN where none is known or it is yes or no.
        """
        found = gold_positions(ranking, self.relevant, len(self.atoms))
        share = self.overlaps / self.overlaps.sum(2, keepdim=True)  # [Q, G, N]
        fits = self._prefix(ranking)  # [3, Q, K]
        held = torch.stack([self._held(share, ranking.where(fit, -1)) for fit in fits], dim=1)
        known = ~held.isnan()
        evidence = held.nan_to_num(0.0).sum(2) / known.sum(2)
        complete = ((held >= _FOUND - 1e-6) | ~known).all(2)
        answers = [self._answered(ranking.where(fit, -1)) for fit in fits]
        return {
            "recall": ranking_measures(found, self.relevant, CUTOFFS)["recall"],
            "evidence": evidence,
            "complete": complete.double(),
            "answer": torch.tensor(answers, dtype=torch.float64).T,
        }

    def _prefix(self, ranking: Tensor) -> Tensor:  # [Q, K] -> [3, Q, K] bool
        """The chunks that fit a budget one after another, for each budget."""
        spent = self.costs[ranking.clamp(min=0)].where(ranking >= 0, 0).cumsum(1)
        return spent <= torch.tensor(TOKENS)[:, None, None]

    def _held(self, share: Tensor, ranking: Tensor) -> Tensor:  # [Q, K] -> [Q, G]
        """Share of each piece of evidence in the chunks of a row."""
        taken = torch.zeros(len(ranking), share.shape[2] + 1, dtype=torch.float64)
        taken.scatter_(1, ranking.where(ranking >= 0, share.shape[2]), 1.0)
        return torch.einsum("qgn,qn->qg", share, taken[:, :-1])

    def _answered(self, ranking: Tensor) -> list[float]:  # [Q, K]
        texts = [" ".join(self.atoms[i].text for i in row if i >= 0) for row in ranking.tolist()]
        return [
            holds_answer(text, told_answers(asked))
            for text, asked in zip(texts, self.document.questions, strict=True)
        ]


def told_answers(asked: Asked) -> list[str]:
    """The accepted answers that a text can hold: not yes or no."""
    return [answer for answer in asked.answers if answer.lower().strip(" .") not in _WORDLESS]


def chunk_document(document: Document, config: Config, embedder: Embedder, device: str) -> Chunked:
    """The document as the memory under test cuts and keeps it."""
    memory = Memory.open(None, config=config, embedder=embedder, device=device)
    memory.add_document(document.text, name=document.name)
    columns = memory.store.columns()
    stored = memory.store.atoms(columns.node.tolist())
    chunks = [atom for atom in stored if atom.kind == "chunk"]
    chunks.sort(key=lambda atom: atom.meta["start"])
    return Chunked(document, memory, chunks)


def remember(atoms: Sequence[Atom], config: Config, embedder: Embedder, device: str) -> Memory:
    """A memory of other settings, filled with the same chunks."""
    memory = Memory.open(None, config=config, embedder=embedder, device=device)
    memory.add(atoms)
    return memory
