"""Sharded forgetting: atoms erased in the shards that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphmem_torch.errors import InputError, nearest_names
from graphmem_torch.memory.lookup import listed_ids, same_names
from graphmem_torch.memory.memory import Memory
from graphmem_torch.memory.shards import Shards
from graphmem_torch.results import Receipt

__all__ = ["forget_in_shards"]


def forget_in_shards(
    shards: Shards,
    memories: Sequence[Memory],
    ids: str | Iterable[str] | None,
    conditions: Mapping[str, Any],
    *,
    dry_run: bool,
) -> list[Any]:
    """Erase atoms in each shard; see `Memory.forget`.

    All shards are asked first, so that nothing is erased if a condition is unusable.

    Args:
        shards: The shards.
        memories: Memory of each.
        ids: Ids of stored atoms.
        conditions: Conditions of `Memory.forget` by name.
        dry_run: Whether to return the atoms and erase nothing.

    Returns:
        The receipts of the shards that erased any, or the atoms.

    Raises:
        InputError: An id that no shard holds, or a condition that no shard can use.
    """
    held: Sequence[list[str] | None] = [None] * len(memories)
    if ids is not None:
        held = shards.holding(listed_ids(shards.first.store, ids), archived=True)
    chosen, errors = list[Any](), list[InputError]()
    for memory, own in zip(memories, held, strict=True):
        if own == [] and ids is not None:
            chosen.append([])
            continue
        try:
            chosen.append(memory.forget(own, **conditions, dry_run=True))
        except InputError as error:  # a session or speaker of other shards
            errors.append(error)
            chosen.append([])
    asked = [own for own in held if own is None or own]
    if errors and len(errors) == len(asked):
        _expect_stored(shards, conditions)
        raise errors[0]
    if dry_run:
        return [atom for own in chosen for atom in own]
    for memory in memories:
        memory.store.expect_writable()
    shards.drop_statistics()
    receipts: list[Receipt] = []
    for memory, own, found in zip(memories, held, chosen, strict=True):
        if found:
            receipts.append(memory.forget(own, **conditions))
    if receipts:  # what was learned from all is of no shard alone
        for memory in memories:
            memory.learning.reset()
    return receipts


def _expect_stored(shards: Shards, conditions: Mapping[str, Any]) -> None:
    """Raise InputError for a session or speaker of no shard; names the most similar of all."""
    rows = [row for state in shards.states for row in state.store.origins()]
    for name, column in (("session", 2), ("speaker", 1)):
        value = conditions.get(name)
        if value is None:
            continue
        names = [str(row[column]) for row in rows if row[column] is not None]
        close = nearest_names(value, names, 1)
        same_names(name, value, list(dict.fromkeys([*close, *names])))
