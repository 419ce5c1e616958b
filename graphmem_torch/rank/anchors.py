"""Anchors: the atoms where activation starts, and their initial activation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphmem_torch.config import AnchorConfig, WalkConfig
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, personalized_pagerank
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.spmm import spmm
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.peers import Background

__all__ = [
    "SMALL_WALK",
    "anchor_activation",
    "anchor_relevance",
    "fixed_walk",
    "traversal_seeds",
    "walk_from",
]

_DAMPING = 0.85  # probability of following an edge, as in the paper
_KEPT = 64  # nodes per question that a walk ranks in a large graph; others have 0


def anchor_activation(
    candidates: Candidates,
    base: Tensor,  # [B, C] weighted base signals
    config: AnchorConfig,
) -> tuple[Tensor, Tensor]:  # [B, K] int64 rows (-1 = none), [B, K] activation
    """Return the anchors of each question.

    - `fused`: the k best by the base signals, each at exp((F - max F) / temperature)
      (`docs/mathematics.md` 8.4).
    - `dual`: the k best by BM25 and the k best by cosine, each at max(cosine, 0) (SYNAPSE,
      `docs/mathematics.md` 4). An atom without a question term is no lexical anchor.
    - `semantic`: the k best by cosine (ContextOS, `docs/mathematics.md` 6).
    """
    if config.source == "fused":
        values, place = _best(base, candidates, config.k)
        activation = torch.exp((values - values[:, :1]) / config.temperature)
        return _rows(candidates, place, values), torch.where(values > -torch.inf, activation, 0.0)
    cosine = candidates.signal("semantic")
    values, place = _best(cosine, candidates, config.k)
    if config.source == "dual":
        lexical = candidates.signal("lexical")
        touched = torch.where(lexical > 0, lexical, -torch.inf)
        by_words, place_words = _best(touched, candidates, config.k)
        values, place = torch.cat([by_words, values], 1), torch.cat([place_words, place], 1)
    rows = _rows(candidates, place, values)
    known = cosine.gather(1, place.clamp(min=0)).clamp(min=0.0)
    activation = torch.where(rows >= 0, known, 0.0)
    return rows, activation


def anchor_relevance(
    candidates: Candidates,
    base: Tensor,  # [B, C] weighted base signals
    value: Tensor,  # [B, K] activation of the anchors
    config: AnchorConfig,
) -> Tensor:  # [B, K] in [0, 1], the best has 1
    """Return the relevance of each anchor to its question, independent of the score's unit.

    - `fused`: exp((F - max F) / σ), σ the standard deviation of F over the candidates. Activation
      is exp(F - max F), so rescaled weights change nothing.
    - `dual`, `semantic`: the cosine relative to the best one.
    """
    peers = candidates.peers
    if config.source != "fused":
        best = value.amax(1, keepdim=True)
        best = best if peers is None else peers.largest("relevance", best)
        return value / best.clamp(min=torch.finfo(value.dtype).tiny)
    there = candidates.valid.expand_as(base)
    count = there.sum(1, keepdim=True).clamp(min=1)
    mean = base.where(there, 0.0).sum(1, keepdim=True) / count
    spread = (base - mean).where(there, 0.0).square().sum(1, keepdim=True) / count
    if peers is not None:
        own = Background(count.double(), mean, spread.sqrt(), mean)
        spread = peers.background("relevance", own).deviation.square()
    # If all scores are equal, every anchor is as relevant as the best.
    power = torch.where(spread > 1e-12, spread.clamp(min=1e-12).rsqrt(), 0.0) * config.temperature
    known = value > 0  # the power of 0 has no gradient
    return torch.where(known, torch.where(known, value, 1.0).pow(power), 0.0)


def traversal_seeds(
    candidates: Candidates,  # every atom
    count: int,
) -> tuple[Tensor, Tensor]:  # [B, s] int64, [B, s]
    """Return the atoms most similar to each question, and their cosine; -1 and 0 for padding."""
    values, place = _best(candidates.signal("semantic"), candidates, count)
    return _rows(candidates, place, values), torch.where(values > -torch.inf, values, 0.0)


def _best(values: Tensor, candidates: Candidates, k: int) -> tuple[Tensor, Tensor]:
    allowed = values.masked_fill(~candidates.valid, -torch.inf)
    best, place = stable_topk(allowed, min(k, values.shape[1]))
    if candidates.peers is None:
        return best, place
    ranking = candidates.peers.ranking("anchors", place, best, k)
    return ranking.scores, ranking.own_places


def _rows(candidates: Candidates, place: Tensor, values: Tensor) -> Tensor:
    if candidates.peers is not None:  # anchors of other shards have no row
        values, place = values.masked_fill(place < 0, -torch.inf), place.clamp(min=0)
    rows = place if candidates.rows is None else candidates.rows.gather(1, place)
    return torch.where(values > -torch.inf, rows, -1)


_TINY = torch.finfo(torch.float32).tiny
_ROUNDED = 1e-3  # share of a node's walk value below which it is numerical error
_RESIDUAL = 1e-6  # share of the mass of a walk that may still move
_ROUNDS = math.ceil(math.log(_RESIDUAL) / math.log(_DAMPING))

SMALL_WALK = 2048
"""Maximum nodes for the dense walk, which then costs less than a ranking."""


def walk_from(
    graph: Graph,  # N nodes
    seeds: SparseRows,  # [B, N], how much each anchor stands for the question
    config: WalkConfig,
    mask: Tensor | None = None,  # [B or 1, N] bool, nodes that exist for the question
) -> SparseRows:  # [B, N]
    """Run personalised PageRank for B questions (`docs/mathematics.md` 6); 0 if not ranked.

    In a large graph, mass is pushed only around the anchors and 64 nodes per question are ranked,
    so time and memory do not depend on N. A node that the mask excludes has no edges.
    """
    if mask is None or len(mask) == 0:
        return _walked(graph, seeds, config)
    # Questions of one instant share a graph; a batch has few instants.
    shared = mask[:1] if mask.stride(0) == 0 else mask
    kinds, group = torch.unique(shared, dim=0, return_inverse=True)
    group = group.expand(seeds.shape[0])
    parts = [
        _walked(_without(graph, ~there), seeds.select(group[seeds.row] == i), config)
        for i, there in enumerate(kinds)
    ]
    key, order = torch.cat([part.key for part in parts]).sort()
    value = torch.cat([part.value for part in parts])[order]
    return SparseRows(key, value, seeds.shape)


def fixed_walk(
    graph: Graph,  # N nodes
    seeds: Tensor,  # [B, N], how much each anchor stands for the question
    config: WalkConfig,
    mask: Tensor | None = None,  # [B, N] bool, nodes that exist for the question
) -> Tensor:  # [B, N]
    """Return `walk_from` as a matrix, in fixed shapes; time in proportion to all edges.

    Runs the number of rounds after which the residual is below `_RESIDUAL` for any graph.
    """
    weight = graph.weight.abs()
    there = torch.ones_like(seeds) if mask is None else mask.to(seeds.dtype)
    edge = graph.out_edge.long()
    ends = graph.out_indptr, graph.target.index_select(0, edge), weight.index_select(0, edge)
    leaving = spmm(*ends, there.T.contiguous()).T * there  # strength of each node
    total = seeds.sum(1, keepdim=True)
    start = seeds / total.clamp(min=_TINY)
    lost = leaving == 0
    scale = torch.where(lost, 0.0, _DAMPING / leaving.clamp(min=_TINY))
    x = start
    for _ in range(_ROUNDS):
        sent = spmm(graph.indptr, graph.source, weight, (x * scale).T.contiguous()).T * there
        back = (1 - _DAMPING) + _DAMPING * x.where(lost, 0.0).sum(1, keepdim=True)
        x = sent + back * start
    if graph.num_nodes > SMALL_WALK:
        values, node = stable_topk(x, min(_KEPT, graph.num_nodes), above=0.0)
        kept = torch.zeros_like(x).scatter(1, node, values.clamp(min=0.0))
    else:
        kept = x
    if not config.relative:
        return kept
    # What edges bring to a seed is the rest of its value, as in `_relative`.
    stays = kept.where(lost & (start > 0), 0.0).sum(1, keepdim=True)
    restart = (1 - _DAMPING) + _DAMPING * stays
    brought = (kept - restart * start).clamp(min=0.0)
    brought = brought.where(brought > _ROUNDED * kept, 0.0)
    elsewhere, at_seeds = (
        brought.where(own, 0.0).amax(1, keepdim=True) for own in (start == 0, start > 0)
    )
    most = torch.where(elsewhere > 0, elsewhere, at_seeds)
    return (brought / most.clamp(min=_TINY)).clamp(max=1.0)


def _walked(graph: Graph, seeds: SparseRows, config: WalkConfig) -> SparseRows:
    if graph.num_nodes <= SMALL_WALK:
        walk = SparseRows.from_dense(
            personalized_pagerank(graph, seeds.to_dense(), damping=_DAMPING).values
        )
    else:
        kept = min(_KEPT, graph.num_nodes)
        found = personalized_pagerank(graph, seeds, damping=_DAMPING, k=kept)
        walk = SparseRows.of(found.indices, found.values, graph.num_nodes)
    return _relative(graph, walk, seeds) if config.relative else walk


def _relative(graph: Graph, walk: SparseRows, seeds: SparseRows) -> SparseRows:
    """Scale the share that edges bring to each node by the largest share at a non-seed.

    A walk restarts at the seeds with probability 1 - d, and always at seeds without edges. That
    part is subtracted, and values are capped at 1. If only seeds are reached, the largest share at
    a seed is the scale.
    """
    questions, (row, column) = walk.shape[0], (seeds.row, seeds.column)
    first, count = graph.spans(column)
    own, place = ranges(first, count)
    weight = graph.stored.weight.index_select(0, graph.leaving(place)).abs()
    leaving = torch.zeros_like(seeds.value).index_add_(0, own, weight.to(seeds.value.dtype))
    total = walk.value.new_zeros(questions)
    share = seeds.value / total.index_add(0, row, seeds.value)[row].clamp(min=_TINY)
    stays = walk.lookup(row, column).where(leaving == 0, 0.0)
    restart = 1 - _DAMPING + _DAMPING * total.index_add(0, row, stays)
    share = SparseRows(seeds.key, share, seeds.shape).lookup(walk.row, walk.column)
    brought = (walk.value - restart[walk.row] * share).clamp(min=0.0)
    brought = brought.where(brought > _ROUNDED * walk.value, 0.0)
    elsewhere, at_seeds = (
        total.scatter_reduce(0, walk.row, brought.where(there, 0.0), "amax")
        for there in (share == 0, share > 0)
    )
    most = torch.where(elsewhere > 0, elsewhere, at_seeds)[walk.row]
    found = (brought / most.clamp(min=_TINY)).clamp(max=1.0)
    return SparseRows(walk.key, found, walk.shape).select(found > 0)


def _without(graph: Graph, gone: Tensor) -> Graph:  # gone [N] bool
    cut = gone[graph.source.long()] | gone[graph.target.long()]
    return graph.zeroed(cut)
