"""What is fitted to questions with evidence: the weights of a preset, its gate, `linear`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config, preset_path
from graphmem_torch.memory.learning import LabelledQuestions, fit_weights
from graphmem_torch.rank.abstention import abstention_statistics, fit_abstention

from .scores import ADVERSARIAL
from .task import RetrievalTask, baseline_config

__all__ = [
    "GRAPH_SIGNALS",
    "Fit",
    "fit_all",
    "fit_linear",
    "fit_preset",
    "fit_ranking",
    "is_fitted",
    "leave_one_out",
    "linear_names",
    "linear_scores",
]
GRAPH_SIGNALS = frozenset({"activation", "entity_hop", "pagerank", "title_hop"})
"""What `linear` does without. Facts that were derived from a turn speak for it in `linear` too."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted: a preset with its weights and gate, and the weights of the linear formula."""

    config: Config
    linear: Mapping[str, float]

    @classmethod
    def shipped(cls, config: Config) -> Fit:
        """The preset as it is, and the linear formula as fitted to development conversations."""
        path = preset_path("default").parent / "bench" / "linear.yaml"
        return cls(config, dict(load_config(str(path)).rank.weights))


def fit_all(
    own: Sequence[RetrievalTask],
    ground: Sequence[RetrievalTask],
    config: Config,
    shares: Sequence[float] = (),
    *,
    gate: bool = True,
) -> Fit:
    """Everything that is fitted, fitted to the same questions.

    Args:
        own: Memories as the preset makes them.
        ground: The same conversations as the baselines search them; may be the same list.
        config: The preset; one whose weights are published stays as it is.
        shares: What a question of each memory counts; all alike by default.
        gate: Whether the gate is fitted, too; rankings do without.
    """
    names = linear_names(baseline_config(config))
    linear = fit_linear(ground, names, shares)
    if not is_fitted(config):
        return Fit(config, linear)
    known = linear if own is ground and names == linear_names(config) else None
    fit = fit_preset if gate else fit_ranking
    return Fit(fit(own, config, shares, linear=known), linear)


def leave_one_out(
    own: Sequence[RetrievalTask], ground: Sequence[RetrievalTask], config: Config
) -> list[Fit]:
    """For each conversation what is fitted to all the others."""
    fits = []
    for number in range(len(own)):
        rest = [task for i, task in enumerate(own) if i != number]
        floor = rest if own is ground else [t for i, t in enumerate(ground) if i != number]
        fits.append(fit_all(rest, floor, config))
    return fits


def linear_names(config: Config) -> list[str]:
    """The signals of the linear formula: those of a preset but for what the graph adds."""
    return [name for name in config.rank.weights if name not in GRAPH_SIGNALS]


def is_fitted(config: Config) -> bool:
    """Whether a preset's weights are learned; one with SYNAPSE's anchors keeps its own."""
    return config.anchors.source == "fused"


def fit_linear(
    tasks: Sequence[RetrievalTask], names: Sequence[str], shares: Sequence[float] = ()
) -> dict[str, float]:
    """Weights of the linear formula from the questions of some conversations."""
    return _fitted(tasks, dict.fromkeys(names, 0.0), shares)


def linear_scores(
    task: RetrievalTask, questions: Sequence[str], weights: Mapping[str, float]
) -> Tensor:  # [B, T]
    """The weighted sum of the signals, for the turns."""
    signals = task.candidates(questions).signals(list(weights)).cpu()
    return (signals @ torch.tensor(list(weights.values())))[:, task.turns]


def fit_ranking(
    tasks: Sequence[RetrievalTask],
    config: Config,
    shares: Sequence[float] = (),
    *,
    linear: Mapping[str, float] | None = None,
) -> Config:
    """The configuration with its weights fitted anew; signals that no memory has get weight 0.

    The anchors of the first pass come from the linear formula, fitted to the same questions
    (`linear`, where that is known), so that nothing of the given weights is left in the result.
    """
    if linear is None:
        linear = fit_linear(tasks, linear_names(config), shares)
    none = dict.fromkeys(config.rank.weights, 0.0)
    weights = none | _fitted(tasks, none | dict(linear), shares)
    return replace(config, rank=replace(config.rank, weights=weights))


def fit_preset(
    tasks: Sequence[RetrievalTask],
    config: Config,
    shares: Sequence[float] = (),
    *,
    linear: Mapping[str, float] | None = None,
) -> Config:
    """`fit_ranking`, and the weights of a gate with a logistic link."""
    fitted = fit_ranking(tasks, config, shares, linear=linear)
    if config.gate.link != "sigmoid":
        return fitted
    names = tuple(config.gate.weights)
    with _weights(tasks, fitted.rank.weights):
        statistics = torch.cat([_statistics(task, names) for task in tasks])
    answerable = torch.cat([task.categories for task in tasks]) != ADVERSARIAL
    slopes, bias = fit_abstention(statistics, answerable)
    gate = replace(config.gate, weights=dict(zip(names, slopes.tolist(), strict=True)), bias=bias)
    return replace(fitted, gate=gate)


def _fitted(
    tasks: Sequence[RetrievalTask], start: Mapping[str, float], shares: Sequence[float]
) -> dict[str, float]:
    """Weights of the signals of `start`, from anchors that its weights choose."""
    with _weights(tasks, start):
        counts = shares or [1.0] * len(tasks)
        return fit_weights(
            [_labelled(task, share) for task, share in zip(tasks, counts, strict=True)]
        )


def _labelled(task: RetrievalTask, share: float) -> LabelledQuestions:
    """The questions of a conversation, to its index with the weights that it has now."""
    memory, questions = task.memory, task.questions
    rows = [memory.rows_of(list(dict.fromkeys(ids))) for ids in task.evidence]
    query = memory.encode_questions(questions)
    return LabelledQuestions(memory.index, query, rows, questions, share)


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
