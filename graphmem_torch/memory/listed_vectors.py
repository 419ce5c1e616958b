"""Listed vectors: those that a caller gives to `add`, matched to the atoms that are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, first_line
from graphmem_torch.memory.known_vectors import KnownVectors, embedding_alone, joined
from graphmem_torch.readers.unit_rows import InlineVectors, unit_rows
from graphmem_torch.text.embedder import Encoded

__all__ = ["ListedVectors"]

_TILE = 4096  # rows checked at once

T = TypeVar("T")


class ListedVectors:
    """Vectors of the values of one call of `add`: in their order, by id, or in the values."""

    def __init__(self, given: Any = None, dim: int | None = None) -> None:
        """Check the vectors.

        Args:
            given: [n, d], an array, a tensor or lists; an `Encoded`, with token vectors; or a
                mapping from ids to vectors. None: only those in the values.
            dim: Width of the vectors of the memory.

        Raises:
            InputError: No such value, or a row that is not finite or not of length 1.
        """
        self._by_id, self._given = isinstance(given, Mapping), given is not None
        values = list(given.values()) if isinstance(given, Mapping) else given
        self._tokens = given if isinstance(given, Encoded) else None
        self._values = _checked(values) if self._given else np.empty((0, 0))
        self._row = {name: row for row, name in enumerate(given)} if self._by_id else {}
        self.dim, self._inline = dim, InlineVectors(dim)
        self._last, self._seen = 0, 0

    def counted(self, values: Iterable[T]) -> Iterator[T]:
        """Yield values, and count them."""
        for value in values:
            self._seen += 1
            yield value

    def expect_count(self, values: int | None = None) -> None:
        """Raise InputError unless rows in order are as many as values, or as those counted."""
        if self._given and not self._by_id:
            self._expect(self._seen if values is None else values)

    def _expect(self, values: int) -> None:
        if values != len(self._values):
            raise InputError(
                f"embeddings: expected {values:,} rows, one for each value, got "
                f"{len(self._values):,}; give them in the order of the values, or by id"
            )

    def match(self, name: str, value: int, vector: np.ndarray | None) -> None:
        """Note the vector of an atom.

        Args:
            name: Id of the atom.
            value: Place of the value that it was made of, from 1.
            vector: Vector in that value, if there is one.

        Raises:
            InputError: No vector, two vectors, or two atoms for one.
        """
        if not self._given:
            if vector is not None:
                self._inline.setdefault(name, vector)
            return
        where = f"atom {name!r}"
        if vector is not None:
            raise InputError(
                "embedding: expected vectors in one place, got one here and `embeddings`; leave "
                "one out",
                where=where,
            )
        if self._by_id:
            if name not in self._row:
                raise InputError(
                    "embeddings: expected a vector for each atom, got none for this id; add it",
                    where=where,
                )
            return
        if value == self._last:
            raise InputError(
                "embeddings: expected a row for each atom, got one for a session of several; give "
                "the turns one by one, or vectors by id",
                where=where,
            )
        if value > len(self._values):
            self._expect(value)
        self._last = value
        self._row.setdefault(name, value - 1)  # of equal atoms the first is stored

    def known(self, atoms: Sequence[Atom]) -> KnownVectors:
        """Return the vectors of a batch of atoms."""
        if self._given:
            return KnownVectors(self._row, self)
        own = {a.id: self._inline[a.id] for a in atoms if a.id in self._inline}
        return KnownVectors.listed({name: embedding_alone(row) for name, row in own.items()})

    def release(self, atoms: Sequence[Atom]) -> None:
        """Forget the vectors in the values of stored atoms."""
        for atom in atoms:
            self._inline.pop(atom.id, None)

    def take(self, rows: Sequence[int]) -> Encoded:
        """Return the vectors of given rows."""
        pooled = torch.from_numpy(self._values[rows].astype(np.float32))
        if self._tokens is None or self._tokens.tokens is None:
            return Encoded(pooled)
        own = joined([self._tokens], torch.tensor(rows, dtype=torch.int64))
        return Encoded(pooled, own.tokens, own.pieces, own.offsets)


def _checked(given: Any) -> np.ndarray:  # [n, d]
    """Return vectors as an array, which stays where it is if it is one.

    Raises:
        InputError: No numbers [n, d], or a row that is not finite or not of length 1.
    """
    try:
        values = given.pooled if isinstance(given, Encoded) else given
        if isinstance(values, list) and any(isinstance(each, torch.Tensor) for each in values):
            values = torch.stack([torch.as_tensor(each) for each in values])
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu()
            values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        rows = np.asarray(values)
        if rows.dtype.kind not in "fiu":
            raise ValueError(f"values of type {rows.dtype}")
        if rows.ndim != 2 and rows.size:
            raise ValueError(f"the shape {list(rows.shape)}")
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise InputError(
            "embeddings: expected vectors [n, d] (an array, a tensor or lists), or a mapping from "
            f"ids to vectors, got {type(given).__name__}: {first_line(error)}; convert them"
        ) from error
    for start in range(0, len(rows), _TILE):
        part = np.asarray(rows[start : start + _TILE])
        unit_rows(part, partial(_where, start))
    return rows


def _where(start: int, row: int) -> str:
    return f"embeddings, row {start + row}"
