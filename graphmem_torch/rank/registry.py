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
        conversational: Whether it reads speakers, dates or the form of a question.
        reads: What it reads that is made only for those who ask: `activation`, `traversal`, `walk`
            or `hops` of `Reached`, `documents`, or `retention`, `ended`, `followed`, `replies` or
            `span` of a question; `words`, where a memory has no token vectors.
        indicator: Whether its values mean the same in every memory (0 or 1, a share), so that they
            are taken as they are where other signals are scaled by the memory's background.
        learned: Whether its weight is learned from evidence; else it stays as it is given.
    """

    name: str
    compute: Compute
    graph: bool = False
    conversational: bool = False
    reads: tuple[str, ...] = ()
    indicator: bool = False
    learned: bool = True


SIGNALS: dict[str, Signal] = {}


def signal(
    name: str,
    *,
    graph: bool = False,
    conversational: bool = False,
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
        SIGNALS[name] = Signal(name, compute, graph, conversational, reads, indicator, learned)
        return compute

    return decorate


def _origin(compute: Compute) -> str:
    return f"{compute.__module__}.{getattr(compute, '__qualname__', compute)}"


def reading(names: Iterable[str], *what: str) -> list[str]:
    """The signals among `names` that read one of these."""
    return [name for name in names if not set(SIGNALS[name].reads).isdisjoint(what)]


FORMS = ("plain", "peer", "chat", "document")
"""The forms of memories that may have weights of their own: a text of any kind; what one of several
people says; a turn of a user and an assistant; a document, which begins with its title."""


@dataclass(frozen=True)
class Weight:
    """What is weighed: a signal, for every memory or for those of one form alone.

    Attributes:
        signal: Its name.
        form: One of `FORMS`; None for all.
    """

    signal: str
    form: str | None = None

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
        rows = slice(None) if weight.form is None else FORMS.index(weight.form)
        table[rows, names.index(weight.signal)] += value
    return torch.from_numpy(table)


def check_signal_names(weights: Iterable[str]) -> None:
    """Raises `ConfigError` for a key that names no signal or no form, with the nearest one."""
    for weight in map(Weight.named, weights):
        if weight.signal not in SIGNALS:
            raise ConfigError(unknown("signal", weight.signal, sorted(SIGNALS)))
        if weight.form is not None and weight.form not in FORMS:
            raise ConfigError(unknown("form", weight.form, FORMS))
