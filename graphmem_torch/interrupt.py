"""Ctrl-C while libraries are being loaded."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["leaving_at_once"]

_NOTE = b"\ngraphmem: interrupted; nothing was changed\n"


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Makes Ctrl-C end the process with one line and exit code 130.

    For imports only: a KeyboardInterrupt inside the loading of a C++ extension aborts the process,
    and one inside the import system prints a traceback that nobody can catch. Nothing has to be
    tidied up at that point. A handler of the caller's own, or SIGINT ignored, is left alone.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:  # not the main thread: Ctrl-C does not come here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    # Not print: the interrupted code may be writing to the same buffer.
    os.write(2, _NOTE)
    os._exit(128 + number)
