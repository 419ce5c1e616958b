"""StoreColumns: the atoms of a store as columns of an index, which follow what is added.

What is said about an atom never changes, so a state of the store is the columns of the state before
and some rows: only these are read and looked at. Whoever holds columns of an earlier state keeps
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.ops.growing import GrowingRows
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.blocks import pick_tokens
from graphmem_torch.store.records import Coded
from graphmem_torch.text.question import is_question, tells_time
from graphmem_torch.text.terms import Vocabulary, terms, title_terms

__all__ = ["StoreColumns"]

_ROWS = {
    "node": torch.int64,
    "kind": torch.int64,
    "speaker": torch.int64,
    "session": torch.int64,
    "time": torch.float64,
    "terms": torch.int64,
    "term_offsets": torch.int64,
    "log_words": torch.float32,
    "is_question": torch.bool,
    "tells_time": torch.bool,
    "title": torch.int64,
    "duplicate": torch.int64,
    "concept": torch.int64,
}


@dataclass(eq=False)
class StoreColumns:
    """The columns of the atoms that have been read so far; one thread at a time.

    Attributes:
        vocabulary: The terms of the atoms.
        kinds, speakers, sessions: Names behind the codes, in the order of their first node.
        concept_names: The terms of the name of each concept.
    """

    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    kinds: dict[str, int] = field(default_factory=dict)
    speakers: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    concept_names: list[list[str]] = field(default_factory=list)
    _rows: dict[str, GrowingRows] = field(default_factory=dict)  # without any nothing was read
    _first: dict[tuple[str, int], int] = field(default_factory=dict)
    _stop: int = 0  # the first node that has not been read
    _nodes: int = 0  # how many atoms and concepts there were

    def __getitem__(self, name: str) -> Tensor:
        """A column by its name in `IndexInput`, or `concept`, the nodes of the concepts."""
        return self._rows[name].view

    def get(self, name: str) -> Tensor | None:
        """The same; None for what the store has not."""
        return self[name] if name in self._rows else None

    def follow(self, store: MemoryStore) -> None:
        """Takes in what was added since the last call; inside `store.reading()`."""
        try:
            with torch.inference_mode(False):  # what is made inside of it could not be added to
                self._read(store)
        except BaseException:
            # Whatever came between, Ctrl-C included: columns of different lengths help nobody.
            self._start_anew()
            raise

    def _start_anew(self) -> None:
        self.__init__()  # type: ignore[misc]
        self._rows = {name: GrowingRows(torch.empty(0, dtype=kind)) for name, kind in _ROWS.items()}
        self._rows["term_offsets"].append(torch.zeros(1, dtype=torch.int64))

    def _read(self, store: MemoryStore) -> None:
        stop, columns = store.next_node, store.columns(self._stop)
        if not self._rows or store.num_nodes != self._nodes + len(columns.node):
            self._start_anew()  # some of what was read is gone
            columns = store.columns()
        start = self._stop
        texts = list(store.texts(start))
        own = (~columns.is_concept).nonzero().squeeze(1)
        concepts = columns.is_concept.nonzero().squeeze(1)
        bodies = [texts[i] for i in own.tolist()]
        speaker = _recoded(columns.speaker, self.speakers)[own]
        found, offsets = self.vocabulary.encode(bodies)
        keys = zip(bodies, speaker.tolist(), strict=True)
        count = len(self["node"])
        first = [self._first.setdefault(key, count + i) for i, key in enumerate(keys)]
        self._add("embeddings", store.embeddings(start)[own])
        packed = store.tokens(start)
        if packed is not None:
            picked = pick_tokens(packed, own)
            self._add("tokens", picked.tokens)
            self._add("pieces", picked.pieces)
            if "token_offsets" not in self._rows:  # the atoms before had no token vectors
                self._add("token_offsets", torch.zeros(count + 1, dtype=torch.int64))
            self._add("token_offsets", picked.offsets[1:] + self["token_offsets"][-1])
        self._add("node", columns.node[own])
        self._add("concept", columns.node[concepts])
        self._add("kind", _recoded(columns.kind, self.kinds)[own])
        self._add("speaker", speaker)
        self._add("session", _recoded(columns.session, self.sessions)[own])
        self._add("time", columns.time[own])
        self._add("terms", found)
        self._add("term_offsets", offsets[1:] + self["term_offsets"][-1])
        self._add("log_words", [math.log1p(len(text.split())) for text in bodies])
        self._add("is_question", [is_question(text) for text in bodies])
        self._add("tells_time", [tells_time(text) for text in bodies])
        self._add("title", [title_terms(text) for text in bodies])
        self._add("duplicate", first)
        self.concept_names += [terms(texts[i]) for i in concepts.tolist()]
        self._stop, self._nodes = stop, self._nodes + len(columns.node)

    def _add(self, name: str, rows: Any) -> None:
        if isinstance(rows, list):
            rows = torch.tensor(rows, dtype=_ROWS[name])
        if name in self._rows and len(self[name]):
            self._rows[name].append(rows)
        else:  # the first say how wide they are
            self._rows[name] = GrowingRows(rows)


def _recoded(column: Coded, names: dict[str, int]) -> Tensor:  # [n] int64
    """The codes of a part of a column as those of the whole; -1 stays."""
    codes = [names.setdefault(name, len(names)) for name in column.names]
    return torch.tensor([*codes, -1], dtype=torch.int64)[column.codes.long()]
