"""Stand-in for CUDA graphs on a CPU: records operators, and runs them again on the same tensors.

A replay on the same tensors shows that a recording takes nothing from the host. The stand-in
refuses what a capture refuses: values read on the host, results whose shape depends on values,
tensors made from numbers of the host, and operators of the package without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from bench.counting import is_view, waits_for_values
from graphmem_torch.index.captured import Recording

__all__ = ["StandInRecorder"]

_KERNELS = {
    *("bm25_holds", "bm25_score", "bm25_score_squares", "inhibit", "maxsim", "propagate", "spmm"),
    "token_maxima",
}
_UPLOADS = {"lift_fresh"}
_READS = {"tolist", "numpy", "cpu"}


class StandInRecorder:
    """Recorder of `CapturedGraphs` for a CPU.

    Attributes:
        bytes: Size that each recording is said to have.
        limit: Maximum bytes of all recordings.
        fails: Whether recording fails.
        recorded: Number of operators of each recording.
    """

    def __init__(self, bytes: int = 1000, limit: int = 1 << 40, fails: bool = False) -> None:
        """Record nothing yet."""
        self.bytes, self.limit, self.fails = bytes, limit, fails
        self.recorded: list[int] = []

    def record(self, run: Callable[[], Tensor]) -> Recording:
        """Run a function, then record it."""
        first = run().clone()
        if self.fails:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        with _NoReads(), _Operators() as mode:
            result = run()
        self.recorded.append(len(mode.kept))
        return Recording(mode.replay, result, first, self.bytes)


class _Operators(TorchDispatchMode):
    """Keeps every operator with the very tensors that it read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        space, _, name = func.name().partition("::")
        name = name.partition(".")[0]
        own = space == "graphmem" and name not in _KERNELS
        if own or name in _UPLOADS or waits_for_values(func, name, args, kwargs):
            raise RuntimeError(f"{func.name()} cannot be captured")
        out = func(*args, **kwargs)
        if not is_view(func):
            self.kept.append((func, args, kwargs, out))
        return out

    def replay(self) -> None:
        """Run the operators again, unseen by other modes, as a graph runs."""
        with _disable_current_modes(), torch.no_grad():
            for func, args, kwargs, out in self.kept:
                found = func(*args, **kwargs)
                for own, fresh in zip(tree_leaves(out), tree_leaves(found), strict=True):
                    if isinstance(own, Tensor) and own.data_ptr() != fresh.data_ptr():
                        own.copy_(fresh)
                        if "empty" in func.name():  # nothing may depend on what it holds
                            own.fill_(torch.nan if own.is_floating_point() else 1)


class _NoReads(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _READS:
            raise RuntimeError(f"{func.__name__} cannot be captured")
        return func(*args, **(kwargs or {}))
