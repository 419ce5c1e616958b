"""Sharded listing: pages of the atoms of several shards in one order."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.memory.listing import Ordering
from graphmem_torch.results import Page

__all__ = ["listed_in_shards"]


_Cursor = list[str | None]  # `next` of each shard; None: its beginning; "": its end


def listed_in_shards(
    memories: Sequence[Any], limit: int | None, after: str | None, asked: Mapping[str, Any]
) -> Page:
    """Return a page of the atoms of all shards; see `Memory.list`.

    Args:
        memories: Memory of each shard, with the method `list` of `Memory`.
        limit: Maximum number of atoms.
        after: `next` of the page before.
        asked: The other arguments of `Memory.list` by name.

    Raises:
        InputError: The order is by importance, or `after` is of another listing.
    """
    ordering = Ordering.named(asked["order"])
    if ordering.name == "importance":
        raise InputError(
            "order: expected added, time or id for a memory of shards, got importance, which each "
            "shard measures by itself; list a shard"
        )
    if limit is not None:
        check_count("limit", limit)
    marks = _cursor_of(after, len(memories), asked["order"])
    pages = [
        Page(()) if mark == "" else memory.list(**asked, limit=limit, after=mark)
        for memory, mark in zip(memories, marks, strict=True)
    ]
    rows = [
        (ordering.key(place, atom.id, atom.time, 0.0), number, place, atom)
        for number, page in enumerate(pages)
        for place, atom in enumerate(page)
    ]

    def order(row: tuple[Any, int, int, Atom]) -> Any:
        key, number, place, _ = row
        if ordering.name == "added":
            return (-number if ordering.falling else number, place)
        return (key[0],) if ordering.name == "id" else (*key[:2], number, place)

    rows.sort(key=order)
    if ordering.falling and ordering.name == "id":
        rows.reverse()
    taken = rows if limit is None else rows[:limit]
    following: _Cursor = []
    for number, (memory, page, mark) in enumerate(zip(memories, pages, marks, strict=True)):
        count = sum(row[1] == number for row in taken)
        if count == len(page):
            following.append(mark if page.next is None and not len(page) else page.next or "")
        elif count:  # the end of what was taken
            part = memory.list(**asked, limit=count, after=mark)
            following.append(part.next or "")
        else:
            following.append(mark)
    done = len(taken) == len(rows) and all(page.next is None for page in pages)
    said = json.dumps([asked["order"], following]).encode()
    last = None if done else base64.urlsafe_b64encode(said).decode()
    return Page(tuple(row[3] for row in taken), last)


def _cursor_of(after: str | None, shards: int, order: str) -> _Cursor:
    if after is None:
        return [None] * shards
    try:
        kept, marks = json.loads(base64.b64decode(after, b"-_", validate=True))
        whole = isinstance(marks, list) and len(marks) == shards
        usable = whole and all(mark is None or isinstance(mark, str) for mark in marks)
    except (ValueError, TypeError):
        usable, kept, marks = False, None, []
    if not usable or kept != order:
        raise InputError(
            f"after: expected `next` of the page before in the same order, got {after!r:.80}; "
            "begin anew"
        )
    return list(marks)
