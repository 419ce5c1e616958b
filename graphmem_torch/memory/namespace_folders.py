"""Namespace folders: their names, listing and checks."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from graphmem_torch.errors import InputError, StoreError, nearest
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import DATABASE_NAME, NAMESPACES_NAME
from graphmem_torch.store.problems import check_store
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.text.unicode_forms import composed

__all__ = [
    "NAME_FILE",
    "NEW",
    "OLD",
    "archive_of",
    "bytes_in",
    "checked_name",
    "folders",
    "is_archive",
    "name_digest",
    "name_in",
    "namespace_folders",
    "namespace_names",
    "namespace_problems",
    "owner_of",
    "printable",
    "stored_form",
    "unknown_namespace",
]

_LONGEST = 200  # characters of a name
_ARCHIVE = "(archive)"  # prefix of the names of archives, which callers cannot use
_SHOWN = 5  # names in a message
_COMPARED = 2000  # maximum number of names compared to find the nearest
NAME_FILE = "name.txt"
"""Name of the file that holds the name of a namespace, in its folder."""

NEW, OLD = ".new", ".dropped"  # suffixes of folders being created and being deleted


def archive_of(name: str | None) -> str:
    """Return the namespace that is the archive of a memory, or of a namespace of it."""
    return _ARCHIVE if name is None else f"{_ARCHIVE} {name}"


def owner_of(archive: str) -> str | None:
    """Return the namespace whose archive has this name; None: the memory itself."""
    return archive.removeprefix(_ARCHIVE).strip() or None


def is_archive(name: str) -> bool:
    """Return whether a name is that of an archive."""
    return name.startswith(_ARCHIVE)


def checked_name(name: object) -> str:
    """Return a name of a namespace that a caller gives, checked.

    Raises:
        InputError: No printable text of 1 to 200 characters, spaces at its ends, or the name of
            an archive.
    """
    named = printable(name)
    if is_archive(named):
        raise InputError(
            f"namespace: expected another name than one that begins with {_ARCHIVE!r}, got "
            f"{named!r:.80}; `upkeep.archived` gives the archive"
        )
    return named


def printable(name: object) -> str:
    """Return a name of a namespace or an archive, checked.

    Raises:
        InputError: No printable text of 1 to 200 characters, or spaces at its ends.
    """
    longest = _LONGEST + (len(archive_of("")) if str(name).startswith(_ARCHIVE) else 0)
    fits = isinstance(name, str) and 0 < len(name) <= longest and name.isprintable()
    if not isinstance(name, str) or not fits or name != name.strip():
        raise InputError(
            f"namespace: expected a name of 1 to {_LONGEST} printable characters without spaces at "
            f"its ends, got {name!r:.80}; give each user a name, such as an id"
        )
    return name


def namespace_folders(folder: Path) -> list[Path]:
    """Return the folders of the namespaces of the store in a folder."""
    found = folders(folder / NAMESPACES_NAME)
    return sorted(path for path in found if (path / DATABASE_NAME).is_file())


def folders(folder: Path) -> list[Path]:
    """Return the folders in a folder of namespaces.

    Raises:
        StoreError: They cannot be listed.
    """
    try:
        with os.scandir(folder) as found:
            return [
                Path(each.path)
                for each in found
                if each.is_dir(follow_symlinks=False) and not each.name.endswith((NEW, OLD))
            ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise store_error(error, folder) from error


def name_in(path: Path) -> str | None:
    """Return the name of the namespace in a folder; None if the folder is not its own."""
    try:
        name = (path / NAME_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return name if name_digest(name) == path.name else None


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        return sum(each.stat().st_size for each in found if each.is_file(follow_symlinks=False))
    return 0  # dropped meanwhile


def name_digest(name: str) -> str:
    """Return the name of a namespace's folder: the SHA-256 of its name, in hex."""
    return hashlib.sha256(name.encode()).hexdigest()


def namespace_names(folder: Path) -> list[str]:
    """Return the names of the namespaces in a folder, sorted, with those of archives."""
    named = (name_in(path) for path in folders(folder))
    return sorted(name for name in named if name is not None)


def namespace_problems(folder: Path) -> list[str]:
    """Return the problems of the namespaces in a folder, as sentences; empty if there are none."""
    problems = []
    for path in sorted(folders(folder)):
        name = name_in(path)
        if name is None:
            problems.append(
                f"{path}: expected a file {NAME_FILE} with the name of this namespace, got another "
                "or none; nothing is lost: ask for it by its name, which writes the file again"
            )
        try:
            with StoreReader.open_to_read(path) as store:
                found = check_store(store)
        except StoreError as error:
            found = [str(error)]
        problems += [f"namespace {name or path.name!r}: {each}" for each in found]
    return problems + [
        f"{left}: a namespace that was dropped is not deleted yet; drop it, or another, again"
        for left in sorted(folder.glob(f"*{OLD}"))
    ]


def unknown_namespace(name: str, names: Iterable[str]) -> InputError:
    """Return the error for an unknown name; it gives the nearest known ones."""
    known = [each for each in names if not is_archive(each)]
    if len(known) > _COMPARED:  # comparing all would be slow
        near = name[:1].casefold()
        known = [each for each in known if each[:1].casefold() == near][:_COMPARED]
    close = nearest(name, known)
    some = ", ".join(map(repr, sorted(known)[:_SHOWN]))
    do = f"did you mean {close!r}?" if close else f"there are {some}" if some else "there is none"
    return InputError(f"namespace: expected one that this memory has, got {name!r:.80}; {do}")


def stored_form(name: str, folder: Path) -> str:
    """Return the form in which the name of a namespace in a folder is stored, else NFC.

    Names that differ in form only, which older releases created, are different namespaces: the
    given form takes precedence.
    """
    plain = composed(name)
    for form in (name, plain):
        if (folder / name_digest(form)).is_dir():
            return form
    odd = (each for each in namespace_names(folder) if composed(each) == plain)
    return next(odd, plain)
