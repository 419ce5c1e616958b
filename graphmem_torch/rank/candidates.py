"""Candidates: the memories that may answer B questions, and the values of their signals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.ops import SparseRows, token_maxima
from graphmem_torch.ops.tiles import numbers_on
from graphmem_torch.rank.hops import named_keys
from graphmem_torch.rank.listed_rows import derived_pairs, merge_rows
from graphmem_torch.rank.memory_tensors import MemoryTensors, computed_once, keep_computed
from graphmem_torch.rank.moments import NONE, SMALLEST, even_share, moments
from graphmem_torch.rank.peers import Background, Peers
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.reached import Reached
from graphmem_torch.rank.registry import FORMS, SIGNALS

__all__ = ["Candidates", "weighted_sums"]

_NEAR = 3  # turns on both sides that signals read; found in one pass
_TREND_SHARE = 0.5  # weight of `length_trend` if the background is a sample
_TREND_DOUBT = 32  # number of atoms at which a trend has half its weight
_LEFT = 0.1  # minimum share of a signal's variance that is left without its trend
_HIGHEST = 8.0  # maximum absolute value of a scaled signal
_TRENDS = ("interaction", "interaction_sharp")  # in the order of `length_trend`


class Candidates:
    """The candidates of B questions, and the values that several signals share about them.

    In a small store every atom is a candidate and `rows` is None. Otherwise each question has its
    own ascending list, padded with -1. Signals are written once for both: values are [B, C], and
    `step` finds neighbours. Computed values are cached.

    Attributes:
        memory: The memories, A atoms.
        query: B questions.
        config: The settings, for the constants of signals.
        rows: [B, C] int64 candidate atoms, or None for all (C = A).
        reached: Results of the graph.
        background: [B or 1, S] int64 rows, ascending, of atoms drawn independently of a question.
            Signals are scaled by them unless all are candidates; None for the candidates.
    """

    def __init__(
        self,
        memory: MemoryTensors,
        query: QueryBatch,
        config: Config,
        rows: Tensor | None = None,
        *,
        reached: Reached | None = None,
        every: Candidates | None = None,
        background: Tensor | None = None,
    ) -> None:
        """Store the values; `every` holds the same questions against all atoms, for reuse."""
        self.memory, self.query, self.config, self.rows = memory, query, config, rows
        self.reached = reached or Reached()
        self.background = background
        self._every = every
        self._signals: dict[str, Tensor] = {}
        self._scaled: list[str] = []
        self._scales: Tensor | None = None  # [2, B, len(_scaled)]
        self._turns: list[tuple[Tensor, Tensor]] = []  # by distance, from 1
        self._farthest: Tensor | None = None  # [1 or B, 2, C], the rows at the largest distance
        self._widest: dict[int, Tensor] = {}
        self._trends: dict[str, Tensor] = {}

    def narrowed(self, rows: Tensor, background: Tensor | None = None) -> Candidates:  # [B, C]
        """Return the same questions against other rows, reusing signals of every atom."""
        every = self if self.rows is None else self._every
        background = self.background if background is None else background
        given = self.memory, self.query, self.config, rows
        other = Candidates(*given, reached=self.reached, every=every, background=background)
        if "named" in self.__dict__:
            other.named = self.named
        return other

    def reaching(self, reached: Reached) -> Candidates:
        """Return the same candidates with graph results; only graph signals are recomputed."""
        every = None if self._every is None else self._every.reaching(reached)
        given = self.memory, self.query, self.config, self.rows
        other = Candidates(*given, reached=reached, every=every, background=self.background)
        keep_computed(other, self)
        other._turns, other._farthest, other._widest = self._turns, self._farthest, self._widest
        other._signals = {n: value for n, value in self._signals.items() if not SIGNALS[n].graph}
        other._keep_scales(self)
        other._trends = self._trends
        return other

    def extended(self, extra: Tensor) -> Candidates:  # [B, e] int64, -1 = none
        """Return these candidates and some more, keeping known matches and all units."""
        if self.rows is None:
            return self
        extra = merge_rows(extra)
        if not self.rows.shape[1]:
            return self.narrowed(extra)
        place = torch.searchsorted(self.rows, extra).clamp(max=self.rows.shape[1] - 1)
        fresh = extra.masked_fill(self.rows.gather(1, place) == extra, -1)
        both = torch.cat([self.rows, fresh], dim=1).sort(dim=1)
        more = self.narrowed(both.values)
        more._keep_scales(self)
        more._trends = self._trends
        known = self.__dict__.get("matches")  # absent if the preset does not read them
        if known is not None:
            matches = torch.cat([known, self._best_matches(fresh)], dim=2)
            more.matches = matches.gather(2, both.indices[:, None].expand_as(matches))
        return more

    @computed_once
    def shape(self) -> tuple[int, int]:
        """B, C."""
        count = self.memory.num_atoms if self.rows is None else self.rows.shape[1]
        return len(self.query), count

    def signal(self, name: str) -> Tensor:  # [B, C] or [1, C]
        """Return the value of a signal, computed once; signals build on each other by this."""
        if name not in self._signals:
            if self._every is not None and name in self._every._signals:
                self._signals[name] = self.pick_each(self._every._signals[name])
            else:
                self._signals[name] = SIGNALS[name].compute(self)
        return self._signals[name]

    def signals(self, names: Sequence[str]) -> Tensor:  # [B, C, F]
        """Return several signals side by side, as the score takes them.

        With `rank.scale: background`, a signal that is no indicator becomes (x - mean) /
        max(deviation, (largest - mean) / 8), at least -8. Mean and deviation are taken over the
        background, so a weight means the same in every memory (`docs/mathematics.md` 8.8). A rare
        match stays within 8 units, although its deviation shrinks as a memory grows.
        """
        if not names:
            return self.zeros[:, :, None][:, :, :0]
        shape = self.shape
        # Stacked along dimension 1, so that each signal is contiguous for the reads below.
        found = [self.signal(name) for name in names]
        if shape[0] != 1:  # with one question all shapes agree
            found = [value.expand(shape) for value in found]
        values = torch.stack(found, dim=1)
        if self.config.rank.scale != "raw" and 0 not in values.shape:
            self._take_scales(names, values)
        return self.in_units(values.mT, names, self.amid)

    def _take_scales(self, names: Sequence[str], values: Tensor) -> None:  # [B, F, C]
        """Store the scales of signals that have none yet."""
        fresh = [place for place, name in enumerate(names) if name not in self._scaled]
        if not fresh:
            return
        own = (
            values
            if len(fresh) == len(names)
            else values.index_select(1, numbers_on(values.device, fresh))
        )
        scale = self.scale_of([names[place] for place in fresh], own)
        self._scales = scale if self._scales is None else torch.cat([self._scales, scale], 2)
        self._scaled += [names[place] for place in fresh]

    def in_units(
        self,
        values: Tensor,  # [..., n, F]
        names: Sequence[str],
        amid: Tensor,  # [..., n] bool, `amid` of these atoms
    ) -> Tensor:  # [..., n, F]
        """Scale other values of signals by the units of `signals`, for one question or B.

        A signal that reads the turns around is 0 for atoms without any.
        """
        if self.config.rank.scale != "raw" and 0 not in values.shape:
            values = self._in_units(values, names)
        around = [SIGNALS[name].context for name in names]
        if not any(around):
            return values
        alone = ~amid[..., None] & numbers_on(values.device, around)
        return values.masked_fill(alone, 0.0)

    def _in_units(self, values: Tensor, names: Sequence[str]) -> Tensor:  # [..., n, F], a copy
        assert self._scales is not None
        mean, unit = self._scales
        if [*names] != self._scaled:
            own = [self._scaled.index(name) for name in names]
            places = numbers_on(mean.device, own)
            mean, unit = mean.index_select(1, places), unit.index_select(1, places)
        return (values - mean[:, None]).div_(unit[:, None]).clamp_(min=-_HIGHEST)

    def scale_of(self, names: Sequence[str], values: Tensor) -> Tensor:  # [B, F, C] -> [2, B, F]
        """Return the mean to subtract from each question's signals and the unit to divide by."""
        mean, deviation = moments(values, self._share)
        every = self._every
        for place, name in enumerate(names):
            if every is not None and name in every._signals:
                mean[:, place], deviation[:, place] = every.population(name)
        largest = torch.where(self.valid[:, None], values, -torch.inf).amax(2)
        if self.peers is not None:
            # An indicator has no unit, and not every shard has all of them.
            kept = [place for place, name in enumerate(names) if not SIGNALS[name].indicator]
            own, at = (mean, deviation, largest), numbers_on(mean.device, kept)
            parts = (each.index_select(1, at) for each in own)
            whole = self.peers.background("background", Background(self.count, *parts))
            mean, deviation, largest = (
                each.index_copy(1, at, one) for each, one in zip(own, whole[1:], strict=True)
            )
        unit = torch.maximum(deviation, (largest - mean) / _HIGHEST)
        unit = unit.masked_fill(unit <= SMALLEST, torch.inf)
        plain = numbers_on(unit.device, [SIGNALS[name].indicator for name in names])
        return torch.stack([mean.masked_fill(plain, 0.0), unit.masked_fill(plain, 1.0)])

    def population(self, name: str) -> tuple[Tensor, Tensor]:  # [B] each
        """Return mean and deviation of a signal over all allowed atoms, if these are every atom."""
        values, allowed = self.signal(name).expand(self.shape), self.query.allowed
        sums = SIGNALS[name].sums
        found = None if sums is None else sums(self)
        if found is None:
            mean, deviation = moments(values[:, None], even_share(self.valid))
            return mean[:, 0], deviation[:, 0]
        first, variance = (found if allowed is None else found.within(values, allowed)).moments()
        # The root of 0 has no gradient.
        return first.to(values.dtype), variance.clamp(min=NONE).sqrt().to(values.dtype)

    def _keep_scales(self, other: Candidates) -> None:
        """Copy the scales of other candidates for signals that do not read the graph."""
        kept = [place for place, name in enumerate(other._scaled) if not SIGNALS[name].graph]
        self._scaled = [other._scaled[place] for place in kept]
        if other._scales is not None:
            places = numbers_on(other._scales.device, kept)
            self._scales = other._scales.index_select(2, places)

    def beyond_length(self, *names: str) -> Tensor:  # [B, C]
        """Return the sum of signals in background units, without their trends with atom length.

        (z - r y) / sqrt(max(1 - r^2, 0.1)), with y the units of ln(1 + words). r is the mean of z y
        over the background, times n / (n + 32) for n atoms (`docs/mathematics.md` 8.1). If the
        background is a sample, r is averaged with `MemoryTensors.length_trend`.
        """
        known = [*names, "length"]
        values = torch.stack([self.signal(each).expand(self.shape) for each in known], dim=1)
        if 0 in values.shape:
            return values[:, 0]
        self._take_scales(known, values)
        *every, length = self._in_units(values.mT, known).unbind(2)
        total: Tensor | None = None
        for name, own in zip(names, every, strict=True):
            if name not in self._trends:
                self._trends[name] = self.trend_of(name, own, length)
            trend = self._trends[name]
            beyond = (own - trend * length) * (1.0 - trend.square()).clamp(min=_LEFT).rsqrt()
            total = beyond if total is None else total + beyond
        assert total is not None
        return total

    def trend_of(
        self,
        name: str,
        values: Tensor,  # [B, C], in units of the background
        length: Tensor,  # [B, C], in the same units
    ) -> Tensor:  # [B, 1] in [-1, 1]
        """Return the correlation of a signal with atom length; see `beyond_length`."""
        share, allowed = self._share.to(values.dtype), self.query.allowed
        trend = (share * values * length).sum(1, keepdim=True)
        every = self.memory.atom_count if allowed is None else allowed.sum(1, keepdim=True)
        sampled = self.rows is not None and not self.by_words
        sample = (share > 0).sum(1, keepdim=True) < every if sampled else None
        if self.peers is not None:
            own = torch.zeros_like(trend) if sample is None else sample.expand_as(trend).to(trend)
            trend, every, sampled_share = self.peers.mean("trend", self.count, trend, own)
            sample = None if self.by_words else sampled_share > 0
        usual = None if sample is None else self.memory.length_trend
        if usual is not None and sample is not None:
            own = torch.where(sample, _TREND_SHARE, 0.0)
            trend = trend + own * (usual[_TRENDS.index(name)] - trend)
        # With few atoms the trend is chance, or the answer itself.
        trust = every / (every + _TREND_DOUBT)
        return (trend * trust).clamp(min=-1.0, max=1.0)

    @property
    def peers(self) -> Peers | None:
        """The shards that answer together; None for a memory of one store."""
        return self.memory.peers

    @computed_once
    def count(self) -> Tensor:  # [B, 1] float64
        """Number of atoms that exist for each question."""
        allowed, size = self.query.allowed, len(self.query)
        if allowed is None:
            atoms = torch.tensor([[self.memory.num_atoms]], device=self.query.embedding.device)
        else:
            atoms = allowed.sum(1, keepdim=True)
        return atoms.double().expand(size, 1)

    @computed_once
    def base_scores(self) -> Tensor:  # [B, C]
        """Weighted sums of the signals that chose the anchors."""
        assert self.reached.base is not None
        names, weights = self.reached.base
        return self.scores(self.signals(names), weights)

    @computed_once
    def amid(self) -> Tensor:  # [B or 1, C] bool
        """Mask of the candidates that are spoken turns with neighbours in their session."""
        memory = self.memory
        beside = (self.pick(memory.previous) >= 0) | (self.pick(memory.next) >= 0)
        return beside & (self.form != FORMS.index("plain"))

    @computed_once
    def _share(self) -> Tensor:  # [B or 1, C] float64
        """Share of each candidate in the moments: equal for background atoms, else 0."""
        background = self.background
        if self.rows is None or background is None or background.shape[1] == 0:
            return even_share(self.valid)
        drawn = background.expand(len(self.rows), -1).contiguous()
        place = torch.searchsorted(drawn, self.rows).clamp_(max=drawn.shape[1] - 1)
        return even_share((drawn.gather(1, place) == self.rows) & self.valid)

    @computed_once
    def form(self) -> Tensor:  # [B or 1, C] int64
        """Place in `FORMS` of the form of each candidate."""
        memory = self.memory
        spoken, role = self.pick(memory.speaker) >= 0, self.pick(memory.role)
        form = spoken.long() * FORMS.index("peer")
        return form.masked_fill(role != 0, FORMS.index("chat"))

    def scores(self, signals: Tensor, weights: Tensor) -> Tensor:  # [B, C, F], [3, F] -> [B, C]
        """Return the weighted sums of signals, by the weights of each candidate's form."""
        return weighted_sums(signals, weights, self.form.expand(self.shape))

    @computed_once
    def zeros(self) -> Tensor:  # [B, C], expanded from one number, hence read-only
        """Value of a signal without information."""
        return self.query.embedding.new_zeros(1).expand(self.shape)

    def pick(self, column: Tensor) -> Tensor:  # [A] -> [1 or B, C]
        """Return an attribute of the atoms for the candidates."""
        return column[None] if self.rows is None else column.take(self._at)

    def pick_each(self, values: Tensor) -> Tensor:  # [B, A] -> [B, C]
        """Return a value of every atom for every question, for the candidates."""
        return values if self.rows is None else values.gather(1, self._at)

    @computed_once
    def _at(self) -> Tensor:  # [B, C]
        """Rows of the candidates; row 0 for padding."""
        assert self.rows is not None
        return self.rows.clamp(min=0)

    def pick_reached(self, values: SparseRows | Tensor | None) -> Tensor:  # [B, A] -> [B, C]
        """Return a graph result for the candidates; 0 if it was not computed."""
        if values is None:
            return self.zeros
        if isinstance(values, Tensor):
            return (
                values if self.rows is None else self.pick_each(values).where(self.rows >= 0, 0.0)
            )
        return values.to_dense() if self.rows is None else values.gather(self.rows)

    @computed_once
    def valid(self) -> Tensor:  # [B, C] or [1, C] bool
        """Mask of the candidates that exist for the question: no padding, nothing excluded."""
        if self.rows is None:
            device = self.query.embedding.device
            room = self.memory.room
            known = torch.ones(1, self.shape[1], dtype=torch.bool, device=device)
            known = known if room is None else room.there[None]
        else:
            known = self.rows >= 0
        return self._only(known, self.query.allowed)

    @computed_once
    def listed(self) -> Tensor:  # [B, C] or [1, C] bool
        """Mask of the candidates that may be hits."""
        return self._only(self.valid, self.query.listed)

    def _only(self, known: Tensor, atoms: Tensor | None) -> Tensor:
        if atoms is None:
            return known
        shared = self.rows is None
        return known & self.pick_each(atoms if shared else atoms.expand(len(self.query), -1))

    @computed_once
    def token_weights(self) -> tuple[Tensor, Tensor]:  # [B, Q, 1] each
        """Weight of each question token: its idf over the atoms, smooth and strict.

        - Smooth is ln(1 + (n - df + 1/2) / (df + 1/2)), `docs/mathematics.md` 8.1.
        - Strict drops the 1: a token in half of the atoms, such as a speaker's name, weighs 0.

        Rows sum to 1. Without token vectors the tokens are terms, and rows sum to the share of
        terms that the memory has; a missing term weighs as the rarest.
        """
        if self._every is not None:
            return self._every.token_weights
        pieces, df = self.query.pieces, self.memory.piece_df
        other: Tensor | float = 0.0  # weight of terms that no atom has
        if self.by_words:
            assert self.query.terms is not None
            known = self.query.terms >= 0
            odds = torch.expm1(self.memory.bm25.idf.float()[self.query.terms.clamp(min=0)])
            if self.query.missing is not None:
                other = self.query.missing[:, None] * self.memory.rarest
        else:
            assert pieces is not None and df is not None
            df = df[pieces.clamp(min=0, max=df.shape[0] - 1)].float()
            known = pieces >= 0
            odds = (self.memory.whole_atoms - df + 0.5) / (df + 0.5)
        smooth = torch.where(known, torch.log1p(odds), 0.0)
        strict = torch.where(known, torch.log(odds).clamp(min=0.0), 0.0)
        strict = torch.where(strict.sum(1, keepdim=True) > 0, strict, smooth)
        return _normalised(smooth, other)[:, :, None], _normalised(strict, other)[:, :, None]

    @computed_once
    def named(self) -> tuple[Tensor, Tensor] | None:
        """Names in the questions and their share, from `rank.hops.named_keys`.

        A term that the memory lacks counts as the rarest possible.
        """
        missing, idf = self.query.missing, self.memory.bm25.idf
        return named_keys(
            self.query.terms, idf, None if missing is None else missing * self.memory.rarest
        )

    @computed_once
    def named_keys(self) -> Tensor | None:
        """Keys of `named`."""
        return None if self.named is None else self.named[0]

    @computed_once
    def lexical_sums(self) -> tuple[Tensor, Tensor, Tensor] | None:  # [B, A], [B], [B]
        """BM25 of every atom, its sum and that of its squares; None without terms."""
        if self._every is not None:
            return self._every.lexical_sums
        terms = self.query.terms
        return None if terms is None else self.memory.bm25.score_sums(terms)

    @computed_once
    def lexical_scores(self) -> Tensor | None:  # [B, A]
        """BM25 of every atom; None without terms."""
        if self._every is not None:
            return self._every.lexical_scores
        if self.query.terms is None or self.memory.row_sums is None:
            return None if self.query.terms is None else self.memory.bm25.score(self.query.terms)
        return None if self.lexical_sums is None else self.lexical_sums[0]

    @computed_once
    def session_scores(self) -> Tensor | None:  # [B, S]
        """BM25 of every session as one document; None without terms."""
        if self._every is not None:
            return self._every.session_scores
        terms = self.query.terms
        return None if terms is None else self.memory.session_bm25.score(terms)

    @computed_once
    def matches(self) -> Tensor | None:  # [B, Q, C]
        """Best cosine of each question token in each candidate.

        Without token vectors it is 1 if a candidate has the question term, else 0
        (`docs/mathematics.md` 8.1); None without terms either.
        """
        if self.by_words and self.query.terms is None:
            return None
        return self._best_matches(self.rows)

    @computed_once
    def by_words(self) -> bool:
        """True without token vectors; terms are then compared instead."""
        query = self.query
        return query.tokens is None or query.pieces is None or self.memory.token_offsets is None

    def _best_matches(self, rows: Tensor | None) -> Tensor:  # [B, C] -> [B, Q, C]
        memory, query = self.memory, self.query
        if self.by_words:
            assert query.terms is not None
            return memory.bm25.holds(query.terms, rows)
        assert query.tokens is not None and query.pieces is not None
        assert memory.tokens is not None and memory.token_offsets is not None
        return token_maxima(
            query.tokens, query.pieces >= 0, memory.tokens, memory.token_offsets, candidates=rows
        )

    def step(self, values: Tensor, distance: int) -> Tensor:
        """Return values of the atom `distance` turns later in the session, earlier if negative.

        The value is 0 if that atom does not exist or is excluded for the question.

        Args:
            values: [B, C] or [B, Q, C].
            distance: Turns.
        """
        later = distance > 0
        place, lost = (each[:, 0 if later else 1] for each in self._turns_at(abs(distance)))
        if values.dim() == 3:
            place, lost = place[:, None], lost[:, None]
        return _taken(values, place, lost)

    def _turns_at(self, distance: int) -> tuple[Tensor, Tensor]:  # [1 or B, 2, C] each
        """Return the places of the atoms so many turns after and before, and a mask of missing."""
        known = len(self._turns)
        if distance > known:
            wanted = self._rows_beside(max(distance, _NEAR) - known)  # [1 or B, n, 2, C]
            there = None if self.query.allowed is None else self.valid
            if self.rows is None:
                place, lost = wanted.clamp(min=0), wanted < 0
            else:
                # Padding is -1 and comes first, so lists are ascending; a missing neighbour finds
                # padding or the first entry.
                flat = wanted.flatten(1)
                place = torch.searchsorted(self.rows, flat).clamp_(max=self.rows.shape[1] - 1)
                lost = (self.rows.gather(1, place) != flat).logical_or_(flat < 0)
                place, lost = place.view(wanted.shape), lost.view(wanted.shape)
            if there is not None:
                questions = max(len(there), len(place))
                place, lost = (each.expand(questions, -1, -1, -1) for each in (place, lost))
                found = there.expand(questions, -1).gather(1, place.flatten(1))
                lost = lost | ~found.view(lost.shape)
            self._turns += zip(place.unbind(1), lost.unbind(1), strict=True)
        return self._turns[distance - 1]

    def _rows_beside(self, count: int) -> Tensor:  # [1 or B, count, 2, C], -1 = none
        """Return the atoms after and before each candidate, for the next `count` distances."""
        pointers, second = self.memory.turns
        if self._farthest is not None:
            rows = self._farthest
        elif self.rows is not None:
            rows = self.rows[:, None]
        else:
            rows = torch.arange(self.memory.num_atoms, device=pointers.device)[None, None]
        beside = []
        for _ in range(count):
            rows = pointers.take(rows + second)
            beside.append(rows)
        self._farthest = rows
        return torch.stack(beside, 1)

    @computed_once
    def derived(self) -> tuple[Tensor, Tensor]:  # [P] int64 each
        """`derived_pairs` of the candidates."""
        return derived_pairs(self.memory, self.rows, len(self.query))

    def widest(self, reach: int) -> Tensor:  # [B, Q, C]
        """Return the largest of `matches` over turns up to `reach` away, computed once."""
        if reach not in self._widest:
            best = self.matches
            assert best is not None
            if reach:
                place, lost = (each.flatten(1)[:, None] for each in self._turns_at(reach))
                beside = _taken(best, place, lost).unflatten(2, (2, best.shape[2]))
                best = torch.maximum(self.widest(reach - 1), beside.amax(2))
            self._widest[reach] = best
        return self._widest[reach]

    def session_max(self, values: Tensor) -> Tensor:
        """Return the largest value over candidates of the same session, in the given shape."""
        session = self._session if values.dim() == 2 else self._session[:, None]
        session = session.expand_as(values)
        if self.query.allowed is not None:
            excluded = ~self.valid if values.dim() == 2 else ~self.valid[:, None]
            values = values.masked_fill(excluded, 0.0)
        best = torch.full_like(values, -torch.inf).scatter_reduce_(-1, session, values, "amax")
        return best.gather(-1, session)

    @computed_once
    def _session(self) -> Tensor:  # [1 or B, C]
        """Session of each candidate, numbered densely from 0 in each row."""
        sessions = self.pick(self.memory.session).long()
        if self.rows is not None:  # padding must not join the first atom's session
            sessions = sessions.masked_fill(self.rows < 0, -1)
        ordered, order = sessions.sort(dim=1)
        fresh = torch.nn.functional.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0))
        return torch.empty_like(order).scatter(1, order, fresh.cumsum(1))


def weighted_sums(
    signals: Tensor,  # [B, C, F]
    weights: Tensor,  # [3, F]
    form: Tensor,  # [B, C] int64
) -> Tensor:  # [B, C]
    """Return the weighted sums of signals, by the row of weights that `form` names."""
    return (weights @ signals.mT).gather(1, form[:, None]).squeeze(1)


def _taken(values: Tensor, place: Tensor, lost: Tensor) -> Tensor:
    """Take values [B, ..., C] at places [1 or B, ..., P] of the last axis; 0 if lost."""
    if place.shape[0] == 1:
        taken = values.flatten(0, -2).index_select(1, place.flatten())  # 2-d: six times as fast
        return taken.view(*values.shape[:-1], place.shape[-1]).masked_fill_(lost, 0.0)
    return values.gather(-1, place.expand(*values.shape[:-1], -1)).masked_fill_(lost, 0.0)


def _normalised(weights: Tensor, other: Tensor | float) -> Tensor:
    total = weights.sum(1, keepdim=True) + other
    return torch.where(total > 0, weights / total.clamp(min=1e-12), 0.0)
