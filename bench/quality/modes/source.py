"""Data of the curves at scale: the vectors of a store, or of texts encoded now."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.text.embedder import Embedder

from ..common.texts import split_at_marks, text_atoms
from ..request import Request

__all__ = ["ENCODED", "Source", "has_conversations", "open_source", "sentences"]
ENCODED = 10_256
"""Maximum texts that are encoded; for more, index them and pass the store."""

_WORDS = range(5, 31)  # words of a sentence that is asked for
_HEAD = 65_536  # characters of a JSON file that identify it


@dataclass(frozen=True, eq=False)
class Source:
    """Texts with their vectors.

    Attributes:
        vectors: [N, d] unit rows, on the device of the request.
        texts: N texts.
        embedder: Encoder of the vectors.
    """

    vectors: Tensor
    texts: list[str]
    embedder: Embedder


def has_conversations(path: Path) -> bool:
    """Return whether a path is a LoCoMo file, or a folder with one, and no store or other text."""
    if not path.is_dir():
        return path.suffix.lower() == ".json"
    if (path / DATABASE_NAME).is_file():
        return False
    return any('"qa"' in _head(file) for file in path.glob("*.json"))


def open_source(request: Request) -> Source:
    """Open the atoms of a store, without concepts, or the first `ENCODED` of other data.

    Raises:
        InputError: Unreadable data.
    """
    config, data = request.settings, Path(request.data)
    if (data / DATABASE_NAME).is_file():
        with Memory.open(
            data, config=config, embedder=request.embedder, device=request.device, mode="r"
        ) as memory:
            kept = ~memory.store.columns().is_concept
            texts = [t for t, own in zip(memory.store.texts(), kept.tolist(), strict=True) if own]
            vectors = memory.store.embeddings()[kept]
            return Source(vectors.to(memory.device), texts, memory.embedder)
    with Memory.open(
        None, config=config, embedder=request.embedder, device=request.device
    ) as memory:
        atoms = list(islice(text_atoms(data, memory), ENCODED))
        if not atoms:
            raise InputError("expected texts, got none; name another file", where=str(data))
        texts = [atom.rendered for atom in atoms]
        encoded = memory.embedder.encode(texts, progress=request.progress)
        return Source(encoded.pooled.float().to(memory.device), texts, memory.embedder)


def sentences(texts: list[str], rows: Tensor) -> tuple[list[str], Tensor]:  # [n] rows of the texts
    """Return a sentence of each of these texts that has at least three, with the row of its text.

    It is the first of 5 to 30 words after the first sentence; a text without one is skipped.
    """
    found, origin = [], []
    for row in rows.tolist():
        parts = split_at_marks(texts[row])
        fitting = [part for part in parts[1:] if len(part.split()) in _WORDS]
        if len(parts) >= 3 and fitting:
            found.append(fitting[0])
            origin.append(row)
    return found, torch.tensor(origin, dtype=torch.int64)


def _head(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as stream:
        return stream.read(_HEAD)
