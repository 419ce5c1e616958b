"""Folders of the namespaces of a memory: how they are named, listed and checked."""

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
_ARCHIVE = "(archive)"  # begins the names of archives, which are namespaces that nobody names
_COMPARED = 2000  # names among which the nearest is looked for
NAME_FILE = "name.txt"
"""The file of a namespace's folder that holds its name."""

NEW, OLD = ".new", ".dropped"  # of folders that are being made and being deleted


def archive_of(name: str | None) -> str:
    """The namespace that is the archive of a memory, or of a namespace of it."""
    return _ARCHIVE if name is None else f"{_ARCHIVE} {name}"


def owner_of(archive: str) -> str | None:
    """The namespace whose archive has this name; None: it is that of the memory."""
    return archive.removeprefix(_ARCHIVE).strip() or None


def is_archive(name: str) -> bool:
    """Whether a name is that of an archive."""
    return name.startswith(_ARCHIVE)


def checked_name(name: object) -> str:
    """A name of a namespace that a caller gives.

    Raises:
        InputError: It is no printable text of 1 to 200 characters, has spaces at its ends, or is
            that of an archive.
    """
    named = printable(name)
    if is_archive(named):
        raise InputError(
            f"namespace: expected another name than one that begins with {_ARCHIVE!r}, got "
            f"{named!r:.80}; `upkeep.archived` gives the archive"
        )
    return named


def printable(name: object) -> str:
    """A name of a namespace or an archive.

    Raises:
        InputError: It is no printable text of 1 to 200 characters, or has spaces at its ends.
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
    """The folders of the namespaces of the store in a folder."""
    found = folders(folder / NAMESPACES_NAME)
    return sorted(path for path in found if (path / DATABASE_NAME).is_file())


def folders(folder: Path) -> list[Path]:
    """Those of the namespaces.

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
    """The name of the namespace in a folder; None where that is not its folder."""
    try:
        name = (path / NAME_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return name if name_digest(name) == path.name else None


def bytes_in(folder: Path) -> int:
    """Size of the files in a folder; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        return sum(each.stat().st_size for each in found if each.is_file(follow_symlinks=False))
    return 0  # dropped meanwhile


def name_digest(name: str) -> str:
    """Name of the folder of a namespace: the SHA-256 of its name, in hex."""
    return hashlib.sha256(name.encode()).hexdigest()


def namespace_names(folder: Path) -> list[str]:
    """The names of the namespaces in a folder, sorted, those of archives included."""
    named = (name_in(path) for path in folders(folder))
    return sorted(name for name in named if name is not None)


def namespace_problems(folder: Path) -> list[str]:
    """Sentences about what is wrong with the namespaces in a folder; empty when all is well."""
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
    """The error for a name that none of these namespaces has; names the nearest."""
    known = [each for each in names if not is_archive(each)]
    if len(known) > _COMPARED:  # comparing takes its time
        near = name[:1].casefold()
        known = [each for each in known if each[:1].casefold() == near][:_COMPARED]
    close = nearest(name, known)
    do = f"did you mean {close!r}?" if close else "`list(memory.namespaces)` names them"
    return InputError(f"namespace: expected one that this memory has, got {name!r:.80}; {do}")


def stored_form(name: str, folder: Path) -> str:
    """The form in which the name of a namespace in a folder is stored, else NFC.

    Names that differ in form only, which older releases made, stay two: the form that is given is
    looked for first.
    """
    plain = composed(name)
    for form in (name, plain):
        if (folder / name_digest(form)).is_dir():
            return form
    odd = (each for each in namespace_names(folder) if composed(each) == plain)
    return next(odd, plain)
