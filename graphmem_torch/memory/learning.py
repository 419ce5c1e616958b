"""Learning the weights of the signals from questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import Interval, bootstrap_interval
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.linalg.logistic import fit_listwise
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import FORMS, SIGNALS, Weight

__all__ = [
    "FitReport",
    "LabelledQuestions",
    "check_evidence",
    "fit_and_report",
    "fit_weights",
    "reweighted",
    "with_weights",
]

_TILE = 64  # questions whose signals are computed at once
_OF_ONE_FORM = 3.0  # times the penalty
_DEPTH = 10  # hits by which held-out questions are judged


@dataclass(frozen=True, eq=False)
class LabelledQuestions:
    """Questions to one index, and what answers them.

    Attributes:
        index: With the weights that learning starts from.
        query: B questions as tensors.
        evidence: B times the rows of the atoms that answer a question, each once.
        texts: The B questions as texts; a question that is asked twice is never on both sides.
        weight: What each question counts beside those to other memories.
    """

    index: MemoryIndex
    query: QueryBatch
    evidence: Sequence[Tensor]
    texts: Sequence[str] = ()
    weight: float = 1.0

    def take(self, places: Sequence[int]) -> LabelledQuestions:
        """Some of the questions."""
        return LabelledQuestions(
            self.index,
            self.query.rows(torch.tensor(places, dtype=torch.int64)),
            [self.evidence[place] for place in places],
            [self.texts[place] for place in places],
            self.weight,
        )

    def weighted(self, weights: Mapping[str, float]) -> LabelledQuestions:
        """The same questions to the index with other weights."""
        config = with_weights(self.index.config, weights)
        return replace(self, index=reweighted(self.index, config))

    def tiles(self) -> Iterator[tuple[QueryBatch, Sequence[Tensor]]]:
        """Parts of the questions that are computed at once."""
        for start in range(0, len(self.query), _TILE):
            part = slice(start, start + _TILE)
            yield self.query.rows(part), self.evidence[part]


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
    labelled: LabelledQuestions, *, penalty: float, held_out: float, seed: int
) -> FitReport:
    """Weights for one memory, judged on the share `held_out` of the questions.

    The weights returned are the ones that are judged: the held-out questions are never learned
    from, not even afterwards. A question that is asked twice is on one side only.

    Raises:
        InputError: As `Memory.fit` says.
    """
    if not isinstance(held_out, (int, float)) or not 0.0 <= held_out < 1.0:
        raise InputError(
            f"held_out: expected a share in [0, 1), got {held_out!r:.60}; 0.3 is usual"
        )
    if held_out == 0.0:
        return FitReport(fit_weights([labelled], penalty=penalty))
    generator = torch.Generator().manual_seed(seed)
    asked = list(dict.fromkeys(labelled.texts))
    count = round(held_out * len(asked))
    if not 0 < count < len(asked):
        raise InputError(
            f"held_out: expected to hold some of the questions back and to learn from the others, "
            f"got {held_out} of {len(asked)} different questions; give more, or held_out=0"
        )
    order = torch.randperm(len(asked), generator=generator)
    kept = {asked[place] for place in order[:count].tolist()}
    learned, judged = (
        labelled.take([i for i, text in enumerate(labelled.texts) if (text in kept) is side])
        for side in (False, True)
    )
    before = _recall(judged)
    weights = fit_weights([learned], penalty=penalty)
    after = _recall(judged.weighted(weights))
    known = ~torch.isnan(before)
    (difference,) = bootstrap_interval((after - before)[:, None], generator=generator)
    if difference is None:
        raise InputError(
            "held_out: expected evidence for some of the questions held out, got none; give more "
            "questions with evidence"
        )
    means = float(before[known].mean()), float(after[known].mean())
    return FitReport(weights, HeldOut(int(known.sum()), *means, difference))


def _recall(labelled: LabelledQuestions) -> Tensor:  # [B] float64
    """Share of each question's evidence among its first hits; NaN where it has none."""
    values = []
    for query, evidence in labelled.tiles():
        with torch.inference_mode():
            rows = labelled.index(query, k=_DEPTH).rows.cpu()
        for line, gold in zip(rows, evidence, strict=True):
            found = torch.isin(gold, line).double()
            values.append(found.mean() if len(gold) else torch.tensor(torch.nan).double())
    return torch.stack(values) if values else torch.empty(0, dtype=torch.float64)


def fit_weights(sources: Sequence[LabelledQuestions], *, penalty: float = 1e-2) -> dict[str, float]:
    """Weights from questions to one or several memories.

    Listwise softmax (`linalg.fit_listwise`). Twice: activation starts at anchors that the weights
    choose, so the second pass learns from the activation of the first pass's anchors.

    The memories are of one preset, `penalty` is of the squared weights of signals of unit variance,
    and the indices keep their own weights. What is added for one form of memories (`length@chat`)
    has to pay three times, so that it is used for what the forms do not share. A signal that a
    memory does not have, such as those of documents, is 0 there.

    Raises:
        InputError: No evidence at all.
    """
    keys = list(dict.fromkeys(key for source in sources for key in source.index.weight_keys))
    weighed = [Weight.named(key) for key in keys]
    penalties = [penalty * (1.0 if one.form is None else _OF_ONE_FORM) for one in weighed]
    weights: dict[str, float] = {}
    for _ in range(2):
        parts = [(part, s.weight) for s in sources for part in _batches(s, weighed)]
        batches, counts = [part for part, _ in parts], [count for _, count in parts]
        fitted = fit_listwise(batches, counts, penalty=penalties)
        weights = dict(zip(keys, fitted.tolist(), strict=True))
        if not any(SIGNALS[one.signal].graph for one in weighed):
            break
        sources = [source.weighted(weights) for source in sources]
    return weights


def with_weights(config: Config, weights: Mapping[str, float]) -> Config:
    """The same settings with other weights of the signals."""
    return replace(config, rank=replace(config.rank, weights=dict(weights)))


def reweighted(index: MemoryIndex, config: Config) -> MemoryIndex:
    """The same index with the weights of other settings; the tensors are shared."""
    tensors = {name: t for name, t in index.state_dict().items() if name != "weights"}
    return MemoryIndex.from_state_dict(tensors, config).to(index.embeddings.device)


def _batches(
    labelled: LabelledQuestions, weighed: Sequence[Weight]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What is weighed [B, C, F] and evidence [B, C] of a tile of questions after the other."""
    index = labelled.index
    for query, evidence in labelled.tiles():
        with torch.inference_mode():
            candidates = index.candidates(query)
            own, valid = candidates.signals(index.signal_names).cpu(), candidates.valid.cpu()
            form = candidates.form.cpu().expand(own.shape[:2])
        signals = torch.zeros(*own.shape[:2], len(weighed))
        for place, one in enumerate(weighed):
            if one.signal in index.signal_names:
                values = own[:, :, index.signal_names.index(one.signal)]
                if one.form is not None:
                    values = values.where(form == FORMS.index(one.form), 0.0)
                signals[:, :, place] = values
        signals.masked_fill_(~valid[:, :, None], -torch.inf)
        gold = torch.zeros(len(query), index.num_atoms, dtype=torch.bool)
        for line, found in zip(gold, evidence, strict=True):
            line[found] = True
        rows = candidates.rows
        if rows is not None:
            gold = gold.gather(1, rows.clamp(min=0).cpu()) & (rows >= 0).cpu()
        yield signals, gold


def check_evidence(questions: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    """Raises InputError where there are no lists of texts, one of evidence for each question."""
    for name, value in (("questions", questions), *(("evidence", ids) for ids in evidence)):
        if isinstance(value, str):
            raise InputError(
                f"{name}: expected a list of texts, got the text {value!r:.80}; wrap it in a list"
            )
    if len(questions) != len(evidence):
        raise InputError(
            f"evidence: expected a list of ids for each question, got {len(questions)} questions "
            f"and {len(evidence)} lists; give an empty one where there is none"
        )
