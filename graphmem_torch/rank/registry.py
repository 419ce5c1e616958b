"""The registry of signals: their names, what computes them and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from graphmem_torch.errors import ConfigError, unknown

__all__ = ["SIGNALS", "Signal", "check_signal_names", "reading", "signal"]
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
            or `hops` of `Reached`, `documents` or `retention`.
    """

    name: str
    compute: Compute
    graph: bool = False
    conversational: bool = False
    reads: tuple[str, ...] = ()


SIGNALS: dict[str, Signal] = {}


def signal(
    name: str, *, graph: bool = False, conversational: bool = False, reads: tuple[str, ...] = ()
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
        SIGNALS[name] = Signal(name, compute, graph, conversational, reads)
        return compute

    return decorate


def _origin(compute: Compute) -> str:
    return f"{compute.__module__}.{getattr(compute, '__qualname__', compute)}"


def reading(names: Iterable[str], *what: str) -> list[str]:
    """The signals among `names` that read one of these."""
    return [name for name in names if not set(SIGNALS[name].reads).isdisjoint(what)]


def check_signal_names(names: Iterable[str]) -> None:
    """Raises `ConfigError` for a name that is no signal, with the nearest one."""
    for name in names:
        if name not in SIGNALS:
            raise ConfigError(unknown("signal", name, sorted(SIGNALS)))
