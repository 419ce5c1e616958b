"""Reading: files, folders and standard input to atoms."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.text.chunk import chunk_text
from graphmem_torch.text.locomo import LocomoSample, is_locomo, locomo_atoms, read_locomo
from graphmem_torch.text.pieces import Tokenizer
from graphmem_torch.text.records import read_records
from graphmem_torch.text.source import decode, read_bytes

__all__ = ["LocomoSample", "document_atoms", "read_atoms", "read_locomo"]

_FORMATS = {".txt": "text", ".md": "text", ".jsonl": "jsonl", ".json": "locomo"}
_log = logging.getLogger(__name__)


def read_atoms(
    paths: Sequence[str | Path],
    *,
    tokenizer: Tokenizer,
    max_tokens: int = 254,
    format: str | None = None,
    locomo_input: str = "raw",
) -> Iterator[Atom]:
    """The atoms of files, folders and standard input, one after another.

    `.txt` and `.md` are cut into chunks; `.jsonl` has one atom a line; `.json` is LoCoMo. Folders
    are read whole, in sorted order; hidden files, other suffixes and (inside a folder) empty files
    are left out, the latter two with a warning. Ids are the same in every run.

    Args:
        paths: Files, folders, and "-" for standard input.
        tokenizer: Cuts texts into the pieces that `max_tokens` counts.
        max_tokens: Pieces of a chunk, at most.
        format: "text", "jsonl" or "locomo" for every file given, whatever its suffix.
        locomo_input: "raw" for the turns alone, "observations" for the facts of the data set as
            well.

    Yields:
        Atoms in the order of the input.

    Raises:
        InputError: Input that cannot be used, with file and line.
    """
    if format not in (None, *_FORMATS.values()):
        raise InputError(f'format: expected "text", "jsonl" or "locomo", got {format!r}')
    sources = list(_sources(paths, format))
    names = _names(sources)
    for source, name in zip(sources, names, strict=True):
        yield from _read(source, name, tokenizer, max_tokens, locomo_input)


def document_atoms(
    text: str,
    *,
    name: str,
    tokenizer: Tokenizer,
    max_tokens: int = 254,
    time: float | None = None,
) -> Iterator[Atom]:
    """The chunks of one document: kind "chunk", session `name`, ids "<name>#0", "<name>#1", ...

    The texts of the chunks joined are `text`; `meta` has the character offsets.
    """
    if not text.strip():
        raise InputError("expected text, got an empty document", where=name)
    for i, (start, end) in enumerate(chunk_text(text, tokenizer, max_tokens)):
        meta = {"start": start, "end": end}
        yield Atom(f"{name}#{i}", text[start:end], kind="chunk", session=name, time=time, meta=meta)


@dataclass(frozen=True)
class _Source:
    path: Path | None  # None: standard input
    relative: str
    format: str | None

    @property
    def where(self) -> str:
        return "standard input" if self.path is None else str(self.path)


def _sources(paths: Sequence[str | Path], format: str | None) -> Iterator[_Source]:
    if isinstance(paths, (str, Path)):
        paths = [paths]
    if not paths:
        raise InputError("expected files, folders, or - for standard input; got none")
    for given in paths:
        path = Path(given)
        if str(given) == "-":
            yield _Source(None, "stdin", format)
        elif path.is_dir():
            yield from _folder(path, format)
        elif not path.exists():
            raise InputError("no such file or folder", where=str(path))
        elif format is None and path.suffix.lower() not in _FORMATS:
            raise InputError(
                f"expected a file of {', '.join(_FORMATS)}, got the suffix {path.suffix!r}; "
                "rename it, or name its format (text, jsonl or locomo)",
                where=str(path),
            )
        else:
            yield _Source(path, path.name, format or _FORMATS[path.suffix.lower()])


def _folder(root: Path, format: str | None) -> Iterator[_Source]:
    found = False
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            kind = _FORMATS.get(path.suffix.lower())
            if kind is None or not path.is_file():
                _log.warning("%s: left out, its suffix is none of %s", path, ", ".join(_FORMATS))
            elif path.stat().st_size == 0:
                _log.warning("%s: left out, the file is empty", path)
            else:
                found = True
                yield _Source(path, path.relative_to(root).as_posix(), format or kind)
    if not found:
        raise InputError(
            f"the folder holds nothing to read; expected files of {', '.join(_FORMATS)}",
            where=str(root),
        )


def _names(sources: Sequence[_Source]) -> list[str]:
    """A name for each source: its path inside the folder given, longer where two would be alike."""
    names = [source.relative for source in sources]
    places = [source.path.resolve() if source.path else None for source in sources]
    for depth in range(2, max((len(place.parts) for place in places if place), default=0) + 1):
        owners: dict[str, set[Path | None]] = {}
        for name, place in zip(names, places, strict=True):
            owners.setdefault(name, set()).add(place)
        clashing = [len(owners[name]) > 1 for name in names]
        if not any(clashing):
            break
        for i, place in enumerate(places):
            if clashing[i] and place is not None and len(names[i].split("/")) < depth:
                names[i] = "/".join(place.parts[-depth:])
    return names


def _read(
    source: _Source, name: str, tokenizer: Tokenizer, max_tokens: int, locomo_input: str
) -> Iterator[Atom]:
    where, format = source.where, source.format
    if format == "jsonl" and source.path is not None:
        yield from _stream_records(source.path)
        return
    data = read_bytes(source.path)
    text = decode(data, where)
    if format is None:
        format = _guess(text)
    if source.path is None:
        # What comes through a pipe has no name of its own; its content gives it one, the same in
        # every run.
        name = f"stdin-{text_hash(text)[:12]}"
    if format == "jsonl":
        yield from read_records(io.BytesIO(data), where)
    elif format == "locomo":
        yield from locomo_atoms(text, where, input=locomo_input)
    else:
        yield from document_atoms(text, name=name, tokenizer=tokenizer, max_tokens=max_tokens)


def _stream_records(path: Path) -> Iterator[Atom]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    with file:
        yield from read_records(file, str(path))


def _guess(text: str) -> str:
    """The format of standard input: what its beginning parses as."""
    start = text.lstrip()
    if not start.startswith(("{", "[")):
        return "text"
    try:
        if is_locomo(json.loads(text)):
            return "locomo"
    except ValueError:
        pass
    try:
        first = json.loads(start.splitlines()[0])
    except ValueError:
        return "text"
    return "jsonl" if isinstance(first, dict) else "text"
