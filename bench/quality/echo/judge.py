"""Judge of conversations in which each question was stored before it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.rank.candidates import Candidates

from ..common.chats import find_chats, read_chats
from ..common.encoder import CachingEmbedder
from ..common.questions import Conversation, Question, find_evidence
from ..common.rankings import rank_candidates
from ..common.run import Run
from ..common.scores import ADVERSARIAL, gain, mean_share
from ..common.sets import QuestionSet, locomo_set
from ..common.tables import Head, Table
from ..common.task import memory_of
from ..request import Judged, Request

__all__ = ["WAYS", "judge"]

WAYS = ("not stored", "asked", "answered")
"""Ways to store a question: not at all, as the latest turn, or with a reply and as the latest."""

_DEPTH, _CUTOFF, _FIRST = 30, 10, 5
_BASELINES = {"bm25": "lexical", "dense": "semantic"}
_AS_HITS = "echoes as hits"


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Ask each question of a memory that already holds it, all else unchanged.

    The question is added, asked and deleted again. Recall is that of the evidence; the reply is the
    answer in the data set, said by an assistant.

    Args:
        request: Data to evaluate: a LoCoMo file, a folder of chats, or a root with `locomo` and
            `longmemeval` below it.
        resamples: Number of resamples of the intervals.

    Raises:
        InputError: Data that cannot be used.
    """
    run = Run(request, resamples)
    config, encoder, drawn = run.config, run.encoder, run.drawn
    sets, counts = {}, {}
    for own in _sets(request):
        found = [
            _asked(conversation, config, encoder, request) for conversation in own.conversations
        ]
        values = {
            (system, way): torch.cat([each[system, way] for each in found])
            for system, way in found[0]
        }
        counts[own.name] = len(values[config.name, WAYS[0]])
        sets[own.name] = {
            system: _summary(values, system, drawn)
            for system in dict.fromkeys(s for s, _ in values)
        }
    return run.judged("echo", _tables, n=counts, embedder=encoder.name, sets=sets)


def _sets(request: Request) -> list[QuestionSet]:
    root = Path(request.data)
    locomo, chats = (root / "locomo", root / "longmemeval") if root.is_dir() else (root, root)
    if root.is_dir() and find_chats(root) is not None:
        return [read_chats(root)]
    found = []
    if not root.is_dir() or locomo.is_dir() or not chats.is_dir():
        path = locomo if locomo.exists() else root
        evidence = request.evidence or (find_evidence(path) if path.is_dir() else None)
        found.append(locomo_set(path, evidence=evidence))
    if chats.is_dir() and chats != root and find_chats(chats) is not None:
        found.append(read_chats(chats))
    if not found:
        raise InputError(
            "expected LoCoMo or chats, found neither; name another folder", where=str(root)
        )
    return found


def _asked(
    conversation: Conversation, config: Config, encoder: CachingEmbedder, request: Request
) -> dict[tuple[str, str], Tensor]:  # [n, 3] each: recall, reply among the first, echo first
    """Return the hits of each system for questions with evidence, by how they were stored."""
    concepts = encoder.extractor(config.link.concepts)
    asked = [q for q in conversation.questions if q.gold and q.category != ADVERSARIAL]
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    with (
        encoder.caching(),
        memory_of(conversation.atoms, config, encoder, request.device, concepts=concepts) as memory,
    ):
        place = {atom.id: row for row, atom in enumerate(conversation.atoms)}
        times = sorted(atom.time for atom in conversation.atoms if atom.time is not None)
        for question in Progress(asked, conversation.name, shown=request.progress):
            gold = [place[name] for name in question.gold]
            for way in WAYS:
                stored = _stored(question, way, times)
                if stored:
                    memory.add(stored)
                rows = range(len(place), len(place) + len(stored))
                replies = [row for row, atom in zip(rows, stored, strict=True) if atom.id == _REPLY]
                for system, ranking in _rankings(memory, question).items():
                    values = _values(ranking, gold, replies, rows)
                    found.setdefault((system, way), []).append(values)
                memory.delete([atom.id for atom in stored])
    return {key: torch.tensor(rows, dtype=torch.float64) for key, rows in found.items()}


_REPLY = "echo:reply"


def _stored(question: Question, way: str, times: Sequence[float]) -> list[Atom]:
    """Return the turns that are stored before a question is asked."""
    if way == WAYS[0]:
        return []
    middle, last = (times[len(times) // 2], times[-1]) if times else (None, None)
    user = {"kind": "turn", "speaker": "user", "text": question.text}
    latest = Atom(id="echo:latest", session="echo:latest", time=last, **user)
    if way == WAYS[1]:
        return [latest]
    reply = Atom(
        id=_REPLY,
        kind="turn",
        text=question.answer or "I do not know.",
        speaker="assistant",
        session="echo:earlier",
        time=middle,
    )
    return [Atom(id="echo:earlier", session="echo:earlier", time=middle, **user), reply, latest]


def _rankings(memory: Memory, question: Question) -> dict[str, list[int]]:
    """Return the rows of each system's first hits."""
    index = memory.index
    query = memory.tensors.encode([question.text], asked=[question.time])
    plain = replace(query, asked_key=None)
    everyone = Candidates(index.tensors, plain, index.config)
    with torch.inference_mode():
        found = {
            index.config.name: index(query, k=_DEPTH).rows,
            _AS_HITS: index(plain, k=_DEPTH).rows,
        }
        for name, signal in _BASELINES.items():
            found[name] = rank_candidates(everyone.signal(signal).cpu())[:, :_DEPTH]
    return {name: [row for row in rows[0].tolist() if row >= 0] for name, rows in found.items()}


def _values(
    ranking: Sequence[int], gold: Sequence[int], replies: Sequence[int], stored: Sequence[int]
) -> tuple[float, ...]:
    recall = len({*gold} & {*ranking[:_CUTOFF]}) / len({*gold})
    reply = float(bool({*replies} & {*ranking[:_FIRST]})) if replies else torch.nan
    echoes = {*stored} - {*replies}
    first = float(bool(ranking) and ranking[0] in echoes) if stored else torch.nan
    return recall, reply, first


def _summary(
    values: Mapping[tuple[str, str], Tensor], system: str, drawn: Mapping[str, Any]
) -> dict[str, Any]:
    base = values[system, WAYS[0]][:, 0]
    return {
        way: {
            "recall": mean_interval(values[system, way][:, 0], **drawn),
            "difference": mean_interval(values[system, way][:, 0] - base, **drawn),
            "reply": mean_interval(values[system, way][:, 1], **drawn),
            "echo first": mean_interval(values[system, way][:, 2], **drawn),
        }
        for way in WAYS
    }


def _tables(report: Mapping[str, Any]) -> list[str | Table]:
    heads = [
        Head("system"),
        Head("stored"),
        Head("recall @10", mean_share),
        Head("beside not stored", gain),
        Head("reply @5", mean_share),
        Head("echo first", mean_share),
    ]
    shown: list[str | Table] = []
    for name, systems in report["sets"].items():
        rows = [
            [system, way, *own.values()]
            for system, ways in systems.items()
            for way, own in ways.items()
        ]
        shown += [f"{name}: {report['n'][name]} questions", Table(heads, rows)]
    return shown
