"""Candidates: which atoms of a large store are worth the expensive signals."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.modes.find import Modes
from graphmem_torch.modes.search import search_modes
from graphmem_torch.ops.running_topk import empty_best, merge_tile
from graphmem_torch.rank.scope import Scope

__all__ = ["merge_rows", "mode_candidates", "strong_candidates"]
_HALO_SHARE = 6  # one of so many candidates brings its neighbours along
_REACH = 2  # turns on both sides


def strong_candidates(scope: Scope, count: int) -> Tensor:  # [B, C] int64, ascending, -1 first
    """The `count` best by cosine, the `count` best by BM25, and the turns beside the best of both.

    The neighbours are there for the signals that look at windows: what one turn asks, the next one
    answers.
    """
    masks = [None if scope.query.allowed is None else scope.valid]
    if scope.query.listed is not None:  # what may be a hit must not be crowded out by what may not
        masks.append(scope.listed)
    least = {"semantic": -torch.inf, "lexical": 0.0}  # an atom without a question term is no match
    best = [
        _best(scope.memo(name), mask, count, above)
        for mask in masks
        for name, above in least.items()
    ]
    halo = torch.cat([rows[:, : max(1, count // _HALO_SHARE)] for rows in best], dim=1)
    parts = list(best)
    for pointer in (scope.index.next.long(), scope.index.previous.long()):
        row = halo
        for _ in range(_REACH):
            row = torch.where(row >= 0, pointer[row.clamp(min=0)], -1)
            parts.append(row)
    return merge_rows(*parts)


def _best(values: Tensor, mask: Tensor | None, count: int, above: float) -> Tensor:
    """The rows [B, c] of the largest of `values` [B, A] inside the mask and above a value."""
    # A pass over B x A costs more than anything that comes after it, so none is made in vain.
    inside = values if mask is None else values.masked_fill(~mask, -torch.inf)
    best, rows = empty_best(len(values), min(count, values.shape[1]), values.device)
    merge_tile(best, rows, inside, 0)
    return torch.where(best > above, rows, -1)


def merge_rows(*parts: Tensor) -> Tensor:  # [B, c] each -> [B, C]
    """The union of candidate lists, ascending, duplicates turned into -1, which come first."""
    rows = torch.cat(parts, dim=1).sort(dim=1).values
    repeated = torch.nn.functional.pad(rows[:, 1:] == rows[:, :-1], (1, 0))
    return rows.masked_fill(repeated, -1).sort(dim=1).values


def mode_candidates(scope: Scope, modes: Modes, k: int) -> Tensor:  # [B, C] int64, -1 first
    """The best atoms of the best modes of each question (`docs/mathematics.md` 1.5), ascending.

    As many from each mode as `modes.per_mode` says, or as k hits need.

    Args:
        scope: The questions against every atom.
        modes: Of those atoms.
        k: Hits wanted.
    """
    index, query, own = scope.index, scope.query, scope.index.config.modes
    look = min(own.look, len(modes))
    per_mode = min(max(own.per_mode, -(-k // look)), index.num_atoms)
    masks = [query.allowed]
    if query.listed is not None:  # what may be a hit must not be crowded out by what may not
        masks.append(query.listed if query.allowed is None else query.allowed & query.listed)
    duplicate = None if index.duplicate is None else index.duplicate.long()
    found = [
        search_modes(
            modes,
            index.embeddings,
            query.embedding,
            modes_k=look,
            per_mode=per_mode,
            half_life=own.half_life,
            absolute=own.absolute,
            duplicate=duplicate,
            allowed=mask,
        ).rows
        for mask in masks
    ]
    return merge_rows(*found)
