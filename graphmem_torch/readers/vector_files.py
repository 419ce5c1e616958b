"""Vectors from elsewhere: rows of `.npy`, safetensors and Parquet files, read as they are needed.

A file is checked whole, in tiles, before its first row is used. Rows are read from the open file
and not mapped: a file that is cut while it is read is then an error and not a crash.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from graphmem_torch.errors import InputError, first_line, nearest_path, optional_import
from graphmem_torch.readers.row_ids import read_ids, rows_by_id
from graphmem_torch.readers.unit_rows import unit_rows
from graphmem_torch.text.embedder import Encoded

__all__ = ["VectorFile"]

_BFLOAT16 = "bfloat16"  # numpy has no such type: two bytes, the upper half of a float32
_FLOATS = ("float16", "float32", "float64", _BFLOAT16)
_SAFETENSORS = {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": _BFLOAT16} | {
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
}
_TILE = 4096  # rows checked or unpacked at once
_HEADER = 100_000_000  # maximum bytes of a header, as in safetensors
_NAMES = ("embeddings", "embedding", "vectors", "vector")
_SUFFIXES = ".npy, .safetensors, .parquet"


@dataclass(frozen=True)
class _Array:
    """Array in an open file.

    Attributes:
        file: The file, open for reading.
        name: Name of the array in messages.
        start: Byte of its first number.
        kind: Type of its numbers.
        shape: Its shape, of one or two axes.
    """

    file: BinaryIO
    name: str
    start: int
    kind: str
    shape: tuple[int, ...]

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return 2 if self.kind == _BFLOAT16 else np.dtype(self.kind).itemsize

    @property
    def stride(self) -> int:
        """Bytes of a row."""
        return self.item * math.prod(self.shape[1:])

    @property
    def stop(self) -> int:
        """Byte after its last number."""
        return self.start + self.shape[0] * self.stride

    def read(self, start: int, stop: int) -> np.ndarray:  # [stop - start, ...]
        """Return rows; bfloat16 as float32.

        Raises:
            InputError: The file ends before them.
        """
        size = (stop - start) * self.stride
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            got = os.preadv(self.file.fileno(), [view[at:]], self.start + start * self.stride + at)
            if not got:
                raise InputError(
                    f"expected rows up to {stop - 1} of {self.name!r}, got a file that ends before "
                    "them; it was cut while it was read: write it again",
                    where=self.file.name,
                )
            at += got
        if self.kind == _BFLOAT16:
            halves = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            rows = halves.view(np.float32)
        else:
            rows = np.frombuffer(data, self.kind)
        return rows.reshape(stop - start, *self.shape[1:])

    def take(self, rows: np.ndarray) -> np.ndarray:  # [n] int64 -> [n, ...]
        """Return rows in any order; neighbours are read together."""
        if not len(rows):
            return self.read(0, 0)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        cuts = np.flatnonzero(np.diff(ordered) > 1) + 1
        parts = []
        for part in np.split(ordered, cuts):
            first = int(part[0])
            parts.append(self.read(first, int(part[-1]) + 1)[part - first])
        found = np.concatenate(parts)
        if np.array_equal(order, np.arange(len(order))):
            return found
        placed = np.empty_like(found)
        placed[order] = found
        return placed


@dataclass(frozen=True)
class _Tokens:
    """Token vectors of all rows.

    Attributes:
        vectors: [T, m] int8.
        pieces: [T] int32.
        offsets: [N + 1] int64; row i owns `offsets[i]` to `offsets[i + 1]`.
    """

    vectors: _Array
    pieces: _Array
    offsets: _Array

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return vectors, pieces and offsets [n + 1] of rows in any order."""
        ends = self.offsets.take(np.stack([rows, rows + 1], 1).reshape(-1)).reshape(-1, 2)
        counts = ends[:, 1] - ends[:, 0]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        # Entry j of row i of the result is entry `ends[i, 0] + j` of the file.
        entries = np.arange(offsets[-1]) + np.repeat(ends[:, 0] - offsets[:-1], counts)
        return self.vectors.take(entries), self.pieces.take(entries), offsets


class VectorFile:
    """Vectors in a file, one row a memory, named by ids or in the order of the memories.

    - `.npy`: the array [N, d]
    - `.safetensors`: `embeddings` [N, d]; for token vectors also `tokens` [T, m] int8, `pieces` [T]
      int32 and `offsets` [N + 1] int64
    - `.parquet`: columns `embedding`, `id`, `tokens` (lists of lists of int8) and `pieces`, of
      which only the first is needed. It is unpacked into temporary files.

    Ids of the first two are in `NAME.ids.txt` beside them, one a line.

    Attributes:
        path: The file.
        count: Number N of rows.
        dim: Width d of the embeddings.
        token_dim: Width m of the token vectors; 0 without them.
        num_pieces: Size of the smallest vocabulary that has all pieces; 0 without token vectors.
        ids: Row by id; None if the rows are in the order of the memories.
        normalise: True if rows are divided by their lengths.
    """

    def __init__(self, path: str | os.PathLike[str], *, normalise: bool = False) -> None:
        """Open a file, and check all of it.

        Raises:
            InputError: No such file, another format, a file that is cut, or a row that is not
                finite or not of length 1; names the row, counted from 0.
            MissingPackageError: A Parquet file without pyarrow.
        """
        self.path, self.normalise = Path(path), normalise
        self._held: list[BinaryIO] = []
        try:
            self._open()
            self._check()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        readers = {".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
        suffix = self.path.suffix.lower()
        if suffix not in readers:
            raise InputError(
                f"expected vectors in a file that ends in {_SUFFIXES}, got {suffix or 'none'!r}; "
                "write one of these",
                where=str(self.path),
            )
        try:
            file = self.path.open("rb")
        except OSError as error:
            near = nearest_path(self.path, Path.is_file)
            do = f"did you mean {near}?" if near else "check its path, and your rights"
            raise InputError(
                f"expected a file of vectors, got: {error.strerror or error}; {do}",
                where=str(self.path),
            ) from error
        self._held.append(file)
        self._stamp = _stamp(file)
        self._rows, self._tokens, ids = readers[suffix](file, self._held)
        self.count, self.dim = self._rows.shape
        self.token_dim = 0 if self._tokens is None else self._tokens.vectors.shape[1]
        beside = self.path.with_name(f"{self.path.stem}.ids.txt")
        if ids is None and beside.is_file():
            ids, named = read_ids(beside), str(beside)
        else:
            named = str(self.path)
        self.ids = None if ids is None else rows_by_id(ids, self.count, named)

    def _check(self) -> None:
        """Check all rows, in tiles."""
        for start in range(0, self.count, _TILE):
            rows = np.arange(start, min(start + _TILE, self.count))
            self._unit(self._rows.read(start, int(rows[-1]) + 1), rows)
        self.num_pieces, self._last_piece = 0, 0  # the highest piece, and its row
        if self._tokens is not None:
            self._check_offsets(self._tokens)
            self._check_pieces(self._tokens)

    def _check_offsets(self, tokens: _Tokens) -> None:
        last = 0
        for start in range(0, self.count, _TILE):
            part = tokens.offsets.read(start, min(start + _TILE, self.count) + 1)
            if part[0] != last or (np.diff(part) < 0).any():
                break
            last = int(part[-1])
        if last != tokens.vectors.shape[0] or (self.count == 0 and tokens.offsets.shape[0] != 1):
            raise InputError(
                f"offsets: expected an ascending sequence from 0 to {tokens.vectors.shape[0]}, got "
                f"another, up to {last}; offsets[i] is where the token vectors of row i begin",
                where=str(self.path),
            )

    def _check_pieces(self, tokens: _Tokens) -> None:
        if tokens.vectors.shape[0] and not self.token_dim:
            raise InputError(
                "tokens: expected vectors, got some of width 0; leave them out",
                where=str(self.path),
            )
        entries, tile, last = tokens.pieces.shape[0], _TILE * 64, 0
        for start in range(0, entries, tile):
            part = tokens.pieces.read(start, min(start + tile, entries))
            low = int(part.argmin())
            if part[low] < 0:
                raise InputError(
                    f"pieces: expected numbers of the encoder's vocabulary, got {part[low]}; make "
                    "them again",
                    where=self.where(_row_of(start + low, tokens)),
                )
            high = int(part.argmax())
            if part[high] >= self.num_pieces:
                self.num_pieces, last = int(part[high]) + 1, start + high
        self._last_piece = _row_of(last, tokens) if entries else 0

    def expect_vocabulary(self, size: int) -> None:
        """Raise InputError, which names the row, if a piece is not one of a vocabulary."""
        if self.num_pieces > size:
            raise InputError(
                f"pieces: expected numbers below {size:,}, got {self.num_pieces - 1:,}; they are "
                "those of the encoder's vocabulary",
                where=self.where(self._last_piece),
            )

    def _unit(self, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return unit_rows(values, lambda i: self.where(int(rows[i])), normalise=self.normalise)

    def where(self, row: int) -> str:
        """Return the name of a row in messages."""
        return f"{self.path}, row {row}"

    def rows(self, rows: Sequence[int]) -> Encoded:
        """Return the vectors of rows, in any order.

        Raises:
            InputError: The file has changed since it was opened.
        """
        if _stamp(self._held[0]) != self._stamp:
            raise InputError(
                "expected a file that stays as it is while it is read, got a changed one; let what "
                "writes it end, and run this again",
                where=str(self.path),
            )
        wanted = np.asarray(rows, dtype=np.int64)
        pooled = torch.from_numpy(self._unit(self._rows.take(wanted), wanted))
        if self._tokens is None:
            return Encoded(pooled)
        return Encoded(pooled, *map(torch.from_numpy, self._tokens.take(wanted)))

    def close(self) -> None:
        """Close the file."""
        for file in self._held:
            file.close()


def _row_of(entry: int, tokens: _Tokens) -> int:
    """Return the row that owns a token vector."""
    ends = tokens.offsets.read(1, tokens.offsets.shape[0])
    return int(np.searchsorted(ends, entry, side="right"))


def _stamp(file: BinaryIO) -> tuple[int, int]:
    """Return size and time, ns, of an open file."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


_Opened = tuple[_Array, _Tokens | None, list[str] | None]


def _npy(file: BinaryIO, held: list[BinaryIO]) -> _Opened:
    """Return the array of a `.npy` file."""
    where, do = file.name, "write it with numpy.save"
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            version, np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(
            f"expected an array as numpy writes it, got: {first_line(error)}; {do}", where=where
        ) from error
    # A library for bfloat16 writes its type as two bytes without a meaning.
    plain = _BFLOAT16 if dtype.str in ("|V2", "<V2") else dtype.str
    if fortran and len(shape) == 2 and min(shape) > 1:
        raise InputError(
            "expected rows one after the other, got an array in Fortran order; write "
            "numpy.ascontiguousarray(array)",
            where=where,
        )
    if len(shape) != 2 or (plain != _BFLOAT16 and (dtype.kind != "f" or dtype.itemsize > 8)):
        raise InputError(
            f"expected [N, d] of {', '.join(_FLOATS)}, got {dtype} {list(shape)}; convert it",
            where=where,
        )
    array = _Array(file, "array", file.tell(), plain, shape)
    _expect_whole([array], file)
    return array, None, None


def _safetensors(file: BinaryIO, held: list[BinaryIO]) -> _Opened:
    """Return the tensors of a safetensors file."""
    where, size = file.name, os.fstat(file.fileno()).st_size
    try:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, _HEADER):
            raise ValueError("a header that is cut")
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        arrays = {
            name: _Array(
                file,
                name,
                8 + length + int(each["data_offsets"][0]),
                _SAFETENSORS.get(each["dtype"], each["dtype"]),
                tuple(map(int, each["shape"])),
            )
            for name, each in header.items()
        }
        ends = {name: 8 + length + int(each["data_offsets"][1]) for name, each in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"expected a safetensors file, got: {first_line(error)}; write it with "
            "safetensors.torch.save_file",
            where=where,
        ) from error
    found = _pooled(arrays, where)
    tokens = None
    parts = [arrays.get(name) for name in ("tokens", "pieces", "offsets")]
    if any(part is not None for part in parts):
        wanted = (("int8", 2), ("int32", 1), ("int64", 1))
        fits = all(
            part is not None and (part.kind, len(part.shape)) == kind
            for part, kind in zip(parts, wanted, strict=True)
        )
        vectors, pieces, offsets = parts
        if not (fits and vectors and pieces and offsets) or (
            vectors.shape[0] != pieces.shape[0] or offsets.shape[0] != found.shape[0] + 1
        ):
            told = ", ".join(f"{p.name} {p.kind} {list(p.shape)}" for p in parts if p is not None)
            raise InputError(
                f"expected tokens [T, m] int8, pieces [T] int32 and offsets "
                f"[{found.shape[0] + 1}] int64, got {told}; convert them, or leave them out",
                where=where,
            )
        tokens = _Tokens(vectors, pieces, offsets)
    used = [found, *(part for part in parts if part is not None)]
    if any(part.start < 8 + length or part.stop != ends[part.name] for part in used):
        raise InputError(
            "expected tensors of the sizes that the header says, got others; write it again",
            where=where,
        )
    _expect_whole(used, file)
    return found, tokens, None


def _pooled(arrays: Mapping[str, _Array], where: str) -> _Array:
    """Return the embeddings among tensors by name: one of the usual names, or the only matrix."""
    named = [arrays[name] for name in _NAMES if name in arrays]
    matrices = [each for each in arrays.values() if len(each.shape) == 2 and each.kind in _FLOATS]
    found = named[0] if named else matrices[0] if len(matrices) == 1 else None
    if found is None or found not in matrices:
        told = ", ".join(f"{n} {a.kind} {list(a.shape)}" for n, a in arrays.items()) or "no tensor"
        raise InputError(
            f"expected a tensor 'embeddings' [N, d] of {', '.join(_FLOATS)}, got {told:.200}; "
            "rename or convert it",
            where=where,
        )
    return found


def _expect_whole(arrays: Sequence[_Array], file: BinaryIO) -> None:
    """Raise InputError if a file is shorter than its arrays."""
    size, stop = os.fstat(file.fileno()).st_size, max(array.stop for array in arrays)
    if size < stop:
        rows = (size - arrays[0].start) // max(arrays[0].stride, 1)
        raise InputError(
            f"expected {stop:,} bytes for {arrays[0].shape[0]:,} rows, got {size:,}, a file that "
            f"is cut in row {max(rows, 0):,}; write it again",
            where=file.name,
        )


def _parquet(file: BinaryIO, held: list[BinaryIO]) -> _Opened:
    """Unpack the columns of a Parquet file into temporary files, and return these."""
    parquet = optional_import(
        "pyarrow.parquet", "Parquet files", "graphmem-torch[parquet]", "write .npy"
    )
    where = file.name
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        column = next((name for name in _NAMES if name in names), None)
        if column is None:
            raise InputError(
                f"expected a column 'embedding', got {', '.join(names):.200}; rename it",
                where=where,
            )
        with_tokens = {"tokens", "pieces"} <= {*names}
        if not with_tokens and (alone := {"tokens", "pieces"} & {*names}):
            raise InputError(
                f"expected the columns 'tokens' and 'pieces' together, got {min(alone)!r} alone; "
                "add the other, or leave both out",
                where=where,
            )
        columns = [column, *(name for name in ("id",) if name in names)]
        columns += ["tokens", "pieces"] if with_tokens else []
        unpacked = _Unpacked(where, column, held)
        for batch in table.iter_batches(_TILE, columns=columns):
            unpacked.append(batch)
    except InputError:
        raise
    except Exception as error:  # pyarrow raises many kinds
        raise InputError(
            f"expected a Parquet file of vectors, got: {first_line(error)}; write it again",
            where=where,
        ) from error
    return unpacked.opened(with_ids="id" in names, with_tokens=with_tokens)


class _Unpacked:
    """Columns of a Parquet file, unpacked row group by row group."""

    def __init__(self, where: str, column: str, held: list[BinaryIO]) -> None:
        self._where, self._column = where, column
        self._files: list[Any] = [tempfile.TemporaryFile() for _ in range(4)]  # noqa: SIM115 - closed by the owner
        held.extend(self._files)
        self._ids: list[str] = []
        self._rows, self._dim, self._token_dim, self._total = 0, 0, 0, 0
        self._kind = "float32"
        self._files[3].write(np.zeros(1, np.int64).tobytes())

    def append(self, batch: Any) -> None:
        """Unpack the rows of a batch."""
        column, counts = self._lists(batch.column(self._column), self._column)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind != "f":
            raise InputError(
                f"{self._column}: expected lists of floating-point numbers, got {values.dtype}; "
                "convert them",
                where=self._where,
            )
        if not self._rows:
            self._kind, self._dim = values.dtype.str, int(counts[0]) if len(counts) else 0
        self._expect(
            counts == self._dim,
            f"{self._column}: expected {self._dim} numbers, as in row 0, got another count; give "
            "every row a vector of one width",
        )
        self._files[0].write(values.tobytes())
        if "id" in batch.schema.names:
            names = batch.column("id")
            self._expect(
                ~np.asarray(names.is_null()), "id: expected an id, got none; name every row"
            )
            self._ids.extend(map(str, names.to_pylist()))
        if "tokens" in batch.schema.names:
            self._append_tokens(batch)
        self._rows += len(counts)

    def _append_tokens(self, batch: Any) -> None:
        pieces, own = self._lists(batch.column("pieces"), "pieces")
        vectors, counts = self._lists(batch.column("tokens"), "tokens")
        self._expect(
            own == counts,
            "tokens: expected a vector for each piece, got other numbers of them; make them again",
        )
        place = np.arange(len(own)).repeat(own)
        values, widths = self._lists(vectors, "tokens", place)
        inner, rows = (each.to_numpy(zero_copy_only=False) for each in (values, pieces))
        if not self._token_dim and len(widths):
            self._token_dim = int(widths[0])
        self._expect(
            widths == self._token_dim,
            f"tokens: expected vectors of width {self._token_dim}, got another; make them again",
            place,
        )
        for name, values, kind, at in (
            ("tokens", inner, np.int8, place.repeat(widths)),
            ("pieces", rows, np.int32, place),
        ):
            bounds = np.iinfo(kind)
            self._expect(
                (values >= bounds.min) & (values <= bounds.max) & (values % 1 == 0),
                f"{name}: expected integers of {bounds.min:,} to {bounds.max:,}, got others; make "
                "them again",
                at,
            )
        self._files[1].write(inner.astype(np.int8).tobytes())
        self._files[2].write(rows.astype(np.int32).tobytes())
        ends = self._total + np.cumsum(own)
        self._files[3].write(ends.astype(np.int64).tobytes())
        self._total += int(own.sum())

    def _expect(self, fits: np.ndarray, message: str, place: np.ndarray | None = None) -> None:
        """Raise InputError at the first value that does not fit.

        Args:
            fits: [n] bool.
            message: Message of the error.
            place: [n] row of each value in this batch; by default there is one a row.
        """
        bad = np.flatnonzero(~fits)
        if len(bad):
            row = int(bad[0]) if place is None else int(place[bad[0]])
            raise InputError(message, where=f"{self._where}, row {self._rows + row}")

    def _lists(
        self, column: Any, name: str, place: np.ndarray | None = None
    ) -> tuple[Any, np.ndarray]:
        """Return the values of a column of lists, and the length of each list; see `_expect`."""
        if not hasattr(column, "value_lengths"):
            raise InputError(
                f"{name}: expected lists of numbers, got {column.type}; convert them",
                where=self._where,
            )
        missing = f"{name}: expected numbers, got none; leave the row out"
        self._expect(~np.asarray(column.is_null()), missing, place)
        return column.flatten(), np.asarray(column.value_lengths())

    def opened(self, *, with_ids: bool, with_tokens: bool) -> _Opened:
        """Return the unpacked columns."""
        for file in self._files:
            file.flush()
        pooled, tokens, pieces, offsets = self._files
        rows = _Array(pooled, self._column, 0, self._kind, (self._rows, self._dim))
        ids = self._ids if with_ids else None
        if not with_tokens:
            return rows, None, ids
        shape = self._total, self._token_dim
        own = _Tokens(
            _Array(tokens, "tokens", 0, "int8", shape),
            _Array(pieces, "pieces", 0, "int32", (self._total,)),
            _Array(offsets, "offsets", 0, "int64", (self._rows + 1,)),
        )
        return rows, own, ids
