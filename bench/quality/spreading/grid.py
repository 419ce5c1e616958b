"""Run many settings of spreading activation on one memory, as rows of few batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from graphmem_torch.config import AnchorConfig, Config, SpreadConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph
from graphmem_torch.index.activation_graph import activation_graph
from graphmem_torch.memory import Memory
from graphmem_torch.ops import spread_activation
from graphmem_torch.rank.anchors import anchor_activation
from graphmem_torch.rank.routing import relative_pagerank

from ..common.task import RetrievalTask

__all__ = [
    "Patterns",
    "Setting",
    "activations",
    "anchors_of",
    "drawn_settings",
    "one_by_one",
    "with_controls",
]

_EDGES = (
    "edges",
    "reverse",
    "max_edges",
    "capped",
    "temporal_decay_per_hour",
    "temporal_step_hours",
)
_ROWS, _CELLS = 1 << 13, 1 << 26  # of a batch, and of its matrix over the nodes: 268 MB
_FANS = {"degree": -1.0, "sqrt": -0.5, "none": 0.0}

_SOURCES: tuple[Literal["dual", "fused", "semantic"], ...] = ("dual", "fused", "fused", "semantic")
_BOTH = ("similarity", "abstraction", "association", "derived_from")
_KINDS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    "synapse": (
        {"temporal": 1.0, "abstraction": 1.0, "association": 1.0, "derived_from": 1.0},
        {"abstraction": 1.0, "association": 1.0, "derived_from": 1.0},
    ),
    "both ways": (
        {"temporal": 0.5} | dict.fromkeys(_BOTH, 1.0),
        {"temporal": 0.5} | dict.fromkeys(_BOTH, 1.0),
    ),
    "temporal": ({"temporal": 1.0}, {"temporal": 1.0}),
    "forward in time": ({"temporal": 1.0}, {}),
    "similarity": ({"similarity": 1.0}, {"similarity": 1.0}),
    "concepts": (
        {"abstraction": 1.0, "association": 0.3},
        {"abstraction": 1.0, "association": 0.3},
    ),
    "concepts without association": ({"abstraction": 1.0}, {"abstraction": 1.0}),
    "concepts and time": (
        {"abstraction": 1.0, "temporal": 1.0},
        {"abstraction": 1.0, "temporal": 0.3},
    ),
}
"""Edge kinds of the grid: gains forwards and backwards."""


@dataclass(frozen=True)
class Setting:
    """Point of the grid.

    Attributes:
        name: Name in tables.
        spread: Constants of spreading.
        anchors: Choice of the start.
    """

    name: str
    spread: SpreadConfig
    anchors: AnchorConfig

    @property
    def edges(self) -> tuple[Any, ...]:
        """Return the settings that decide which edges conduct, and how well."""
        values = (getattr(self.spread, name) for name in _EDGES)
        return tuple(tuple(sorted(v.items())) if isinstance(v, Mapping) else v for v in values)

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for the report."""
        plain = SpreadConfig()
        found = {
            field.name: getattr(self.spread, field.name)
            for field in fields(SpreadConfig)
            if getattr(self.spread, field.name) != getattr(plain, field.name)
        }
        anchors: dict[str, Any] = {"source": self.anchors.source, "k": self.anchors.k}
        if self.anchors.source == "fused":
            anchors["temperature"] = self.anchors.temperature
        return found | {"anchors": anchors}


def drawn_settings(count: int, named: Sequence[Config], seed: int) -> list[Setting]:
    """Return `count` settings: those of some presets, the others drawn evenly from every axis."""
    chance = random.Random(seed)
    found = [Setting(one.name, one.spread, one.anchors) for one in named]
    capped = SpreadConfig().capped
    while len(found) < count:
        forwards, backwards = _KINDS[kind := chance.choice(sorted(_KINDS))]
        cap = chance.choice((10, 50, 100_000))
        inhibition = chance.choice((0.0, 0.0, 0.02, 0.05, 0.15))
        spread = SpreadConfig(
            rounds=chance.choice((1, 2, 3)),
            retention=chance.choice((0.2, 0.5, 0.8)),
            spread=chance.choice((0.4, 0.8, 1.0)),
            reduce=chance.choice(("sum", "max")),
            fan=chance.choice(("degree", "sqrt", "none")),
            inhibition=inhibition,
            firing="linear" if chance.random() < 0.5 else "sigmoid",
            gain=chance.choice((5.0, 10.0)),
            threshold=chance.choice((0.1, 0.3, 0.5)),
            temporal_decay_per_hour=chance.choice((0.0, 0.01, 0.1)),
            temporal_step_hours=1.0,
            edges=forwards,
            reverse=backwards,
            max_edges=cap,
            capped=capped,
        )
        anchors = AnchorConfig(
            chance.choice(_SOURCES), chance.choice((3, 10, 30)), chance.choice((1.0, 2.0, 4.0))
        )
        spread = replace(spread, spare=chance.choice((0, 30)) if inhibition else 0)
        found.append(Setting(f"{kind} {len(found)}", spread, anchors))
    return found


@dataclass(frozen=True, eq=False)
class Patterns:
    """Edges of all settings of a memory: one graph, with weights by pattern.

    Attributes:
        graph: Graph of N nodes and E edges: all that conduct in some setting.
        weight: [P, E], 0 if an edge does not conduct.
        place: Index of the pattern of each `Setting.edges`.
        pagerank: [P, A] PageRank of the atoms, relative to the largest.
        node: [A] node of each atom.
        concept: [N] bool.
    """

    graph: Graph
    weight: Tensor
    place: Mapping[tuple[Any, ...], int]
    pagerank: Tensor
    node: Tensor
    concept: Tensor

    @classmethod
    def of(cls, memory: Memory, settings: Sequence[Setting]) -> Patterns:
        """Build the patterns from the stored edges of a memory."""
        columns = memory.store.columns()
        names, order = columns.node.sort()
        edges = memory.store.edges()
        rows = EdgeBlock(
            torch.searchsorted(names, edges.source.long()),
            torch.searchsorted(names, edges.target.long()),
            edges.type,
            edges.weight,
        )
        time, concept = columns.time[order], columns.is_concept[order]
        node = memory.index.tensors.node.long()
        distinct = {setting.edges: setting.spread for setting in settings}
        graphs = [activation_graph(rows, time, own, concept) for own in distinct.values()]
        keys = [_keys(graph) for graph in graphs]
        every = torch.cat(keys).unique()
        weight = torch.zeros(len(graphs), len(every))
        for place, (graph, key) in enumerate(zip(graphs, keys, strict=True)):
            weight[place, torch.searchsorted(every, key)] = graph.weight
        pair, kind = every // 256, every % 256
        count = len(names)
        index = torch.stack([pair % count, pair // count]) if count else pair.new_empty(2, 0)
        union = Graph.from_edges(index, type=kind, num_nodes=count)
        ranks = torch.stack([relative_pagerank(graph, node) for graph in graphs])
        places = {own: place for place, own in enumerate(distinct)}
        return cls(union, weight, places, ranks, node, concept)

    def fans(self, settings: Sequence[SpreadConfig], places: Sequence[int]) -> Tensor:  # [S, N]
        """Return the divisor of activation in each setting, of the pattern at each place."""
        there = (self.weight != 0).float()
        degree = there.new_zeros(len(there), self.graph.num_nodes)
        degree.index_add_(1, self.graph.source, there).clamp_(min=1)
        mean = degree[:, self.node].mean(1, keepdim=True)
        raised = torch.where(self.concept, degree, torch.maximum(degree, mean))
        table = {"one": degree, "mean": raised}
        return torch.stack(
            [
                table[own.min_fan][place] ** -_FANS[own.fan]
                for own, place in zip(settings, places, strict=True)
            ]
        )


def with_controls(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings, plus each of their anchor choices once without any round."""
    every = {one.anchors: one for one in settings}
    none = (replace(one, spread=replace(one.spread, rounds=0)) for one in every.values())
    return [*settings, *(replace(one, name=f"anchors of {one.name}") for one in none)]


def _keys(graph: Graph) -> Tensor:  # [E] int64, ascending as edges stand
    pair = graph.target.long() * graph.num_nodes + graph.source.long()
    return pair * 256 + graph.type.long()


def anchors_of(
    task: RetrievalTask,
    score: Tensor,  # [B, T], without a graph
    settings: Sequence[Setting],
    patterns: Patterns,
) -> dict[AnchorConfig, Tensor]:  # each [B, N]
    """Return the initial activation for every choice of anchors in the settings."""
    starts, nodes = {}, patterns.graph.num_nodes
    found = task.candidates(task.questions)
    base = score.new_full((len(score), task.num_atoms), -torch.inf)
    base[:, task.turns] = score
    for own in dict.fromkeys(setting.anchors for setting in settings):
        rows, value = anchor_activation(found, base, own)
        start = base.new_zeros(len(base), nodes)
        at = found.memory.nodes(rows)
        there = (at >= 0) & (value > 0)
        question = there.nonzero()[:, 0]
        # An atom that both triggers of `dual` name starts once.
        index = question * nodes + at[there]
        start.view(-1).scatter_reduce_(0, index, value[there], "amax")
        starts[own] = start
    return starts


def activations(
    patterns: Patterns,
    settings: Sequence[Setting],
    starts: Mapping[AnchorConfig, Tensor],  # each [B, N]
) -> Iterator[tuple[int, Tensor]]:  # place of a setting, [B, A]
    """Yield the activation of the atoms in every setting, a batch of settings at a time.

    Constants with one value for a batch (`reduce`, `spare`, the competitors, whether a
    sigmoid is zeroed) are equal within each; all others differ by row.
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, one in enumerate(settings):
        own = one.spread
        by_row = own.firing in ("sigmoid", "linear")
        key = own.reduce, own.spare, own.competitors, None if by_row else own.firing
        alike.setdefault(key, []).append(place)
    questions = len(next(iter(starts.values())))
    rows = min(_ROWS, _CELLS // max(1, patterns.graph.num_nodes))
    at_once = max(1, rows // max(1, questions))
    for places in alike.values():
        places.sort(key=lambda place: patterns.place[settings[place].edges])
        for begin in range(0, len(places), at_once):
            some = places[begin : begin + at_once]
            found = _batch(patterns, [settings[p] for p in some], starts)
            yield from zip(some, found.split(questions), strict=True)


def _batch(
    patterns: Patterns,
    settings: Sequence[Setting],
    starts: Mapping[AnchorConfig, Tensor],
) -> Tensor:  # [S * B, A]
    questions = len(next(iter(starts.values())))

    def rows(values: Sequence[Any]) -> Tensor:
        return torch.tensor(values).repeat_interleave(questions)

    spreads = [one.spread for one in settings]
    places = [patterns.place[one.edges] for one in settings]
    alike, firing = spreads[0], [own.firing == "sigmoid" for own in spreads]
    found = spread_activation(
        patterns.graph,
        torch.cat([starts[one.anchors] for one in settings]),
        rounds=rows([own.rounds for own in spreads]),
        retention=rows([own.retention for own in spreads]),
        spread=rows([own.spread for own in spreads]),
        reduce=alike.reduce,
        fan=patterns.fans(spreads, places).repeat_interleave(questions, 0),
        inhibition=rows([own.inhibition for own in spreads]),
        spare=alike.spare,
        kind=patterns.concept if alike.competitors == "kind" else None,
        firing=alike.firing if alike.firing in ("zeroed", "once") else rows(firing),
        gain=rows([own.gain for own in spreads]),
        threshold=rows([own.threshold for own in spreads]),
        weight=patterns.weight,
        pattern=rows(places),
    )
    return found[:, patterns.node]


def one_by_one(
    memory: Memory, settings: Sequence[Setting], starts: Mapping[AnchorConfig, Tensor]
) -> Iterator[Tensor]:  # [B, A] each
    """Yield the same by a loop: for every setting the conducting edges, then its spread."""
    for one in settings:
        patterns = Patterns.of(memory, [one])
        own = one.spread
        yield spread_activation(
            patterns.graph.with_weight(patterns.weight[0]),
            starts[one.anchors],
            rounds=own.rounds,
            retention=own.retention,
            spread=own.spread,
            reduce=own.reduce,
            fan=patterns.fans([own], [0])[0],
            inhibition=own.inhibition,
            spare=own.spare,
            kind=patterns.concept if own.competitors == "kind" else None,
            firing=own.firing,
            gain=own.gain,
            threshold=own.threshold,
        )[:, patterns.node]
