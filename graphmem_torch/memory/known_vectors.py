"""Known vectors: vectors of atoms that are not encoded, as they are given, imported or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.store import MemoryStore, TokenRows
from graphmem_torch.store.batches import join_tokens, pick_tokens
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked

__all__ = [
    "NOTHING_KNOWN",
    "AtomVectors",
    "HeldVectors",
    "KnownVectors",
    "embedding_alone",
    "encoded_atoms",
    "joined",
    "rows_of",
    "stored_rows",
    "token_rows",
]

AtomVectors = tuple[Tensor, Tensor, Tensor]
"""Embedding [d], token vectors [t, m] int8 and their pieces [t] int32 of one atom."""


class HeldVectors(Protocol):
    """Vectors by row, in a file or in memory."""

    def take(self, rows: Sequence[int]) -> Encoded:
        """Return the vectors of rows, in any order."""


class _Listed:
    """Vectors of single atoms."""

    def __init__(self, vectors: Sequence[AtomVectors]) -> None:
        self._vectors = vectors

    def take(self, rows: Sequence[int]) -> Encoded:
        """Return the vectors of rows."""
        return _encoded([self._vectors[row] for row in rows])


class KnownVectors:
    """Vectors of atoms by id.

    A vector belongs to an atom and not to its text: two atoms of one text may have two.
    """

    def __init__(self, rows: Mapping[str, int], held: HeldVectors) -> None:
        """Read no vector yet.

        Args:
            rows: Row by id; may be filled while it is used.
            held: The vectors by row.
        """
        self._rows, self._held = rows, held

    @classmethod
    def listed(cls, vectors: Mapping[str, AtomVectors]) -> KnownVectors:
        """Return vectors by id."""
        rows = {name: row for row, name in enumerate(vectors)}
        return cls(rows, _Listed(list(vectors.values())))

    def __contains__(self, id: object) -> bool:
        """Return whether the vectors of an atom are known."""
        return id in self._rows

    def of(self, ids: Sequence[str]) -> Encoded:
        """Return the vectors of atoms, which must be known."""
        return self._held.take([self._rows[name] for name in ids])

    def beside(self, others: Mapping[str, AtomVectors], ids: Sequence[str]) -> KnownVectors:
        """Return the vectors of these atoms, from `others` where they are not known."""
        if not others:
            return self
        own = [name for name in ids if name in self]
        rows = rows_of(self.of(own)) if own else []
        return KnownVectors.listed({**others, **dict(zip(own, rows, strict=True))})

    def renamed(self, before: Sequence[Atom], now: Sequence[Atom]) -> KnownVectors:
        """Return the same vectors for atoms that have other ids now."""
        rows = {
            new.id: self._rows[old.id]
            for old, new in zip(before, now, strict=True)
            if old.id in self._rows
        }
        return KnownVectors(rows, self._held)


def embedding_alone(row: np.ndarray) -> AtomVectors:
    """Return the vectors of an atom that has an embedding [d] and no token vectors."""
    return torch.from_numpy(row), *_no_tokens()


def _no_tokens() -> tuple[Tensor, Tensor]:
    """Return the token vectors [0, 0] and pieces [0] of an atom without any."""
    return torch.empty(0, 0, dtype=torch.int8), torch.empty(0, dtype=torch.int32)


NOTHING_KNOWN = KnownVectors.listed({})
"""No vectors: every atom is encoded."""


def _encoded(rows: Sequence[AtomVectors]) -> Encoded:
    """Return the vectors of atoms in one, in the form of an encoder."""
    pooled, tokens, pieces = zip(*rows, strict=True)
    stacked = torch.stack(pooled)
    if not any(each.shape[1] for each in tokens):
        return Encoded(stacked)
    counts = torch.tensor([0, *(len(each) for each in pieces)])
    wide = [each for each in tokens if each.shape[1]]
    return Encoded(stacked, torch.cat(wide), torch.cat(pieces), counts.cumsum(0))


def rows_of(encoded: Encoded) -> list[AtomVectors]:
    """Return the vectors of each text; empty ones without token vectors."""
    tokens, pieces, offsets = encoded.tokens, encoded.pieces, encoded.offsets
    if tokens is None or pieces is None or offsets is None:
        return [(row, *_no_tokens()) for row in encoded.pooled]
    counts = offsets.diff().tolist()
    parts = encoded.pooled, tokens.split(counts), pieces.split(counts)
    return list(zip(*parts, strict=True))


def stored_rows(store: MemoryStore, nodes: Sequence[int]) -> list[AtomVectors]:
    """Return the stored vectors of each node, in the form of `rows_of`."""
    embeddings, tokens = store.vectors(nodes)
    return rows_of(Encoded(embeddings, *(() if tokens is None else tokens)))


def token_rows(encoded: Encoded) -> TokenRows | None:
    """Return the token vectors of texts; None without."""
    tokens, pieces, offsets = encoded.tokens, encoded.pieces, encoded.offsets
    if tokens is None or pieces is None or offsets is None:
        return None
    return TokenRows(tokens, pieces, offsets)


def joined(parts: Sequence[Encoded], pick: Tensor) -> Encoded:  # pick [n] int64
    """Return chosen rows of several parts, counted through all of them."""
    pooled = torch.cat([part.pooled for part in parts])[pick]
    rows = [token_rows(part) for part in parts]
    packed = [each for each in rows if each is not None]
    if len(packed) < len(rows):
        return Encoded(pooled)
    return Encoded(pooled, *pick_tokens(join_tokens(packed, packed[0].tokens.shape[1]), pick))


def encoded_atoms(
    atoms: Sequence[Atom], known: KnownVectors, store: MemoryStore, embedder: Embedder
) -> Encoded:
    """Return the vectors of atoms: known ones, stored ones of equal texts, else encoded ones.

    Args:
        atoms: The atoms.
        known: Vectors that are used as they are.
        store: Store whose vectors are used again.
        embedder: Encoder of the other texts.

    Raises:
        InputError: Known vectors of another width than those of the encoder.
        EmbedderError: The encoder fails.
    """
    own = [place for place, atom in enumerate(atoms) if atom.id in known]
    if not own:
        return _from_texts(atoms, store, embedder)
    given = _fitting(known.of([atoms[place].id for place in own]), embedder)
    if len(own) == len(atoms):
        return given
    there = {*own}
    rest = [place for place in range(len(atoms)) if place not in there]
    others = _from_texts([atoms[place] for place in rest], store, embedder)
    return joined([given, others], torch.from_numpy(np.argsort([*chain(own, rest)])))


def _from_texts(atoms: Sequence[Atom], store: MemoryStore, embedder: Embedder) -> Encoded:
    """Return vectors of atoms; stored and repeated texts are not encoded again."""
    hashes = [text_hash(atom.rendered) for atom in atoms]
    stored = store.cached(hashes)
    new = {h: a.rendered for h, a in zip(hashes, atoms, strict=True) if h not in stored}
    encoded = encode_checked(embedder, list(new.values()))
    if len(new) == len(atoms):
        return encoded
    old = store.vectors(list(stored.values()))
    place = {h: i for i, h in enumerate([*new, *stored])}
    pick = torch.tensor([place[h] for h in hashes], dtype=torch.int64)
    rows = token_rows(encoded)
    if rows is None:
        return joined([encoded, Encoded(old.embeddings)], pick)
    none = torch.zeros(len(old.embeddings) + 1, dtype=torch.int64)
    kept = old.tokens or TokenRows(rows.tokens[:0], rows.pieces[:0], none)
    return joined([encoded, Encoded(old.embeddings, *kept)], pick)


def _fitting(given: Encoded, embedder: Embedder) -> Encoded:
    """Return known vectors in the form of an encoder's own; without token vectors, none a text."""
    width = given.pooled.shape[1]
    if width != embedder.dim:
        raise InputError(
            f"embeddings: expected vectors of width {embedder.dim}, that of the encoder "
            f"{embedder.name!r} of this memory, got {width}; name the encoder that made them"
        )
    tokens = token_rows(given)
    if not embedder.token_dim:
        if tokens is None:
            return given
        raise InputError(
            f"tokens: expected none, as the encoder {embedder.name!r} of this memory has none, got "
            f"vectors of width {tokens.tokens.shape[1]}; leave them out"
        )
    if tokens is None or not len(tokens.tokens):
        none = torch.empty(0, embedder.token_dim, dtype=torch.int8)
        ends = torch.zeros(len(given.pooled) + 1, dtype=torch.int64)
        return Encoded(given.pooled, none, torch.empty(0, dtype=torch.int32), ends)
    if tokens.tokens.shape[1] != embedder.token_dim:
        raise InputError(
            f"tokens: expected token vectors of width {embedder.token_dim}, that of the encoder "
            f"{embedder.name!r} of this memory, got {tokens.tokens.shape[1]}; make them with it"
        )
    low, high = (int(end) for end in tokens.pieces.aminmax())
    if low < 0 or high >= embedder.num_pieces:
        raise InputError(
            f"pieces: expected numbers below {embedder.num_pieces:,}, got {low} to {high}; they "
            "are those of the encoder's vocabulary"
        )
    return given
