"""Read files, folders and standard input into atoms."""

from __future__ import annotations

import io
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import InputError, NoExportError, nearest_path, unknown
from graphmem_torch.readers.chats import is_export_atom
from graphmem_torch.readers.entities import is_graph_line, read_graph
from graphmem_torch.readers.exports import (
    export_atoms,
    is_export,
    is_zip_of_chats,
    read_zip,
    whatsapp_atoms,
)
from graphmem_torch.readers.headings import chunk_titles, file_title
from graphmem_torch.readers.jsonl import read_records
from graphmem_torch.readers.locomo import is_locomo, locomo_atoms
from graphmem_torch.readers.proofs import is_edge_table, proof_format, read_proofs, set_names
from graphmem_torch.readers.slack import is_slack_table
from graphmem_torch.readers.source import (
    decode,
    leaving_out,
    parse_json,
    raw_lines,
    raw_parts,
    read_bytes,
    says_nothing,
)
from graphmem_torch.readers.unit_rows import InlineVectors
from graphmem_torch.readers.whatsapp import WHATSAPP_ORDERS, is_whatsapp
from graphmem_torch.text.sentences import chunk_text
from graphmem_torch.text.tokens import Tokenizer

__all__ = [
    "SUFFIXES",
    "Source",
    "check_paths",
    "common_base",
    "document_atoms",
    "find_sources",
    "proof_sets",
    "read_atoms",
    "read_source",
    "source_name",
    "told_by_content",
]
_FORMATS = {".txt": "text", ".md": "text", ".jsonl": "jsonl", ".json": "locomo", ".zip": "zip"}
SUFFIXES = frozenset(_FORMATS)
"""Suffixes of the files that are read."""

_NAMES = ("text", "jsonl", "locomo", *WHATSAPP_ORDERS)  # formats that a caller may name
_HEAD = 1 << 14  # bytes at the beginning of a file that identify a chat
_RENAME = "rename it, or the folder that it is in"
_log = logging.getLogger(__name__)


def read_atoms(
    paths: Sequence[str | os.PathLike[str]],
    *,
    tokenizer: Tokenizer,
    max_tokens: int = 254,
    format: str | None = None,
    locomo_input: str = "raw",
    origins: dict[str, str] | None = None,
    base: Path | None = None,
    known: Container[str] = (),
    skipped: list[str] | None = None,
    losses: Counter[str] | None = None,
) -> Iterator[Atom]:
    """Yield the atoms of files, folders and standard input, in order.

    `.txt` and `.md` are cut into chunks; `.jsonl` has one atom a line; `.json` is LoCoMo. Detected
    by content are:

    - chat exports in `.json`, `.txt` and `.zip`, one atom a message (`readers.exports`);
    - graphs of the MCP reference memory server in `.jsonl` and `.json` (`readers.entities`);
    - statements or modules of a proof library in `.jsonl`, with their edges beside them;
    - Lean blueprints in `.json`. If there are several proof sets, ids begin with the set's name.

    Folders are read recursively, in sorted order. Hidden files are skipped. Skipped with a warning
    are other suffixes, empty or blank files, broken links, other JSON, and unreadable folders.

    Ids are equal in every run. Ids of chunks begin with the path of their document: relative to
    `base` if it is inside, else absolute.

    Args:
        paths: Paths of files, of folders, and "-" for standard input.
        tokenizer: Tokenizer whose pieces `max_tokens` counts.
        max_tokens: Maximum pieces of a chunk.
        format: Name of a format ("text", "jsonl" or "locomo") for all files, whatever their suffix.
            "whatsapp-dmy" and "whatsapp-mdy" state the order of day and month in a chat.
        locomo_input: Parts to read of LoCoMo: "raw" for the turns, "observations" for the facts of
            the data set as well.
        origins: Mapping from atom id to file and (JSON lines) line; updated.
        base: Folder that documents are named from, which a store keeps (`graphmem index`); made ids
            then include the file. By default the current folder, and made ids depend on content
            alone.
        known: Stored ids; see `read_records`.
        skipped: List of errors; updated. With it, bad files and lines are skipped; without it the
            first one raises.
        losses: Counter of dropped content by kind; updated.

    Yields:
        Atoms in the order of the input.

    Raises:
        InputError: Invalid input; names file and line.
    """
    sources = list(find_sources(paths, format, skipped))
    sets = proof_sets(sources, named=format is not None)
    for source in sources:
        path = source.path
        with leaving_out(skipped):
            if path is not None and not source.named and says_nothing(raw_parts(path)):
                _log.warning("%s: left out, the file is empty", path)
                continue
            if path is not None and path in sets:
                prefix = f"{sets[path]}:" if len(sets) > 1 else ""
                yield from read_proofs(path, prefix=prefix, origins=origins)
                continue
            name = "" if path is None else source_name(path, base)
            yield from read_source(
                source if format else told_by_content(source),
                tokenizer=tokenizer,
                name=name,
                salt="" if base is None else name,
                max_tokens=max_tokens,
                locomo_input=locomo_input,
                origins=origins,
                known=known,
                skipped=skipped,
                losses=losses,
            )


def proof_sets(sources: Iterable[Source], *, named: bool = False) -> dict[Path, str]:
    """Return the names of the proof libraries and blueprints, detected by content, by file.

    Args:
        sources: Sources that were found.
        named: Whether the caller named a format; then the result is empty.

    Raises:
        InputError: Two sets with one name.
    """
    proofs = []
    for path in [] if named else [source.path for source in sources if source.path]:
        with leaving_out([]):  # reading it reports the error
            proofs += [path] if proof_format(path) else []
    return set_names(proofs)


def check_paths(paths: Sequence[str | os.PathLike[str]], format: str | None = None) -> None:
    """Check the paths before anything is read; see `read_atoms` for the arguments.

    Raises:
        InputError: No path, a missing one, a path that is no text, or a suffix without a format.
    """
    if not paths:
        raise InputError(
            "paths: expected files, folders, or - for standard input, got none; give one"
        )
    for given in paths:
        if not isinstance(given, (str, os.PathLike)):
            raise InputError(f"paths: expected paths, got {given!r:.80}; leave it out")
        if not os.fspath(given):  # it would be the current folder
            raise InputError("paths: expected files or folders, got an empty path; name one")
        path = Path(given)
        if str(path) == "-":
            continue
        if not _is_text(path.resolve()):
            raise InputError(
                f"expected a path in UTF-8, got other bytes; {_RENAME}", where=str(path)
            )
        if path.is_dir():
            continue
        if not path.exists():
            near = nearest_path(path)
            do = f"did you mean {near}?" if near else "check its path"
            raise InputError(
                f"expected a file or a folder, got no such file or folder; {do}", where=str(path)
            )
        if format is None and path.suffix.lower() not in _FORMATS:
            raise InputError(
                f"expected a file of {', '.join(_FORMATS)}, got the suffix {path.suffix!r}; "
                "rename it, or name its format (text, jsonl or locomo)",
                where=str(path),
            )


def document_atoms(
    text: str,
    *,
    name: str,
    tokenizer: Tokenizer,
    max_tokens: int = 254,
    time: float | None = None,
    title: str | None = None,
) -> Iterator[Atom]:
    """Yield the chunks of a document: kind "chunk", session `name`, ids "<name>#0", "<name>#1", ...

    The texts of the chunks joined are `text`; `meta` has the character offsets. Titles are the
    headings of a Markdown document, else `title` (`headings.chunk_titles`).
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"name: expected a name, got {name!r:.80}; give the document one")
    if not isinstance(text, str) or not text.strip():
        got = "an empty document" if isinstance(text, str) else f"{text!r:.80}"
        raise InputError(f"expected text, got {got}; leave it out", where=name)
    slices = chunk_text(text, tokenizer, max_tokens)
    titles = chunk_titles(text, slices, name, title)
    for i, ((start, end), above) in enumerate(zip(slices, titles, strict=True)):
        meta = {"start": start, "end": end}
        atom = Atom(f"{name}#{i}", text[start:end], kind="chunk", session=name, time=time)
        yield replace(atom, meta=meta, title=above)


@dataclass(frozen=True)
class Source:
    """Source of atoms.

    Attributes:
        path: Path of the file; None for standard input.
        format: Name of its format; None to detect it.
        named: Whether the caller named the file, rather than a folder that contains it.
    """

    path: Path | None
    format: str | None
    named: bool = True

    @property
    def where(self) -> str:
        """Name of the source in messages."""
        return "standard input" if self.path is None else str(self.path)


def find_sources(
    paths: Sequence[str | os.PathLike[str]],
    format: str | None = None,
    skipped: list[str] | None = None,
    emptied: Callable[[Path], bool] | None = None,
) -> Iterator[Source]:
    """Yield the files that paths name, and those in folders; see `read_atoms` for the arguments.

    Args:
        paths: Files and folders, "-" for standard input.
        format: Name of a format for all files, or None.
        skipped: List of errors; updated.
        emptied: Whether a folder may be without readable files, because they were removed.

    Raises:
        InputError: Bad path (`check_paths`), a folder without readable files, or an unknown format.
    """
    if format not in (None, *_NAMES):
        raise InputError(unknown("format", format, _NAMES))
    if isinstance(paths, (str, Path)):
        paths = [paths]
    if skipped is None or not paths:
        check_paths(paths, format)
    for given in paths:
        with leaving_out(skipped):
            check_paths([given], format)
            path = Path(given)
            if str(path) == "-":
                yield Source(None, format)
            elif path.is_dir():
                yield from _folder(path, format, emptied)
            else:
                yield Source(path, format or _FORMATS[path.suffix.lower()])


def _folder(
    root: Path, format: str | None, emptied: Callable[[Path], bool] | None
) -> Iterator[Source]:
    found = False
    for folder, folders, files in os.walk(root, onerror=_warn_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            kind = _FORMATS.get(path.suffix.lower())
            if is_edge_table(path) or is_slack_table(path):
                continue  # read with the statements or messages that it belongs to
            why = _unusable(path, kind)
            if why:
                _log.warning("%s: left out, %s", path, why)
            else:
                found = True
                yield Source(path, format or kind, named=format is not None)
    if not found and not (emptied and emptied(root)):
        raise InputError(
            f"expected files of {', '.join(_FORMATS)}, got a folder without any; name another",
            where=str(root),
        )


def _is_text(path: Path) -> bool:
    """Return whether a path can be part of an id."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _warn_unreadable(error: OSError) -> None:
    _log.warning("%s: left out, the folder cannot be read: %s", error.filename, error.strerror)


def _unusable(path: Path, kind: str | None) -> str:
    """Return why a file of a folder is skipped; empty if it is not."""
    if kind is None:
        return f"its suffix is none of {', '.join(_FORMATS)}"
    try:
        if not path.is_file():
            return "it is no file (a broken link, a pipe or a device)"
        if path.stat().st_size == 0:
            return "the file is empty"
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if kind == "zip" and not is_zip_of_chats(path):
        return "it is no export of a chat program"
    return "" if _is_text(path) else f"its path is no UTF-8; {_RENAME}"


def common_base(paths: Sequence[str | os.PathLike[str]]) -> Path:
    """Return the default base of source names: the nearest folder around all.

    A folder's own name is part of the names. The result depends on the current folder only through
    relative paths.
    """
    around = [Path(path).resolve().parent for path in paths if str(path) != "-"]
    return Path(os.path.commonpath(around)) if around else Path.cwd()


def source_name(path: Path, base: Path | None = None) -> str:
    """Return the path relative to a folder (default: the current one) if inside, else absolute."""
    # Linked folders are resolved, like the current folder; a linked file keeps its name.
    place, here = path.parent.resolve() / path.name, (base or Path.cwd()).resolve()
    return (place.relative_to(here) if place.is_relative_to(here) else place).as_posix()


def read_source(
    source: Source,
    *,
    tokenizer: Tokenizer,
    name: str,
    salt: str = "",
    max_tokens: int = 254,
    locomo_input: str = "raw",
    origins: dict[str, str] | None = None,
    known: Container[str] = (),
    skipped: list[str] | None = None,
    losses: Counter[str] | None = None,
    vectors: InlineVectors | None = None,
) -> Iterator[Atom]:
    """Yield the atoms of a file outside a proof library, or of standard input.

    Args:
        source: Source from `find_sources`.
        tokenizer: Tokenizer whose pieces `max_tokens` counts.
        name: Name of a document; standard input is named by its content.
        salt: String in made ids; if empty, they depend on content alone.
        max_tokens: Maximum pieces of a chunk.
        locomo_input: Parts to read of LoCoMo, see `read_atoms`.
        origins: Mapping from atom id to file and line; updated.
        known: Stored ids; see `read_records`.
        skipped: List of errors, see `read_atoms`.
        losses: Counter of dropped content by kind; updated.
        vectors: Embeddings in the lines by atom id; updated.

    Raises:
        InputError: Invalid input; see `read_atoms`.
    """
    where, losses = source.where, Counter() if losses is None else losses
    if source.format == "jsonl" and source.path is not None:
        first = next((line for line in raw_lines(source.path) if line.strip()), b"")
        lines = raw_lines(source.path)
        if is_graph_line(first):
            yield from read_graph(lines, where, origins, losses)
            return
        yield from read_records(
            lines,
            where,
            origins,
            source=salt,
            known=known,
            skipped=skipped,
            losses=losses,
            vectors=vectors,
        )
        return
    zipped = source.path is not None and source.path.suffix.lower() == ".zip"
    raw = b"" if zipped else read_bytes(source.path)
    format = source.format or _guess(raw.decode("utf-8-sig", "replace"), where)
    if format in ("jsonl", "locomo") and is_graph_line(raw.lstrip().partition(b"\n")[0]):
        yield from read_graph(io.BytesIO(raw), where, origins, losses)
        return
    if format == "jsonl":
        lines = io.BytesIO(raw)
        yield from read_records(
            lines, where, origins, skipped=skipped, losses=losses, vectors=vectors
        )
        return
    text = decode(raw, where)
    data = _parsed(text) if format == "locomo" else None
    if zipped and source.path is not None:
        atoms = read_zip(source.path, losses, order=WHATSAPP_ORDERS.get(format))
    elif format == "whatsapp" or format in WHATSAPP_ORDERS:
        chat = where if source.path is None else str(source.path.resolve())
        atoms = whatsapp_atoms(text, chat, where, losses, WHATSAPP_ORDERS.get(format))
    elif is_export(data):
        atoms = export_atoms(data, source.path, losses)
    elif format == "locomo":
        if not source.named and not is_locomo(data):
            _log.warning("%s: left out, its JSON is not LoCoMo, nor a blueprint or a chat", where)
            return
        atoms = locomo_atoms(text, where, input=locomo_input)
    else:
        # Standard input has no name; its content gives it one, the same in every run.
        named = name or f"stdin-{text_hash(text)[:12]}"
        title = file_title(name) if name else None
        atoms = document_atoms(
            text, name=named, tokenizer=tokenizer, max_tokens=max_tokens, title=title
        )
    try:
        for atom in atoms:
            for part in _parts(atom, tokenizer, max_tokens):
                if origins is not None:
                    origins[part.id] = where
                yield part
    except NoExportError as error:
        if source.named:
            raise
        _log.warning("%s; left out", error)


def _parts(atom: Atom, tokenizer: Tokenizer, max_tokens: int) -> list[Atom]:
    """Return a document attached to a chat in chunks; any other atom whole."""
    if not is_export_atom(atom) or atom.kind != "chunk":
        return [atom]
    spans = chunk_text(atom.text, tokenizer, max_tokens)
    places = enumerate(spans)
    parts = [replace(atom, id=f"{atom.id}#{i}", text=atom.text[a:b]) for i, (a, b) in places]
    return [part for part in parts if part.text.strip()]


def told_by_content(source: Source) -> Source:
    """Return a source, with the format of a WhatsApp chat if its text begins like one."""
    path = source.path
    if path is None or source.format != "text" or path.suffix.lower() != ".txt":
        return source
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return source  # reading it reports the error
    return replace(source, format="whatsapp") if is_whatsapp(head, path.name) else source


def _parsed(text: str) -> object:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _guess(text: str, where: str) -> str:
    """Return the format of standard input, detected at its beginning.

    Raises:
        InputError: It begins like JSON, but cannot be parsed.
    """
    start = text.lstrip()
    if is_whatsapp(text):
        return "whatsapp"
    if not start.startswith(("{", "[")):
        return "text"
    data = _parsed(text)
    if is_locomo(data) or is_export(data):
        return "locomo"
    lines = start[: _HEAD * 4].splitlines()
    if start.startswith("{") and any(isinstance(_parsed(line), dict) for line in lines[1:]):
        return "jsonl"  # whatever is wrong with the first line
    line = text.count("\n", 0, len(text) - len(start)) + 1
    plain = "if it is plain text, say so: --format text"
    parse_json(start.partition("\n")[0], where, line=line, do=plain)
    return "jsonl"
