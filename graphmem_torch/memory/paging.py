"""Paging: pages of a memory with the conditions and orders that need its index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.forgetting import Conditions, select_nodes
from graphmem_torch.memory.listing import Ordering, listed_page, moment_of
from graphmem_torch.results import Page

__all__ = ["page_of"]


def page_of(
    asking: Asking,
    *,
    where: Mapping[str, Any] | None,
    order: str,
    limit: int | None,
    after: str | None,
    expired: bool,
) -> Page:
    """Return a page of the memories; see `Memory.list`."""
    state, ordering, among = asking.state, Ordering.named(order), None
    if where:
        among = {*select_nodes(asking, None, Conditions(where=where))}
    now, worth = moment_of(after), dict[int, float]()
    now = state.decay.now() if now is None else now
    if ordering.name == "importance":
        snapshot = state.current()
        values = state.importance.at(snapshot, now, state.ended(snapshot, now))
        worth = dict(zip(snapshot.node.tolist(), values.tolist(), strict=False))
    return listed_page(
        state.store,
        ordering,
        among=among,
        limit=limit,
        after=after,
        moment=now,
        importance=worth,
        expired=expired,
    )
