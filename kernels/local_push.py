"""Triton kernel of local push: one program a question, with its own hash table and queue.

A program takes a tile of waiting nodes, claims their residuals, and walks a few edges of each node
at a time. It needs neither the host nor other programs. A node joins the queue when a sum lifts it
over its limit. Sums only grow until they are claimed, so exactly one lane sees the crossing and no
node waits twice. Tables lie in global memory, and a question's share stays in the L2 cache. Values
that several lanes write are read by atomics or past L1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_local_push"]

# A table belongs to one program, whose barriers order reads after writes.
_SEM, _SCOPE = tl.constexpr("relaxed"), tl.constexpr("cta")

_TILE_NODES, _TILE_EDGES = 8, 16  # waiting nodes taken at once, edges walked of each at once


@triton.jit
def _claim(keys, node, wanted, BITS: tl.constexpr):
    """Return the slot of each wanted node, claimed if it is new, and the number of new ones."""
    slot = ((node.to(tl.uint32) * 0x9E3779B1) >> (32 - BITS)).to(tl.int32)
    waiting = wanted.to(tl.int32)
    fresh = waiting * 0
    while tl.max(waiting) > 0:
        # Finished lanes compare with a value that no slot holds, so they change nothing.
        found = tl.atomic_cas(
            keys + slot, tl.where(waiting > 0, -1, -2), node, sem=_SEM, scope=_SCOPE
        )
        fresh += tl.where((waiting > 0) & (found == -1), 1, 0)
        waiting = tl.where((found == -1) | (found == node), 0, waiting)
        slot = tl.where(waiting > 0, (slot + 1) & ((1 << BITS) - 1), slot)
    return slot, tl.sum(fresh)


@triton.jit
def _receive(
    left, queue, tail, out_indptr, slot, node, mass, wanted, epsilon, BITS: tl.constexpr
):  # fmt: skip
    """Add mass to the slots; nodes lifted over their limit join the queue."""
    before = tl.atomic_add(left + slot, mass, mask=wanted, sem=_SEM, scope=_SCOPE)
    fan = tl.load(out_indptr + node + 1, mask=wanted, other=0)
    fan -= tl.load(out_indptr + node, mask=wanted, other=0)
    limit = epsilon * tl.maximum(fan, 1).to(mass.dtype)
    crossed = wanted & (before <= limit) & (before + mass > limit)
    at = tl.atomic_add(tail + slot * 0, 1, mask=crossed, sem=_SEM, scope=_SCOPE)
    tl.store(queue + (at & ((1 << BITS) - 1)), slot, mask=crossed)


@triton.jit
def _local_push_kernel(
    out_indptr, out_edge, target, weight, nodes, weights, keys, settled, left, queue, tails,
    rounds, status, damping_at, epsilon, max_iter, num_seeds, num_nodes,
    BITS: tl.constexpr, NODES: tl.constexpr, EDGES: tl.constexpr, SEEDS: tl.constexpr,
):  # fmt: skip
    """Push for question `program_id(0)`; on entry keys are -1 and settled, left and tails are 0."""
    question = tl.program_id(0).to(tl.int64)
    keys += question << BITS
    settled += question << BITS
    left += question << BITS
    queue += question << BITS
    tails += question
    damping = tl.load(damping_at)
    nodes += question * num_seeds
    weights += question * num_seeds
    # A quarter of the slots stays empty so that searches end, unless every node has its own slot.
    most: tl.constexpr = (1 << BITS) - (1 << BITS) // 4
    room = tl.where(num_nodes <= most, 1 << BITS, most)
    lane = tl.arange(0, SEEDS)
    total = tl.zeros([SEEDS], settled.dtype.element_ty)
    for first in range(0, num_seeds, SEEDS):
        node = tl.load(nodes + first + lane, mask=first + lane < num_seeds, other=-1)
        mass = tl.load(weights + first + lane, mask=first + lane < num_seeds, other=0.0)
        total += tl.where((node >= 0) & (node < num_nodes), mass, 0.0)
    whole = tl.sum(total)
    whole = tl.where(whole > 0, whole, 1.0)
    used = 0
    for first in range(0, num_seeds, SEEDS):
        node = tl.load(nodes + first + lane, mask=first + lane < num_seeds, other=-1).to(tl.int32)
        mass = tl.load(weights + first + lane, mask=first + lane < num_seeds, other=0.0)
        wanted = (node >= 0) & (node < num_nodes) & (mass > 0) & (used + SEEDS + 0 * lane <= room)
        slot, fresh = _claim(keys, node, wanted, BITS)
        used += fresh
        _receive(left, queue, tails, out_indptr, slot, node, mass / whole, wanted, epsilon, BITS)
    tl.debug_barrier()

    head = 0
    end = tl.atomic_add(tails, 0, sem=_SEM, scope=_SCOPE)
    done = 0
    fits = used + NODES * EDGES <= room
    row = tl.arange(0, NODES)
    while (head < end) & (done < max_iter) & fits:
        waits = head + row < end
        slot = tl.load(queue + ((head + row) & ((1 << BITS) - 1)), mask=waits, other=0,
                       cache_modifier=".cg")  # fmt: skip
        node = tl.load(keys + slot, mask=waits, other=0, cache_modifier=".cg")
        held = tl.load(left + slot, mask=waits, other=0.0, cache_modifier=".cg")
        kept = tl.load(settled + slot, mask=waits, other=0.0, cache_modifier=".cg")
        # All warps read before any writes, and everything is claimed before anything is received.
        tl.debug_barrier()
        tl.store(left + slot, tl.zeros([NODES], total.dtype), mask=waits)
        tl.store(settled + slot, kept + (1 - damping) * held, mask=waits)
        tl.debug_barrier()
        begin = tl.load(out_indptr + node, mask=waits, other=0)
        fan = tl.load(out_indptr + node + 1, mask=waits, other=0) - begin
        fan = tl.where(waits, fan, 0)
        longest = tl.max(fan)
        strength = tl.zeros([NODES], total.dtype)
        for k in range(0, longest, EDGES):
            place = k + tl.arange(0, EDGES)[None, :]
            live = place < fan[:, None]
            edge = tl.load(out_edge + begin[:, None] + place, mask=live, other=0)
            sent = tl.abs(tl.load(weight + edge, mask=live, other=0.0)).to(total.dtype)
            strength += tl.sum(sent, axis=1)
        per = tl.where(strength > 0, strength, 1.0)
        for k in range(0, longest, EDGES):
            place = k + tl.arange(0, EDGES)[None, :]
            # Nodes without outgoing weight send nothing; neither does any node once the table is
            # full.
            sends = tl.where(strength > 0, fan * fits.to(tl.int32), 0)
            live = place < sends[:, None]
            edge = tl.load(out_edge + begin[:, None] + place, mask=live, other=0)
            goal = tl.load(target + edge, mask=live, other=0)
            # Divide the weight first: mass / strength overflows if the strength is subnormal.
            step = tl.abs(tl.load(weight + edge, mask=live, other=0.0)) / per[:, None]
            to, fresh = _claim(keys, goal, live, BITS)
            used += fresh
            fits = used + NODES * EDGES <= room
            _receive(left, queue, tails, out_indptr, to, goal, step * (damping * held)[:, None],
                     live, epsilon, BITS)  # fmt: skip
        tl.debug_barrier()
        head = tl.minimum(head + NODES, end)
        if head == end:
            done += 1
            end = tl.atomic_add(tails, 0, sem=_SEM, scope=_SCOPE)
    tl.store(rounds + question, done)
    # The states of graphmem_torch.ops.local_push: done, stopped, full.
    state = tl.where(fits, tl.where(head < end, 1, 0), 2)
    tl.store(status + question, state)


def launch_local_push(
    out_indptr: Tensor,  # [N + 1] int32
    out_edge: Tensor,  # [E] int32
    target: Tensor,  # [E] int32
    weight: Tensor,  # [E] float32 or float64
    nodes: Tensor,  # [B, S] int64, -1 = none
    weights: Tensor,  # [B, S], whose type is that of the sums
    damping: float,
    epsilon: float,
    max_iter: int,
    slots: int,  # a power of two, at least 1024
    nodes_at_once: int = _TILE_NODES,
    edges_at_once: int = _TILE_EDGES,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`graphmem::local_push` on CUDA; never waits for the device, so CUDA graphs may record it."""
    questions, seeds = nodes.shape
    shape = (questions, slots)
    keys = torch.full(shape, -1, dtype=torch.int32, device=nodes.device)
    settled = torch.zeros(shape, dtype=weights.dtype, device=nodes.device)
    left = torch.zeros_like(settled)
    queue = torch.empty_like(keys)
    tails = torch.zeros(questions, dtype=torch.int32, device=nodes.device)
    rounds = torch.empty_like(tails)
    status = torch.empty_like(tails)
    exactly = torch.full((1,), damping, dtype=weights.dtype, device=nodes.device)
    if questions:
        _local_push_kernel[(questions,)](
            out_indptr, out_edge, target, weight, nodes.contiguous(), weights.contiguous(),
            keys, settled, left, queue, tails, rounds, status,
            exactly, epsilon, max_iter, seeds, out_indptr.shape[0] - 1,
            BITS=slots.bit_length() - 1, NODES=nodes_at_once, EDGES=edges_at_once, SEEDS=128,
        )  # fmt: skip
    return keys, settled, left, rounds, status
