"""Shortlist: the atoms that a question is held against, chosen before anything spreads."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.index.execution_plan import CandidateRule
from graphmem_torch.modes.search import search_modes
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.rank.anchors import (
    traversal_seeds,
)
from graphmem_torch.rank.candidates import Candidates, Reached, merge_rows
from graphmem_torch.rank.paths import discounted, hop_discount

__all__ = ["EXTRA_ATOMS", "shortlisted", "traversed"]

EXTRA_ATOMS = 32  # atoms that only the graph brought, added to the candidates of a large store
_HALO_SHARE = 6  # one of so many candidates brings its neighbours along
_REACH = 2  # turns on both sides
_RUNS, _RUN = 8, 8  # of the background: 64 atoms tell a deviation to about a tenth


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
    """Atoms drawn evenly from those there are for each question, in runs of neighbours."""
    there, atoms = everyone.query.allowed, everyone.memory.num_atoms
    if there is None:
        count = torch.full((1, 1), atoms, device=everyone.query.embedding.device)
    else:
        count = there.sum(1, keepdim=True)
    run = torch.arange(_RUN, device=count.device)
    start = (torch.arange(_RUNS, device=count.device) * count) // _RUNS
    place = (start[:, :, None] + run).flatten(1).minimum(count - 1)
    if there is not None:  # the row at each place among those that are there
        place = torch.searchsorted(there.cumsum(1), place + 1).masked_fill(count == 0, -1)
    return merge_rows(place)


def _base_candidates(
    everyone: Candidates, count: int, background: Tensor | None
) -> Tensor:  # [B, C] int64, ascending
    """The `count` best by cosine, the `count` best by BM25, and the turns beside the best of both.

    Or what a plan has left in place of these. The neighbours are there for the signals that look at
    windows: what one turn asks, the next one answers. The background is there to be compared with.
    """
    memory, planned = everyone.memory, everyone.query.planned
    least = {"semantic": -torch.inf, "lexical": 0.0}  # an atom without a question term is no match
    share = max(1, count // _HALO_SHARE)
    if planned is not None:
        parts, halo = [planned], planned[:, :share]
    else:
        best = [
            _best(everyone.signal(name), mask, count, above)
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
    """The atoms there are for each question, and those of them that may be hits where not all may.

    What may be a hit must not be crowded out by what may not.
    """
    query = everyone.query
    there = [None if query.allowed is None else everyone.valid]
    return there if query.listed is None else [*there, everyone.listed]


def _best(
    values: Tensor, mask: Tensor | None, count: int, above: float
) -> tuple[Tensor, Tensor]:  # [B, c] int64, [B, c]
    """The rows of the largest of `values` [B, A] inside the mask and above a value; and these.

    Ascending; -1 and minus infinity where there are fewer.
    """
    # A pass over B x A costs more than anything that comes after it, so none is made in vain.
    values = values.detach()
    inside = values if mask is None else values.masked_fill(~mask, -torch.inf)
    worth, rows = stable_topk(inside, min(count, values.shape[1]), above=above, sorted=False)
    rows, order = rows.masked_fill(worth == -torch.inf, -1).sort(dim=1)
    return rows, worth.gather(1, order)


def _mode_candidates(everyone: Candidates, k: int) -> Tensor:  # [B, C] int64, ascending, -1 first
    """The best atoms of the best modes of each question (`docs/mathematics.md` 1.5).

    As many from each mode as `modes.atoms_per_mode` says, or as k hits need.
    """
    memory, query, own = everyone.memory, everyone.query, everyone.config.modes
    modes = memory.modes
    assert modes is not None  # else the rule is another
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
    """R_q: of what was traversed, the m best by discounted similarity (`docs/mathematics.md` 3)."""
    query, reach = everyone.query, everyone.reached.traversal
    assert reach is not None
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
    """What is around the seeds of each question."""
    memory, own = everyone.memory, everyone.config.segment
    seeds, cosine = traversal_seeds(everyone, own.seeds)
    start, hops, discount = memory.nodes(seeds), own.hops, own.discount
    if everyone.query.seeds is not None:
        start = torch.cat([start, everyone.query.seeds], dim=1)
    reach = hop_discount(memory.graph, start, hops=hops, discount=discount, mask=mask)
    return Reached(anchors=seeds, value=cosine, traversal=memory.of_atoms(reach))
