"""Import of the frameworks that adapters serve, and the memory that an adapter is given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from graphmem_torch.errors import InputError, MissingPackageError, unknown

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = [
    "MemoryOwner",
    "check_arguments",
    "check_options",
    "expect_no_options",
    "given_memory",
    "importing",
    "open_options",
]


@contextmanager
def importing(module: str, distribution: str, tested: str, extra: str) -> Iterator[None]:
    """Turn a failed import of a framework into one line that says what to install.

    Args:
        module: Top-level module of the framework.
        distribution: Distribution whose names the block imports.
        tested: Versions of the distribution that are tested, such as `>=4.3,<5`.
        extra: Extra of this package that installs it.

    Raises:
        MissingPackageError: The framework is missing, or lacks a name, as it is older or newer.
    """
    try:
        yield
    except ImportError as error:
        install = f"pip install 'graphmem-torch[{extra}]'"
        if find_spec(module) is None:
            raise MissingPackageError(
                f"{module}: expected the package for its adapter, got none; {install}"
            ) from error
        try:
            got = version(distribution)
        except PackageNotFoundError:
            got = "none"
        reason = str(error).partition(" (")[0]
        raise MissingPackageError(
            f"{distribution}: expected {tested}, got {got} ({reason}); {install}"
        ) from error


def check_options(options: Mapping[str, Any]) -> None:
    """Check the names of arguments for `Memory.open` that an adapter passes on.

    Raises:
        InputError: An unknown name, with the nearest known one.
    """
    if not options:  # which most servers have not, and their start loads no torch
        return
    known = open_options()
    for name in options:
        if name not in known:
            raise InputError(unknown("option", name, known))


def open_options() -> list[str]:
    """Return the names of the arguments of `Memory.open` beside the path."""
    from graphmem_torch.memory import Memory

    return [*inspect.signature(Memory.open).parameters][1:]


def check_arguments(given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of arguments that an adapter has itself.

    Raises:
        InputError: An unknown name, with the nearest known one.
    """
    names = [*known]
    for name in given:
        if name not in names:
            raise InputError(unknown("argument", name, names))


def expect_no_options(options: Mapping[str, Any]) -> None:
    """Raise `InputError` for options beside a memory that is open."""
    if options:
        raise InputError(
            f"{min(options)}: expected no options with a memory that is open, got "
            f"{', '.join(sorted(options))}; give them to `Memory.open`"
        )


class MemoryOwner:
    """Base of adapters: a context manager that closes the memory that it has opened.

    Classes set `memory` and `_owned` to what `given_memory` returns.
    """

    __slots__ = ()

    def close(self: Any) -> None:
        """Close the memory if it was opened here."""
        if self._owned:
            self.memory.close()

    def __enter__(self) -> Self:
        """Return the same object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the memory if it was opened here."""
        self.close()


def given_memory(
    memory: str | os.PathLike[str] | Memory | None, options: dict[str, Any]
) -> tuple[Memory, bool]:
    """Return the memory that an adapter is given, and whether the adapter must close it.

    Args:
        memory: Folder of a store, which is opened; None for a memory in the process; or an open
            memory.
        options: Arguments of `Memory.open`.

    Raises:
        InputError: Options with an open memory or unknown ones, or neither a path nor a memory.
        ConfigError, EmbedderError, StoreError: See `Memory.open`.
    """
    from graphmem_torch.memory import Memory  # loads torch, which `importing` does without

    if isinstance(memory, Memory):
        expect_no_options(options)
        return memory, False
    if not isinstance(memory, str | os.PathLike | None):
        raise InputError(
            f"memory: expected a path or a `Memory`, got {type(memory).__name__}; give one"
        )
    check_options(options)
    return Memory.open(memory, **options), True
