"""The registry of signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from graphmem_torch.errors import ConfigError, unknown
from graphmem_torch.rank.scope import Scope

__all__ = ["SIGNALS", "Signal", "check_signal_names", "signal"]
Compute = Callable[[Scope], Tensor]


@dataclass(frozen=True)
class Signal:
    """A registered signal.

    Attributes:
        name: Its name in presets and in the reasons of a hit.
        compute: `Scope -> [B, C]`.
        graph: Whether it needs the graph; those without are the strong signals that choose the
            anchors.
        conversational: Whether it reads speakers, dates or the form of a question.
    """

    name: str
    compute: Compute
    graph: bool = False
    conversational: bool = False


SIGNALS: dict[str, Signal] = {}


def signal(
    name: str, *, graph: bool = False, conversational: bool = False
) -> Callable[[Compute], Compute]:
    """Registers a function as a signal."""

    def decorate(compute: Compute) -> Compute:
        SIGNALS[name] = Signal(name, compute, graph, conversational)
        return compute

    return decorate


def check_signal_names(names: Iterable[str]) -> None:
    """Raises `ConfigError` for a name that is no signal, with the nearest one."""
    for name in names:
        if name not in SIGNALS:
            raise ConfigError(unknown("signal", name, sorted(SIGNALS)))
