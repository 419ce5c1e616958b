"""Command line; this file handles Ctrl-C before its libraries are loaded."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["interrupt_as_usual", "leave_at_once"]
_NOTE = b"\ngraphmem: interrupted; nothing was changed\n"


def leave_at_once() -> None:
    """Let Ctrl-C end the process with one line and exit code 130, until `interrupt_as_usual`.

    For start-up only: a KeyboardInterrupt while a C++ extension loads aborts the process, and one
    inside the import system prints a traceback that cannot be caught. Nothing needs cleanup at that
    point. A handler of the caller, or an ignored SIGINT, is left alone.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _handle(_leave)


def interrupt_as_usual() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again; does nothing without `leave_at_once`."""
    if signal.getsignal(signal.SIGINT) is _leave:
        _handle(signal.default_int_handler)


def _handle(handler: object) -> None:
    try:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    except ValueError:  # not the main thread, which alone receives Ctrl-C
        return


def _leave(number: int, frame: FrameType | None) -> None:
    # Not print: the interrupted code may be writing to the same buffer.
    os.write(2, _NOTE)
    os._exit(128 + number)
