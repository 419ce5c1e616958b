"""StoreColumns: reads what was added to a store as columns of an index.

Stored facts about an atom never change, so only atoms and edges added since are read.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, titled
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.renumbering import Renamed
from graphmem_torch.store.atom_columns import Coded, Columns
from graphmem_torch.store.batches import pick_tokens
from graphmem_torch.store.changes import Changes
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.asked import FORMS, NOTHING_ASKED, Asked, read_asked
from graphmem_torch.text.question import is_question, role_of, tells_time
from graphmem_torch.text.terms import Vocabulary, terms, title_terms
from graphmem_torch.text.times import told_days
from graphmem_torch.text.unicode_forms import composed
from graphmem_torch.text.words import count_words

__all__ = ["StoreColumns"]

_MOST_WORDS = 1 << 14  # maximum words of a question


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
        texts = list(store.texts(start))
        own = (~columns.is_concept).nonzero().squeeze(1)
        concepts = columns.is_concept.nonzero().squeeze(1)
        bodies = [texts[i] for i in own.tolist()]
        speaker = _recoded(columns.speaker, self.speakers)[own]
        found, offsets = self.vocabulary.encode(bodies)
        asked = _asked(store, start, bodies, columns, own)
        title = torch.tensor([title_terms(text) for text in bodies], dtype=torch.int64)
        self._titles |= bool((title >= 0).any())
        names: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
        if self._titles:
            if self._names is None:
                self._names = [terms(text) for text in store.texts(kind=CONCEPT)]
            else:
                self._names += [terms(texts[i]) for i in concepts.tolist()]
            names = self.vocabulary.encode_terms(self._names, grow=False)
        packed = store.tokens(start)
        tokens = None if packed is None else pick_tokens(packed, own)
        fresh = store.last_edges(edges - self.edges)
        if state is None and len(columns.node) < stop:  # skip edges of deleted nodes
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
                [math.log1p(count_words(text)) for text in bodies], dtype=torch.float32
            ),
            is_question=torch.tensor([is_question(text) for text in bodies], dtype=torch.bool),
            tells_time=torch.tensor([tells_time(text) for text in bodies], dtype=torch.bool),
            role=_roles(columns.speaker)[own],
            asked_key=torch.tensor([each.key for each in asked], dtype=torch.int64),
            asked_words=torch.tensor(
                [min(len(each.terms), _MOST_WORDS) for each in asked], dtype=torch.int16
            ),
            asked_bits=torch.tensor([each.bits for each in asked], dtype=torch.int64),
            asked_form=torch.tensor([FORMS.index(each.form) for each in asked], dtype=torch.int8),
            told=torch.tensor(
                list(map(told_days, bodies, columns.time[own].tolist())), dtype=torch.int32
            ).view(-1, 2),
            edges=fresh,
            num_nodes=stop,
            node=columns.node[own],
            concept=columns.node[concepts],
            tokens=None if tokens is None else tokens.tokens,
            pieces=None if tokens is None else tokens.pieces,
            token_offsets=None if tokens is None else tokens.offsets,
            num_pieces=num_pieces,
            duplicate=store.first_nodes(start) if duplicates else None,
            title=title,
            name_terms=names[0],
            name_offsets=names[1],
            lot=torch.tensor(
                [_lot(texts[i]) for i in (*own.tolist(), *concepts.tolist())], dtype=torch.int64
            ),
        )
        self.stop, self.edges = stop, edges
        self.state = store.state
        return added


def _asked(
    store: TensorReader, start: int, bodies: Sequence[str], columns: Columns, own: Tensor
) -> list[Asked]:
    """Return the questions that atoms ask, without titles and names of speakers.

    An entry without speaker and session asks nothing if its title or metadata may hold the answer.
    """
    names = [*columns.speaker.names, None]
    speakers = [names[code] for code in columns.speaker.codes[own].tolist()]
    with_meta = torch.tensor([node for node, _ in store.fields("meta", start)], dtype=torch.int64)
    titles = dict(store.fields("title", start))
    more = torch.cat([with_meta, torch.tensor([*titles], dtype=torch.int64)])
    entry = (columns.speaker.codes < 0) & (columns.session.codes < 0)
    entry &= torch.isin(columns.node, more)
    said = [
        text.removeprefix(titled(titles.get(node), "")).removeprefix(f"{speaker}: ")
        for text, speaker, node in zip(bodies, speakers, columns.node[own].tolist(), strict=True)
    ]
    return [
        NOTHING_ASKED if filed else read_asked(text)
        for text, filed in zip(said, entry[own].tolist(), strict=True)
    ]


def _lot(text: str) -> int:
    """Return a number below 2^32 that depends only on the text."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _roles(speaker: Coded) -> Tensor:  # [n] int8
    """Return 1 for a user, -1 for an assistant, 0 for anybody else."""
    roles = [role_of(name) for name in speaker.names]
    return torch.tensor([*roles, 0], dtype=torch.int8)[speaker.codes.long()]


def _recoded(column: Coded, names: dict[str, int]) -> Tensor:  # [n] int64
    """Map the codes of a column part to those of the whole column, by NFC; -1 stays."""
    codes = [names.setdefault(composed(name), len(names)) for name in column.names]
    return torch.tensor([*codes, -1], dtype=torch.int64)[column.codes.long()]
