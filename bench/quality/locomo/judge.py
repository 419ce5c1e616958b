"""The judge: a preset and all baselines on LoCoMo conversations (`docs/evaluation.md` 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from graphmem_torch.config import Config, config_to_dict, load_config, preset_path
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.metrics import group_masks, rank_candidates
from graphmem_torch.memory import Memory
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.embedders import load_embedder

from ..common.arena import TURN, Arena
from ..common.fitting import fit_linear, fit_preset, is_fitted, linear_names, linear_scores
from ..common.measure import code_version, latencies, peak_memory
from ..common.questions import Conversation, read_conversations
from ..common.remember import RememberingEmbedder
from ..common.systems import BASELINES, Baseline
from ..common.tally import Tally, summarise
from ..request import Judged, Request

__all__ = ["build_arenas", "format_table", "judge"]
_DEPTH = 150  # hits asked for: enough to fill 2,048 tokens with short turns
_TIMED = 20  # questions of each conversation whose latency is measured


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rankings of B questions over the turns, and the gate where the system has one."""

    ranking: Tensor  # [B, K]
    confidence: Tensor | None = None  # [B]
    known: Tensor | None = None  # [B] bool


_System = Callable[[Sequence[str]], _Answer]


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run a preset and every baseline on a LoCoMo file, or on the one in a folder.

    Without repaired evidence (JSON lines) the file's own is repaired. With `cv` what is fitted (the
    weights of `default` and of `linear`) is fitted anew for each conversation on the others.

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
    encoder = RememberingEmbedder(
        load_embedder(
            config.embedder.name if request.embedder is None else request.embedder,
            device,
            token_dim=config.embedder.token_dim,
        )
    )
    own, own_seconds = build_arenas(conversations, config, encoder, device, progress)
    # Every preset is held against the same baselines, on what `default` keeps and links.
    shared = load_config("default")
    link = replace(shared.link, concepts=config.link.concepts)
    shared = replace(shared, embedder=config.embedder, link=link)
    if shared.link == config.link:
        ground, ground_seconds = own, own_seconds
    else:
        ground, ground_seconds = build_arenas(conversations, shared, encoder, device, progress)

    tallies: dict[str, Tally] = {}
    chance = request.chance
    for number, arena in enumerate(tqdm(own, desc="questions", disable=not progress)):
        weights = _shipped_linear()
        if request.cv:
            rest = [i for i in range(len(own)) if i != number]
            with encoder.remembering():
                if is_fitted(config):
                    arena.adopt(fit_preset([own[i] for i in rest], config))
                weights = fit_linear([ground[i] for i in rest], linear_names(shared))
        timed = chance.sample(arena.questions, min(_TIMED, len(arena.questions)))
        for name, system in _systems(arena, ground[number], weights, config.name).items():
            built = own_seconds if name == config.name else ground_seconds
            tally = tallies.setdefault(name, Tally(build_seconds=built))
            with peak_memory() as peak, encoder.remembering():
                answer = system(arena.questions)
            tally.note_peak(peak.megabytes)
            tally.note(
                answer.ranking,
                arena.gold,
                arena.costs,
                confidence=answer.confidence,
                known=answer.known,
            )
            # What a user waits for: the preset's own number of hits.
            call = arena.memory.retrieve if name == config.name else system
            tally.seconds += latencies(call, timed)

    categories = torch.cat([arena.categories for arena in own])
    report = {
        "dataset": "locomo",
        "input": request.input,
        "preset": config.name,
        "commit": code_version(),
        "n": {group: int(mask.sum()) for group, mask in group_masks(categories).items()},
        "systems": summarise(
            tallies, categories, subject=config.name, seed=request.seed, resamples=resamples
        ),
        "config": config_to_dict(config) | {"eval": {"cv": request.cv, "conversations": len(own)}},
        "seed": request.seed,
    }
    return Judged(report, format_table(report))


def build_arenas(
    conversations: Sequence[Conversation],
    config: Config,
    encoder: Embedder,
    device: str,
    progress: bool,
) -> tuple[list[Arena], float]:
    """A memory for each conversation, and the seconds until all could be asked."""
    arenas, seconds = [], 0.0
    for conversation in tqdm(conversations, desc="memories", disable=not progress):
        start = time.perf_counter()
        memory = Memory.open(None, config=config, embedder=encoder, device=device)
        memory.add(conversation.atoms)
        memory.index  # noqa: B018 - built when it is first asked for
        seconds += time.perf_counter() - start
        arenas.append(Arena(conversation, memory))
    return arenas, seconds


def _systems(
    own: Arena, ground: Arena, weights: Mapping[str, float], preset: str
) -> dict[str, _System]:
    """Every system by name, the preset last; a baseline of the preset's name steps back."""

    def scored(function: Baseline) -> _System:
        return lambda questions: _Answer(rank_candidates(function(ground, questions)))

    functions: dict[str, Baseline] = {}
    for name, function in BASELINES.items():
        functions[name] = function
        if name == "interaction":
            functions["linear"] = lambda arena, questions: linear_scores(arena, questions, weights)
    systems = {
        f"{name}_baseline" if name == preset else name: scored(function)
        for name, function in functions.items()
    }
    systems[preset] = lambda questions: _retrieved(own, questions)
    return systems


def _retrieved(arena: Arena, questions: Sequence[str]) -> _Answer:
    results = arena.memory.retrieve(list(questions), k=_DEPTH, kinds=[TURN])
    return _Answer(
        arena.positions([[hit.id for hit in result.hits] for result in results]),
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
        cells = [_percent(figures[measure][group][k]) for _, measure, group, k in _COLUMNS]
        latency = figures["latency_ms"]["p50"]
        cells.append("-" if latency is None else f"{latency:.1f}")
        cells.append(_interval(differences[name]["1-4"]["10"]) if name in differences else "")
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    counts = report["n"]
    kind = (
        "each conversation scored by a fit on the others"
        if report["config"]["eval"]["cv"]
        else "as shipped"
    )
    lines.append(f"{counts['1-4']} questions of categories 1-4, {counts['5']} adversarial; {kind}")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _interval(value: list[float] | None) -> str:
    if value is None:
        return "-"
    mean, low, high = (100 * v for v in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
