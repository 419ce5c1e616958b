"""The torch library `graphmem`: declares operations to the dispatcher.

Every operation registers here once: its CPU function, its CUDA launcher, its shapes for
`torch.compile`, and its gradient. `Library.define` costs 6 microseconds a call where `custom_op`
costs 45, and `triton_op` fails on a machine without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch.library import Library

from graphmem_torch.checks import check_no_gradient
from graphmem_torch.errors import optional_import

__all__ = ["NAMESPACE", "import_kernels", "on_device_of_input", "register"]

NAMESPACE = "graphmem"
_library = Library(NAMESPACE, "DEF")


def register(
    schema: str,
    run: Callable[..., Any],
    *,
    fake: Callable[..., Any],
    launcher: str | None = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
) -> Any:
    """Declare one operation and return it as a callable.

    Args:
        schema: `name(Tensor x, ...) -> Tensor`, as `torch.library` reads it.
        run: Function for the CPU, and for CUDA too if there is no launcher.
        fake: Function of the same arguments that returns empty tensors of the right shape; never
            looks at values.
        launcher: `module:function` below `graphmem_torch.kernels`. It is imported at the first
            call, because importing Triton takes a second and a CPU never needs it.
        backward: Gradient, as for `torch.library.register_autograd`. An operation without one
            refuses inputs that require a gradient, instead of failing later in `backward()`.
        setup_context: Function that saves inputs for the gradient, as for `register_autograd`.
    """
    name = schema.split("(", 1)[0]
    _library.define(schema)
    _library.impl(name, run, "CPU")
    _library.impl(name, on_device_of_input(_lazy(launcher) if launcher else run), "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    operation = getattr(getattr(torch.ops, NAMESPACE), name).default
    if backward is None:
        _library.impl(name, _without_gradient(name, operation), "Autograd")
    else:
        torch.library.register_autograd(
            f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_library
        )
    return operation


def on_device_of_input(
    run: Callable[..., Any],
    *,
    current: Callable[[], int] = torch.cuda.current_device,
    guard: Callable[[torch.device], AbstractContextManager[Any]] = torch.cuda.device,
) -> Callable[..., Any]:
    """Wrap `run` so that the device of its first tensor is the current device.

    Triton launches on the current device, whatever the device of the tensors, and would read
    foreign memory.
    """

    def guarded(*args: Any) -> Any:
        device = next(x.device for x in args if isinstance(x, torch.Tensor))
        if device.index == current():
            return run(*args)
        with guard(device):
            return run(*args)

    return guarded


@cache
def import_kernels(module: str) -> Any:
    """Import a module of Triton kernels.

    Raises:
        MissingPackageError: Triton is missing; only CUDA builds of torch include it.
    """
    optional_import("triton", "operations on CUDA", "graphmem-torch[triton]")
    return import_module(f"graphmem_torch.kernels.{module}")


def _lazy(launcher: str) -> Callable[..., Any]:
    module, function = launcher.split(":")

    def launch(*args: Any) -> Any:
        return getattr(import_kernels(module), function)(*args)

    return launch


def _without_gradient(name: str, operation: Any) -> Callable[..., Any]:
    def refuse_or_run(*args: Any) -> Any:
        check_no_gradient(name, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return operation(*args)

    return refuse_or_run
