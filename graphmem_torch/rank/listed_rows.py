"""Lists of candidates: the places of atoms in them, and pairs of candidates."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.rank.memory_tensors import MemoryTensors

__all__ = ["columns_of", "derived_pairs", "merge_rows"]


def columns_of(
    rows: Tensor,  # [B, C] int64, ascending lists of atoms, padded with -1
    question: Tensor,  # [P] int64
    atom: Tensor,  # [P] int64
    atoms: int,
) -> tuple[Tensor, Tensor]:  # [P] int64, [P] bool
    """Return the places of atoms in the lists of their questions, and a mask of those in them."""
    # One ascending list of all candidates; padding sorts below its own question's candidates.
    width = atoms + 1
    begin = torch.arange(len(rows), device=rows.device)[:, None] * width
    keys = (begin + rows + 1).flatten()
    wanted = question * width + atom + 1
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return place % rows.shape[1], keys[place] == wanted


def merge_rows(*parts: Tensor) -> Tensor:  # [B, c] each -> [B, C]
    """Merge candidate lists, ascending; duplicates become -1 and come first."""
    rows = torch.cat(parts, dim=1).sort(dim=1).values
    repeated = torch.nn.functional.pad(rows[:, 1:] == rows[:, :-1], (1, 0))
    return rows.masked_fill(repeated, -1).sort(dim=1).values


def derived_pairs(
    memory: MemoryTensors,
    rows: Tensor | None,  # [B, C] int64, as for `columns_of`; None: every atom
    questions: int,
) -> tuple[Tensor, Tensor]:  # [P] int64 each
    """Return the pairs of an atom and one derived from it, both candidates of one question.

    They are places in the flattened [B, C]: first the derived one, or B C if it is no candidate,
    then the other. Takes time in proportion to the candidates and what is derived from them,
    whatever the memory. In fixed shapes each candidate has as many pairs as the one with most.
    """
    begin, source = memory.derivations
    if rows is None:
        target = memory.derived_target.long()
        first = torch.arange(questions, device=target.device)[:, None] * memory.num_atoms
        derived = first + memory.derived_source.long()
        return derived.flatten(), (first + target).flatten()
    atom = rows.flatten()
    known = atom.clamp(min=0)
    first = begin.index_select(0, known)
    count = (begin.index_select(0, known + 1) - first).masked_fill_(atom < 0, 0)
    if shapes_are_fixed():
        lane = torch.arange(memory.most_derived, device=rows.device)
        entry = (first[:, None] + lane).clamp(max=len(source) - 1).flatten()
        goal = torch.arange(len(atom), device=rows.device).repeat_interleave(len(lane))
        inside = (lane < count[:, None]).flatten()
    else:
        goal, entry = ranges(first, count)
        inside = None
    question = goal // rows.shape[1]
    column, there = columns_of(rows, question, source.index_select(0, entry), memory.num_atoms)
    there = there if inside is None else there & inside
    return torch.where(there, question * rows.shape[1] + column, len(atom)), goal
