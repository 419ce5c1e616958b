"""Index data: build the buffers of an index from the columns of a memory, and update them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config
from graphmem_torch.coo import isin, offsets_of, without_once
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.index.activation_graph import ActivationGraph
from graphmem_torch.index.buffer_schema import LAYOUT
from graphmem_torch.index.buffers import Listed, graph_of, graph_tensors, lexical_parts, modes_by
from graphmem_torch.index.index_input import (
    ASKED,
    IndexInput,
    check_input,
    dates_of,
    document_frequency,
)
from graphmem_torch.index.joints import is_about, joints_of, list_entries
from graphmem_torch.index.renumbering import Renamed, first_met, inverse
from graphmem_torch.modes.find import (
    Modes,
    modes_to_tensors,
)
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.growing import GrowingLists, GrowingRows
from graphmem_torch.ops.postings import Postings
from graphmem_torch.ops.ragged import row_entries, runs
from graphmem_torch.ops.sorted_rows import merged_order
from graphmem_torch.rank.hops import HOP_PARTS, HopParts, hop_parts
from graphmem_torch.rank.population import row_sums
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.rank.routing import relative_pagerank, routing_parts
from graphmem_torch.rank.shared_hops import HopInputs

__all__ = [
    "FOLLOWED",
    "LENGTH_DISCOUNT",
    "SESSION_DISCOUNT",
    "GrowingIndex",
    "index_tensors",
]

LENGTH_DISCOUNT, SESSION_DISCOUNT = 0.3, 0.75
"""b of BM25 for atoms and for sessions."""


def index_tensors(data: IndexInput, config: Config) -> dict[str, Tensor]:
    """Derive the buffers of `MemoryIndex`, by name, from the columns of a memory.

    Raises:
        InputError: Columns have different lengths.
    """
    return GrowingIndex(config).append(data)


_INPUTS = ("terms", "term_offsets", "title", "pieces")  # growing columns that are no buffers
_GROWN = (
    *("embeddings", "node", "kind", "speaker", "session", "time_bits", "month", "day"),
    *("said", "told"),
    *("log_words", "is_question", "tells_time", "role", "duplicate", "tokens", "token_offsets"),
    *("asked_key", "asked_words", "asked_bits", "asked_form"),
)
FOLLOWED = tuple(name for name in LAYOUT if name.startswith("follow_"))
"""State of a `GrowingIndex` that is stored beside the buffers of an index, by name."""

_CONCEPT = 1 << 32  # added to a concept's lot, so that edges to atoms come first


class GrowingIndex:
    """Buffers of an index to which atoms and edges are added; one writer at a time.

    Returned buffers never change. Growing columns are appended to in place, changed edges and
    postings become lists at the end, and the rest is copied. Adding a few atoms costs their own
    edges and postings, plus a copy of a few numbers per atom, node and term. Nothing is sorted or
    counted again.
    """

    def __init__(self, config: Config) -> None:
        """Create an index without atoms."""
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
        # Joints of turns and of derived atoms: source, target, type.
        self._joints = GrowingRows(torch.empty(0, 3, dtype=torch.int64))
        self._about = GrowingLists({"target": torch.int32, "type": torch.uint8})  # of each node
        self._derived = torch.empty(2, 0, dtype=torch.int64)
        self._previous = self._next = torch.empty(0, dtype=torch.int32)
        self._piece_df = torch.empty(0, dtype=torch.int32)
        self._row_sums: Tensor | None = None  # `row_sums` of the embeddings, in a large memory
        # Rows by their times, and those that state days by the first one.
        self._time_order = self._told_order = torch.empty(0, dtype=torch.int32)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the state that the buffers do not contain, for `from_tensors`."""
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
        """Continue from the buffers of an index and a matching `to_tensors`.

        The result takes over the tensors that are no buffers, and writes to them.

        Raises:
            InputError: A part of `to_tensors` is missing.
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
        tells = is_about(joints)
        own._joints = GrowingRows(joints[~tells])
        own._add_about(joints[tells], len(parts["atom"]))
        own._lot = GrowingRows(follow["lot"])
        own._derived = torch.stack([parts["derived_source"], parts["derived_target"]]).long()
        own._previous, own._next = parts["previous"], parts["next"]
        own._piece_df = parts.get("piece_df", own._piece_df)
        moments = parts.get("moment_bits")
        own._row_sums = None if moments is None else moments.view(torch.float64)
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
        """Parts that changed since the first build, and are no buffers."""
        graph = self._graph.graph
        return Listed(
            graph if isinstance(graph, AppendableGraph) else None,
            self._postings.listed,
            self._session_postings.listed,
        )

    @property
    def concepts(self) -> Tensor:  # [K] int64
        """Nodes of the concepts, in the order of `HopParts`."""
        return self._concepts.view

    @property
    def rank_error(self) -> float:
        """Maximum relative L1 error of the maintained PageRank."""
        return 0.0 if self._graph.rank is None else self._graph.rank.error

    def append(
        self,
        data: IndexInput,
        cut: EdgeBlock | None = None,
        modes: Callable[[Tensor, Tensor, Tensor], Modes] | None = None,
    ) -> dict[str, Tensor]:
        """Add atoms, concepts and edges, and return all buffers except those in `listed`.

        Args:
            data: The new atoms, concepts and edges.
            cut: Edges to remove, old or new.
            modes: Function of embeddings, times and nodes of all atoms that returns their modes, if
                the settings ask for them. By default they are found, unless `data` has them.

        Raises:
            InputError: Columns have different lengths; nothing was added.
        """
        check_input(data, len(self._concepts))
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
        self._sum_rows(rows["embeddings"], data.embeddings)
        if self._row_sums is not None:
            tensors["moment_bits"] = self._row_sums.view(torch.int64)
        if self._graph.rank is not None:
            node = rows["node"].long()
            tensors["pagerank"] = relative_pagerank(graph, node, self._graph.rank.values)
        if self._config.modes.use != "none" and self._count:
            node, time = rows["node"].long(), rows["time_bits"].view(torch.float64)
            given = data.modes or (modes and modes(rows["embeddings"], time, node))
            found = given or modes_by(self._config.modes, rows["embeddings"], time)
            tensors |= {f"modes_{name}": part for name, part in modes_to_tensors(found).items()}
        if (hops := self._hops(data, rows)) is not None:
            tensors |= {name: getattr(hops, name.removeprefix("hop_")) for name in HOP_PARTS}
        return tensors

    def remove(self, nodes: Tensor, kinds: Sequence[int] = ()) -> Renamed:
        """Remove atoms and concepts; cut their edges with the next `append`.

        Renumbers rows, sessions, kinds, speakers and terms as if the removed ones had never
        existed, keeping their order. No text is read again.

        Args:
            nodes: [n] int64, nodes that were added.
            kinds: Code of the kind of the concepts, which atoms may share; empty if there is none.
        """
        atom, before = self._atom.view, {name: rows.view for name, rows in self._rows.items()}
        gone = torch.zeros(len(atom), dtype=torch.bool).index_fill(0, nodes, True)
        left = gone[before["node"].long()]
        kept = (~left).nonzero().squeeze(1)
        new = torch.full((self._count + 1,), -1, dtype=torch.int32)  # and an entry for -1
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
        # If a kind occurs at concepts alone, the first concept sets its position.
        kind, node = rows["kind"].long(), rows["node"].long()
        if kinds and len(concept):
            kind, node = torch.cat([kind, kind.new_tensor(kinds)]), torch.cat([node, concept[:1]])
        order = node.argsort()
        own_kinds, gone_texts = first_met(kind[order]), _texts_of(before, left)
        # Terms are renumbered only if the first atom with one of them is removed.
        first_of = self._postings.weighed().first_documents()[gone_texts.terms].long()
        terms = first_met(rows["terms"]) if bool(left[first_of].any()) else None
        speakers = first_met(rows["speaker"].long())
        sessions = first_met(rows["session"].long())
        for name, old in (
            ("terms", terms),
            ("kind", own_kinds),
            ("speaker", speakers),
            ("session", sessions),
        ):
            if old is not None:
                held[name].array[:] = inverse(old).numpy()[held[name].array]
        given = inverse(sessions, self._sessions)[self._session_of.view]
        there = (given >= 0).nonzero().squeeze(1)
        number, self._sessions = self._sessions, len(sessions)
        self._session_of = GrowingRows(given[there])
        if "duplicate" in rows:
            group = rows["duplicate"].long()
            earliest = torch.full((len(new),), len(new)).scatter_reduce(
                0, group, torch.arange(len(kept)), "amin"
            )
            held["duplicate"].array[:] = earliest[group].numpy()
        if self._row_sums is not None:
            self._row_sums = self._row_sums - row_sums(before["embeddings"][left])
        if "pieces" in rows:
            ends = before["token_offsets"]
            _, entry = row_entries(ends, left.nonzero().squeeze(1))
            those = before["pieces"][entry], offsets_of(ends.diff()[left])
            self._piece_df = self._piece_df - document_frequency(
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
        self._remove_terms(gone_texts, new, terms, inverse(sessions, number))
        return Renamed(terms, own_kinds, speakers, there)

    def _add_nodes(self, data: IndexInput) -> None:
        """Add the new nodes: the atom and time of each."""
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
        """Number of atoms so far."""
        return len(self._rows["node"]) if self._rows else 0

    def _grow(self, name: str, rows: Tensor) -> None:
        if name in self._rows and len(self._rows[name]):
            self._rows[name].append(rows)
        else:  # the first rows set the width
            self._rows[name] = GrowingRows(rows)

    def _add_columns(self, data: IndexInput) -> None:
        """Add the columns of the new atoms that depend on each atom alone."""
        month, day, said = dates_of(data.time)
        columns = {
            "embeddings": data.embeddings,
            "kind": data.kind.to(torch.int16),
            "speaker": data.speaker.to(torch.int32),
            "session": self._session_codes(data.session).to(torch.int32),
            # Stored as integers of the same bits, so that `.half()` does not round seconds.
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
        for name, dtype in ASKED.items():
            given = getattr(data, name)
            columns[name] = torch.zeros(data.kind.shape, dtype=dtype) if given is None else given
        if data.duplicate is not None and self._config.modes.use != "none":
            columns["duplicate"] = self._atom.view[data.duplicate]
        old = len(self._rows["kind"]) if "kind" in self._rows else 0
        self._grow_offsets("term_offsets", data.term_offsets, old)
        if data.tokens is not None and data.pieces is not None and data.token_offsets is not None:
            columns["tokens"], columns["pieces"] = data.tokens, data.pieces.to(torch.int32)
            self._grow_offsets("token_offsets", data.token_offsets, old)
            if more := max(1, data.num_pieces) - len(self._piece_df):
                self._piece_df = torch.nn.functional.pad(self._piece_df, (0, more))
            self._piece_df = document_frequency(data.pieces, data.token_offsets, self._piece_df)
        for name, column in columns.items():
            self._grow(name, column)
        time, told = self._rows["time_bits"].view.view(torch.float64), self._rows["told"].view
        fresh = torch.arange(old, len(time), dtype=torch.int32)
        self._time_order = merged_order(self._time_order, time, fresh)
        tells = columns["told"][:, 1] > columns["told"][:, 0]
        self._told_order = merged_order(self._told_order, told[:, 0], fresh[tells])

    def _sum_rows(self, rows: Tensor, fresh: Tensor) -> None:  # [A, d], [n, d]
        """Update the sums of the embeddings, which only a memory with a shortlist reads."""
        rank = self._config.rank
        if rank.scale == "raw" or len(rows) <= rank.exhaustive_up_to:
            self._row_sums = None
        elif self._row_sums is None:
            self._row_sums = row_sums(rows)
        elif len(fresh):
            self._row_sums = self._row_sums + row_sums(fresh)

    def _grow_offsets(self, name: str, offsets: Tensor, old: int) -> None:
        """Add the entries of new atoms after those of `old` ones, which may have none."""
        if name not in self._rows:
            self._rows[name] = GrowingRows(torch.zeros(old + 1, dtype=torch.int64))
        self._rows[name].append(offsets[1:] + self._rows[name].view[-1])

    def _session_codes(self, given: Tensor) -> Tensor:  # [n] int64, -1 = none -> [n] int64
        """Number sessions in order of arrival; an atom without one gets its own."""
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
        """Add missing terms of atoms to both lexical indexes and return their buffers."""
        old, count = len(self._postings.lengths), self._count
        offsets = self._rows["term_offsets"].view[old:]
        terms = self._rows["terms"].view[offsets[0] :]
        text = torch.arange(old, count, dtype=torch.int32), count
        session = self._rows["session"].view[old:], self._sessions
        tensors: dict[str, Tensor] = {}
        for name, postings, (documents, number), b in (
            ("bm25", self._postings, text, LENGTH_DISCOUNT),
            ("session_bm25", self._session_postings, session, SESSION_DISCOUNT),
        ):
            added = terms, offsets - offsets[0], documents
            postings.add(*added, vocab_size=data.vocab_size, num_docs=number)
            tensors |= lexical_parts(name, postings.weighed(b=b))
        return tensors

    def _remove_terms(
        self,
        gone: _Texts,
        new: Tensor,  # [A + 1]
        terms: Tensor | None,  # [V] int64
        sessions: Tensor,  # [S + 1] int64
    ) -> None:
        """Remove the terms of removed texts from both lexical indexes.

        Args:
            gone: Removed texts.
            new: New row of each row, -1 = removed.
            terms: Remaining terms, by their old numbers; None: unchanged.
            sessions: New number of each session, -1 = removed.
        """
        for postings, documents, number in (
            (self._postings, gone.rows.to(torch.int32), new[:-1]),
            (self._session_postings, gone.session, sessions[:-1]),
        ):
            postings.remove(gone.terms, gone.offsets, documents, kept_terms=terms, number=number)
        self._lexical = {}

    def _join(self, edges: EdgeBlock, cut: EdgeBlock) -> None:
        """Update turn neighbours, derivations and concepts from the edges that define them."""
        added, gone = joints_of(edges), joints_of(cut)
        about, none = is_about(added), is_about(gone)
        self._add_about(added[about], len(self._atom))
        self._about.discard(*list_entries(gone[none]))
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
            # The ends of a removed edge may have another.
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
            self._about.append(*list_entries(joints))

    def _between_atoms(self, joints: Tensor, type: EdgeType = EdgeType.TEMPORAL) -> Tensor:
        """Return [2, n], the atoms at the ends of edges of a type that join two atoms."""
        rows = joints.numpy()
        ends = self._atom.array[rows[rows[:, 2] == int(type), :2]].astype(np.int64)
        return torch.from_numpy(ends[(ends >= 0).all(1)]).T

    def _hops(self, data: IndexInput, rows: Mapping[str, Tensor]) -> HopParts | None:
        """Build the parts of hops if there are documents: titled atoms that stand alone."""
        if not bool((rows["title"] >= 0).any()):
            return None
        alone = (self._previous < 0) & (self._next < 0) & (rows["speaker"] < 0)
        title = rows["title"].where(alone, -1)
        if not bool(title.ge(0).any()):
            return None
        names, offsets = data.name_terms, data.name_offsets
        if names is None or offsets is None:
            names, offsets = title.new_empty(0), title.new_zeros(len(self._concepts) + 1)
        return hop_parts(rows["terms"], rows["term_offsets"], title, self._told(), names, offsets)

    def _told(self) -> tuple[Tensor, Tensor]:  # [E] int64 each
        """Return which atoms are about which concepts, in the order of `HopParts`."""
        number = torch.full((len(self._atom),), -1)
        number[self._concepts.view] = torch.arange(len(self._concepts))
        counts, about = self._about.compact()
        source = self._atom.view.long().repeat_interleave(counts)
        target = number[about["target"].long()]
        there = (source >= 0) & (target >= 0)
        return source[there], target[there]

    def hop_inputs(self, document: Tensor | None) -> HopInputs:  # [A] bool
        """Return what hops are made from; `document` is that of `HopParts`, None without any."""
        terms, offsets, title = (
            self._rows[name].view for name in ("terms", "term_offsets", "title")
        )
        none = torch.zeros(len(title), dtype=torch.bool) if document is None else document
        return HopInputs(terms, offsets, title.where(none, -1), *self._told())


class _Texts(NamedTuple):
    """Texts of some atoms.

    Attributes:
        rows, session: [n] int64 and int32, columns of the atoms.
        terms, offsets: [T] and [n + 1] int64, in the form of `IndexInput`.
    """

    rows: Tensor
    session: Tensor
    terms: Tensor
    offsets: Tensor


def _texts_of(rows: Mapping[str, Tensor], which: Tensor) -> _Texts:  # [A] bool
    """Select the texts of some atoms from the columns of an index."""
    own = which.nonzero().squeeze(1)
    _, entry = row_entries(rows["term_offsets"], own)
    ends = offsets_of(rows["term_offsets"].diff()[own])
    return _Texts(own, rows["session"][own], rows["terms"][entry], ends)


def _spans(kept: Tensor) -> tuple[np.ndarray, np.ndarray]:  # [n] int64 -> [s], [s] int64
    """Return the starts and lengths of runs of consecutive rows."""
    rows = kept.numpy()
    begin, count = runs(rows - np.arange(len(rows)))
    return rows[begin], count


def _ranked(config: Config) -> bool:
    """Return whether a signal reads PageRank, which then has to be maintained."""
    return "pagerank" in routing_parts(
        signal_names((*config.rank.weights, *config.rank.cold_weights))
    )
