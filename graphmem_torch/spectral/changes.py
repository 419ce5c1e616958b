"""changes_between: which nodes of a graph have other edges than they had before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.components import undirected

__all__ = ["Changes", "changes_between"]


@dataclass(frozen=True, eq=False)
class Changes:
    """From a graph of N nodes to one of N'.

    Attributes:
        graph: The new one.
        kept: `[N']` int64, the number each node had, -1 where it is new.
        touched: `[N']` bool: new, or with an undirected edge that came, went or changed its weight.
        nothing: Whether the two are the same, nodes included.
    """

    graph: Graph
    kept: Tensor
    touched: Tensor
    nothing: bool

    def carried(self, value: Tensor, fill: float) -> Tensor:  # [N, ...] -> [N', ...]
        """What the nodes had, and `fill` for the new ones."""
        new = self.kept < 0
        out = value.new_full((len(self.kept), *value.shape[1:]), fill)
        out[~new] = value[self.kept[~new]]
        return out

    def induced(self, inside: Tensor) -> tuple[Graph, Tensor]:  # [N'] bool -> M nodes, [M]
        """The part of the new graph with both ends in a set of nodes, and these nodes."""
        node = inside.nonzero().squeeze(1)
        place = torch.full_like(self.kept, -1)
        place[node] = torch.arange(len(node), device=node.device)
        ends = place[self.graph.edge_index]
        both = (ends >= 0).all(0)
        part = Graph.from_edges(
            ends[:, both],
            self.graph.weight[both],
            type=self.graph.type[both],
            num_nodes=len(node),
        )
        return part, node


def changes_between(
    before: Graph,  # N nodes
    after: Graph,  # N' nodes
    kept: Tensor,  # [N'] int64
) -> Changes:
    """What changed, by comparing the undirected signed edges of both.

    Args:
        before: The old graph.
        after: The new one.
        kept: For each new node the number it had, -1 where it had none.

    Raises:
        InputError: If `kept` is of another shape or dtype, or names a node twice or one that was
            not there.
    """
    nodes = after.num_nodes
    old = kept[kept >= 0] if kept.shape == (nodes,) and kept.dtype == torch.int64 else None
    if old is None or bool((old >= before.num_nodes).any()) or len(old.unique()) < len(old):
        raise InputError(
            f"kept must be int64 of shape [{nodes}] with different numbers below "
            f"{before.num_nodes}, or -1; got {kept.dtype} {list(kept.shape)}. Give for each node "
            "the number it had before."
        )
    now = torch.full((before.num_nodes,), -1, dtype=torch.int64, device=kept.device)
    now[old] = (kept >= 0).nonzero().squeeze(1)
    low, high, weight = undirected(before)
    low, high = now[low], now[high]
    touched = kept < 0
    # An edge to a node that went: its other end is touched.
    gone = (low < 0) | (high < 0)
    ends = torch.maximum(low, high)[gone]
    touched[ends[ends >= 0]] = True
    low, high, weight = low[~gone], high[~gone], weight[~gone]
    first, second = torch.minimum(low, high), torch.maximum(low, high)
    fresh_low, fresh_high, fresh_weight = undirected(after)
    key, order = torch.sort(first * nodes + second)
    fresh = fresh_low * nodes + fresh_high
    same_new = _same(fresh, fresh_weight, key, weight[order])
    same_old = _same(key, weight[order], fresh, fresh_weight)
    for column in (fresh_low[~same_new], fresh_high[~same_new]):
        touched[column] = True
    for column in (first[order][~same_old], second[order][~same_old]):
        touched[column] = True
    unchanged = not bool(touched.any()) and len(old) == before.num_nodes
    still = unchanged and bool((kept == torch.arange(nodes, device=kept.device)).all())
    return Changes(after, kept, touched, still)


def _same(key: Tensor, weight: Tensor, other: Tensor, other_weight: Tensor) -> Tensor:  # [M] bool
    """Which edges are among the others (ascending) with the same weight."""
    if other.numel() == 0:
        return torch.zeros_like(key, dtype=torch.bool)
    at = torch.searchsorted(other, key).clamp(max=len(other) - 1)
    return (other[at] == key) & (other_weight[at] == weight)
