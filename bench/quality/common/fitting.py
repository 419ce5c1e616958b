"""Fit a preset's weights, its gate and `linear` to questions with evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.memory.learned_values import with_weights
from graphmem_torch.memory.weight_fitting import LabelledQuestions, fit_weights
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.registry import SIGNALS, Weight, signal_names, weight_table

from .abstention import fit_gate
from .task import RetrievalTask, baseline_config

__all__ = [
    "GRAPH_SIGNALS",
    "Fit",
    "fit_all",
    "fit_linear",
    "fit_preset",
    "is_fitted",
    "leave_one_out",
    "linear_names",
    "linear_scores",
]
GRAPH_SIGNALS = frozenset({"activation", "entity_hop", "hop", "pagerank", "title_hop"})
"""Signals that `linear` leaves out. It does use facts derived from a turn."""

_PENALTY = 0.03  # chosen by leaving one set out


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted preset with weights and gate, and the weights of the linear formula."""

    config: Config
    linear: Mapping[str, float]

    @classmethod
    def shipped(cls, config: Config) -> Fit:
        """Return the preset as it is, and the linear formula with the weights of `default`."""
        default = load_config("default")
        return cls(config, {key: default.rank.weights[key] for key in linear_names(default)})


def fit_all(
    own: Sequence[RetrievalTask],
    ground: Sequence[RetrievalTask],
    config: Config,
    shares: Sequence[float] = (),
    *,
    gate: bool = True,
) -> Fit:
    """Fit the preset, its gate and the linear formula to the same questions.

    Args:
        own: Memories as the preset makes them.
        ground: Same conversations as the baselines search them; may be the same list.
        config: Preset; one with published weights stays unchanged.
        shares: Weight of a question of each memory; equal by default.
        gate: Whether to fit the gate, too; rankings do not use it.
    """
    names = linear_names(baseline_config(config))
    linear = fit_linear(ground, names, shares)
    if not is_fitted(config):
        return Fit(config, linear)
    known = linear if own is ground and names == linear_names(config) else None
    return Fit(fit_preset(own, config, shares, linear=known, gate=gate), linear)


def leave_one_out(
    own: Sequence[RetrievalTask], ground: Sequence[RetrievalTask], config: Config
) -> list[Fit]:
    """Return for each conversation the fit to all the others."""
    fits = []
    for number in range(len(own)):
        rest = [task for i, task in enumerate(own) if i != number]
        floor = rest if own is ground else [t for i, t in enumerate(ground) if i != number]
        fits.append(fit_all(rest, floor, config))
    return fits


def linear_names(config: Config) -> list[str]:
    """Return the signals of the linear formula: those of a preset without the graph's."""
    return [key for key in config.rank.weights if Weight.named(key).signal not in GRAPH_SIGNALS]


def is_fitted(config: Config) -> bool:
    """Return whether a preset's weights are learned; presets with SYNAPSE's anchors keep theirs."""
    return config.anchors.source == "fused"


def fit_linear(
    tasks: Sequence[RetrievalTask], names: Sequence[str], shares: Sequence[float] = ()
) -> dict[str, float]:
    """Fit the weights of the linear formula to the questions of some conversations."""
    return _fitted(tasks, _linear(dict.fromkeys(names, 0.0)), shares)


def linear_scores(
    task: RetrievalTask, questions: Sequence[str], weights: Mapping[str, float]
) -> Tensor:  # [B, T]
    """Return the weighted sum of the signals, for the turns."""
    memory = task.memory
    query, config = task.encode(questions), _linear(weights)(memory.config)
    found = Candidates(memory.index.tensors, query, config)
    table = weight_table(weights).to(query.embedding.device)
    with torch.inference_mode():
        scores = found.scores(found.signals(signal_names(weights)), table)
    return scores.cpu()[:, task.turns]


def _linear(weights: Mapping[str, float]) -> Callable[[Config], Config]:
    """Return the settings of the linear formula: signals in background units, for any preset."""
    return lambda config: replace(
        config,
        rank=replace(config.rank, weights=dict(weights), cold_weights={}, scale="background"),
    )


def fit_preset(
    tasks: Sequence[RetrievalTask],
    config: Config,
    shares: Sequence[float] = (),
    *,
    linear: Mapping[str, float] | None = None,
    gate: bool = True,
) -> Config:
    """Return the configuration with fitted weights; signals that no memory has get weight 0.

    The anchors of the first pass come from the linear formula, fitted to the same questions (or
    given as `linear`), so that the result does not depend on the given weights. With `gate`, a gate
    with a logistic link is fitted, too; see `fit_gate`.
    """
    if linear is None:
        linear = fit_linear(tasks, linear_names(config), shares)
    none = {
        key: 0.0 if SIGNALS[Weight.named(key).signal].learned else value
        for key, value in config.rank.weights.items()
    }
    start = with_weights(config, none | dict(linear))
    fitted = with_weights(config, none | _fitted(tasks, lambda _: start, shares))
    if not gate or config.gate.link != "sigmoid":
        return fitted
    return fit_gate(tasks, fitted, shares)


def _fitted(
    tasks: Sequence[RetrievalTask], start: Callable[[Config], Config], shares: Sequence[float]
) -> dict[str, float]:
    """Fit the signal weights of some settings, with the anchors that their weights choose."""
    counts = shares or [1.0] * len(tasks)
    labelled = [_labelled(task, start, share) for task, share in zip(tasks, counts, strict=True)]
    return fit_weights(labelled, l2=_PENALTY)


def _labelled(
    task: RetrievalTask, settings: Callable[[Config], Config], share: float
) -> LabelledQuestions:
    """Return the questions of a conversation, to its index with other weights."""
    memory, questions = task.memory, task.questions
    rows = [memory.tensors.rows(list(dict.fromkeys(ids))) for ids in task.evidence]
    index = reweighted(memory.index, settings(memory.config))
    return LabelledQuestions(index, task.encode(questions), rows, questions, share)
