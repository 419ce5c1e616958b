"""What is fitted to questions with evidence: the weights of a preset, its gate, `linear`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.arena import Arena
from graphmem_torch.evaluation.tally import ADVERSARIAL
from graphmem_torch.memory import fit_weights
from graphmem_torch.rank.fit import fit_gate
from graphmem_torch.rank.gate import gate_statistics

__all__ = ["GRAPH_SIGNALS", "fit_linear", "fit_preset", "linear_names", "linear_scores"]

GRAPH_SIGNALS = frozenset({"activation", "pagerank"})
"""What `linear` does without. Facts that were derived from a turn speak for it in `linear` too."""


def linear_names(config: Config) -> list[str]:
    """The signals of the linear formula: those of a preset but for what the graph adds."""
    return [name for name in config.rank.weights if name not in GRAPH_SIGNALS]


def fit_linear(arenas: Sequence[Arena], names: Sequence[str]) -> dict[str, float]:
    """Weights of the linear formula from the questions of some conversations."""
    before = [arena.memory.config.rank.weights for arena in arenas]
    try:
        for arena in arenas:
            arena.memory.use_weights(dict.fromkeys(names, 0.0))
        return _fit(arenas)
    finally:
        for arena, weights in zip(arenas, before, strict=True):
            arena.memory.use_weights(weights)


def linear_scores(
    arena: Arena, questions: Sequence[str], weights: Mapping[str, float]
) -> Tensor:  # [B, T]
    """The weighted sum of the signals, for the turns."""
    signals = arena.scope(questions).signals(list(weights)).cpu()
    return (signals @ torch.tensor(list(weights.values())))[:, arena.turns]


def fit_preset(arenas: Sequence[Arena], config: Config) -> Config:
    """The configuration with its weights, and those of a gate with a logistic link, fitted anew."""
    fitted = replace(config, rank=replace(config.rank, weights=_fit(arenas)))
    if config.gate.link != "sigmoid":
        return fitted
    names = tuple(config.gate.weights)
    statistics, answerable = [], []
    for arena in arenas:
        before = arena.memory.config.rank.weights
        arena.memory.use_weights(fitted.rank.weights)
        try:
            statistics.append(_statistics(arena, names))
        finally:
            arena.memory.use_weights(before)
        answerable.append(arena.categories != ADVERSARIAL)
    weights, bias = fit_gate(torch.cat(statistics), torch.cat(answerable))
    gate = replace(config.gate, weights=dict(zip(names, weights.tolist(), strict=True)), bias=bias)
    return replace(fitted, gate=gate)


def _fit(arenas: Sequence[Arena]) -> dict[str, float]:
    return fit_weights([(a.memory, a.questions, a.evidence) for a in arenas])


def _statistics(arena: Arena, names: tuple[str, ...]) -> Tensor:  # [B, G]
    index = arena.memory.index
    with torch.inference_mode():
        _, signals, scope = index.features(arena.memory.query(arena.questions))
        score = (signals @ index.weights.float()).masked_fill(~scope.valid, -torch.inf)
        top = score.argmax(1, keepdim=True)
        return gate_statistics(scope, top, names).clone()
