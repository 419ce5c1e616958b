"""Activation: find the anchors of questions, and spread activation, walks and hops from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphmem_torch.checks import needs_gradient
from graphmem_torch.config import SpreadConfig
from graphmem_torch.graph import Graph
from graphmem_torch.index.execution_plan import ExecutionPlan, gate_spread
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.propagate import Fan
from graphmem_torch.ops.spread import Method
from graphmem_torch.rank.anchors import (
    anchor_activation,
    anchor_relevance,
    fixed_walk,
    walk_from,
)
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.hops import (
    HopPairs,
    dense_entity_hop,
    dense_hop_lifts,
    dense_title_hop,
    entity_hop,
    hop_lifts,
    title_hop,
)
from graphmem_torch.rank.lifts import shared_heights
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.paths import strongest_paths, unweighted
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.reached import Reached
from graphmem_torch.rank.shared_hops import shared_pairs

__all__ = [
    "TraversalSteps",
    "allowed_of",
    "brought_from",
    "competing_kinds",
    "conducting_nodes",
    "fan_of",
    "paths_to",
    "spread_from",
    "start_of",
    "started_from",
    "worth_spreading",
]

Rows = TypeVar("Rows", Tensor, SparseRows)
_LENT = 32  # concepts that a shard lends to the others for a question
_JOINED = {"max": "amax", "sum": "sum"}


def started_from(found: Candidates, plan: ExecutionPlan) -> Reached:
    """Choose the anchors of B questions by the base scores and by named documents."""
    config, score = plan.config.anchors, found.base_scores
    named = None
    if found.memory.hops is not None and (plan.lifts or config.named):
        own = found.signal("named").expand(found.shape).where(found.valid, 0.0)
        named = own.amax(1)
        score = score + config.named * own
    if found.peers is not None:
        named = found.peers.largest(
            "named", score.new_zeros(len(score)) if named is None else named
        )
    anchors, value = anchor_activation(found, score, config)
    relevance = anchor_relevance(found, score, value, config)
    given = found.reached
    heights = None
    if found.peers is not None and found.peers.leads:
        heights = shared_heights(found, found.peers, anchors)
    return Reached(
        anchors,
        value,
        relevance,
        traversal=given.traversal,
        heights=heights,
        named=named,
        base=given.base,
    )


def brought_from(
    found: Candidates,
    plan: ExecutionPlan,
    reached: Reached,
    conducting: Tensor | None,  # [B, N] bool, from `conducting_nodes`
    *,
    dense: bool = False,
) -> Reached:
    """Compute the graph results that a signal reads, from the anchors of `started_from`.

    With `dense`, activation is always a matrix.
    """
    memory, query, config = found.memory, found.query, plan.config
    anchors, value, relevance = reached.anchors, reached.value, reached.relevance
    assert anchors is not None and value is not None and relevance is not None
    brought: dict[str, Any] = {}
    pairs = None
    if found.peers is not None and found.peers.leads:
        assert memory.part is not None and memory.part.hops is not None
        pairs = shared_pairs(memory.part.hops, found.peers, anchors, found.named_keys)
    if (plan.hops or plan.lifts) and memory.hops is not None:
        brought = _hopped(found, plan, reached, pairs)
    if plan.walks:
        if shapes_are_fixed():
            own = _dense_start(memory, query, anchors, relevance)
            walk = fixed_walk(memory.graph, own, config.walk, conducting)
            brought["walk"] = walk[:, memory.node.long()]
        else:
            start = start_of(memory, query, anchors, relevance)
            walked = walk_from(memory.graph, start, config.walk, conducting)
            brought["walk"] = memory.of_atoms(walked)
    if plan.spreads:
        brought |= _activated(memory, plan, query, anchors, value, conducting, dense=dense)
    return replace(reached, traversal=found.reached.traversal, **brought)


def _hopped(
    found: Candidates,
    plan: ExecutionPlan,
    reached: Reached,
    pairs: tuple[HopPairs, HopPairs] | None,
) -> dict[str, Any]:
    """Compute the targets of hops from the anchors and their lifts, as fields of `Reached`."""
    hops, query, named = found.memory.hops, found.query, found.named_keys
    anchors, value = reached.anchors, reached.value
    assert hops is not None and anchors is not None and value is not None
    seeds = None if query.seed_keys is None else (query.seed_keys, _of_seeds(value))
    fixed = shapes_are_fixed()
    brought: dict[str, Any] = {}
    if plan.hops:
        by_title, by_entity = (
            (dense_title_hop, dense_entity_hop) if fixed else (title_hop, entity_hop)
        )
        brought["title_hop"] = allowed_of(by_title(hops, anchors, value, named), query)
        brought["entity_hop"] = allowed_of(by_entity(hops, anchors, value, named, seeds), query)
    if plan.lifts:
        own, share = plan.config.hops, reached.named
        share = value.new_zeros(len(value)) if share is None else share.to(value.dtype)
        strength = torch.stack(
            [
                own.title + share * (own.title_named - own.title),
                own.entity + share * (own.entity_named - own.entity),
            ],
            dim=1,
        )
        given = hops, anchors, value, strength, named, seeds
        brought["lifts"] = dense_hop_lifts(*given) if fixed else hop_lifts(*given, pairs)
    return brought


def start_of(
    memory: MemoryTensors, query: QueryBatch, anchors: Tensor, value: Tensor
) -> SparseRows:  # [B, N]
    """Return the values of the anchors [B, K] and of the seeds of each question, by node."""
    node, value = _started(memory, query, anchors, value)
    return SparseRows.of(node, value, memory.graph.num_nodes)


def _started(
    memory: MemoryTensors, query: QueryBatch, anchors: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:  # [B, K + S] int64 nodes, -1 = none; [B, K + S]
    node = memory.nodes(anchors)
    if query.seeds is None:
        return node, value
    seeds = _of_seeds(value).expand(query.seeds.shape)
    return torch.cat([node, query.seeds], dim=1), torch.cat([value, seeds], dim=1)


def _dense_start(
    memory: MemoryTensors, query: QueryBatch, anchors: Tensor, value: Tensor
) -> Tensor:  # [B, N]
    """Return `start_of` as a matrix."""
    node, value = _started(memory, query, anchors, value)
    zeros = value.new_zeros(len(value), memory.graph.num_nodes + 1)  # and a column for -1
    return zeros.scatter_reduce(1, node % zeros.shape[1], value, "amax")[:, :-1].contiguous()


def _of_seeds(value: Tensor) -> Tensor:  # [B, K] -> [B, 1]
    """Return the value of a seed: that of the best anchor; 1 without anchors."""
    best = torch.nn.functional.pad(value, (0, 1)).amax(1, keepdim=True)
    return torch.where(best > 0, best, 1.0)


def _activated(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    query: QueryBatch,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    mask: Tensor | None,  # [B, N] bool
    *,
    dense: bool,
) -> dict[str, SparseRows | Tensor]:
    """Spread activation with the constants of the plan (`docs/mathematics.md` 4), as `Reached`.

    If a gradient is needed or shapes must not depend on values, it spreads over all nodes as a
    matrix. Otherwise the work is proportional to the reached nodes.
    """
    learned = needs_gradient(value, memory.graph.stored.weight, *plan.constants.values())
    settings = {"activation": plan.config.spread}
    if "activation" in plan.statistics and gate_spread(plan.config) != plan.config.spread:
        settings["gate"] = gate_spread(plan.config)
    if dense or learned or shapes_are_fixed():
        start = _dense_start(memory, query, anchors, value)
        return {
            name: spread_from(memory, plan, start, mask, own)[:, memory.node.long()]
            for name, own in settings.items()
        }
    rows = start_of(memory, query, anchors, value)
    found: dict[str, SparseRows | Tensor] = {"start": rows}
    for name, own in settings.items():
        # A shard follows few edges from its share of the anchors.
        few = memory.part is not None and memory.part.peers is not None and not value.is_cuda
        spread = spread_from(memory, plan, rows, mask, own, "frontier" if few else "auto")
        if memory.part is not None and memory.part.entity is not None and own.rounds > 1:
            spread = _with_lent(memory, plan, rows, spread, mask, own)
        found[name] = memory.of_atoms(spread)
    return found


def _with_lent(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    start: SparseRows,  # [B, N]
    spread: SparseRows,  # [B, N]
    mask: Tensor | None,
    settings: SpreadConfig,
) -> SparseRows:  # [B, N]
    """Return activation with what the concepts of other shards bring.

    A concept that anchors of one shard activate in the first round spreads from its namesakes in
    all others in the next ones. Each shard lends its strongest.
    """
    part = memory.part
    assert part is not None and part.entity is not None and part.peers is not None
    peers, entity = part.peers, part.entity
    # A few nodes start, and few rounds follow.
    method: Method = "auto" if start.value.is_cuda else "frontier"
    first = spread_from(memory, plan, start, mask, replace(settings, rounds=1), method)
    first = first.select(entity.number.index_select(0, first.column) >= 0)
    value, node = first.topk(_LENT)
    number = entity.number[node.clamp(min=0)].masked_fill(node < 0, -1)
    own = torch.stack([number.double(), value.double()], dim=2)
    every = peers.gather("concepts", own)
    others = torch.arange(len(every), device=own.device) != peers.place
    number, value = every[others].transpose(0, 1).flatten(1, 2).unbind(2)  # [B, (S - 1) M]
    wanted = number.long().contiguous()
    place = torch.searchsorted(entity.known, wanted).clamp(max=len(entity.known) - 1)
    there = (wanted >= 0) & (entity.known[place] == wanted)
    node = entity.node[place].masked_fill(~there, -1)
    lent = SparseRows.of(node, value.to(start.value), memory.graph.num_nodes)
    if not len(lent.key):
        return spread
    later = replace(settings, rounds=settings.rounds - 1)
    lent = spread_from(memory, plan, lent, mask, later, method)
    key, slot = torch.cat([spread.key, lent.key]).unique(return_inverse=True)
    value = torch.cat([spread.value, lent.value])
    most = value.new_zeros(len(key)).scatter_reduce_(0, slot, value, _JOINED[settings.reduce])
    return SparseRows(key, most, spread.shape)


def spread_from(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    start: Rows,  # [B, N]
    mask: Tensor | None,  # [B, N] bool
    settings: SpreadConfig | None = None,
    method: Method = "auto",
) -> Rows:  # [B, N]
    """Run `spread_activation` by the constants of a plan, and its settings or the given ones."""
    s, constants = settings or plan.config.spread, plan.constants
    return spread_activation(
        memory.graph,
        start,
        rounds=s.rounds,
        reduce=s.reduce,
        fan=fan_of(memory, s),
        spare=s.spare,
        firing=s.firing,
        kind=competing_kinds(memory, s),
        mask=mask,
        retention=constants["retention"],
        spread=constants["spread"],
        inhibition=constants.get("inhibition", 0.0),
        gain=constants.get("gain", 1.0),
        threshold=constants.get("threshold", 0.0),
        method=method,
    )


def fan_of(memory: MemoryTensors, settings: SpreadConfig) -> Fan | Tensor:  # or [N]
    """Return the divisor of the activation of each node.

    With `min_fan: mean` it is at least the mean out-degree of the turns. A turn whose concepts are
    not linked yet would otherwise send all of its activation to the next turn.
    """
    shared = None if memory.part is None else memory.part.fan
    if settings.fan == "none" or (settings.min_fan == "one" and shared is None):
        return settings.fan
    degree = memory.graph.fan().to(torch.float32) if shared is None else shared
    least = degree.clamp(min=1.0)
    if settings.min_fan == "mean":
        mean = memory.mean_of(degree[memory.node.long()]).clamp(min=1.0)
        degree = torch.where(memory.atom < 0, least, torch.maximum(degree, mean))
    else:
        degree = least
    return degree if settings.fan == "degree" else degree.sqrt()


def competing_kinds(memory: MemoryTensors, settings: SpreadConfig) -> Tensor | None:  # [N] bool
    """Return the mask of concepts if nodes compete only within their own kind."""
    return memory.atom < 0 if settings.competitors == "kind" else None


def worth_spreading(graph: Graph, atom: Tensor, atoms: int, settings: SpreadConfig) -> bool:  # [N]
    """Return whether a graph has edges, and enough nodes that are atoms or have edges."""
    if not graph.num_edges:
        return False
    if atoms < settings.min_nodes:
        # Deleted nodes keep their numbers, but have no edges.
        tied = (graph.in_degree > 0) | (graph.out_degree > 0)
        atoms += int((tied & (atom < 0)).sum())
    return atoms >= settings.min_nodes


def conducting_nodes(memory: MemoryTensors, query: QueryBatch) -> Tensor | None:  # [B, N] bool
    """Return the nodes that activation may reach: concepts, and allowed atoms."""
    if query.allowed is None:
        return None
    if not memory.num_atoms:
        return query.allowed.new_ones(1, len(memory.atom)).expand(len(query), -1)
    there = query.allowed[:, memory.atom.clamp(min=0).long()] | (memory.atom < 0)
    return there.expand(len(query), -1)


def allowed_of(found: SparseRows | Tensor, query: QueryBatch) -> SparseRows | Tensor:  # [B, A]
    """Drop the atoms that are excluded for the question."""
    if query.allowed is None:
        return found
    there = query.allowed.expand(len(query), -1)
    if isinstance(found, Tensor):
        return found.where(there, 0.0)
    return found.select(there[found.row, found.column])


class TraversalSteps(NamedTuple):
    """Rules by which activation travels along a path.

    Attributes:
        graph: Graph whose edges it follows.
        rounds: Maximum number of edges.
        spread: Factor of each step, besides the weight of the edge and the fan.
        fan: Divisor at each node that it leaves.
    """

    graph: Graph
    rounds: int
    spread: float | Tensor
    fan: Fan | Tensor  # or [N]

    @classmethod
    def of(cls, memory: MemoryTensors, plan: ExecutionPlan) -> TraversalSteps:
        """Return the rules of spreading, or those of a traversal if nothing spreads."""
        s, own = plan.config.spread, plan.config.segment
        if plan.traverses and not plan.activates:  # the anchors are seeds then
            return cls(unweighted(memory.graph), own.hops, own.discount, "none")
        return cls(memory.graph, s.rounds, plan.constants["spread"], fan_of(memory, s))


def paths_to(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    query: QueryBatch,
    start: SparseRows,  # [B, N]
    nodes: Tensor,  # [B, k] int64, -1 = none
) -> Tensor:  # [B, k, T] int64 edges, -1 = none
    """Return the strongest path to each node (`rank.paths.strongest_paths`)."""
    graph, rounds, spread, fan = TraversalSteps.of(memory, plan)
    mask = conducting_nodes(memory, query)
    return strongest_paths(graph, start, nodes, rounds=rounds, spread=spread, fan=fan, mask=mask)
