"""Premise chains: from the text of a theorem to everything that its proof depends on.

`new`: the theorem and everything that depends on it are removed, and only its text is given, as for
an addition to a library. `known`: it is present with its dependencies, and must be found first.
`dependents`: it is present, and the statements that depend on it are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.graph import Graph
from graphmem_torch.ops import knapsack, personalized_pagerank
from graphmem_torch.spectral.link_prediction import adjacency, sparse_product

from ..common.scores import difference_table
from .premises import ChainModel, fit_chains
from .sets import ProofSet

__all__ = ["ATOMS", "DEPTHS", "TOKENS", "completeness", "hops_from", "judge_chains", "reach"]
ATOMS = (10, 25, 50, 100, 200)
"""Context sizes in statements."""
TOKENS = (512, 2048, 8192)
"""Context sizes in tokens."""
DEPTHS = {"direct": 1, "two": 2, "all": None}
"""Depths of a chain: direct dependencies, two levels, all."""
_OWN = "own_size"  # context of as many statements as the chain has
_SEEDS = 5


def reach(graph: Graph, hops: int | None = None) -> Tensor:  # [N, N] float32
    """Return 1 for paths of at least one edge, and at most `hops`, from i to j; else 0.

    Without `hops`, nodes are done level by level, each from the finished rows of its targets, so
    that every edge is followed once. A graph with circles is done hop by hop until nothing changes.

    Raises:
        InputError: More than 20,000 nodes, or `hops` below 1.
    """
    dense = adjacency(graph)
    if hops is not None:
        check_count("hops", hops)
        found = dense
        for _ in range(hops - 1):
            found = torch.maximum(dense, sparse_product(dense, found).clamp_(max=1.0))
        return found
    level = _levels(graph)
    if level is None:
        found, known = dense, -1
        while (now := int(found.count_nonzero())) != known:
            known = now
            found = torch.maximum(found, sparse_product(dense, found).clamp_(max=1.0))
        return found
    found = torch.zeros_like(dense)
    for depth in range(1, int(level.max()) + 1 if len(level) else 0):
        rows = (level == depth).nonzero().squeeze(1)
        own = dense[rows]
        found[rows] = torch.maximum(own, sparse_product(own, found).clamp_(max=1.0))
    return found


def _levels(graph: Graph) -> Tensor | None:  # [N] int64
    """Return the length of the longest path from each node; None if there is a circle."""
    source, target = graph.source.long(), graph.target.long()
    waiting = torch.bincount(source, minlength=graph.num_nodes)  # targets without a level
    level = torch.full_like(waiting, -1)
    depth = 0
    while bool((ready := (waiting == 0) & (level < 0)).any()):
        level[ready] = depth
        waiting -= torch.bincount(source[ready[target]], minlength=graph.num_nodes)
        depth += 1
    return level if bool((level >= 0).all()) else None


@dataclass(frozen=True)
class _Task:
    """B questions: similarity `[K, B, N]`, candidates `[B, N]` bool, gold `[B, N]` bool."""

    relevance: Tensor
    allowed: Tensor
    gold: Tensor


def judge_chains(
    proofs: ProofSet, *, subject: str, tests: int, seed: int, resamples: int = 2000
) -> dict[str, Any]:
    """Measure completeness of chains at equal context sizes, by system, setting and depth.

    Returns:
        `settings[name]`: by system the mean completeness at each context size; `ceiling`, the best
        possible value; `gold_mean`, mean statements of a chain; `ci.difference`, the subject's
        completeness minus each other's, resampled in pairs.
    """
    chance = torch.Generator().manual_seed(seed)
    whole = reach(proofs.graph)
    able = (proofs.graph.out_degree > 0) & proofs.asserts & (whole.diagonal() == 0)
    nodes = able.nonzero().squeeze(1)
    nodes = nodes[torch.randperm(len(nodes), generator=chance)]
    count = min(tests, len(nodes) // 2)
    test, train = nodes[:count], nodes[count : 2 * count + tests]
    report: dict[str, Any] = {"n": count, "learned_from": len(train), "settings": {}}
    learned = proofs.relevance(train), _without(whole, train)
    likeness = proofs.relevance(test)
    for depth, hops in DEPTHS.items():
        chains = whole if hops is None else reach(proofs.graph, hops)
        model = fit_chains(chains, train, *learned)
        task = _Task(likeness, _without(whole, test), chains[test] > 0)
        plain = _baselines(proofs.graph, task, whole, proofs.costs)
        odds = model.probability(task.relevance, task.allowed)
        report["settings"][f"new_{depth}"] = _judged(
            proofs, task, plain, subject, odds, seed, resamples
        )
    report["settings"]["known_all"] = _known(
        proofs, proofs.graph, whole, test, likeness, subject, seed, resamples, model
    )
    turned = Graph.from_edges(proofs.graph.edge_index.flip(0), num_nodes=proofs.graph.num_nodes)
    used = ((proofs.graph.in_degree > 0) & able).nonzero().squeeze(1)
    used = used[torch.randperm(len(used), generator=chance)[:tests]]
    report["settings"]["dependents_all"] = _known(
        proofs, turned, whole.T, used, proofs.relevance(used), subject, seed, resamples, None
    )
    return report


def completeness(
    score: Tensor,  # [B, N]; -inf: never taken
    gold: Tensor,  # [B, N] bool
    costs: Tensor,  # [N] tokens
    values: Tensor | None = None,  # [B, N] values for contexts counted in tokens
) -> Tensor:  # [B, len(ATOMS) + 1 + len(TOKENS)] float64, NaN without gold
    """Return the share of gold in the context: by statements, at the gold's own size, by tokens.

    A context of tokens is the longest prefix of the ranking within them; with `values` it is the
    set of maximum value (`ops.knapsack`).
    """
    size = gold.sum(1, keepdim=True)
    order = score.sort(dim=1, descending=True, stable=True).indices
    hits = (gold & (score > -torch.inf)).gather(1, order).cumsum(1)
    columns = [hits[:, min(k, hits.shape[1]) - 1] for k in ATOMS]
    columns.append(hits.gather(1, size.clamp(min=1) - 1).squeeze(1))
    if values is None:
        taken = (gold & (score > -torch.inf)).gather(1, order)
        spent = costs[order].cumsum(1)
        columns += [(taken & (spent <= budget)).sum(1) for budget in TOKENS]
    else:
        price = costs.expand(values.shape)
        for budget in TOKENS:
            chosen = knapsack(values, price, torch.full((len(values),), budget)).mask
            columns.append((chosen & gold).sum(1))
    return (torch.stack(columns, 1) / size.clamp(min=1)).double().masked_fill(size == 0, torch.nan)


def hops_from(graph: Graph, start: Tensor) -> Tensor:  # [B] -> [B, N], inf where not reached
    """Return the edges of the shortest path from each start, along the edges' direction."""
    dense = adjacency(graph)
    rows = torch.arange(len(start))
    distance = torch.full((len(start), graph.num_nodes), torch.inf)
    distance[rows, start] = 0.0
    front = torch.zeros_like(distance)
    front[rows, start] = 1.0
    hop = 0
    while bool(front.any()):
        hop += 1
        fresh = (sparse_product(front, dense) > 0) & (distance == torch.inf)
        distance[fresh] = hop
        front = fresh.float()
    return distance


def _without(whole: Tensor, nodes: Tensor) -> Tensor:  # [T, N] bool
    """Return the remaining nodes without each of some nodes and everything that depends on it."""
    allowed = whole[:, nodes].T == 0
    allowed[torch.arange(len(nodes)), nodes] = False
    return allowed


def _baselines(
    graph: Graph,
    task: _Task,
    whole: Tensor,  # [N, N]
    costs: Tensor,  # [N]
) -> dict[str, Tensor]:
    """Return the scores `[B, N]` of systems without learning, by name.

    `popular_per_token` shows the effect of preferring short statements without any question.
    """
    popular = whole.sum(0).expand_as(task.relevance[0])
    cosine, lexical = (like.masked_fill(~task.allowed, -torch.inf) for like in task.relevance)
    near = hops_from(graph, cosine.argmax(1))
    top = cosine.topk(min(_SEEDS, graph.num_nodes), dim=1)
    seeds = torch.zeros_like(cosine).scatter_(1, top.indices, top.values.clamp(min=1e-6))
    walk = personalized_pagerank(graph, seeds.masked_fill(~task.allowed, 0.0)).values
    last = near[near < torch.inf].max() + 1
    return {
        "cosine": cosine,
        "bm25": lexical,
        # Equally far statements, and then unreachable ones, by cosine.
        "bfs": 0.1 * task.relevance[0] - near.clamp(max=last),
        "ppr": torch.where(walk > 0, walk, task.relevance[0] - 2),
        "popular": popular,
        "popular_per_token": popular / costs.clamp(min=1),
    }


def _known(
    proofs: ProofSet,
    graph: Graph,
    whole: Tensor,  # [N, N] who reaches whom along the graph
    nodes: Tensor,
    likeness: Tensor,  # [K, B, N]
    subject: str,
    seed: int,
    resamples: int,
    model: ChainModel | None,
) -> dict[str, Any]:
    """Measure known theorems: the best hit by text is looked up, and its chain comes first.

    The statement that was asked for is no candidate of any system.
    """
    start = likeness[0].argmax(1)
    seen = torch.ones_like(likeness[0], dtype=torch.bool)
    task = _Task(likeness, seen, whole[nodes] > 0)
    plain = _baselines(graph, task, whole, proofs.costs)
    chain = whole[start]
    rest = likeness[0].clamp(min=0) if model is None else model.probability(likeness, seen)
    own = torch.zeros_like(seen)
    own[torch.arange(len(nodes)), nodes] = True
    odds = (chain + 1e-3 * rest) / (1 + 1e-3)
    task = _Task(likeness, ~own, task.gold)
    report = _judged(proofs, task, plain, subject, odds, seed, resamples)
    return report | {"found_by_text": float((start == nodes).double().mean())}


def _judged(
    proofs: ProofSet,
    task: _Task,
    plain: Mapping[str, Tensor],
    subject: str,
    odds: Tensor,  # [B, N] the subject's probabilities
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    names = [*(f"atoms@{k}" for k in ATOMS), _OWN, *(f"tokens@{k}" for k in TOKENS)]

    def held(score: Tensor) -> Tensor:
        return score.masked_fill(~task.allowed, -torch.inf)

    values = {
        name: completeness(held(score), task.gold, proofs.costs) for name, score in plain.items()
    }
    worth = odds.masked_fill(~task.allowed, 0.0)
    values[subject] = completeness(held(odds), task.gold, proofs.costs, worth)
    # The shortest first among equal values: no set of that size holds more.
    best = task.gold / proofs.costs.clamp(min=1)
    ceiling = completeness(held(best), task.gold, proofs.costs)
    gains = difference_table(values, subject, names, seed=seed, resamples=resamples)
    return {
        "ceiling": dict(zip(names, ceiling.nanmean(0).tolist(), strict=True)),
        "gold_mean": float(task.gold.sum(1).double().mean()),
        "systems": {
            name: dict(zip(names, value.nanmean(0).tolist(), strict=True))
            for name, value in values.items()
        },
        "ci": {"difference": gains},
    }
