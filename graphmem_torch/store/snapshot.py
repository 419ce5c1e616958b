"""Snapshot of a store: derived tensors in one memory-mapped safetensors file.

It is only a cache, stamped with the state of its store: a missing, stale or damaged one is rebuilt.
The file is written under another name, synced, and moved into place. A reader sees the old or the
new file, and a mapped old one stays valid.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.errors import InputError, interruptible
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import sync_folder
from graphmem_torch.store.snapshot_file import (
    CHECKSUM,
    FORMAT,
    PREFIX,
    SNAPSHOT_NAME,
    content_digest,
    unfit,
)

__all__ = ["load_snapshot", "save_snapshot"]

_log = logging.getLogger(__name__)


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
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    reserved = [key for key in meta if key.startswith(PREFIX)]
    if reserved:
        raise InputError(
            f"meta: expected names without the prefix {PREFIX!r}, got {reserved[0]!r}. Rename it"
        )
    # safetensors rejects tensors that share memory, so those are cloned. Plain CPU tensors are not.
    seen: set[int] = set()
    plain = {}
    for key, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        plain[key] = own.clone() if own.untyped_storage().data_ptr() in seen else own
        seen.add(own.untyped_storage().data_ptr())
    stamped = {
        **meta,
        f"{PREFIX}format": FORMAT,
        f"{PREFIX}state": str(generation),
        CHECKSUM: _checksum(plain, meta),
    }
    path = Path(folder) / name
    # A separate folder, because a kill would leave the randomly named file of safetensors behind.
    workshop = path.with_name(name + ".new")
    new = workshop / name
    try:
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir()
        save_file(plain, new, stamped)
        # safetensors makes files readable by the owner only; apply the umask instead.
        new.chmod(workshop.stat().st_mode & 0o666)
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        raise store_error(error, path) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


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
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""
