"""Scope: B questions against their candidates, and what several signals share about them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.ops import SparseRows, token_maxima
from graphmem_torch.rank.query import QueryBatch

if TYPE_CHECKING:
    from graphmem_torch.index.module import MemoryIndex

__all__ = ["Scope"]


class Scope:
    """The candidates of a batch of questions.

    In a small store every atom is a candidate of every question and `rows` is None; else each
    question has its own list, ascending, padded with -1. Signals are written once for both: values
    are [B, C], and neighbours are found by `step`, which knows where a row stands among the
    candidates.

    Attributes:
        index: The memories, A atoms.
        query: B questions.
        rows: [B, C] int64 candidate atoms, or None for all (C = A).
        activation: [B, A] activation of the atoms once it has spread; None before.
        anchors: Rows [B, K] int64 where it started (-1 = none) and how much each stands for the
            question, [B, K] in [0, 1]; None before.
        walk: [B, A] personalised PageRank of the atoms, from the anchors; None before.
        reach: [B, A] discount^hops of the atoms that traversal reaches; None before.
        hops: [B, A] what title mentions and shared entities lead to, each; None before.
    """

    def __init__(
        self,
        index: MemoryIndex,
        query: QueryBatch,
        rows: Tensor | None = None,
        *,
        wider: Scope | None = None,
    ) -> None:
        self.index, self.query, self.rows = index, query, rows
        self.activation: SparseRows | None = None if wider is None else wider.activation
        self.anchors: tuple[Tensor, Tensor] | None = None if wider is None else wider.anchors
        self.walk: SparseRows | None = None if wider is None else wider.walk
        self.reach: SparseRows | None = None if wider is None else wider.reach
        self.hops: tuple[SparseRows, SparseRows] | None = None if wider is None else wider.hops
        self._wider = wider
        self._memo: dict[str, Tensor] = {}

    def narrowed(self, rows: Tensor) -> Scope:  # [B, C]
        """The same questions against fewer candidates; what is known is not computed again."""
        return Scope(self.index, self.query, rows, wider=self)

    @property
    def shape(self) -> tuple[int, int]:
        """B, C."""
        count = self.index.num_atoms if self.rows is None else self.rows.shape[1]
        return len(self.query), count

    def extended(self, extra: Tensor) -> Scope:  # [B, e] int64, -1 = none
        """The same candidates and some more; the matches of the old ones are kept."""
        if self.rows is None:
            return self
        place = torch.searchsorted(self.rows, extra).clamp(max=self.rows.shape[1] - 1)
        fresh = extra.masked_fill(self.rows.gather(1, place) == extra, -1)
        both = torch.cat([self.rows, fresh], dim=1).sort(dim=1)
        wider = Scope(self.index, self.query, both.values, wider=self._wider)
        known = self.__dict__.get("matches")  # a preset that does not read them never makes them
        if known is not None:
            matches = torch.cat([known, self._best_matches(fresh)], dim=2)
            order = both.indices[:, None].expand_as(matches)
            wider.matches = matches.gather(2, order)
        return wider

    def memo(self, name: str) -> Tensor:  # [B, C]
        """The value of a signal, computed once; signals build on each other through this."""
        if name not in self._memo:
            from graphmem_torch.rank.registry import SIGNALS

            if self._wider is not None and name in self._wider._memo:
                self._memo[name] = self.pick_each(self._wider._memo[name])
            else:
                self._memo[name] = SIGNALS[name].compute(self)
        return self._memo[name]

    def signals(self, names: Sequence[str]) -> Tensor:  # [B, C, F]
        """Several signals side by side."""
        if not names:
            return self.zeros()[:, :, None][:, :, :0]
        return torch.stack([self.memo(name).expand(self.shape) for name in names], dim=2)

    def zeros(self) -> Tensor:  # [B, C]
        """What a signal gives that knows nothing."""
        return self.query.embedding.new_zeros(self.shape, dtype=torch.float32)

    def pick(self, column: Tensor) -> Tensor:  # [A] -> [1 or B, C]
        """An attribute of the atoms, for the candidates."""
        return column[None] if self.rows is None else column[self.rows.clamp(min=0)]

    def pick_each(self, values: Tensor) -> Tensor:  # [B, A] -> [B, C]
        """A value of every atom for every question, for the candidates."""
        return values if self.rows is None else values.gather(1, self.rows.clamp(min=0))

    @cached_property
    def valid(self) -> Tensor:  # [B, C] or [1, C] bool
        """Candidates that there are for the question: no padding, nothing that it excludes."""
        if self.rows is None:
            device = self.query.embedding.device
            known = torch.ones(1, self.shape[1], dtype=torch.bool, device=device)
        else:
            known = self.rows >= 0
        return self._only(known, self.query.allowed)

    @cached_property
    def listed(self) -> Tensor:  # [B, C] or [1, C] bool
        """Candidates that may be hits."""
        return self._only(self.valid, self.query.listed)

    def _only(self, known: Tensor, atoms: Tensor | None) -> Tensor:
        if atoms is None:
            return known
        return known & self.pick_each(
            atoms if self.rows is None else atoms.expand(len(self.query), -1)
        )

    @cached_property
    def weights(self) -> tuple[Tensor, Tensor]:  # [B, Q], [B, Q]
        """Weight of each question token: its idf over the atoms, smooth and strict.

        The first is ln(1 + (n - df + 1/2) / (df + 1/2)), `docs/mathematics.md` 8.1. The second
        drops the 1: a token in half of the atoms, such as the name of one of two speakers, weighs
        nothing. Rows sum to 1.
        """
        pieces = self.query.pieces
        assert pieces is not None and self.index.piece_df is not None
        atoms, df = float(self.index.num_atoms), self.index.piece_df.float()
        df = df[pieces.clamp(min=0, max=df.shape[0] - 1)]
        known = pieces >= 0
        odds = (atoms - df + 0.5) / (df + 0.5)
        smooth = torch.where(known, torch.log1p(odds), 0.0)
        strict = torch.where(known, torch.log(odds).clamp(min=0.0), 0.0)
        strict = torch.where(strict.sum(1, keepdim=True) > 0, strict, smooth)
        return _normalised(smooth), _normalised(strict)

    @cached_property
    def matches(self) -> Tensor | None:  # [B, Q, C]
        """Best cosine of each question token in each candidate; None without token vectors."""
        query = self.query
        if query.tokens is None or query.pieces is None or self.index.token_offsets is None:
            return None
        return self._best_matches(self.rows)

    def _best_matches(self, rows: Tensor | None) -> Tensor:  # [B, C] -> [B, Q, C]
        index, query = self.index, self.query
        assert query.tokens is not None and query.pieces is not None
        assert index.tokens is not None and index.token_offsets is not None
        return token_maxima(
            query.tokens, query.pieces >= 0, index.tokens, index.token_offsets, candidates=rows
        )

    def step(self, values: Tensor, distance: int) -> Tensor:
        """Values of the atom `distance` turns later in the session, earlier if negative.

        0 where there is none, or none that there is for the question.

        Args:
            values: [B, C] or [B, Q, C].
            distance: Turns.
        """
        place, found = self._neighbour(distance)
        if values.dim() == 3:
            place, found = place[:, None], found[:, None]
        if place.shape[0] == 1:
            return torch.where(found, values[..., place.flatten()], 0.0)
        return torch.where(found, values.gather(-1, place.expand_as(values)), 0.0)

    def widest(self, values: Tensor, reach: int) -> Tensor:
        """Largest value among the turns up to `reach` away on both sides."""
        best = values
        for distance in range(1, reach + 1):
            best = torch.maximum(best, self.step(values, distance))
            best = torch.maximum(best, self.step(values, -distance))
        return best

    def session_max(self, values: Tensor) -> Tensor:
        """Largest value among the candidates of the same session; shape as given."""
        segment = self._segment
        if values.dim() == 3:
            segment = segment[:, None]
        segment = segment.expand_as(values)
        if self.query.allowed is not None:
            excluded = ~self.valid if values.dim() == 2 else ~self.valid[:, None]
            values = values.masked_fill(excluded, 0.0)
        best = torch.full_like(values, -torch.inf).scatter_reduce(-1, segment, values, "amax")
        return best.gather(-1, segment)

    @cached_property
    def _segment(self) -> Tensor:  # [1 or B, C]
        """The session of each candidate, numbered densely from 0 in each row."""
        sessions = self.pick(self.index.session.long())
        if self.rows is not None:  # padding is no member of the first atom's session
            sessions = sessions.masked_fill(self.rows < 0, -1)
        ordered, order = sessions.sort(dim=1)
        fresh = torch.nn.functional.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0))
        return torch.empty_like(order).scatter(1, order, fresh.cumsum(1))

    def _neighbour(self, distance: int) -> tuple[Tensor, Tensor]:  # [1 or B, C] place, found
        key = f"neighbour{distance}"
        if key not in self._memo:
            pointer = self.index.next if distance > 0 else self.index.previous
            everyone = torch.arange(len(pointer), device=pointer.device)[None]
            wanted = everyone if self.rows is None else self.rows
            for _ in range(abs(distance)):
                wanted = torch.where(wanted >= 0, pointer[wanted.clamp(min=0)].long(), -1)
            if self.rows is None:
                place = wanted.clamp(min=0)
                found = wanted >= 0
            else:
                # Padding is -1 and comes first, so the lists are ascending.
                place = torch.searchsorted(self.rows, wanted).clamp(max=self.rows.shape[1] - 1)
                found = (wanted >= 0) & (self.rows >= 0) & (self.rows.gather(1, place) == wanted)
            if self.query.allowed is not None:
                there = self.valid.expand(max(len(self.valid), len(place)), -1)
                place, found = place.expand(len(there), -1), found.expand(len(there), -1)
                found = found & there.gather(1, place)
            self._memo[key], self._memo[key + "?"] = place, found
        return self._memo[key], self._memo[key + "?"]


def _normalised(weights: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return torch.where(total > 0, weights / total.clamp(min=1e-12), 0.0)
