"""Convert the bytes of a source to text and JSON, with errors that name the place."""

from __future__ import annotations

import contextlib
import gzip
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from graphmem_torch.errors import InputError, nearest_path
from graphmem_torch.exact import DigitsError, load_json

__all__ = [
    "decode",
    "decoded_lines",
    "leaving_out",
    "parse_json",
    "raw_lines",
    "raw_parts",
    "read_bytes",
    "says_nothing",
]

_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})  # categories of invisible characters


def read_bytes(path: Path | None) -> bytes:
    """Read a file, or standard input for None; `.gz` is unpacked.

    Raises:
        InputError: Unreadable or empty file.
    """
    where = "standard input" if path is None else str(path)
    try:
        if path is None:
            data = sys.stdin.buffer.read()
        else:
            with _unpacked(path) as file:
                data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    if says_nothing([data]):
        raise InputError("expected text, got an empty file; leave it out", where=where)
    return data


def says_nothing(parts: Iterable[bytes]) -> bool:
    """Return whether bytes, in parts, are blanks, byte order marks and invisible characters."""
    return all(
        part in _UTF_16
        or all(
            character != "\0" and unicodedata.category(character) in _UNSEEN
            for character in part.decode("utf-8", "replace")
        )
        for part in parts
    )


def decode(data: bytes, where: str, *, line: int = 1, start: int = 0) -> str:
    """Decode UTF-8 bytes; a byte order mark at the very start is dropped.

    Args:
        data: Bytes of a file, or of some of its lines.
        where: File name, for messages.
        line: Number of the first line.
        start: Position of the first byte in the file.

    Raises:
        InputError: NUL bytes (a binary file), or bytes that are not UTF-8.
    """
    if start == 0 and data.startswith(_UTF_16):
        raise InputError("expected UTF-8, got UTF-16; convert the file to UTF-8", where=where)
    nul = data.find(b"\0")
    if nul >= 0:
        raise InputError(
            f"expected text, got a binary file: NUL byte at byte {start + nul}; leave it out",
            where=_place(where, line, data, nul),
        )
    if start == 0 and data.startswith(_BOM):
        data, start = data[len(_BOM) :], len(_BOM)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected UTF-8, got byte 0x{data[error.start]:02x} at byte {start + error.start} "
            f"({error.reason}); "
            "convert the file to UTF-8",
            where=_place(where, line, data, error.start),
        ) from error


def decoded_lines(
    lines: Iterable[bytes], where: str, skipped: list[str] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines as text (`decode`), each with its number, from 1.

    Errors go to `skipped` if it is given.
    """
    position = 0
    for number, raw in enumerate(lines, start=1):
        position += len(raw)
        with leaving_out(skipped):
            line = decode(raw, where, line=number, start=position - len(raw))
            if line.strip():
                yield number, line


@contextlib.contextmanager
def leaving_out(skipped: list[str] | None) -> Iterator[None]:
    """Collect errors in a list and continue; without a list they propagate."""
    try:
        yield
    except InputError as error:
        if skipped is None:
            raise
        skipped.append(str(error))


def parse_json(text: str, where: str, *, line: int | None = None, do: str = "mend it") -> Any:
    """Parse a JSON text.

    Args:
        text: File content, or one line of it.
        where: File name, for messages.
        line: Line number, for a line.
        do: Remedy for text that is not JSON, for the message.

    Raises:
        InputError: Not JSON; NaN and infinities are not JSON.
    """
    try:
        return load_json(text, constant=_no_constant)
    except DigitsError as error:
        raise InputError(
            f"{error}; give a shorter one, or a string", where=f"{where}:{line}" if line else where
        ) from error
    except (ValueError, RecursionError) as error:
        line = line or getattr(error, "lineno", None)
        raise InputError(
            f"expected JSON, got a line that is not JSON: {error}; {do}",
            where=f"{where}:{line}" if line else where,
        ) from error


def raw_parts(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield the bytes of a file, at most `size` at once.

    Raises:
        InputError: Unreadable file.
    """
    try:
        with path.open("rb") as file:
            while part := file.read(size):
                yield part
    except OSError as error:
        raise _unreadable(path, error) from error


def raw_lines(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file from a byte on, one at a time; `.gz` is unpacked.

    Raises:
        InputError: Unreadable file.
    """
    try:
        with _unpacked(path) as file:
            file.seek(offset)
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _unpacked(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file for reading, unpacked if its name ends in `.gz`."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _unreadable(path: Path | None, error: Exception) -> InputError:
    gone = path is not None and isinstance(error, FileNotFoundError)
    near = nearest_path(path, Path.is_file) if path is not None and gone else None
    do = f"did you mean {near}?" if near else "check its path, and your rights"
    return InputError(
        f"expected a file that can be read, got: {getattr(error, 'strerror', None) or error}; {do}",
        where="standard input" if path is None else str(path),
    )


def _place(where: str, line: int, data: bytes, position: int) -> str:
    newlines = data.count(b"\n", 0, position)
    return f"{where}:{line + newlines}"
