"""Learning: weights, threshold and correction of one memory, from questions and feedback."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch

from graphmem_torch.checks import check_share
from graphmem_torch.config import checked_config, save_preset
from graphmem_torch.errors import InputError, StoreError, unknown
from graphmem_torch.memory import learned_values, weight_fitting
from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.memory.questions import checked_questions
from graphmem_torch.memory.request import Filters
from graphmem_torch.memory.state import State
from graphmem_torch.rank.abstention import conformal_threshold
from graphmem_torch.results import Learned

__all__ = ["Learning", "correct_if_due"]

_log = logging.getLogger(__name__)


class Learning:
    """Learned weights, threshold and correction, kept in the store and used by all who open it.

    They are used only with the settings and the encoder that they were learned with. A read-only
    memory keeps what it learns to itself, until it is closed.
    """

    def __init__(self, asking: Asking) -> None:
        """Create without loading anything.

        Args:
            asking: Asking of the memory.
        """
        self._asking = asking
        self._state, self._store = asking.state, asking.state.store

    def fit(
        self,
        questions: Sequence[str],
        evidence: Sequence[Sequence[str]],
        *,
        l2: float = 1e-2,
        validation_fraction: float = 0.0,
        seed: int = 0,
    ) -> weight_fitting.FitReport:
        """Fit the weights of the signals, and use them from now on (`fit_weights`).

        A correction by feedback is dropped, and learned again.

        Args:
            questions: Questions; never those on which figures will be reported.
            evidence: Ids of the atoms that answer each question.
            l2: Penalty on the squared weights of signals of unit variance.
            validation_fraction: Share of the questions that is held out to measure the gain.
            seed: Seed of the choice of these questions and of the interval.

        Returns:
            The weight of each signal, as a mapping; its `held_out` has the measured gain.

        Raises:
            InputError: No evidence at all, or too few questions to hold some out.
            StoreError: Memories were erased meanwhile, or a full disk; nothing was learned.
        """
        weight_fitting.check_evidence(questions, evidence)
        erased = self._store.learned.erased
        wanted = [list(dict.fromkeys(ids)) for ids in evidence]
        snapshot, rows = self._state.rows_for([name for ids in wanted for name in ids])
        gold = rows.split([len(ids) for ids in wanted])
        query = self._asking.query(self._state.view(snapshot), questions)
        labelled = weight_fitting.LabelledQuestions(snapshot.index, query, gold, questions)
        report = weight_fitting.fit_and_report(
            labelled, l2=l2, validation_fraction=validation_fraction, seed=seed
        )
        judged = report.held_out
        figures = {} if judged is None else asdict(judged)
        self._state.keep(
            learned_values.WEIGHTS,
            {
                "value": dict(report),
                "questions": report.questions,
                "evidence": sorted({*snapshot.node[rows].tolist()}),
                "atoms": snapshot.index.num_atoms,
                "measure": "recall@10",
                "held_out": figures.pop("questions", 0),
                **figures,
            },
            erased,
        )
        return report

    def calibrate(self, questions: str | Sequence[str], *, max_refusal_rate: float = 0.05) -> float:
        """Set the gate so that it refuses at most a given share of answerable questions.

        `docs/mathematics.md` 7: a conformal threshold, valid for questions exchangeable with these.

        Args:
            questions: Answerable questions, none of which the weights were fitted to. With fewer
                than 1 / max_refusal_rate the gate never closes.
            max_refusal_rate: Share of answerable questions that may be refused, in [0, 1).

        Returns:
            The threshold, which the memory uses from now on.

        Raises:
            InputError: A share out of range, or no question.
            StoreError: See `fit`.
        """
        check_share("max_refusal_rate", max_refusal_rate, usual=0.05)
        asked, erased = checked_questions(questions), self._store.learned.erased
        if not asked:
            raise InputError(
                "questions: expected answerable questions, got none; give at least one"
            )
        results = self._asking.retrieve(asked, Filters(), k=1)
        # In a language that the encoder does not read, the confidence has another scale.
        sure = torch.tensor([result.confidence for result in results if result.known is not None])
        if not len(sure):
            raise InputError(
                "questions: expected some in a language that the encoder reads, got none; give some"
            )
        # Confidence is never below 0: this gate never closes.
        threshold = max(conformal_threshold(sure, max_refusal_rate), 0.0)
        before = self._state.config.gate.threshold
        best = self._store.known([hit.id for result in results for hit in result.hits])
        shares = [float((sure < each).float().mean()) for each in (before, threshold)]
        self._state.keep(
            learned_values.THRESHOLD,
            {
                "value": threshold,
                "questions": len(sure),
                "evidence": sorted({node for node, _ in best.values()}),
                "atoms": self._store.num_atoms,
                "measure": "refused",
                "before": shares[0],
                "after": shares[1],
            },
            erased,
        )
        return threshold

    def use_weights(self, weights: Mapping[str, float]) -> None:
        """Replace the weights of the signals, for this object, until others are learned.

        Args:
            weights: Weight of each signal.

        Raises:
            ConfigError: An unknown signal or form, or a weight that is no finite number.
        """
        state = self._state
        config = checked_config(learned_values.with_weights(state.config, weights))
        with state.lock:
            state.use(config)
            state.own |= {learned_values.WEIGHTS: None, learned_values.CORRECTION: None}

    def correct(self) -> Learned | None:
        """Learn a correction of the weights from feedback, and use it if it is better.

        `fit_correction` learns from half of the questions, cited answers included, near the weights
        that it corrects. The other half decides: the correction must rank used memories above
        unused ones more often than the present weights. That holds if the lower end of the 95 %
        bootstrap interval of the difference in AUC is above 0. Takes as long as asking all
        questions.

        Returns:
            The record, as in `records`, used or not. None if another thread is learning, or if
            either half has fewer than 20 questions with both used and unused memories.

        Raises:
            StoreError: Read-only store or full disk, or memories were erased meanwhile.
        """
        state = self._state
        self._store.expect_writable()
        if not state.correcting.acquire(blocking=False):
            return None
        try:
            if not self._learn_correction():
                return None
        finally:
            state.correcting.release()
        return next(each for each in self.records() if each.kind == learned_values.CORRECTION)

    def _learn_correction(self) -> bool:
        """Learn from the feedback so far, and return whether it was enough."""
        self._store.uses.flush()
        rows = self._store.learned
        erased, given, known = rows.erased, rows.given(), rows.rows()
        known.pop(learned_values.CORRECTION, None)
        encoder = self._store.fingerprint
        base, _ = learned_values.apply_learned(self._state.settings, known, encoder)
        said = [each for each in rows.feedback() if each.used]
        self._state.tried = given
        snapshot = self._state.current()
        if not said or not snapshot.index.num_atoms:
            return False
        asked = [each.question for each in said]
        found = weight_fitting.fit_correction(
            weight_fitting.LabelledQuestions(
                reweighted(snapshot.index, base),
                self._asking.query(self._state.view(snapshot), asked),
                [snapshot.rows_of(each.used) for each in said],
                asked,
                against=[snapshot.rows_of(each.not_used) for each in said],
            )
        )
        if found is None:
            return False
        record = {
            "value": found.weights,
            "questions": found.learned,
            "evidence": sorted({node for each in said for node in each.used}),
            "atoms": snapshot.index.num_atoms,
            "settings": learned_values.settings_digest(base, learned_values.CORRECTION, encoder),
            "measure": "auc",
            "held_out": found.held_out,
            "before": found.before,
            "after": found.after,
            "difference": found.difference,
            "counts": found.counts,
            "given": given,
        }
        self._state.keep(learned_values.CORRECTION, record, erased)
        return True

    def records(self) -> list[Learned]:
        """Return the results of `fit`, `calibrate` and `correct`, and whether each is used."""
        self._state.follow()
        with self._state.lock:
            found, own = dict(self._state.learned), dict(self._state.own)
        found |= {kind: each for kind, each in own.items() if each is not None}
        shown = []
        for kind in (kind for kind in learned_values.KINDS if kind in found):
            value, _, reason = found[kind]
            ids = self._store.learned.ids(value.get("evidence", ()))
            if kind in own and own[kind] is None:
                threshold = kind == learned_values.THRESHOLD
                other = "another threshold was" if threshold else "other weights were"
                reason = f"{other} given to this object"
            shown.append(learned_values.shown(kind, value, reason, ids))
        return shown

    def reset(self, *kinds: str) -> int:
        """Drop learned values, so that the settings apply again, and return their number.

        Args:
            kinds: `weights`, `correction`, `threshold`, by default all of them; `feedback` drops
                the feedback and the correction that was learned from it.

        Raises:
            InputError: An unknown kind.
            StoreError: Read-only store or full disk.
        """
        every = (*learned_values.KINDS, "feedback")
        for kind in kinds:
            if kind not in every:
                raise InputError(unknown("kinds", kind, every))
        self._store.expect_writable()
        wanted, count = {*(kinds or learned_values.KINDS)}, 0
        if "feedback" in wanted:
            self._store.uses.flush()
            count += self._store.learned.drop_feedback()
            wanted.add(learned_values.CORRECTION)
        count += self._store.learned.reset(wanted)
        self._state.follow()
        return count

    def export_preset(self, path: str | os.PathLike[str]) -> None:
        """Write the settings and learned values as a preset, which `preset=` reads.

        The preset extends the shipped one of the settings' name, or `default`.

        Args:
            path: A file that ends in .yaml or .yml.

        Raises:
            ConfigError: Another ending.
        """
        self._state.follow()
        save_preset(self._state.config, path)


def correct_if_due(learning: Learning, state: State) -> bool:
    """Learn from feedback if enough of it is new, and return whether anything was learned."""
    state.store.uses.flush()
    state.follow()
    last = state.learned.get(learned_values.CORRECTION)
    tried = max(state.tried, 0 if last is None else last.value.get("given", 0))
    if not weight_fitting.is_due(state.store.learned.given(), tried):
        return False
    try:
        return learning.correct() is not None
    except StoreError as error:
        _log.warning("feedback is kept, but nothing was learned from it: %s", error)
        return False
