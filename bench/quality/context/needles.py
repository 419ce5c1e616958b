"""Needles in essays: a sentence at each depth of texts of each length (`docs/evaluation.md` 6)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.context.formats import load_format
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.readers.source import decode, read_bytes
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.tokens import count_tokens

from ..common.texts import split_at_marks
from .facts import LITERAL, PARAPHRASED, Needle
from .greedy import kept_whole, nearest_that_fit

__all__ = ["BUDGETS", "Essay", "judge_needles", "place_needles", "read_essays"]
BUDGETS: tuple[int, ...] = (200, 512)
"""Token budgets of the whole rendered context; ContextOS uses 200."""

_SHORTEST = 2000  # tokens; each length is twice the previous one, the last is the whole text
_CHUNK = 96  # encoder pieces: two chunks fit the smallest budget
_ROTATIONS = 2  # rotations of the literal needles; each cell then asks for two of them


@dataclass(frozen=True, slots=True)
class Essay:
    """Text as sentences with the tokens of each."""

    name: str
    sentences: tuple[str, ...]
    tokens: tuple[int, ...]


def read_essays(root: Path) -> list[Essay]:
    """Return the text files under `text` of a data root, else all of its text files, by path.

    Raises:
        InputError: Empty or invalid file.
    """
    folder = root / "text" if (root / "text").is_dir() else root
    essays = []
    for path in sorted(folder.rglob("*.txt")):
        text = decode(read_bytes(path), str(path)).strip()
        sentences = tuple(split_at_marks(text))
        essays.append(Essay(path.stem, sentences, tuple(count_tokens(sentences))))
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
    """Return the share of needles in the context, for each kind, budget, length and depth.

    All needles of a kind are in one text at different depths, so that they distract from each
    other; the placements rotate. `vector` is plain vector search on the same chunks.
    """
    config = _in_small_chunks(config)
    depths = [i / (len(LITERAL) - 1) for i in range(len(LITERAL))]
    whole = sum(sum(essay.tokens) for essay in essays)
    lengths = list(_lengths(whole))
    report: dict[str, Any] = {"lengths": lengths, "depths": depths, "kinds": {}}
    plans = (("literal", LITERAL, _ROTATIONS), ("paraphrased", PARAPHRASED, 1))
    for kind, needles, rotations in plans:
        shifts = [turn * (len(needles) // rotations) for turn in range(rotations)]
        found = torch.zeros(2, len(BUDGETS), len(lengths), rotations, len(depths)).double()
        runs = [(row, turn) for row in range(len(lengths)) for turn in range(rotations)]
        for row, turn in Progress(runs, f"{kind} needles", shown=progress):
            text = _shuffled(essays, seed + turn)
            turned = [*needles[shifts[turn] :], *needles[: shifts[turn]]]
            placed = place_needles(text, lengths[row], depths, turned)
            found[:, :, row, turn] = _run(placed, turned, config, embedder, device).double()
        report["kinds"][kind] = _figures(found, shifts, seed)
    return report


def _figures(found: Tensor, shifts: Sequence[int], seed: int) -> dict[str, Any]:
    """Return cells, means, intervals of outcomes `[2, K, lengths, turns, depths]` by system."""
    turns = [found[..., turn, :].roll(shift, -1) for turn, shift in enumerate(shifts)]
    needle = torch.stack(turns).mean((0, 3))  # [2, K, needles]
    # A needle is the same at every length, so needles are resampled.
    ours, theirs = needle[0].T, needle[1].T  # [needles, K]
    return {
        "trials": len(shifts),
        "of": found.shape[2] * found.shape[4],
        **_grid(found[0]),
        "ci": interval_table(ours, BUDGETS, seed=seed),
        "vector": {**_grid(found[1]), "ci": interval_table(theirs, BUDGETS, seed=seed)},
        "difference": interval_table(ours - theirs, BUDGETS, seed=seed),
    }


def _grid(found: Tensor) -> dict[str, dict[str, Any]]:  # [K, lengths, turns, depths]
    """Return by budget each cell, the share of all, and the number of cells with all needles."""
    each = list(zip(map(str, BUDGETS), found, strict=True))
    return {
        "cells": {budget: one.mean(1).tolist() for budget, one in each},
        "share": {budget: float(one.mean()) for budget, one in each},
        "full": {budget: int(one.all(dim=1).sum()) for budget, one in each},
    }


def place_needles(
    essays: Sequence[Essay], length: int, depths: Sequence[float], needles: Sequence[Needle]
) -> list[tuple[str, str]]:
    """Return the first `length` tokens of the essays with the needles in them: names and texts.

    Text is cut at a sentence. A needle at depth d follows the sentence at which a share d of the
    tokens is reached; at depth 0 it comes first.
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
    texts: Sequence[tuple[str, str]],
    needles: Sequence[Needle],
    config: Config,
    embedder: Embedder,
    device: str,
) -> Tensor:  # [2, K, needles] bool
    """Return whether each needle is in its question's context, by budget: preset and vector."""
    asked = [needle.question for needle in needles]
    with Memory.open(None, config=config, embedder=embedder, device=device) as memory:
        for name, text in texts:
            memory.add_document(text, name=name)
        columns = memory.store.columns()
        kinds = zip(columns.node.tolist(), columns.kind.values(), strict=True)
        chunks = memory.store.atoms(sorted(node for node, kind in kinds if kind == "chunk"))
        layout = load_format("text")
        ours = [
            [kept_whole(context, chunks, layout) for context in curve]
            for curve in memory.compile(asked, budget=list(BUDGETS))
        ]
        nearest = nearest_that_fit(memory, chunks, asked, BUDGETS)
    near = [
        [{chunks[i].id for i in row.nonzero().flatten().tolist()} for row in rows]
        for rows in nearest
    ]
    held = [
        [
            [_holds(chunks, kept, needle.text) for kept in curve]
            for curve, needle in zip(curves, needles, strict=True)
        ]
        for curves in (ours, near)
    ]
    return torch.tensor(held).transpose(1, 2)


def _holds(chunks: Sequence[Atom], kept: set[str], needle: str) -> bool:
    """Return whether a sentence is in the kept chunks, or its halves in consecutive ones."""
    text = " ".join(chunk.text for chunk in chunks if chunk.id in kept)
    return " ".join(needle.split()) in " ".join(text.split())


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
