"""MemoryIndex: a frozen snapshot of a memory on a device, and the retrieval that runs on it.

No I/O, no text models, no SQLite: tensors in, tensors out. This is what "import as a torch module"
means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphmem_torch.checks import check_count
from graphmem_torch.config import Config
from graphmem_torch.graph import Graph
from graphmem_torch.index.data import (
    BM25_PARTS,
    GRAPH_PARTS,
    OPTIONAL_PARTS,
    IndexInput,
    index_tensors,
)
from graphmem_torch.modes.find import MODE_PARTS, Modes, modes_from_tensors
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.ops.workspace import tile_elements
from graphmem_torch.rank.abstention import confidence, gate_statistics
from graphmem_torch.rank.anchors import WALK_SIGNALS, anchor_activation, anchor_relevance, walk_from
from graphmem_torch.rank.bm25 import BM25
from graphmem_torch.rank.candidates import mode_candidates, strong_candidates
from graphmem_torch.rank.hops import HOP_PARTS, HopParts, entity_hop, named_keys, title_hop
from graphmem_torch.rank.paths import strongest_paths
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS, check_signal_names
from graphmem_torch.rank.routing import ROUTING_PARTS, routing_tensors
from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.segment import hop_discount, segment_candidates, segment_seeds, unweighted
from graphmem_torch.rank.signals.graph import DOCUMENT_SIGNALS, HOP_SIGNALS

__all__ = ["IndexInput", "MemoryIndex", "Retrieval"]

_TILE = 1 << 23  # floats of the largest temporary of a tile of questions on a CPU: 32 MB
_ACTIVATED = 32  # atoms that only the graph brought, added to the candidates of a large store


class Retrieval(NamedTuple):
    """What `MemoryIndex.forward` returns, best first; k is at most the number of candidates.

    Attributes:
        rows: [B, k] int64 atom rows, -1 where there were fewer than k.
        scores: [B, k] float32 hybrid scores, -inf where rows is -1.
        shares: [B, k, F] float32, each signal's share of the score, in the order of `signal_names`.
        confidence: [B] float32 in [0, 1].
        anchors: [B, K] int64 rows where activation started, -1 = none.
        anchor_activation: [B, K] float32.
        paths: [B, k, T] int64, the edges of `MemoryIndex.graph` that brought most activation to
            each row, from the anchor on, -1 = none; T = 0 unless paths were asked for.
    """

    rows: Tensor
    scores: Tensor
    shares: Tensor
    confidence: Tensor
    anchors: Tensor
    anchor_activation: Tensor
    paths: Tensor


class MemoryIndex(nn.Module):
    """A memory as buffers (embeddings, graph, lexical matrix, attributes) and its weights.

    Build one with `build`, or from the `state_dict` of another with `from_state_dict`.
    `.to(device)` moves it, `.half()` halves its floating-point buffers (arithmetic stays float32).
    """

    embeddings: Tensor
    kind: Tensor
    speaker: Tensor
    named: Tensor
    session: Tensor
    time_bits: Tensor
    month: Tensor
    day: Tensor
    log_words: Tensor
    is_question: Tensor
    tells_time: Tensor
    previous: Tensor
    next: Tensor
    derived_source: Tensor
    derived_target: Tensor
    pagerank: Tensor
    session_bm25_count: Tensor
    graph_indptr: Tensor
    graph_source: Tensor
    tokens: Tensor | None
    token_offsets: Tensor | None
    piece_df: Tensor | None
    duplicate: Tensor | None
    direction: Tensor | None
    component: Tensor | None
    bridge_bonus: Tensor | None
    hop_document: Tensor | None

    def __init__(self, tensors: Mapping[str, Tensor], config: Config) -> None:
        """Takes the tensors that `build` made, as they are.

        What routing signals read and is not among them is derived from the graph.
        """
        super().__init__()
        self.config = config
        for name in OPTIONAL_PARTS:
            self.register_buffer(name, None)
        for name, tensor in tensors.items():
            if name != "weights":
                self.register_buffer(name, tensor)
        rank = config.rank
        named = rank.weights if self.spreads or not rank.cold_weights else rank.cold_weights
        check_signal_names(named)
        if self.hop_document is None:
            named = {name: named[name] for name in named if name not in DOCUMENT_SIGNALS}
        self.signal_names = tuple(named)
        lacking = [
            name for name in named if any(p not in tensors for p in ROUTING_PARTS.get(name, ()))
        ]
        for name, tensor in routing_tensors(self.graph, self.num_atoms, lacking).items():
            self.register_buffer(name, tensor)
        weights = tensors.get("weights")
        if weights is None:
            weights = torch.tensor(list(named.values()), dtype=torch.float32)
        self.weights = nn.Parameter(weights.clone(), requires_grad=False)

    @classmethod
    def build(cls, data: IndexInput, config: Config) -> MemoryIndex:
        """The index of the columns of a memory."""
        return cls(index_tensors(data, config), config)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor], config: Config) -> MemoryIndex:
        """The index whose `state_dict` this is; weights that are not there are the settings'."""
        return cls(state, config)

    @property
    def num_atoms(self) -> int:
        """A, the atoms that can be hits."""
        return int(self.embeddings.shape[0])

    @property
    def num_nodes(self) -> int:
        """N, atoms and concepts."""
        return int(self.graph_indptr.shape[0]) - 1

    @property
    def num_speakers(self) -> int:
        """S."""
        return int(self.named.shape[0])

    @property
    def time(self) -> Tensor:  # [A] float64
        """Seconds since the epoch, UTC; NaN where unknown."""
        return self.time_bits.view(torch.float64)

    @property
    def bm25(self) -> BM25:
        """The lexical index of the atoms."""
        return self._bm25("bm25_", self.num_atoms)

    @property
    def session_bm25(self) -> BM25:
        """The lexical index of the sessions."""
        count = int(self.session_bm25_count.shape[0])
        return self._bm25("session_bm25_", count)

    def _bm25(self, prefix: str, count: int) -> BM25:
        part = {name: getattr(self, prefix + name) for name in BM25_PARTS}
        return BM25(
            part["indptr"], part["docs"], part["scores"].float(), part["idf"].float(), count
        )

    @property
    def graph(self) -> Graph:
        """The conducting graph of all N nodes."""
        part = {name: getattr(self, f"graph_{name}") for name in GRAPH_PARTS}
        part["weight"] = part["weight"].float()
        return Graph(**part, num_nodes=self.num_nodes)

    @property
    def modes(self) -> Modes | None:
        """The modes of the atoms; None where the settings do not ask for them."""
        part = {name: getattr(self, f"modes_{name}") for name in MODE_PARTS}
        return None if part["label"] is None else modes_from_tensors(part)

    @property
    def spreads(self) -> bool:
        """Whether there is a graph worth spreading over; else it is a cold start."""
        enough = self.num_nodes >= self.config.spread.min_nodes
        return enough and int(self.graph_source.shape[0]) > 0

    def forward(
        self,
        query: QueryBatch,
        *,
        k: int | None = None,
        paths: bool = False,
        tile: int = _TILE,
    ) -> Retrieval:
        """Ranks the memories for B questions.

        Args:
            query: The questions; only the embeddings are needed, a signal whose input is missing
                is 0.
            k: Hits a question; by default `rank.k` of the settings.
            paths: Whether the edges that led to each hit are wanted.
            tile: Floats of the largest temporary on a CPU; questions are ranked in tiles of it.

        Raises:
            InputError: For shapes that do not fit the index.
        """
        query.check(dim=self.embeddings.shape[1], atoms=self.num_atoms, speakers=self.num_speakers)
        query = replace(query, embedding=query.embedding.float())
        count = self.config.rank.k if k is None else k
        check_count("k", count)
        width = 1 if query.tokens is None else max(1, query.tokens.shape[1])
        dense = self.num_atoms <= self.config.rank.dense_limit
        size = self.num_atoms * (width if dense else 1)
        step = max(1, tile_elements(self.embeddings.device, tile) // max(1, size))
        parts = [
            self._rank(query.rows(slice(i, i + step)), count, paths)
            for i in range(0, len(query), step)
        ]
        if not parts:
            return self._rank(query, count, paths)
        return Retrieval(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def features(self, query: QueryBatch) -> tuple[Tensor | None, Tensor, Scope]:
        """The signals of the preset before they are weighed: what `fit` learns from.

        Returns:
            Candidate rows [B, C] (None: every atom), signals [B, C, F], and the scope.
        """
        scope, _, _ = self._scope(query, self.config.rank.k)
        return scope.rows, scope.signals(self.signal_names), scope

    def _scope(self, query: QueryBatch, k: int) -> tuple[Scope, Tensor, Tensor]:
        """Candidates with activation spread from the anchors; anchor rows and their activation."""
        everyone = Scope(self, query)
        scope = everyone
        none = torch.full((len(query), 0), -1, dtype=torch.int64, device=query.embedding.device)
        start = none, none.float()
        if self._traverses:
            start = self._traverse(everyone)
        if everyone.reach is not None and self.config.segment.retrieve:
            scope = everyone.narrowed(segment_candidates(everyone, everyone.reach, k))
        elif self.config.modes.retrieve and (modes := self.modes) is not None:
            scope = everyone.narrowed(mode_candidates(everyone, modes, k))
        elif self.num_atoms > self.config.rank.dense_limit:
            count = max(self.config.rank.candidates, k)
            scope = everyone.narrowed(strong_candidates(everyone, count))
            if everyone.reach is not None:
                scope = scope.extended(segment_candidates(everyone, everyone.reach, _ACTIVATED))
        if not (self._activates or self._hops) or scope.shape[1] == 0:
            return scope, *start
        strong = self._strong(scope)
        anchors, value = anchor_activation(scope, strong, self.config.anchors)
        relevance = anchor_relevance(scope, strong, value, self.config.anchors)
        scope.anchors = everyone.anchors = anchors, relevance
        extra: list[SparseRows] = []  # what the graph brings to the candidates of a large store
        if self._hops:
            scope.hops = everyone.hops = self._hop(query, anchors, value)
            extra += scope.hops
        if self._activates and self._walks:
            there = self._conducting(query)
            walk = walk_from(self.graph, anchors, relevance, self.config.walk, there)
            scope.walk = everyone.walk = walk = walk.narrowed(self.num_atoms)
            extra.append(walk)
        if self._activates and self._spreads_from_anchors:
            everywhere = self.spread(anchors, value, self._conducting(query))
            activation = everywhere.narrowed(self.num_atoms)
            scope.activation = everyone.activation = activation
            if query.allowed is not None:
                there = query.allowed.expand(len(query), -1)
                activation = activation.select(there[activation.row, activation.column])
            extra.append(activation)
        if scope.rows is not None:
            for found in extra:
                scope = scope.extended(found.topk(_ACTIVATED)[1])
        return scope, anchors, value

    @property
    def _traverses(self) -> bool:
        """Whether a question walks from its seeds."""
        return self.config.segment.retrieve or "traversal" in self.signal_names

    @property
    def _activates(self) -> bool:
        """Whether a signal reads what spreads from the anchors, and there is a graph for it."""
        own = {"traversal", *HOP_SIGNALS}  # these go their own ways
        read = any(SIGNALS[name].graph for name in self.signal_names if name not in own)
        return read and self.spreads

    @property
    def _hops(self) -> bool:
        """Whether a signal reads where hops lead, and there are documents to lead to."""
        return not HOP_SIGNALS.isdisjoint(self.signal_names)

    def _hop(
        self, query: QueryBatch, anchors: Tensor, value: Tensor
    ) -> tuple[SparseRows, SparseRows]:  # [B, A] each
        """Where title mentions and shared entities lead from the anchors."""
        parts = HopParts(*(getattr(self, name) for name in HOP_PARTS))
        named = named_keys(query.terms)
        found = [hop(parts, anchors, value, named) for hop in (title_hop, entity_hop)]
        if query.allowed is not None:
            there = query.allowed.expand(len(query), -1)
            found = [one.select(there[one.row, one.column]) for one in found]
        return found[0], found[1]

    @property
    def _walks(self) -> bool:
        """Whether a signal reads where a walk from the anchors is."""
        return not WALK_SIGNALS.isdisjoint(self.signal_names)

    @property
    def _spreads_from_anchors(self) -> bool:
        """Whether activation is of use; beside a walk only where a signal or the gate reads it."""
        reads = {*self.signal_names, *self.config.gate.weights}
        return "activation" in reads or not self._walks

    def _traverse(self, everyone: Scope) -> tuple[Tensor, Tensor]:  # [B, s] rows, cosine
        """Walks from the seeds of each question, which it returns."""
        own = self.config.segment
        seeds, cosine = segment_seeds(everyone, own.seeds)
        mask = self._conducting(everyone.query)
        reach = hop_discount(self.graph, seeds, hops=own.hops, discount=own.discount, mask=mask)
        everyone.reach = reach.narrowed(self.num_atoms)
        return seeds, cosine

    def _conducting(self, query: QueryBatch) -> Tensor | None:  # [B, N] bool
        """The nodes that activation may reach: concepts, and atoms there are for the question."""
        if query.allowed is None:
            return None
        concepts = self.num_nodes - self.num_atoms
        return torch.nn.functional.pad(query.allowed, (0, concepts), value=True).expand(
            len(query), -1
        )

    def spread(
        self,
        anchors: Tensor,  # [B, K] int64 rows, -1 = none
        value: Tensor,  # [B, K]
        mask: Tensor | None = None,  # [B, N] bool, the nodes that may be reached
    ) -> SparseRows:  # [B, N]
        """Spreading activation with the constants of the preset (`docs/mathematics.md` 4)."""
        s = self.config.spread
        return spread_activation(
            self.graph,
            SparseRows.of(anchors, value, self.num_nodes),
            rounds=s.rounds,
            retention=s.retention,
            spread=s.spread,
            reduce=s.reduce,
            fan=s.fan,
            inhibition=s.inhibition,
            top=s.top,
            firing=s.firing,
            gain=s.gain,
            threshold=s.threshold,
            mask=mask,
        )

    def _strong(self, scope: Scope) -> Tensor:  # [B, C]
        """The hybrid score of the signals that need no graph."""
        names = [name for name in self.signal_names if not SIGNALS[name].graph]
        places = [i for i, name in enumerate(self.signal_names) if not SIGNALS[name].graph]
        chosen = torch.tensor(places, dtype=torch.int64, device=self.weights.device)
        return scope.signals(names) @ self.weights.float()[chosen]

    def _rank(self, query: QueryBatch, k: int, paths: bool) -> Retrieval:
        scope, anchors, value = self._scope(query, k)
        signals = scope.signals(self.signal_names)
        weights = self.weights.float()
        score = (signals @ weights).masked_fill(~scope.listed, -torch.inf)
        best = score.topk(min(k, score.shape[1]), dim=1)
        chosen = best.indices
        rows = chosen if scope.rows is None else scope.rows.gather(1, chosen)
        rows = torch.where(best.values > -torch.inf, rows, -1)
        shares = signals.gather(1, chosen[:, :, None].expand(-1, -1, signals.shape[2])) * weights
        gate = self.config.gate
        statistics = gate_statistics(scope, chosen, tuple(gate.weights))
        return Retrieval(
            rows,
            best.values,
            shares,
            confidence(statistics, gate),
            anchors,
            value,
            self._paths(query, anchors, value, rows, paths),
        )

    def _paths(
        self, query: QueryBatch, anchors: Tensor, value: Tensor, rows: Tensor, wanted: bool
    ) -> Tensor:
        if not wanted or anchors.shape[1] == 0:
            return rows.new_zeros(*rows.shape, 0)
        s, own = self.config.spread, self.config.segment
        walked = self._traverses and not self._activates  # the anchors are seeds then
        return strongest_paths(
            unweighted(self.graph) if walked else self.graph,
            SparseRows.of(anchors, value, self.num_nodes),
            rows,
            rounds=own.hops if walked else s.rounds,
            spread=own.discount if walked else s.spread,
            fan="none" if walked else s.fan,
            mask=self._conducting(query),
        )
