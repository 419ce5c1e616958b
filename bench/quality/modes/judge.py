"""Judge of mode retrieval: its cost in recall, and the paper's retrieval experiment.

A LoCoMo file gives both; any other text, or a store, gives curves at scale (`scale.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.memory import Scope
from graphmem_torch.text.embedder import Embedder

from ..common.encoder import CachingEmbedder
from ..common.questions import read_conversations
from ..common.run import Run
from ..common.scores import ADVERSARIAL, gain, percent
from ..common.task import TURN, RetrievalTask, baseline_config, build_tasks
from ..request import Judged, Request
from .baselines import build_communities, build_tree
from .curve import ROUNDS, SearchTask, measure_curves
from .experiment import answer_measures, compare
from .grid import Setting, partition
from .scale import ROUNDS as SCALE_ROUNDS
from .scale import judge_scale
from .search import by_modes, flat
from .source import has_conversations

__all__ = ["format_modes", "judge"]
_DEPTH = 150  # hits asked of a preset


def judge(
    request: Request, *, rounds: int = ROUNDS, scale_rounds: tuple[int, int] = SCALE_ROUNDS
) -> Judged:
    """Measure recall against cost of mode retrieval, with trees and communities as baselines.

    Args:
        request: Evaluation request.
        rounds: Timed questions of each conversation.
        scale_rounds: Timed single questions, and timed batches, at scale.

    Raises:
        InputError: Invalid data, or no question with an answer.
    """
    if not has_conversations(request.data):
        report = judge_scale(request, rounds=scale_rounds)
        return Judged(report, format_modes(report))
    run = Run(request)
    config, encoder = run.config, run.encoder
    conversations = read_conversations(request.data, evidence=request.evidence)
    shared = baseline_config(config)
    with encoder.caching():
        own = _tasks(conversations, config, encoder, request)
        ground = own if config == shared else _tasks(conversations, shared, encoder, request)
        asked = [_answerable(task) for task in ground]
        count = sum(int(mask.sum()) for mask in asked)
        if count == 0:
            raise InputError(
                "expected questions whose evidence is a turn, got none; give --evidence",
                where=str(request.data),
            )
        fields = [_field(task, mask) for task, mask in zip(ground, asked, strict=True)]
        curves = measure_curves(
            fields,
            preset=config.modes if config.modes.use == "candidates" else None,
            seed=request.seed,
            rounds=rounds,
            progress=request.progress,
        )
        chosen = _chosen(curves, len(fields))
        answers: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for one, other, mask, field, setting in zip(
            own, ground, asked, fields, chosen, strict=True
        ):
            rankings = _rankings(other, field, setting, encoder, request.seed)
            rankings["default"] = _retrieved(other, mask)
            rankings[config.name] = _retrieved(one, mask)
            for name, ranking in rankings.items():
                found = answer_measures(ranking, field.gold, field.costs)
                answers.setdefault(name, []).append(found)
    return run.judged(
        "modes",
        format_modes,
        n={"questions": count, "conversations": len(fields)},
        curves=curves,
        systems=compare(answers, subject=config.name, reference="flat", seed=request.seed),
    )


def _chosen(curves: Mapping[str, Any], count: int) -> list[Setting]:
    """Return the setting for each conversation, chosen on the others if there are any."""
    left = curves["left_out"]
    found = [curves["recommended"]] * count if left is None else left["chosen"]
    return [Setting(s["rule"], s["assign"], s["modes"], s["atoms"]) for s in found]


def _tasks(
    conversations: Sequence[Any], config: Config, encoder: CachingEmbedder, request: Request
) -> list[RetrievalTask]:
    return build_tasks(conversations, config, encoder, request.device, request.progress)[0]


def _answerable(task: RetrievalTask) -> Tensor:  # [B] bool
    """Return which questions of categories 1 to 4 have known evidence."""
    return (task.categories != ADVERSARIAL) & (task.gold >= 0).any(1)


def _field(task: RetrievalTask, asked: Tensor) -> SearchTask:
    queries = task.candidates(task.questions).query.embedding.float().cpu()
    return SearchTask(
        task.embeddings[task.turns],
        queries[asked],
        task.gold[asked],
        task.costs,
    )


def _rankings(
    task: RetrievalTask,
    field: SearchTask,
    setting: Setting,
    encoder: Embedder,
    seed: int,
) -> dict[str, Tensor]:
    """Return the rankings of one conversation's turns by each system without a preset."""
    store = task.memory.store
    node = store.known(task.ids)
    texts = [atom.rendered for atom in store.atoms([node[i][0] for i in task.ids])]

    def encode(texts: Sequence[str]) -> Tensor:
        return encoder.encode(list(texts)).pooled.float().cpu()

    modes = partition(field.vectors, setting.rule, setting.assign, seed=seed)
    (found,) = by_modes(
        modes,
        field.vectors,
        field.queries,
        searched=setting.modes or len(modes),
        taken=[setting.atoms],
    )
    tree = build_tree(field.vectors, texts, encode, seed=seed)
    graph = task.undirected(EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
    groups = build_communities(graph, task.turns, field.vectors, texts, encode)
    return {
        "flat": flat(field.vectors, field.queries, len(field.vectors)).ranking,
        "tree": tree.search(field.queries),
        "communities": groups.search(field.queries),
        "modes": found.ranking,
    }


def _retrieved(task: RetrievalTask, asked: Tensor) -> Tensor:  # [B, K]
    questions = [q for q, kept in zip(task.questions, asked.tolist(), strict=True) if kept]
    results = task.memory.retrieve(questions, k=_DEPTH, scope=Scope(kinds=[TURN]))
    return task.positions([[hit.id for hit in result.hits] for result in results])


def format_modes(report: Mapping[str, Any]) -> str:
    """Format curves and the retrieval experiment for conversations, curves alone at scale."""
    if "sizes" in report:
        return "\n\n".join(_size(part) for part in report["sizes"])
    return f"{_curves(report)}\n\n{_systems(report)}"


def _curves(report: Mapping[str, Any]) -> str:
    curves = report["curves"]
    rows = [["modes", "searched", "taken", "recall@10", "@25", "as flat", "vectors read"]]
    rows.append(["flat, exact", "", "", *_point(curves["reference"])])
    for name, curve in curves["curves"].items():
        rows.append([f"{name}, {curve['count']:.0f} modes", *[""] * 6])
        best: dict[int, Mapping[str, Any]] = {}
        for point in curve["points"]:
            kept = best.get(point["modes"])
            if kept is None or point["recall"]["10"] > kept["recall"]["10"]:
                best[point["modes"]] = point
        for searched, point in best.items():
            rows.append(["", str(searched or "all"), str(point["atoms"]), *_point(point)])
        for kept, point in curve["without_atoms"].items():
            rows.append([f"  only {kept}", "", "", *_point(point)])
    chosen, left = curves["recommended"], curves["left_out"]
    lines = [
        *text_table(rows),
        "Of each number of modes searched the best number of atoms taken is shown.",
        f"Recommended ({curves['rule']}): {_setting(chosen)}: recall@10 "
        f"{percent(chosen['recall']['10'])}, {gain(chosen['difference'])} against flat, "
        f"{percent(chosen['share'])} % of the vectors read",
        "  ms a question (flat / modes): "
        + ", ".join(
            f"{kind} {found['flat']:.3f} / {found['modes']:.3f}"
            for kind, found in chosen["latency_ms"].items()
        ),
    ]
    own = curves["preset"]
    if own is not None:
        lines.append(
            f"  as {report['preset']} has it ({own['count']:.0f} modes by {own['assign']}, "
            f"{own['modes']} searched, {own['atoms']} atoms of each): recall@10 "
            f"{percent(own['recall']['10'])}, {gain(own['difference'])} against flat, "
            f"{percent(own['share'])} % read"
        )
    if left is not None:
        lines.append(
            f"  chosen for each conversation on the others: {percent(left['recall'])}, "
            f"{gain(left['difference'])} against flat, {percent(left['share'])} % read"
        )
    return "\n".join(lines)


def _systems(report: Mapping[str, Any]) -> str:
    subject = report["preset"]
    titles = ("p@5", "p@10", "recall@10", "mrr", "p@1024t", "recall@1024t")
    rows = [["system", *titles, "tokens@10", "equal precision", f"{subject} minus it, p@10"]]
    for name, figures in report["systems"].items():
        equal = figures["equal_precision"]
        cost = "-" if equal["tokens"] is None else f"{equal['tokens']:.0f} ({equal['ratio']:.2f}x)"
        difference = figures["difference"]["p@10"] if "difference" in figures else None
        rows.append(
            [
                name,
                *(percent(figures[title]) for title in titles),
                f"{figures['tokens@10']:.0f}",
                cost,
                "" if name == subject else gain(difference),
            ]
        )
    counts = report["n"]
    return "\n".join(
        [
            *text_table(rows),
            f"{counts['questions']} questions of categories 1-4 in {counts['conversations']} "
            "conversations. Equal precision: tokens until as much gold is found as in the ten "
            "best of flat, and how many times fewer than flat's.",
        ]
    )


def _size(part: Mapping[str, Any]) -> str:
    rows = [
        ["index", "searched", "agreement@10", "sentence found", "read", "faster: one", "batch"],
        ["flat, exact", "", *_scale_point(part["flat"]), "", ""],
    ]
    for index in part["modes"]:
        size = index["bytes"]
        smaller = " / ".join(
            f"{size['flat'] / size[kept]:.1f}" for kept in ("centroids", "statistics", "whole")
        )
        title = f"{index['assign']}, {index['count']} modes"
        if index["axes"] < index["asked"]:
            title += f" ({index['asked']} asked)"
        rows.append([f"{title}; smaller {smaller}", *[""] * 6])
        for kept, point in index["without_atoms"].items():
            rows.append([f"  only {kept}", "", *_scale_point(point), "", ""])
        rows += _searched(index["points"])
    for index in part["ivf"]:
        rows.append([f"inverted file, {index['count']} lists", *[""] * 6])
        rows += _searched(index["points"])
    return "\n".join(
        [
            f"{part['rows']:,} vectors of {part['width']} dimensions",
            *text_table(rows),
            "Agreement: share of the exact ten best, for texts that are not indexed. Smaller: "
            "centroids alone / with statistics / with all atoms, times.",
        ]
    )


def _searched(points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            "",
            str(point["searched"]),
            *_scale_point(point),
            f"{point['faster_one']:.2f}x",
            f"{point['faster_batch']:.2f}x",
        ]
        for point in points
    ]


def _scale_point(point: Mapping[str, Any]) -> list[str]:
    shares = [point[key] for key in ("agreement", "known_item")]
    return [*("-" if s is None else percent(s[0]) for s in shares), f"{point['read']:,.0f}"]


def _point(point: Mapping[str, Any]) -> list[str]:
    return [
        percent(point["recall"]["10"]),
        percent(point["recall"]["25"]),
        percent(point["agreement"]),
        f"{percent(point['share'])} %",
    ]


def _setting(setting: Mapping[str, Any]) -> str:
    searched = setting["modes"] or "all"
    return (
        f"{setting['rule']}/{setting['assign']}, {searched} modes searched, {setting['atoms']} "
        "atoms of each"
    )
