"""Paths: number of edges from a seed to a node, and the strongest chain of edges to a hit."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.ops.propagate import Fan, fan_scale
from graphmem_torch.ops.ragged import blocks, ranges

__all__ = ["discounted", "hop_discount", "hop_discounts", "strongest_paths", "unweighted"]

Rows = TypeVar("Rows", Tensor, SparseRows)
_FOLLOWED = 1 << 20  # edges per block: 40 MB


def unweighted(graph: Graph) -> Graph:
    """Return the same edges, each of weight 1, so that every step counts alike."""
    return graph.unweighted()


def hop_discount(
    graph: Graph,  # N nodes, usable as directed
    seeds: Tensor,  # [B, s] int64, -1 = none
    *,
    hops: int,
    discount: float,
    mask: Tensor | None = None,  # [B, N] bool, the nodes that may be reached
) -> SparseRows:  # [B, N]
    """Return discount^d for nodes at most `hops` edges from a seed, d the number; 0 elsewhere.

    Traversal of the segment graph (`docs/mathematics.md` 3; Segment-Graph Retrieval Memory,
    sections 3.5 and 3.6): max spreading on edges of weight 1. Work is proportional to the edges of
    reached nodes; nothing is N².

    Raises:
        InputError: The discount is outside (0, 1], hops are negative, or a mask does not fit.
    """
    if not 0.0 < discount <= 1.0:
        raise InputError(
            f"discount: expected above 0 and at most 1, got {discount}; 1 counts every hop alike"
        )
    seeded = SparseRows.of(seeds, torch.ones(seeds.shape, device=seeds.device), graph.num_nodes)
    return _propagate_max(unweighted(graph), seeded, hops, discount, "none", mask)


def hop_discounts(
    graph: Graph,
    seeds: Tensor,  # [B, s] int64, -1 = none
    *,
    hops: int,
    discount: float,
    mask: Tensor | None = None,  # [B, N] bool
) -> Tensor:  # [B, N]
    """Return `hop_discount` as a matrix, in fixed shapes; time in proportion to all edges."""
    start = torch.zeros(len(seeds), graph.num_nodes + 1, device=seeds.device)  # a column for -1
    start = start.scatter(1, seeds % start.shape[1], 1.0)[:, :-1].contiguous()
    return _propagate_max(unweighted(graph), start, hops, discount, "none", mask)


def discounted(similarity: Tensor, factor: Tensor) -> Tensor:
    """Discount similarity by hops; a negative cosine stays, so that distance never raises it."""
    return similarity.clamp(min=0.0) * factor + similarity.clamp(max=0.0)


def strongest_paths(
    graph: Graph,  # N nodes
    anchors: SparseRows,  # [B, N] initial activation
    rows: Tensor,  # [B, k] nodes to explain, -1 = none
    *,
    rounds: int,
    spread: float | Tensor = 0.8,  # or []
    fan: Fan | Tensor = "degree",  # or [N]
    mask: Tensor | None = None,  # [B, N] bool, the nodes that may be reached
) -> Tensor:  # [B, k, rounds] int64 edges from the anchor on, -1 = none
    """Return the chain of at most `rounds` edges of largest product, from an anchor to each row.

    The strength of a chain is a_0 of its anchor times spread * w / fan of each edge. A row that is
    an anchor has no path if its own activation exceeds every chain. Edges are in the order of
    travel, numbered by `graph.stored`; place 0 is -1 if the chain is shorter. On a tie the chain
    from the first node counts.
    """
    if not rows.numel():
        return torch.empty(*rows.shape, rounds, dtype=torch.int64, device=rows.device)
    best = [anchors]
    for _ in range(1, rounds):
        best.append(_propagate_max(graph, best[-1], 1, spread, fan, mask))
    question = torch.arange(rows.shape[0], device=rows.device)[:, None].expand_as(rows).flatten()
    node = rows.flatten()
    path = torch.full((len(node), rounds), -1, dtype=torch.int64, device=rows.device)
    for level in range(rounds, 0, -1):
        before = best[level - 1]
        value, edge = _best_edge(graph, before, question, node, spread, fan, mask)
        pick = (value > before.lookup(question, node)).nonzero().squeeze(1)
        edge = edge.index_select(0, pick)
        path[pick, level - 1] = edge
        node = node.index_copy(0, pick, graph.stored.source.index_select(0, edge).long())
    return path.view(*rows.shape, rounds)


def _propagate_max(
    graph: Graph,
    start: Rows,
    rounds: int,
    spread: float | Tensor,
    fan: Fan | Tensor,
    mask: Tensor | None,
) -> Rows:
    """Return the value that the strongest chain of up to `rounds` edges brings to each node."""
    return spread_activation(
        graph,
        start,
        rounds=rounds,
        retention=1.0,
        spread=spread,
        reduce="max",
        fan=fan,
        inhibition=0.0,
        firing="linear",
        mask=mask,
    )


def _best_edge(
    graph: Graph,
    activation: SparseRows,
    question: Tensor,  # [n]
    node: Tensor,  # [n], -1 = none
    spread: float | Tensor,
    fan: Fan | Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:  # [n], [n] int64
    """Return the most that an edge from an active node brings to each (question, node), and it.

    Minus infinity and -1 if no edge does. Only edges that leave active nodes are searched; each
    question has few.
    """
    there = node >= 0 if mask is None else (node >= 0) & mask[question, node]
    goals = (question * graph.num_nodes + node).masked_fill_(~there, -1)  # where no edge leads
    wanted, group = goals.unique(return_inverse=True)
    sender, edges = activation.column, graph.stored
    sent = activation.value * fan_scale(graph, spread, fan, node=sender)
    begin = activation.key - sender
    first, count = graph.spans(sender)
    parts = []
    for part, total in blocks(count, _FOLLOWED):
        own, place = ranges(first[part], count[part], total=total)
        edge = graph.leaving(place)
        goal = begin[part].index_select(0, own).add_(edges.target.index_select(0, edge))
        at = torch.searchsorted(wanted, goal).clamp_(max=max(len(wanted) - 1, 0))
        there = (wanted.index_select(0, at) == goal).nonzero().squeeze(1)
        edge = edge.index_select(0, there)
        value = sent[part].index_select(0, own.index_select(0, there))
        value = value * edges.weight.index_select(0, edge)
        parts.append((at.index_select(0, there), edge.long(), value))
    if not parts:
        return activation.value.new_full(node.shape, -torch.inf), torch.full_like(node, -1)
    at, edge, value = (torch.cat(column) for column in zip(*parts, strict=True))
    most = value.new_full(wanted.shape, -torch.inf).scatter_reduce(0, at, value, "amax")
    # Senders are in order, so this picks the first of equal ones.
    none = len(at)
    order = torch.arange(none, device=at.device)
    order = order.masked_fill_(value != most.index_select(0, at), none)
    place = order.new_full(wanted.shape, none).scatter_reduce(0, at, order, "amin")
    return most[group], torch.nn.functional.pad(edge, (0, 1), value=-1)[place][group]
