"""File of a snapshot: its name, and checks of its state and integrity; loads no torch."""

from __future__ import annotations

import json
import mmap
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from graphmem_torch.errors import interruptible
from graphmem_torch.store.failures import damaged, store_error
from graphmem_torch.store.folder import DATABASE_NAME, sync_folder

__all__ = [
    "CHECKSUM",
    "DTYPES",
    "FORMAT",
    "LISTS_NAME",
    "PREFIX",
    "ROWS",
    "SNAPSHOT_NAME",
    "Stamp",
    "content_digest",
    "drop_snapshot",
    "expect_no_orphan",
    "snapshot_stamp",
    "snapshot_state",
    "unfit",
]

SNAPSHOT_NAME = "snapshot.safetensors"
LISTS_NAME = "similar.safetensors"
"""Snapshot of the lists of similar atoms, which linking searches."""

FORMAT = "2"
PREFIX = "graphmem."
"""Prefix of the names of a snapshot's own metadata."""

ROWS = f"{PREFIX}rows"
"""Name of the digest of the vectors and nodes alone, which linking reads."""

_HEADER = 100 << 20  # maximum bytes of a header, as safetensors has it

CHECKSUM = f"{PREFIX}xxh3"
"""Name of the `content_digest` among the metadata."""

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""Names of the types of tensors in the file, by those of torch, which the digest covers."""

_NAMES = {name: own for own, name in DTYPES.items()}


def drop_snapshot(folder: str | Path) -> None:
    """Delete the snapshot and that of the lists, and any half-written ones.

    Raises:
        StoreError: A file cannot be deleted.
    """
    for name in (SNAPSHOT_NAME, LISTS_NAME):
        path = Path(folder) / name
        try:
            shutil.rmtree(path.with_name(name + ".new"), ignore_errors=True)
            if path.exists():
                path.unlink()
                sync_folder(path.parent)
        except OSError as error:
            raise store_error(error, path) from error


def snapshot_state(folder: str | Path, generation: int | str, *, verify: bool = False) -> str:
    """Return `current`, `missing`, `stale (...)` or `damaged (...)`; arguments: `load_snapshot`."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / SNAPSHOT_NAME
    if not path.exists():
        return "missing"
    try:
        with interruptible(), safe_open(path, framework="np") as file:
            stamped = file.metadata() or {}
        if found := unfit(stamped, str(generation)):
            return found
        if verify and _digest(path) != stamped.get(CHECKSUM):
            return "damaged (its checksum does not match its content)"
    except (OSError, SafetensorError) as error:
        return f"damaged ({error})"
    return "current"


class Stamp(NamedTuple):
    """Header of a snapshot.

    Attributes:
        state: State of the store that it was made from.
        meta: All of its strings.
        rows: Number of rows of each tensor.
        spans: First and last byte of each tensor in the file.
    """

    state: str
    meta: Mapping[str, str]
    rows: Mapping[str, int]
    spans: Mapping[str, tuple[int, int]]


def snapshot_stamp(folder: str | Path) -> Stamp | None:
    """Return the header of a snapshot, unverified; None without one that this code can read."""
    try:
        with (Path(folder) / SNAPSHOT_NAME).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, _HEADER)))
        stamped = header.pop("__metadata__")
        rows = {name: (each["shape"] or [1])[0] for name, each in header.items()}
        places = {name: each["data_offsets"] for name, each in header.items()}
        spans = {
            name: (8 + size + first, 8 + size + last) for name, (first, last) in places.items()
        }
    # A damaged header may raise any of these; it is written anew.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    state = stamped.get(f"{PREFIX}state", "")
    return None if unfit(stamped, None) else Stamp(state, stamped, rows, spans)


def unfit(stamped: Mapping[str, str], state: str | None) -> str:
    """Return why a snapshot cannot be used; empty if it can.

    Args:
        stamped: Metadata of the snapshot.
        state: State of the store; None: any.
    """
    version, made_from = (stamped.get(PREFIX + key) for key in ("format", "state"))
    if version != FORMAT:
        return f"stale (format {version}, this graphmem_torch reads {FORMAT})"
    if state is not None and made_from != state:
        return f"stale (made from state {made_from}, the store is at {state})"
    return ""


def content_digest(
    meta: Mapping[str, str], tensors: Iterable[tuple[str, str, list[int], Any]]
) -> str:
    """Return the XXH3 of a snapshot's strings and tensors, 128 bits in hex.

    It finds damage, at the speed of the memory; SHA-256 took 6 s for a million atoms. It is no
    protection from forgery, from which the checks of the buffers protect.

    Args:
        meta: Strings of the caller.
        tensors: Name, dtype as torch prints it, shape and bytes of each, by ascending name.
    """
    digest = xxhash.xxh3_128(json.dumps(dict(meta), sort_keys=True).encode())
    for name, dtype, shape, data in tensors:
        digest.update(f"{name} {dtype} {shape}".encode())
        digest.update(data)
    return digest.hexdigest()


def expect_no_orphan(folder: Path) -> None:
    """Refuse a folder with a snapshot but no database: a new store would hide the loss."""
    if (folder / SNAPSHOT_NAME).exists() and not (folder / DATABASE_NAME).exists():
        raise damaged(str(folder), f"{DATABASE_NAME} is gone, but its snapshot is there")


def _digest(path: Path) -> str:
    """Return the `content_digest` of a file with a valid header."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        begin = 8 + int.from_bytes(held[:8], "little")
        header = json.loads(held[8:begin])
        stamped = header.pop("__metadata__", {})
        meta = {name: value for name, value in stamped.items() if not name.startswith(PREFIX)}
        with memoryview(held) as data:
            return content_digest(
                meta,
                (
                    (
                        name,
                        f"torch.{_NAMES.get(each['dtype'], each['dtype'])}",
                        each["shape"],
                        data[begin + each["data_offsets"][0] : begin + each["data_offsets"][1]],
                    )
                    for name, each in sorted(header.items())
                ),
            )
