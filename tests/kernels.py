"""Modules of kernels for tests, which skip where Triton is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest


class _Missing:
    """Stands in for a module of kernels: whoever asks it for anything is skipped."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest itself looks at what a module of tests holds
            raise AttributeError(name)
        pytest.skip("no Triton: pip install 'graphmem-torch[triton]'")


def kernels(name: str) -> Any:
    """`graphmem_torch.kernels.<name>`."""
    try:
        return import_module(f"graphmem_torch.kernels.{name}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return _Missing()
