"""Judge of a grid of settings of spreading activation, in regimes from weak to strong seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Scope

from ..common.chats import find_chats, read_chats
from ..common.encoder import CachingEmbedder
from ..common.fitting import Fit, fit_all, linear_names
from ..common.questions import Conversation, find_evidence
from ..common.run import Run
from ..common.scores import gain, percent
from ..common.sets import QuestionSet, locomo_set, merged_passages, passage_set
from ..common.tables import Head, Table
from ..common.task import TURN, RetrievalTask, build_tasks, memory_of
from ..common.texts import read_passage_sets
from ..request import Judged, Request
from .adaptation import learned_gains, spared
from .grid import (
    Patterns,
    Setting,
    activations,
    anchors_of,
    drawn_settings,
    one_by_one,
    with_controls,
)
from .regimes import (
    BASES,
    FACTORS,
    Judgement,
    Regime,
    answered,
    best_published,
    confirmed,
    judgements,
    several,
    unlike,
)

__all__ = ["judge"]
_SETTINGS = 150
_LARGE = 24  # settings over all conversations, or all passages, in one store
_LOOPED = 8  # settings that the loop is timed with


def _category(number: int) -> Any:
    return lambda task: answered(task) & (task.categories == number)


_REGIMES = (
    Regime("weak seeds: cosine", "cosine", answered),
    Regime("weak seeds, multi-hop", "cosine", _category(1)),
    Regime("cosine and BM25", "fusion", answered),
    Regime("strong seeds: linear", "linear", answered),
    Regime("multi-hop", "linear", _category(1)),
    Regime("temporal", "linear", _category(2)),
    Regime("open domain", "linear", _category(3)),
    Regime("single-hop", "linear", _category(4)),
    Regime("evidence in several sessions", "linear", several),
    Regime("evidence unlike the question", "linear", unlike),
)
_POOLED = (
    Regime("all conversations in one store", "linear", answered),
    Regime("the same, weak seeds", "cosine", answered),
    Regime("the same, multi-hop", "linear", _category(1)),
)
_CHATS = (
    Regime("chats @5", "linear", answered),
    Regime("chats @5, weak seeds", "cosine", answered),
)


def judge(
    request: Request,
    *,
    resamples: int = 2000,
    settings: int = _SETTINGS,
    large: int = _LARGE,
    steps: int = 10,
) -> Judged:
    """Measure the gain of spreading activation over rankings without a graph.

    Args:
        request: Data to evaluate: a LoCoMo file, or a root with any of `locomo`, `multihop` and
            `longmemeval` below it. Memories are linked as the preset links.
        resamples: Number of resamples of the intervals.
        settings: Number of settings, except for larger stores.
        large: Number of settings if all conversations, or all passages, are one store.
        steps: Gradient steps that learn the gains of edge types.
    """
    run = Run(request, resamples)
    config, encoder, drawn = run.config, run.encoder, run.drawn
    named = [load_config("synapse-published"), load_config("default")]
    drawn_ones = drawn_settings(settings, named, request.seed)
    grid, few = with_controls(drawn_ones), with_controls(drawn_ones[:large])
    root = Path(request.data)
    passages = [passage_set(one) for one in read_passage_sets(root / "multihop")] * (
        (root / "multihop").is_dir()
    )
    chats = root / "longmemeval"
    chatted = chats.is_dir() and find_chats(chats) is not None
    report: dict[str, Any] = {"settings": len(drawn_ones), "factors": list(FACTORS), "regimes": {}}

    def add(found: Mapping[str, Judgement], tried: Sequence[Setting]) -> None:
        report["regimes"] |= {n: confirmed(one, tried, drawn) for n, one in found.items()}

    with encoder.caching():
        if not (passages or chatted) or (root / "locomo").is_dir():
            asked = _conversations(request, root)
            tasks = _built(asked, config, encoder, request)
            fits = _left_out(tasks, config)
            found = judgements(tasks, fits, grid, _REGIMES, seed=request.seed)
            add(found, grid)
            report |= {
                "speed": _speed(
                    tasks[0],
                    fits[0].linear,
                    drawn_ones,
                    config,
                    asked.conversations[0].atoms,
                    encoder,
                ),
                "published": best_published(found["weak seeds: cosine"], grid, drawn),
                "spared": spared(tasks, named[0], drawn),
                "learned": learned_gains(tasks, fits, drawn, steps=steps, seed=request.seed),
            }
            pooled = _pooled(asked, config, encoder, request)
            add(judgements(pooled, fits, few, _POOLED, seed=request.seed), few)
            _close([*tasks, *pooled])
        if chatted:
            tasks = _built(read_chats(chats), config, encoder, request)
            add(
                judgements(tasks, [_graph_free(config)], grid, _CHATS, at=5, seed=request.seed),
                grid,
            )
            _close(tasks)
        if passages:
            for found, tried in _of_passages(passages, config, encoder, request, grid, few):
                add(found, tried)
    first = next(iter(report["regimes"].values()))
    return run.judged(
        "spreading",
        _tables,
        input=request.input,
        n={"1-4" if "published" in report else "chats" if chatted else "passages": first["n"]},
        **report,
    )


def _conversations(request: Request, root: Path) -> QuestionSet:
    """Read the conversations of a LoCoMo file, at least two to fit the base of one on another."""
    file = root / "locomo" if root.is_dir() and (root / "locomo").is_dir() else root
    evidence = request.evidence or (find_evidence(file) if file.is_dir() else None)
    asked = locomo_set(file, evidence=evidence, input=request.input)
    if len(asked.conversations) < 2:
        raise InputError(
            "expected at least 2 conversations, to fit the base of each on the others, got 1; "
            "give a file with more",
            where=str(file),
        )
    return asked


def _of_passages(
    sets: Sequence[QuestionSet],
    config: Config,
    encoder: CachingEmbedder,
    request: Request,
    grid: Sequence[Setting],
    few: Sequence[Setting],
) -> Iterator[tuple[dict[str, Judgement], Sequence[Setting]]]:
    """Judge sets of passages with distractors: none, those of the set, those of all.

    Fits use the other sets; without any, the shipped weights stay. The settings are those of the
    grid, and few of them if all passages are one store.
    """
    apart = [task for one in sets for task in _built(one, config, encoder, request)]
    fits = _left_out(apart, config) if len(sets) > 1 else [Fit.shipped(config)]
    alone = [task for one in sets for task in _built(_gold_of(one), config, encoder, request)]
    kinds = {"the gold alone": alone, "apart": apart}
    if len(sets) > 1:
        kinds["merged"] = _merged(sets, config, encoder, request)
    for kind, tasks in kinds.items():
        settings = few if kind == "merged" else grid
        regimes = [
            Regime(f"passages @5, {kind}", "linear", answered),
            Regime(f"passages @5, {kind}, weak seeds", "cosine", answered),
            *(
                Regime(f"{one.name} @5, {kind}", "linear", partial(_of_task, task))
                for one, task in zip(sets, tasks, strict=True)
            ),
        ]
        yield judgements(tasks, fits, settings, regimes, at=5, seed=request.seed), settings
        _close(tasks)


def _of_task(own: RetrievalTask, task: RetrievalTask) -> Tensor:  # [B] bool
    """Return the questions of one memory alone."""
    return answered(task) & (task is own)


def _graph_free(config: Config) -> Fit:
    """Return the preset unchanged, and its own weights without the graph's."""
    return Fit(config, {name: config.rank.weights[name] for name in linear_names(config)})


def _gold_of(asked: QuestionSet) -> QuestionSet:
    """Return a set whose passages are those that answer its questions."""
    (one,) = asked.conversations
    gold = {name for question in one.questions for name in question.gold}
    atoms = tuple(atom for atom in one.atoms if atom.id in gold)
    return replace(asked, conversations=(replace(one, atoms=atoms),))


def _merged(
    sets: Sequence[QuestionSet], config: Config, encoder: CachingEmbedder, request: Request
) -> list[RetrievalTask]:
    """Return each set's questions with one memory of the passages of all."""
    whole = merged_passages(sets)
    (merged,) = whole.conversations
    concepts = encoder.extractor(config.link.concepts)
    memory = memory_of(merged.atoms, config, encoder, request.device, concepts=concepts)
    asked = iter(merged.questions)
    return [
        RetrievalTask(
            Conversation(own.name, (), tuple(islice(asked, len(own.questions)))),
            memory,
            kind=whole.kind,
        )
        for one in sets
        for own in one.conversations
    ]


def _built(
    asked: QuestionSet, config: Config, encoder: CachingEmbedder, request: Request
) -> list[RetrievalTask]:
    kinds = {"kind": asked.kind}
    made, _ = build_tasks(
        asked.conversations, config, encoder, request.device, request.progress, **kinds
    )
    return made


def _close(tasks: Sequence[RetrievalTask]) -> None:
    for task in {id(task.memory): task for task in tasks}.values():
        task.memory.close()


def _left_out(tasks: Sequence[RetrievalTask], config: Config) -> list[Fit]:
    """Return the linear formula and the preset of each memory, fitted to the others."""
    fits = []
    for task in tasks:
        others = [each for each in tasks if each is not task]
        fits.append(fit_all(others, others, config, gate=False))
    return fits


def _pooled(
    asked: QuestionSet, config: Config, encoder: CachingEmbedder, request: Request
) -> list[RetrievalTask]:
    """Return each conversation's questions with one store of all; names are those of the whole."""
    atoms: list[Atom] = []
    parts: list[Conversation] = []
    for one in asked.conversations:

        def named(name: str | None, within: str = one.name) -> str:
            return f"{within}/{name}" if name else ""

        for atom in one.atoms:
            links = tuple(replace(link, target=named(link.target)) for link in atom.edges)
            session = named(atom.session) or None
            atoms.append(replace(atom, id=named(atom.id), session=session, edges=links))
        questions = (replace(q, gold=tuple(map(named, q.gold))) for q in one.questions)
        parts.append(Conversation(one.name, (), tuple(questions)))
    concepts = encoder.extractor(config.link.concepts)
    memory = memory_of(atoms, config, encoder, request.device, concepts=concepts)
    return [RetrievalTask(part, memory) for part in parts]


def _speed(
    task: RetrievalTask,
    weights: Mapping[str, float],
    grid: Sequence[Setting],
    config: Config,
    atoms: Sequence[Atom],
    encoder: CachingEmbedder,
) -> dict[str, Any]:
    """Measure settings a second of CPU time on one conversation, and their equality.

    `grid` runs all settings as batches, `loop` one call a setting, edges included, `memory` an
    index per setting, asked all questions.
    """
    score = BASES["linear"](task, weights)
    start = time.process_time()
    patterns = Patterns.of(task.memory, grid)
    starts = anchors_of(task, score, grid, patterns)
    found = dict(activations(patterns, grid, starts))
    batch = time.process_time() - start
    some = grid[:_LOOPED]
    start = time.process_time()
    looped = list(one_by_one(task.memory, some, starts))
    loop = time.process_time() - start
    apart = max(
        float((found[place] - one).abs().max() / one.max().clamp(min=1e-30))
        for place, one in enumerate(looped)
    )
    whole = 0.0
    for one in some[:2]:
        own = replace(config, spread=one.spread, anchors=one.anchors)
        with memory_of(atoms, own, encoder, str(task.memory.device)) as memory:
            start = time.process_time()
            memory.index  # noqa: B018 - built when it is first asked for
            memory.retrieve(task.questions, k=10, scope=Scope(kinds=[TURN]))
            whole += (time.process_time() - start) / 2
    return {
        "questions": len(task.questions),
        "grid": len(grid) / batch,
        "loop": len(some) / loop,
        "memory": 1 / whole,
        "largest_difference": apart,
    }


def _tables(report: Mapping[str, Any]) -> list[str | Table]:
    """Return recall in percent, gains in points with their intervals."""
    heads = [
        Head("regime"),
        Head("n"),
        Head("base", percent),
        Head("best, where chosen", percent),
        Head("confirmed", gain),
        Head("anchors alone", gain),
        Head("of the graph", gain),
        Head("synapse-published", gain),
        Head("default", gain),
        Head("whole preset", gain),
        Head("chosen"),
    ]
    rows = [
        [
            name,
            one["n"],
            one["base"],
            one["best"],
            one["gain"],
            one["anchors"],
            one["of_graph"],
            one["of_presets"].get("synapse-published"),
            one["of_presets"].get("default"),
            one["preset"],
            ", ".join(f"{c['name']} x {c['factor']}" if c else "none" for c in one["chosen"]),
        ]
        for name, one in report["regimes"].items()
    ]
    tried = sorted({one["tried"] for one in report["regimes"].values()})
    said = f"settings times factors tried: {' or '.join(map(str, tried))}; chosen on one half, "
    tables: list[str | Table] = [Table(heads, rows, [said + "confirmed on the other"])]
    if "published" not in report:
        return tables
    best = report["published"]
    tables.append(
        f"SYNAPSE's own score, {best['tried']} settings: as published {_whole(best['synapse'])}, "
        f"the best of the other half {_whole(best['best'])}, more than that {gain(best['gain'])}, "
        f"more than cosine {gain(best['over_base'])}"
    )
    spare = [Head("spare"), Head("recall@10", percent), Head("difference", gain)]
    spare += [Head("silenced", percent), Head("gold of fusion silenced", percent)]
    tables.append(Table(spare, [list(row.values()) for row in report["spared"]]))
    learned = report["learned"]
    gains = ", ".join(f"{name} {value:.2f}" for name, value in learned["gains"].items())
    tables.append(f"gains learned: {gains}; more than the base {gain(learned['gain'])}")
    speed = report["speed"]
    tables.append(
        f"settings a second over {speed['questions']} questions: {speed['grid']:.1f} as a batch, "
        f"{speed['loop']:.1f} by a loop, {speed['memory']:.2f} by a memory of each; largest "
        f"difference {speed['largest_difference']:.1e}"
    )
    return tables


def _whole(interval: Sequence[float]) -> str:
    return f"{percent(interval[0])} [{percent(interval[1])}, {percent(interval[2])}]"
