"""The judge: a preset and all baselines on LoCoMo conversations (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from graphmem_torch.config import load_config, preset_path
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table

from ..common.baselines import BASELINES, Baseline
from ..common.encoder import load_encoder
from ..common.fitting import fit_linear, fit_preset, is_fitted, linear_names, linear_scores
from ..common.measure import framed, latencies, peak_memory
from ..common.questions import read_conversations
from ..common.rankings import rank_candidates
from ..common.scores import Scores, gain, group_masks, percent, summarise
from ..common.task import TURN, RetrievalTask, baseline_config, build_tasks
from ..request import Judged, Request

__all__ = ["format_table", "judge"]
_DEPTH = 150  # hits asked for: enough to fill 2,048 tokens with short turns


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rankings of B questions over the turns, and the gate where the system has one."""

    ranking: Tensor  # [B, K]
    confidence: Tensor | None = None  # [B]
    known: Tensor | None = None  # [B] bool


_System = Callable[[Sequence[str]], _Answer]


def judge(request: Request, *, resamples: int = 2000, timed: int = 20) -> Judged:
    """Run a preset and every baseline on a LoCoMo file, or on the one in a folder.

    Without repaired evidence (JSON lines) the file's own is repaired. With `cv` what is fitted (the
    weights of `default` and of `linear`) is fitted anew for each conversation on the others.

    Args:
        request: What is evaluated.
        resamples: Of the intervals.
        timed: Questions of each conversation whose latency is measured.

    Returns:
        The report (see `bench/quality/README.md`) and its table.

    Raises:
        InputError: if the data cannot be used, or `cv` is asked for with a single conversation.
        ConfigError: if there is no such preset.
    """
    config, device, progress = request.settings, request.device, request.progress
    conversations = read_conversations(request.data, evidence=request.evidence, input=request.input)
    if request.cv and len(conversations) < 2:
        raise InputError(
            f"cv: expected at least 2 conversations to leave one out, got {len(conversations)}; "
            "leave out --cv",
            where=str(request.data),
        )
    encoder = load_encoder(request)
    own, own_seconds = build_tasks(conversations, config, encoder, device, progress)
    shared = baseline_config(config)
    if shared.link == config.link:
        ground, ground_seconds = own, own_seconds
    else:
        ground, ground_seconds = build_tasks(conversations, shared, encoder, device, progress)

    scores: dict[str, Scores] = {}
    chance = request.chance
    for number, task in enumerate(tqdm(own, desc="questions", disable=not progress)):
        weights = _shipped_linear()
        if request.cv:
            rest = [i for i in range(len(own)) if i != number]
            with encoder.caching():
                if is_fitted(config):
                    task.adopt(fit_preset([own[i] for i in rest], config))
                weights = fit_linear([ground[i] for i in rest], linear_names(shared))
        asked = chance.sample(task.questions, min(timed, len(task.questions)))
        for name, system in _systems(task, ground[number], weights, config.name).items():
            built = own_seconds if name == config.name else ground_seconds
            found = scores.setdefault(name, Scores(build_seconds=built))
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
            # What a user waits for: the preset's own number of hits.
            call = task.memory.retrieve if name == config.name else system
            found.seconds += latencies(call, asked)

    categories = torch.cat([task.categories for task in own])
    report = framed(
        "locomo",
        config,
        request.seed,
        n={group: int(mask.sum()) for group, mask in group_masks(categories).items()},
        input=request.input,
        systems=summarise(
            scores, categories, subject=config.name, seed=request.seed, resamples=resamples
        ),
    )
    report["config"]["eval"] = {"cv": request.cv, "conversations": len(own)}
    return Judged(report, format_table(report))


def _systems(
    own: RetrievalTask, ground: RetrievalTask, weights: Mapping[str, float], preset: str
) -> dict[str, _System]:
    """Every system by name, the preset last; a baseline of the preset's name steps back."""

    def scored(function: Baseline) -> _System:
        return lambda questions: _Answer(rank_candidates(function(ground, questions)))

    functions: dict[str, Baseline] = {}
    for name, function in BASELINES.items():
        functions[name] = function
        if name == "interaction":
            functions["linear"] = lambda task, questions: linear_scores(task, questions, weights)
    systems = {
        f"{name}_baseline" if name == preset else name: scored(function)
        for name, function in functions.items()
    }
    systems[preset] = lambda questions: _retrieved(own, questions)
    return systems


def _retrieved(task: RetrievalTask, questions: Sequence[str]) -> _Answer:
    results = task.memory.retrieve(list(questions), k=_DEPTH, kinds=[TURN])
    return _Answer(
        task.positions([[hit.id for hit in result.hits] for result in results]),
        torch.tensor([result.confidence for result in results]),
        torch.tensor([result.known for result in results]),
    )


def _shipped_linear() -> dict[str, float]:
    """Weights of the linear formula, fitted to the development conversations."""
    return dict(
        load_config(str(preset_path("default").parent / "bench" / "linear.yaml")).rank.weights
    )


_COLUMNS = (
    ("1-4 @10", "recall", "1-4", "10"),
    ("@25", "recall", "1-4", "25"),
    ("all @10", "recall", "all", "10"),
    ("@25", "recall", "all", "25"),
    ("multi-hop @10", "recall", "1", "10"),
    ("@25", "recall", "1", "25"),
    ("nDCG @10", "ndcg", "1-4", "10"),
)


def format_table(report: Mapping[str, Any]) -> str:
    """Recall in percent, a line for each system, and what the preset gains over it."""
    subject = report["preset"]
    header = [
        "system",
        *(title for title, *_ in _COLUMNS),
        "p50 ms",
        f"{subject} minus it, 1-4 @10",
    ]
    differences = report["systems"][subject]["ci"]["difference"]
    rows = [header]
    for name, figures in report["systems"].items():
        cells = [percent(figures[measure][group][k]) for _, measure, group, k in _COLUMNS]
        latency = figures["latency_ms"]["p50"]
        cells.append("-" if latency is None else f"{latency:.1f}")
        cells.append(gain(differences[name]["1-4"]["10"]) if name in differences else "")
        rows.append([name, *cells])
    lines = text_table(rows)
    counts = report["n"]
    kind = (
        "each conversation scored by a fit on the others"
        if report["config"]["eval"]["cv"]
        else "as shipped"
    )
    lines.append(f"{counts['1-4']} questions of categories 1-4, {counts['5']} adversarial; {kind}")
    return "\n".join(lines)
