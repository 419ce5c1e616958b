"""Bridge discovery: remove dependencies, and rank every absent pair to find them again.

The candidates are all pairs without a dependency either way. If the file proves in order, the later
statement is the user. A pair counts as found in either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import components
from graphmem_torch.spectral.community import communities
from graphmem_torch.spectral.link_prediction import (
    LinkModel,
    adjacency,
    fit_links,
    sparse_product,
)

from ..common.scores import difference_table
from .chains import reach
from .sets import ProofSet

__all__ = [
    "PAIR_BASELINES",
    "betweenness",
    "chain_repair",
    "judge_bridges",
    "measure_pairs",
    "published_bridges",
    "resistance_fall",
]
_SAMPLE = 500  # statements whose chains are compared


def chain_repair(
    whole: Graph,
    left: Graph,
    suggested: Mapping[str, Tensor],  # each [2, K] users, used
    generator: torch.Generator,
) -> dict[str, dict[str, float]]:
    """Compare chains of the whole graph with those of the remaining graph plus suggested pairs.

    Returns:
        By system, means over one sample of statements with dependencies:

        - `before`: share of the chain that remains without the pairs;
        - `completeness`: share with them;
        - `precision`: share of the then reachable statements that is in the chain;
        - `f1`: mean of each chain's harmonic mean of the two.
    """
    users = (whole.out_degree > 0).nonzero().squeeze(1)
    users = users[torch.randperm(len(users), generator=generator)[:_SAMPLE]]
    true = reach(whole)[users] > 0
    before = reach(left)[users] > 0
    size = true.sum(1)
    found = {}
    for name, pairs in suggested.items():
        edges = torch.cat([left.edge_index, pairs], dim=1)
        after = reach(Graph.from_edges(edges, num_nodes=whole.num_nodes))[users] > 0
        common, reached = (true & after).sum(1).double(), after.sum(1)
        found[name] = {
            "before": float(((true & before).sum(1).double() / size).mean()),
            "completeness": float((common / size).mean()),
            "precision": float((common / reached.clamp(min=1)).mean()),
            "f1": float((2 * common / (size + reached)).mean()),
        }
    return found


def resistance_fall(
    graph: Graph,
    suggested: Mapping[str, Tensor],  # each [2, K]
) -> dict[str, dict[str, float]]:
    """Return the exact fall of the total effective resistance of the largest component.

    The total is n tr(L⁺) with L = D - A, every edge of weight 1 both ways. K edges b_k lower it by
    n tr((I + Bᵀ L⁺ B)⁻¹ Bᵀ L⁺ L⁺ B) (Woodbury): one pseudo-inverse serves all systems.

    Returns:
        By system: `fall`, the lost share of the total; `joined`, pairs that instead join two
        components, whose total was infinite.
    """
    part = components(graph)
    main = torch.bincount(part).argmax()
    node = (part == main).nonzero().squeeze(1)
    dense = adjacency(graph)[node][:, node].double()
    dense = torch.maximum(dense, dense.T)
    size = len(node)
    laplacian = torch.diag(dense.sum(1)) - dense
    del dense
    factor = torch.linalg.cholesky(laplacian + 1 / size)
    inverse = torch.cholesky_inverse(factor) - 1 / size
    total = float(inverse.diagonal().sum())
    place = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    place[node] = torch.arange(size)
    falls = {}
    for name, pairs in suggested.items():
        inside = (place[pairs] >= 0).all(0)
        low, high = place[pairs[:, inside]]
        column = inverse[:, low] - inverse[:, high]  # L⁺ B
        gram = column[low] - column[high]
        core = torch.eye(gram.shape[0], dtype=gram.dtype) + gram
        fall = float(torch.linalg.solve(core, column.T @ column).diagonal().sum())
        joined = int((part[pairs[0]] != part[pairs[1]]).sum())
        falls[name] = {"fall": fall / total, "joined": joined}
    return falls


PairBaseline = Callable[[Graph, Tensor, torch.Generator], Tensor]
"""Function from graph, unit vectors `[N, d]` of its nodes and random numbers to scores `[N, N]`."""


def betweenness(
    graph: Graph,  # directions are ignored
    *,
    pivots: int = 64,
    generator: torch.Generator | None = None,
) -> Tensor:  # [N]
    """Return the share of shortest paths through each node, sampled (Brandes and Pich 2007).

    All starts advance together, one level a round.
    """
    near = _mutual(graph)
    nodes = graph.num_nodes
    start = torch.randperm(nodes, generator=generator)[:pivots]
    column = torch.arange(len(start))
    paths = torch.zeros(nodes, len(start))
    paths[start, column] = 1.0
    seen = paths > 0
    levels = [paths]
    while True:
        step = sparse_product(near, levels[-1]).masked_fill(seen, 0.0)
        if not bool(step.any()):
            break
        seen |= step > 0
        levels.append(step)
    through, total = torch.zeros(nodes, len(start)), torch.zeros(nodes)
    for depth in range(len(levels) - 1, 0, -1):
        here = levels[depth]
        share = torch.where(here > 0, (1 + through) / here.clamp(min=1e-30), 0.0)
        through = sparse_product(near, share) * levels[depth - 1]
        if depth > 1:
            total += through.sum(1)
    return total / max(1, len(start))


def _mutual(graph: Graph) -> Tensor:  # [N, N]
    dense = adjacency(graph)
    return torch.maximum(dense, dense.T)


def _random(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(graph.num_nodes, graph.num_nodes, generator=generator)


def _degree(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    degree = _mutual(graph).sum(1)
    return torch.outer(degree, degree)


def _directed_degree(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return torch.outer(graph.out_degree, graph.in_degree)


def _common_neighbours(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    near = _mutual(graph)
    return sparse_product(near, near)


def _adamic_adar(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    near = _mutual(graph)
    return sparse_product(near / near.sum(1).clamp(min=2).log(), near)


def _paths3(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    """Count paths of three edges, inner nodes divided by the root of their degree (Kovacs 2019)."""
    near = _mutual(graph)
    fair = near.sum(1).clamp(min=1).rsqrt()
    return sparse_product(near * fair, sparse_product(near * fair, near))


def _betweenness(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    central = betweenness(graph, generator=generator)
    return torch.outer(central, central)


def _cosine(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return view @ view.T


PAIR_BASELINES: Mapping[str, PairBaseline] = {
    "random": _random,
    "degree": _degree,
    "directed_degree": _directed_degree,
    "common_neighbours": _common_neighbours,
    "adamic_adar": _adamic_adar,
    "paths3": _paths3,
    "betweenness": _betweenness,
    "cosine": _cosine,
}
"""Baselines by name."""


def published_bridges(
    graph: Graph,  # N nodes, every edge of weight 1 both ways
    label: Tensor,  # [N] communities
) -> Tensor:  # [N, N]
    """Return the fall of the total effective resistance by an edge between two communities, else 0.

    Spectral Memory, section 4.3: n |L⁺ b|² / (1 + R) in a component of n nodes. A pair that joins
    two components has an infinite fall: these come first, by the number of joined pairs of nodes.
    """
    dense = _mutual(graph).double()
    part = components(graph).long()
    size = torch.bincount(part).double()[part]
    same = part[:, None] == part
    constant = same / size
    laplacian = torch.diag(dense.sum(1)) - dense
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(laplacian + constant)) - constant
    square = inverse @ inverse
    far, fall = (
        m.diagonal()[:, None] + m.diagonal() - 2 * m for m in (inverse, square)
    )  # R = bᵀ L⁺ b and |L⁺ b|²
    inside = size * fall / (1 + far)
    score = torch.where(same, inside, inside.max() + size[:, None] * size)
    return score.masked_fill(label[:, None] == label, 0.0).float()


_SHARE = 0.1  # share of the dependencies that are removed in a draw
_TOP = (10, 100)
_FALL = 100  # pairs whose effect on the total resistance is computed
_NOTHING = "nothing_added"
_MEASURES = ("found", "recall@10", "recall@100", "reciprocal_rank")


def judge_bridges(
    proofs: ProofSet,
    config: Config,
    *,
    draws: int,
    seed: int,
    resamples: int = 2000,
    advance: Callable[[int], object] = lambda count: None,
) -> dict[str, Any]:
    """Measure every system on several draws of removed dependencies; the preset is the subject.

    `advance` is called with 1 after each draw. The published bridges lie between the communities of
    the preset (`structure`).

    Returns:
        `systems[name]`: precision at 10 and 100 of the whole ranking; `found`, the share of R
        removed pairs in the first R; and for each removed dependency the rank of the used statement
        among the candidates of its user: recall at 10 and 100, mean reciprocal rank.

        For the first draw: `chains`, the repair by as many pairs as were removed (`chains_likely`
        of the subject: only pairs more likely than not); `resistance`, the fall of the total
        effective resistance by the first 100; `nothing_added`, the chains without any pair.

        `ci.difference` is the subject's measure minus each other's, resampled over removed
        dependencies in pairs.
    """
    subject = config.name
    each: dict[str, list[Tensor]] = {}
    top: dict[str, list[list[float]]] = {}
    repaired: dict[str, Any] = {}
    chains: dict[str, dict[str, float]] = {}
    for draw in range(draws):
        chance = torch.Generator().manual_seed(seed + draw)
        count = proofs.graph.num_edges
        gone = torch.zeros(count, dtype=torch.bool)
        gone[torch.randperm(count, generator=chance)[: max(1, int(_SHARE * count))]] = True
        left, removed = proofs.graph.select(~gone), proofs.graph.edge_index[:, gone]
        suggested: dict[str, Tensor] = {}
        for name, score in _systems(proofs, left, config, chance):
            found = measure_pairs(score, left, removed, proofs.order)
            each.setdefault(name, []).append(found["each"])
            top.setdefault(name, []).append(found["precision"])
            if draw == 0:
                suggested[name] = found["pairs"]
        if draw == 0:
            falls = resistance_fall(left, {n: p[:, :_FALL] for n, p in suggested.items()})
            likely = suggested[subject][:, : found["likely"]]
            others = {f"{subject}_likely": likely, _NOTHING: likely[:, :0]}
            chains = chain_repair(proofs.graph, left, suggested | others, chance)
            repaired = {
                name: {"chains": chains[name], "resistance": falls[name]} for name in suggested
            }
            repaired[subject]["chains_likely"] = chains[f"{subject}_likely"] | {
                "pairs": likely.shape[1]
            }
        advance(1)
    values = {name: torch.cat(parts) for name, parts in each.items()}
    figures = {
        name: {
            **{f"precision@{k}": sum(p[i] for p in top[name]) / draws for i, k in enumerate(_TOP)},
            **dict(zip(_MEASURES, value.mean(0).tolist(), strict=True)),
            **repaired[name],
        }
        for name, value in values.items()
    }
    gains = difference_table(values, subject, _MEASURES, seed=seed, resamples=resamples)
    return {
        "candidates": _count_candidates(proofs),
        "removed": max(1, int(_SHARE * proofs.graph.num_edges)),
        "draws": draws,
        _NOTHING: chains[_NOTHING],
        "systems": figures,
        "ci": {"difference": gains},
    }


def measure_pairs(
    score: Tensor,  # [N, N]
    left: Graph,
    removed: Tensor,  # [2, R] users, used
    order: Tensor | None,  # [N]
) -> dict[str, Any]:
    """Measure how a score of pairs finds the removed ones.

    Returns:
        `each` `[R, 4]`: whether a removed pair is in the first R of all, in the first 10 and 100 of
        its user's, and its reciprocal rank there. `precision` at 10 and 100 of all. `pairs` `[2,
        R]`: the first R, users and used. `likely`: number of these with a positive score,
        meaningful for log odds only. Equal scores share their mean rank.
    """
    nodes = left.num_nodes
    if order is None:
        forward = score >= score.T
        score = torch.maximum(score, score.T)
        possible = ~torch.eye(nodes, dtype=torch.bool)
    else:
        forward = torch.ones_like(score, dtype=torch.bool)
        possible = order[:, None] > order
    source, target = left.edge_index
    possible[source, target] = False
    possible[target, source] = False
    score = score.masked_fill(~possible, -torch.inf)
    user, used = removed
    own = score[user, used]
    better, equal = torch.empty_like(own), torch.empty_like(own)
    for run in torch.arange(len(user)).split(1024):
        rows = score[user[run]]
        better[run] = (rows > own[run, None]).sum(1).to(own.dtype)
        equal[run] = (rows == own[run, None]).sum(1).to(own.dtype)
    rank = better + (equal - 1) / 2
    once = score
    if order is None:  # each pair is in both halves
        once = score.masked_fill(torch.ones_like(possible).triu(), -torch.inf)
    count = len(user)
    best = once.flatten().topk(min(count, once.numel()))
    first = best.indices
    low, high = first // nodes, first % nodes
    gone = torch.zeros(nodes, nodes, dtype=torch.bool)
    gone[user, used] = True
    hit = gone[low, high] | gone[high, low]
    among = torch.zeros(nodes, nodes, dtype=torch.bool)
    among[low, high] = True
    found = among[user, used] | among[used, user]
    turned = forward[low, high]
    pairs = torch.stack([torch.where(turned, low, high), torch.where(turned, high, low)])
    each = torch.stack([found.double(), *((rank < k).double() for k in _TOP), 1 / (rank + 1)], 1)
    return {
        "each": each.double(),
        "precision": [float(hit[:k].double().mean()) for k in _TOP],
        "pairs": pairs,
        "likely": int((best.values > 0).sum()),
    }


def _systems(
    proofs: ProofSet, left: Graph, config: Config, chance: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """Yield names and scores `[N, N]`, one at a time because each is large."""
    for name, baseline in PAIR_BASELINES.items():
        yield name, baseline(left, proofs.views[0], chance)
    label = communities(left, config.structure.communities)
    yield "published_bridges", published_bridges(left, label)
    place = torch.arange(left.num_nodes)
    model = fit_links(left, proofs.views, order=proofs.order, place=place, generator=chance)
    yield "autoencoder", sparse_product(model.signals.dense, model.signals.pattern)
    yield config.name, _all_scores(model)


def _all_scores(model: LinkModel) -> Tensor:  # [N, N]
    return torch.cat([score for _, score, _ in model.tiles()])


def _count_candidates(proofs: ProofSet) -> int:
    nodes = proofs.graph.num_nodes
    return nodes * (nodes - 1) // 2 - proofs.graph.num_edges
