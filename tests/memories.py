"""Shared by the tests of `Memory`: a store of turns, and how to open it."""

from __future__ import annotations

import contextlib
import itertools
import math
import resource
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.config import Config, load_config
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.results import QueryPlan, Result
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.database import Database
from graphmem_torch.text.embedder import Encoded, HashingEmbedder

WORDS = ["canoe", "telescope", "violin", "garden", "comet", "bakery", "harbour", "saddle"]
DAY = 86400.0
QUESTIONS = ["Where is the canoe?", "What did Ada say about the violin?", "comet story 12"]


Pairs = list[tuple[str, str]]


def config_of(**overrides: Any) -> Config:
    return load_config("default", {"link.concepts": "pattern", "link.batch_atoms": 12, **overrides})


_AT = ("as_of", "valid_at")
_SCOPE = tuple(field.name for field in fields(Scope))


def asked_with(memory: Memory, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What is asked, and how, by the names of all conditions, wherever they belong."""
    moments = {name: options[name] for name in _AT if name in options}
    scope = Scope(**{name: options[name] for name in _SCOPE if name in options})
    left = {name: each for name, each in options.items() if name not in (*_AT, *_SCOPE)}
    return memory.at(**moments) if moments else memory, {"scope": scope, **left}


def retrieved(memory: Memory, questions: str | Sequence[str], **options: Any) -> Any:
    """`Memory.retrieve` with all conditions by name."""
    view, conditions = asked_with(memory, options)
    return view.retrieve(questions, **conditions)


def planned(memory: Memory, question: str, **options: Any) -> QueryPlan:
    """The plan of a question, chosen from its words unless one is given."""
    plan = retrieved(memory, question, **{"plan": True} | options).plan
    return QueryPlan(hops=0) if plan is None else plan


def turns(count: int = 24) -> list[Atom]:
    return [
        Atom(
            id=f"a{i}",
            text=f"The {WORDS[i % 8]} number {i} is {WORDS[(3 * i + 1) % 8]} like, says story {i}",
            kind=("turn", "note")[i % 5 == 0],
            speaker=("Ada", "Ben")[i % 2],
            session=f"s{i // 6}",
            time=None if i % 6 == 5 else 1.7e9 + i * DAY + 0.5,
            meta={"project": {"name": ("oven", "kite")[i % 2]}, "page": i} if i % 3 else {},
            edges=(Link(f"a{i - 1}", EdgeType.CAUSES),) if i % 4 == 3 else (),
        )
        for i in range(count)
    ]


def planted() -> tuple[list[Atom], list[str], list[list[str]]]:
    """The answer follows the turn that shares words with the question, and never shares any."""
    atoms, questions, evidence = [], [], []
    for i in range(60):
        topic = f"topic{i} {WORDS[i % 8]}"
        atoms.append(Atom(f"q{i}", f"Tell me about {topic} please?", session="s", speaker="Ada"))
        atoms.append(Atom(f"r{i}", f"Secret answer{i} hidden{i}", session="s", speaker="Ben"))
        questions.append(f"What about {topic}?")
        evidence.append([f"r{i}"])
    return atoms, questions, evidence


def opened(path: Path | None = None, **change: Any) -> Memory:
    return Memory.open(path, **{"config": config_of(), "embedder": HashingEmbedder(32), **change})


def ids(result: Result) -> list[str]:
    return [hit.id for hit in result.hits]


def plain(results: Sequence[Result]) -> list[Any]:
    """Results as values that can be compared with a tolerance."""
    return [
        [(hit.id, pytest.approx(hit.raw, abs=1e-4), hit.path, hit.time) for hit in result.hits]
        for result in results
    ]


def stored(store: MemoryStore) -> list[tuple[tuple[str, str, int], float]]:
    """The edges by the ids of their ends and their type, with their weights."""
    edges, node = store.edges(), store.columns().node.tolist()
    name = dict(zip(node, store.ids(), strict=True))
    columns = zip(*(column.tolist() for column in edges.columns), strict=True)
    return sorted(((name[a], name[b], kind), weight) for a, b, kind, weight in columns)


def temporal(store: MemoryStore) -> Pairs:
    """The temporal edges that are stored, by the ids of their ends."""
    return [(a, b) for (a, b, kind), _ in stored(store) if kind == EdgeType.TEMPORAL]


def expected(store: MemoryStore, *, by_time: bool = True) -> Pairs:
    """Return the expected edges: each turn with the next one of its session in time."""
    sessions: dict[str, list[tuple[float, int, str]]] = {}
    for i, atom in enumerate(store.atoms(store.columns().node.tolist())):
        derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
        if atom.kind != CONCEPT and atom.session is not None and not derived:
            session = sessions.setdefault(atom.session, [])
            time = session[-1][0] if session else -math.inf
            if not by_time:
                time = 0.0
            elif atom.time is not None:
                time = atom.time
            session.append((time, i, atom.id))
    ordered = ([name for *_, name in sorted(turns)] for turns in sessions.values())
    return sorted(pair for names in ordered for pair in pairwise(names))


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def interrupted_after(writes: int) -> Iterator[None]:
    """Ctrl-C comes after so many transactions, where there are more; it ends the block alone."""
    plain, left = Database.write, itertools.repeat(None, writes)

    def write(*given: Any, **named: Any) -> Any:
        try:
            next(left)
        except StopIteration:
            raise KeyboardInterrupt from None
        return plain(*given, **named)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Database, "write", write)
        yield


class Counting(HashingEmbedder):
    """Remembers what it was asked to encode; gives NaN for a marked text."""

    def __init__(self) -> None:
        super().__init__(32)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.seen += texts
        encoded = super().encode(texts)
        bad = torch.tensor(["poison" in text for text in texts], dtype=torch.bool)
        encoded.pooled[bad] = torch.nan
        return encoded
