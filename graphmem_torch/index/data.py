"""From the columns of a memory to the buffers of its index, and from these to what is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, EdgeType
from graphmem_torch.checks import check_tensor
from graphmem_torch.config import Config, ModesConfig
from graphmem_torch.coo import isin, offsets_of, without_once
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.graph import GRAPH_PARTS, Graph
from graphmem_torch.index.activation_graph import ActivationGraph
from graphmem_torch.index.buffer_schema import LAYOUT, WHOLE
from graphmem_torch.modes.find import (
    MODE_PARTS,
    Modes,
    find_modes,
    modes_from_tensors,
    modes_to_tensors,
)
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.growing import GrowingLists, GrowingRows
from graphmem_torch.ops.postings import ListedBM25, PostingLists, Postings
from graphmem_torch.ops.ragged import row_entries, runs
from graphmem_torch.ops.sorted_rows import merged_order
from graphmem_torch.rank.candidates import MemoryTensors
from graphmem_torch.rank.hops import HOP_PARTS, HopParts, hop_parts
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.rank.routing import relative_pagerank, routing_parts

__all__ = [
    "FOLLOWED",
    "OPTIONAL_PARTS",
    "REQUIRED_PARTS",
    "GrowingIndex",
    "IndexInput",
    "Renamed",
    "graph_of",
    "graph_tensors",
    "index_tensors",
    "memory_tensors",
    "modes_by",
    "modes_in",
]

_BM25_PARTS = ("indptr", "docs", "counts", "norm", "idf")
# What is a tensor in `MemoryTensors` is a buffer of the same name.
_PLAIN = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor")
_OPTIONAL = tuple(field.name for field in fields(MemoryTensors) if field.type == "Tensor | None")
REQUIRED_PARTS = (
    *("kind", "named"),
    *_PLAIN,
    *(f"{which}_{name}" for which in ("bm25", "session_bm25") for name in _BM25_PARTS),
    *(f"graph_{name}" for name in GRAPH_PARTS),
)
OPTIONAL_PARTS = (*_OPTIONAL, *(f"modes_{name}" for name in MODE_PARTS), *HOP_PARTS)


class Listed(NamedTuple):
    """What changed since an index was made at once, and is no buffer of it; None where it is one.

    Attributes:
        graph: The conducting graph.
        bm25, session_bm25: The postings of the lexical indexes.
    """

    graph: AppendableGraph | None = None
    bm25: PostingLists | None = None
    session_bm25: PostingLists | None = None

    def to_tensors(self) -> dict[str, Tensor]:
        """The buffers that stand for it."""
        parts = {} if self.graph is None else graph_tensors(self.graph)
        for name, lists in (("bm25", self.bm25), ("session_bm25", self.session_bm25)):
            if lists is not None:
                columns = zip(_BM25_PARTS, lists.compact(), strict=False)
                parts |= {f"{name}_{part}": column for part, column in columns}
        return parts

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Listed:
        """The same of changed tensors, as `nn.Module.to` changes them."""
        graph, *postings = self
        return Listed(
            graph and graph.mapped(change),
            *(lists and PostingLists(*map(change, lists)) for lists in postings),
        )


class Renamed(NamedTuple):
    """What the codes that are left were before, in the order of the new ones.

    Attributes:
        terms, kinds, speakers, sessions: int64; None: all terms are what they were.
    """

    terms: Tensor | None
    kinds: Tensor
    speakers: Tensor
    sessions: Tensor


@dataclass(frozen=True, eq=False)
class IndexInput:
    """A memory as plain columns: A atoms that can be hits and K concepts among N nodes.

    Or what is added to one (`GrowingIndex.append`): then A and K count what is new, but for the
    names of concepts; entries of `node`, `concept`, `edges`, `duplicate` and the codes are those of
    the whole memory, and N, S and the sizes of vocabularies are what they are with it.

    Attributes:
        embeddings: [A, d] float32 unit rows.
        terms, term_offsets: [T] int64 and [A + 1] int64, the lexical terms of the atoms.
        vocab_size: Number of terms.
        kind, speaker: [A] int64 codes, -1 = none (speaker).
        num_speakers: S.
        session: [A] int64 codes, -1 = none.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        log_words: [A] float32, ln(1 + words).
        is_question, tells_time: [A] bool.
        role: [A] int8, 1 for the words of a user, -1 for those of an assistant, 0 for all others;
            None where there are no others.
        asked_key, asked_words, asked_bits, asked_form: [A] int64, int16, int64 and int8, what an
            atom asks (`rank.candidates.MemoryTensors`); None where no atom asks.
        told: [A, 2] int32, the days that an atom tells of (`text.times.told_days`), 0 and 0 for
            none; None where no atom does.
        edges: Between nodes 0..N-1.
        num_nodes: N.
        node: [A] int64, the node that each atom is, ascending; None: the first A.
        concept: [K] int64, likewise; None: those behind the atoms. A node may be neither.
        tokens, pieces, token_offsets: Packed token vectors and their word pieces, or None.
        num_pieces: Size of the word-piece vocabulary.
        duplicate: [A] int64, for each atom the node of the first one of equal content; None where
            no atom is taken for another. Only modes read it.
        modes: Of the atoms, where they are known; else they are found if the settings ask for them.
        title: [A] int64, how many of its first terms are an atom's title, -1 = none; None where no
            atom has one.
        name_terms, name_offsets: int64 and [K + 1] int64, the terms of the names of the concepts.
        lot: [A + K] int64 below 2^32, of atoms and concepts: of edges as strong as each other those
            to lower ones are kept (`spread.max_edges`). It says nothing about age or number; None:
            those to older ones are kept.
    """

    embeddings: Tensor
    terms: Tensor
    term_offsets: Tensor
    vocab_size: int
    kind: Tensor
    speaker: Tensor
    num_speakers: int
    session: Tensor
    time: Tensor
    log_words: Tensor
    is_question: Tensor
    tells_time: Tensor
    edges: EdgeBlock
    num_nodes: int
    node: Tensor | None = None
    concept: Tensor | None = None
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    token_offsets: Tensor | None = None
    num_pieces: int = 0
    duplicate: Tensor | None = None
    modes: Modes | None = None
    role: Tensor | None = None
    told: Tensor | None = None
    title: Tensor | None = None
    name_terms: Tensor | None = None
    name_offsets: Tensor | None = None
    lot: Tensor | None = None
    asked_key: Tensor | None = None
    asked_words: Tensor | None = None
    asked_bits: Tensor | None = None
    asked_form: Tensor | None = None


def index_tensors(data: IndexInput, config: Config) -> dict[str, Tensor]:
    """Derives everything that retrieval needs: the buffers of `MemoryIndex` by name.

    Raises:
        InputError: For columns of different lengths.
    """
    return GrowingIndex(config).append(data)


_INPUTS = ("terms", "term_offsets", "title", "pieces")  # columns that grow, but are no buffers
_GROWN = (
    *("embeddings", "node", "kind", "speaker", "session", "time_bits", "month", "day"),
    *("said", "told"),
    *("log_words", "is_question", "tells_time", "role", "duplicate", "tokens", "token_offsets"),
    *("asked_key", "asked_words", "asked_bits", "asked_form"),
)
_ASKED = {
    "asked_key": torch.int64,
    "asked_words": torch.int16,
    "asked_bits": torch.int64,
    "asked_form": torch.int8,
}
FOLLOWED = tuple(name for name in LAYOUT if name.startswith("follow_"))
"""What is kept beside the buffers of an index to follow with, by name."""

_CONCEPT = 1 << 32  # added to the lot of a concept: edges to atoms come first
_JOINS = np.zeros(256, dtype=bool)  # by type
_JOINS[[EdgeType.TEMPORAL, EdgeType.DERIVED_FROM, EdgeType.ABSTRACTION]] = True
_MENTION = np.float32(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])


class GrowingIndex:
    """The buffers of an index to which atoms and edges are added; one writer at a time.

    Buffers that were given out stay as they are: what only grows is appended to behind them, edges
    and postings that change are lists behind all others, all else is copied. A few atoms cost their
    own edges and postings, and a copy of a few numbers an atom, a node and a term; nothing is
    sorted or counted anew.
    """

    def __init__(self, config: Config) -> None:
        """Without atoms."""
        self._config = config
        self._rows: dict[str, GrowingRows] = {}
        self._graph = ActivationGraph(config.spread, rank=_ranked(config))
        self._postings, self._session_postings = Postings(), Postings()
        self._lexical: dict[str, Tensor] = {}
        self._session_of = GrowingRows(torch.empty(0, dtype=torch.int64))  # by the given code
        self._sessions = 0
        self._node_time = GrowingRows(torch.empty(0, dtype=torch.float64))
        self._atom = GrowingRows(torch.empty(0, dtype=torch.int32))  # of each node
        self._concepts = GrowingRows(torch.empty(0, dtype=torch.int64))
        self._lot = GrowingRows(torch.empty(0, dtype=torch.int64))  # of each node
        # Of turns and of what is derived: source, target, type.
        self._joints = GrowingRows(torch.empty(0, 3, dtype=torch.int64))
        self._about = GrowingLists({"target": torch.int32, "type": torch.uint8})  # of each node
        self._derived = torch.empty(2, 0, dtype=torch.int64)
        self._previous = self._next = torch.empty(0, dtype=torch.int32)
        self._piece_df = torch.empty(0, dtype=torch.int32)
        # Rows by their times, and those that tell of days by the first of these.
        self._time_order = self._told_order = torch.empty(0, dtype=torch.int32)

    def to_tensors(self) -> dict[str, Tensor]:
        """What the buffers do not say of it, so that `from_tensors` can go on from both."""
        rows = self._rows
        counts, about = self._about.compact()
        source = torch.arange(len(counts), dtype=torch.int32).repeat_interleave(counts)
        joints = self._joints.view
        return {
            **({"follow_pieces": rows["pieces"].view} if "pieces" in rows else {}),
            "follow_terms": rows["terms"].view.to(torch.int32),
            "follow_term_offsets": rows["term_offsets"].view,
            "follow_title": rows["title"].view.to(torch.int32),
            "follow_concept": self._concepts.view.to(torch.int32),
            "follow_lot": self._lot.view,
            "follow_session_code": self._session_of.view.to(torch.int32),
            "follow_joint_ends": torch.cat(
                [joints[:, :2].to(torch.int32), torch.stack([source, about["target"]], 1)]
            ),
            "follow_joint_type": torch.cat([joints[:, 2].to(torch.uint8), about["type"]]),
            **{f"follow_{name}": part for name, part in self._graph.to_tensors().items()},
        }

    @classmethod
    def from_tensors(cls, config: Config, parts: Mapping[str, Tensor]) -> GrowingIndex:
        """Goes on from the buffers of an index and `to_tensors`, which fit each other.

        What is not among the buffers is its own from then on, and written to.

        Raises:
            InputError: Some of `to_tensors` is missing.
        """
        unread = [] if "tokens" in parts else ["follow_pieces"]
        unread += [] if _ranked(config) else ["follow_rank", "follow_rank_residual"]
        lacking = [name for name in FOLLOWED if name not in parts and name not in unread]
        if lacking:
            raise InputError(f"parts: expected {lacking[0]!r}, got none; build the index anew")
        own = cls(config)
        follow = {
            name.removeprefix("follow_"): part for name, part in parts.items() if name in FOLLOWED
        }
        grown = {name: part for name, part in parts.items() if name in _GROWN}
        grown |= {
            name: follow[name] if name == "pieces" else follow[name].long()
            for name in _INPUTS
            if name in follow
        }
        own._rows = {name: GrowingRows(part) for name, part in grown.items()}
        node, session = parts["node"].long(), parts["session"].long()
        time = parts["time_bits"].view(torch.float64)
        every = torch.full(parts["atom"].shape, torch.nan, dtype=torch.float64)
        own._node_time = GrowingRows(every.index_copy(0, node, time))
        own._atom = GrowingRows(parts["atom"])
        own._concepts = GrowingRows(follow["concept"].long())
        ends, type = follow["joint_ends"].long(), follow["joint_type"].long()
        joints = torch.cat([ends, type[:, None]], 1)
        tells = _tells(joints)
        own._joints = GrowingRows(joints[~tells])
        own._add_about(joints[tells], len(parts["atom"]))
        own._lot = GrowingRows(follow["lot"])
        own._derived = torch.stack([parts["derived_source"], parts["derived_target"]]).long()
        own._previous, own._next = parts["previous"], parts["next"]
        own._piece_df = parts.get("piece_df", own._piece_df)
        own._time_order, own._told_order = parts["time_order"], parts["told_order"]
        own._session_of = GrowingRows(follow["session_code"].long())
        own._sessions = int(session.max()) + 1 if len(session) else 0
        own._graph = ActivationGraph.from_tensors(config.spread, graph_of(parts), follow)
        lengths = follow["term_offsets"].diff()
        whole = lengths.new_zeros(own._sessions).index_add_(0, session, lengths)
        own._postings, own._session_postings = (
            Postings.of(
                parts[f"{name}_indptr"], parts[f"{name}_docs"], parts[f"{name}_counts"], size
            )
            for name, size in (("bm25", lengths), ("session_bm25", whole))
        )
        lexical = [name for name in parts if name.startswith(("bm25_", "session_bm25_"))]
        own._lexical = {name: parts[name] for name in lexical}
        return own

    @property
    def listed(self) -> Listed:
        """What is not among the buffers: what changed since the first were made."""
        graph = self._graph.graph
        return Listed(
            graph if isinstance(graph, AppendableGraph) else None,
            self._postings.listed,
            self._session_postings.listed,
        )

    @property
    def concepts(self) -> Tensor:  # [K] int64
        """The nodes of the concepts, in the order of `HopParts`."""
        return self._concepts.view

    @property
    def rank_error(self) -> float:
        """At most how far a PageRank that is carried along is from the exact one, relative L1."""
        return 0.0 if self._graph.rank is None else self._graph.rank.error

    def append(
        self,
        data: IndexInput,
        cut: EdgeBlock | None = None,
        modes: Callable[[Tensor, Tensor, Tensor], Modes] | None = None,
    ) -> dict[str, Tensor]:
        """Adds what is new; the buffers of the whole, but for what is `listed`.

        Args:
            data: The new atoms, concepts and edges.
            cut: Edges that go, which were there or are among the new.
            modes: Gives the modes of embeddings, times and nodes of all atoms, where the settings
                ask for them; by default they are found, if `data` does not have them.

        Raises:
            InputError: For columns of different lengths; nothing was added then.
        """
        _check(data, len(self._concepts))
        cut = EdgeBlock.empty() if cut is None else cut
        self._add_nodes(data)
        self._add_columns(data)
        atom = self._atom.view
        self._join(data.edges, cut)
        self._graph.follow(data.edges, cut, self._node_time.view, self._lot.view)
        if len(data.embeddings) or not self._lexical:
            self._lexical = self._index_terms(data)
        rows = {name: grown.view for name, grown in self._rows.items()}
        graph = self._graph.graph
        tensors = {
            **{name: rows[name] for name in rows if name not in _INPUTS},
            "atom": atom,
            "named": torch.zeros(data.num_speakers, dtype=torch.uint8),
            "previous": self._previous,
            "next": self._next,
            "derived_source": self._derived[0].to(torch.int32),
            "derived_target": self._derived[1].to(torch.int32),
            "time_order": self._time_order,
            "told_order": self._told_order,
            **self._lexical,
            **({} if isinstance(graph, AppendableGraph) else graph_tensors(graph)),
        }
        if "tokens" in rows:
            tensors["piece_df"] = self._piece_df
        if self._graph.rank is not None:
            node = rows["node"].long()
            tensors["pagerank"] = relative_pagerank(graph, node, self._graph.rank.values)
        if self._config.modes.build and self._count:
            node, time = rows["node"].long(), rows["time_bits"].view(torch.float64)
            given = data.modes or (modes and modes(rows["embeddings"], time, node))
            found = given or modes_by(self._config.modes, rows["embeddings"], time)
            tensors |= {f"modes_{name}": part for name, part in modes_to_tensors(found).items()}
        if (hops := self._hops(data, rows)) is not None:
            tensors |= {name: getattr(hops, name.removeprefix("hop_")) for name in HOP_PARTS}
        return tensors

    def remove(self, nodes: Tensor, kinds: Sequence[int] = ()) -> Renamed:
        """Takes atoms and concepts out; their edges are still to be cut, with the next `append`.

        Numbers everything anew, as if they had never been there: rows, sessions, kinds, speakers
        and terms, in the order in which the rest has them. What was read once is not read again.

        Args:
            nodes: [n] int64, which were added.
            kinds: The code of the kind of the concepts, which atoms may have too, if there is one.
        """
        atom, before = self._atom.view, {name: rows.view for name, rows in self._rows.items()}
        gone = torch.zeros(len(atom), dtype=torch.bool).index_fill(0, nodes, True)
        left = gone[before["node"].long()]
        kept = (~left).nonzero().squeeze(1)
        new = torch.full((self._count + 1,), -1, dtype=torch.int32)  # and that of no row
        new[kept] = torch.arange(len(kept), dtype=torch.int32)
        first, count = _spans(kept)
        held: dict[str, GrowingRows] = {}
        for *names, bounds in (("terms", "term_offsets"), ("tokens", "pieces", "token_offsets")):
            if bounds in before:
                offsets = before[bounds].numpy()
                spans = offsets[first], offsets[first + count] - offsets[first]
                held |= {name: self._rows[name].taken(*spans) for name in names}
                held[bounds] = GrowingRows(offsets_of(before[bounds].diff()[kept]))
        others = self._rows.keys() - held.keys()
        held |= {name: self._rows[name].taken(first, count) for name in others}
        rows = {name: own.view for name, own in held.items()}
        concept = self._concepts.view
        concept = concept[~gone[concept]]
        # A kind may stand at concepts alone, whose first one says where it comes.
        kind, node = rows["kind"].long(), rows["node"].long()
        if kinds and len(concept):
            kind, node = torch.cat([kind, kind.new_tensor(kinds)]), torch.cat([node, concept[:1]])
        order = node.argsort()
        own_kinds, gone_texts = _first_met(kind[order]), _texts_of(before, left)
        # Only where one goes that has a term first do terms get other numbers.
        first_of = self._postings.weighed().first_documents()[gone_texts.terms].long()
        terms = _first_met(rows["terms"]) if bool(left[first_of].any()) else None
        speakers = _first_met(rows["speaker"].long())
        sessions = _first_met(rows["session"].long())
        for name, old in (
            ("terms", terms),
            ("kind", own_kinds),
            ("speaker", speakers),
            ("session", sessions),
        ):
            if old is not None:
                held[name].array[:] = _inverse(old).numpy()[held[name].array]
        given = _inverse(sessions, self._sessions)[self._session_of.view]
        there = (given >= 0).nonzero().squeeze(1)
        number, self._sessions = self._sessions, len(sessions)
        self._session_of = GrowingRows(given[there])
        if "duplicate" in rows:
            group = rows["duplicate"].long()
            earliest = torch.full((len(new),), len(new)).scatter_reduce(
                0, group, torch.arange(len(kept)), "amin"
            )
            held["duplicate"].array[:] = earliest[group].numpy()
        if "pieces" in rows:
            ends = before["token_offsets"]
            _, entry = row_entries(ends, left.nonzero().squeeze(1))
            those = before["pieces"][entry], offsets_of(ends.diff()[left])
            self._piece_df = self._piece_df - _document_frequency(
                *those, torch.zeros_like(self._piece_df)
            )
        self._atom = GrowingRows(new[atom.long()])
        self._previous, self._next = (new[own[kept].long()] for own in (self._previous, self._next))
        derived = new[self._derived].long()
        self._derived = derived[:, (derived >= 0).all(0)]
        self._concepts = GrowingRows(concept)
        self._rows = held
        orders = (new[rows_of.long()] for rows_of in (self._time_order, self._told_order))
        self._time_order, self._told_order = (left[left >= 0] for left in orders)
        self._remove_terms(gone_texts, new, terms, _inverse(sessions, number))
        return Renamed(terms, own_kinds, speakers, there)

    def _add_nodes(self, data: IndexInput) -> None:
        """The new nodes: which atom each is, and its time."""
        old, nodes = len(self._atom), data.num_nodes
        row = torch.arange(self._count, self._count + len(data.embeddings))
        node = row if data.node is None else data.node
        concept = torch.arange(old + len(row), nodes) if data.concept is None else data.concept
        lots = torch.zeros(len(node) + len(concept)) if data.lot is None else data.lot
        atom, time, lot = (
            each.extend(nodes - old) for each in (self._atom, self._node_time, self._lot)
        )
        atom[old:], time[old:], lot[old:] = -1, np.nan, 0
        own, others, count = node.numpy(), concept.numpy(), len(node)
        atom[own], time[own], lot[own] = row.numpy(), data.time.numpy(), lots[:count].numpy()
        lot[others] = lots[count:].long().numpy() + _CONCEPT
        self._concepts.append(concept)
        self._grow("node", node.to(torch.int32))

    @property
    def _count(self) -> int:
        """Atoms so far."""
        return len(self._rows["node"]) if self._rows else 0

    def _grow(self, name: str, rows: Tensor) -> None:
        if name in self._rows and len(self._rows[name]):
            self._rows[name].append(rows)
        else:  # the first say how wide they are
            self._rows[name] = GrowingRows(rows)

    def _add_columns(self, data: IndexInput) -> None:
        """What is known of the new atoms, each for itself."""
        month, day, said = _dates(data.time)
        columns = {
            "embeddings": data.embeddings,
            "kind": data.kind.to(torch.int16),
            "speaker": data.speaker.to(torch.int32),
            "session": self._session_codes(data.session).to(torch.int32),
            # As integers of the same bits: `.half()` must not round seconds since the epoch.
            "time_bits": data.time.to(torch.float64).contiguous().view(torch.int64),
            "month": month,
            "day": day,
            "said": said,
            "told": torch.zeros((len(said), 2), dtype=torch.int32)
            if data.told is None
            else data.told.to(torch.int32),
            "log_words": data.log_words,
            "is_question": data.is_question.float(),
            "tells_time": data.tells_time.float(),
            "role": torch.zeros(data.kind.shape, dtype=torch.int8)
            if data.role is None
            else data.role.to(torch.int8),
            "terms": data.terms,
            "title": torch.full(data.kind.shape, -1) if data.title is None else data.title,
        }
        for name, dtype in _ASKED.items():
            given = getattr(data, name)
            columns[name] = torch.zeros(data.kind.shape, dtype=dtype) if given is None else given
        if data.duplicate is not None and self._config.modes.build:
            columns["duplicate"] = self._atom.view[data.duplicate]
        old = len(self._rows["kind"]) if "kind" in self._rows else 0
        self._grow_offsets("term_offsets", data.term_offsets, old)
        if data.tokens is not None and data.pieces is not None and data.token_offsets is not None:
            columns["tokens"], columns["pieces"] = data.tokens, data.pieces.to(torch.int32)
            self._grow_offsets("token_offsets", data.token_offsets, old)
            if more := max(1, data.num_pieces) - len(self._piece_df):
                self._piece_df = torch.nn.functional.pad(self._piece_df, (0, more))
            self._piece_df = _document_frequency(data.pieces, data.token_offsets, self._piece_df)
        for name, column in columns.items():
            self._grow(name, column)
        time, told = self._rows["time_bits"].view.view(torch.float64), self._rows["told"].view
        fresh = torch.arange(old, len(time), dtype=torch.int32)
        self._time_order = merged_order(self._time_order, time, fresh)
        tells = columns["told"][:, 1] > columns["told"][:, 0]
        self._told_order = merged_order(self._told_order, told[:, 0], fresh[tells])

    def _grow_offsets(self, name: str, offsets: Tensor, old: int) -> None:
        """Adds the entries of new atoms behind those of `old` ones, which may have had none."""
        if name not in self._rows:
            self._rows[name] = GrowingRows(torch.zeros(old + 1, dtype=torch.int64))
        self._rows[name].append(offsets[1:] + self._rows[name].view[-1])

    def _session_codes(self, given: Tensor) -> Tensor:  # [n] int64, -1 = none -> [n] int64
        """Sessions by the order in which they come; what has none is one of its own."""
        asked, old = given.numpy(), len(self._session_of)
        known = self._session_of.extend(max(int(asked.max(initial=-1)) + 1 - old, 0))
        known[old:] = -1
        (named,) = (asked >= 0).nonzero()
        names, first = np.unique(asked[named], return_index=True)
        new = known[names] < 0
        begins = asked < 0
        begins[named[first[new]]] = True
        code = self._sessions + begins.cumsum() - 1
        known[names[new]] = code[named[first[new]]]
        self._sessions += int(begins.sum())
        code[named] = known[asked[named]]
        return torch.from_numpy(code)

    def _index_terms(self, data: IndexInput) -> dict[str, Tensor]:
        """The buffers of both lexical indexes, with the terms of the atoms that they lack."""
        old, count = len(self._postings.lengths), self._count
        offsets = self._rows["term_offsets"].view[old:]
        terms = self._rows["terms"].view[offsets[0] :]
        text = torch.arange(old, count, dtype=torch.int32), count
        session = self._rows["session"].view[old:], self._sessions
        tensors: dict[str, Tensor] = {}
        for name, postings, (documents, number), b in (
            ("bm25", self._postings, text, 0.3),
            ("session_bm25", self._session_postings, session, 0.75),
        ):
            added = terms, offsets - offsets[0], documents
            postings.add(*added, vocab_size=data.vocab_size, num_docs=number)
            tensors |= _lexical_parts(name, postings.weighed(b=b))
        return tensors

    def _remove_terms(
        self,
        gone: _Texts,
        new: Tensor,  # [A + 1]
        terms: Tensor | None,  # [V] int64
        sessions: Tensor,  # [S + 1] int64
    ) -> None:
        """Takes the terms of texts that go out of both lexical indexes.

        Args:
            gone: These.
            new: The row of each row from now on, -1 = gone.
            terms: Those from now on, by their numbers of before; None: the same.
            sessions: As `new`.
        """
        for postings, documents, number in (
            (self._postings, gone.rows.to(torch.int32), new[:-1]),
            (self._session_postings, gone.session, sessions[:-1]),
        ):
            postings.remove(gone.terms, gone.offsets, documents, kept_terms=terms, number=number)
        self._lexical = {}

    def _join(self, edges: EdgeBlock, cut: EdgeBlock) -> None:
        """Turns before and after, what is derived, and concepts: from the edges that say so."""
        added, gone = _joints_of(edges), _joints_of(cut)
        about, none = _tells(added), _tells(gone)
        self._add_about(added[about], len(self._atom))
        self._about.discard(*_entries(gone[none]))
        added, gone = added[~about], gone[~none]
        self._joints.append(added)
        joints = self._joints.view
        none = torch.full((self._count - len(self._previous),), -1, dtype=torch.int32)
        previous, following = (torch.cat([own, none]) for own in (self._previous, self._next))
        before = behind = added
        if len(gone):
            stays = without_once(joints.T, gone.T).nonzero().squeeze(1)
            self._joints = self._joints.taken(*_spans(stays))
            joints = self._joints.view
            source, target = self._between_atoms(gone)
            previous[target], following[source] = -1, -1
            # The ends of an edge that went may have another.
            changed = torch.cat([gone, added])
            before = joints[isin(joints[:, 1], changed[:, 1])]
            behind = joints[isin(joints[:, 0], changed[:, 0])]
        source, target = self._between_atoms(before)
        previous[target] = source.to(torch.int32)
        source, target = self._between_atoms(behind)
        following[source] = target.to(torch.int32)
        self._previous, self._next = previous, following
        if len(gone):
            self._derived = self._derived[:, :0]
        derived = self._between_atoms(joints if len(gone) else added, EdgeType.DERIVED_FROM)
        if derived.shape[1]:
            self._derived = torch.cat([self._derived, derived], 1)

    def _add_about(self, joints: Tensor, nodes: int) -> None:
        self._about.resize(nodes)
        if len(joints):
            self._about.append(*_entries(joints))

    def _between_atoms(self, joints: Tensor, type: EdgeType = EdgeType.TEMPORAL) -> Tensor:
        """[2, n], the atoms at the ends of the edges of a type, where both are atoms."""
        rows = joints.numpy()
        ends = self._atom.array[rows[rows[:, 2] == int(type), :2]].astype(np.int64)
        return torch.from_numpy(ends[(ends >= 0).all(1)]).T

    def _hops(self, data: IndexInput, rows: Mapping[str, Tensor]) -> HopParts | None:
        """What hops read, where there are documents: atoms with a title that stand alone."""
        if not bool((rows["title"] >= 0).any()):
            return None
        alone = (self._previous < 0) & (self._next < 0) & (rows["speaker"] < 0)
        title = rows["title"].where(alone, -1)
        if not bool(title.ge(0).any()):
            return None
        number = torch.full((data.num_nodes,), -1)
        number[self._concepts.view] = torch.arange(len(self._concepts))
        counts, about = self._about.compact()
        source = self._atom.view.long().repeat_interleave(counts)
        target = number[about["target"].long()]
        there = (source >= 0) & (target >= 0)
        names, offsets = data.name_terms, data.name_offsets
        if names is None or offsets is None:
            names, offsets = title.new_empty(0), title.new_zeros(len(self._concepts) + 1)
        return hop_parts(
            rows["terms"],
            rows["term_offsets"],
            title,
            (source[there], target[there]),
            names,
            offsets,
        )


class _Texts(NamedTuple):
    """Texts of some atoms.

    Attributes:
        rows, session: [n] int64 and int32, of the atoms.
        terms, offsets: [T] and [n + 1] int64, as in `IndexInput`.
    """

    rows: Tensor
    session: Tensor
    terms: Tensor
    offsets: Tensor


def _texts_of(rows: Mapping[str, Tensor], which: Tensor) -> _Texts:  # [A] bool
    """Of the columns of an index those texts that are wanted."""
    own = which.nonzero().squeeze(1)
    _, entry = row_entries(rows["term_offsets"], own)
    ends = offsets_of(rows["term_offsets"].diff()[own])
    return _Texts(own, rows["session"][own], rows["terms"][entry], ends)


def _spans(kept: Tensor) -> tuple[np.ndarray, np.ndarray]:  # [n] int64 -> [s], [s] int64
    """Where runs of consecutive rows begin, and how long they are."""
    rows = kept.numpy()
    begin, count = runs(rows - np.arange(len(rows)))
    return rows[begin], count


def _joints_of(edges: EdgeBlock) -> Tensor:  # [n, 3] int64
    """The edges that join: source, target and type, with `WHOLE` where an atom is about a concept.

    The turns before an atom in its window are tied to what it mentions by less.
    """
    if not len(edges):
        return torch.empty(0, 3, dtype=torch.int64)
    joins = _JOINS[edges.type.numpy()]
    source, target, type, weight = (column.numpy()[joins] for column in edges.columns)
    kind = type.astype(np.int64)
    kind[(kind == EdgeType.ABSTRACTION) & (weight == _MENTION)] += WHOLE
    return torch.from_numpy(np.stack([source, target, kind], 1))


def _tells(joints: Tensor) -> Tensor:  # [n, 3] -> [n] bool
    """Which join an atom to a concept that it is about."""
    return joints[:, 2] % WHOLE == int(EdgeType.ABSTRACTION)


def _entries(joints: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # [n, 3]
    """Edges as entries of the lists of their sources, by these."""
    source, target, type = joints.numpy().T
    order = source.argsort(kind="stable")
    return source[order], {"target": target[order], "type": type[order]}


def _ranked(config: Config) -> bool:
    """Whether a signal reads PageRank, which is carried along for it."""
    return "pagerank" in routing_parts(
        signal_names((*config.rank.weights, *config.rank.cold_weights))
    )


def _check(data: IndexInput, before: int) -> None:
    """Looks at the lengths of columns; `before` concepts were there before."""
    atoms = len(data.embeddings)
    concepts = data.num_nodes - atoms if data.concept is None else len(data.concept)
    lengths = {
        **dict.fromkeys(("kind", "speaker", "session", "time", "log_words"), atoms),
        **dict.fromkeys(("is_question", "tells_time", "role", "told", "duplicate"), atoms),
        **dict.fromkeys(("title", "node", *_ASKED), atoms),
        **dict.fromkeys(("term_offsets", "token_offsets"), atoms + 1),
        "name_offsets": before + concepts + 1,
    }
    do = "give one entry for each atom of `embeddings` (offsets: one more, of concepts for names)"
    for name, length in lengths.items():
        if (column := getattr(data, name)) is not None:
            check_tensor(name, column, "", (length, 2) if name == "told" else (length,), do)


def memory_tensors(parts: Mapping[str, Tensor], listed: Listed | None = None) -> MemoryTensors:
    """What ranking reads, from the buffers of an index by name and what is not among them."""
    listed = Listed() if listed is None else listed
    values: dict[str, Any] = {name: parts[name] for name in _PLAIN}
    values |= {name: parts.get(name) for name in _OPTIONAL}
    hops = HopParts(*(parts[name] for name in HOP_PARTS)) if HOP_PARTS[0] in parts else None
    return MemoryTensors(
        **values,
        bm25=_bm25(parts, "bm25", listed.bm25),
        session_bm25=_bm25(parts, "session_bm25", listed.session_bm25),
        graph=graph_of(parts) if listed.graph is None else listed.graph,
        modes=modes_in(parts),
        hops=hops,
    )


def graph_tensors(graph: Graph) -> dict[str, Tensor]:
    """The buffers of an index that hold a conducting graph, by name."""
    return {f"graph_{name}": getattr(graph, name).detach() for name in GRAPH_PARTS}


def graph_of(parts: Mapping[str, Tensor]) -> Graph:
    """The conducting graph among the buffers of an index."""
    part = {name: parts[f"graph_{name}"] for name in GRAPH_PARTS}
    part["weight"] = part["weight"].to(torch.promote_types(part["weight"].dtype, torch.float32))
    return Graph(**part, num_nodes=len(part["indptr"]) - 1)


def modes_in(parts: Mapping[str, Tensor]) -> Modes | None:
    """The modes among the buffers of an index; None where it has none."""
    part = {name: parts[f"modes_{name}"] for name in MODE_PARTS if f"modes_{name}" in parts}
    return modes_from_tensors(part) if part else None


def _bm25(parts: Mapping[str, Tensor], prefix: str, lists: PostingLists | None) -> BM25:
    norm, idf = (parts[f"{prefix}_{name}"].float() for name in ("norm", "idf"))
    if lists is not None:
        return ListedBM25(lists, norm, idf)
    indptr, docs, counts = (parts[f"{prefix}_{name}"] for name in _BM25_PARTS[:3])
    return BM25(indptr, docs, counts, norm, idf)


def modes_by(
    settings: ModesConfig,
    embeddings: Tensor,  # [A, d]
    time: Tensor | None = None,  # [A] float64, NaN = unknown
    generator: torch.Generator | None = None,
) -> Modes:
    """The modes of atoms, as the settings say.

    A count above the number of atoms is no error here: a memory may be smaller than its preset.
    """
    count = min(settings.count, *embeddings.shape) or None
    return find_modes(
        embeddings,
        select=settings.select,
        count=count,
        epsilon=settings.epsilon,
        assign=settings.assign,
        time=time,
        generator=generator,
    )


def _first_met(codes: Tensor) -> Tensor:  # [n] int64, -1 = none -> [m] int64
    """The codes that there are, in the order of where each comes first."""
    if not len(codes):
        return codes
    place = np.full(int(codes.max()) + 2, len(codes))
    # Of equal ones the last that is written stays: the first.
    place[codes.numpy()[::-1] + 1] = np.arange(len(codes))[::-1]
    first = torch.from_numpy(place[1:])
    found = (first < len(codes)).nonzero().squeeze(1)
    return found[first[found].argsort()]


def _inverse(old: Tensor, size: int | None = None) -> Tensor:  # [m] int64 -> [size + 1] int64
    """Where each number stands among `old`; -1 for others, and, at the end, for none."""
    size = int(old.max()) + 1 if size is None and len(old) else size or 0
    place = torch.full((size + 1,), -1)
    place[old] = torch.arange(len(old))
    return place


def _lexical_parts(prefix: str, bm25: BM25) -> dict[str, Tensor]:
    """The buffers that `_bm25` reads; without the postings where they are lists."""
    listed = isinstance(bm25, ListedBM25)
    names = ("norm", "idf") if listed else _BM25_PARTS
    return {f"{prefix}_{name}": getattr(bm25, name) for name in names}


def _dates(time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Month 0..11, day of the month 0..30 and day since the epoch in UTC.

    Where the time is unknown -1, -1 and a day long before all others.
    """
    known = ~torch.isnan(time)
    stamps = time.nan_to_num(nan=0.0).numpy().astype("datetime64[s]")
    months = stamps.astype("datetime64[M]")
    dates = stamps.astype("datetime64[D]")
    month = torch.from_numpy(months.astype(np.int64) % 12)
    day = torch.from_numpy((dates - months.astype("datetime64[D]")).astype(np.int64))
    said = torch.from_numpy(dates.astype(np.int64))
    return (
        torch.where(known, month, -1).to(torch.int8),
        torch.where(known, day, -1).to(torch.int8),
        torch.where(known, said, torch.iinfo(torch.int32).min).to(torch.int32),
    )


def _document_frequency(
    pieces: Tensor,  # [T] integers
    offsets: Tensor,  # [n + 1] int64
    known: Tensor,  # [V] int32
) -> Tensor:  # [V] int32
    """In how many atoms each word piece occurs, and in those that are known."""
    size, count = np.diff(offsets.numpy()), len(known)
    atom = np.arange(len(size)).repeat(size)
    seen = torch.from_numpy(np.unique(atom * count + pieces.numpy()) % count)
    return known.index_add(0, seen, known.new_ones(1).expand(seen.shape))
