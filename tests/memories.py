"""What the tests of `Memory` share: a store of turns, and how it is opened."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import Config, load_config
from graphmem_torch.memory import Memory
from graphmem_torch.results import Result
from graphmem_torch.text.embedder import Encoded, HashingEmbedder

WORDS = ["canoe", "telescope", "violin", "garden", "comet", "bakery", "harbour", "saddle"]
DAY = 86400.0
QUESTIONS = ["Where is the canoe?", "What did Ada say about the violin?", "comet story 12"]


def config_of(**overrides: Any) -> Config:
    return load_config("default", {"link.concepts": "pattern", "link.batch": 7, **overrides})


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
        [(hit.id, pytest.approx(hit.score, abs=1e-4), hit.path, hit.time) for hit in result.hits]
        for result in results
    ]


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
