"""Explanation of an atom's score: paths, gradients, and the score without each other memory.

A memory that is left out does not exist for the question: it is no candidate, no anchor and no
neighbouring turn, conducts nothing, and nothing is derived from it. Values counted over all
memories stay:

- document frequencies, the background of signals, and the words of its session as one document;
- PageRank, modes, resistances and bridges, which are properties of the whole memory;
- the course of a walk, which starts at other anchors but passes the memory, as PageRank does.

So the score without it is that of the same index with it masked, in the same units.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.index.activation import (
    TraversalSteps,
    brought_from,
    conducting_nodes,
    spread_from,
    start_of,
)
from graphmem_torch.index.execution_plan import ExecutionPlan
from graphmem_torch.index.retrieve import by_tier, candidates_of
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.propagate import fan_scale
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.paths import strongest_paths
from graphmem_torch.rank.query import QueryBatch

__all__ = ["Explained", "explain"]


class Explained(NamedTuple):
    """Explanation of an atom's score; K anchors and seeds, E edges, N nodes, A atoms.

    Attributes:
        score: [], `MemoryIndex.score` of the atom, which becomes a candidate if necessary.
        shares: [F], each signal's share, in the order of `signal_names`.
        rank: Its place in the hits, from 1; 0 if it cannot be a hit.
        depth: Number of hits that a ranking needs to reach it, at least 1; in a memory of shards to
            reach what each of them explains.
        anchors: [K] int64 nodes where activation started, the strongest first.
        value: [K], initial activation.
        anchor_gradient: [K], gradient of the score in that activation.
        paths: [K, T] int64 edges, -1 = none: the strongest chain from each to the atom.
        strength: [K], activation that arrives by that chain alone, 0 without one.
        graph: Graph that activation follows; E edges in the order of its arrays.
        edge_gradient: [E], gradient of the score in the weight of each edge.
        node_gradient: [N], gradient of the score in the share of its activation that a node sends.
        influence: [A], the score minus the score without each atom; 0 for the atom itself, and
            for all in a memory of shards, where leaving one out would change what all share.
    """

    score: Tensor
    shares: Tensor
    rank: int
    depth: int
    anchors: Tensor
    value: Tensor
    anchor_gradient: Tensor
    paths: Tensor
    strength: Tensor
    graph: Graph
    edge_gradient: Tensor
    node_gradient: Tensor
    influence: Tensor


def explain(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,  # one question
    row: int,
    k: int,
) -> Explained:
    """Explain the score of the atom of a row for a question.

    Gradients cover activation and hops; the choice of anchors, walks and traversals have none.
    Influences include other choices of anchors; the candidates stay.
    """
    from graphmem_torch.index.influence import influence_of

    with torch.no_grad():
        graph = memory.graph.with_weight(memory.graph.weight)  # as arrays
        memory = memory.conducting(graph)
        found = candidates_of(memory, plan, weights, query, k)
        wanted = torch.tensor([[row]], device=found.query.embedding.device)
        listed = found.rows is None or bool((found.rows == wanted).any())
        found = found.extended(wanted)
        signals = found.signals(plan.names)
        scores = found.scores(signals, weights)[0]
        rows = torch.arange(found.shape[1], device=wanted.device)
        rows = rows if found.rows is None else found.rows[0]
        place = (rows == row).nonzero()[0, 0]
        own = weights[found.form.expand(found.shape)[0, place]]
        hits = found.listed.expand(found.shape)[0]
        tier, worth = found.query.tier, scores
        if tier is not None:
            worth = by_tier(found, scores.masked_fill(~hits, -torch.inf)[None], tier)[0]
        better = _num_better(memory, worth.masked_fill(~hits, -torch.inf), worth[place])
        start = _started(memory, found)
        node = memory.nodes(wanted[0])
        paths, strength = _chains(memory, plan, query, start, node)
        influence = scores.new_zeros(memory.num_atoms)
        if memory.peers is None:
            influence = influence_of(found, plan, weights, rows, place)
    rank = better + 1 if listed and bool(hits[place]) else 0
    depth = max(1, rank)
    if memory.peers is not None:
        depth = int(memory.peers.largest("depth", torch.tensor(depth)))
    edge, initial = _gradients(found, plan, own, place, start)
    sent = torch.zeros(graph.num_nodes, dtype=edge.dtype, device=edge.device)
    sent.index_add_(0, graph.source.long(), graph.weight * edge)
    return Explained(
        score=scores[place],
        shares=signals[0, place] * own,
        rank=rank,
        depth=depth,
        anchors=start.column,
        value=start.value,
        anchor_gradient=initial,
        paths=paths,
        strength=strength,
        graph=graph,
        edge_gradient=edge,
        node_gradient=sent,
        influence=influence,
    )


def _num_better(memory: MemoryTensors, worth: Tensor, own: Tensor) -> int:  # [C], []
    """Return the number of possible hits above an atom, in all shards."""
    if memory.peers is None:
        return int((worth > own).sum())
    others = memory.peers.gather("explained", own.detach())  # each shard explains an atom
    counts = memory.peers.gather("better", (worth[:, None] > others).sum(0))
    return int(counts.sum(0)[memory.peers.place])


def _started(memory: MemoryTensors, found: Candidates) -> SparseRows:  # [1, N], strongest first
    anchors, value = found.reached.anchors, found.reached.value
    if anchors is None or value is None:
        return SparseRows.from_dense(
            torch.zeros(1, memory.graph.num_nodes, device=memory.node.device)
        )
    start = start_of(memory, found.query, anchors, value)
    order = start.value.argsort(descending=True, stable=True)
    return SparseRows(start.key[order], start.value[order], start.shape)


def _chains(
    memory: MemoryTensors, plan: ExecutionPlan, query: QueryBatch, start: SparseRows, node: Tensor
) -> tuple[Tensor, Tensor]:  # [K, T], [K]
    """Return the strongest path from each anchor, as if it were the only one.

    All are found in one pass: on reversed edges they are the strongest from the atom to each.
    """
    from graphmem_torch.index.influence import reversed_edges

    graph, rounds, spread, fan = TraversalSteps.of(memory, plan)
    step = fan_scale(graph, spread, fan, graph.weight.dtype)[graph.source.long()] * graph.weight
    mask = conducting_nodes(memory, query)
    if mask is not None:
        step = step.where(mask[0, graph.target.long()], 0.0)
    back = reversed_edges(graph, step)
    end = SparseRows.of(node[:, None], start.value.new_ones(1, 1), graph.num_nodes)
    found = strongest_paths(back, end, start.column[None], rounds=rounds, spread=1.0, fan="none")
    found = found[0].flip(1)
    there = found >= 0
    paths = torch.nn.functional.pad(graph.out_edge.long(), (0, 1), value=-1)[found]
    strength = start.value * torch.nn.functional.pad(step, (0, 1), value=1.0)[paths].prod(1)
    return paths, strength.where(there.any(1), 0.0)


def _gradients(
    found: Candidates, plan: ExecutionPlan, own: Tensor, place: Tensor, start: SparseRows
) -> tuple[Tensor, Tensor]:  # [E], [K]
    """Return gradients of the score in edge weights and in anchor and seed activation."""
    memory, graph, reached = found.memory, found.memory.graph, found.reached
    none = torch.zeros_like(graph.weight), torch.zeros_like(start.value)
    starts = plan.starts or (memory.peers is not None and memory.peers.starts)
    if reached.anchors is None or reached.value is None or not starts:
        return none
    names = [plan.names[i] for i in plan.places(graph=True)]
    with torch.enable_grad():
        weight = graph.weight.detach().clone().requires_grad_()
        initial = start.to_dense().requires_grad_()
        value = reached.value.detach().clone().requires_grad_()
        reading = copy.copy(found)
        reading.memory = memory.conducting(graph.with_weight(weight))
        given = replace(reached, value=value)
        still = replace(plan, walks=False, spreads=False)
        brought = brought_from(reading, still, given, None)
        if plan.spreads:
            mask = conducting_nodes(memory, found.query)
            spread = spread_from(reading.memory, plan, initial, mask)
            brought = replace(brought, activation=spread[:, memory.node.long()])
        signals = reading.reaching(brought).signals(names)[0, place]
        score = signals @ own[plan.places(graph=True)]
        if not score.requires_grad:
            return none
        leaves = weight, initial, value
        found_in = torch.autograd.grad(score, leaves, allow_unused=True)
    edge, at, hop = (
        torch.zeros_like(leaf) if each is None else each
        for leaf, each in zip(leaves, found_in, strict=True)
    )
    # An anchor counts both as the start of activation and as the start of hops.
    nodes = memory.nodes(reached.anchors)
    led = torch.zeros(1, graph.num_nodes + 1, dtype=hop.dtype, device=hop.device)
    led.scatter_add_(1, nodes % led.shape[1], hop)
    return edge, (at + led[:, :-1])[0, start.column]
