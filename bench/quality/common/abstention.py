"""Gather the evidence of a gate on questions a memory cannot answer, and fit the gate to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.index.retrieve import ranked
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.rank.abstention import (
    DEPTH,
    confidence,
    fit_abstention,
    of_forms,
)
from graphmem_torch.rank.registry import signal_names, weight_table

from .scores import ADVERSARIAL
from .task import RetrievalTask

__all__ = [
    "ANSWERABLE",
    "KINDS",
    "Seen",
    "fit_gate",
    "foreign_questions",
    "learn_gate",
    "see",
    "seen_by_gate",
]

ANSWERABLE = "answerable"
KINDS = ("adversarial", "foreign", "removed")
"""Unanswerable questions: marked by the set, of another memory, or without their evidence."""

_FOREIGN = 150  # foreign questions of a memory
_BATCH = 32


@dataclass(frozen=True, eq=False)
class Seen:
    """Evidence of a gate on n questions.

    Attributes:
        names: Names of S statistics.
        statistics: [n, S].
        form: [n], form of the first hit.
        kind: n times `ANSWERABLE` or one of `KINDS`.
    """

    names: Sequence[str]
    statistics: Tensor
    form: Tensor
    kind: Sequence[str]

    def confidence(self, config: Config) -> Tensor:  # [n]
        """Return the confidence of a gate that reads the same statistics."""
        weights = weight_table(config.gate.weights)
        return confidence(self._read_by(config), self.form, weights, config.gate)

    def weighed(self, config: Config) -> Tensor:  # [n, G]
        """Return the factors of the weights of such a gate."""
        return of_forms(self._read_by(config), self.form, tuple(config.gate.weights))

    def _read_by(self, config: Config) -> Tensor:
        names = signal_names(config.gate.weights)
        return self.statistics[:, [list(self.names).index(name) for name in names]]

    def weight(self) -> Tensor:  # [n] float64
        """Return question weights: kinds count alike, together as much as the answerable."""
        weight = self.of(ANSWERABLE).double()
        count = float(weight.sum())
        kinds = [mask for mask in map(self.of, KINDS) if bool(mask.any())]
        for mask in kinds:
            weight += mask * count / (len(kinds) * float(mask.sum()))
        return weight

    def of(self, kind: str) -> Tensor:  # [n] bool
        """Return which questions are of this kind."""
        return torch.tensor([own == kind for own in self.kind])


def foreign_questions(
    task: RetrievalTask, others: Sequence[RetrievalTask], seed: int = 0
) -> list[str]:
    """Return at most 150 questions that other memories answer and this one is not asked.

    A conversation that is present twice, with and without its facts, counts as one.
    """
    own = set(task.questions)
    found = {
        question.text: None
        for other in others
        if own.isdisjoint(other.questions)
        for question in other.asked
        if question.gold
    }
    return random.Random(seed).sample(list(found), min(_FOREIGN, len(found)))


def seen_by_gate(task: RetrievalTask, config: Config, foreign: Sequence[str]) -> Seen:
    """Gather the gate's evidence on a memory's own questions and on foreign ones.

    Args:
        task: Memory with its questions.
        config: Settings with the weights of the signals and the statistics of the gate.
        foreign: Questions that the memory cannot answer.
    """
    index, names = reweighted(task.memory.index, config), signal_names(config.gate.weights)
    nothing = torch.empty(0, dtype=torch.int64)
    asked: list[tuple[str, str, Tensor]] = []
    for question, evidence in zip(task.asked, task.evidence, strict=True):
        if question.category == ADVERSARIAL:
            asked.append((question.text, KINDS[0], nothing))
        elif evidence:
            rows = task.memory.tensors.rows(list(dict.fromkeys(evidence)))
            asked += [(question.text, ANSWERABLE, nothing), (question.text, KINDS[2], rows)]
    asked += [(text, KINDS[1], nothing) for text in foreign]
    parts = []
    for start in range(0, len(asked), _BATCH):
        batch = asked[start : start + _BATCH]
        query = task.encode([text for text, _, _ in batch])
        allowed = torch.ones(len(batch), index.num_atoms, dtype=torch.bool)
        for line, (_, _, rows) in zip(allowed, batch, strict=True):
            line[rows.to(line.device)] = False
        with torch.inference_mode():
            query = replace(query, allowed=allowed.to(query.embedding.device))
            found = index.candidates(query)
            best = ranked(found, index.signal_names, index.weights.float(), DEPTH)
            parts.append([each.cpu().clone() for each in best.statistics(names)])
    statistics, form = map(torch.cat, zip(*parts, strict=True))
    return Seen(names, statistics, form, [kind for _, kind, _ in asked])


def see(tasks: Sequence[RetrievalTask], config: Config) -> list[Seen]:
    """Gather the evidence of a gate in several memories, each asked the others' questions, too."""
    return [seen_by_gate(task, config, foreign_questions(task, tasks)) for task in tasks]


def learn_gate(seen: Sequence[Seen], shares: Sequence[float], config: Config) -> Config:
    """Return the configuration with its gate fitted to evidence.

    Each kind of unanswerable question of a memory counts alike, and together as much as its
    answerable ones.

    Args:
        seen: Evidence of each memory, by the statistics of the gate.
        shares: Weight of a question of each memory.
        config: Settings with the statistics of the gate.
    """
    keys = tuple(config.gate.weights)
    weight = [share * one.weight() for one, share in zip(seen, shares, strict=True)]
    slopes, bias = fit_abstention(
        torch.cat([one.weighed(config) for one in seen]),
        torch.cat([one.of(ANSWERABLE) for one in seen]),
        weight=torch.cat(weight),
    )
    weights = dict(zip(keys, slopes.tolist(), strict=True))
    return replace(config, gate=replace(config.gate, weights=weights, bias=bias))


def fit_gate(
    tasks: Sequence[RetrievalTask], config: Config, shares: Sequence[float] = ()
) -> Config:
    """Return the configuration with its gate fitted to memories and foreign questions.

    Args:
        tasks: Memories with their questions; each is asked those of the others, too.
        config: Settings with the signals, their weights, and the statistics of the gate.
        shares: Weight of a question of each memory; equal by default.
    """
    return learn_gate(see(tasks, config), shares or [1.0] * len(tasks), config)
