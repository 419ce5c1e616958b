"""Order of memories: dependencies first, then by time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_entries, check_tensor
from graphmem_torch.context.pool import Relations

__all__ = ["ORDERS", "arrange", "check_order", "edges_among", "topological_order"]


def topological_order(
    edges: Tensor,  # [2, E] int64: row 0 comes before row 1
    time: Tensor,  # [n] seconds since the epoch UTC, NaN = unknown
    tie: Tensor | None = None,  # [n]
) -> Tensor:  # [n] int64
    """Sort the items so that every edge points forward, earlier items first.

    Uses Kahn's algorithm (1962), always taking the earliest ready item (`docs/mathematics.md` 6).
    Items of a cycle (a strongly connected component) stay together, by time, at the place of their
    first one. An unknown time is that of the earliest item it leads to, else of the latest item it
    follows from, else later than all.

    Args:
        edges: Edges; self-loops and repeated edges are ignored.
        time: Times, which decide between ready items.
        tie: Tie-breaker for equal times, smaller first; then the place decides.

    Returns:
        Places, first to last.

    Raises:
        InputError: Shapes or places do not fit.
    """
    count = len(time)
    tie = torch.zeros(count) if tie is None else tie.cpu()
    edges, time = edges.cpu(), time.cpu().double()
    check_tensor("edges", edges, "int64", (2, "E"), "stack what comes before over what comes after")
    check_tensor("time", time, "", ("n",), "give one for each item")
    check_tensor("tie", tie, "", (count,), "give one for each time")
    check_entries("edges", edges, 0, count - 1, "leave out what was not chosen")
    edges = edges[:, edges[0] != edges[1]]
    time = _completed(edges, time)
    rank = torch.empty(count, dtype=torch.int64)
    # Stable sorts, the least important key first.
    sequence = torch.argsort(tie, stable=True)
    sequence = sequence[torch.argsort(time[sequence], stable=True)]
    if not edges.shape[1]:
        return sequence
    rank[sequence] = torch.arange(count)
    order = _kahn(rank[edges], count)
    if len(order) < count:
        return sequence[_collapsed(rank[edges], count)]
    return sequence[torch.tensor(order)]


def _completed(edges: Tensor, time: Tensor) -> Tensor:
    """Replace unknown times by those of their neighbours."""
    unknown = time.isnan()
    if not bool(unknown.any()):
        return time
    time = time.nan_to_num(nan=torch.inf)
    time = _spread(edges[1], edges[0], unknown, time, "amin")
    unknown &= time == torch.inf
    time = _spread(edges[0], edges[1], unknown, time.masked_fill(unknown, -torch.inf), "amax")
    return time.masked_fill(unknown & (time == -torch.inf), torch.inf)


def _spread(source: Tensor, target: Tensor, open_: Tensor, time: Tensor, reduce: str) -> Tensor:
    """Propagate times along edges into the open items until nothing changes."""
    heard = open_[target]
    source, target = source[heard], target[heard]
    while True:
        further = time.scatter_reduce(0, target, time[source], reduce)
        if torch.equal(further, time):
            return time
        time = further


def _kahn(edges: Tensor, count: int) -> list[int]:
    """Return the items, numbered by rank, in topological order up to the first cycles."""
    source, target = edges
    waiting = torch.bincount(target, minlength=count).tolist()
    ends = torch.bincount(source, minlength=count).cumsum(0).tolist()
    after = target[torch.argsort(source, stable=True)].tolist()
    ready = [item for item, left in enumerate(waiting) if not left]
    heapify(ready)
    order = []
    while ready:
        item = heappop(ready)
        order.append(item)
        for next_ in after[ends[item - 1] if item else 0 : ends[item]]:
            waiting[next_] -= 1
            if not waiting[next_]:
                heappush(ready, next_)
    return order


def _collapsed(edges: Tensor, count: int) -> Tensor:  # [n]
    """Order the strongly connected components, each expanded by rank."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source, target = edges.numpy()
    links = coo_array((torch.ones(len(source)).numpy(), (source, target)), shape=(count, count))
    group = torch.from_numpy(connected_components(links.tocsr(), connection="strong")[1]).long()
    # Numbered by their first member, groups are again numbered by rank.
    first = torch.full((count,), count).scatter_reduce_(0, group, torch.arange(count), "amin")
    number = torch.empty(count, dtype=torch.int64)
    number[torch.argsort(first, stable=True)] = torch.arange(count)
    group = number[group]
    between = group[edges]
    place = torch.empty(count, dtype=torch.int64)
    groups = int(group.max()) + 1
    order = _kahn(between[:, between[0] != between[1]], groups)
    place[torch.tensor(order)] = torch.arange(groups)
    return torch.argsort(place[group], stable=True)


ORDERS = ("relevance", "time", "topological")


def check_order(order: str) -> None:
    """Raise `InputError` if a name is not in `ORDERS`."""
    check_choice("order", order, ORDERS)


def arrange(
    order: str,
    *,
    place: Tensor,  # [n] rank
    time: Tensor,  # [n] float64 seconds since the epoch UTC, NaN = unknown
    stored: Tensor,  # [n] int64, ascending in the order of storing
    edges: Tensor,  # [2, E] int64 what comes before, what comes after
) -> Tensor:  # [n] int64
    """Sort the items.

    - `relevance`: best first.
    - `time`: earliest first. A memory without a time follows the one stored before it.
    - `topological`: dependencies first, then by time (`topological_order`).
    """
    if order == "relevance":
        return place.argsort(stable=True)
    known = _filled(time, stored)
    if order == "time":
        edges = edges[:, :0]
    return topological_order(edges, known, stored)


def edges_among(rows: Tensor, relations: Relations) -> Tensor:  # [n] -> [2, E]
    """Return the relations between these atoms, as places of the earlier and the later one."""
    if not len(relations):
        return rows.new_zeros(2, 0)
    after, first = relations.before(rows)
    ordered, place = rows.sort()
    at = torch.searchsorted(ordered, first).clamp(max=max(len(rows) - 1, 0))
    inside = ordered[at] == first if len(rows) else first < 0
    return torch.stack([place[at[inside]], after[inside]])


def _filled(time: Tensor, stored: Tensor) -> Tensor:
    """Replace unknown times by that of the item stored before; -inf if there is none."""
    sequence = stored.argsort()
    ordered = time[sequence]
    last = torch.where(ordered.isnan(), -1, torch.arange(len(time))).cummax(0).values
    filled = torch.where(last < 0, -torch.inf, ordered[last.clamp(min=0)])
    return torch.empty_like(time).scatter_(0, sequence, filled)
