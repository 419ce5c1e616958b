"""Detect chat exports by content and read them: a file of JSON or text, a folder, or a zip.

Programs: `chatgpt`, `claude`, `slack`, `whatsapp`, `telegram`, `discord`, each in the module of its
name. A zip is read without unpacking it to disk; only JSON and text in it are read, up to a limit.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, NoExportError
from graphmem_torch.readers.chatgpt import is_chatgpt, read_chatgpt
from graphmem_torch.readers.chats import EMPTY, ODD, Record, edited_at
from graphmem_torch.readers.claude import is_claude, read_claude
from graphmem_torch.readers.discord import is_discord, read_discord
from graphmem_torch.readers.jsonl import atom_from_record
from graphmem_torch.readers.slack import (
    SLACK_TABLES,
    SlackNames,
    is_slack_day,
    read_slack,
    slack_names,
    slack_tables,
)
from graphmem_torch.readers.source import decode
from graphmem_torch.readers.telegram import is_telegram, read_telegram
from graphmem_torch.readers.whatsapp import is_whatsapp, read_whatsapp

__all__ = ["export_atoms", "is_export", "is_zip_of_chats", "read_zip", "whatsapp_atoms"]

_PROGRAMS: list[
    tuple[Callable[[object], bool], Callable[[Any, Counter[str]], Iterator[Record]]]
] = [
    (is_claude, read_claude),
    (is_chatgpt, read_chatgpt),
    (is_discord, read_discord),
    (is_telegram, read_telegram),
]
_MOST_BYTES = 4 << 30  # maximum bytes that are read of a zip
_RATIO = 200  # maximum compression ratio of text; a higher one indicates a decompression bomb
_SMALL = 16 << 20  # bytes below which the ratio does not matter
_HIDDEN = ("__MACOSX", ".")


def is_export(data: object) -> bool:
    """Return whether parsed JSON is an export, or one day of a Slack export."""
    return is_slack_day(data) or any(recognised(data) for recognised, _ in _PROGRAMS)


def export_atoms(data: object, path: Path | None, losses: Counter[str]) -> Iterator[Atom]:
    """Yield the atoms of parsed JSON for which `is_export` is true.

    Args:
        data: Parsed JSON.
        path: Path of the file, beside which tables of names are looked up.
        losses: Counter of skipped content by kind; updated.
    """
    if is_slack_day(data):
        tables = [] if path is None else slack_tables(path)
        texts = {each.name: decode(each.read_bytes(), str(each)) for each in tables}
        channel = "slack" if path is None else path.resolve().parent.name
        yield from _atoms(read_slack(data, channel, slack_names(texts), losses), losses)  # type: ignore[arg-type]
        return
    yield from _atoms(_records(data, losses), losses)


def whatsapp_atoms(
    text: str, name: str, where: str, losses: Counter[str], order: str | None = None
) -> Iterator[Atom]:
    """Yield the atoms of a WhatsApp chat; see `read_whatsapp`.

    Raises:
        InputError: Ambiguous dates, see `read_whatsapp`; names the file.
    """
    try:
        yield from _atoms(read_whatsapp(text, name, losses, order=order), losses)
    except InputError as error:
        raise InputError(str(error), where=where) from error


def is_zip_of_chats(path: Path) -> bool:
    """Return whether a zip may hold an export, judged by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(_members(archive))
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def read_zip(
    path: Path, losses: Counter[str], *, order: str | None = None, limit: int = _MOST_BYTES
) -> Iterator[Atom]:
    """Yield the atoms of all exports in a zip.

    Args:
        path: Path of the zip.
        losses: Counter of skipped content by kind; updated.
        order: Order of day and month in WhatsApp chats, if known.
        limit: Maximum unpacked bytes that are read.

    Raises:
        NoExportError: The zip holds no export.
        InputError: Not a zip, or one that exceeds the limit or the compression ratio of text.
    """
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _of_zip(archive, _members(archive), path, losses, order, limit)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(
            f"expected a zip, got one that cannot be read ({error}); download it again", where=where
        ) from error
    except RuntimeError as error:
        raise InputError(
            f"expected a zip without a password, got one that cannot be read ({error}); unpack it",
            where=where,
        ) from error


def _of_zip(
    archive: zipfile.ZipFile,
    members: list[zipfile.ZipInfo],
    path: Path,
    losses: Counter[str],
    order: str | None,
    limit: int,
) -> Iterator[Atom]:
    where, found, left = str(path), False, limit
    packed = sum(each.compress_size for each in members)
    whole = sum(each.file_size for each in members)
    if whole > limit or (whole > _SMALL and whole > _RATIO * packed):
        raise InputError(
            f"expected a zip of at most {limit:,} bytes of text, got {whole:,} bytes packed into "
            f"{packed:,}; unpack it, and index what you need",
            where=where,
        )
    tables: defaultdict[PurePosixPath, dict[str, str]] = defaultdict(dict)
    days: defaultdict[PurePosixPath, list[Any]] = defaultdict(list)
    for member in members:
        with archive.open(member) as file:
            data = file.read(left + 1)
        left -= len(data)
        if left < 0:
            raise InputError(
                f"expected a zip of at most {limit:,} bytes of text, got more; unpack it, and "
                "index what you need",
                where=where,
            )
        inner, place = PurePosixPath(member.filename), f"{where}/{member.filename}"
        try:
            text = decode(data, place)
        except InputError:
            losses["file in the zip that is no UTF-8"] += 1
            continue
        if inner.suffix.lower() == ".txt":
            if is_whatsapp(text, inner.name):
                found = True
                yield from whatsapp_atoms(text, place, place, losses, order)
            continue
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            losses["file in the zip that is no JSON"] += 1
            continue
        if is_slack_day(parsed):
            days[inner.parent] += parsed
        elif is_export(parsed):
            found = True
            yield from _atoms(_records(parsed, losses), losses)
        elif inner.name in SLACK_TABLES:
            tables[inner.parent][inner.name] = text
    names: dict[PurePosixPath, SlackNames] = {
        folder: slack_names(texts) for folder, texts in tables.items()
    }
    for folder, messages in days.items():
        found = True
        known = names.get(folder.parent, SlackNames())
        yield from _atoms(read_slack(messages, folder.name, known, losses), losses)
    if not found:
        raise NoExportError(
            "expected an export of ChatGPT, Claude, Slack, WhatsApp, Telegram or Discord, got a "
            "zip without one; unpack it, and index the folder",
            where=where,
        )


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the JSON and text files of a zip, by name."""
    return sorted(
        (
            member
            for member in archive.infolist()
            if PurePosixPath(member.filename).suffix.lower() in (".json", ".txt")
            and not any(part.startswith(_HIDDEN) for part in PurePosixPath(member.filename).parts)
        ),
        key=lambda member: member.filename,
    )


def _records(data: object, losses: Counter[str]) -> Iterator[Record]:
    for recognised, read in _PROGRAMS:
        if recognised(data):
            yield from read(data, losses)
            return


def _atoms(records: Iterable[Record], losses: Counter[str]) -> Iterator[Atom]:
    """Yield the atoms of records, one for each id: the version edited last."""
    atoms: dict[str, Atom] = {}
    for each in records:
        try:
            atom = atom_from_record(each, losses=losses)
        except InputError:
            losses[ODD if str(each.get("text", "")).strip() else EMPTY] += 1
            continue
        before = atoms.setdefault(atom.id, atom)
        if before.digest != atom.digest:
            losses["message that is given twice"] += 1
            if edited_at(atom) > edited_at(before):
                atoms[atom.id] = atom
    yield from atoms.values()
