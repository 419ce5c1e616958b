"""Document cut into chunks in a memory, with the measures of a ranking of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.memory import Memory
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.tokens import count_tokens

from ..common.rankings import gold_positions, gold_tensor
from .documents import Asked, Document

__all__ = [
    "CUTOFFS",
    "TOKENS",
    "Chunked",
    "answer_f1",
    "chunk_document",
    "holds_answer",
    "told_answers",
]
CUTOFFS: tuple[int, ...] = (5, 10, 20)
"""Values of k of recall@k, in chunks."""

TOKENS: tuple[int, ...] = (512, 1024, 2048)
"""Token budgets at which chunks of different sizes are comparable."""

_SHARE = 0.25  # of the shorter of chunk and evidence: less is a stub of a sentence
_FOUND = 0.5  # share of a piece of evidence

_WORDLESS = frozenset({"yes", "no"})  # answers without a place in the text
_WORD = re.compile(r"\w+")
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, eq=False)
class Chunked:
    """Document cut into N chunks, with Q questions about it.

    Attributes:
        document: Source document.
        memory: Memory under test, filled with the chunks.
        atoms: `[N]`, in the order of the document.
    """

    document: Document
    memory: Memory
    atoms: Sequence[Atom]

    @cached_property
    def questions(self) -> list[str]:
        """Return the texts of the questions."""
        return [asked.text for asked in self.document.questions]

    @cached_property
    def costs(self) -> Tensor:  # [N]
        """Return the tokens of each chunk."""
        return torch.tensor(count_tokens([atom.text for atom in self.atoms]))

    @cached_property
    def spans(self) -> Tensor:  # [N, 2]
        """Return start and end of each chunk, in characters of the document."""
        return torch.tensor([[atom.meta["start"], atom.meta["end"]] for atom in self.atoms])

    @cached_property
    def overlaps(self) -> Tensor:  # [Q, G, N]; rows without evidence are NaN
        """Return the characters of each piece of evidence in each chunk."""
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
        """Return the chunks that hold a quarter of some evidence, or consist of it to a quarter."""
        size = (self._gold[..., 1] - self._gold[..., 0])[:, :, None]  # [Q, G, 1]
        own = (self.spans[:, 1] - self.spans[:, 0]).double()
        enough = self.overlaps >= _SHARE * torch.minimum(size, own)
        return gold_tensor([row.nonzero()[:, 0].tolist() for row in enough.any(1)])

    def places(self, ranked: Sequence[Sequence[str]]) -> Tensor:  # [Q, K], -1 = padding
        """Return ranked atom ids as chunk numbers."""
        number = {atom.id: i for i, atom in enumerate(self.atoms)}
        rows = [torch.tensor([number[i] for i in ids], dtype=torch.int64) for ids in ranked]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def measure(self, ranking: Tensor) -> dict[str, Tensor]:  # [Q, K] -> each [Q, 3]
        """Measure the first chunks of a ranking.

        Returns:
            `recall`: share of the relevant chunks among the first 5, 10, 20 (section 6 of the
            paper). At 512, 1,024 and 2,048 tokens of whole chunks:

            - `evidence`: share of the characters of all evidence;
            - `complete`: whether at least half of each piece is included;
            - `answer`: whether an accepted answer is included, NaN if unknown or yes or no.
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
        """Return the longest prefix of chunks within each budget."""
        spent = self.costs[ranking.clamp(min=0)].where(ranking >= 0, 0).cumsum(1)
        return spent <= torch.tensor(TOKENS)[:, None, None]

    def _held(self, share: Tensor, ranking: Tensor) -> Tensor:  # [Q, K] -> [Q, G]
        """Return the share of each piece of evidence in the chunks of a row."""
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
    """Return the accepted answers that a text can hold: not yes or no."""
    return [answer for answer in asked.answers if answer.lower().strip(" .") not in _WORDLESS]


def chunk_document(document: Document, config: Config, embedder: Embedder, device: str) -> Chunked:
    """Return the document as the memory under test cuts and keeps it."""
    memory = Memory.open(None, config=config, embedder=embedder, device=device)
    memory.add_document(document.text, name=document.name)
    columns = memory.store.columns()
    stored = memory.store.atoms(columns.node.tolist())
    chunks = [atom for atom in stored if atom.kind == "chunk"]
    chunks.sort(key=lambda atom: atom.meta["start"])
    return Chunked(document, memory, chunks)


def answer_f1(text: str, answers: Sequence[str]) -> float:
    """Return the token F1 of a text with the nearest accepted answer; NaN if none is known.

    Compared in lower case, without marks and articles; two texts without a word are equal.
    """
    if not answers:
        return float("nan")
    said = Counter(_words(text))
    return max(_f1(said, Counter(_words(answer))) for answer in answers)


def holds_answer(text: str, answers: Sequence[str]) -> float:
    """Return whether a text holds the words of an accepted answer in a row; NaN: none known.

    Compared in lower case, without marks and articles.
    """
    wanted = [words for words in map(_words, answers) if words]
    if not wanted:
        return float("nan")
    said = f" {' '.join(_words(text))} "
    return float(any(f" {' '.join(words)} " in said for words in wanted))


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _ARTICLES]


def _f1(said: Counter[str], wanted: Counter[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = (said & wanted).total()
    return 2 * common / (said.total() + wanted.total())
