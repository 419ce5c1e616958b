"""Compiling contexts whole: retrieval, selection, order and text, without the encoder."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, sizes
from graphmem_torch import Memory
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.results import Context
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.tokens import get_counter

_WORDS = 5000
_SESSION = 20  # turns


@pytest.mark.parametrize("size", sizes("compile"), ids=str)
def test_compile(race: Race, size: Size) -> None:
    """Whole contexts from questions."""
    memory = _memory(size["n"], size["preset"], size.device)
    words, budget, pool = _words(), size["budget"], size["pool"]
    asked = [f"{' '.join(_drawn(words, 9, 10_000 + b))}?" for b in range(size["batch"])]

    def index() -> Any:
        query = memory.tensors.encode(asked)
        with torch.inference_mode():
            return memory.index(query, k=pool)

    truncated = _Truncation(memory, asked, budget)
    race(
        ours=lambda: memory.compile(asked, budget=budget, k=pool),
        # What is left of ours beside the first: selection, order, rendering, counting.
        floors={
            "retrieval alone": index,
            "retrieval and top-k cut off": lambda: truncated(index().rows),
        },
        accuracy=lambda found: _worst(found, budget),
        measure="value / upper bound",
        at_least=0.95,
    )


class _Truncation:
    """Baseline that adds memories by rank until the budget is spent; texts are in memory."""

    def __init__(self, memory: Memory, asked: Sequence[str], budget: int) -> None:
        self._texts = list(memory.store.texts())
        self._count = get_counter(memory.config.context.tokenizer)
        self._asked, self._budget = asked, budget

    def __call__(self, rows: Tensor) -> list[str]:  # [B, k]
        return [self._one(row) for row in rows.tolist()]

    def _one(self, rows: Sequence[int]) -> str:
        kept: list[str] = []
        left = self._budget
        for row in rows:
            left -= self._count(f"{self._texts[row]}\n")
            if left < 0:
                break
            kept.append(self._texts[row])
        return "\n".join(kept)


class _Remembering:
    """Hashing embedder that encodes the same texts once, to exclude the encoder from the race."""

    def __init__(self) -> None:
        self._own = HashingEmbedder(256)
        self._known: dict[tuple[str, ...], Encoded] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        key = tuple(texts)
        if key not in self._known:
            if len(self._known) > 8:
                self._known.clear()
            self._known[key] = self._own.encode(texts, progress=progress)
        return self._known[key]


@functools.lru_cache(maxsize=1)
def _memory(count: int, preset: str, device: str) -> Memory:
    """Conversations in sessions of 20 turns, of Zipf-distributed words, in memory."""
    config = load_config(preset)
    config = replace(config, link=replace(config.link, concepts="none"))
    memory = Memory.open(None, config=config, embedder=_Remembering(), device=device)
    memory.add(_turns(count))
    return memory


def _turns(count: int) -> Iterator[Atom]:
    words = _words()
    for i in range(count):
        session, turn = divmod(i, _SESSION)
        yield Atom(
            id=f"s{session}:{turn}",
            text=f"{' '.join(_drawn(words, 6 + i * 7 % 35, i))}.",
            kind="turn",
            speaker=("Ann Lee", "Bob Ray")[turn % 2],
            session=f"session_{session}",
            time=1.6e9 + 86_400 * session + 60 * turn,
        )


@functools.cache
def _words() -> list[str]:
    drawn = random.Random(0)
    return [
        "".join(drawn.choice("bdfgklmnprst") + drawn.choice("aeiou") for _ in range(1 + i % 4))
        for i in range(_WORDS)
    ]


def _drawn(words: Sequence[str], count: int, seed: int) -> list[str]:
    weights = _zipf(len(words))
    return random.Random(seed).choices(words, cum_weights=weights, k=count)


@functools.cache
def _zipf(count: int) -> list[float]:
    return (1.0 / torch.arange(1, count + 1, dtype=torch.float64)).cumsum(0).tolist()


def _worst(found: Sequence[Context], budget: int) -> float:
    """Return the smallest proven share of the optimum; 0 if a context exceeds its budget."""
    if any(one.tokens > budget for one in found):
        return 0.0
    return min(one.value / one.upper_bound if one.upper_bound else 1.0 for one in found)
