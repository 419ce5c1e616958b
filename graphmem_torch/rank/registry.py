"""The registry of signals: their names, functions and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import ConfigError, unknown
from graphmem_torch.rank.population import Sums

__all__ = [
    "FORMS",
    "SIGNALS",
    "Signal",
    "Weight",
    "check_signal_names",
    "reading",
    "signal",
    "signal_names",
    "weight_table",
    "weights_of",
]
Compute = Callable[..., Tensor]  # (candidates) -> [B, C], or [1, C] where all questions share it


@dataclass(frozen=True)
class Signal:
    """A registered signal.

    Attributes:
        name: Its name in presets and in the reasons of a hit.
        compute: Function `Candidates -> [B, C]`.
        graph: Whether it needs the graph; the others are the base signals, which choose the
            anchors.
        context: Whether it reads the turns around. Such a signal is 0 for an atom without a speaker
            and for one without other turns in its session.
        reads: Inputs that are computed only if a signal reads them: `activation`, `traversal`,
            `walk`, `hops` or `lifts` of `Reached`, `documents`, or `retention`, `ended`,
            `followed`, `replies` or `span` of a question; `derived`, atoms derived from an atom;
            `words`, in a memory without token vectors.
        indicator: Whether its values mean the same in every memory (0 or 1, a share), so that they
            are not scaled by the memory's background.
        learned: Whether its weight is learned from evidence; otherwise it is fixed.
        sums: Function from candidates that are every atom to the signal's sums over them, without a
            pass; None, or a result of None: its values are read.
    """

    name: str
    compute: Compute
    graph: bool = False
    context: bool = False
    reads: tuple[str, ...] = ()
    indicator: bool = False
    learned: bool = True
    sums: Callable[..., Sums | None] | None = None


SIGNALS: dict[str, Signal] = {}


def signal(
    name: str,
    *,
    graph: bool = False,
    context: bool = False,
    reads: tuple[str, ...] = (),
    indicator: bool = False,
    learned: bool = True,
    sums: Callable[..., Sums | None] | None = None,
) -> Callable[[Compute], Compute]:
    """Register a function as a signal; see `Signal`.

    Raises:
        ConfigError: Another function has that name.
    """

    def decorate(compute: Compute) -> Compute:
        known = SIGNALS.get(name)
        if known is not None and _origin(known.compute) != _origin(compute):
            raise ConfigError(
                f"signal: expected a new name, got {name!r}, which {_origin(known.compute)} has; "
                "choose another"
            )
        SIGNALS[name] = Signal(name, compute, graph, context, reads, indicator, learned, sums)
        return compute

    return decorate


def _origin(compute: Compute) -> str:
    return f"{compute.__module__}.{getattr(compute, '__qualname__', compute)}"


def reading(names: Iterable[str], *what: str) -> list[str]:
    """Return the signals in `names` that read any of these inputs."""
    return [name for name in names if not set(SIGNALS[name].reads).isdisjoint(what)]


FORMS = ("plain", "peer", "chat")
"""Forms of memories that may have their own weights.

They are memories without a speaker, words of one of several people, and turns of a user or an
assistant."""

_GROUPS = {**{form: (form,) for form in FORMS}, "said": ("peer", "chat")}


@dataclass(frozen=True)
class Weight:
    """Target of a weight: a signal, for memories of every form or of one.

    Attributes:
        signal: Its name.
        form: One of `FORMS`, or `said` for `peer` and `chat`; None for all.
    """

    signal: str
    form: str | None = None

    @property
    def rows(self) -> list[int]:
        """Places in `FORMS` that the weight applies to."""
        return [FORMS.index(form) for form in (_GROUPS[self.form] if self.form else FORMS)]

    @classmethod
    @cache  # the same few keys recur for every index
    def named(cls, key: str) -> Weight:
        """Parse a key of `rank.weights`, such as `length` or `length@chat`."""
        signal, at, form = key.partition("@")
        return cls(signal, form if at else None)


def signal_names(weights: Iterable[str]) -> list[str]:
    """Return the signals that keys of `rank.weights` name, each once."""
    return list(dict.fromkeys(Weight.named(key).signal for key in weights))


def weight_table(weights: Mapping[str, float]) -> Tensor:  # [len(FORMS), F] float32
    """Return the weight of each signal of `signal_names` for memories of each form.

    A weight for one form is added to the weight for all.
    """
    names = signal_names(weights)
    table = np.zeros((len(FORMS), len(names)), np.float32)
    for key, value in weights.items():
        weight = Weight.named(key)
        table[weight.rows, names.index(weight.signal)] += value
    return torch.from_numpy(table)


def weights_of(names: Iterable[str], table: Tensor) -> dict[str, float]:  # [len(FORMS), F]
    """Return the smallest set of `rank.weights` keys that gives this `weight_table`."""
    found: dict[str, float] = {}
    for name, column in zip(names, table.T.tolist(), strict=True):
        plain, *others = column
        found[name] = plain
        if len({*others}) == 1:
            added = {"said": others[0] - plain}
        else:
            added = {form: value - plain for form, value in zip(FORMS[1:], others, strict=True)}
        found |= {f"{name}@{form}": value for form, value in added.items() if value}
    return found


def check_signal_names(weights: Iterable[str]) -> None:
    """Raise `ConfigError` for a key that names no signal or no form, with the nearest one."""
    for weight in map(Weight.named, weights):
        if weight.signal not in SIGNALS:
            raise ConfigError(unknown("signal", weight.signal, sorted(SIGNALS)))
        if weight.form is not None and weight.form not in _GROUPS:
            raise ConfigError(unknown("form", weight.form, tuple(_GROUPS)))
