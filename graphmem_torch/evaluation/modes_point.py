"""One way to search, measured on every question of every conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.metrics import CUTOFFS, gold_positions, ranking_measures
from graphmem_torch.evaluation.modes_search import Found, agreement, flat

__all__ = ["EXACT", "Field", "Point", "figures", "joined", "measured"]

EXACT = 10
"""How many of the best of the exact search agreement is measured with."""


@dataclass(frozen=True, eq=False)
class Field:
    """What is searched: the turns of one conversation and the questions with an answer there.

    Attributes:
        vectors: [T, d] unit rows.
        queries: [B, d] unit rows.
        gold: [B, G] turns that answer each question, -1 = padding.
        costs: [T] tokens of each turn.
    """

    vectors: Tensor
    queries: Tensor
    gold: Tensor
    costs: Tensor

    @cached_property
    def exact(self) -> Tensor:  # [B, 10]
        """What the exact search finds."""
        return flat(self.vectors, self.queries, EXACT).ranking


@dataclass(frozen=True, eq=False)
class Point:
    """One setting on all questions, conversation by conversation in order."""

    recall: Tensor  # [n, len(CUTOFFS)]
    agreement: Tensor  # [n]
    read: Tensor  # [n]
    share: Tensor  # [n] of the rows of its conversation
    tokens: Tensor  # [n] of the first ten


def measured(field: Field, found: Found) -> Point:
    """What a search of one conversation reached and cost."""
    positions = gold_positions(found.ranking, field.gold, len(field.vectors))
    first = found.ranking[:, :EXACT]
    tokens = field.costs.double()[first.clamp(min=0)].masked_fill(first < 0, 0.0).sum(1)
    return Point(
        ranking_measures(positions, field.gold)["recall"],
        agreement(found.ranking, field.exact),
        found.read,
        found.read / len(field.vectors),
        tokens,
    )


def joined(parts: Sequence[Point]) -> Point:
    """The questions of several conversations, one after another."""
    return Point(
        torch.cat([p.recall for p in parts]),
        torch.cat([p.agreement for p in parts]),
        torch.cat([p.read for p in parts]),
        torch.cat([p.share for p in parts]),
        torch.cat([p.tokens for p in parts]),
    )


def figures(point: Point) -> dict[str, Any]:
    """Means over the questions."""
    recall = point.recall.mean(0).tolist()
    return {
        "recall": {str(k): value for k, value in zip(CUTOFFS, recall, strict=True)},
        "agreement": float(point.agreement.mean()),
        "read": float(point.read.mean()),
        "share": float(point.share.mean()),
        "tokens": float(point.tokens.mean()),
    }
