"""The paper's retrieval experiment: precision, reciprocal rank and context tokens, in tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import NOT_FOUND

from ..common.rankings import gold_positions
from ..common.scores import BUDGETS, difference_table

__all__ = ["COLUMNS", "answer_measures", "compare"]
_DEPTH = 50  # depth of the curve of gold found against tokens

COLUMNS: tuple[str, ...] = (
    "p@5",
    "p@10",
    "recall@10",
    "mrr",
    "tokens@5",
    "tokens@10",
    *(f"p@{budget}t" for budget in BUDGETS),
    *(f"recall@{budget}t" for budget in BUDGETS),
)
"""Measures of each question: precision and recall at a depth or within a token budget."""


def answer_measures(
    ranking: Tensor,  # [B, K] candidates, best first, -1 = nothing there
    gold: Tensor,  # [B, G], -1 = padding, at least one each
    costs: Tensor,  # [N] tokens of each candidate
) -> tuple[Tensor, Tensor, Tensor]:  # [B, len(COLUMNS)], [B, 50], [B, 50]
    """Return `COLUMNS`, and gold found and tokens spent by depth up to 50.

    Precision divides by the depth even if fewer are found; within a budget it divides by the
    candidates that fit. MRR is 1 / rank of the first gold candidate, 0 if none is retrieved.
    """
    positions = gold_positions(ranking, gold, len(costs))
    count = (gold >= 0).sum(1).clamp(min=1).double()
    first = positions.amin(1)
    reciprocal = torch.where(first < NOT_FOUND, 1.0 / (first.double() + 1), 0.0)
    # A ranking may be shorter than the requested depths.
    ranking = torch.nn.functional.pad(ranking, (0, max(0, _DEPTH - ranking.shape[1])), value=-1)
    there = ranking >= 0
    tokens = costs.double()[ranking.clamp(min=0)].masked_fill(~there, 0.0).cumsum(1)
    columns = [
        _hits(positions, 5) / 5,
        _hits(positions, 10) / 10,
        _hits(positions, 10) / count,
        reciprocal,
        tokens[:, 4],
        tokens[:, 9],
    ]
    fits = [(there & (tokens <= budget)).sum(1) for budget in BUDGETS]
    within = [(positions < length[:, None]).sum(1).double() for length in fits]
    columns += [w / length.clamp(min=1) for w, length in zip(within, fits, strict=True)]
    columns += [w / count for w in within]
    depth = torch.arange(1, _DEPTH + 1)
    found = (positions[:, :, None] < depth).sum(1).double()
    return torch.stack(columns, dim=1), found, tokens[:, :_DEPTH]


def compare(
    answers: Mapping[str, Sequence[tuple[Tensor, Tensor, Tensor]]],
    *,
    subject: str,
    reference: str,
    seed: int,
    resamples: int = 2000,
) -> dict[str, dict[str, Any]]:
    """Return the means of `COLUMNS` by system, with the gain of `subject`, resampled in pairs.

    `equal_precision` is the cost of a context as good as the reference's ten best: the fewest hits
    with which a system finds, over all questions, as much gold as `reference` in ten, and their
    tokens. `ratio` is the reference's tokens over them. None if 50 hits do not reach that.

    Args:
        answers: Results of `answer_measures` for each conversation, by system.
        subject: System that is compared with all others.
        reference: System whose precision at ten is the mark.
        seed: Seed of the bootstrap.
        resamples: Bootstrap resamples.
    """
    joined = {
        name: tuple(torch.cat(column) for column in zip(*parts, strict=True))
        for name, parts in answers.items()
    }
    _, found, tokens = joined[reference]
    mark, spent = float(found[:, 9].mean()), float(tokens[:, 9].mean())
    differences = difference_table(
        {name: columns for name, (columns, _, _) in joined.items()},
        subject,
        COLUMNS,
        seed=seed,
        resamples=resamples,
    )
    report = {}
    for name, (columns, found, tokens) in joined.items():
        enough = (found.mean(0) >= mark - 1e-9).nonzero()
        depth = int(enough[0]) + 1 if len(enough) else None
        cost = None if depth is None else float(tokens[:, depth - 1].mean())
        figures: dict[str, Any] = dict(zip(COLUMNS, columns.mean(0).tolist(), strict=True))
        figures["equal_precision"] = {
            "hits": depth,
            "tokens": cost,
            "ratio": None if not cost else spent / cost,
        }
        figures["ci"] = interval_table(columns, COLUMNS, seed=seed, resamples=resamples)
        if name != subject:
            figures["difference"] = differences[name]
        report[name] = figures
    return report


def _hits(positions: Tensor, depth: int) -> Tensor:  # [B, G] -> [B]
    return (positions < depth).sum(1).double()
