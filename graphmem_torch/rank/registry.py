"""The registry of signals: their names, what computes and what weighs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import ConfigError, unknown

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
        compute: `Candidates -> [B, C]`.
        graph: Whether it needs the graph; those without are the base signals, which choose the
            anchors.
        context: Whether it reads the turns around. Such a signal is 0 for an atom that nobody said,
            and for one without other turns in its session.
        reads: What it reads that is made only for those who ask: `activation`, `traversal`, `walk`,
            `hops` or `lifts` of `Reached`, `documents`, or `retention`, `ended`, `followed`,
            `replies` or `span` of a question; `derived`, what was derived from an atom; `words`,
            where a memory has no token vectors.
        indicator: Whether its values mean the same in every memory (0 or 1, a share), so that they
            are taken as they are where other signals are scaled by the memory's background.
        learned: Whether its weight is learned from evidence; else it stays as it is given.
    """

    name: str
    compute: Compute
    graph: bool = False
    context: bool = False
    reads: tuple[str, ...] = ()
    indicator: bool = False
    learned: bool = True


SIGNALS: dict[str, Signal] = {}


def signal(
    name: str,
    *,
    graph: bool = False,
    context: bool = False,
    reads: tuple[str, ...] = (),
    indicator: bool = False,
    learned: bool = True,
) -> Callable[[Compute], Compute]:
    """Registers a function as a signal; see `Signal`.

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
        SIGNALS[name] = Signal(name, compute, graph, context, reads, indicator, learned)
        return compute

    return decorate


def _origin(compute: Compute) -> str:
    return f"{compute.__module__}.{getattr(compute, '__qualname__', compute)}"


def reading(names: Iterable[str], *what: str) -> list[str]:
    """The signals among `names` that read one of these."""
    return [name for name in names if not set(SIGNALS[name].reads).isdisjoint(what)]


FORMS = ("plain", "peer", "chat")
"""The forms of memories that may have weights of their own: what nobody said; what one of several
people says; a turn of a user or an assistant."""

_GROUPS = {**{form: (form,) for form in FORMS}, "said": ("peer", "chat")}


@dataclass(frozen=True)
class Weight:
    """What is weighed: a signal, for every memory or for those of one form alone.

    Attributes:
        signal: Its name.
        form: One of `FORMS`, or `said` for `peer` and `chat`; None for all.
    """

    signal: str
    form: str | None = None

    @property
    def rows(self) -> list[int]:
        """The places in `FORMS` that it is for."""
        return [FORMS.index(form) for form in (_GROUPS[self.form] if self.form else FORMS)]

    @classmethod
    @cache  # an index is made of few keys, again and again
    def named(cls, key: str) -> Weight:
        """What a key of `rank.weights` means: `length`, or `length@chat`."""
        signal, at, form = key.partition("@")
        return cls(signal, form if at else None)


def signal_names(weights: Iterable[str]) -> list[str]:
    """The signals that keys of `rank.weights` name, each once."""
    return list(dict.fromkeys(Weight.named(key).signal for key in weights))


def weight_table(weights: Mapping[str, float]) -> Tensor:  # [len(FORMS), F] float32
    """The weight of each signal of `signal_names` for memories of each form.

    What is given for one form is added to what is given for all.
    """
    names = signal_names(weights)
    table = np.zeros((len(FORMS), len(names)), np.float32)
    for key, value in weights.items():
        weight = Weight.named(key)
        table[weight.rows, names.index(weight.signal)] += value
    return torch.from_numpy(table)


def weights_of(names: Iterable[str], table: Tensor) -> dict[str, float]:  # [len(FORMS), F]
    """The keys of `rank.weights` whose `weight_table` this is, with as few keys as it takes."""
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
    """Raises `ConfigError` for a key that names no signal or no form, with the nearest one."""
    for weight in map(Weight.named, weights):
        if weight.signal not in SIGNALS:
            raise ConfigError(unknown("signal", weight.signal, sorted(SIGNALS)))
        if weight.form is not None and weight.form not in _GROUPS:
            raise ConfigError(unknown("form", weight.form, tuple(_GROUPS)))
