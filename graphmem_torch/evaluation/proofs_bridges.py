"""Bridge discovery: dependencies are removed, and every absent pair is ranked to find them again.

The candidates are all pairs without a dependency either way; where the file proves in order, the
later statement is the user. A pair counts as found whichever way it was scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import bootstrap_interval
from graphmem_torch.evaluation.proofs_mend import chain_repair, resistance_fall
from graphmem_torch.evaluation.proofs_pairs import PAIR_BASELINES
from graphmem_torch.evaluation.proofs_sets import ProofSet
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.adjacency import sparse_product
from graphmem_torch.spectral.link_prediction import LinkModel, fit_links

__all__ = ["judge_bridges", "measure_pairs"]

_SHARE = 0.1  # of the dependencies that are removed in a draw
_TOP = (10, 100)
_FALL = 100  # pairs whose effect on the total resistance is computed
_NOTHING = "nothing_added"
_MEASURES = ("found", "recall@10", "recall@100", "reciprocal_rank")


def judge_bridges(
    proofs: ProofSet, *, subject: str, draws: int, seed: int, resamples: int = 2000
) -> dict[str, Any]:
    """Every system on several draws of removed dependencies.

    Returns:
        `systems[name]`: precision at 10 and 100 of the whole ranking; `found`, the share of the
        removed pairs among as many first ones; and for each removed dependency the rank of what
        was used among all that its user could use: recall at 10 and 100, mean reciprocal rank. Of
        the first draw, what adding as many pairs as were removed repairs (`chains`; the subject's
        `chains_likely` adds only those it holds for more likely than not), and the fall of the
        total effective resistance by the first 100 (`resistance`); `nothing_added`: the chains
        without any pair. `ci.difference` is the subject's measure minus each other's, resampled
        over removed dependencies in pairs.
    """
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
        for name, score in _systems(proofs, left, subject, chance):
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
    values = {name: torch.cat(parts) for name, parts in each.items()}
    figures = {
        name: {
            **{f"precision@{k}": sum(p[i] for p in top[name]) / draws for i, k in enumerate(_TOP)},
            **dict(zip(_MEASURES, value.mean(0).tolist(), strict=True)),
            **repaired[name],
        }
        for name, value in values.items()
    }
    return {
        "candidates": _count_candidates(proofs),
        "removed": max(1, int(_SHARE * proofs.graph.num_edges)),
        "draws": draws,
        _NOTHING: chains[_NOTHING],
        "systems": figures,
        "ci": {"difference": _differences(values, subject, seed, resamples)},
    }


def measure_pairs(
    score: Tensor,  # [N, N]
    left: Graph,
    removed: Tensor,  # [2, R] users, used
    order: Tensor | None,  # [N]
) -> dict[str, Any]:
    """How a score of pairs finds what was removed.

    Returns:
        `each` `[R, 4]`: whether a removed pair is among the R first of all, among the 10 and the
        100 first of its user's, and its reciprocal rank there; `precision` at 10 and 100 of all;
        `pairs` `[2, R]`: the R first, users and used; `likely`: how many of them score above 0,
        which means something for log odds only. Equal scores share their mean rank.
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
    if order is None:  # each pair stands in both halves
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
    proofs: ProofSet, left: Graph, subject: str, chance: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """Names and scores `[N, N]`, one at a time: each is as large as the whole."""
    for name, baseline in PAIR_BASELINES.items():
        yield name, baseline(left, proofs.views[0], chance)
    place = torch.arange(left.num_nodes)
    model = fit_links(left, proofs.views, order=proofs.order, place=place, generator=chance)
    yield "autoencoder", sparse_product(model.signals.dense, model.signals.pattern)
    yield subject, _all_scores(model)


def _all_scores(model: LinkModel) -> Tensor:  # [N, N]
    return torch.cat([score for _, score, _ in model.tiles()])


def _count_candidates(proofs: ProofSet) -> int:
    nodes = proofs.graph.num_nodes
    return nodes * (nodes - 1) // 2 - proofs.graph.num_edges


def _differences(
    values: Mapping[str, Tensor], subject: str, seed: int, resamples: int
) -> dict[str, dict[str, list[float] | None]]:
    table = {}
    for name, value in values.items():
        if name == subject:
            continue
        found = bootstrap_interval(
            values[subject] - value,
            generator=torch.Generator().manual_seed(seed),
            resamples=resamples,
        )
        table[name] = {
            measure: None if interval is None else list(interval)
            for measure, interval in zip(_MEASURES, found, strict=True)
        }
    return table
