"""StoreColumns: reads what was added to a store as columns of an index.

Stored facts about an atom never change, so only atoms and edges added since are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.renumbering import Renamed
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.arrays import Array
from graphmem_torch.store.atom_columns import Coded
from graphmem_torch.store.batches import pick_tokens
from graphmem_torch.store.changes import Changes
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.store.text_columns import NUMBERS, TextColumns
from graphmem_torch.text.question import role_of
from graphmem_torch.text.terms import Vocabulary
from graphmem_torch.text.unicode_forms import composed

__all__ = ["StoreColumns"]

# Numbers of texts (`store.text_columns.NUMBERS`) that are columns of the input as they are.
_ALONE = (
    *("log_words", "is_question", "tells_time"),
    *("asked_key", "asked_words", "asked_bits", "asked_form"),
)


@dataclass(eq=False)
class StoreColumns:
    """Columns read from a store so far; for one thread at a time.

    Attributes:
        state: State of the store that was read; None before the first reading.
        vocabulary: Terms of the atoms.
        kinds, speakers, sessions: Codes of the names, ordered by first node.
        stop: First node that has not been read.
        edges: Number of edges in the store.
    """

    state: str | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    kinds: dict[str, int] = field(default_factory=dict)
    speakers: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    stop: int = 0
    edges: int = 0
    _titles: bool = False  # whether any atom has a title
    _names: list[list[str]] | None = None  # terms of each concept; None: not read
    _found: list[TextColumns] = field(default_factory=list)  # to store with `keep_texts`

    def to_dict(self) -> dict[str, Any]:
        """Return all but the vocabulary as JSON."""
        return {
            **{name: list(getattr(self, name)) for name in ("kinds", "speakers", "sessions")},
            "state": self.state,
            "titles": self._titles,
            "stop": self.stop,
            "edges": self.edges,
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any], vocabulary: Vocabulary) -> StoreColumns:
        """Restore from the result of `to_dict`; raises an error of any kind for other input."""
        names = "kinds", "speakers", "sessions"
        kinds, speakers, sessions = (
            {str(name): i for i, name in enumerate(kept[part])} for part in names
        )
        return cls(
            state=str(kept["state"]),
            vocabulary=vocabulary,
            kinds=kinds,
            speakers=speakers,
            sessions=sessions,
            stop=int(kept["stop"]),
            edges=int(kept["edges"]),
            _titles=bool(kept["titles"]),
        )

    def changes(self, store: TensorReader) -> Changes | None:
        """Return what was removed since the last reading; None if that is unknown.

        Call it and `read` inside the same `store.reading()`. Nodes that were never read are left
        out.
        """
        if self.state is None:
            return None
        changes = store.changes(self.state, self.edges)
        return changes and changes._replace(gone=changes.gone[changes.gone < self.stop])

    def rename(self, renamed: Renamed) -> None:
        """Renumber the names as in the index after nodes were removed; removed names go."""
        if renamed.terms is not None:
            words = self.vocabulary.words
            self.vocabulary = Vocabulary([words[i] for i in renamed.terms.tolist()])
        for names, old in (
            (self.kinds, renamed.kinds),
            (self.speakers, renamed.speakers),
            (self.sessions, renamed.sessions),
        ):
            listed = list(names)
            names.clear()
            names.update({listed[code]: i for i, code in enumerate(old.tolist())})
        self._names = None

    def read(
        self,
        store: TensorReader,
        num_pieces: int,
        changes: Changes | None,
        *,
        duplicates: bool = True,
    ) -> IndexInput:
        """Read what was added to the store since the last call, inside `store.reading()`.

        After an error the columns are unusable: start with new ones.

        Args:
            store: Store that is read to the end.
            num_pieces: Size of the vocabulary of the token vectors.
            changes: Result of `changes`; None at first.
            duplicates: Whether to find atoms of equal content.
        """
        state, edges = self.state, store.num_edges
        self.state = None  # unusable until all is read
        self.edges = 0 if changes is None else changes.kept
        start, stop, columns = self.stop, store.next_node, store.columns(self.stop)
        own = (~columns.is_concept).nonzero().squeeze(1)
        concepts = columns.is_concept.nonzero().squeeze(1)
        speaker = _recoded(columns.speaker, self.speakers)[own]
        texts = self._read_texts(store, columns.node.numpy(), columns.is_concept.numpy())
        numbers, lot = texts.numbers[own.numpy()], texts.numbers["lot"].astype(np.int64)
        offsets = np.concatenate([[0], numbers["terms"].cumsum(dtype=np.int64)])
        alone: dict[str, Any] = {name: torch.from_numpy(numbers[name].copy()) for name in _ALONE}
        self._titles |= bool((numbers["title"] >= 0).any())
        names: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
        if self._titles:
            if self._names is None:
                self._names = _names_of(store)
            else:
                self._names += texts.names
            names = self.vocabulary.encode_terms(self._names, grow=False)
        packed = store.tokens(start)
        tokens = None if packed is None else pick_tokens(packed, own)
        fresh = store.last_edges(edges - self.edges)
        if state is None and len(columns.node) < stop:  # skip edges of deleted nodes
            there = torch.zeros(stop, dtype=torch.bool).index_fill(0, columns.node, True)
            fresh = fresh.take(there[fresh.source] & there[fresh.target])
        added = IndexInput(
            embeddings=_rows(store.embeddings(start), own),
            terms=texts.terms,
            term_offsets=torch.from_numpy(offsets),
            vocab_size=max(1, len(self.vocabulary)),
            kind=_recoded(columns.kind, self.kinds)[own],
            speaker=speaker,
            num_speakers=len(self.speakers),
            session=_recoded(columns.session, self.sessions)[own],
            time=columns.time[own],
            role=_roles(columns.speaker)[own],
            told=torch.from_numpy(np.stack([numbers["told_start"], numbers["told_stop"]], 1)),
            edges=fresh,
            num_nodes=stop,
            node=columns.node[own],
            concept=columns.node[concepts],
            tokens=None if tokens is None else tokens.tokens,
            pieces=None if tokens is None else tokens.pieces,
            token_offsets=None if tokens is None else tokens.offsets,
            num_pieces=num_pieces,
            duplicate=store.first_nodes(start) if duplicates else None,
            title=torch.from_numpy(numbers["title"].astype(np.int64)),
            name_terms=names[0],
            name_offsets=names[1],
            lot=torch.from_numpy(np.concatenate([lot[own.numpy()], lot[concepts.numpy()]])),
            **alone,
        )
        self.stop, self.edges = stop, edges
        self.state = store.state
        return added

    def keep_texts(self, store: MemoryStore) -> None:
        """Store the columns of texts that were found anew, for later readings.

        Raises:
            StoreError: The store cannot be written, or its lock is kept.
        """
        found, self._found = self._found, []
        if found:
            with store.turn():
                store.kept_texts.keep(found)

    def _read_texts(self, store: TensorReader, node: Array, is_concept: Array) -> _ReadTexts:
        """Return the columns of the texts of the last nodes [n]."""
        ids, names = [torch.empty(0, dtype=torch.int64)], list[list[str]]()
        numbers = [np.empty(0, NUMBERS)]
        for part, rows, here in _text_parts(store, node, self._found):
            atoms = np.zeros(len(part.numbers), bool)
            atoms[rows[~is_concept[here]]] = True
            ids.append(self.vocabulary.encode_terms([part.only(atoms).terms])[0])
            numbers.append(part.numbers[rows])
            if self._names is not None and is_concept[here].any():
                listed = part.lists()
                names += [listed[row] for row in rows[is_concept[here]].tolist()]
        return _ReadTexts(np.concatenate(numbers), torch.cat(ids), names)


class _ReadTexts(NamedTuple):
    """Columns of the texts of n nodes.

    Attributes:
        numbers: [n] of `NUMBERS`.
        terms: [T] int64, the terms of the atoms.
        names: Terms of each concept; empty unless asked for.
    """

    numbers: Array
    terms: Tensor
    names: list[list[str]]


def _text_parts(
    store: TensorReader, node: Array, found: list[TextColumns]
) -> Iterator[tuple[TextColumns, Array, slice]]:
    """Yield the columns of the texts of nodes [n], their rows there, and which nodes they are.

    Texts without stored columns are read, and the parts that they complete are added to `found`.
    """
    from graphmem_torch.memory.text_finder import FINDER, found_in

    if not len(node):
        return
    for part in store.kept_texts.read(int(node[0]), int(node[-1]) + 1):
        stop = part.first + len(part.numbers)
        here = slice(*np.searchsorted(node, [part.first, stop]).tolist())
        rows = node[here] - part.first
        missing = rows[part.numbers["version"][rows] != FINDER]
        if len(missing):
            atoms = store.atoms((part.first + missing).tolist())
            part = part.with_rows(missing.tolist(), list(map(found_in, atoms)))
            found.append(part)
        yield part, rows, here


def _rows(tensor: Tensor, own: Tensor) -> Tensor:  # [n, d], [m] int64 -> [m, d]
    """Return some rows in order, or the tensor itself if they are all."""
    return tensor if len(own) == len(tensor) else tensor[own]


def _names_of(store: TensorReader) -> list[list[str]]:
    """Return the terms of the name of each concept."""
    node, atoms = store.nodes().numpy(), store.nodes(concepts=False).numpy()
    concepts = np.setdiff1d(node, atoms, assume_unique=True)
    return [
        terms
        for part, rows, _ in _text_parts(store, concepts, [])
        for listed in [part.lists()]
        for terms in map(listed.__getitem__, rows.tolist())
    ]


def _roles(speaker: Coded) -> Tensor:  # [n] int8
    """Return 1 for a user, -1 for an assistant, 0 for anybody else."""
    roles = [role_of(name) for name in speaker.names]
    return torch.tensor([*roles, 0], dtype=torch.int8)[speaker.codes.long()]


def _recoded(column: Coded, names: dict[str, int]) -> Tensor:  # [n] int64
    """Map the codes of a column part to those of the whole column, by NFC; -1 stays."""
    codes = [names.setdefault(composed(name), len(names)) for name in column.names]
    return torch.tensor([*codes, -1], dtype=torch.int64)[column.codes.long()]
