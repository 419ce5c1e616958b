"""What is fitted to questions with evidence: the weights of a preset, its gate, `linear`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.memory.learning import LabelledQuestions, fit_weights
from graphmem_torch.rank.abstention import gate_statistics
from graphmem_torch.rank.fit import fit_gate

from .arena import Arena
from .tally import ADVERSARIAL

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


def fit_linear(arenas: Sequence[Arena], names: Sequence[str]) -> dict[str, float]:
    """Weights of the linear formula from the questions of some conversations."""
    with _weights(arenas, dict.fromkeys(names, 0.0)):
        return fit_weights([_labelled(arena) for arena in arenas])


def linear_scores(
    arena: Arena, questions: Sequence[str], weights: Mapping[str, float]
) -> Tensor:  # [B, T]
    """The weighted sum of the signals, for the turns."""
    signals = arena.scope(questions).signals(list(weights)).cpu()
    return (signals @ torch.tensor(list(weights.values())))[:, arena.turns]


def fit_preset(arenas: Sequence[Arena], config: Config) -> Config:
    """The configuration with its weights, and those of a gate with a logistic link, fitted anew.

    The anchors of the first pass come from the linear formula, fitted to the same questions, so
    that nothing of the given weights is left in the result.
    """
    start = dict.fromkeys(config.rank.weights, 0.0) | fit_linear(arenas, linear_names(config))
    with _weights(arenas, start):
        weights = fit_weights([_labelled(arena) for arena in arenas])
    fitted = replace(config, rank=replace(config.rank, weights=weights))
    if config.gate.link != "sigmoid":
        return fitted
    names = tuple(config.gate.weights)
    with _weights(arenas, weights):
        statistics = torch.cat([_statistics(arena, names) for arena in arenas])
    answerable = torch.cat([arena.categories for arena in arenas]) != ADVERSARIAL
    slopes, bias = fit_gate(statistics, answerable)
    gate = replace(config.gate, weights=dict(zip(names, slopes.tolist(), strict=True)), bias=bias)
    return replace(fitted, gate=gate)


def _labelled(arena: Arena) -> LabelledQuestions:
    """The questions of a conversation, to its index with the weights that it has now."""
    memory, questions = arena.memory, arena.questions
    rows = [memory.rows_of(list(dict.fromkeys(ids))) for ids in arena.evidence]
    return LabelledQuestions(memory.index, memory.encode_questions(questions), rows, questions)


@contextmanager
def _weights(arenas: Sequence[Arena], weights: Mapping[str, float]) -> Iterator[None]:
    """Other weights for the length of a block."""
    before = [arena.memory.config.rank.weights for arena in arenas]
    try:
        for arena in arenas:
            arena.memory.use_weights(weights)
        yield
    finally:
        for arena, old in zip(arenas, before, strict=True):
            arena.memory.use_weights(old)


def _statistics(arena: Arena, names: tuple[str, ...]) -> Tensor:  # [B, G]
    index = arena.memory.index
    with torch.inference_mode():
        _, signals, scope = index.features(arena.memory.encode_questions(arena.questions))
        score = (signals @ index.weights.float()).masked_fill(~scope.valid, -torch.inf)
        top = score.argmax(1, keepdim=True)
        return gate_statistics(scope, top, names).clone()
