"""Listing: the atoms of a store in an order, page by page."""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count, check_flag
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.results import Page
from graphmem_torch.store.reader import StoreReader

__all__ = ["ORDERS", "Ordering", "atoms_in_order", "listed_page", "moment_of"]

ORDERS = ("added", "time", "id", "importance")
"""Names of orders, ascending; a `-` before one means descending."""

_Key = tuple[Any, ...]
_PAGE = 256  # memories read in one batch when iterating over all


@dataclass(frozen=True)
class Ordering:
    """Total order of atoms.

    Attributes:
        name: One of `ORDERS`.
        falling: Whether it descends. Atoms without a time are last either way.
    """

    name: str
    falling: bool

    @classmethod
    def named(cls, order: str) -> Ordering:
        """Return the order of a name such as `time` or `-time`.

        Raises:
            InputError: No order of this name.
        """
        name = order.removeprefix("-") if isinstance(order, str) else order
        if name not in ORDERS:
            raise InputError(unknown("order", order, (*ORDERS, *(f"-{each}" for each in ORDERS))))
        return cls(name, order != name)

    def key(self, place: int, id: str, time: float | None, importance: float) -> _Key:
        """Return the sort key of an atom; `place` is its position in the order of adding."""
        sign = -1 if self.falling else 1
        if self.name == "time":
            return (time is None, sign * (time or 0.0), sign * place)
        if self.name == "importance":
            return (sign * importance, sign * place)
        return (id,) if self.name == "id" else (sign * place,)


def atoms_in_order(store: StoreReader) -> Iterator[Atom]:
    """Yield the atoms in the order of adding, each as it is when its turn comes.

    Skips atoms that expire, or are deleted or added meanwhile.
    """
    with store.reading():
        ids = [id for _, id in sorted((place, id) for _, place, id, _ in store.listed())]
    at, size = 0, _PAGE
    while at < len(ids):
        part, size = ids[at : at + size], min(2 * size, _PAGE)
        with store.reading():
            state = store.state
            node = {name: number for name, (number, _) in store.known(part).items()}
            there = [name for name in part if name in node]
            atoms = store.atoms([node[name] for name in there])
        found = dict(zip(there, atoms, strict=True))
        for place, name in enumerate(part):
            if place and store.state != state:
                size = 1  # the caller may write after every one
                break
            at += 1
            if name in found and node[name] not in store.expiry.hidden():
                yield found[name]


def listed_page(
    store: StoreReader,
    ordering: Ordering,
    *,
    among: Collection[int] | None,
    limit: int | None,
    after: str | None,
    moment: float,
    importance: Mapping[int, float],
    expired: bool = False,
) -> Page:
    """Return a page of atoms of one moment.

    Args:
        store: Store of the atoms.
        ordering: Order of the atoms.
        among: Node numbers that may be listed; None allows all.
        limit: Maximum number of atoms; None lists all that follow.
        after: `Page.next` of the previous page, or the id of a stored atom; None: from the start.
        moment: Time at which importance is computed, seconds since the epoch UTC.
        importance: Importance by node number; 0 where missing.
        expired: Whether to list the atoms that have expired, instead of the others.

    Raises:
        InputError: No such order, no number, or an unknown `after`.
    """
    if limit is not None:
        check_count("limit", limit)
    check_flag("expired", expired)
    with store.reading():
        hidden = store.expiry.hidden()
        listed = [row for row in store.listed() if (row[0] in hidden) == expired]
        found = [row for row in listed if among is None or row[0] in among]
        keyed = [
            (ordering.key(place, id, time, importance.get(node, 0.0)), node)
            for node, place, id, time in found
        ]
        # Strings have no negative: a descending order reverses the list.
        turned = ordering.falling and ordering.name == "id"
        keyed.sort()
        keys = [key for key, _ in keyed]
        nodes = [node for _, node in keyed]
        start, stop = 0, len(keys)
        if after is not None:
            mark = _key_of(after, ordering, dict(zip(nodes, keys, strict=True)), store)
            at = bisect_right(keys, mark)
            if turned:
                stop = at - 1 if at and keys[at - 1] == mark else at
            else:
                start = at
        if turned:
            keys, nodes = keys[:stop][::-1], nodes[:stop][::-1]
            stop = len(keys)
        end = stop if limit is None else min(stop, start + limit)
        atoms = store.atoms(nodes[start:end])
    last = _cursor(ordering, moment, keys[end - 1]) if start < end < stop else None
    return Page(tuple(atoms), last)


def moment_of(after: object) -> float | None:
    """Return the moment of the first page, which later pages use for importance; None: now."""
    moment = _read_cursor(after)[2]
    return moment if isinstance(moment, float) else None


def _cursor(ordering: Ordering, moment: float, key: _Key) -> str:
    """Return the cursor after a key: it holds the key, so its atom may be deleted meanwhile."""
    said = json.dumps([ordering.name, ordering.falling, moment, *key]).encode()
    return base64.urlsafe_b64encode(said).decode()


def _read_cursor(after: object) -> tuple[Any, ...]:
    """Return name and direction of an order, a moment and a key; three times None if invalid."""
    try:
        said = json.loads(base64.b64decode(cast(str, after), b"-_", validate=True))
    except (ValueError, TypeError):
        said = None
    whole = isinstance(said, list) and len(said) > 3
    return tuple(said) if whole else (None, None, None)


def _key_of(after: object, ordering: Ordering, keys: dict[int, _Key], store: StoreReader) -> _Key:
    """Return the key in a cursor, or that of a stored atom."""
    if isinstance(after, str):
        known = store.known([after])
        if after in known and known[after][0] in keys:
            return keys[known[after][0]]
        name, falling, _, *key = _read_cursor(after)
        like = next(iter(keys.values()), tuple(key))
        fits = [type(each) for each in key] == [type(each) for each in like]
        if (name, falling) == (ordering.name, ordering.falling) and fits:
            return tuple(key)
        if name in ORDERS and (name, falling) != (ordering.name, ordering.falling):
            raise InputError(
                f"after: expected the end of a page in the same order, got that of one by "
                f"{'-' * bool(falling)}{name}; begin anew"
            )
    raise InputError(
        f"after: expected `next` of the page before, or the id of a listed memory, got "
        f"{after!r:.80}; begin anew"
    )
