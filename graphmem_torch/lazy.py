"""Names of packages (PEP 562) and patterns that are made at their first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, cast

__all__ = ["lazy_names", "lazy_pattern"]


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


class _Pattern:
    """Regular expression that is compiled when one of its attributes is first used."""

    def __init__(self, expression: str, flags: int) -> None:
        self._given = (expression, flags)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        # Kept, so that later uses cost what those of a compiled pattern do.
        value = getattr(self._compiled, name)
        setattr(self, name, value)
        return value


def lazy_pattern(expression: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression that is compiled at its first use.

    A command uses few of the patterns of the modules it loads, and each takes a third of a
    millisecond to compile.

    Args:
        expression: Regular expression.
        flags: Flags of `re`.
    """
    return cast("re.Pattern[str]", _Pattern(expression, flags))
