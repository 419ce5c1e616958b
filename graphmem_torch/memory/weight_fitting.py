"""Weight fitting: signal weights learned from evidence or feedback."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from graphmem_torch.checks import check_share
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import Interval, bootstrap_interval
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Features
from graphmem_torch.linalg.logistic import minimise
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.memory.learned_values import with_weights
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import FORMS, SIGNALS, Weight, weight_table

__all__ = [
    "FitReport",
    "LabelledQuestions",
    "check_evidence",
    "fit_and_report",
    "fit_correction",
    "fit_weights",
    "is_due",
    "listwise_loss",
]

_TILE = 64  # questions in a batch of computed signals
_OF_ONE_FORM = 3.0  # factor on the penalty
_DEPTH = 10  # hits that count for held-out questions
_LEAST = 1e-6  # minimum deviation of a signal that varies
_TOWARDS = 0.1  # penalty on the distance of a correction from the weights that it corrects
_OTHERS = 64  # best other candidates compared, if feedback names used memories alone
_LEAST_QUESTIONS = 20  # minimum number of questions to learn a correction from, and to judge it


@dataclass(frozen=True, eq=False)
class LabelledQuestions:
    """Questions to one index, and what answers them.

    Attributes:
        index: Index with the weights that learning starts from.
        query: B questions as tensors.
        evidence: B tensors of rows of the atoms that answer a question, each once.
        texts: The B questions as texts; a repeated question is never on both sides.
        weight: Weight of each question relative to those of other memories.
        against: B tensors of rows that are not evidence, compared with it; an empty one takes the
            best other candidates. None takes all others.
    """

    index: MemoryIndex
    query: QueryBatch
    evidence: Sequence[Tensor]
    texts: Sequence[str] = ()
    weight: float = 1.0
    against: Sequence[Tensor] | None = None

    def take(self, places: Sequence[int]) -> LabelledQuestions:
        """Return some of the questions."""
        return LabelledQuestions(
            self.index,
            self.query.rows(torch.tensor(places, dtype=torch.int64)),
            [self.evidence[place] for place in places],
            [self.texts[place] for place in places] if self.texts else (),
            self.weight,
            None if self.against is None else [self.against[place] for place in places],
        )

    def weighted(self, weights: Mapping[str, float]) -> LabelledQuestions:
        """Return the same questions to the index with other weights."""
        config = with_weights(self.index.config, weights)
        return replace(self, index=reweighted(self.index, config))

    def tiles(self) -> Iterator[LabelledQuestions]:
        """Yield batches of the questions."""
        for start in range(0, len(self.query), _TILE):
            yield self.take(range(start, min(start + _TILE, len(self.query))))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Quality of weights on questions that they were not learned from.

    Attributes:
        questions: Number of these questions with evidence.
        before: Their mean recall@10 with the previous weights.
        after: Their mean recall@10 with the learned weights.
        difference: Mean paired gain, and the ends of its 95 % bootstrap interval.
    """

    questions: int
    before: float
    after: float
    difference: Interval


class FitReport(dict[str, float]):
    """Learned weights by signal, as a mapping, usable wherever weights are.

    Attributes:
        held_out: Quality on the questions held out; None if there were none.
        questions: Number of questions with evidence that they were learned from.
    """

    def __init__(
        self, weights: Mapping[str, float], learned: LabelledQuestions, held_out: HeldOut | None
    ) -> None:
        super().__init__(weights)
        self.held_out = held_out
        self.questions = sum(len(rows) > 0 for rows in learned.evidence)


def fit_and_report(
    labelled: LabelledQuestions, *, l2: float, validation_fraction: float, seed: int
) -> FitReport:
    """Fit the weights of one memory, and judge them on a share of the questions.

    Questions held out (`validation_fraction`) are never learned from.

    Raises:
        InputError: See `Learning.fit`.
    """
    check_share("validation_fraction", validation_fraction, usual=0.3)
    if validation_fraction == 0.0:
        return FitReport(fit_weights([labelled], l2=l2), labelled, None)
    generator = torch.Generator().manual_seed(seed)
    asked = list(dict.fromkeys(labelled.texts))
    count = round(validation_fraction * len(asked))
    if not 0 < count < len(asked):
        raise InputError(
            f"validation_fraction: expected to hold some of the questions out and to learn from "
            f"the others, got {validation_fraction} of {len(asked)} different questions; give "
            "more, or validation_fraction=0"
        )
    order = torch.randperm(len(asked), generator=generator)
    kept = {asked[place] for place in order[:count].tolist()}
    learned, judged = (
        labelled.take([i for i, text in enumerate(labelled.texts) if (text in kept) is side])
        for side in (False, True)
    )
    before = _recall(judged)
    weights = fit_weights([learned], l2=l2)
    after = _recall(judged.weighted(weights))
    known = ~torch.isnan(before)
    (difference,) = bootstrap_interval((after - before)[:, None], generator=generator)
    if difference is None:
        raise InputError(
            "validation_fraction: expected evidence for questions held out, got none; give more"
        )
    means = float(before[known].mean()), float(after[known].mean())
    return FitReport(weights, learned, HeldOut(int(known.sum()), *means, difference))


def _recall(labelled: LabelledQuestions) -> Tensor:  # [B] float64
    """Return the share of each question's evidence among its first hits; NaN without any."""
    values = []
    for part in labelled.tiles():
        with torch.inference_mode():
            rows = part.index(part.query, k=_DEPTH).rows.cpu()
        for line, gold in zip(rows, part.evidence, strict=True):
            found = torch.isin(gold, line).double()
            values.append(found.mean() if len(gold) else torch.tensor(torch.nan).double())
    return torch.stack(values) if values else torch.empty(0, dtype=torch.float64)


def fit_weights(sources: Sequence[LabelledQuestions], *, l2: float = 1e-2) -> dict[str, float]:
    """Fit weights to questions to one or several memories.

    Listwise softmax (`docs/mathematics.md` 8.2), in two passes: activation starts at anchors
    that the weights choose, so the second pass uses the anchors of the first one's weights.

    The memories have one preset; `l2` is the penalty on the squared weights of signals of unit
    variance. The indices keep their weights. Weights for one form of memories (`length@chat`) have
    three times the penalty, so that they express only what the forms do not share. A signal that a
    memory lacks is 0 there. Signals that are not learned (`Signal.learned`) keep the preset's
    weight.

    Raises:
        InputError: No evidence at all, or an `l2` that is negative or not finite.
        InputError: No evidence at all, or an `l2` that is negative or not finite.
    """
    given = {k: v for source in sources for k, v in source.index.config.rank.weights.items()}
    every = dict.fromkeys(key for source in sources for key in source.index.weight_keys)
    keys = [key for key in every if SIGNALS[Weight.named(key).signal].learned]
    kept = {key: given[key] for key in every if key not in keys}
    weights = kept | _trained(sources, keys, kept, l2)
    if any(SIGNALS[Weight.named(key).signal].graph for key in keys):
        sources = [source.weighted(weights) for source in sources]
        weights = kept | _trained(sources, keys, kept, l2)
    return weights


def _trained(
    sources: Sequence[LabelledQuestions],
    keys: Sequence[str],
    start: Mapping[str, float],
    l2: float,
) -> dict[str, float]:
    """Return the weights of some keys that minimize the loss of `docs/mathematics.md` 8.2.

    Optimizes the step of each key from `start` (0 if missing), in units of one over the
    deviation of its signal. The indices share these parameters. Signals are computed once. The
    loss is convex in the steps, so the start does not matter.
    """
    if not 0.0 <= l2 < torch.inf:
        raise InputError(f"l2: expected a finite number of at least 0, got {l2!r}; give one")
    told = [[_with_evidence(*one) for one in _examples(source)] for source in sources]
    total = sum(
        s.weight * len(gold) for s, own in zip(sources, told, strict=True) for _, gold in own
    )
    if not total:
        raise InputError(
            "evidence: expected questions whose evidence is in the store, got none; check the ids"
        )
    weighed = [Weight.named(key) for key in keys]
    unit = _deviations(weighed, sources, told)
    unit = unit.masked_fill(unit <= _LEAST, torch.inf)  # a constant signal gets weight 0
    forms = torch.tensor([one.form is not None for one in weighed], device=unit.device)
    penalties = l2 * torch.where(forms, _OF_ONE_FORM, 1.0).to(unit)
    step = torch.nn.Parameter(torch.zeros_like(unit))
    indices = [reweighted(source.index, source.index.config) for source in sources]
    for index in indices:
        by_key = _ByKey(index, keys, unit, start)
        parametrize.register_parametrization(index, "weights", by_key, unsafe=True)
        index.parametrizations.weights.original = step  # type: ignore[union-attr]

    def loss() -> Tensor:
        value = (penalties * step.square()).sum()
        for source, index, examples in zip(sources, indices, told, strict=True):
            for found, gold in examples:
                each = listwise_loss(_scores(found, index.weights).double(), gold)
                value = value + source.weight / total * each.sum()
        return value

    minimise(torch.nn.ModuleList(indices).parameters(), loss)
    return {
        key: start.get(key, 0.0) + value
        for key, value in zip(keys, (step.detach() / unit).tolist(), strict=True)
    }


class _ByKey(torch.nn.Module):
    """Weights [3, F] of an index as a function of the steps [K] of keys, for `parametrize`."""

    def __init__(
        self, index: MemoryIndex, keys: Sequence[str], unit: Tensor, start: Mapping[str, float]
    ) -> None:
        super().__init__()
        names, weighed = index.signal_names, [Weight.named(key) for key in keys]
        had = {key: value for key, value in start.items() if Weight.named(key).signal in names}
        self.start = weight_table(dict.fromkeys(index.weight_keys, 0.0) | had).to(unit)
        self.weighs = _weighs(weighed, names).to(unit) / unit[:, None, None]

    def forward(self, step: Tensor) -> Tensor:  # [K] -> [3, F]
        return self.start + torch.tensordot(step, self.weighs, 1)


def listwise_loss(scores: Tensor, gold: Tensor) -> Tensor:  # [B, C], [B, C] bool -> [B]
    """Return the mean of -log softmax(scores) over the gold of each question, which has some."""
    return -(scores.log_softmax(1).masked_fill(~gold, 0.0).sum(1) / gold.sum(1))


def _scores(found: Features, weights: Tensor) -> Tensor:  # [B, C]
    """Return the scores of candidates, minus infinity elsewhere."""
    return found.scores(weights).masked_fill(~found.listed, -torch.inf)


def _with_evidence(found: Features, gold: Tensor) -> tuple[Features, Tensor]:
    """Return the questions of a tile that have evidence among their candidates."""
    told = gold.any(1)
    return Features(*(part[told] for part in found)), gold[told]


def _weighs(weighed: Sequence[Weight], names: Sequence[str]) -> Tensor:  # [K, 3, F]
    """Return 1 where a key changes a weight of an index with these signals, else 0."""
    table = torch.zeros(len(weighed), len(FORMS), len(names))
    for own, one in zip(table, weighed, strict=True):
        if one.signal in names:
            own[one.rows, names.index(one.signal)] = 1.0
    return table


def _deviations(
    weighed: Sequence[Weight],
    sources: Sequence[LabelledQuestions],
    examples: Sequence[Sequence[tuple[Features, Tensor]]],
) -> Tensor:  # [K] float64
    """Return the standard deviation of each key's signal, over all candidates."""
    count = 0
    mean = square = torch.zeros(len(weighed), dtype=torch.float64)
    for source, own in zip(sources, examples, strict=True):
        weighs = _weighs(weighed, source.index.signal_names).double()
        for found, _ in own:
            values = found.values[found.listed].double()
            form = torch.nn.functional.one_hot(found.form[found.listed], len(FORMS)).double()
            there = weighs.to(values)
            mean = mean.to(values) + (there * (form.T @ values)).sum((1, 2))
            square = square.to(values) + (there * (form.T @ values.square())).sum((1, 2))
            count += len(values)
    mean, square = mean / count, square / count
    return ((square - mean**2).clamp(min=0) * (count / max(1, count - 1))).sqrt()


def _examples(labelled: LabelledQuestions) -> Iterator[tuple[Features, Tensor]]:
    """Yield candidates, and which of them are evidence [B, C], tile by tile."""
    index = labelled.index
    for tile in labelled.tiles():
        with torch.no_grad():
            found = index.features(tile.query)
        gold = _marked(index, found.rows, tile.evidence)
        if tile.against is not None:
            known = _marked(index, found.rows, tile.against)
            score = _scores(found, index.weights.detach())
            best = stable_topk(score, min(_OTHERS, score.shape[1]))[1]
            others = torch.zeros_like(known).scatter_(1, best, True)
            asked = (gold | known.where(known.any(1, keepdim=True), others)) & found.listed
            width = int(asked.sum(1).max())
            first = asked.int().argsort(dim=1, descending=True, stable=True)[:, :width]
            values = found.values.gather(1, first[:, :, None].expand(-1, -1, found.values.shape[2]))
            rows, form, kept = (part.gather(1, first) for part in (found.rows, found.form, asked))
            found, gold = Features(rows, values, form, kept), gold.gather(1, first)
        yield found, gold


def _marked(
    index: MemoryIndex,
    rows: Tensor,  # [B, C], -1 = none
    wanted: Sequence[Tensor],  # B times rows
) -> Tensor:  # [B, C] bool
    """Return which candidates are among the wanted rows."""
    marked = torch.zeros(len(wanted), index.num_atoms, dtype=torch.bool)
    for line, found in zip(marked, wanted, strict=True):
        line[found] = True
    return marked.to(rows.device).gather(1, rows.clamp(min=0)) & (rows >= 0)


def is_due(given: int, tried: int) -> bool:
    """Return whether to learn from feedback: at first, and when it has grown by half.

    Args:
        given: Number of feedback records so far.
        tried: Their number at the last attempt; 0: never.
    """
    return given >= max(2 * _LEAST_QUESTIONS, 1.5 * tried)


class Correction(NamedTuple):
    """Weights learned from feedback, and their quality on feedback held out.

    Attributes:
        weights: Weights by signal.
        learned: Number of questions that they were learned from.
        held_out: Number of questions that they are judged on.
        before, after: Mean AUC on these: how often used memories rank above unused ones.
        difference: Mean of after minus before, and the ends of its 95 % bootstrap interval.
    """

    weights: dict[str, float]
    learned: int
    held_out: int
    before: float
    after: float
    difference: Interval

    @property
    def counts(self) -> bool:
        """Return whether the difference is significantly positive."""
        return self.difference[1] > 0.0


def fit_correction(labelled: LabelledQuestions, *, seed: int = 0) -> Correction | None:
    """Fit weights near those of the index that separate used memories from unused ones.

    The listwise softmax of `fit_weights` with a strong penalty on the distance from the index's
    weights. Half of the questions only judge; a hash of the text chooses them, so a repeated
    question stays on its side. None if either half has too few informative questions.
    """
    side = [
        hashlib.sha256(text.encode("utf-8", "replace")).digest()[0] % 2 for text in labelled.texts
    ]
    learned, judged = (
        labelled.take([place for place, own in enumerate(side) if own == each]) for each in (0, 1)
    )
    number = sum(int(_tells(*one).sum()) for one in _examples(learned))
    before = _auc(judged)
    known = ~torch.isnan(before)
    if min(number, int(known.sum())) < _LEAST_QUESTIONS:
        return None
    keys, given = labelled.index.weight_keys, labelled.index.config.rank.weights
    start = {key: given.get(key, 0.0) for key in keys}
    weights = _trained([learned], keys, start, _TOWARDS)
    # By an index with these weights, as activation depends on them.
    after = _auc(judged.weighted(weights))
    generator = torch.Generator().manual_seed(seed)
    (difference,) = bootstrap_interval((after - before)[:, None], generator=generator)
    assert difference is not None
    means = float(before[known].mean()), float(after[known].mean())
    return Correction(weights, number, int(known.sum()), *means, difference)


def _tells(found: Features, gold: Tensor) -> Tensor:  # [B] bool
    """Return which questions have both evidence and other candidates."""
    return gold.any(1) & (found.listed & ~gold).any(1)


def _auc(labelled: LabelledQuestions) -> Tensor:  # [B]
    """Return how often evidence ranks above other candidates; NaN without both."""
    values = []
    for found, gold in _examples(labelled):
        score = found.scores(labelled.index.weights.detach())
        for line, ours, theirs in zip(score, gold, found.listed & ~gold, strict=True):
            above = (line[ours, None] - line[None, theirs]).sign().double()
            values.append(above.mean() / 2 + 0.5)  # the mean of none is NaN
    return torch.stack(values).cpu() if values else torch.empty(0, dtype=torch.float64)


def check_evidence(questions: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    """Raise `InputError` unless there are lists of texts, one of evidence for each question."""
    for name, value in (("questions", questions), ("evidence", evidence)):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InputError(
                f"{name}: expected a list, one entry for each question, got {value!r:.80}; wrap "
                "one in a list"
            )
    for ids in evidence:
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise InputError(
                f"evidence: expected a list of ids for each question, got {ids!r:.80} for one; "
                "wrap it in a list"
            )
    if len(questions) != len(evidence):
        raise InputError(
            f"evidence: expected a list of ids for each question, got {len(questions)} questions "
            f"and {len(evidence)} lists; give an empty one where there is none"
        )
