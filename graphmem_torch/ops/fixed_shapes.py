"""Fixed shapes: a way to run in which no shape and no branch depends on values.

A CUDA graph and a compiler record one run for all values. So nothing may be read on the host, and
no result may have a length of its own. Lists then become masks or padded matrices. Where a short
way is right for almost all values, the others raise a flag, and the caller runs again without fixed
shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["doubt", "fixing_shapes", "shapes_are_fixed"]

_doubts: ContextVar[list[Tensor] | None] = ContextVar("doubts", default=None)


def shapes_are_fixed() -> bool:
    """Return whether no shape or branch may depend on values: in a compiler, or on request."""
    return torch.compiler.is_compiling() or _doubts.get() is not None


@contextmanager
def fixing_shapes() -> Iterator[list[Tensor]]:  # [] bool each
    """Run the block with fixed shapes, in this thread or task alone.

    Yields the flags that the block raises: its results are wrong where one is true.
    """
    found: list[Tensor] = []
    token = _doubts.set(found)
    try:
        yield found
    finally:
        _doubts.reset(token)


def doubt(flag: Tensor) -> None:  # [] bool
    """Raise a flag of `fixing_shapes`, which is read later."""
    found = _doubts.get()
    assert found is not None
    found.append(flag)
