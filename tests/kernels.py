"""Modules of kernels for tests, which skip where Triton is not installed or cannot interpret."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import pytest
import torch


class _Missing:
    """Stands in for a module of kernels: whoever asks it for anything is skipped."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest itself looks at what a module of tests holds
            raise AttributeError(name)
        pytest.skip(self._reason)


@cache
def lacking() -> str | None:
    """Why no kernel can run here; None where they do."""
    try:
        spmm = import_module("graphmem_torch.kernels.spmm")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return "no Triton: pip install 'graphmem-torch[triton]'"
    if torch.cuda.is_available():
        return None
    _patch_once()
    row = torch.tensor([0, 1], dtype=torch.int32)
    try:
        spmm.launch_spmm(row, row[:1], torch.ones(1), torch.ones(1, 1), False)
    except Exception as error:
        if "only 0-dimensional arrays" not in str(error):
            raise
        return "this Triton does not interpret with numpy 2.4 or newer: pip install 'numpy<2.4'"
    return None


def _patch_once() -> None:
    """The interpreter patches the language for a module of device functions once.

    By itself it goes through all of the language again at each call of such a function.
    """
    from triton.runtime import interpreter

    patched = set[int]()

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if id(self.fn.__globals__) not in patched:
            interpreter._patch_lang(self.fn)
            patched.add(id(self.fn.__globals__))
        return self.rewrite()(*arguments, **options)

    interpreter.InterpretedFunction.__call__ = call


def kernels(name: str) -> Any:
    """`graphmem_torch.kernels.<name>`."""
    reason = lacking()
    return import_module(f"graphmem_torch.kernels.{name}") if reason is None else _Missing(reason)
