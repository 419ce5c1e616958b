"""Succession: follow recorded replacements from a value to its predecessor, successor or origin.

A step of the query plan (`docs/mathematics.md` 5.9). Replacements are recorded, so a question about
the value before another one follows them and need not find it by words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_tensor
from graphmem_torch.ops.ragged import segment_topk
from graphmem_torch.ops.sorted_rows import SortedRows
from graphmem_torch.rank.memory_tensors import MemoryTensors

__all__ = ["WAYS", "SuccessionBatch", "follow", "term_weights"]

WAYS = ("before", "after", "first")
"""Direction of a question from a value: predecessors, successor, or first of the chain."""

_SAYS = 0.5  # minimum share of the words' idf with which an atom states what they name
_LED = 8  # maximum atoms found for a question


@dataclass(frozen=True, eq=False)
class SuccessionBatch:
    """Questions about values that replaced each other; B in all.

    Attributes:
        way: [B] int64, places in `WAYS`.
        named: [B, W] int64, the terms of the named value, -1 padding.
        about: [B, V] int64, the terms of other names: the subject of the value.
        unknown: [B] int64, number of the value's words that no atom has; each weighs as the rarest
            known one. Without any words, the current value is the start.
        old, new: [S] int64 rows: `new` replaced `old`, each `old` once; in the order in which the
            old ones began to be true.
    """

    way: Tensor
    named: Tensor
    about: Tensor
    unknown: Tensor
    old: Tensor
    new: Tensor

    def check(self, count: int) -> None:
        """Raise `InputError` unless the batch has `count` questions."""
        axes = {"way": (count,), "named": (count, "W"), "about": (count, "V"), "unknown": (count,)}
        axes |= {"old": ("S",), "new": (len(self.old),)}
        for name, shape in axes.items():
            do = "give one row for each question, and pairs of rows"
            check_tensor(f"asked.{name}", getattr(self, name), "int64", shape, do)


def follow(
    memory: MemoryTensors,
    asked: SuccessionBatch,
    best: Tensor,  # [B, n] int64, -1 = none
) -> Tensor:  # [B, P] int64, -1 = none
    """Return the atoms that the successions of B questions lead to, the latest first.

    The start is the first atom of `best` that is in a chain and meets these conditions:

    - It has at least half of the idf of the named value's words.
    - No value that it superseded has half too; otherwise it only reports that the value ended.
    - It has the most of the other names, and at least half of the most in `best`, so that the
      subject is the same.

    If no value is named, the start is the end of that atom's chain. *Before* leads to all that it
    superseded, at most 8; *after* to its replacement; *first* to the start of its chain, the
    earliest of several.

    Args:
        memory: A atoms.
        asked: Direction and terms of each question.
        best: The atoms that fit the question, best first.
    """
    count = len(asked.way)
    if not best.numel() or not len(asked.old):
        return asked.way.new_empty(count, 0)
    chains = _Chains.of(asked.old, asked.new, memory.num_atoms)
    row = best.clamp(min=0)
    named = (asked.named >= 0).any(1) | (asked.unknown > 0)
    source = (best >= 0) & chains.member[row]
    source &= _states(memory, asked, chains, row) | ~named[:, None]
    fits = term_weights(memory, asked.about)[0].gather(1, row).masked_fill(best < 0, 0.0)
    source &= fits >= _SAYS * fits.amax(1, keepdim=True)
    most = source & (fits >= fits.masked_fill(~source, 0.0).amax(1, keepdim=True))
    ahead = (~most).long().cumprod(1).sum(1, keepdim=True)
    start = row.gather(1, ahead.clamp(max=row.shape[1] - 1)).squeeze(1)
    start = torch.where(named, start, chains.last[start])
    (back,) = (asked.way == WAYS.index("before")).nonzero(as_tuple=True)
    span, old = chains.replaced(start[back])
    questions, goals = [back[span]], [old]
    for way, column in (("after", chains.following), ("first", chains.first)):
        (own,) = (asked.way == WAYS.index(way)).nonzero(as_tuple=True)
        questions.append(own)
        goals.append(column[start[own]])
    question, goal = torch.cat(questions), torch.cat(goals)
    kept = source.any(1)[question] & (goal >= 0) & (goal != start[question])
    question, goal = question[kept], goal[kept]
    size = torch.bincount(question, minlength=count)
    place = segment_topk(torch.arange(len(goal)).to(goal), question, size, _LED)
    place = place[:, : int(size.max())]
    return goal[place].masked_fill(place < 0, -1) if len(goal) else place


def _states(
    memory: MemoryTensors,
    asked: SuccessionBatch,
    chains: _Chains,
    row: Tensor,  # [B, n]
) -> Tensor:  # [B, n] bool
    """Return whether atoms have the named words, and nothing that they superseded has them."""
    weight, idf = term_weights(memory, asked.named)
    needed = _SAYS * (idf.sum(1) + asked.unknown * idf.amax(1))
    said = (weight >= needed[:, None]) & (needed > 0)[:, None]
    span, old = chains.replaced(row.flatten())
    before = said[torch.div(span, row.shape[1], rounding_mode="floor"), old]
    again = torch.zeros(row.numel(), dtype=torch.bool, device=row.device)
    again[span[before]] = True
    return said.gather(1, row) & ~again.view_as(row)


def term_weights(
    memory: MemoryTensors, terms: Tensor
) -> tuple[Tensor, Tensor]:  # [B, A], [B, 1 + W]
    """Return the idf of terms [B, W] that atoms have, and the idf of each; 0 for padding."""
    bm25 = memory.bm25
    padded = torch.nn.functional.pad(terms, (1, 0), value=-1)
    idf = torch.nn.functional.pad(bm25.idf, (0, 1))[padded]  # padding is the last one
    weight = idf.new_zeros(len(terms), memory.num_atoms)
    for place in range(terms.shape[1]):  # names are few words
        has = bm25.score(terms[:, place : place + 1].contiguous()) > 0
        weight += has * idf[:, place + 1, None]
    return weight, idf


class _Chains(NamedTuple):
    """Chains of replacements over A atoms.

    Attributes:
        following: [A] int64, the replacement of each atom, -1 = none.
        last: [A] int64, the end of its chain.
        first: [A] int64, the earliest start of its chain; -1 outside of any.
        member: [A] bool, mask of the atoms in a chain.
        pairs: Atoms that each atom superseded, by its row, the earliest first.
    """

    following: Tensor
    last: Tensor
    first: Tensor
    member: Tensor
    pairs: SortedRows

    @classmethod
    def of(cls, old: Tensor, new: Tensor, atoms: int) -> _Chains:
        """Build the chains of S pairs [S] and [S]."""
        rows = torch.arange(atoms, device=old.device)
        following = torch.full_like(rows, -1)
        following[old] = new
        last = torch.where(following < 0, rows, following)
        for _ in range(len(old).bit_length()):  # terminates even on stored cycles
            last = last[last]
        member = following >= 0
        member[new] = True
        begins = torch.ones(atoms, dtype=torch.bool, device=old.device)
        begins[new] = False
        own = old[begins[old]]
        place = torch.full_like(rows, len(own))
        place.scatter_reduce_(0, last[own], torch.arange(len(own), device=own.device), "amin")
        first = torch.nn.functional.pad(own, (0, 1), value=-1)[place[last]]
        by_new = new.argsort(stable=True)
        return cls(following, last, first, member, SortedRows(new[by_new], old[by_new]))

    def replaced(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m] int64
        """Return the atoms that some atoms superseded: the position in `rows`, and the row."""
        return self.pairs.within(rows, rows)
