"""Learning the weights of the signals from questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import Interval, bootstrap_interval
from graphmem_torch.rank.fit import fit_listwise

if TYPE_CHECKING:
    from graphmem_torch.memory.learned import LearnedMemory

__all__ = ["FitReport", "HeldOut", "fit_and_report", "fit_weights"]

_TILE = 64  # questions whose signals are computed at once
_DEPTH = 10  # hits by which held-out questions are judged


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What weights give on questions that they were not learned from.

    Attributes:
        questions: How many of them have evidence.
        before: Their mean recall@10 with the weights from before.
        after: The same with the learned weights.
        difference: Mean of after minus before, question by question, and the ends of its 95 %
            bootstrap interval.
    """

    questions: int
    before: float
    after: float
    difference: Interval


class FitReport(dict[str, float]):
    """Learned weights by signal: a mapping, so that it goes where weights go.

    Attributes:
        held_out: What they give on the questions held out; None where none were.
    """

    def __init__(self, weights: Mapping[str, float], held_out: HeldOut | None = None) -> None:
        super().__init__(weights)
        self.held_out = held_out


def fit_and_report(
    memory: LearnedMemory,
    questions: Sequence[str],
    evidence: Sequence[Sequence[str]],
    *,
    penalty: float,
    held_out: float,
    seed: int,
) -> FitReport:
    """Weights for one memory, judged on the share `held_out` of the questions.

    The weights returned are the ones that are judged: the held-out questions are never learned
    from, not even afterwards. A question that is asked twice is on one side only.

    Raises:
        InputError: As `Memory.fit` says.
    """
    _check_lengths(questions, evidence)
    if not isinstance(held_out, (int, float)) or not 0.0 <= held_out < 1.0:
        raise InputError(f"held_out must be a share in [0, 1), got {held_out!r}")
    if held_out == 0.0:
        return FitReport(fit_weights([(memory, questions, evidence)], penalty=penalty))
    generator = torch.Generator().manual_seed(seed)
    asked = list(dict.fromkeys(questions))
    count = round(held_out * len(asked))
    if not 0 < count < len(asked):
        raise InputError(
            f"held_out: expected to hold some of the questions back and to learn from the others, "
            f"got {held_out} of {len(asked)} different questions; give more, or held_out=0"
        )
    order = torch.randperm(len(asked), generator=generator)
    kept = {asked[place] for place in order[:count].tolist()}
    parts: list[tuple[list[str], list[Sequence[str]]]] = [([], []), ([], [])]
    for question, ids in zip(questions, evidence, strict=True):
        side = parts[question in kept]
        side[0].append(question)
        side[1].append(ids)
    learned, judged = parts
    before = _recall(memory, *judged)
    old = memory.config.rank.weights
    weights = fit_weights([(memory, *learned)], penalty=penalty)
    try:
        memory.use_weights(weights)
        after = _recall(memory, *judged)
    finally:
        memory.use_weights(old)
    known = ~torch.isnan(before)
    (difference,) = bootstrap_interval((after - before)[:, None], generator=generator)
    if difference is None:
        raise InputError(
            "held_out: expected evidence for some of the questions held out, got none; give more "
            "questions with evidence"
        )
    means = float(before[known].mean()), float(after[known].mean())
    return FitReport(weights, HeldOut(int(known.sum()), *means, difference))


def _recall(
    memory: LearnedMemory, questions: Sequence[str], evidence: Sequence[Sequence[str]]
) -> Tensor:  # [n] float64
    """Share of each question's evidence among its first hits; NaN where it has none."""
    values = []
    for start in range(0, len(questions), _TILE):
        part = slice(start, start + _TILE)
        query = memory.query(list(questions[part]))
        with torch.inference_mode():
            rows = memory.index(query, k=_DEPTH).rows.cpu()
        for line, ids in zip(rows, evidence[part], strict=True):
            gold = _evidence_rows(memory, ids)
            found = torch.isin(gold, line).double()
            values.append(found.mean() if len(gold) else torch.tensor(torch.nan).double())
    return torch.stack(values) if values else torch.empty(0, dtype=torch.float64)


def fit_weights(
    sources: Sequence[tuple[LearnedMemory, Sequence[str], Sequence[Sequence[str]]]],
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
    _check_alike([memory for memory, _, _ in sources])
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
    memory: LearnedMemory, questions: Sequence[str], evidence: Sequence[Sequence[str]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Signals [B, C, F] and evidence [B, C] of a tile of questions after the other."""
    _check_lengths(questions, evidence)
    index = memory.index
    for start in range(0, len(questions), _TILE):
        part = slice(start, start + _TILE)
        query = memory.query(list(questions[part]))
        with torch.inference_mode():
            rows, signals, scope = index.features(query)
            signals = signals.masked_fill(~scope.valid[:, :, None], -torch.inf)
        gold = torch.zeros(len(query), index.num_atoms, dtype=torch.bool)
        for line, ids in zip(gold, evidence[part], strict=True):
            line[_evidence_rows(memory, ids)] = True
        if rows is not None:
            gold = gold.gather(1, rows.clamp(min=0).cpu()) & (rows >= 0).cpu()
        yield signals.cpu().clone(), gold


def _evidence_rows(memory: LearnedMemory, ids: Sequence[str]) -> Tensor:  # [n] int64
    """Rows of a question's evidence, each once; concepts are never hits and so no evidence."""
    wanted = list(dict.fromkeys(ids))
    rows = memory.rows_of(wanted)
    concepts = (rows >= memory.index.num_atoms).nonzero().flatten().tolist()
    if concepts:
        raise InputError(
            f"evidence: expected ids of memories, got {wanted[concepts[0]]!r}, a concept, which "
            "is never a hit; name the memories that mention it"
        )
    return rows


def _check_alike(memories: Sequence[LearnedMemory]) -> None:
    if len({memory.index.signal_names for memory in memories}) > 1:
        raise InputError(
            "expected memories of the same signals, got some with documents (titles) and some "
            "without; fit them apart"
        )


def _check_lengths(questions: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    for name, value in (("questions", questions), *(("evidence", ids) for ids in evidence)):
        if isinstance(value, str):
            raise InputError(f"{name}: expected a list of texts, got the text {value!r:.80}")
    if len(questions) != len(evidence):
        raise InputError(
            f"expected evidence for each question, got {len(questions)} questions and "
            f"{len(evidence)} lists of ids"
        )
