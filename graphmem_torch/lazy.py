"""Lazy names: a package imports a public name when it is first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Full name of the package.
        names: Names of each module, one text; the module without `graphmem_torch.`. A name that
            equals its module is the module itself.
    """
    modules = {name: module for module, own in names.items() for name in own.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = module = import_module(f"graphmem_torch.{modules[name]}")
        if modules[name] != name:
            value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load
