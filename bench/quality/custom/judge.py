"""The judge of a user's own data: a preset and its ingredients on files and labelled questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.metrics import MEASURES
from graphmem_torch.evaluation.retrieval import (
    RetrievalReport,
    evaluate,
    mean_range,
    measure_rankings,
    text_table,
)
from graphmem_torch.memory import Memory
from graphmem_torch.readers.read import check_paths, read_atoms
from graphmem_torch.text.embedder import Embedder

from ..common.baselines import BASELINES
from ..common.encoder import load_encoder
from ..common.measure import framed, latencies, percentiles
from ..common.questions import Conversation, Question
from ..common.rankings import rank_candidates
from ..common.scores import gain
from ..common.task import RetrievalTask, baseline_config, memory_of
from ..common.texts import json_rows
from ..request import Judged, Request

__all__ = ["CUTOFFS", "format_custom", "judge", "read_questions"]
CUTOFFS: tuple[int, ...] = (5, 10, 25)
"""Numbers of hits at which everything is measured."""

_SYSTEMS = ("dense", "bm25", "rrf", "fusion", "interaction")
_TIMED = 20  # questions whose latency is measured


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run a preset, and what it is made of, on the files and the questions of a request.

    The files are what `graphmem index` takes; every atom of them is a candidate.

    Returns:
        The report (see `bench/quality/README.md`) and its table.

    Raises:
        InputError: Files that cannot be read, a line of questions without its fields, or evidence
            that the files do not have.
        ConfigError: There is no such preset.
    """
    config = request.settings
    if request.questions is None:
        raise InputError("questions: expected a file of JSON lines, got none; give --questions")
    encoder = load_encoder(request)
    atoms = _read(request.data, config, encoder, request.device)
    questions = read_questions(request.questions, {atom.id for atom in atoms})
    asked = [question.text for question in questions]
    evidence = [question.gold for question in questions]
    conversation = Conversation(request.data.name, tuple(atoms), tuple(questions))
    drawn: dict[str, Any] = {"k": CUTOFFS, "seed": request.seed, "resamples": resamples}

    own = memory_of(atoms, config, encoder, request.device)
    shared = baseline_config(config)
    same = shared.link == config.link
    ground = own if same else memory_of(atoms, shared, encoder, request.device)
    task = RetrievalTask(conversation, ground, kind=None)
    reports: dict[str, RetrievalReport] = {}
    with encoder.caching():
        for name in tqdm(_SYSTEMS, desc="baselines", disable=not request.progress):
            ranking = rank_candidates(BASELINES[name](task, asked))[:, : max(CUTOFFS)]
            ranked = [[task.ids[i] for i in row if i >= 0] for row in ranking.tolist()]
            name = f"{name}_baseline" if name == config.name else name
            reports[name] = measure_rankings(ranked, asked, evidence, **drawn)
        subject = reports[config.name] = evaluate(own, asked, evidence, **drawn)
    timed = request.chance.sample(asked, min(_TIMED, len(asked)))
    report = framed(
        "custom",
        config,
        request.seed,
        n={
            "atoms": len(atoms),
            "questions": len(subject.questions),
            "without_evidence": len(subject.without_evidence),
        },
        systems={name: _figures(found) for name, found in reports.items()},
        difference={
            name: subject.minus(found) for name, found in reports.items() if found is not subject
        },
        latency_ms=percentiles(latencies(own.retrieve, timed)),
        without_evidence=list(subject.without_evidence),
    )
    return Judged(report, format_custom(report))


def read_questions(path: Path, known: set[str]) -> list[Question]:
    """The questions of a file of JSON lines with `question` and `evidence`, a list of ids.

    Args:
        path: The file.
        known: Ids of the atoms.

    Raises:
        InputError: A line without its fields, or with an id that no atom has; an empty file.
    """
    questions = []
    for row, where in json_rows(path, ("question", "evidence")):
        text, ids = row["question"], row["evidence"]
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"question: expected a text, got {text!r:.80}", where=where)
        if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
            raise InputError(f"evidence: expected a list of ids, got {ids!r:.80}", where=where)
        missing = [name for name in ids if name not in known]
        if missing:
            raise InputError(
                f"evidence: expected ids of the atoms, got {missing[0]!r}, which none has; "
                "`graphmem query --json` shows ids",
                where=where,
            )
        # One conversation of one category: LoCoMo's numbers mean nothing here.
        questions.append(Question(text, 1, tuple(dict.fromkeys(ids))))
    return questions


def _read(path: Path, config: Config, encoder: Embedder, device: str) -> list[Atom]:
    """The atoms of a file or folder, chunks as large as the preset has them."""
    check_paths([path])
    with Memory.open(None, config=config, embedder=encoder, device=device) as memory:
        size = config.embedder.max_tokens
        atoms = list(read_atoms([path], tokenizer=memory.chunker, max_tokens=size))
    if not atoms:
        raise InputError("expected atoms, got none", where=str(path))
    return atoms


def _figures(found: RetrievalReport) -> dict[str, Any]:
    return {name: dict(found.intervals[name]) for name in MEASURES}


def format_custom(report: Mapping[str, Any]) -> str:
    """A line for each system: recall, what is complete at 10, and what the preset gains."""
    subject, counts = report["preset"], report["n"]
    rows = [
        [
            "system",
            *(f"recall@{k}" for k in CUTOFFS),
            "complete@10",
            "nDCG@10",
            f"{subject} minus it, recall@10",
        ]
    ]
    for name, figures in report["systems"].items():
        more = report["difference"].get(name)
        rows.append(
            [
                name,
                *(mean_range(figures["recall"][str(k)]) for k in CUTOFFS),
                mean_range(figures["complete"]["10"]),
                mean_range(figures["ndcg"]["10"]),
                "" if more is None else gain(more["recall"]["10"]),
            ]
        )
    lines = [
        *text_table(rows),
        f"{counts['questions']} questions about {counts['atoms']:,} atoms; %, [95 % interval]",
    ]
    if counts["without_evidence"]:
        lines.append(f"questions without evidence, left out: {counts['without_evidence']}")
    return "\n".join(lines)
