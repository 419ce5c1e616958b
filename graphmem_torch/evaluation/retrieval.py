"""Evaluation of retrieval: how well a memory finds the known evidence of questions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import MEASURES, NOT_FOUND, ranking_measures
from graphmem_torch.results import Result

__all__ = [
    "RetrievalReport",
    "Retriever",
    "evaluate",
    "mean_range",
    "measure_rankings",
    "text_table",
]

Intervals = Mapping[str, Mapping[str, list[float] | None]]
"""By measure and cut-off: [mean, low, high]; None if no question has a value."""


class Retriever(Protocol):
    """Protocol of memories that `evaluate` accepts, such as `Memory`."""

    def retrieve(self, questions: Sequence[str], /, *, k: int) -> Sequence[Result]:
        """Return a result for each question, with up to k hits, best first."""
        ...

    def __contains__(self, id: object, /) -> bool:
        """Return whether an atom with this id can be retrieved."""
        ...


@dataclass(frozen=True, eq=False)
class RetrievalReport:
    """Measures of one system over questions; prints as a table.

    Attributes:
        questions: The n questions with evidence.
        without_evidence: Questions without evidence, which do not count.
        cutoffs: K numbers of hits.
        intervals: Mean and 95 % interval of `recall` (share of the evidence among the first k
            hits), `any` (whether some of it is), `complete` (whether all of it is), `ndcg`, `map`
            (average precision) and `mrr` (reciprocal rank of the first).
        seed, resamples: Seed and number of bootstrap resamples.
        values: The same measures question by question, [n, K] each.
    """

    questions: tuple[str, ...]
    without_evidence: tuple[str, ...]
    cutoffs: tuple[int, ...]
    intervals: Intervals
    seed: int
    resamples: int
    values: Mapping[str, Tensor] = field(repr=False)

    def minus(self, other: RetrievalReport) -> Intervals:
        """Return the differences to another system, with intervals from paired resamples.

        Raises:
            InputError: The other report has other questions or other cut-offs.
        """
        if (self.questions, self.cutoffs) != (other.questions, other.cutoffs):
            raise InputError(
                f"other: expected a report on the same {len(self.questions)} questions at "
                f"{list(self.cutoffs)}, got {len(other.questions)} at {list(other.cutoffs)}; "
                "evaluate both systems with the same arguments"
            )
        more = {name: value - other.values[name] for name, value in self.values.items()}
        return _tables(more, self.cutoffs, self.seed, self.resamples)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without those of single questions."""
        return {
            "n": len(self.questions),
            "without_evidence": list(self.without_evidence),
            **{name: dict(table) for name, table in self.intervals.items()},
            "seed": self.seed,
            "resamples": self.resamples,
        }

    def __str__(self) -> str:
        rows = [["%", *(f"@{k}" for k in self.cutoffs)]]
        for name, table in self.intervals.items():
            rows.append([name, *(mean_range(table[str(k)]) for k in self.cutoffs)])
        said = f"{len(self.questions)} questions; mean [95 % interval]"
        if self.without_evidence:
            said += f"; {len(self.without_evidence)} more without evidence are left out"
        return "\n".join([*text_table(rows), said])


def evaluate(
    memory: Retriever,
    questions: Sequence[str],
    evidence: Sequence[Collection[str]],
    *,
    k: Sequence[int] = (5, 10, 25),
    seed: int = 0,
    resamples: int = 2000,
) -> RetrievalReport:
    """Ask a memory all questions and measure the ranks of the evidence among its hits.

    Args:
        memory: Memory that holds the evidence: a `Memory`, or anything with `retrieve` and `in`.
        questions: B questions.
        evidence: Ids of the atoms that answer each question, or a mapping of ids to grades above 0
            (gains of nDCG). Questions without evidence are listed in the report and left out of
            every mean.
        k: Cut-offs, in hits.
        seed: Seed of the bootstrap; the same seed gives the same intervals.
        resamples: Number of bootstrap resamples.

    Raises:
        InputError: There are no questions, or none with evidence; lists differ in length; the
            memory lacks some evidence; or a cut-off is below 1.
    """
    wanted = _checked(questions, evidence)
    for number, ids in enumerate(wanted):
        for name in ids:
            if name not in memory:
                raise InputError(
                    f"evidence: expected ids of the memory, got {name!r} for question {number}; "
                    "add that atom, or leave it out of the evidence"
                )
    results = memory.retrieve(list(questions), k=max(_cutoffs(k)))
    rankings = [[hit.id for hit in result.hits] for result in results]
    return measure_rankings(rankings, questions, wanted, k=k, seed=seed, resamples=resamples)


def measure_rankings(
    rankings: Sequence[Sequence[str]],
    questions: Sequence[str],
    evidence: Sequence[Collection[str]],
    *,
    k: Sequence[int] = (5, 10, 25),
    seed: int = 0,
    resamples: int = 2000,
) -> RetrievalReport:
    """Return the report of `evaluate` for a system whose rankings are given.

    Args:
        rankings: Ids for each question, best first; at least as many as the largest cut-off.
        questions: B questions.
        evidence: Ids that answer each question, or a mapping of ids to grades above 0.
        k: Cut-offs, in hits.
        seed: Seed of the bootstrap.
        resamples: Number of bootstrap resamples.

    Raises:
        InputError: See `evaluate`.
    """
    wanted, cutoffs = _checked(questions, evidence), _cutoffs(k)
    if len(rankings) != len(questions):
        raise InputError(
            f"rankings: expected one for each of {len(questions)} questions, got "
            f"{len(rankings)}; give an empty one where nothing was found"
        )
    asked = [number for number, ids in enumerate(wanted) if ids]
    width = max(len(ids) for ids in wanted)
    gold = torch.full((len(asked), width), -1, dtype=torch.int64)
    positions = torch.full((len(asked), width), NOT_FOUND, dtype=torch.int64)
    grades = torch.zeros(len(asked), width, dtype=torch.float64)
    for row, number in enumerate(asked):
        place = {name: position for position, name in reversed([*enumerate(rankings[number])])}
        count = len(wanted[number])
        gold[row, :count] = torch.arange(count)
        positions[row, :count] = torch.tensor(
            [place.get(name, NOT_FOUND) for name in wanted[number]]
        )
        grades[row, :count] = torch.tensor([*wanted[number].values()], dtype=torch.float64)
    values = ranking_measures(positions, gold, cutoffs, grades=grades)
    return RetrievalReport(
        questions=tuple(questions[number] for number in asked),
        without_evidence=tuple(
            question for question, ids in zip(questions, wanted, strict=True) if not ids
        ),
        cutoffs=cutoffs,
        intervals=_tables(values, cutoffs, seed, resamples),
        seed=seed,
        resamples=resamples,
        values=values,
    )


def _tables(
    values: Mapping[str, Tensor], cutoffs: Sequence[int], seed: int, resamples: int
) -> Intervals:
    return {
        name: interval_table(values[name], cutoffs, seed=seed, resamples=resamples)
        for name in MEASURES
    }


def _checked(
    questions: Sequence[str], evidence: Sequence[Collection[str]]
) -> list[dict[str, float]]:
    """Return the grades of each question's evidence by id; 1 where none are given."""
    if isinstance(questions, str) or not questions:
        raise InputError(
            f"questions: expected a list of questions, got {questions!r:.80}; put one in a list"
        )
    if isinstance(evidence, str) or len(evidence) != len(questions):
        raise InputError(
            f"evidence: expected a list of ids for each of {len(questions)} questions, got "
            f"{len(evidence)}; give an empty list where nothing answers a question"
        )
    for number, ids in enumerate(evidence):
        if isinstance(ids, str) or not all(isinstance(name, str) for name in ids):
            raise InputError(
                f"evidence: expected a list of ids for question {number}, got {ids!r:.80}; "
                "write the ids as texts in a list"
            )
        grades = ids.values() if isinstance(ids, Mapping) else ()
        if not all(isinstance(grade, (int, float)) and 0 < grade < math.inf for grade in grades):
            raise InputError(
                f"evidence: expected grades above 0 for question {number}, got {ids!r:.80}; leave "
                "out what is not relevant"
            )
    wanted = [{**ids} if isinstance(ids, Mapping) else dict.fromkeys(ids, 1.0) for ids in evidence]
    if not any(wanted):
        raise InputError(
            "evidence: expected ids for some question, got none; give those that answer it"
        )
    return wanted


def _cutoffs(k: Sequence[int]) -> tuple[int, ...]:
    cutoffs = tuple(k)
    if not cutoffs or cutoffs[0] < 1 or any(here >= after for here, after in pairwise(cutoffs)):
        raise InputError(
            f"k: expected ascending numbers of hits of at least 1, got {cutoffs}; use (5, 10, 25)"
        )
    return cutoffs


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with the first column left-aligned and the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def mean_range(value: Sequence[float] | None) -> str:
    """Format a mean and its interval in percent; a dash for None."""
    if value is None:
        return "-"
    mean, low, high = (100 * each for each in value)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
