"""Candidates that mode retrieval finds: work in proportion to the atoms of a few modes."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.candidates import merge_rows
from graphmem_torch.rank.scope import Scope
from graphmem_torch.spectral.mode_search import search_modes
from graphmem_torch.spectral.modes import Modes

__all__ = ["mode_candidates"]


def mode_candidates(scope: Scope, modes: Modes, k: int) -> Tensor:  # [B, C] int64, -1 first
    """The best atoms of the best modes of each question (`mathematics.md` 1.5), ascending.

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
