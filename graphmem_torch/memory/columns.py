"""StoreColumns: what was added to a store, as columns of an index.

What is said about an atom never changes, so a state of the store is the state before and some
atoms and edges: only these are read and looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.data import IndexInput
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.blocks import pick_tokens
from graphmem_torch.store.records import Coded
from graphmem_torch.text.question import is_question, tells_time
from graphmem_torch.text.terms import Vocabulary, terms, title_terms

__all__ = ["StoreColumns"]


@dataclass(eq=False)
class StoreColumns:
    """What has been read of a store so far; one thread at a time.

    Attributes:
        state: Which state of the store that is; None before the first.
        vocabulary: The terms of the atoms.
        kinds, speakers, sessions: Numbers of the names, in the order of their first node.
        concept_names: The terms of the name of each concept.
    """

    state: str | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    kinds: dict[str, int] = field(default_factory=dict)
    speakers: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    concept_names: list[list[str]] = field(default_factory=list)
    _first: dict[tuple[str, int], int] = field(default_factory=dict)
    _titles: bool = False  # whether any atom has one
    _stop: int = 0  # the first node that has not been read
    _count: int = 0  # atoms, without concepts
    _edges: int = 0  # in the store

    def read(self, store: MemoryStore, num_pieces: int) -> tuple[IndexInput, EdgeBlock] | None:
        """What was added to the store since the last call, and the edges that are gone.

        Inside `store.reading()`. None where that is not known, or more than edges is gone: what was
        read is of no use then, and only new columns are. So it is after an error.

        Args:
            store: Of which everything was read.
            num_pieces: Size of the vocabulary of the token vectors.
        """
        state, edges, cut = self.state, store.num_edges, EdgeBlock.empty()
        self.state = None  # until all is read
        if state is not None:
            changes = store.changes(state, self._edges)
            if changes is None or len(changes.gone):
                return None
            cut, self._edges = changes.cut, changes.kept
        start, stop, columns = self._stop, store.next_node, store.columns(self._stop)
        texts = list(store.texts(start))
        own = (~columns.is_concept).nonzero().squeeze(1)
        concepts = columns.is_concept.nonzero().squeeze(1)
        bodies = [texts[i] for i in own.tolist()]
        speaker = _recoded(columns.speaker, self.speakers)[own]
        found, offsets = self.vocabulary.encode(bodies)
        keys = zip(bodies, speaker.tolist(), strict=True)
        first = [self._first.setdefault(key, self._count + i) for i, key in enumerate(keys)]
        title = torch.tensor([title_terms(text) for text in bodies], dtype=torch.int64)
        self.concept_names += [terms(texts[i]) for i in concepts.tolist()]
        self._titles |= bool((title >= 0).any())
        names: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
        if self._titles:
            names = self.vocabulary.encode_terms(self.concept_names, grow=False)
        packed = store.tokens(start)
        tokens = None if packed is None else pick_tokens(packed, own)
        fresh = store.last_edges(edges - self._edges)
        if state is None and len(columns.node) < stop:  # edges of deleted nodes are none
            there = torch.zeros(stop, dtype=torch.bool).index_fill(0, columns.node, True)
            fresh = fresh.take(there[fresh.source] & there[fresh.target])
        added = IndexInput(
            embeddings=store.embeddings(start)[own],
            terms=found,
            term_offsets=offsets,
            vocab_size=max(1, len(self.vocabulary)),
            kind=_recoded(columns.kind, self.kinds)[own],
            speaker=speaker,
            num_speakers=len(self.speakers),
            session=_recoded(columns.session, self.sessions)[own],
            time=columns.time[own],
            log_words=torch.tensor(
                [math.log1p(len(text.split())) for text in bodies], dtype=torch.float32
            ),
            is_question=torch.tensor([is_question(text) for text in bodies], dtype=torch.bool),
            tells_time=torch.tensor([tells_time(text) for text in bodies], dtype=torch.bool),
            edges=fresh,
            num_nodes=stop,
            node=columns.node[own],
            concept=columns.node[concepts],
            tokens=None if tokens is None else tokens.tokens,
            pieces=None if tokens is None else tokens.pieces,
            token_offsets=None if tokens is None else tokens.offsets,
            num_pieces=num_pieces,
            duplicate=torch.tensor(first, dtype=torch.int64),
            title=title,
            name_terms=names[0],
            name_offsets=names[1],
        )
        self._stop, self._count, self._edges = stop, self._count + len(own), edges
        self.state = store.state
        return added, cut


def _recoded(column: Coded, names: dict[str, int]) -> Tensor:  # [n] int64
    """The codes of a part of a column as those of the whole; -1 stays."""
    codes = [names.setdefault(name, len(names)) for name in column.names]
    return torch.tensor([*codes, -1], dtype=torch.int64)[column.codes.long()]
