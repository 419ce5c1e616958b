"""Every system on one set of questions: built, asked, measured. What judges of retrieval share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from graphmem_torch.config import Config
from graphmem_torch.evaluation.retrieval import text_table

from .baselines import BASELINES, Baseline
from .encoder import CachingEmbedder
from .fitting import Fit, linear_scores
from .measure import latencies, peak_memory
from .rankings import rank_candidates
from .scores import Scores, gain, group_masks, measured, percent, summarise
from .sets import QuestionSet
from .task import RetrievalTask, baseline_config, build_tasks

__all__ = ["SESSION_CUTOFFS", "BuiltSet", "Column", "build", "compare", "system_table"]
SESSION_CUTOFFS: tuple[int, ...] = (1, 5, 10)
"""Numbers of sessions at which they are measured, where a set asks for sessions as well."""

_DEPTH = 150  # hits asked for: enough to fill 2,048 tokens with short turns


@dataclass(frozen=True, eq=False)
class BuiltSet:
    """The memories of a set, one a conversation.

    Attributes:
        questions: The set.
        config: Settings of the preset under test.
        own: Memories as the preset under test makes them.
        ground: Those that all baselines search; the same where the presets link alike.
        own_seconds, ground_seconds: What it took until they could be asked.
    """

    questions: QuestionSet
    config: Config
    own: Sequence[RetrievalTask]
    ground: Sequence[RetrievalTask]
    own_seconds: float
    ground_seconds: float

    @property
    def categories(self) -> Tensor:  # [n] int64
        """Of all questions."""
        return torch.cat([task.categories for task in self.own])

    def counts(self) -> dict[str, int]:
        """Questions of each group."""
        masks = group_masks(self.categories, self.questions.groups)
        return {group: int(mask.sum()) for group, mask in masks.items()}

    def close(self) -> None:
        """Closes the memories."""
        for task in {id(task): task for task in (*self.own, *self.ground)}.values():
            task.memory.close()


def build(
    questions: QuestionSet, config: Config, encoder: CachingEmbedder, device: str, progress: bool
) -> BuiltSet:
    """The memories of a set for a preset and for the baselines."""

    def tasks(settings: Config) -> tuple[list[RetrievalTask], float]:
        return build_tasks(
            questions.conversations, settings, encoder, device, progress, kind=questions.kind
        )

    own, own_seconds = tasks(config)
    shared = baseline_config(config)
    if shared.link == config.link:
        return BuiltSet(questions, config, own, own, own_seconds, own_seconds)
    ground, ground_seconds = tasks(shared)
    return BuiltSet(questions, config, own, ground, own_seconds, ground_seconds)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rankings of B questions over the candidates, and the gate where the system has one."""

    ranking: Tensor  # [B, K]
    confidence: Tensor | None = None  # [B]
    known: Tensor | None = None  # [B] bool


_System = Callable[[Sequence[str]], _Answer]


def compare(
    built: BuiltSet,
    fits: Mapping[str, Sequence[Fit]],
    encoder: CachingEmbedder,
    *,
    seed: int,
    resamples: int = 2000,
    timed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Asks every system every question of a set.

    Args:
        built: The set with its memories.
        fits: Weights of each conversation by what they were fitted to: "" is what is compared with
            all others and goes by the name of the preset, another key follows the name.
        encoder: Of the memories.
        seed: Of the intervals, and of the questions that are timed.
        resamples: Of the intervals.
        timed: Questions of each conversation whose latency is measured.
        progress: Whether to show a bar.

    Returns:
        `n` by group and `systems` as `summarise` gives them; `sessions`, the measures of the
        sessions ranked by their best candidates, where questions name sessions.
    """
    asks = built.questions
    subject = built.config.name
    sessions = any(question.sessions for one in asks.conversations for question in one.questions)
    scores: dict[str, Scores] = {}
    by_session: dict[str, Scores] = {}
    chance = random.Random(seed)
    for number, task in enumerate(tqdm(built.own, desc=asks.name, disable=not progress)):
        own = {label: each[number] for label, each in fits.items()}
        asked = chance.sample(task.questions, min(timed, len(task.questions)))
        for name, system in _systems(task, built.ground[number], own, subject):
            seconds = built.own_seconds if name == subject else built.ground_seconds
            found = scores.setdefault(name, Scores(asks.cutoffs, build_seconds=seconds))
            with peak_memory() as peak, encoder.caching():
                answer = system(task.questions)
            found.add_peak(peak.megabytes)
            found.add(
                answer.ranking,
                task.gold,
                task.costs,
                confidence=answer.confidence,
                known=answer.known,
            )
            if sessions:
                whole = by_session.setdefault(name, Scores(SESSION_CUTOFFS))
                whole.add(task.by_session(answer.ranking), task.session_gold)
            # What a user waits for: the preset's own number of hits.
            found.seconds += latencies(task.memory.retrieve if name == subject else system, asked)
    drawn: dict[str, Any] = {
        "subject": subject,
        "seed": seed,
        "resamples": resamples,
        "groups": asks.groups,
    }
    report = {"n": built.counts(), "systems": summarise(scores, built.categories, **drawn)}
    if sessions:
        report["sessions"] = measured(by_session, built.categories, **drawn)
    return report


def _systems(
    own: RetrievalTask, ground: RetrievalTask, fits: Mapping[str, Fit], preset: str
) -> Iterator[tuple[str, _System]]:
    """Every system by name, the preset last; a baseline of the preset's name steps back."""

    def scored(function: Baseline) -> _System:
        return lambda questions: _Answer(rank_candidates(function(ground, questions)))

    def linear(weights: Mapping[str, float]) -> Baseline:
        return lambda task, questions: linear_scores(task, questions, weights)

    def retrieved(config: Config) -> _System:
        return lambda questions: _retrieved(own, config, questions)

    for name, function in BASELINES.items():
        yield f"{name}_baseline" if name == preset else name, scored(function)
        if name == "interaction":
            for label, fit in fits.items():
                yield _labelled("linear", label), scored(linear(fit.linear))
    for label, fit in sorted(fits.items(), reverse=True):
        yield _labelled(preset, label), retrieved(fit.config)


def _labelled(name: str, label: str) -> str:
    return f"{name}, {label}" if label else name


def _retrieved(task: RetrievalTask, config: Config, questions: Sequence[str]) -> _Answer:
    held = task.memory.config
    if (held.rank, held.gate) != (config.rank, config.gate):
        task.adopt(config)
    kinds = None if task.kind is None else [task.kind]
    results = task.memory.retrieve(list(questions), k=_DEPTH, kinds=kinds)
    return _Answer(
        task.positions([[hit.id for hit in result.hits] for result in results]),
        torch.tensor([result.confidence for result in results]),
        torch.tensor([result.known for result in results]),
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of systems: a measure of a group of questions at a cut-off."""

    title: str
    measure: str
    group: str
    k: int

    def of(self, figures: Mapping[str, Any]) -> str:
        """The cell of a system, in percent."""
        return percent(figures[self.measure][self.group][str(self.k)])


def system_table(
    systems: Mapping[str, Mapping[str, Any]],
    subject: str,
    columns: Sequence[Column],
    group: str,
    k: int,
    title: str,
) -> list[str]:
    """A line for each system, and what the subject gains over it in recall of a group at k.

    Args:
        systems: Figures as of `compare`.
        subject: System under test.
        columns: What is shown.
        group: Questions of the differences.
        k: Cut-off of the differences.
        title: Their head behind "minus it, ".
    """
    timed = all("latency_ms" in figures for figures in systems.values())
    header = ["system", *(column.title for column in columns)]
    rows = [[*header, *(["p50 ms"] if timed else []), f"{subject} minus it, {title}"]]
    differences = systems[subject]["ci"]["difference"]
    for name, figures in systems.items():
        cells = [name, *(column.of(figures) for column in columns)]
        if timed:
            latency = figures["latency_ms"]["p50"]
            cells.append("-" if latency is None else f"{latency:.1f}")
        cells.append(gain(differences[name][group][str(k)]) if name in differences else "")
        rows.append(cells)
    return text_table(rows)
