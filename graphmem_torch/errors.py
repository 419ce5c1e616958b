"""Exceptions of graphmem_torch.

Every message reads `name: expected ..., got ...; what to do`. `InputError` and its kin derive from
`ValueError`, so that callers who only know the standard library catch them too.
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

_ENTRIES = 10_000  # of a folder that are looked at for a similar name


class GraphMemError(Exception):
    """Base of every error that graphmem_torch raises on purpose."""


class InputError(GraphMemError, ValueError):
    """Input that cannot be used; `where` is the file and line it came from, when there is one."""

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class EmptyMessageError(InputError):
    """A message of a chat without any text; whoever reads many passes over it."""


class NoExportError(InputError):
    """A zip without an export of a chat program; one in a folder is passed over."""


class MissingNodeError(InputError):
    """A node number that no atom has; it may have had one when the number was read."""


class MissingPackageError(InputError, ImportError):
    """A package that is not installed; the message names what brings it."""


class ConfigError(GraphMemError, ValueError):
    """A preset or an override that does not fit the configuration dataclasses."""


class EmbedderError(GraphMemError, ValueError):
    """An embedder that cannot be loaded, gives unusable vectors, or is not the store's own."""


class OracleError(GraphMemError):
    """A language model gave no usable answer; the message says why and what to do."""


class StoreError(GraphMemError):
    """The store cannot do what was asked (full disk, read-only, wrong schema version)."""


class StoreLockedError(StoreError):
    """Another writer has kept the store for too long; the message names its process."""


class StoreDamagedError(StoreError):
    """The store's database is damaged; the message says how to find and mend it."""


def unknown(name: str, got: object, known: Iterable[str], *, what: str = "one of") -> str:
    """The message for a value that is none of those known, with the nearest of them.

    Args:
        name: Name of the argument, setting or field.
        got: Value that came.
        known: Values that would do.
        what: Words before their list.
    """
    listed = [str(value) for value in known]
    if not listed:
        return f"{name}: expected none, as there is none, got {got!r:.80}; leave it out"
    close = nearest(str(got), listed)
    do = f"did you mean {close!r}?" if close else "choose one of them"
    return f"{name}: expected {what} {', '.join(listed)}, got {got!r:.80}; {do}"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The one of some names that is most like another, in whatever case; None: none is like it."""
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
    """The path that may have been meant by one that is not there; None: there is none like it.

    Args:
        path: Path; each part of it that is missing is taken for the nearest name in its place.
        fits: Whether a path would do.
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
    """The path of a file that is to be written, looked at before the work for it is done.

    Args:
        path: Path of the file, which may be there.
        name: Name of the argument.

    Raises:
        InputError: A folder, or a file in a folder that is not there.
    """
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
    """What an error of another library says, in one line of bounded length."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C be a `KeyboardInterrupt` while tensors are read from a file.

    Where it comes while torch looks at a storage, torch raises a `ValueError` in its place.
    """
    try:
        yield
    except ValueError as error:
        if "the shape of object type 'torch.storage" not in str(error):
            raise
        raise KeyboardInterrupt from error


@contextmanager
def located(where: str | None) -> Iterator[None]:
    """Has an `InputError` say the file and line of what it is about, where it does not yet."""
    try:
        yield
    except InputError as error:
        if where is None or error.where is not None:
            raise
        raise InputError(str(error), where=where) from error


def optional_import(module: str, purpose: str, install: str, otherwise: str = "") -> Any:
    """A module that not every installation has.

    Args:
        module: Dotted name of the module.
        purpose: What needs it, for the message.
        install: What pip installs to have it, such as "graphmem-torch[openai]".
        otherwise: What to do without it.

    Raises:
        MissingPackageError: It cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{module.split('.')[0]}: expected the package for {purpose}, got {error}; "
            f"pip install '{install}'{f', or {otherwise}' if otherwise else ''}"
        ) from error
