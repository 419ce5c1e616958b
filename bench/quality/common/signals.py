"""Signals of the candidates of many questions, cached on disk for fits within seconds.

A signal does not depend on the weights, except for hops, which start at anchors that the weights
choose. For each question the hops between all possible anchors are kept.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.rank.hops import entity_pairs, title_pairs

from .questions import Conversation
from .task import RetrievalTask

__all__ = [
    "LEARNED_FROM",
    "Gathered",
    "gather",
    "gathered_file",
    "load_gathered",
    "save_gathered",
]

LEARNED_FROM: tuple[str, ...] = (
    *("semantic", "lexical", "late", "length", "question", "named"),
    *("interaction_passage", "interaction_session_best", "interaction_answer", "lexical_session"),
    *("interaction_previous", "interaction_sharp_previous", "interaction_session"),
    *("interaction_window", "interaction_passage_sharp", "semantic_previous"),
    *("speaker", "role", "date", "event", "time_expression"),
    *("derived_semantic", "derived_lexical", "derived_late", "derived_interaction"),
    *("lexical_unread", "semantic_alone", "ended", "succession"),
    *("interaction", "interaction_sharp"),
)
"""Kept signals: those with weights, and those of the baselines."""

_VERSION = 1  # increase when a signal changes its meaning
_KEPT = 320  # candidates of a question
_EACH = 40  # best candidates by each ingredient
_ANCHORS = 40  # candidates that hops start from
_QUESTIONS = 120  # questions of a memory
_BATCH = 16


@dataclass(frozen=True, eq=False)
class Gathered:
    """Q questions to one memory, C candidates each and F signals, P hops between candidates.

    Attributes:
        values: [Q, C, F] float16, as the score reads them, in the order of `LEARNED_FROM`.
        form: [Q, C] int8, places in `FORMS`.
        listed: [Q, C] bool, candidates that may be hits; false for padding.
        gold: [Q, C] float32, grades, 0 for other candidates.
        ideal: [Q, G] float32, the grades of all gold of each question, descending, padded with 0.
        hop: [P, 3] int32: question, anchor, target.
        hop_value: [P, 2] float32, by title and by entity.
    """

    values: Tensor
    form: Tensor
    listed: Tensor
    gold: Tensor
    ideal: Tensor
    hop: Tensor
    hop_value: Tensor

    def __len__(self) -> int:
        """Return Q."""
        return len(self.form)

    def cut(self, questions: int, candidates: int) -> Gathered:
        """Return the first questions, and the first and best candidates of each."""
        hop = self.hop.long()
        kept = (hop[:, 0] < questions) & (hop[:, 1:] < candidates).all(1)
        return Gathered(
            self.values[:questions, :candidates],
            self.form[:questions, :candidates],
            self.listed[:questions, :candidates],
            self.gold[:questions, :candidates],
            self.ideal[:questions],
            self.hop[kept],
            self.hop_value[kept],
        )

    @property
    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


def gather(task: RetrievalTask, config: Config, *, seed: int = 0) -> Gathered:
    """Return the signals of at most 120 answerable questions of a memory, drawn by a seed.

    The candidates of a question are its gold, the best by each ingredient and the best by the
    settings.

    Args:
        task: Memory with its questions.
        config: Settings whose weights choose candidates.
        seed: Seed of the questions.
    """
    weights = dict.fromkeys(LEARNED_FROM, 0.0) | dict(config.rank.weights)
    # A signal of the gate alone is not part of the score.
    own = replace(config, rank=replace(config.rank, weights=weights))
    index = reweighted(task.memory.index, own)
    asked = [
        (question, grades)
        for question, grades in zip(task.asked, task.grades, strict=True)
        if question.gold
    ]
    if len(asked) > _QUESTIONS:
        asked = random.Random(seed).sample(asked, _QUESTIONS)
    turns = torch.zeros(index.num_atoms, dtype=torch.bool)
    turns[task.turns] = True
    parts = []
    for start in range(0, len(asked), _BATCH):
        batch = [question for question, _ in asked[start : start + _BATCH]]
        parts.append(_gather_batch(task, index, batch, turns, start))
    return Gathered(*map(_joined, zip(*parts, strict=True)))


def _gather_batch(
    task: RetrievalTask, index: Any, batch: Sequence[Any], turns: Tensor, start: int
) -> tuple[Tensor, ...]:
    query = task.encode([question.text for question in batch])
    grade = torch.zeros(len(batch), index.num_atoms)
    for row, question in zip(grade, batch, strict=True):
        for name, value in question.grades.items():
            row[int(task.memory.tensors.rows([name])[0])] = value
    with torch.inference_mode():
        found = index.candidates(query)
        names = index.signal_names
        values = found.signals(names)
        score = found.scores(values, index.weights.float())
        rows = found.rows
        if rows is None:
            rows = torch.arange(index.num_atoms).expand(found.shape)
        at = rows.clamp(min=0)
        there = found.listed & (rows >= 0) & turns[at]
        gold = grade.gather(1, at) * there
        worth = score.masked_fill(~there, -torch.inf)
        for name in ("semantic", "lexical", "late"):
            own = values[:, :, names.index(name)].masked_fill(~there, -torch.inf)
            best = own.topk(min(_EACH, own.shape[1]))[1]
            worth.scatter_add_(1, best, torch.full(best.shape, 1e4))
        worth = worth.masked_fill((gold > 0) & there, 1e6)
        kept = worth.topk(min(_KEPT, worth.shape[1]))[1]
        rows, there, gold = rows.gather(1, kept), there.gather(1, kept), gold.gather(1, kept)
        form = found.form.expand(found.shape).gather(1, kept)
        score = score.gather(1, kept).masked_fill(~there, -torch.inf)
        columns = [names.index(name) if name in names else -1 for name in LEARNED_FROM]
        values = torch.nn.functional.pad(values, (0, 1))[:, :, columns]
        values = values.gather(1, kept[:, :, None].expand(-1, -1, values.shape[2]))
        hop, hop_value = _hops(found, rows, score, start)
    ideal = grade.sort(dim=1, descending=True).values[:, :64]
    return (
        values.half().clamp(-6e4, 6e4),
        form.to(torch.int8),
        there,
        gold,
        ideal[:, : max(1, int((ideal > 0).sum(1).max()))],
        hop,
        hop_value,
    )


def _hops(found: Any, rows: Tensor, score: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return the hops from the best of the kept candidates to kept ones."""
    parts = found.memory.hops
    if parts is None:
        return torch.empty(0, 3, dtype=torch.int32), torch.empty(0, 2)
    place = score.topk(min(_ANCHORS, score.shape[1]))[1]
    anchors = rows.gather(1, place).where(score.gather(1, place) > -torch.inf, -1)
    # An ascending list of the kept candidates of all questions; padding sorts below them.
    width = found.memory.num_atoms + 1
    ordered, order = rows.sort(dim=1)
    begin = torch.arange(len(rows))[:, None] * width
    known = (begin + ordered + 1).flatten()
    keys, values = [], []
    for column, pairs in enumerate(
        one(parts, anchors, found.named_keys) for one in (title_pairs, entity_pairs)
    ):
        wanted = pairs.row * width + pairs.target + 1
        at = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
        hit = (known[at] == wanted) & (pairs.value > 0)
        row = pairs.row[hit]
        target = order.flatten()[at[hit]]
        keys.append(torch.stack([start + row, place[row, pairs.place[hit]], target], 1))
        both = torch.zeros(len(row), 2)
        both[:, column] = pairs.value[hit]
        values.append(both)
    key, slot = torch.cat(keys).unique(dim=0, return_inverse=True)
    summed = torch.zeros(len(key), 2).index_add_(0, slot, torch.cat(values))
    return key.to(torch.int32), summed


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    """Stack the parts as rows, padded to the widest."""
    width = max(part.shape[1] for part in parts)
    padded = [
        torch.nn.functional.pad(
            part,
            (0, 0, 0, width - part.shape[1]) if part.dim() == 3 else (0, width - part.shape[1]),
        )
        for part in parts
    ]
    return torch.cat(padded)


def gathered_file(folder: Path, name: str, asked: Conversation, encoder: str) -> Path:
    """Return the cache file of a memory's signals: by texts, encoder and version."""
    said = [
        *(f"{atom.id}\0{atom.text}\0{atom.speaker}\0{atom.session}" for atom in asked.atoms),
        *(question.text for question in asked.questions),
    ]
    told = [
        *(_VERSION, encoder, LEARNED_FROM, [_KEPT, _EACH, _ANCHORS, _QUESTIONS]),
        hashlib.sha256("\1".join(said).encode()).hexdigest(),
    ]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    return folder / f"{name.replace('/', '_').replace(' ', '_')}-{digest}.pt"


def save_gathered(path: Path, found: Gathered) -> None:
    """Write the tensors of a memory to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors: Mapping[str, Tensor] = {
        field.name: getattr(found, field.name).clone() for field in fields(found)
    }
    torch.save(tensors, path)


def load_gathered(path: Path) -> Gathered:
    """Read the tensors of `save_gathered`."""
    return Gathered(**torch.load(path, weights_only=True))
