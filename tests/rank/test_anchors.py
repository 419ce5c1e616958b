"""Anchors, against sorting by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import AnchorConfig
from graphmem_torch.rank.anchors import anchor_activation

ROWS = torch.tensor([[0, 3, 5, 8, 9], [-1, -1, 2, 4, 7]])


class _Scope:
    """What anchors read of a scope."""

    def __init__(self, rows: Tensor | None, valid: Tensor, **memo: Tensor) -> None:
        self.rows, self.valid, self._memo = rows, valid, memo

    def memo(self, name: str) -> Tensor:
        return self._memo[name]


def scope_of(rows: Tensor | None, generator: torch.Generator) -> Any:
    valid = torch.ones(2, 5, dtype=torch.bool) if rows is None else rows >= 0
    valid[0, 3] = False  # excluded by the question
    lexical = torch.rand(2, 5, generator=generator) * 3
    lexical[:, 2] = 0.0  # no question term
    cosine = torch.rand(2, 5, generator=generator) * 2 - 1
    return _Scope(rows, valid, lexical=lexical, semantic=cosine)


def best(values: Tensor, scope: Any, k: int) -> list[list[int]]:
    return [
        sorted(
            (p for p in range(5) if scope.valid[b, p] and values[b, p] > -math.inf),
            key=lambda p, b=b: -float(values[b, p]),
        )[:k]
        for b in range(2)
    ]


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all", "candidates"])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_fused(rows: Tensor | None, k: int, generator: torch.Generator) -> None:
    scope = scope_of(rows, generator)
    strong = torch.randn(2, 5, generator=generator) * 4
    anchors, value = anchor_activation(scope, strong, AnchorConfig("fused", k))
    for b, places in enumerate(best(strong, scope, k)):
        top = max(float(strong[b, p]) for p in places)
        expected = {
            p if rows is None else int(rows[b, p]): math.exp(float(strong[b, p]) - top)
            for p in places
        }
        pairs = zip(anchors[b].tolist(), value[b].tolist(), strict=True)
        got = {row: v for row, v in pairs if row >= 0}
        assert got == {row: pytest.approx(v, rel=1e-5) for row, v in expected.items()}
        assert max(got.values()) == 1.0
        assert not value[b][anchors[b] < 0].any()


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all", "candidates"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_dual(rows: Tensor | None, k: int, generator: torch.Generator) -> None:
    scope = scope_of(rows, generator)
    config = AnchorConfig("dual", k)
    anchors, value = anchor_activation(scope, torch.zeros(2, 5), config)
    words = scope.memo("lexical").masked_fill(scope.memo("lexical") <= 0, -math.inf)
    cosine = scope.memo("semantic")
    by_words, by_cosine = best(words, scope, k), best(cosine, scope, k)
    for b in range(2):
        places = {*by_words[b], *by_cosine[b]}
        expected = {
            p if rows is None else int(rows[b, p]): max(float(cosine[b, p]), 0.0) for p in places
        }
        pairs = zip(anchors[b].tolist(), value[b].tolist(), strict=True)
        got = {row: v for row, v in pairs if row >= 0}
        assert got == pytest.approx(expected)
        assert not value[b][anchors[b] < 0].any()


def test_a_question_without_any_allowed_atom_has_no_anchor(generator: torch.Generator) -> None:
    scope = scope_of(None, generator)
    scope.valid[1] = False
    for source in ("fused", "dual"):
        strong = torch.randn(2, 5, generator=generator)
        anchors, value = anchor_activation(scope, strong, AnchorConfig(source, 3))
        assert (anchors[1] == -1).all()
        assert torch.equal(value[1], torch.zeros_like(value[1]))
        assert (anchors[0] >= 0).any()
        assert value.isfinite().all()
