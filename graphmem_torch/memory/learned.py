"""What a memory learns from labelled questions: weights of signals, the threshold of the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.core import MemoryCore
from graphmem_torch.memory.fitting import FitReport, fit_and_report
from graphmem_torch.rank.abstention import conformal_threshold

__all__ = ["LearnedMemory"]


class LearnedMemory(MemoryCore):
    """What can be fitted."""

    def fit(
        self,
        questions: Sequence[str],
        evidence: Sequence[Sequence[str]],
        *,
        penalty: float = 1e-2,
        held_out: float = 0.0,
        seed: int = 0,
    ) -> FitReport:
        """Learns the weights of the signals from questions whose evidence is known.

        Routing included: `proximity` and `bridge` are signals like the others. See
        `fitting.fit_weights`. The memory uses the weights from then on.

        Args:
            questions: Never those on which figures will be reported: keep a test half back.
            evidence: Ids of the atoms that answer each question.
            penalty: Of the squared weights of signals of unit variance.
            held_out: Share of the questions that is not learned from but tells what was gained.
            seed: Of the choice of these questions and of the interval.

        Returns:
            The weight of each signal, as a mapping, to be kept in a preset; with `held_out` also
            the recall@10 of the held-out questions before and after, and their difference with its
            interval.

        Raises:
            InputError: Lengths that differ, an evidence id that is not stored, no evidence at all,
                a share outside [0, 1), or too few questions to hold some back.
        """
        report = fit_and_report(
            self, questions, evidence, penalty=penalty, held_out=held_out, seed=seed
        )
        self.use_weights(report)
        return report

    def calibrate(self, questions: Sequence[str], *, refused: float = 0.05) -> float:
        """Sets the gate so that it refuses at most this share of answerable questions.

        `docs/mathematics.md` 7: a conformal threshold, valid for questions exchangeable with these,
        which must be answerable and must not have been used to fit the weights.

        Args:
            questions: Answerable questions, at least 1 / refused of them or the gate never closes.
            refused: Share of answerable questions that may be refused, in [0, 1).

        Returns:
            The threshold, which the memory uses from then on; to be kept as `gate.threshold`.

        Raises:
            InputError: No questions, or a share outside [0, 1).
        """
        sure = torch.tensor([result.confidence for result in self.retrieve(questions, k=1)])
        threshold = conformal_threshold(sure, refused)
        self.config = replace(self.config, gate=replace(self.config.gate, threshold=threshold))
        return threshold

    def use_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the weights of the signals."""
        self.config = replace(self.config, rank=replace(self.config.rank, weights=dict(weights)))
        if self._assembled is not None:
            old = self._assembled.index
            tensors = {name: t for name, t in old.state_dict().items() if name != "weights"}
            index = MemoryIndex.from_state_dict(tensors, self.config).to(old.embeddings.device)
            self._assembled = replace(self._assembled, index=index)
