"""Lists of similar atoms beside the snapshot, so that not every process trains them."""

from __future__ import annotations

import logging

import torch

from graphmem_torch.errors import StoreError
from graphmem_torch.memory.link import Linker
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.snapshot_file import LISTS_NAME

__all__ = ["load_lists", "save_lists"]

_log = logging.getLogger(__name__)


def save_lists(store: MemoryStore, linker: Linker) -> None:
    """Save the lists if they have changed since; in the turn, after what they hold is stored."""
    if store.path is not None and linker.search.unsaved:
        nodes, rows, there = linker.rows()
        lists = linker.search.state(rows)
        lists["nodes"] = nodes[: (count := len(lists["labels"]))]
        lists["first"] = lists["first"] * there[:count]  # nothing of deleted ones
        try:
            store.save_snapshot(lists, {}, name=LISTS_NAME)
        except StoreError as error:  # nothing is lost: they are derived from the store
            _log.warning("the next process trains the lists of similar atoms anew: %s", error)


def load_lists(store: MemoryStore, linker: Linker) -> None:
    """Give a linker that has taken up the store the lists saved for it, if they fit."""
    kept = store.load_snapshot(LISTS_NAME, verify=True, stale=True)
    if kept is not None and (known := kept[0].get("nodes")) is not None:
        nodes, rows, _ = linker.rows()
        linker.search.load(kept[0], torch.isin(known, nodes), rows)
