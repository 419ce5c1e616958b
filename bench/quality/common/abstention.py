"""Questions that a memory cannot answer: what its gate sees of them, and learns from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.index.retrieve import ranked
from graphmem_torch.memory.weight_fitting import reweighted
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
"""What a memory cannot answer: what its set marks so; what is asked of other memories; and its own
questions while the memories that answer them are left out."""

_FOREIGN = 150  # questions of other memories that one is asked
_BATCH = 32


@dataclass(frozen=True, eq=False)
class Seen:
    """What a gate sees of n questions.

    Attributes:
        names: Of S statistics.
        statistics: [n, S].
        form: [n], of the first hit.
        kind: n times `ANSWERABLE` or one of `KINDS`.
    """

    names: Sequence[str]
    statistics: Tensor
    form: Tensor
    kind: Sequence[str]

    def confidence(self, config: Config) -> Tensor:  # [n]
        """What the gate of some settings, which reads no other statistics, makes of it."""
        weights = weight_table(config.gate.weights)
        return confidence(self._read_by(config), self.form, weights, config.gate)

    def weighed(self, config: Config) -> Tensor:  # [n, G]
        """What each weight of such a gate is multiplied with."""
        return of_forms(self._read_by(config), self.form, tuple(config.gate.weights))

    def _read_by(self, config: Config) -> Tensor:
        names = signal_names(config.gate.weights)
        return self.statistics[:, [list(self.names).index(name) for name in names]]

    def weight(self) -> Tensor:  # [n] float64
        """What each question counts: a kind as much as others, all as much as the answerable."""
        weight = self.of(ANSWERABLE).double()
        count = float(weight.sum())
        kinds = [mask for mask in map(self.of, KINDS) if bool(mask.any())]
        for mask in kinds:
            weight += mask * count / (len(kinds) * float(mask.sum()))
        return weight

    def of(self, kind: str) -> Tensor:  # [n] bool
        """Which questions are of this kind."""
        return torch.tensor([own == kind for own in self.kind])


def foreign_questions(
    task: RetrievalTask, others: Sequence[RetrievalTask], seed: int = 0
) -> list[str]:
    """At most 150 questions that other memories answer, and that this one is not asked.

    A conversation that is there twice, with its facts and without, is one and the same.
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
    """What the gate of some settings sees of the questions to a memory, and of those of others.

    Args:
        task: The memory and its questions.
        config: Of which the weights of the signals and the statistics of the gate are taken.
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
    """What the gate of some settings sees in memories that are asked those of all, too."""
    return [seen_by_gate(task, config, foreign_questions(task, tasks)) for task in tasks]


def learn_gate(seen: Sequence[Seen], shares: Sequence[float], config: Config) -> Config:
    """The configuration with its gate fitted to what it saw.

    Each kind of unanswerable question of a memory counts alike, all of them as much as its
    answerable ones.

    Args:
        seen: Of each memory, by the statistics of the gate.
        shares: What a question of each memory counts.
        config: Of which the statistics are taken.
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
    """The configuration with its gate fitted to memories that are asked what they cannot answer.

    Args:
        tasks: Memories with their questions; each is asked those of the others, too.
        config: Whose signals, with their weights, and statistics the gate reads.
        shares: What a question of each memory counts; all alike by default.
    """
    return learn_gate(see(tasks, config), shares or [1.0] * len(tasks), config)
