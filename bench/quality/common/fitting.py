"""What is fitted to questions with evidence: the weights of a preset, its gate, `linear`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.memory.learning import LabelledQuestions, fit_weights
from graphmem_torch.rank.abstention import abstention_statistics, fit_abstention

from .scores import ADVERSARIAL
from .task import RetrievalTask

__all__ = [
    "GRAPH_SIGNALS",
    "fit_linear",
    "fit_preset",
    "is_fitted",
    "linear_names",
    "linear_scores",
]
GRAPH_SIGNALS = frozenset({"activation", "entity_hop", "pagerank", "title_hop"})
"""What `linear` does without. Facts that were derived from a turn speak for it in `linear` too."""


def linear_names(config: Config) -> list[str]:
    """The signals of the linear formula: those of a preset but for what the graph adds."""
    return [name for name in config.rank.weights if name not in GRAPH_SIGNALS]


def is_fitted(config: Config) -> bool:
    """Whether a preset's weights are learned; one with SYNAPSE's anchors keeps its own."""
    return config.anchors.source == "fused"


def fit_linear(tasks: Sequence[RetrievalTask], names: Sequence[str]) -> dict[str, float]:
    """Weights of the linear formula from the questions of some conversations."""
    with _weights(tasks, dict.fromkeys(names, 0.0)):
        return fit_weights([_labelled(task) for task in tasks])


def linear_scores(
    task: RetrievalTask, questions: Sequence[str], weights: Mapping[str, float]
) -> Tensor:  # [B, T]
    """The weighted sum of the signals, for the turns."""
    signals = task.candidates(questions).signals(list(weights)).cpu()
    return (signals @ torch.tensor(list(weights.values())))[:, task.turns]


def fit_preset(tasks: Sequence[RetrievalTask], config: Config) -> Config:
    """The configuration with its weights, and those of a gate with a logistic link, fitted anew.

    The anchors of the first pass come from the linear formula, fitted to the same questions, so
    that nothing of the given weights is left in the result.
    """
    start = dict.fromkeys(config.rank.weights, 0.0) | fit_linear(tasks, linear_names(config))
    with _weights(tasks, start):
        weights = fit_weights([_labelled(task) for task in tasks])
    fitted = replace(config, rank=replace(config.rank, weights=weights))
    if config.gate.link != "sigmoid":
        return fitted
    names = tuple(config.gate.weights)
    with _weights(tasks, weights):
        statistics = torch.cat([_statistics(task, names) for task in tasks])
    answerable = torch.cat([task.categories for task in tasks]) != ADVERSARIAL
    slopes, bias = fit_abstention(statistics, answerable)
    gate = replace(config.gate, weights=dict(zip(names, slopes.tolist(), strict=True)), bias=bias)
    return replace(fitted, gate=gate)


def _labelled(task: RetrievalTask) -> LabelledQuestions:
    """The questions of a conversation, to its index with the weights that it has now."""
    memory, questions = task.memory, task.questions
    rows = [memory.rows_of(list(dict.fromkeys(ids))) for ids in task.evidence]
    return LabelledQuestions(memory.index, memory.encode_questions(questions), rows, questions)


@contextmanager
def _weights(tasks: Sequence[RetrievalTask], weights: Mapping[str, float]) -> Iterator[None]:
    """Other weights for the length of a block."""
    before = [task.memory.config.rank.weights for task in tasks]
    try:
        for task in tasks:
            task.memory.use_weights(weights)
        yield
    finally:
        for task, old in zip(tasks, before, strict=True):
            task.memory.use_weights(old)


def _statistics(task: RetrievalTask, names: tuple[str, ...]) -> Tensor:  # [B, G]
    index = task.memory.index
    with torch.inference_mode():
        found = index.candidates(task.memory.encode_questions(task.questions))
        score = found.signals(index.signal_names) @ index.weights.float()
        top = score.masked_fill(~found.valid, -torch.inf).argmax(1, keepdim=True)
        return abstention_statistics(found, top, names).clone()
