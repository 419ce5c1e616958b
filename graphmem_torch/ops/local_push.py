"""Local push for personalised PageRank, which visits only the neighbourhood of the seeds.

Andersen, Chung and Lang (FOCS 2006), section 3, forwards and on weights: a node with residual r
keeps (1 - d) r and sends d r along its edges. Every question has its own small hash table. A round
pushes all nodes of all questions whose residual exceeds epsilon times their fan. Each edge followed
settles at least (1 - d) epsilon of the mass 1. So a question costs at most 1 / ((1 - d) epsilon)
edges, whatever the size of the graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.ops._library import register
from graphmem_torch.ops.ragged import ranges

__all__ = ["DONE", "FULL", "STOPPED", "local_push", "local_push_reference"]
DONE, STOPPED, FULL = 0, 1, 2  # every node pushed; max_iter reached; table too small
_MIX = 0x9E3779B1 - (1 << 32)  # 2^32 over the golden ratio, as int32: spreads neighbours


def local_push_reference(
    out_indptr: Tensor,  # [N + 1]
    out_edge: Tensor,  # [E]
    target: Tensor,  # [E]
    weight: Tensor,  # [E]
    nodes: Tensor,  # [B, S], -1 = none
    weights: Tensor,  # [B, S], whose type is that of the sums
    damping: float,
    epsilon: float,
    max_iter: int,
) -> tuple[Tensor, Tensor]:  # settled [B, N], left [B, N]
    """Run the same rounds with dense vectors and a dense walk."""
    count = out_indptr.shape[0] - 1
    fan = out_indptr.diff().to(torch.int64)
    walk = weights.new_zeros(count, count)  # rows are sources
    source = torch.repeat_interleave(fan)
    edge = out_edge.to(torch.int64)
    step = weight[edge].abs().to(weights.dtype)
    walk.index_put_((source, target[edge].to(torch.int64)), step, accumulate=True)
    walk = (walk / walk.sum(1, keepdim=True)).nan_to_num_(nan=0.0)
    share = torch.where(nodes >= 0, weights, 0.0)
    share = (share / share.sum(1, keepdim=True)).nan_to_num_(nan=0.0)
    left = weights.new_zeros(len(nodes), count).scatter_add_(1, nodes.clamp(min=0), share)
    settled = torch.zeros_like(left)
    for _ in range(max_iter):
        pushed = torch.where(left > epsilon * fan.clamp(min=1), left, 0.0)
        if not bool(pushed.any()):
            break
        settled += (1 - damping) * pushed
        left = left - pushed + damping * (pushed @ walk)
    return settled, left


class _Tables:
    """Hash tables of the questions, side by side: linear probing, nodes as keys, -1 if empty."""

    def __init__(self, questions: int, slots: int, nodes: int, like: Tensor) -> None:
        self.slots, self._nodes = slots, nodes
        self.bits = slots.bit_length() - 1
        self._shift = 32 - self.bits
        self.key = torch.full((questions * slots,), -1, dtype=torch.int32, device=like.device)
        self.settled = like.new_zeros(questions * slots)
        self.left = like.new_zeros(questions * slots)
        self._owner = torch.empty_like(self.key)
        self._used = torch.zeros(questions, dtype=torch.int64, device=like.device)

    def full(self, incoming: Tensor) -> Tensor | None:  # [B] -> [B] bool
        """Return the questions whose tables lack room for so many more nodes and some gaps."""
        limit = self.slots * 3 // 4
        if self._nodes <= limit:
            return None
        self._used += incoming
        if bool((self._used > limit).any()):
            self._used = (self.key.view(len(incoming), -1) >= 0).sum(1) + incoming
        full = self._used > limit
        return full if bool(full.any()) else None

    def insert(self, begin: Tensor, node: Tensor) -> Tensor:
        """Return the places of `node` in the tables that begin at `begin`, claiming new ones."""
        place = begin + (((node * _MIX) >> self._shift) & (self.slots - 1))
        trying, at, wanted = None, place, node
        while True:
            found = self.key.index_select(0, at)
            # All nodes that try an empty place write to it; the last one keeps it, the others go
            # on.
            self.key.scatter_(0, at, torch.where(found < 0, wanted, found))
            missed = (self.key.index_select(0, at) != wanted).nonzero().squeeze(1)
            if not missed.numel():
                return place
            trying = missed if trying is None else trying.index_select(0, missed)
            wanted = wanted.index_select(0, missed)
            at = at.index_select(0, missed)
            at = (at & -self.slots) | ((at + 1) & (self.slots - 1))
            place.index_copy_(0, trying, at)

    def distinct(self, place: Tensor) -> Tensor:
        """Return each place once."""
        number = torch.arange(len(place), dtype=torch.int32, device=place.device)
        self._owner.scatter_(0, place, number)
        return place[self._owner.index_select(0, place) == number]


def _run(
    out_indptr: Tensor,
    out_edge: Tensor,
    target: Tensor,
    weight: Tensor,
    nodes: Tensor,
    weights: Tensor,
    damping: float,
    epsilon: float,
    max_iter: int,
    slots: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    questions = nodes.shape[0]
    tables = _Tables(questions, slots, out_indptr.shape[0] - 1, weights)
    status = torch.full((questions,), DONE, dtype=torch.int32, device=nodes.device)
    real = ((nodes >= 0) & (weights > 0)).flatten()
    row = torch.arange(questions, device=nodes.device)[:, None].expand_as(nodes).flatten()[real]
    total = weights.new_zeros(questions).index_add_(0, row, weights.flatten()[real])
    sent = weights.flatten()[real] / total[row]
    node, begin, done = nodes.flatten()[real].to(torch.int32), row * slots, 0
    while True:
        full = tables.full(torch.bincount(begin >> tables.bits, minlength=questions))
        if full is not None:  # the other questions go on
            status[full] = FULL
            kept = ~full[begin >> tables.bits]
            begin, node, sent = begin[kept], node[kept], sent[kept]
        place = tables.insert(begin, node)
        tables.left.index_add_(0, place, sent)
        hot = _hot(tables, place, out_indptr, epsilon)
        if not hot.numel():
            break
        if done == max_iter:
            status[hot >> tables.bits] = STOPPED
            break
        done += 1
        held = tables.left.index_select(0, hot)
        tables.left.index_fill_(0, hot, 0.0)
        tables.settled.index_add_(0, hot, held * (1 - damping))
        begin, node, sent = _sent(tables, hot, held * damping, out_indptr, out_edge, target, weight)
    shape = (questions, slots)
    rounds = torch.full((questions,), done, dtype=torch.int32, device=nodes.device)
    return (
        tables.key.view(shape),
        tables.settled.view(shape),
        tables.left.view(shape),
        rounds,
        status,
    )


def _hot(tables: _Tables, place: Tensor, out_indptr: Tensor, epsilon: float) -> Tensor:
    """Return the places to push among those that just received, each once."""
    held = tables.left.index_select(0, place)
    place = place[held > epsilon]
    node = tables.key.index_select(0, place)
    fan = out_indptr.index_select(0, node + 1) - out_indptr.index_select(0, node)
    place = place[tables.left.index_select(0, place) > epsilon * fan]
    return tables.distinct(place)


def _sent(
    tables: _Tables,
    hot: Tensor,  # [F]
    mass: Tensor,  # [F]
    out_indptr: Tensor,
    out_edge: Tensor,
    target: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each node sends along its edges: table and node of the receiver, and mass.

    A node without edges sends nothing: its mass returns to the seeds, which only scales the result.
    """
    node = tables.key.index_select(0, hot)
    first = out_indptr.index_select(0, node)
    fan = (out_indptr.index_select(0, node + 1) - first).to(torch.int64)
    sender, place = ranges(first, fan)
    edge = out_edge.index_select(0, place)
    step = weight.index_select(0, edge).abs_().to(mass.dtype)
    strength = step.new_zeros(len(hot)).index_add_(0, sender, step)
    # Divide the weight first: mass / strength overflows for a subnormal strength, losing the mass.
    step = step.div_(strength.index_select(0, sender)).nan_to_num_(nan=0.0)
    begin = (hot & -tables.slots).index_select(0, sender)
    return begin, target.index_select(0, edge), step.mul_(mass.index_select(0, sender))


def _fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    nodes, weights, slots = inputs[4], inputs[5], inputs[9]
    mass = weights.new_empty(nodes.shape[0], slots)
    key = torch.empty_like(mass, dtype=torch.int32)
    count = nodes.new_empty(nodes.shape[0], dtype=torch.int32)
    return key, mass, torch.empty_like(mass), count, torch.empty_like(count)


local_push = register(
    "local_push(Tensor out_indptr, Tensor out_edge, Tensor target, Tensor weight, Tensor nodes, "
    "Tensor weights, float damping, float epsilon, int max_iter, int slots) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    _run,
    launcher="local_push:launch_local_push",
    fake=_fake,
)
