"""predict_links: which edges are missing, learned from the edges that are there.

`links.suggest_links` asks another question: which new edges would draw the graph together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_count, check_range
from graphmem_torch.rank.logistic import Logistic, fit_logistic
from graphmem_torch.spectral.link_signals import LinkSignals

__all__ = ["LinkModel", "PredictedLinks", "fit_links", "predict_links"]

_TILE = 256  # rows of pairs scored at once
_HARD, _RANDOM = 16, 32  # absent pairs taken of each row: the likeliest, and any
_WANTED = 1000  # hidden edges that a fit sees, in several draws where one has fewer
_DRAWS = 8


@dataclass(frozen=True, eq=False)
class PredictedLinks:
    """Absent edges, likeliest first.

    Attributes:
        pairs: `[2, k]` int64: sources, targets.
        probability: `[k]`, of being as much an edge as those that are there.
    """

    pairs: Tensor
    probability: Tensor


@dataclass(frozen=True, eq=False)
class LinkModel:
    """A fitted judge of all pairs of nodes.

    Attributes:
        signals: Of the whole graph.
        logistic: What each of them counts.
        order: `[N]`; an edge leads to a node of smaller order only. None: anywhere.
    """

    signals: LinkSignals
    logistic: Logistic
    order: Tensor | None

    def tiles(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """First row, `[r, N]` log odds and `[r, N]` whether the pair is absent and possible."""
        for first in range(0, self.signals.num_nodes, _TILE):
            last = min(first + _TILE, self.signals.num_nodes)
            score = self.logistic.log_odds(self.signals.tile(first, last))
            yield first, score, _absent(self.signals, self.order, first, last)


def fit_links(
    graph: Graph,  # N nodes
    views: Sequence[Tensor] = (),  # each [N, d], unit rows
    *,
    order: Tensor | None = None,  # [N]
    place: Tensor | None = None,  # [N]
    share: float = 0.1,
    generator: torch.Generator | None = None,
) -> LinkModel:
    """Learns from the graph itself which signals foretell an edge.

    A share of the edges is hidden; the signals of what remains should tell them from absent pairs.
    Those are sampled row by row, the likeliest by the autoencoder and random ones, weighted by the
    inverse of their chance. With the weights found, the signals of the whole graph score what it
    lacks. No edge outside the graph given is looked at.

    Args:
        graph: At most 20,000 nodes, with two edges or more.
        views: Vectors of the nodes, e.g. embeddings of their texts.
        order: Where edges only lead back, e.g. from a theorem to what was proved before it.
        place: Where each node stands in its source, e.g. its line; near ones belong together.
        share: Of the edges that are hidden in a draw, in (0, 0.5].
        generator: Of the draws.

    Raises:
        InputError: A graph too small, too large or complete, a share out of range, views or places
            that are not finite or do not fit the nodes, or an order that does not fit the edges.
    """
    check_range("share", share, 1e-6, 0.5)
    if graph.num_edges < 2:
        raise InputError(
            f"graph must have at least 2 edges to learn from; got {graph.num_edges}. Add edges."
        )
    if order is not None and order.shape != (graph.num_nodes,):
        raise InputError(
            f"order must be [{graph.num_nodes}]; got {list(order.shape)}. Give each node's place."
        )
    if order is not None and not bool((order[graph.source] > order[graph.target]).all()):
        raise InputError(
            "order must fall along every edge; got an edge that leads to a node of the same or "
            "larger order. Leave the order out."
        )
    hidden = max(1, int(share * graph.num_edges))
    rows = []
    for _ in range(min(_DRAWS, -(-_WANTED // hidden))):
        drawn = torch.randperm(graph.num_edges, generator=generator).to(graph.device)
        keep = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
        keep[drawn[:hidden]] = False
        reduced = LinkSignals(graph.select(keep), views, place=place)
        rows.append(_examples(reduced, graph.edge_index[:, ~keep], order, generator))
    signals, positive, weight = (torch.cat(column) for column in zip(*rows, strict=True))
    if bool(positive.all()):
        raise InputError(
            f"graph must lack some edge; got all that {graph.num_nodes} nodes may have. Ask of a "
            "graph in which something may be missing."
        )
    full = LinkSignals(graph, views, place=place)
    return LinkModel(full, fit_logistic(signals, positive, weight), order)


def predict_links(
    graph: Graph,  # N nodes
    views: Sequence[Tensor] = (),  # each [N, d], unit rows
    k: int = 10,
    *,
    order: Tensor | None = None,  # [N]
    place: Tensor | None = None,  # [N]
    share: float = 0.1,
    generator: torch.Generator | None = None,
) -> PredictedLinks:
    """The k absent edges that the graph's own pattern makes likeliest (`fit_links`).

    Raises:
        InputError: As `fit_links` does, or if k is below 1.
    """
    check_count("k", k)
    model = fit_links(graph, views, order=order, place=place, share=share, generator=generator)
    best = torch.empty(0, device=graph.device)
    place = torch.empty(0, dtype=torch.int64, device=graph.device)
    for first, score, absent in model.tiles():
        flat = score.masked_fill(~absent, -torch.inf).flatten()
        top = flat.topk(min(k, flat.shape[0]))
        best = torch.cat([best, top.values])
        place = torch.cat([place, top.indices + first * graph.num_nodes])
        kept = best.topk(min(k, best.shape[0]))
        best, place = kept.values, place[kept.indices]
    real = best > -torch.inf
    best, place = best[real], place[real]
    pairs = torch.stack([place // graph.num_nodes, place % graph.num_nodes])
    return PredictedLinks(pairs, best.sigmoid())


def _examples(
    signals: LinkSignals,  # of the graph without them
    hidden: Tensor,  # [2, H]
    order: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:  # [n, F], [n] bool, [n]
    """Signals of hidden edges and of sampled absent pairs, in the graph without the former."""
    nodes = signals.num_nodes
    missing = hidden[0] * nodes + hidden[1]
    found = []
    for first in range(0, nodes, _TILE):
        last = min(first + _TILE, nodes)
        tile = signals.tile(first, last)
        positive = torch.zeros(last - first, nodes, dtype=torch.bool, device=hidden.device)
        inside = missing[(missing >= first * nodes) & (missing < last * nodes)] - first * nodes
        positive.view(-1)[inside] = True
        weight = _sampled(tile, _absent(signals, order, first, last) & ~positive, generator)
        weight[positive] = 1.0
        chosen = weight > 0
        found.append((tile[chosen], positive[chosen], weight[chosen]))
    features, labels, weights = (torch.cat(column) for column in zip(*found, strict=True))
    return features, labels, weights


def _sampled(
    tile: Tensor,  # [r, N, F]
    negative: Tensor,  # [r, N] bool
    generator: torch.Generator | None,
) -> Tensor:  # [r, N]
    """The weight of each absent pair in the fit, 0 for those left out."""
    nodes = negative.shape[1]
    weight = torch.zeros(negative.shape, device=tile.device)
    likely = tile[..., 0].masked_fill(~negative, -torch.inf)
    hard = likely.topk(min(_HARD, nodes), dim=1).indices
    weight.scatter_(1, hard, 1.0)
    rest = negative & (weight == 0)
    chance = torch.rand(negative.shape, generator=generator).to(tile.device)
    drawn = chance.masked_fill(~rest, 2.0).topk(min(_RANDOM, nodes), dim=1, largest=False).indices
    left = rest.sum(1, keepdim=True)
    scale = left / left.clamp(max=drawn.shape[1]).clamp(min=1)
    random = torch.zeros_like(rest).scatter_(1, drawn, True) & rest
    return torch.where(random, scale, weight).masked_fill(~negative, 0.0)


def _absent(
    signals: LinkSignals, order: Tensor | None, first: int, last: int
) -> Tensor:  # [r, N] bool
    """Pairs with an edge in neither direction that one may lead along."""
    absent = (signals.dense[first:last] == 0) & (signals.dense[:, first:last].T == 0)
    absent.diagonal(first).fill_(False)
    if order is not None:
        absent &= order[first:last, None] > order
    return absent
