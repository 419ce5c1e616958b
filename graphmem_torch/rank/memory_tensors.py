"""MemoryTensors: the tensors of a memory that ranking reads, and values computed from them once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.graph import Graph
from graphmem_torch.modes.find import Modes
from graphmem_torch.ops import SparseRows, token_maxima
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.sorted_rows import SortedRows, sorted_order
from graphmem_torch.rank.hops import HopParts, title_bearers
from graphmem_torch.rank.moments import correlation, even_share, sharpened
from graphmem_torch.rank.part import Part
from graphmem_torch.rank.peers import Peers

__all__ = ["MemoryTensors", "Room", "computed_once", "keep_computed", "turn_pointers"]


T = TypeVar("T")
_TREND_PROBES, _TREND_TOKENS, _TREND_ATOMS = 16, 8, 256  # sizes for `MemoryTensors.length_trend`
_ENTRIES = 3  # minimum entries of a collection
_ONLY = 0.95  # minimum share of questions in a list of questions
_COMPUTED: list[str] = []  # names of all `computed_once` properties


class computed_once(Generic[T]):
    """A property that is computed on first access.

    `functools.cached_property` locks in Python 3.11, for all objects of a class at once. Threads
    would wait for each other, and a compiled index would break its graph there.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        _COMPUTED.append(name)

    @overload
    def __get__(self, instance: None, owner: type) -> computed_once[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> T | computed_once[T]:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class Room(NamedTuple):
    """Entries that exist in a memory whose tensors have room for more: the first ones.

    Attributes:
        atoms: [] int64, number of atoms that exist.
        there: [A] bool, mask of these.
        terms: [] int64, number of terms.
    """

    atoms: Tensor
    there: Tensor
    terms: Tensor


@dataclass(frozen=True, eq=False)
class MemoryTensors:
    """Tensors of a memory that ranking reads: A atoms, which can be hits, and a graph of N nodes.

    Nodes are the atoms, in ascending order, and concepts between them.

    Attributes:
        embeddings: [A, d] unit rows.
        node: [A] integers, the node that each atom is, ascending.
        atom: [N] integers, the atom that each node is, -1 = none.
        bm25, session_bm25: The lexical indexes of the atoms and of their sessions.
        graph: The conducting graph of the N nodes.
        session: [A] integer codes, none below 0.
        previous, next: [A] rows of the turn before and after, -1 = none.
        time_bits: [A] int64, the bits of the float64 seconds since the epoch UTC, NaN = unknown.
        speaker, month, day: [A] integer codes, -1 = unknown.
        said: [A] int32, the day since the epoch of each atom's time; unknown: before all others.
        told: [A, 2] int32, first day that an atom states and the day after the last; 0, 0 for none.
        log_words: [A], ln(1 + words).
        is_question, tells_time: [A], 1 or 0.
        role: [A] int8, 1 for the words of a user, -1 for those of an assistant, else 0.
        asked_key: [A] int64, equal for atoms that ask the same, 0 for those that ask nothing.
        asked_words: [A] int16, number of distinct terms of an atom that only asks, else 0.
        asked_bits: [A] int64, these terms as bits (`text.asked.Asked.bits`).
        asked_form: [A] int8, places in `text.asked.FORMS`.
        derived_source, derived_target: [D] rows; the source was derived from the target.
        tokens, token_offsets, piece_df: Packed token vectors [T, m], [A + 1], and the number of
            atoms with each word piece.
        direction, component, bridge_bonus, pagerank: [A, c], [A], [A] and [A], from `rank.routing`.
        resistance_far, resistance_null, resistance_scale, sign_change: [A, r], [A], [A] and [A],
            from `rank.routing`.
        duplicate: [A], the first atom of equal content.
        time_order: [A], rows by their times, in the order of `ops.sorted_rows.sorted_order`.
        told_order: Rows of the atoms that state days, by the first day.
        moment_bits: [d + 1, d] int64, the bits of float64 `row_sums` of the embeddings, in a memory
            of more than `rank.exhaustive_up_to` atoms.
        modes: The modes of the atoms.
        hops: Parts that hops read, in a memory with documents.
        part: Values of the whole memory, if this is one of its shards; set by `within`.
        room: Atoms that exist, if the tensors have room for more. Others are in no session and no
            list, and have no edges.
    """

    embeddings: Tensor
    node: Tensor
    atom: Tensor
    bm25: BM25
    session_bm25: BM25
    graph: Graph
    session: Tensor
    previous: Tensor
    next: Tensor
    time_bits: Tensor
    speaker: Tensor
    month: Tensor
    day: Tensor
    said: Tensor
    told: Tensor
    log_words: Tensor
    is_question: Tensor
    tells_time: Tensor
    role: Tensor
    derived_source: Tensor
    derived_target: Tensor
    tokens: Tensor | None = None
    token_offsets: Tensor | None = None
    piece_df: Tensor | None = None
    direction: Tensor | None = None
    component: Tensor | None = None
    bridge_bonus: Tensor | None = None
    pagerank: Tensor | None = None
    resistance_far: Tensor | None = None
    resistance_null: Tensor | None = None
    resistance_scale: Tensor | None = None
    sign_change: Tensor | None = None
    duplicate: Tensor | None = None
    time_order: Tensor | None = None
    told_order: Tensor | None = None
    asked_key: Tensor | None = None
    asked_words: Tensor | None = None
    asked_bits: Tensor | None = None
    asked_form: Tensor | None = None
    moment_bits: Tensor | None = None
    modes: Modes | None = None
    hops: HopParts | None = None
    part: Part | None = None
    room: Room | None = None

    @property
    def num_atoms(self) -> int:
        """A."""
        return self.embeddings.shape[0]

    @property
    def vocabulary(self) -> int | Tensor:
        """Number of terms; a tensor [] if there is room for more."""
        return len(self.bm25.idf) if self.room is None else self.room.terms

    @property
    def row_sums(self) -> Tensor | None:  # [d + 1, d] float64
        """Sums of the embeddings (`rank.population.row_sums`); None if the index has none."""
        return None if self.moment_bits is None else self.moment_bits.view(torch.float64)

    @property
    def atom_count(self) -> Tensor:  # [1] int64
        """Number of atoms that exist, on the device."""
        if self.room is not None:
            return self.room.atoms[None]
        return torch.full((1,), self.num_atoms, device=self.embeddings.device)

    @property
    def whole_atoms(self) -> int | Tensor:
        """Number of atoms, in all shards; a tensor [] if there is room for more."""
        if self.room is not None:
            return self.room.atoms
        return self.num_atoms if self.part is None else self.part.atoms

    @property
    def peers(self) -> Peers | None:
        """The shards that answer together; None for a memory of one store."""
        return None if self.part is None else self.part.peers

    def within(self, part: Part) -> MemoryTensors:
        """Return the memory as a shard, weighed by what the whole memory holds."""
        return replace(
            self,
            bm25=self.bm25.weighed(part.norm, part.idf),
            session_bm25=self.session_bm25.weighed(part.session_norm, part.session_idf),
            piece_df=part.piece_df,
            part=part,
        )

    @computed_once
    def rarest(self) -> float:
        """The idf of a term that a single atom has; a tensor [] if there is room for more atoms."""
        return math.log1p(max(0.0, float(self.whole_atoms) - 0.5) / 1.5)

    def nodes(self, rows: Tensor) -> Tensor:  # int64, -1 = none
        """Return the nodes of atoms; -1 for -1."""
        if not self.num_atoms:
            return rows
        return self.node[rows.clamp(min=0)].long().masked_fill(rows < 0, -1)

    @computed_once
    def turns(self) -> tuple[Tensor, Tensor]:
        """`turn_pointers` of `next` and `previous`."""
        return turn_pointers(self.next, self.previous)

    @computed_once
    def asking(self) -> Tensor:  # [n] int64
        """The atoms that ask, ascending."""
        assert self.asked_key is not None
        return self.asked_key.nonzero().squeeze(1)

    @computed_once
    def list_of_questions(self) -> Tensor:  # [A] bool
        """Mask of the entries of a collection that holds only questions, which may be hits.

        Entries are atoms without a speaker and without neighbouring turns. One question that is
        asked again and again makes no list.
        """
        assert self.asked_key is not None
        entry = (self.speaker < 0) & (self.previous < 0) & (self.next < 0)
        asks = entry & (self.asked_key != 0)
        # Count distinct keys without a shape that depends on values.
        keys = self.asked_key.masked_fill(~asks, 0).sort().values
        distinct = ((keys.diff(prepend=keys.new_zeros(1)) != 0) & (keys != 0)).sum()
        only = (entry.sum() >= _ENTRIES) & (distinct >= _ONLY * entry.sum())
        return asks & only

    @computed_once
    def by_time(self) -> SortedRows:
        """Atoms of known time, ordered by seconds since the epoch UTC."""
        time, order = self.time_bits.view(torch.float64), self.time_order
        if order is None:
            order = sorted_order(time, torch.arange(self.num_atoms, device=time.device))
        return SortedRows.of(order, time)

    @computed_once
    def by_told(self) -> SortedRows:
        """Atoms that state days, ordered by the first in days since the epoch."""
        first, order = self.told[:, 0].double(), self.told_order
        if order is None:
            order = sorted_order(first, (self.told[:, 1] > self.told[:, 0]).nonzero().squeeze(1))
        return SortedRows.of(order, first)

    @computed_once
    def derivations(self) -> tuple[Tensor, Tensor]:  # [A + 1] int64, [D] int64
        """Atoms derived from each atom: where the list of each begins, and the lists."""
        target = self.derived_target.long()
        counts = torch.bincount(target, minlength=self.num_atoms)
        return offsets_of(counts), self.derived_source.long()[target.argsort(stable=True)]

    @computed_once
    def most_derived(self) -> int:
        """Largest number of atoms derived from one."""
        begin, _ = self.derivations
        return int(begin.diff().max()) if self.num_atoms else 0

    @computed_once
    def underived(self) -> Tensor:  # [A] bool
        """Mask of the atoms that nothing is derived from, if each derived atom has several sources.

        If some have one source, as facts do, no atom is in the mask.
        """
        sources = torch.bincount(self.derived_source.long(), minlength=self.num_atoms)
        begin, _ = self.derivations
        return (begin.diff() == 0) & (sources != 1).all()

    @computed_once
    def title_bearers(self) -> Tensor:  # [A] int64
        """Number of atoms with the same title as each, in a memory with documents."""
        assert self.hops is not None
        known = None if self.part is None else self.part.title_bearers
        return title_bearers(self.hops) if known is None else known

    @computed_once
    def length_trend(self) -> Tensor | None:  # [2]
        """Mean correlation of late interaction and its sharp form with length, over questions.

        The questions are the first tokens of evenly drawn atoms, with equal weights, compared with
        evenly drawn atoms. None without token vectors.
        """
        if self.part is not None:
            return self.part.length_trend
        tokens, offsets = self.tokens, self.token_offsets
        if tokens is None or offsets is None or not len(tokens):
            return None
        atoms, device = self.num_atoms, tokens.device
        probes, drawn = (
            torch.arange(count, device=device) * atoms // count
            for count in (min(_TREND_PROBES, atoms), min(_TREND_ATOMS, atoms))
        )
        start, end = offsets[probes], offsets[probes + 1]
        place = start[:, None] + torch.arange(_TREND_TOKENS, device=device)
        known = place < end[:, None]
        asked = tokens[place.clamp(max=len(tokens) - 1)].float()
        asked = torch.nn.functional.normalize(asked, dim=2).where(known[:, :, None], 0.0)
        rows = drawn.expand(len(probes), -1)
        best = token_maxima(asked, known, tokens, offsets, candidates=rows.contiguous())
        count = known.sum(1).clamp(min=1)[:, None]
        # Exclude a text that finds itself.
        other = (rows != probes[:, None]) & known.any(1, keepdim=True)
        values = torch.stack([best.sum(1) / count, sharpened(best).sum(1) / count], dim=1)
        length = self.log_words.float()[rows]
        return correlation(values, length, even_share(other)).mean(0)

    def mean_of(self, values: Tensor) -> Tensor:  # [A] -> []
        """Return the mean of values of the atoms that exist."""
        if self.room is None:
            return values.mean()
        return values.where(self.room.there, 0.0).sum() / self.room.atoms.clamp(min=1)

    def knowing(self, **values: Any) -> MemoryTensors:
        """Return this memory with known values of `computed_once` properties; None: computed."""
        self.__dict__.update({name: value for name, value in values.items() if value is not None})
        return self

    def conducting(self, graph: Graph) -> MemoryTensors:
        """Return the same memory with another graph, keeping computed values."""
        other = replace(self, graph=graph)
        keep_computed(other, self)
        return other

    def of_atoms(self, found: SparseRows) -> SparseRows:  # [B, N] -> [B, A]
        """Keep the values of nodes that are atoms."""
        atom = self.atom.index_select(0, found.column).long()
        kept = (atom >= 0).nonzero().squeeze(1)
        key = (found.row * self.num_atoms).add_(atom).index_select(0, kept)
        value = found.value.index_select(0, kept)
        return SparseRows(key, value, (found.shape[0], self.num_atoms))


def keep_computed(other: object, own: object) -> None:
    """Copy computed values; torch 2.11 does not compile `copy.copy`, which would do so."""
    for name in _COMPUTED:
        if name in own.__dict__:
            other.__dict__[name] = own.__dict__[name]


def turn_pointers(
    following: Tensor,  # [A], -1 = none
    previous: Tensor,  # [A], -1 = none
) -> tuple[Tensor, Tensor]:  # [2 * (A + 1)] int64, [2, 1] int64
    """Concatenate both, each ended by a -1 that row -1 finds, and return where each begins."""
    both = torch.stack([following, previous]).long()
    begin = torch.tensor([[0], [len(following) + 1]], device=both.device)
    return torch.nn.functional.pad(both, (0, 1), value=-1).flatten(), begin
