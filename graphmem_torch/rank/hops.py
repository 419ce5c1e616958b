"""Bridges that a question does not name: from strong memories to documents that they lead to.

`mathematics.md` 8.4, one round of max propagation along title mentions and shared entities.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.hop_tensors import HopParts, pair_keys, window_keys

__all__ = ["entity_hop", "named_keys", "title_hop"]


def named_keys(query_terms: Tensor | None) -> Tensor | None:  # [B, W], -1 padding -> [m] sorted
    """What the questions name, one key for each question and run of its terms."""
    if query_terms is None:
        return None
    return pair_keys(*window_keys(query_terms)).unique()


def title_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp(F_p - max F)
    named: Tensor | None = None,  # of `named_keys`
) -> SparseRows:  # [B, A]
    """max_p w_p / sqrt(titles in p) over the anchors that mention the title of a document.

    Titles that the question names lead nowhere: it finds them itself.
    """
    row, atom, weight = _seeds(anchors, value)
    sender, edge = _expand(parts.mention_indptr, atom)
    target = parts.mention_target[edge].long()
    reached = weight[sender] * parts.mention_weight.float()[edge]
    fresh = ~_is_named(row[sender], parts.title_key[target], named)
    return _largest(row[sender], target, reached * fresh, len(anchors), parts.num_atoms)


def entity_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp(F_p - max F)
    named: Tensor | None = None,  # of `named_keys`
) -> SparseRows:  # [B, A]
    """max_p w_p sqrt(<x_p without the question's entities, x_c>) over the anchors, for documents c.

    x is the unit IDF vector of an atom's entities. An anchor does not lead to itself.
    """
    row, atom, weight = _seeds(anchors, value)
    seed, edge = _expand(parts.entity_indptr, atom)
    entity, share = parts.entity[edge].long(), parts.entity_weight.float()[edge]
    fresh = ~_is_named(row[seed], parts.entity_key[entity], named)
    seed, entity, share = seed[fresh], entity[fresh], share[fresh]
    sender, place = _expand(parts.bearer_indptr, entity)
    target, other = parts.bearer[place].long(), parts.bearer_weight.float()[place]
    start = seed[sender]
    key, slot = torch.unique(start * parts.num_atoms + target, return_inverse=True)
    product = share.new_zeros(len(key)).index_add_(0, slot, share[sender] * other)
    start, target = key // max(1, parts.num_atoms), key % max(1, parts.num_atoms)
    there = parts.document[target] & (target != atom[start])
    reached = weight[start] * product.clamp(min=0.0).sqrt() * there
    return _largest(row[start], target, reached, len(anchors), parts.num_atoms)


def _seeds(anchors: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The question, the row and the weight of every anchor there is."""
    row, place = (anchors >= 0).nonzero(as_tuple=True)
    return row, anchors[row, place], value[row, place]


def _expand(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of some rows of a compressed matrix: which row each is of, and its place."""
    first, last = indptr[rows].long(), indptr[rows + 1].long()
    count = last - first
    sender = torch.repeat_interleave(count)
    start = first - (count.cumsum(0) - count)
    return sender, start[sender] + torch.arange(len(sender), device=rows.device)


def _is_named(row: Tensor, key: Tensor, named: Tensor | None) -> Tensor:
    if named is None or not len(named):
        return torch.zeros_like(key, dtype=torch.bool)
    wanted = pair_keys(row, key)
    place = torch.searchsorted(named, wanted).clamp(max=len(named) - 1)
    return (named[place] == wanted) & (key != 0)


def _largest(row: Tensor, column: Tensor, value: Tensor, rows: int, columns: int) -> SparseRows:
    kept = value > 0
    key, slot = torch.unique(row[kept] * columns + column[kept], return_inverse=True)
    best = value.new_zeros(len(key)).scatter_reduce(0, slot, value[kept], "amax")
    return SparseRows(key, best, (rows, columns))
