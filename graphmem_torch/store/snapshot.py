"""Snapshot of a store: derived tensors in one memory-mapped safetensors file.

It is only a cache, stamped with the state of its store: a missing, stale or damaged one is rebuilt.
The file is written under another name, synced, and moved into place. A reader sees the old or the
new file, and a mapped old one stays valid.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor

from graphmem_torch.errors import InputError, interruptible
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import sync_folder
from graphmem_torch.store.snapshot_file import (
    CHECKSUM,
    DTYPES,
    FORMAT,
    PREFIX,
    ROWS,
    SNAPSHOT_NAME,
    content_digest,
    snapshot_stamp,
    unfit,
)

__all__ = ["MappedRows", "load_snapshot", "map_rows", "save_snapshot"]

_log = logging.getLogger(__name__)

_LINKED = ("embeddings", "node")  # tensors that `ROWS` covers


def save_snapshot(
    folder: str | Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, str],
    generation: int | str,
    name: str = SNAPSHOT_NAME,
) -> None:
    """Write the snapshot of a store, replacing the old one atomically.

    Args:
        folder: The store's folder.
        tensors: Tensors by name, on any device, of any dtype of safetensors.
        meta: Strings to store with them; names that begin with `graphmem.` are reserved.
        generation: State that the tensors were made from. `MemoryStore.state` also distinguishes a
            restored store from its backup.
        name: Name of the file.

    Raises:
        InputError: `meta` uses a reserved name.
        StoreError: The file could not be written (full disk, read-only folder); the old one is
            untouched.
    """
    reserved = [name for name in meta if name.startswith(PREFIX)]
    if reserved:
        raise InputError(
            f"meta: expected names without the prefix {PREFIX!r}, got {reserved[0]!r}. Rename it"
        )
    stamped = {
        **meta,
        f"{PREFIX}format": FORMAT,
        f"{PREFIX}state": str(generation),
        CHECKSUM: _checksum(tensors, meta),
        ROWS: _digest_of(*(_bytes_of(tensors[name]) for name in _LINKED if name in tensors)),
    }
    path = Path(folder) / name
    # A folder, because older releases leave one behind after a kill.
    workshop = path.with_name(name + ".new")
    new = workshop / name
    try:
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir()
        with open(new, "wb") as file:
            _write(file, tensors, stamped)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_folder(path.parent)
    except OSError as error:
        raise store_error(error, path) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _write(file: BinaryIO, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> None:
    """Write a safetensors file, tensor by tensor: its own `save_file` copies all of them first."""
    # The widest types come first, so that every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(meta)}
    end = 0
    for name in names:
        each = tensors[name]
        begin, end = end, end + each.numel() * each.element_size()
        dtype = DTYPES[str(each.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(each.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(_bytes_of(tensors[name]))


class MappedRows(NamedTuple):
    """Vectors of a snapshot, mapped into memory; writing to them changes no file.

    Attributes:
        meta: Strings of the caller.
        node: [A] int64 node numbers, ascending.
        buffer: [R, d] float32; the first A rows are the vectors of the nodes, the rest is room.
    """

    meta: Mapping[str, str]
    node: np.ndarray
    buffer: np.ndarray


def map_rows(folder: str | Path, dim: int) -> MappedRows | None:
    """Map the vectors of a snapshot of any state, and verify them; None without usable ones."""
    stamp = snapshot_stamp(folder)
    if stamp is None or not {*_LINKED} <= stamp.spans.keys():
        return None
    try:
        held = np.memmap(Path(folder) / SNAPSHOT_NAME, np.uint8, mode="c")
    except (OSError, ValueError):
        return None
    vectors, nodes = (held[slice(*stamp.spans[name])] for name in _LINKED)
    count, begin = stamp.rows["node"], stamp.spans["embeddings"][0]
    if (len(vectors), len(nodes)) != (4 * dim * count, 4 * count) or begin % 4:
        return None
    if _digest_of(vectors, nodes) != stamp.meta.get(ROWS):
        return None
    # The mapping is private: rows that are added overwrite copies of what comes after.
    room = (len(held) - begin) // (4 * dim)
    buffer = held[begin : begin + 4 * dim * room].view(np.float32).reshape(room, dim)
    return MappedRows(stamp.meta, nodes.view(np.int32).astype(np.int64), buffer.view(np.ndarray))


def _digest_of(*parts: Any) -> str:
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def load_snapshot(
    folder: str | Path,
    generation: int | str,
    name: str = SNAPSHOT_NAME,
    *,
    verify: bool = False,
    stale: bool = False,
) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Map the snapshot into memory if it fits the store.

    Args:
        folder: The store's folder.
        generation: State of the store, like that of `save_snapshot`.
        name: Name of the file.
        verify: Whether to read everything and compare the checksum. Otherwise a damaged header or a
            truncated file is found, but not flipped bits in the data.
        stale: Whether to accept a snapshot of another state, even of a store replaced since; the
            caller must check which parts are still valid.

    Returns:
        The tensors and the meta strings; None if no snapshot is usable (the reason is logged).
    """
    state = None if stale else str(generation)
    tensors, meta, found = _read(Path(folder) / name, state, verify=verify)
    if found == "current":
        return tensors, meta
    # Missing or stale is normal: every write makes a snapshot stale.
    level = logging.WARNING if found.startswith("damaged") else logging.INFO
    _log.log(level, "%s: the snapshot is %s", Path(folder) / name, found)
    return None


def _read(
    path: Path, state: str | None, *, verify: bool
) -> tuple[dict[str, Tensor], dict[str, str], str]:
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}, {}, "missing"
    try:
        with interruptible(), safe_open(path, framework="pt", device="cpu") as file:
            stamped = file.metadata() or {}
            if found := unfit(stamped, state):
                return {}, {}, found
            # safe_open maps the file; these tensors are views of the mapping.
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        return {}, {}, f"damaged ({error})"
    meta = {name: value for name, value in stamped.items() if not name.startswith(PREFIX)}
    if verify and _checksum(tensors, meta) != stamped.get(CHECKSUM):
        return {}, {}, "damaged (its checksum does not match its content)"
    return tensors, meta, "current"


def _checksum(tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> str:
    return content_digest(
        meta,
        (
            (name, str(each.dtype), list(each.shape), _bytes_of(each))
            for name, each in sorted(tensors.items())
        ),
    )


def _bytes_of(tensor: Tensor) -> memoryview | bytes:
    tensor = tensor.detach().cpu().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""
