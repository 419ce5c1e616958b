"""Learned values: weights, correction and threshold as stored, and their use in the settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from graphmem_torch.config import OTHER_ENCODERS, Config, config_to_dict, former_section
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.results import Learned
from graphmem_torch.store.learned import LearnedRow

__all__ = [
    "CORRECTION",
    "KINDS",
    "THRESHOLD",
    "WEIGHTS",
    "Applied",
    "apply_learned",
    "settings_digest",
    "shown",
    "with_learned",
    "with_weights",
]

WEIGHTS, CORRECTION, THRESHOLD = KINDS = ("weights", "correction", "threshold")
"""Kinds of learned values, in the order in which they are applied."""

_RANKING = ("anchors", "spread", "rank", "modes", "segment", "walk")  # sections of the settings


class Applied(NamedTuple):
    """A learned value, and whether it is applied.

    Attributes:
        value: Value as stored.
        stop: Value of `LearnedRow.stop`.
        reason: Reason why it is not applied; empty if it is.
    """

    value: Mapping[str, Any]
    stop: int
    reason: str


def settings_digest(config: Config, kind: str, encoder: str | None) -> str:
    """Return a digest of the settings and the encoder that a learned value depends on."""
    names = {*_RANKING}
    # Parts that a preset does not use do not affect what was learned with it.
    if "hop" in signal_names(config.rank.weights):
        names.add("hops")
    if kind == THRESHOLD:
        names.add("gate")
    settings = config_to_dict(config)
    sections = {name: former_section(name, settings[name]) for name in names}
    del sections["rank"]["k"]
    if not config.anchors.named:
        del sections["anchors"]["named"]
    if kind == THRESHOLD:
        del sections["gate"]["threshold"]
    data = json.dumps([encoder, sections], sort_keys=True)
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def apply_learned(
    settings: Config, rows: Mapping[str, LearnedRow], encoder: str | None
) -> tuple[Config, dict[str, Applied]]:
    """Return the settings with the learned values, and the outcome of each kind.

    Signals without a learned weight keep that of the settings.

    Args:
        settings: Settings that the memory was opened with.
        rows: Learned values of its store.
        encoder: Fingerprint of the encoder.
    """
    config, found = settings, dict[str, Applied]()
    for kind in (kind for kind in KINDS if kind in rows):
        value, stop = rows[kind]
        if value is None or not _usable(kind, value, settings):
            reason = "what the store holds of it is damaged, or of other signals"
            found[kind] = Applied({}, stop, reason)
            continue
        changed = with_learned(config, kind, value["value"])
        # A correction belongs to the weights that it was learned with.
        by = settings_digest(config if kind == CORRECTION else settings, kind, encoder)
        reason = ""
        if not value["counts"]:
            mean, low, high = value["difference"]
            reason = (
                f"no better by feedback held back: AUC {mean:+.3f} [{low:+.3f}, {high:+.3f}] on "
                f"{value['held_out']} questions"
            )
        elif changed != config and value["settings"] != by:
            reason = "the settings, their signals or weights, or the encoder are others"
        if not reason:
            config = changed
        found[kind] = Applied(value, stop, reason)
    return config, found


def with_learned(config: Config, kind: str, value: Any) -> Config:
    """Return the settings with weights, by signal, or a threshold; other weights stay."""
    if kind == THRESHOLD:
        return replace(config, gate=replace(config.gate, threshold=value))
    # The calibration constants were fitted to the scores of other weights.
    kept = {k: v for k, v in config.calibration.encoders.items() if k == OTHER_ENCODERS}
    rough = replace(config.calibration, encoders=kept)
    changed = with_weights(config, {**config.rank.weights, **value})
    return replace(changed, calibration=rough)


def _usable(kind: str, value: Mapping[str, Any], settings: Config) -> bool:
    """Return whether a value has the form of its kind, with signals of the settings."""
    learned, figures = value.get("value"), value.get("difference")
    numbers = [learned]
    if kind != THRESHOLD:
        known = {*settings.rank.weights, *settings.rank.cold_weights}
        if not isinstance(learned, dict) or not learned or not learned.keys() <= known:
            return False
        numbers = list(learned.values())
    if not value.get("counts", True):
        numbers += [value.get("held_out"), *(figures if isinstance(figures, list) else [None])]
    finite = all(isinstance(number, (int, float)) and isfinite(number) for number in numbers)
    return finite and {"settings", "counts", "evidence"} <= value.keys()


def shown(kind: str, value: Mapping[str, Any], reason: str, ids: Sequence[str]) -> Learned:
    """Return a learned value for display; `ids` are those of its evidence that are stored."""
    difference = value.get("difference")
    return Learned(
        kind=kind,
        value=value.get("value", {}),
        applied=not reason,
        reason=reason,
        when=value.get("when", 0.0),
        questions=value.get("questions", 0),
        atoms=value.get("atoms", 0),
        evidence=tuple(ids),
        gone=len(value.get("evidence", ())) - len(ids),
        settings=value.get("settings", ""),
        measure=value.get("measure", ""),
        held_out=value.get("held_out", 0),
        before=value.get("before"),
        after=value.get("after"),
        difference=None if difference is None else tuple(difference),
    )


def with_weights(config: Config, weights: Mapping[str, float]) -> Config:
    """Return the settings with other weights of the signals."""
    return replace(config, rank=replace(config.rank, weights=weights))
