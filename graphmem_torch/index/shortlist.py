"""Shortlist: choose the atoms compared with a question, before anything spreads."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.index.execution_plan import CandidateRule
from graphmem_torch.modes.search import search_modes
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.rank.anchors import (
    traversal_seeds,
)
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.listed_rows import merge_rows
from graphmem_torch.rank.paths import discounted, hop_discount, hop_discounts
from graphmem_torch.rank.reached import Reached

__all__ = ["EXTRA_ATOMS", "shortlisted", "traversed"]

EXTRA_ATOMS = 32  # maximum atoms that only the graph brings to the candidates of a large store
_HALO_SHARE = 6  # one in so many candidates adds its neighbours
_REACH = 2  # turns on both sides
_RUNS, _RUN = 8, 8  # of the background: 64 atoms give a deviation to about 10 %


def shortlisted(everyone: Candidates, rule: CandidateRule, k: int) -> Candidates:
    """Return the candidates that a rule chooses for k hits."""
    if rule == CandidateRule.EVERY:
        return everyone
    if rule == CandidateRule.MODES:
        return everyone.narrowed(_mode_candidates(everyone, k))
    if rule == CandidateRule.REACHED:
        return everyone.narrowed(_reached_candidates(everyone, k))
    rank = everyone.config.rank
    background = _background(everyone) if rank.scale == "background" else None
    rows = _base_candidates(everyone, max(rank.candidates, k), background)
    found = everyone.narrowed(rows, background)
    if everyone.reached.traversal is None:
        return found
    return found.extended(_reached_candidates(everyone, EXTRA_ATOMS))


def _background(everyone: Candidates) -> Tensor:  # [B or 1, S] int64, ascending, -1 first
    """Return atoms drawn evenly from the allowed ones, in runs of neighbours."""
    there = everyone.query.allowed
    count = everyone.memory.atom_count[None] if there is None else there.sum(1, keepdim=True)
    run = torch.arange(_RUN, device=count.device)
    start = (torch.arange(_RUNS, device=count.device) * count) // _RUNS
    place = (start[:, :, None] + run).flatten(1).minimum(count - 1)
    if there is not None:  # the row of each place in the allowed atoms
        place = torch.searchsorted(there.cumsum(1), place + 1).masked_fill(count == 0, -1)
    return merge_rows(place)


def _base_candidates(
    everyone: Candidates, count: int, background: Tensor | None
) -> Tensor:  # [B, C] int64, ascending
    """Return the `count` best by cosine, as many by BM25, and the turns beside the best of both.

    A plan's atoms replace these if it left any. Neighbours are added for signals that read windows,
    because one turn often answers the one before. The background is added for comparison.
    """
    memory, planned = everyone.memory, everyone.query.planned
    bare = everyone.query.allowed is None and everyone.query.listed is None
    least = {"semantic": -torch.inf, "lexical": 0.0}  # an atom without a question term is no match
    share = max(1, count // _HALO_SHARE)
    if planned is not None:
        parts, halo = [planned], planned[:, :share]
    else:
        best = [
            # An atom that does not exist has no question term.
            _best(everyone.signal(name), None if bare and above == 0 else mask, count, above)
            for mask in _masks(everyone)
            for name, above in least.items()
        ]
        parts = [rows for rows, _ in best]
        halo = torch.cat(
            [
                rows.gather(1, stable_topk(worth, min(share, worth.shape[1]), sorted=False)[1])
                for rows, worth in best
            ],
            dim=1,
        )
    pointers, second = memory.turns
    row = halo[:, None]
    for _ in range(_REACH):
        row = pointers.take(row + second)
        parts.append(row.flatten(1))
    if background is not None:
        parts.append(background.expand(len(everyone.query), -1))
    return merge_rows(*parts)


def _masks(everyone: Candidates) -> list[Tensor | None]:
    """Return the mask of allowed atoms, and of possible hits if these are fewer.

    Separate lists keep other atoms from crowding out possible hits.
    """
    query = everyone.query
    whole = query.allowed is None and everyone.memory.room is None
    there = [None if whole else everyone.valid]
    return there if query.listed is None else [*there, everyone.listed]


def _best(
    values: Tensor, mask: Tensor | None, count: int, above: float
) -> tuple[Tensor, Tensor]:  # [B, c] int64, [B, c]
    """Return the rows of the largest `values` [B, A] above a value in the mask, and their values.

    Rows are ascending; missing ones are -1 with minus infinity.
    """
    # Each pass over [B, A] costs more than all later steps, so this makes as few as possible.
    values = values.detach()
    inside = values if mask is None else values.masked_fill(~mask, -torch.inf)
    worth, rows = stable_topk(inside, min(count, values.shape[1]), above=above, sorted=False)
    rows, order = rows.masked_fill(worth == -torch.inf, -1).sort(dim=1)
    return rows, worth.gather(1, order)


def _mode_candidates(everyone: Candidates, k: int) -> Tensor:  # [B, C] int64, ascending, -1 first
    """Return the best atoms of the best modes of each question (`docs/mathematics.md` 1.5).

    Each mode gives `modes.atoms_per_mode` atoms, or as many as k hits need.
    """
    memory, query, own = everyone.memory, everyone.query, everyone.config.modes
    modes = memory.modes
    assert modes is not None  # the rule requires modes
    look = min(own.modes_searched, len(modes))
    found = [
        search_modes(
            modes,
            memory.embeddings,
            query.embedding.detach(),
            modes_k=look,
            per_mode=min(max(own.atoms_per_mode, -(-k // look)), memory.num_atoms),
            half_life_days=own.half_life_days,
            absolute=own.absolute,
            duplicate=None if memory.duplicate is None else memory.duplicate.long(),
            allowed=mask,
        ).rows
        for mask in _masks(everyone)
    ]
    return merge_rows(*found)


def _reached_candidates(everyone: Candidates, m: int) -> Tensor:  # [B, <= m] int64, ascending
    """Return R_q: the m best traversed atoms by discounted similarity (`docs/mathematics.md` 3)."""
    query, reach = everyone.query, everyone.reached.traversal
    assert reach is not None
    if isinstance(reach, Tensor):
        value = discounted(everyone.signal("semantic").detach(), reach)
        worth = value.masked_fill(~((reach > 0) & everyone.listed), -torch.inf)
        best, rows = stable_topk(worth, min(m, worth.shape[1]))
        return rows.masked_fill(best == -torch.inf, -1).sort(dim=1).values
    row, column = reach.row, reach.column
    value = discounted(everyone.signal("semantic").detach()[row, column], reach.value)
    if query.listed is not None:
        inside = everyone.listed.expand(len(query), -1)[row, column]
        value = value.masked_fill(~inside, -torch.inf)
    values, place = SparseRows(reach.key, value, reach.shape).padded()
    values = values.masked_fill(place < 0, -torch.inf)
    best, chosen = stable_topk(values, min(m, values.shape[1]))
    place = place.gather(1, chosen)
    found = best > -torch.inf
    return torch.where(found, column[place.clamp(min=0)], -1).sort(dim=1).values


def traversed(everyone: Candidates, mask: Tensor | None) -> Reached:
    """Traverse the graph around the seeds of each question."""
    memory, own = everyone.memory, everyone.config.segment
    seeds, cosine = traversal_seeds(everyone, own.seeds)
    start, hops, discount = memory.nodes(seeds), own.hops, own.discount
    if everyone.query.seeds is not None:
        start = torch.cat([start, everyone.query.seeds], dim=1)
    if shapes_are_fixed():
        every = hop_discounts(memory.graph, start, hops=hops, discount=discount, mask=mask)
        return Reached(anchors=seeds, value=cosine, traversal=every[:, memory.node.long()])
    reach = hop_discount(memory.graph, start, hops=hops, discount=discount, mask=mask)
    return Reached(anchors=seeds, value=cosine, traversal=memory.of_atoms(reach))
