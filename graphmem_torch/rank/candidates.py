"""Candidates: B questions against the memories that may answer them, as values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.graph import Graph
from graphmem_torch.modes.find import Modes
from graphmem_torch.ops import SparseRows, token_maxima
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.sorted_rows import SortedRows, sorted_order
from graphmem_torch.ops.tiles import numbers_on
from graphmem_torch.rank.hops import HopPairs, HopParts, named_keys, title_bearers
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import FORMS, SIGNALS

__all__ = [
    "Candidates",
    "MemoryTensors",
    "Reached",
    "merge_rows",
    "published_resistances",
    "sharpened",
    "turn_pointers",
    "weighted_sums",
]


T = TypeVar("T")

_NEAR = 3  # turns on both sides that signals look at; found together
_TREND_PROBES, _TREND_TOKENS, _TREND_ATOMS = 16, 8, 256  # of `MemoryTensors.length_trend`
_TREND_SHARE = 0.5  # of it in the trend of a question, where a sample is its background
_TREND_DOUBT = 32  # atoms of a memory whose trend is believed by half
_LEFT = 0.1  # share of the variance of a signal that its trend leaves at least
_HIGHEST = 8.0  # units that a scaled signal has at most, and below its mean
_LEAST = 1e-6  # a signal that differs by less tells nothing
_NONE = 1e-30  # a square that is none beside it
_ENTRIES = 3  # entries that make a collection
_ONLY = 0.95  # of these, questions in a list of questions


_TRENDS = ("interaction", "interaction_sharp")  # in the order of `length_trend`
_COMPUTED: list[str] = []  # the names of all that is computed once


class _once(Generic[T]):
    """A property that is computed when it is first asked for.

    `functools.cached_property` locks in Python 3.11, for all objects of a class at once: threads
    would wait for each other, and a compiled index would break its graph there.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        _COMPUTED.append(name)

    @overload
    def __get__(self, instance: None, owner: type) -> _once[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> T | _once[T]:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


@dataclass(frozen=True, eq=False)
class MemoryTensors:
    """What ranking reads of a memory: A atoms, which can be hits, and a graph of N nodes.

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
        told: [A, 2] int32, the days that an atom tells of, and the first behind; 0 and 0 for none.
        log_words: [A], ln(1 + words).
        is_question, tells_time: [A], 1 or 0.
        role: [A] int8, 1 for the words of a user, -1 for those of an assistant, else 0.
        asked_key: [A] int64, equal for atoms that ask the same, 0 for those that ask nothing.
        asked_words: [A] int16, distinct terms of an atom that does nothing but ask, else 0.
        asked_bits: [A] int64, these terms as bits (`text.asking.Asked.bits`).
        asked_form: [A] int8, places in `text.asking.FORMS`.
        derived_source, derived_target: [D] rows; the source was derived from the target.
        tokens, token_offsets, piece_df: Packed token vectors [T, m], [A + 1], and in how many atoms
            each word piece occurs.
        direction, component, bridge_bonus, pagerank: [A, c], [A], [A] and [A], of `rank.routing`.
        resistance_far, resistance_null, resistance_scale, sign_change: [A, r], [A], [A] and [A], of
            `rank.routing`.
        duplicate: [A], the first atom of equal content.
        time_order: [A], the rows by their times, as `ops.sorted_rows.sorted_order` gives them.
        told_order: Likewise, those that tell of days by the first of these.
        modes: The modes of the atoms.
        hops: What hops read, where there are documents.
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
    modes: Modes | None = None
    hops: HopParts | None = None

    @property
    def num_atoms(self) -> int:
        """A."""
        return self.embeddings.shape[0]

    @property
    def rarest(self) -> float:
        """The idf of a term that a single atom has."""
        return math.log1p(max(0.0, self.num_atoms - 0.5) / 1.5)

    def nodes(self, rows: Tensor) -> Tensor:  # int64, -1 = none
        """The nodes that atoms are, -1 for -1."""
        if not self.num_atoms:
            return rows
        return self.node[rows.clamp(min=0)].long().masked_fill(rows < 0, -1)

    @_once
    def turns(self) -> tuple[Tensor, Tensor]:
        """`turn_pointers` of `next` and `previous`."""
        return turn_pointers(self.next, self.previous)

    @_once
    def asking(self) -> Tensor:  # [n] int64
        """The atoms that ask, ascending."""
        assert self.asked_key is not None
        return self.asked_key.nonzero().squeeze(1)

    @_once
    def list_of_questions(self) -> Tensor:  # [A] bool
        """The entries of a collection that holds nothing else than questions, which are its hits.

        Entries are atoms that nobody says and that are beside no turn of their session. Who asks
        one question again and again makes no list.
        """
        assert self.asked_key is not None
        entry = (self.speaker < 0) & (self.previous < 0) & (self.next < 0)
        asks = entry & (self.asked_key != 0)
        # Distinct ones, without a shape that depends on values.
        keys = self.asked_key.masked_fill(~asks, 0).sort().values
        distinct = ((keys.diff(prepend=keys.new_zeros(1)) != 0) & (keys != 0)).sum()
        only = (entry.sum() >= _ENTRIES) & (distinct >= _ONLY * entry.sum())
        return asks & only

    @_once
    def by_time(self) -> SortedRows:
        """The atoms whose time is known, in its order: seconds since the epoch UTC."""
        time, order = self.time_bits.view(torch.float64), self.time_order
        if order is None:
            order = sorted_order(time, torch.arange(self.num_atoms, device=time.device))
        return SortedRows.of(order, time)

    @_once
    def by_told(self) -> SortedRows:
        """The atoms that tell of days, by the first of these: days since the epoch."""
        first, order = self.told[:, 0].double(), self.told_order
        if order is None:
            order = sorted_order(first, (self.told[:, 1] > self.told[:, 0]).nonzero().squeeze(1))
        return SortedRows.of(order, first)

    @_once
    def title_bearers(self) -> Tensor:  # [A] int64
        """Number of atoms that bear the title of each, where there are documents."""
        assert self.hops is not None
        return title_bearers(self.hops)

    @_once
    def length_trend(self) -> Tensor | None:  # [2]
        """Mean correlation of late interaction and its sharp form with length, of many questions.

        The questions are the first tokens of atoms drawn evenly, all tokens alike, against atoms
        drawn evenly. None without token vectors.
        """
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
        # A text finds itself: it is left out.
        other = (rows != probes[:, None]) & known.any(1, keepdim=True)
        values = torch.stack([best.sum(1) / count, sharpened(best).sum(1) / count], dim=1)
        length = self.log_words.float()[rows]
        return _correlation(values, length, _even_share(other)).mean(0)

    def conducting(self, graph: Graph) -> MemoryTensors:
        """The same memory whose nodes are joined by another graph; what it keeps is kept."""
        other = replace(self, graph=graph)
        _keep_computed(other, self)
        return other

    def of_atoms(self, found: SparseRows) -> SparseRows:  # [B, N] -> [B, A]
        """What nodes have, for those that are atoms."""
        atom = self.atom.index_select(0, found.column).long()
        kept = (atom >= 0).nonzero().squeeze(1)
        key = (found.row * self.num_atoms).add_(atom).index_select(0, kept)
        value = found.value.index_select(0, kept)
        return SparseRows(key, value, (found.shape[0], self.num_atoms))


@dataclass(frozen=True, eq=False)
class Reached:
    """What the graph brings to B questions; None where nobody asked for it.

    Attributes:
        anchors: [B, K] int64 rows where it started, -1 = none.
        value: [B, K] activation there.
        relevance: [B, K] in [0, 1], how much each anchor stands for its question.
        start: [B, N] what activation starts with; None also where a matrix stands for it.
        activation: [B, A] activation after the last round, dense where a gradient flows through it.
        gate: Likewise, as activation spreads for the gate; None if that is the same.
        walk: [B, A] personalised PageRank from the anchors.
        traversal: [B, A] discount^hops from the seeds of a traversal.
        title_hop, entity_hop: [B, A] what mentions of titles and shared entities lead to, dense in
            a graph that is compiled.
        named: [B] in [0, 1], how much the question names a document.
        base: Names of the base signals and their weights [forms, F], which chose the anchors.
        lifts: What a hop from each anchor adds to what it leads to, as pairs, or [B, K, A] in a
            graph that is compiled.
    """

    anchors: Tensor | None = None
    value: Tensor | None = None
    relevance: Tensor | None = None
    start: SparseRows | None = None
    activation: SparseRows | Tensor | None = None
    gate: SparseRows | Tensor | None = None
    walk: SparseRows | None = None
    traversal: SparseRows | None = None
    title_hop: SparseRows | Tensor | None = None
    entity_hop: SparseRows | Tensor | None = None
    named: Tensor | None = None
    base: tuple[tuple[str, ...], Tensor] | None = None
    lifts: HopPairs | Tensor | None = None


class Candidates:
    """The candidates of B questions, and what several signals share about them.

    In a small store every atom is a candidate of every question and `rows` is None; else each
    question has its own list, ascending, padded with -1. Signals are written once for both: values
    are [B, C], and neighbours are found by `step`, which knows where a row stands among the
    candidates. What is computed is kept.

    Attributes:
        memory: The memories, A atoms.
        query: B questions.
        config: The settings, for the constants of signals.
        rows: [B, C] int64 candidate atoms, or None for all (C = A).
        reached: What the graph brought.
        background: [B or 1, S] int64 rows, ascending, of atoms drawn without regard to a question,
            which signals are scaled by where not all are candidates; None for the candidates.
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
        """Holds the values; `every`: the same questions against every atom, for known signals."""
        self.memory, self.query, self.config, self.rows = memory, query, config, rows
        self.reached = reached or Reached()
        self.background = background
        self._every = every
        self._signals: dict[str, Tensor] = {}
        self._scaled: list[str] = []
        self._scales: Tensor | None = None  # [2, B, len(_scaled)]
        self._turns: list[tuple[Tensor, Tensor]] = []  # by distance, from 1 on
        self._farthest: Tensor | None = None  # [1 or B, 2, C], the rows of the last of these
        self._widest: dict[int, Tensor] = {}
        self._trends: dict[str, Tensor] = {}
        self._base_scores: Tensor | None = None

    def narrowed(self, rows: Tensor, background: Tensor | None = None) -> Candidates:  # [B, C]
        """The same questions against others; what is known of every atom is not computed again."""
        return Candidates(
            self.memory,
            self.query,
            self.config,
            rows,
            reached=self.reached,
            every=self if self.rows is None else self._every,
            background=self.background if background is None else background,
        )

    def reaching(self, reached: Reached) -> Candidates:
        """The same candidates with what the graph brings; only its signals are computed again."""
        every = None if self._every is None else self._every.reaching(reached)
        given = self.memory, self.query, self.config, self.rows
        other = Candidates(*given, reached=reached, every=every, background=self.background)
        _keep_computed(other, self)
        other._turns, other._farthest, other._widest = self._turns, self._farthest, self._widest
        other._signals = {n: value for n, value in self._signals.items() if not SIGNALS[n].graph}
        other._keep_scales(self)
        other._trends, other._base_scores = self._trends, self._base_scores
        return other

    def extended(self, extra: Tensor) -> Candidates:  # [B, e] int64, -1 = none
        """The same candidates and some more; matches of the old ones and all units are kept."""
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
        known = self.__dict__.get("matches")  # a preset that does not read them never makes them
        if known is not None:
            matches = torch.cat([known, self._best_matches(fresh)], dim=2)
            more.matches = matches.gather(2, both.indices[:, None].expand_as(matches))
        return more

    @property
    def shape(self) -> tuple[int, int]:
        """B, C."""
        count = self.memory.num_atoms if self.rows is None else self.rows.shape[1]
        return len(self.query), count

    def signal(self, name: str) -> Tensor:  # [B, C] or [1, C]
        """The value of a signal, computed once; signals build on each other through this."""
        if name not in self._signals:
            if self._every is not None and name in self._every._signals:
                self._signals[name] = self.pick_each(self._every._signals[name])
            else:
                self._signals[name] = SIGNALS[name].compute(self)
        return self._signals[name]

    def signals(self, names: Sequence[str]) -> Tensor:  # [B, C, F]
        """Several signals side by side, as the score takes them.

        With `rank.scale: background` what is no indicator is (x - mean) / max(deviation, (largest -
        mean) / 8), at least -8: mean and deviation are those of the question's signal over the
        background, so that a weight means the same in every memory (`docs/mathematics.md` 8.8). A
        rare match, whose deviation shrinks as a memory grows, thus stays within 8 units.
        """
        if not names:
            return self.zeros()[:, :, None][:, :, :0]
        shape = self.shape
        # Side by side in what they return, one behind the other in memory: so they are read.
        found = [self.signal(name) for name in names]
        if shape[0] != 1:  # else no question shares anything with another
            found = [value.expand(shape) for value in found]
        values = torch.stack(found, dim=1)
        if self.config.rank.scale != "raw" and 0 not in values.shape:
            self._take_scales(names, values)
        return self.in_units(values.mT, names, self.amid)

    def _take_scales(self, names: Sequence[str], values: Tensor) -> None:  # [B, F, C]
        """Keeps the scales of signals that have none yet."""
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
        amid: Tensor,  # [..., n] bool, as `amid` of these atoms
    ) -> Tensor:  # [..., n, F]
        """Other values of signals in the units of those that `signals` gave, of one question or B.

        What reads the turns around is 0 for atoms that have none.
        """
        if self.config.rank.scale != "raw" and 0 not in values.shape:
            values = self._in_units(values, names)
        around = [SIGNALS[name].context for name in names]
        if not any(around):
            return values
        alone = ~amid[..., None] & torch.tensor(around, device=values.device)
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
        """What is taken from signals of each question, and what they are then divided by."""
        mean, deviation = _moments(values, self._share)
        every = self._every
        for place, name in enumerate(names):
            if every is not None and name in every._signals:
                known = every.signal(name).expand(every.shape)
                if self.query.allowed is None:  # nothing is padding, and B x A are many
                    own = known.mean(1)
                    spread = torch.linalg.vector_norm(known - own[:, None], dim=1)
                    spread = spread / known.shape[1] ** 0.5
                else:
                    share = _even_share(every.valid)
                    own, spread = (each[:, 0] for each in _moments(known[:, None], share))
                mean[:, place], deviation[:, place] = own, spread
        largest = torch.where(self.valid[:, None], values, -torch.inf).amax(2)
        unit = torch.maximum(deviation, (largest - mean) / _HIGHEST)
        unit = unit.masked_fill(unit <= _LEAST, torch.inf)
        plain = numbers_on(unit.device, [SIGNALS[name].indicator for name in names])
        return torch.stack([mean.masked_fill(plain, 0.0), unit.masked_fill(plain, 1.0)])

    def _keep_scales(self, other: Candidates) -> None:
        """Those of other candidates that the graph changes nothing about."""
        kept = [place for place, name in enumerate(other._scaled) if not SIGNALS[name].graph]
        self._scaled = [other._scaled[place] for place in kept]
        if other._scales is not None:
            places = numbers_on(other._scales.device, kept)
            self._scales = other._scales.index_select(2, places)

    def beyond_length(self, name: str) -> Tensor:  # [B, C]
        """A signal in units of the background, without its trend with the length of the atoms.

        (z - r y) / sqrt(max(1 - r^2, 0.1)), y the units of ln(1 + words) and r the mean of z y over
        the background (`docs/mathematics.md` 8.1), times n / (n + 32) in a memory of n atoms. Where
        the background is a sample r is the mean of that and of `MemoryTensors.length_trend`.
        """
        names = [name, "length"]
        values = torch.stack([self.signal(each).expand(self.shape) for each in names], dim=1)
        if 0 in values.shape:
            return values[:, 0]
        self._take_scales(names, values)
        own, length = self._in_units(values.mT, names).unbind(2)
        if name not in self._trends:
            self._trends[name] = self.trend_of(name, own, length)
        trend = self._trends[name]
        return (own - trend * length) * (1.0 - trend.square()).clamp(min=_LEFT).rsqrt()

    def trend_of(
        self,
        name: str,
        values: Tensor,  # [B, C], in units of the background
        length: Tensor,  # [B, C], likewise
    ) -> Tensor:  # [B, 1] in [-1, 1]
        """Correlation of a signal with the length of the atoms; see `beyond_length`."""
        share, allowed = self._share.to(values.dtype), self.query.allowed
        trend = (share * values * length).sum(1, keepdim=True)
        every = self.memory.num_atoms if allowed is None else allowed.sum(1, keepdim=True)
        usual = None if self.rows is None or self.by_words else self.memory.length_trend
        if usual is not None:
            sample = (share > 0).sum(1, keepdim=True) < every
            own = torch.where(sample, _TREND_SHARE, 0.0)
            trend = trend + own * (usual[_TRENDS.index(name)] - trend)
        # The trend of few atoms is chance, or the answer itself.
        trust = every / (every + _TREND_DOUBT)
        return (trend * trust).clamp(min=-1.0, max=1.0)

    def base_scores(self) -> Tensor:  # [B, C]
        """The weighted sums of the signals that chose the anchors, computed once."""
        if self._base_scores is None:
            assert self.reached.base is not None
            names, weights = self.reached.base
            self._base_scores = self.scores(self.signals(names), weights)
        return self._base_scores

    @_once
    def amid(self) -> Tensor:  # [B or 1, C] bool
        """Which candidates somebody said among other turns of a session."""
        memory = self.memory
        beside = (self.pick(memory.previous) >= 0) | (self.pick(memory.next) >= 0)
        return beside & (self.form != FORMS.index("plain"))

    @_once
    def _share(self) -> Tensor:  # [B or 1, C] float64
        """What each candidate counts for in the moments: those that are background, all alike."""
        background = self.background
        if self.rows is None or background is None or background.shape[1] == 0:
            return _even_share(self.valid)
        drawn = background.expand(len(self.rows), -1).contiguous()
        place = torch.searchsorted(drawn, self.rows).clamp_(max=drawn.shape[1] - 1)
        return _even_share((drawn.gather(1, place) == self.rows) & self.valid)

    @_once
    def form(self) -> Tensor:  # [B or 1, C] int64
        """The place in `FORMS` of the form of each candidate."""
        memory = self.memory
        spoken, role = self.pick(memory.speaker) >= 0, self.pick(memory.role)
        form = spoken.long() * FORMS.index("peer")
        return form.masked_fill(role != 0, FORMS.index("chat"))

    def scores(self, signals: Tensor, weights: Tensor) -> Tensor:  # [B, C, F], [3, F] -> [B, C]
        """The weighted sums of signals, by the weights of each candidate's form."""
        return weighted_sums(signals, weights, self.form.expand(self.shape))

    def zeros(self) -> Tensor:  # [B, C]
        """What a signal gives that knows nothing."""
        return self._zeros

    @_once
    def _zeros(self) -> Tensor:  # [B, C], one number, so that nobody can write to what others read
        return self.query.embedding.new_zeros(1).expand(self.shape)

    def pick(self, column: Tensor) -> Tensor:  # [A] -> [1 or B, C]
        """An attribute of the atoms, for the candidates."""
        return column[None] if self.rows is None else column.take(self._at)

    def pick_each(self, values: Tensor) -> Tensor:  # [B, A] -> [B, C]
        """A value of every atom for every question, for the candidates."""
        return values if self.rows is None else values.gather(1, self._at)

    @_once
    def _at(self) -> Tensor:  # [B, C]
        """The rows of the candidates; that of the first atom for padding."""
        assert self.rows is not None
        return self.rows.clamp(min=0)

    def pick_reached(self, values: SparseRows | Tensor | None) -> Tensor:  # [B, A] -> [B, C]
        """What the graph brought, for the candidates; 0 where nobody asked for it."""
        if values is None:
            return self.zeros()
        if isinstance(values, Tensor):
            return (
                values if self.rows is None else self.pick_each(values).where(self.rows >= 0, 0.0)
            )
        return values.to_dense() if self.rows is None else values.gather(self.rows)

    @_once
    def valid(self) -> Tensor:  # [B, C] or [1, C] bool
        """Candidates that there are for the question: no padding, nothing that it excludes."""
        if self.rows is None:
            device = self.query.embedding.device
            known = torch.ones(1, self.shape[1], dtype=torch.bool, device=device)
        else:
            known = self.rows >= 0
        return self._only(known, self.query.allowed)

    @_once
    def listed(self) -> Tensor:  # [B, C] or [1, C] bool
        """Candidates that may be hits."""
        return self._only(self.valid, self.query.listed)

    def _only(self, known: Tensor, atoms: Tensor | None) -> Tensor:
        if atoms is None:
            return known
        shared = self.rows is None
        return known & self.pick_each(atoms if shared else atoms.expand(len(self.query), -1))

    @_once
    def token_weights(self) -> tuple[Tensor, Tensor]:  # [B, Q, 1] each
        """Weight of each question token: its idf over the atoms, smooth and strict.

        The first is ln(1 + (n - df + 1/2) / (df + 1/2)), `docs/mathematics.md` 8.1. The second
        drops the 1: a token in half of the atoms, such as the name of one of two speakers, weighs
        nothing. Rows sum to 1. Where there are no token vectors the tokens are terms, and rows sum
        to the share of those that the memory has: one that it lacks weighs as the rarest.
        """
        if self._every is not None:
            return self._every.token_weights
        pieces, df = self.query.pieces, self.memory.piece_df
        other: Tensor | float = 0.0  # the weight of terms that no atom has
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
            odds = (float(self.memory.num_atoms) - df + 0.5) / (df + 0.5)
        smooth = torch.where(known, torch.log1p(odds), 0.0)
        strict = torch.where(known, torch.log(odds).clamp(min=0.0), 0.0)
        strict = torch.where(strict.sum(1, keepdim=True) > 0, strict, smooth)
        return _normalised(smooth, other)[:, :, None], _normalised(strict, other)[:, :, None]

    @_once
    def named(self) -> tuple[Tensor, Tensor] | None:
        """Names in the questions, and their share of them, as `rank.hops.named_keys` has it.

        A term that the memory does not have counts as the rarest that it may have.
        """
        missing, idf = self.query.missing, self.memory.bm25.idf
        return named_keys(
            self.query.terms, idf, None if missing is None else missing * self.memory.rarest
        )

    @property
    def named_keys(self) -> Tensor | None:
        """The keys of `named`."""
        return None if self.named is None else self.named[0]

    @_once
    def lexical_scores(self) -> Tensor | None:  # [B, A]
        """BM25 of every atom; None without terms."""
        if self._every is not None:
            return self._every.lexical_scores
        terms = self.query.terms
        return None if terms is None else self.memory.bm25.score(terms)

    @_once
    def session_scores(self) -> Tensor | None:  # [B, S]
        """BM25 of every session as one document; None without terms."""
        if self._every is not None:
            return self._every.session_scores
        terms = self.query.terms
        return None if terms is None else self.memory.session_bm25.score(terms)

    @_once
    def matches(self) -> Tensor | None:  # [B, Q, C]
        """Best cosine of each question token in each candidate.

        Without token vectors 1 where a candidate has a term of the question, else 0
        (`docs/mathematics.md` 8.1); None without terms either.
        """
        if self.by_words and self.query.terms is None:
            return None
        return self._best_matches(self.rows)

    @property
    def by_words(self) -> bool:
        """Whether there are no token vectors, so that the words themselves are compared."""
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
        """Values of the atom `distance` turns later in the session, earlier if negative.

        0 where there is none, or none that there is for the question.

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
        """Where the atoms so many turns after and before each candidate are, and which are not."""
        known = len(self._turns)
        if distance > known:
            wanted = self._rows_beside(max(distance, _NEAR) - known)  # [1 or B, n, 2, C]
            there = None if self.query.allowed is None else self.valid
            if self.rows is None:
                place, lost = wanted.clamp(min=0), wanted < 0
            else:
                # Padding is -1 and comes first, so the lists are ascending; what has no neighbour
                # finds padding, or the first.
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
        """The atoms after and before each candidate, of the next so many distances."""
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

    def widest(self, reach: int) -> Tensor:  # [B, Q, C]
        """Largest of `matches` among the turns up to `reach` away on both sides, computed once."""
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
        """Largest value among the candidates of the same session; shape as given."""
        session = self._session if values.dim() == 2 else self._session[:, None]
        session = session.expand_as(values)
        if self.query.allowed is not None:
            excluded = ~self.valid if values.dim() == 2 else ~self.valid[:, None]
            values = values.masked_fill(excluded, 0.0)
        best = torch.full_like(values, -torch.inf).scatter_reduce_(-1, session, values, "amax")
        return best.gather(-1, session)

    @_once
    def _session(self) -> Tensor:  # [1 or B, C]
        """The session of each candidate, numbered densely from 0 in each row."""
        sessions = self.pick(self.memory.session).long()
        if self.rows is not None:  # padding is no member of the first atom's session
            sessions = sessions.masked_fill(self.rows < 0, -1)
        ordered, order = sessions.sort(dim=1)
        fresh = torch.nn.functional.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0))
        return torch.empty_like(order).scatter(1, order, fresh.cumsum(1))


def _keep_computed(other: object, own: object) -> None:
    """Hands on what is computed once; `copy.copy` would, but torch 2.11 does not compile that."""
    for name in _COMPUTED:
        if name in own.__dict__:
            other.__dict__[name] = own.__dict__[name]


def sharpened(values: Tensor) -> Tensor:
    """The fourth power, 0 below 0: near-exact matches count for more than many vague ones."""
    return values.clamp(min=0.0).square().square()


def _correlation(values: Tensor, other: Tensor, share: Tensor) -> Tensor:  # [B, F, C], [B, C]
    """Correlations [B, F] over the candidates, by their shares; 0 of what is constant."""
    both = torch.cat([values, other[:, None]], dim=1)
    mean, deviation = _moments(both, share)
    unit = deviation.masked_fill(deviation <= _LEAST, torch.inf)
    scaled = (both - mean[:, :, None]) / unit[:, :, None]
    return (scaled[:, :-1] * scaled[:, -1:] * share[:, None].to(scaled.dtype)).sum(2)


def weighted_sums(
    signals: Tensor,  # [B, C, F]
    weights: Tensor,  # [3, F]
    form: Tensor,  # [B, C] int64
) -> Tensor:  # [B, C]
    """The weighted sums of signals, by the row of weights that `form` names."""
    return (weights @ signals.mT).gather(1, form[:, None]).squeeze(1)


def turn_pointers(
    following: Tensor,  # [A], -1 = none
    previous: Tensor,  # [A], -1 = none
) -> tuple[Tensor, Tensor]:  # [2 * (A + 1)] int64, [2, 1] int64
    """Both one after another, each with a -1 behind it that row -1 finds, and where each begins."""
    both = torch.stack([following, previous]).long()
    begin = torch.tensor([[0], [len(following) + 1]], device=both.device)
    return torch.nn.functional.pad(both, (0, 1), value=-1).flatten(), begin


def merge_rows(*parts: Tensor) -> Tensor:  # [B, c] each -> [B, C]
    """The union of candidate lists, ascending, duplicates turned into -1, which come first."""
    rows = torch.cat(parts, dim=1).sort(dim=1).values
    repeated = torch.nn.functional.pad(rows[:, 1:] == rows[:, :-1], (1, 0))
    return rows.masked_fill(repeated, -1).sort(dim=1).values


def _taken(values: Tensor, place: Tensor, lost: Tensor) -> Tensor:
    """Values [B, ..., C] at places [1 or B, ..., P] of the last axis; 0 where they are lost."""
    if place.shape[0] == 1:
        taken = values.flatten(0, -2).index_select(1, place.flatten())  # 2-d: six times as fast
        return taken.view(*values.shape[:-1], place.shape[-1]).masked_fill_(lost, 0.0)
    return values.gather(-1, place.expand(*values.shape[:-1], -1)).masked_fill_(lost, 0.0)


def _even_share(there: Tensor) -> Tensor:  # [B or 1, C] bool -> float64
    """Of what is there, all alike; in float64, so that padding changes nothing."""
    return there / there.sum(1, keepdim=True, dtype=torch.float64).clamp(min=1)


def _moments(values: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:  # [B, F, C] -> [B, F] each
    """Mean and deviation, where each candidate counts by its share [B or 1, C]."""
    weight = share.expand(len(values), -1)[:, :, None]  # [B, C, 1]
    inside = values.double()
    mean = inside @ weight  # [B, F, 1]
    square = (inside - mean).square_() @ weight
    # The root of what does not differ has no gradient.
    deviation = square.squeeze(2).clamp(min=_NONE).sqrt()
    return mean.squeeze(2).to(values.dtype, copy=True), deviation.to(values.dtype, copy=True)


def _normalised(weights: Tensor, other: Tensor | float) -> Tensor:
    total = weights.sum(1, keepdim=True) + other
    return torch.where(total > 0, weights / total.clamp(min=1e-12), 0.0)


def published_resistances(
    memory: MemoryTensors,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    rows: Tensor | None,  # [B, C] int64 rows, -1 = none; None: every atom
) -> Tensor:  # [B, K, C]
    """The resistance of each anchor to each candidate by the printed formula.

    R_ij = 2 - 2 w_ij / sqrt(d_i d_j) - 2 (v_i - v_j)^2 + |z_i - z_j|^2 in a component, infinite
    between components, 0 from an atom to itself (`docs/mathematics.md` 2.6).
    """
    far, null = memory.resistance_far, memory.resistance_null
    scale, component = memory.resistance_scale, memory.component
    assert far is not None and null is not None and scale is not None and component is not None
    shape, atoms = anchors.shape, memory.num_atoms
    known, own = anchors >= 0, anchors.clamp(min=0)
    joined = _edge_weights(memory, own.flatten()).view(*shape, atoms)
    every = torch.arange(atoms, device=own.device).expand(len(own), -1)
    other = every if rows is None else rows.clamp(min=0)
    joined = joined.gather(2, other[:, None].expand(-1, shape[1], -1))
    z, length = far.float(), far.float().square().sum(1)
    apart = length[own][:, :, None] + length[other][:, None]
    apart = apart - 2 * torch.bmm(z[own], z[other].mT)
    found = 2 - 2 * joined * scale.float()[own][:, :, None] * scale.float()[other][:, None]
    found = found - 2 * (null.float()[own][:, :, None] - null.float()[other][:, None]).square()
    found = (found + apart.clamp(min=0)).clamp(min=_LEAST)
    there = (component[own][:, :, None] == component[other][:, None]) & known[:, :, None]
    found = found.where(there, torch.inf)
    return found.masked_fill((own[:, :, None] == other[:, None]) & known[:, :, None], 0.0)


def _edge_weights(memory: MemoryTensors, rows: Tensor) -> Tensor:  # [n] int64 -> [n, A]
    """The largest |w| of the edges between some atoms and each, whatever their way."""
    graph, node = memory.graph, memory.node.long()[rows]
    first, count = graph.spans(node)
    begin, place = ranges(first, count)
    edge = graph.leaving(place).long()
    back, at = ranges(graph.indptr[node].long(), graph.indptr.diff()[node].long())
    line = torch.cat([begin, back])
    end = torch.cat([graph.stored.target[edge], graph.source[at]]).long()
    weight = torch.cat([graph.stored.weight[edge], graph.weight[at]]).abs().float()
    atom = memory.atom[end].long()
    found = weight.new_zeros(len(rows) * (memory.num_atoms + 1))
    key = line * (memory.num_atoms + 1) + atom % (memory.num_atoms + 1)
    found = found.scatter_reduce(0, key, weight, "amax")
    return found.view(len(rows), memory.num_atoms + 1)[:, :-1]
