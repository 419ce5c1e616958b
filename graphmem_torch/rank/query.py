"""QueryBatch: a batch of B questions as tensors, the input of every signal."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

__all__ = ["SHARED_ROWS", "QueryBatch"]

SHARED_ROWS = ("allowed", "listed", "retention")
"""Fields of which one row may stand for all questions."""


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """B questions. Whatever is None is unknown, and signals that need it are 0.

    Attributes:
        embedding: [B, d] float32 unit rows.
        terms: [B, W] int64 term ids of the lexical index, -1 padding.
        tokens: [B, Q, m] float32 unit token vectors.
        pieces: [B, Q] int64 word-piece numbers, -1 padding.
        speakers: [B, S] bool, the speakers a question names.
        months: [B, 12] bool, days: [B, 31] bool: what of a date a question names.
        asks_when: [B] bool.
        allowed: [B or 1, A] bool, the atoms there are for the question: the others are neither hits
            nor anchors.
        listed: [B or 1, A] bool, the atoms that may be hits; the others still lead to them.
        retention: [B or 1, A] float32 in [0, 1], what is left of the strength that each atom had
            when it was last used; None: all of it.
    """

    embedding: Tensor
    terms: Tensor | None = None
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    speakers: Tensor | None = None
    months: Tensor | None = None
    days: Tensor | None = None
    asks_when: Tensor | None = None
    allowed: Tensor | None = None
    listed: Tensor | None = None
    retention: Tensor | None = None

    def __len__(self) -> int:
        """B."""
        return self.embedding.shape[0]

    def to(self, device: torch.device | str) -> QueryBatch:
        """The same batch on another device."""
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in moved.items() if v is not None})

    def rows(self, part: slice) -> QueryBatch:
        """Some of the questions."""
        taken: dict[str, Tensor] = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if value is not None:
                shared = name in SHARED_ROWS and value.shape[0] == 1
                taken[name] = value if shared else value[part]
        return QueryBatch(**taken)
