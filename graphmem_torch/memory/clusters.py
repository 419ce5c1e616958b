"""Find clusters of similar, related memories that are near in time (`docs/mathematics.md` 5.6)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.config import AggregateConfig
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.ragged import ranges, segment_topk

__all__ = ["Clusters", "clusters", "star_clusters"]

# Weights of the cosine, of shared concepts and of nearness in time. The paper names the three but
# gives no constants; the cosine leads, the others break ties between similar memories.
_SIMILARITY, _RELATION, _NEARNESS = 0.7, 0.2, 0.1
_SPAN = 7 * 86_400.0  # seconds until nearness in time falls to 1 / e: a week
_NEIGHBOURS = 8  # nearest memories compared with each, so that pairs grow linearly in N
_SMALLEST = 3  # members: two memories need no summary
_LARGEST = 12  # members: more do not fit into the words of an aggregate
_SHUFFLED = 64  # random clusters that a cluster is compared with
_SURE = 2.0  # minimum standard deviations above the random clusters


class Clusters(NamedTuple):
    """Groups of rows.

    Attributes:
        members: `[M]` int64 rows by cluster: the centre first, then by decreasing weight.
        offsets: `[C + 1]` int64.
        coherence: `[C]` mean cosine of the members with their mean direction.
    """

    members: Tensor
    offsets: Tensor
    coherence: Tensor


def star_clusters(
    source: Tensor,  # [P] int64
    target: Tensor,  # [P] int64
    weight: Tensor,  # [P]
    count: int,
    *,
    smallest: int,
    largest: int,
) -> tuple[Tensor, Tensor]:  # [M], [C + 1]
    """Return clusters around the most strongly connected nodes of a graph of n nodes.

    A node is a centre if the sum of its weights is the largest of its neighbourhood; ties go to the
    smaller number. A neighbour joins the centre with the strongest weight. Repeats with the
    remaining nodes until no cluster is found. Each step is a few scatters over the pairs.

    Args:
        source: One end of each pair; pairs come in both directions.
        target: Other end of each pair.
        weight: Weight of each pair, above 0.
        count: Number of nodes n.
        smallest: Minimum members of a cluster, with the centre.
        largest: Maximum members; the weakest stay free for other clusters.
    """
    device = source.device
    free = torch.ones(count, dtype=torch.bool, device=device)
    found: list[Tensor] = []
    sizes: list[Tensor] = []
    number = torch.arange(count, device=device)
    while len(source):
        degree = weight.new_zeros(count).index_add_(0, source, weight)
        # Unique rank by degree; ties go to the smaller number.
        rank = torch.empty_like(number)
        rank[degree.argsort(descending=True, stable=True)] = number
        best = rank.clone().scatter_reduce_(0, source, rank[target], "amin")
        centre = free & (best == rank) & (degree > 0)
        joins = centre[target] & ~centre[source]
        node, to, value = source[joins], target[joins], weight[joins]
        order = value.argsort(descending=True, stable=True)
        order = order[node[order].argsort(stable=True)]
        node, to, value = node[order], to[order], value[order]
        first = torch.ones_like(node, dtype=torch.bool)
        first[1:] = node[1:] != node[:-1]
        node, to, value = node[first], to[first], value[first]
        own = centre.nonzero().flatten()
        place = torch.searchsorted(own, to)
        size = torch.bincount(place, minlength=len(own))
        chosen = segment_topk(value, place, size, largest - 1)
        chosen = torch.where(chosen >= 0, node[chosen.clamp(min=0)], -1) if len(node) else chosen
        good = 1 + (chosen >= 0).sum(1) >= smallest
        rows = torch.cat([own[good, None], chosen[good]], 1)
        found.append(rows[rows >= 0])
        sizes.append((rows >= 0).sum(1))
        free[found[-1]] = False
        free[own] = False  # a centre with too few members joins no cluster
        left = free[source] & free[target]
        source, target, weight = source[left], target[left], weight[left]
    none = torch.zeros(1, dtype=torch.int64, device=device)
    if not found:
        return none[:0], none
    return torch.cat(found), torch.cat([none, torch.cat(sizes).cumsum(0)])


def clusters(
    snapshot: Snapshot,
    rows: Tensor,  # [n] int64, ascending
    beside: Tensor,  # [m] int64
    mentions: tuple[Tensor, Tensor],
    config: AggregateConfig,
) -> Clusters:
    """Return coherent clusters of some atoms by similarity, shared concepts and time.

    w = 0.7 cos + 0.2 shared + 0.1 e^(-|dt| / 7 days), of each atom with its 8 nearest by cosine.
    `shared` is the number of shared concepts over the root of the product of both counts. Unknown
    times add nothing. Pairs with a w of at least `aggregate.min_similarity` are joined.

    Args:
        snapshot: Snapshot with the atoms.
        rows: Rows to cluster.
        beside: Rows that random clusters are drawn from.
        mentions: Rows and nodes [m] of mentioned concepts, by ascending row.
        config: Settings of aggregates.
    """
    index = snapshot.index
    x = index.embeddings[rows.to(index.embeddings.device)].float()
    none = torch.empty(0, dtype=torch.int64)
    if len(rows) < _SMALLEST:
        return Clusters(none, torch.zeros(1, dtype=torch.int64), torch.empty(0))
    cosine, neighbour = knn_graph(x, min(_NEIGHBOURS, len(x) - 1))
    cosine, neighbour = cosine.cpu(), neighbour.cpu()
    source = torch.arange(len(x)).repeat_interleave(neighbour.shape[1])
    target, cosine = neighbour.flatten(), cosine.flatten()
    held = target >= 0
    source, target, cosine = source[held], target[held], cosine[held]
    time = index.time.cpu()[rows]
    gap = (time[source] - time[target]).abs() / _SPAN
    near = torch.exp(-gap).nan_to_num(nan=0.0).float()
    shared = _shared(rows, mentions, source, target)
    weight = _SIMILARITY * cosine + _RELATION * shared + _NEARNESS * near
    keep = weight >= config.min_similarity
    ends = torch.stack([source[keep], target[keep]])
    # Keep each pair once in each direction, with the stronger weight.
    ends, weight = torch.cat([ends, ends.flip(0)], 1), weight[keep].repeat(2)
    key, group = (ends[0] * len(x) + ends[1]).unique(return_inverse=True)
    strongest = weight.new_zeros(len(key)).scatter_reduce_(0, group, weight, "amax")
    limits = {"smallest": _SMALLEST, "largest": _LARGEST}
    members, offsets = star_clusters(key // len(x), key % len(x), strongest, len(x), **limits)
    if not len(members):
        return Clusters(members, offsets, torch.empty(0))
    coherence = _coherence(x.cpu(), members, offsets)
    every = index.embeddings[beside.to(index.embeddings.device)].float().cpu()
    good = coherence >= _shuffled(every, len(members), offsets)
    size, start = offsets.diff()[good], offsets[:-1][good]
    kept = ranges(start, size)[1]
    ends = torch.cat([offsets[:1], size.cumsum(0)])
    return Clusters(rows[members[kept]], ends, coherence[good])


def _shared(
    rows: Tensor, mentions: tuple[Tensor, Tensor], source: Tensor, target: Tensor
) -> Tensor:  # [P] float32
    """Return the number of shared concepts over the root of the product of both counts."""
    row, concept = mentions
    place = torch.searchsorted(rows, row)
    wide = 1 + int(concept.max()) if len(concept) else 1
    keys = (place * wide + concept).sort().values
    count = torch.bincount(place, minlength=len(rows))
    begin = count.cumsum(0) - count
    pair, entry = ranges(begin[source], count[source])
    asked = target[pair] * wide + concept[entry]
    at = torch.searchsorted(keys, asked).clamp(max=max(0, len(keys) - 1))
    both = keys[at] == asked if len(keys) else torch.zeros(0, dtype=torch.bool)
    found = torch.zeros(len(source)).index_add_(0, pair, both.float())
    return found / (count[source] * count[target]).clamp(min=1).sqrt()


def _coherence(x: Tensor, members: Tensor, offsets: Tensor) -> Tensor:  # [C]
    """Return the mean cosine of members with their mean direction: the length of their mean."""
    label = torch.repeat_interleave(offsets.diff())
    total = x.new_zeros(len(offsets) - 1, x.shape[1]).index_add_(0, label, x[members])
    return total.norm(dim=1) / offsets.diff().clamp(min=1)


def _shuffled(x: Tensor, count: int, offsets: Tensor) -> Tensor:  # [C]
    """Return the minimum coherence of clusters of these sizes: above that of random clusters."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack(
        [
            _coherence(x, torch.randperm(len(x), generator=generator)[:count], offsets)
            for _ in range(_SHUFFLED)
        ]
    )
    return drawn.mean(0) + _SURE * drawn.std(0)
