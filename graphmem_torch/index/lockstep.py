"""Lockstep: functions that take turns, and stop where they exchange tensors.

Each function has its own thread, but only one runs at a time: it goes on until it gives a tensor
for an exchange, and the next one's turn comes. When all have given theirs, all get the result. So
operations keep all cores for themselves, and the order of the work never depends on the machine.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["Exchange", "gather", "run_together", "stacked"]

T = TypeVar("T")

Exchange = Callable[[str, Sequence[Tensor]], Tensor]
"""Function (name, tensors of the functions here) -> [S, ...], those of all processes."""


def stacked(what: str, own: Sequence[Tensor]) -> Tensor:
    """Return the tensors of one process, [S, ...]."""
    return torch.stack([*own])


_HERE = threading.local()
"""The turn of this thread."""


def gather(what: str, own: Tensor) -> Tensor:
    """Exchange a tensor in a function of `run_together`.

    Args:
        what: Name of the exchange.
        own: [...] tensor of this function.

    Returns:
        [S, ...], the tensors of all functions, in their order.
    """
    turn: _Runner[Any] = _HERE.turn
    return turn.gather(what, own)


_IDLE: list[_Thread] = []


class _Thread:
    """Thread that runs one function after another; torch prepares each new thread for 1 ms or more.

    Attributes:
        work: Functions to run.
    """

    def __init__(self) -> None:
        """Start the thread."""
        self.work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._serve, name="shard", daemon=True).start()

    @classmethod
    def idle(cls) -> _Thread:
        """Return a thread without work, a new one if all are busy."""
        try:
            return _IDLE.pop()
        except IndexError:
            return cls()

    def _serve(self) -> None:
        while True:
            self.work.get()()
            _IDLE.append(self)


os.register_at_fork(after_in_child=_IDLE.clear)  # a child has none of the threads


class _EndedError(BaseException):
    """Another function has failed; unwinds the stack of this one."""


class _Runner(Generic[T]):
    """One function in its thread.

    Attributes:
        given: Name and tensor of the exchange it waits for; None once it has ended.
        result: Returned value.
        error: Raised exception.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Wait for the first turn."""
        self.given: tuple[str, Tensor] | None = None
        self.result: T | None = None
        self.error: BaseException | None = None
        self._go: SimpleQueue[Any] = SimpleQueue()
        self._stopped: SimpleQueue[None] = SimpleQueue()
        _Thread.idle().work.put(partial(contextvars.copy_context().run, self._run, work))

    def go(self, answer: Tensor | BaseException | None) -> None:
        """Give the answer to the exchange, and return when the function waits again or ends."""
        self._go.put(answer)
        self._stopped.get()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            _HERE.turn = self
            self._answer()
            self.result = work()
        except BaseException as error:
            self.error = error
        self.given = None
        self._stopped.put(None)

    def gather(self, what: str, own: Tensor) -> Tensor:
        """Give a tensor, and return those of all when they have given theirs."""
        self.given = what, own
        self._stopped.put(None)
        return cast(Tensor, self._answer())

    def _answer(self) -> Tensor | None:
        answer = self._go.get()
        if isinstance(answer, BaseException):
            raise answer
        return cast("Tensor | None", answer)


def run_together(works: Sequence[Callable[[], T]], exchange: Exchange = stacked) -> list[T]:
    """Run functions that exchange tensors, and return their results.

    An error in one ends all, and is raised.

    Args:
        works: Functions that call `gather` equally often, with equal names and shapes.
        exchange: Combines the tensors of each exchange.

    Raises:
        RuntimeError: The functions do not meet in the same exchange.
    """
    turns = [_Runner(work) for work in works]
    answers: Sequence[Tensor | None] = [None] * len(turns)
    try:
        while True:
            for turn, answer in zip(turns, answers, strict=True):
                turn.go(answer)
                if turn.error is not None:
                    raise turn.error
            given = [turn.given for turn in turns]
            if not any(each is not None for each in given):
                return [cast(T, turn.result) for turn in turns]
            met = [("the end", torch.empty(0)) if each is None else each for each in given]
            if len({what for what, _ in met}) > 1:
                raise RuntimeError(
                    f"shards: expected one exchange, got {[what for what, _ in met]}; report this"
                )
            every = exchange(met[0][0], [own for _, own in met])
            answers = [every] * len(turns)
    finally:
        for turn in turns:
            if turn.error is None and turn.given is not None:
                turn.go(_EndedError())
