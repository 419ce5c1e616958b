"""Streams of concatenated real dialogues, with the steps at which the topic switches."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.readers.locomo import is_locomo, read_locomo
from graphmem_torch.text.embedder import Embedder, encode_checked

__all__ = ["DIALOGUES", "Stream", "read_streams"]
DIALOGUES = 20
"""Dialogues of a stream, about 300 to 600 utterances."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Utterances in order.

    Attributes:
        rows: [n, d] their embeddings.
        switch: [n] bool: whether the utterance begins a new topic. The first one does not.
    """

    rows: Tensor
    switch: Tensor


def read_streams(
    data: Path, embedder: Embedder, *, seed: int, dialogues: int = DIALOGUES
) -> dict[str, list[Stream]]:
    """Return the streams of every topics file of a folder, by file name without suffix.

    A switch is the first utterance of a segment. Both annotated borders inside a dialogue and joins
    between dialogues count. (Dialogues of DialSeg are themselves joined from dialogues about
    different tasks.) Dialogues are shuffled and concatenated, `dialogues` a stream. A LoCoMo
    conversation is a stream of its own, as a memory reads it; a switch is the first turn of a
    session.

    Args:
        data: Path of a JSON file, or of a folder with such files, also in `topics` and `locomo`
            below it: lists of {"utterances", "segments"}, the segments as lengths; or LoCoMo.
        embedder: Encoder of the utterances, each without its neighbours.
        seed: Seed of the order.
        dialogues: Number of dialogues of a stream.

    Raises:
        InputError: No such file, another format, or fewer than two dialogues.
    """
    folders = (data, data / "topics", data / "locomo")
    files = (
        [f for each in folders for f in sorted(each.glob("*.json"))] if data.is_dir() else [data]
    )
    if not files or not all(file.is_file() for file in files):
        raise InputError(
            f"data: expected a topics file, or a folder with some (*.json), got {data}; give the "
            "folder of dialseg.json"
        )
    return {file.stem: _read(file, embedder, seed, dialogues) for file in files}


def _read(file: Path, embedder: Embedder, seed: int, size: int) -> list[Stream]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError):
        data = None  # not LoCoMo; other errors are reported below
    if not is_locomo(data):
        return _streams(_dialogues(file), embedder, seed, size)
    streams = []
    for sample in read_locomo(file):
        texts = [atom.rendered for atom in sample.atoms]
        pairs = itertools.pairwise(sample.atoms)
        switch = torch.tensor([False, *(a.session != b.session for a, b in pairs)])
        rows = encode_checked(embedder, texts, progress=False).pooled
        streams.append(Stream(rows, switch[: len(rows)]))
    return streams


def _dialogues(file: Path) -> list[tuple[list[str], list[int]]]:
    try:
        found = [_dialogue(item) for item in json.loads(file.read_text(encoding="utf-8"))]
    except (UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            'expected a list of {"utterances": [text, ...], "segments": [length, ...]}, the '
            f"lengths adding up to the utterances; got something else ({error})",
            where=str(file),
        ) from error
    if len(found) < 2:
        raise InputError(
            f"expected at least 2 dialogues, one to choose thresholds on and one to judge; got "
            f"{len(found)}",
            where=str(file),
        )
    return found


def _dialogue(item: Any) -> tuple[list[str], list[int]]:
    texts, lengths = list(item["utterances"]), list(item["segments"])
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("an utterance that is no text")
    if not all(isinstance(n, int) and n > 0 for n in lengths) or sum(lengths) != len(texts):
        raise ValueError(f"segments {lengths} for {len(texts)} utterances")
    return texts, lengths


def _streams(
    dialogues: Sequence[tuple[list[str], list[int]]], embedder: Embedder, seed: int, size: int
) -> list[Stream]:
    order = list(range(len(dialogues)))
    random.Random(seed).shuffle(order)
    texts = [text for i in order for text in dialogues[i][0]]
    pooled = encode_checked(embedder, texts, progress=False).pooled
    lengths = [torch.tensor(dialogues[i][1]) for i in order]
    sizes = torch.tensor([int(n.sum()) for n in lengths])
    begins = torch.cat(lengths).cumsum(0) - torch.cat(lengths)
    switch = torch.zeros(len(texts), dtype=torch.bool)
    switch[begins] = True
    number = max(2, len(order) // size)
    ends = sizes.cumsum(0)[torch.arange(1, number + 1) * len(order) // number - 1]
    streams, start = [], 0
    for end in ends.tolist():
        own = switch[start:end].clone()
        own[0] = False
        streams.append(Stream(pooled[start:end], own))
        start = end
    return streams
