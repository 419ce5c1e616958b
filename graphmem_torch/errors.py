"""Exceptions of graphmem_torch.

Every message reads `name: expected ..., got ...; what to do`. `InputError` and its subclasses are
`ValueError`s, so callers that know only the standard library catch them too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

__all__ = [
    "ConfigError",
    "EmbedderError",
    "EmptyMessageError",
    "GraphMemError",
    "InputError",
    "MissingNodeError",
    "MissingPackageError",
    "OracleError",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "first_line",
    "interruptible",
    "located",
    "nearest",
    "nearest_names",
    "nearest_path",
    "optional_import",
    "output_file",
    "unknown",
]

_ENTRIES = 10_000  # of a folder, compared to find a similar name


class GraphMemError(Exception):
    """Base of every error that graphmem_torch raises on purpose."""


class InputError(GraphMemError, ValueError):
    """Unusable input; `where` is its file and line, if known."""

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class EmptyMessageError(InputError):
    """Chat message without text; readers of many messages skip it."""


class NoExportError(InputError):
    """Zip without a chat export; readers of a folder skip it."""


class MissingNodeError(InputError):
    """Node number without an atom, which may have existed when the number was read."""


class MissingPackageError(InputError, ImportError):
    """Missing package; the message says how to install it."""


class ConfigError(GraphMemError, ValueError):
    """Preset or override that does not match the configuration dataclasses."""


class EmbedderError(GraphMemError, ValueError):
    """Embedder that cannot be loaded, returns unusable vectors, or is not the store's own."""


class OracleError(GraphMemError):
    """Missing or unusable answer of a language model; the message says why and what to do."""


class StoreError(GraphMemError):
    """Operation that the store cannot perform (full disk, read-only, wrong schema version)."""


class StoreLockedError(StoreError):
    """Store held by another writer for too long; the message names its process."""


class StoreDamagedError(StoreError):
    """Damaged database of a store; the message says how to find and repair the damage."""


def unknown(name: str, got: object, known: Iterable[str], *, what: str = "one of") -> str:
    """Return the message for an unknown value, with the most similar known one.

    Args:
        name: Name of the argument, setting or field.
        got: Unknown value.
        known: Known values.
        what: Words before the list of known values.
    """
    listed = [str(value) for value in known]
    if not listed:
        return f"{name}: expected none, as there is none, got {got!r:.80}; leave it out"
    close = nearest(str(got), listed)
    do = f"did you mean {close!r}?" if close else "choose one of them"
    return f"{name}: expected {what} {', '.join(listed)}, got {got!r:.80}; {do}"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """Return the name most similar to `name`, ignoring case; None if none is similar."""
    return next(iter(nearest_names(name, known, 1, cutoff=cutoff)), None)


def nearest_names(name: str, known: Iterable[str], count: int, *, cutoff: float = 0.5) -> list[str]:
    """Return the names most like another one, in whatever case, the nearest first.

    Args:
        name: Name that was given.
        known: Names to compare it with; of those that differ in case alone the first counts.
        count: Maximum number of names.
        cutoff: Minimum likeness in [0, 1], as `difflib` measures it.
    """
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    close = get_close_matches(name.casefold(), folded, n=count, cutoff=cutoff)
    return [folded[each] for each in close]


def nearest_path(path: Path, fits: Callable[[Path], bool] = Path.exists) -> Path | None:
    """Return the existing path most similar to a missing one; None if none is similar.

    Args:
        path: Path; each missing part is replaced by the most similar name in its folder.
        fits: Condition that the path must satisfy.
    """
    folder = path.parent
    with suppress(OSError, ValueError):
        if not folder.is_dir():
            near = nearest_path(folder, Path.is_dir)
            if near is None or fits(near / path.name):
                return near and near / path.name
            folder = near
        names = [each.name for each in islice(folder.iterdir(), _ENTRIES) if fits(each)]
        close = nearest(path.name, names)
        return folder / close if close else None
    return None


def output_file(path: str | os.PathLike[str], name: str = "path") -> Path:
    """Return the path of a file to write, checked before the work for it is done.

    Args:
        path: Path of the file, which may exist.
        name: Name of the argument.

    Raises:
        InputError: No path, a folder, or one in a folder that does not exist.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"{name}: expected the path of a file, got {path!r:.60}; give one")
    target = Path(path)
    if target.is_dir():
        raise InputError(
            f"{name}: expected a file to write, got the folder {str(target)!r}; name a file"
        )
    if not target.parent.is_dir():
        raise InputError(
            f"{name}: expected a file in a folder that exists, got {str(target)!r}; make the folder"
        )
    return target


def first_line(error: BaseException) -> str:
    """Return the message of a foreign error, in one line of bounded length."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt` while tensors are read from a file.

    If it arrives while torch inspects a storage, torch raises a `ValueError` instead.
    """
    try:
        yield
    except ValueError as error:
        if "the shape of object type 'torch.storage" not in str(error):
            raise
        raise KeyboardInterrupt from error


@contextmanager
def located(where: str | None) -> Iterator[None]:
    """Add the file and line to an `InputError` that does not have them yet."""
    try:
        yield
    except InputError as error:
        if where is None or error.where is not None:
            raise
        raise InputError(str(error), where=where) from error


def optional_import(module: str, purpose: str, install: str, otherwise: str = "") -> Any:
    """Import a module that may be missing.

    Args:
        module: Dotted name of the module.
        purpose: Use of the module, for the message.
        install: Argument of pip that installs it, such as "graphmem-torch[openai]".
        otherwise: Alternative without the module, for the message.

    Raises:
        MissingPackageError: The module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{module.split('.')[0]}: expected the package for {purpose}, got {error}; "
            f"pip install '{install}'{f', or {otherwise}' if otherwise else ''}"
        ) from error
