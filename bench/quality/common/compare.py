"""Build, ask and measure every system on one set of questions, for all judges of retrieval."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphmem_torch.config import Config
from graphmem_torch.memory.compatibility import bound_concepts
from graphmem_torch.progress import Progress

from ..request import Request
from .baselines import BASELINES, Baseline
from .encoder import CachingEmbedder, caching
from .fitting import Fit, linear_scores
from .measure import latencies, peak_memory
from .questions import Question
from .rankings import rank_candidates
from .run import Run
from .scores import Scores, gain, group_masks, measured, percent, summarise
from .sets import QuestionSet
from .tables import Head, Table
from .task import RetrievalTask, baseline_config, build_tasks

__all__ = [
    "DIGITS",
    "KEPT",
    "SESSION_CUTOFFS",
    "Answer",
    "BuiltPreset",
    "BuiltSet",
    "Column",
    "System",
    "build",
    "by_question",
    "compare",
    "compare_shipped",
    "question_digest",
    "ranking_rows",
    "system_table",
    "systems_of",
]
SESSION_CUTOFFS: tuple[int, ...] = (1, 5, 10)
"""Numbers of sessions of the measures, if a set also asks for sessions."""

DIGITS = 10
"""Decimal places of the values of single questions in a report."""

KEPT = 100
"""Maximum candidates of a question in a file of rankings."""

_DEPTH = 150  # hits asked for: enough to fill 2,048 tokens with short turns
_CELLS = 2_000_000  # maximum scores at once: 8 MB a matrix, and thirty of them for signals


@dataclass(frozen=True, eq=False)
class BuiltPreset:
    """Memories of a set as a preset makes them, one a conversation.

    Attributes:
        config: Settings of the preset.
        tasks: Memories.
        seconds: Seconds until they could be asked.
    """

    config: Config
    tasks: Sequence[RetrievalTask]
    seconds: float


@dataclass(frozen=True, eq=False)
class BuiltSet:
    """Memories of a set.

    Attributes:
        questions: Set of questions.
        presets: Memories of each preset, those under test first.
        ground: Memories that all baselines search; shared if the first preset links alike.
    """

    questions: QuestionSet
    presets: Sequence[BuiltPreset]
    ground: BuiltPreset

    @property
    def config(self) -> Config:
        """Settings of the preset under test."""
        return self.presets[0].config

    @property
    def own(self) -> Sequence[RetrievalTask]:
        """Memories of the preset under test."""
        return self.presets[0].tasks

    @property
    def categories(self) -> Tensor:  # [n] int64
        """Return the categories of all questions."""
        return torch.cat([task.categories for task in self.own])

    @property
    def shipped(self) -> list[Mapping[str, Sequence[Fit]]]:
        """Return the shipped weights of each preset, and of the linear formula; see `compare`."""
        return [{"": [Fit.shipped(one.config)] * len(one.tasks)} for one in self.presets]

    def counts(self) -> dict[str, int]:
        """Return the number of questions of each group."""
        masks = group_masks(self.categories, self.questions.groups)
        return {group: int(mask.sum()) for group, mask in masks.items()}

    def made_with(self) -> dict[str, dict[str, str | None]]:
        """Return the encoder, the concept extractor and the device of each preset."""
        found = {}
        for one in self.presets:
            memory = one.tasks[0].memory
            found[one.config.name] = {
                "encoder": memory.embedder.fingerprint,
                "concepts": bound_concepts(memory.store),
                "device": str(memory.device),
            }
        return found

    def close(self) -> None:
        """Close the memories."""
        every = [task for one in (*self.presets, self.ground) for task in one.tasks]
        for task in {id(task): task for task in every}.values():
            task.memory.close()


def build(
    questions: QuestionSet,
    presets: Sequence[Config],
    encoders: Sequence[CachingEmbedder],
    device: str,
    progress: bool,
) -> BuiltSet:
    """Build the memories of a set for some presets and for the baselines.

    Args:
        questions: Set of questions.
        presets: Settings, those under test first.
        encoders: One for each preset.
        device: Device of the indices.
        progress: Whether to show bars.
    """

    def built(settings: Config, encoder: CachingEmbedder) -> BuiltPreset:
        tasks, seconds = build_tasks(
            questions.conversations, settings, encoder, device, progress, kind=questions.kind
        )
        return BuiltPreset(settings, tasks, seconds)

    every = [built(config, encoder) for config, encoder in zip(presets, encoders, strict=True)]
    shared = baseline_config(presets[0])
    alike = shared.link == presets[0].link
    return BuiltSet(questions, every, every[0] if alike else built(shared, encoders[0]))


def compare_shipped(questions: QuestionSet, run: Run, *, timed: int = 0) -> dict[str, Any]:
    """Build the memories of a set, compare all systems as they are shipped, and close them.

    Args:
        questions: Set of questions.
        run: Run of the judge; its rankings receive those of the questions.
        timed: Questions of each conversation whose latency is measured.
    """
    request = run.request
    built = build(questions, request.presets, run.encoders, request.device, request.progress)
    try:
        return compare(
            built,
            built.shipped,
            run.encoders,
            request,
            run.rankings,
            resamples=run.resamples,
            timed=timed,
        )
    finally:
        built.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """Rankings of B questions over the candidates, with the gate if the system has one."""

    ranking: Tensor  # [B, K], -1 = nothing retrieved there
    scores: Tensor  # [B, K]
    confidence: Tensor | None = None  # [B]
    known: Tensor | None = None  # [B] bool

    def without(self, ids: Sequence[str], names: Sequence[str]) -> Answer:
        """Remove the candidate whose id is the question's own.

        Args:
            ids: Ids of the candidates.
            names: Names of the B questions; many are no candidate's.
        """
        place = {name: i for i, name in enumerate(ids)}
        own = torch.tensor([place.get(name, -1) for name in names])[:, None]
        gone = (self.ranking == own) & (own >= 0)
        order = gone.to(torch.int8).sort(dim=1, stable=True).indices
        ranking = self.ranking.masked_fill(gone, -1).gather(1, order)
        return replace(self, ranking=ranking, scores=self.scores.gather(1, order))


System = Callable[[Sequence[str]], Answer]


def compare(
    built: BuiltSet,
    fits: Sequence[Mapping[str, Sequence[Fit]]],
    encoders: Sequence[CachingEmbedder],
    request: Request,
    rankings: list[dict[str, Any]],
    *,
    resamples: int = 2000,
    timed: int = 0,
) -> dict[str, Any]:
    """Ask every system every question of a set.

    Args:
        built: Set with its memories.
        fits: For each preset, weights of each conversation by the data they were fitted to: "" is
            compared with all others under the preset's name, another key is appended to the name.
            The weights of the linear formula are the first preset's.
        encoders: Encoders of the memories.
        request: Evaluation request, with the seed of the intervals and of the timed questions.
        rankings: List of the rankings of every question, if requested; updated.
        resamples: Number of resamples of the intervals.
        timed: Questions of each conversation whose latency is measured.

    Returns:
        `n` by group, `made_with`, and `systems` from `summarise`; `sessions`, the measures of
        sessions ranked by their best candidates, if questions name sessions; `by_question`.
    """
    asks = built.questions
    subjects = {one.config.name: one for one in built.presets}
    sessions = any(question.sessions for one in asks.conversations for question in one.questions)
    scores: dict[str, Scores] = {}
    by_session: dict[str, Scores] = {}
    ids: list[str] = []
    seed = request.seed
    chance = random.Random(seed)
    for number, task in enumerate(Progress(built.own, asks.name, shown=request.progress)):
        names = _names(asks, number)
        ids += names
        asked = chance.sample(task.questions, min(timed, len(task.questions)))
        presets = {
            name: (one.tasks[number], {label: each[number] for label, each in own.items()})
            for (name, one), own in zip(subjects.items(), fits, strict=True)
        }
        for name, system in systems_of(presets, built.ground.tasks[number]):
            whose = subjects.get(name, built.ground)
            found = scores.setdefault(name, Scores(asks.cutoffs, build_seconds=whose.seconds))
            with peak_memory() as peak, caching(encoders):
                answer = system(task.questions)
            found.add_peak(peak.megabytes)
            # The candidates of all memories of a conversation are the same, in the same order.
            found.add(
                answer.ranking,
                task.gold,
                task.costs,
                grades=task.grades,
                confidence=answer.confidence,
                known=answer.known,
            )
            if sessions:
                whole = by_session.setdefault(name, Scores(SESSION_CUTOFFS))
                whole.add(task.by_session(answer.ranking), task.session_gold)
            if request.rankings:
                rankings += ranking_rows(task, names, name, answer, preset=name in subjects)
            # What a user waits for: the preset's own number of hits.
            call = whose.tasks[number].memory.retrieve if name in subjects else system
            found.seconds += latencies(call, asked)
    drawn: dict[str, Any] = {
        "subjects": subjects,
        "seed": seed,
        "resamples": resamples,
        "groups": asks.groups,
    }
    report: dict[str, Any] = {"n": built.counts(), "made_with": built.made_with()}
    found_by = summarise(scores, built.categories, measure=asks.measure, **drawn)
    report |= {"systems": found_by}
    if sessions:
        report["sessions"] = measured(by_session, built.categories, **drawn)
    places = {k: asks.cutoffs.index(k) for k in (10, asks.at) if k in asks.cutoffs}
    report["by_question"] = by_question(
        ids,
        [question for task in built.own for question in task.asked],
        {
            name: {
                f"{measure}@{k}": torch.cat(found.measures[measure])[:, place]
                for measure in ("recall", "ndcg")
                for k, place in places.items()
            }
            for name, found in scores.items()
        },
    )
    return report


def _names(asks: QuestionSet, number: int) -> list[str]:
    """Return the ids of a conversation's questions in files of rankings."""
    one = asks.conversations[number]
    within = asks.name if one.name == asks.name else f"{asks.name}/{one.name}"
    return [q.id or f"{within}/{place}" for place, q in enumerate(one.questions)]


def systems_of(
    presets: Mapping[str, tuple[RetrievalTask, Mapping[str, Fit]]],
    ground: RetrievalTask,
    *,
    depth: int = _DEPTH,
) -> Iterator[tuple[str, System]]:
    """Yield every system by name, presets last; a baseline with the name of a preset is dropped.

    Args:
        presets: Memories of each preset by its name, and its weights, see `compare`.
        ground: Memories that the baselines search.
        depth: Number of hits of the presets.
    """

    def scored(function: Baseline) -> System:
        return lambda questions: _in_parts(
            lambda some: _ranked(function(ground, some)), questions, len(ground.ids)
        )

    def linear(weights: Mapping[str, float]) -> Baseline:
        return lambda task, questions: linear_scores(task, questions, weights)

    def retrieved(task: RetrievalTask, config: Config) -> System:
        return lambda questions: _in_parts(
            lambda some: _retrieved(task, config, some, depth), questions, len(task.ids)
        )

    _, fits = next(iter(presets.values()))
    for name, function in BASELINES.items():
        yield f"{name}_baseline" if name in presets else name, scored(function)
        if name == "interaction":
            for label, fit in fits.items():
                yield _labelled("linear", label), scored(linear(fit.linear))
    for name, (task, fits) in presets.items():
        for label, fit in sorted(fits.items(), reverse=True):
            yield _labelled(name, label), retrieved(task, fit.config)


def _labelled(name: str, label: str) -> str:
    return f"{name}, {label}" if label else name


def _ranked(scores: Tensor) -> Answer:
    ranking = rank_candidates(scores)
    return Answer(ranking, scores.gather(1, ranking.clamp(min=0)))


def _retrieved(task: RetrievalTask, config: Config, questions: Sequence[str], depth: int) -> Answer:
    held = task.memory.config
    if (held.rank, held.gate) != (config.rank, config.gate):
        task.adopt(config)
    results = task.retrieve(questions, depth)
    scores = [[hit.raw for hit in result.hits if hit.id in task] for result in results]
    return Answer(
        task.positions([[hit.id for hit in result.hits] for result in results]),
        pad_sequence([torch.tensor(row) for row in scores], batch_first=True),
        torch.tensor([result.confidence for result in results]),
        torch.tensor([result.known is not False for result in results]),
    )


def _in_parts(system: System, questions: Sequence[str], candidates: int) -> Answer:
    """Ask in batches whose score matrix fits the memory limit."""
    step = max(1, _CELLS // max(1, candidates))
    if len(questions) <= step:
        return system(questions)
    starts = range(0, len(questions), step)
    parts = [system(questions[start : start + step]) for start in starts]
    confidence = [part.confidence for part in parts if part.confidence is not None]
    known = [part.known for part in parts if part.known is not None]
    return Answer(
        pad_sequence([r for p in parts for r in p.ranking], batch_first=True, padding_value=-1),
        pad_sequence([r for p in parts for r in p.scores], batch_first=True),
        torch.cat(confidence) if confidence else None,
        torch.cat(known) if known else None,
    )


def ranking_rows(
    task: RetrievalTask, names: Sequence[str], system: str, answer: Answer, *, preset: bool
) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of rankings: a system's answers to the questions of a task.

    Args:
        task: Task with the questions.
        names: Ids of its questions.
        system: Name of the system.
        answer: Answers; the first `KEPT` candidates are written.
        preset: Whether the system is a preset, not a baseline.
    """
    ranking, scores = answer.ranking[:, :KEPT].tolist(), answer.scores[:, :KEPT].tolist()
    for place, (name, question) in enumerate(zip(names, task.asked, strict=True)):
        hits = [hit for hit in zip(ranking[place], scores[place], strict=True) if hit[0] >= 0]
        yield {
            "id": name,
            "question": question.text,
            "system": system,
            "preset": preset,
            "gold": question.grades,
            "ids": [task.ids[candidate] for candidate, _ in hits],
            "scores": [score for _, score in hits],
        }


def question_digest(text: str, gold: Mapping[str, float]) -> str:
    """Return a digest that distinguishes questions of one id: of text and gold."""
    asked = json.dumps([text, sorted((name, float(grade)) for name, grade in gold.items())])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def by_question(
    ids: Sequence[str],
    questions: Sequence[Question],
    values: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Any]:
    """Return the section of a report that `graphmem eval compare` reads.

    Args:
        ids: Ids of n questions.
        questions: Questions of these ids.
        values: By system and measure, [n]; NaN without gold.
    """

    def plain(column: Tensor) -> list[float | None]:
        return [None if value != value else round(value, DIGITS) for value in column.tolist()]

    return {
        "ids": list(ids),
        "asked": [question_digest(each.text, each.grades) for each in questions],
        "systems": {
            system: {name: plain(column) for name, column in measures.items()}
            for system, measures in values.items()
        },
    }


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table of systems: a measure of a group of questions at a cut-off."""

    title: str
    measure: str
    group: str
    k: int

    def of(self, figures: Mapping[str, Any]) -> float | None:
        """Return the cell of a system."""
        value = figures[self.measure][self.group][str(self.k)]
        assert value is None or isinstance(value, float)
        return value


def system_table(
    systems: Mapping[str, Mapping[str, Any]],
    subject: str,
    columns: Sequence[Column],
    group: str,
    k: int,
    title: str,
    *,
    notes: Sequence[str] = (),
) -> Table:
    """Return a line for each system, with the subject's gain over it in recall of a group at k.

    Args:
        systems: Figures from `compare`.
        subject: System under test.
        columns: Columns to show.
        group: Group of questions of the differences.
        k: Cut-off of the differences.
        title: Head of the differences after "minus it, ".
        notes: Lines below the table.
    """
    timed = all("latency_ms" in figures for figures in systems.values())
    heads = [Head("system"), *(Head(column.title, percent) for column in columns)]
    heads += [Head("p50 ms", _milliseconds)] if timed else []
    differences = systems[subject]["ci"]["difference"]
    rows = [
        [
            name,
            *(column.of(figures) for column in columns),
            *([figures["latency_ms"]["p50"]] if timed else []),
            differences[name][group][str(k)] if name in differences else None,
        ]
        for name, figures in systems.items()
    ]
    return Table([*heads, Head(f"{subject} minus it, {title}", gain)], rows, notes)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
