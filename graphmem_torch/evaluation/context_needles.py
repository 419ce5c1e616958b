"""Needles in essays: one sentence at every depth of texts of every length (`evaluation.md`)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tqdm import tqdm

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.context_facts import LITERAL, PARAPHRASED, Needle
from graphmem_torch.memory import Memory
from graphmem_torch.text.embed import Embedder
from graphmem_torch.text.source import decode, read_bytes
from graphmem_torch.text.tokens import count_tokens

__all__ = ["BUDGETS", "Essay", "judge_needles", "place_needles", "read_essays"]

BUDGETS: tuple[int, ...] = (200, 512)
"""Tokens of the whole rendered context; 200 are ContextOS's."""

_SHORTEST = 2000  # tokens; each length is twice the one before, the last is all there is
_CHUNK = 96  # encoder pieces: two chunks fit the smallest budget
_ROTATIONS = 2  # placements of the literal needles, so that each cell asks for two of them
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Essay:
    """A text by its sentences and the tokens of each."""

    name: str
    sentences: tuple[str, ...]
    tokens: tuple[int, ...]


def read_essays(root: Path) -> list[Essay]:
    """The text files under `text` of a data root, else all of its text files, in order of paths.

    Raises:
        InputError: There are none, or an empty one.
    """
    folder = root / "text" if (root / "text").is_dir() else root
    essays = []
    for path in sorted(folder.rglob("*.txt")):
        text = decode(read_bytes(path), str(path)).strip()
        sentences = tuple(_SENTENCE_END.split(text))
        essays.append(Essay(path.stem, sentences, tuple(count_tokens(sentences))))
    if not essays:
        raise InputError(
            "expected text files (*.txt) to hide needles in, got none", where=str(root)
        )
    return essays


def judge_needles(
    essays: Sequence[Essay],
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    progress: bool = False,
) -> dict[str, Any]:
    """Share of needles that are in the context, for each kind, budget, length and depth.

    All needles of a kind are in one text, each at another depth, so each is a distractor of the
    others; the placements rotate.
    """
    config = _in_small_chunks(config)
    depths = [i / (len(LITERAL) - 1) for i in range(len(LITERAL))]
    whole = sum(sum(essay.tokens) for essay in essays)
    lengths = list(_lengths(whole))
    report: dict[str, Any] = {"lengths": lengths, "depths": depths, "kinds": {}}
    plans = (("literal", LITERAL, _ROTATIONS), ("paraphrased", PARAPHRASED, 1))
    for kind, needles, rotations in plans:
        found = {b: [[0] * len(depths) for _ in lengths] for b in BUDGETS}
        runs = [(row, turn) for row in range(len(lengths)) for turn in range(rotations)]
        for row, turn in tqdm(runs, desc=f"{kind} needles", disable=not progress):
            text = _shuffled(essays, seed + turn)
            shift = turn * (len(needles) // rotations)
            turned = [*needles[shift:], *needles[:shift]]
            for budget, hits in _run(text, lengths[row], depths, turned, config, embedder, device):
                for place, hit in enumerate(hits):
                    found[budget][row][place] += hit
        report["kinds"][kind] = {
            "trials": rotations,
            "cells": {
                str(b): [[hits / rotations for hits in row] for row in grid]
                for b, grid in found.items()
            },
            "share": {
                str(b): sum(map(sum, grid)) / (rotations * len(lengths) * len(depths))
                for b, grid in found.items()
            },
            "full": {
                str(b): sum(hits == rotations for row in grid for hits in row)
                for b, grid in found.items()
            },
            "of": len(lengths) * len(depths),
        }
    return report


def place_needles(
    essays: Sequence[Essay], length: int, depths: Sequence[float], needles: Sequence[Needle]
) -> list[tuple[str, str]]:
    """The first `length` tokens of the essays with the needles in them: names and texts.

    Text is cut at a sentence. A needle at depth d stands behind the sentence at which a share d of
    the tokens is reached, at depth 0 before the first one.
    """
    flat = [
        (number, sentence, tokens)
        for number, essay in enumerate(essays)
        for sentence, tokens in zip(essay.sentences, essay.tokens, strict=True)
    ]
    reached = list(accumulate(tokens for _, _, tokens in flat))
    count = max(1, sum(total <= length for total in reached))
    total = reached[count - 1]
    before: dict[int, list[str]] = {}
    for depth, needle in zip(depths, needles, strict=True):
        place = sum(tokens <= depth * total for tokens in reached[:count])
        before.setdefault(place, []).append(needle.text)
    parts: dict[int, list[str]] = {}
    for place, (number, sentence, _) in enumerate(flat[:count]):
        parts.setdefault(number, []).extend([*before.get(place, ()), sentence])
    parts[flat[count - 1][0]].extend(before.get(count, ()))
    return [(essays[number].name, " ".join(own)) for number, own in parts.items()]


def _run(
    essays: Sequence[Essay],
    length: int,
    depths: Sequence[float],
    needles: Sequence[Needle],
    config: Config,
    embedder: Embedder,
    device: str,
) -> Iterator[tuple[int, list[bool]]]:
    """For each budget, which needles the contexts of their questions hold."""
    with Memory.open(None, config=config, embedder=embedder, device=device) as memory:
        for name, text in place_needles(essays, length, depths, needles):
            memory.add_document(text, name=name)
        contexts = memory.compile([one.question for one in needles], budget=list(BUDGETS))
        for place, budget in enumerate(BUDGETS):
            yield (
                budget,
                [
                    _holds(memory, own[place].sources, needle.text)
                    for own, needle in zip(contexts, needles, strict=True)
                ],
            )


def _holds(memory: Memory, sources: Sequence[str], needle: str) -> bool:
    """Whether a sentence is in these chunks, the two halves of a cut one in their order."""
    known = memory.store.known(list(sources))
    chunks = memory.store.atoms(sorted(known[name][0] for name in sources))
    return " ".join(needle.split()) in " ".join(" ".join(one.text for one in chunks).split())


def _lengths(whole: int) -> Iterator[int]:
    length = _SHORTEST
    while length * 2 <= whole:
        yield length
        length *= 2
    yield whole


def _shuffled(essays: Sequence[Essay], seed: int) -> list[Essay]:
    return random.Random(seed).sample(list(essays), len(essays))


def _in_small_chunks(config: Config) -> Config:
    size = min(config.embedder.max_tokens, _CHUNK)
    return replace(config, embedder=replace(config.embedder, max_tokens=size))
