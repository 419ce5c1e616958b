"""Which encoder fills a store, kept in it; and the device an index lives on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from graphmem_torch.errors import InputError
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.database import DATABASE_NAME

__all__ = ["recall_embedder", "remember_embedder", "remembered_embedder", "usable_device"]

_EMBEDDER = "embedder"  # under which the store keeps the embedder's name


def remember_embedder(store: MemoryStore, name: str, token_dim: int) -> None:
    """Keeps how the embedder was loaded, a folder by its absolute path."""
    name = str(Path(name).resolve()) if Path(name).is_dir() else name
    value = json.dumps([name, token_dim])
    if store.meta_get(_EMBEDDER) != value:
        store.meta_set(_EMBEDDER, value)


def recall_embedder(store: MemoryStore) -> tuple[str, int] | None:
    """Name and token width of the embedder of a store that was opened with a named one."""
    kept = store.meta_get(_EMBEDDER)
    return None if kept is None else tuple(json.loads(kept))


def remembered_embedder(path: str | os.PathLike[str] | None) -> tuple[str, int] | None:
    """The same for a folder, where there is a store in it."""
    if path is None or not (Path(path) / DATABASE_NAME).exists():
        return None
    with MemoryStore.open(path, mode="r") as store:
        return recall_embedder(store) if store.num_nodes else None


def usable_device(device: str) -> str:
    """The device that `device` names; `auto` is CUDA where there is one.

    Raises:
        InputError: No such device here.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"expected a device of this machine (auto, cpu, cuda, ...), got {device!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return device
