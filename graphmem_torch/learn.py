"""Learning the weights of the signals from questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.rank.fit import fit_listwise

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["fit_weights"]

_TILE = 64  # questions whose signals are computed at once


def fit_weights(
    sources: Sequence[tuple[Memory, Sequence[str], Sequence[Sequence[str]]]],
    *,
    penalty: float = 1e-2,
) -> dict[str, float]:
    """Weights from one or several memories, each with questions and the ids of their evidence.

    Listwise softmax (`rank.fit`). Twice: activation starts at anchors that the weights choose, so
    the second pass learns from the activation of the first pass's anchors.

    Args:
        sources: Memories of one preset, their questions and the evidence of each question.
        penalty: Of the squared weights of signals of unit variance.

    Returns:
        The weight of each signal of the preset; the memories keep their own.

    Raises:
        InputError: Lengths that differ, an evidence id that is not stored, no evidence at all.
    """
    before = [memory.config.rank.weights for memory, _, _ in sources]
    weights: dict[str, float] = {}
    try:
        for _ in range(2):
            batches = [part for source in sources for part in _batches(*source)]
            fitted = fit_listwise(batches, penalty=penalty).tolist()
            weights = dict(zip(sources[0][0].index.signal_names, fitted, strict=True))
            for memory, _, _ in sources:
                memory.use_weights(weights)
    finally:
        for (memory, _, _), old in zip(sources, before, strict=True):
            memory.use_weights(old)
    return weights


def _batches(
    memory: Memory, questions: Sequence[str], evidence: Sequence[Sequence[str]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Signals [B, C, F] and evidence [B, C] of a tile of questions after the other."""
    if len(questions) != len(evidence):
        raise InputError(
            f"expected evidence for each question, got {len(questions)} questions and "
            f"{len(evidence)} lists of ids"
        )
    index = memory.index
    for start in range(0, len(questions), _TILE):
        part = slice(start, start + _TILE)
        query = memory.query(list(questions[part]))
        with torch.inference_mode():
            rows, signals, scope = index.features(query)
            signals = signals.masked_fill(~scope.valid[:, :, None], -torch.inf)
        gold = torch.zeros(len(query), index.num_atoms, dtype=torch.bool)
        for line, ids in zip(gold, evidence[part], strict=True):
            line[memory.rows_of(list(ids))] = True
        if rows is not None:
            gold = gold.gather(1, rows.clamp(min=0).cpu()) & (rows >= 0).cpu()
        yield signals.cpu().clone(), gold
