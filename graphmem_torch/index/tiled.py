"""Batches of questions: in tiles that fit, and in fixed shapes with one wait."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.index.execution_plan import CandidateRule, ExecutionPlan
from graphmem_torch.index.retrieve import Retrieval, Stages, retrieve
from graphmem_torch.ops.fixed_shapes import fixing_shapes
from graphmem_torch.rank.echo import without_echoes
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.query import QueryBatch

__all__ = ["retrieve_checked", "retrieve_in_tiles", "waiting_once"]


def retrieve_in_tiles(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    size: int,
    paths: bool,
    stages: Stages | None,
) -> Retrieval:
    """Return `retrieve` of questions, some at a time: `size` floats are the largest temporary."""
    compared = query.terms if query.tokens is None else query.tokens
    every = plan.rule == CandidateRule.EVERY and compared is not None
    width = max(1, compared.shape[1]) if every and compared is not None else 1
    step = max(1, size // max(1, memory.num_atoms * width))
    if memory.peers is not None and len(query) > 1:
        step = memory.peers.smallest("tile", step)
    parts = [
        retrieve(
            memory, plan, weights, query.rows(slice(i, i + step)), k, paths=paths, stages=stages
        )
        for i in range(0, max(len(query), 1), step)
    ]
    if len(parts) == 1:
        return parts[0]
    return Retrieval(*(torch.cat(column) for column in zip(*parts, strict=True)))


def retrieve_checked(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    size: int,
    paths: bool = False,
    stages: Stages | None = None,
) -> Retrieval:
    """Return `retrieve_in_tiles` of questions whose sizes are checked, but not their values."""
    own = without_echoes(memory, query.checked(memory.vocabulary))
    return retrieve_in_tiles(memory, plan, weights, own, k, size, paths, stages)


def waiting_once(answer: Callable[[Stages | None], Retrieval], stages: Stages | None) -> Retrieval:
    """Return an answer in fixed shapes, where the host waits once, for the flags of the result.

    If one is raised, because values are not finite, a term is unknown or many scores tie, the
    answer or the error is that without fixed shapes.
    """
    with fixing_shapes() as doubts:
        found = answer(stages)
    return answer(None) if bool(torch.stack(doubts).any()) else found
