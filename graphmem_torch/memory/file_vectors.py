"""Vectors in files, matched to the memories of other files by id or in their order."""

from __future__ import annotations

import logging
import os
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory.intake import batched
from graphmem_torch.memory.known_vectors import KnownVectors, joined
from graphmem_torch.readers.vector_files import VectorFile
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.deferred import DeferredEmbedder
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked, rescaled

__all__ = ["FileVectors", "opened_vectors"]

_log = logging.getLogger(__name__)

_TILE = 4096  # rows compared at once
_ROUNDING = 2e-3  # difference of two numbers of a vector that half precision explains
_PIECES = 1 << 18  # maximum size of a vocabulary whose encoder is not loaded
_SAMPLE = 8  # memories of a file that are encoded to compare them with their rows
_LIKE = 0.3  # cosine of a text and its vector, below which the vector is of another text
_BETTER = 0.1  # by how much the vector of another memory is nearer to a text, if rows are mixed
_WRONG = 0.25  # share of the sample from which on the rows are taken to be of other memories


class FileVectors:
    """Vectors of memories in files, row after row through all files.

    The files are open until `close`, and no vector is kept in memory.

    Attributes:
        by_id: True if rows are named by ids; else row i is of the i-th memory.
        count: Number of rows.
        dim: Width of the vectors.
        token_dim: Width of the token vectors; 0 without them.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, normalise: bool = False) -> None:
        """Open and check the files.

        Raises:
            InputError: An unusable file or row (`VectorFile`), files of several widths, or some
                with ids and some without; an id in two of them.
        """
        self._stack = ExitStack()
        self._files: list[VectorFile] = []
        try:
            for path in paths:
                self._files.append(VectorFile(path, normalise=normalise))
                self._stack.callback(self._files[-1].close)
            self._expect_alike()
        except BaseException:
            self.close()
            raise
        first = self._files[0]
        self.dim, self.token_dim, self.by_id = first.dim, first.token_dim, first.ids is not None
        self._starts = [0, *accumulate(file.count for file in self._files)]
        self.count = self._starts[-1]
        self._rows = self._by_id() if self.by_id else dict[str, int]()
        self._placed = self._rows if self.by_id else dict[str, int]()  # also of stored atoms
        self._used = np.zeros(self.count if self.by_id else 0, dtype=bool)

    def _expect_alike(self) -> None:
        if not self._files:
            raise InputError("embeddings: expected a file of vectors, got none; name one")
        first = self._files[0]
        for place, other in enumerate(self._files[1:], 1):
            if any(other.path.samefile(each.path) for each in self._files[:place]):
                raise InputError(
                    "expected each file of vectors once, got it again; leave it out",
                    where=str(other.path),
                )
            widths = (other.dim, other.token_dim, other.ids is None)
            if widths != (first.dim, first.token_dim, first.ids is None):
                raise InputError(
                    f"expected vectors as in {first.path} (width {first.dim}, tokens "
                    f"{first.token_dim}, {'ids' if first.ids else 'no ids'}), got width "
                    f"{other.dim}, tokens {other.token_dim}, {'ids' if other.ids else 'no ids'}; "
                    "index them apart",
                    where=str(other.path),
                )

    def _by_id(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for start, file in zip(self._starts, self._files, strict=False):
            for name, row in (file.ids or {}).items():
                if found.setdefault(name, start + row) != start + row:
                    raise InputError(
                        f"expected an id of its own, got {name!r} again, which "
                        f"{self.where(found[name])} has; leave one out",
                        where=file.where(row),
                    )
        return found

    def encoder(self, fingerprint: str, spec: str | None) -> DeferredEmbedder:
        """Return the encoder of these vectors, which is not loaded.

        Args:
            fingerprint: Its fingerprint.
            spec: Name that loads it.
        """
        pieces = _PIECES if self.token_dim else 0
        return DeferredEmbedder(
            fingerprint, self.dim, spec=spec, token_dim=self.token_dim, num_pieces=pieces
        )

    def where(self, row: int) -> str:
        """Return the file of a row, and its number there."""
        at = bisect_right(self._starts, row) - 1
        return self._files[min(at, len(self._files) - 1)].where(row - self._starts[at])

    def take(self, rows: Sequence[int]) -> Encoded:
        """Return the vectors of rows, in any order."""
        if len(self._files) == 1:
            return self._files[0].rows(rows)
        own = np.asarray(rows)
        at = np.searchsorted(self._starts, own, side="right") - 1
        parts, places = [], []
        for file in np.unique(at):
            here = np.flatnonzero(at == file)
            parts.append(self._files[file].rows((own[here] - self._starts[file]).tolist()))
            places.append(here)
        return joined(parts, torch.from_numpy(np.argsort(np.concatenate(places))))

    def known(self) -> KnownVectors:
        """Return the vectors by id of the memories that are matched so far."""
        return KnownVectors(self._rows, self)

    def matched(self, atoms: Iterable[Atom], start: int) -> Iterator[Atom]:
        """Yield atoms, each matched to its row.

        Args:
            atoms: The atoms of a file.
            start: Row of the first, if rows are in order.
        """
        for row, atom in enumerate(atoms, start):
            if not self.by_id:
                self._rows.setdefault(atom.id, row)  # of equal lines the first is stored
                self._placed.setdefault(atom.id, row)
            yield atom

    def place(self, atoms: Iterable[Atom], start: int, text: bool) -> int:
        """Note the rows of atoms that are stored, and return their number.

        Args:
            atoms: The atoms of a file.
            start: Row of the first.
            text: Whether they are chunks of a document, which are only counted: if it was edited,
                they are stored under other numbers.
        """
        count = 0
        for count, atom in enumerate(atoms, 1):
            if not text:
                self._placed.setdefault(atom.id, start + count - 1)
        return count

    def finished(self, store: MemoryStore, *, whole: bool) -> int:
        """Return the number of stored atoms that have another vector than their row.

        Args:
            store: Store of the atoms.
            whole: Whether all files were read, so that rows of no memory are worth a warning.

        Raises:
            InputError: The vectors have another width.
        """
        if whole:
            self._warn_of_unused()
        count = 0
        if self._placed and self.dim != store.dim:
            raise InputError(
                f"expected vectors of width {store.dim}, as this memory has, got width {self.dim}; "
                "name the encoder that made them",
                where=str(self._files[0].path),
            )
        for names in batched(iter(self._placed), _TILE):
            known = store.known(names)
            rows = [self._placed[name] for name in known]
            given = self.take(rows).pooled
            own = store.vectors([node for node, _ in known.values()], tokens=False).embeddings
            count += int(((given - own.float()).abs().amax(1) > _ROUNDING).sum()) if rows else 0
        return count

    def release(self, ids: Iterable[str]) -> None:
        """Forget the rows of stored atoms, if rows are in order."""
        if not self.by_id:
            for name in ids:
                self._rows.pop(name, None)

    def expect_count(self, count: int) -> None:
        """Raise InputError unless there is a row for each of `count` memories."""
        if count == self.count:
            return
        extra = (
            f"row {count} of them is of no memory" if count < self.count else "the last have none"
        )
        raise InputError(
            f"expected {count:,} rows, one for each memory in the order of the files, got "
            f"{self.count:,}: {extra}; name the rows by id, or make them again",
            where=str(self._files[-1].path),
        )

    def expect_all(
        self, atoms: Iterable[Atom], start: int, origins: Mapping[str, str], embedder: Embedder
    ) -> int:
        """Check that the atoms of a file have vectors, and that these are theirs.

        A few texts are encoded to compare them with their rows, if the encoder is here.

        Args:
            atoms: The atoms of the file.
            start: Row of the first, if rows are in order.
            origins: File and line by id, for messages.
            embedder: Encoder of the memory.

        Returns:
            The number of atoms.

        Raises:
            InputError: A width of another encoder, an atom without a vector, or rows of others.
        """
        if (self.dim, self.token_dim or embedder.token_dim) != (embedder.dim, embedder.token_dim):
            raise InputError(
                f"expected vectors of width {embedder.dim} (tokens {embedder.token_dim}), those of "
                f"the encoder {embedder.name!r} of this memory, got width {self.dim} (tokens "
                f"{self.token_dim}); name the encoder that made them",
                where=str(self._files[0].path),
            )
        for file in self._files:
            file.expect_vocabulary(embedder.num_pieces)
        count, missing, first = 0, 0, ""
        sample, draw = list[tuple[int, Atom]](), random.Random(0)
        for count, atom in enumerate(atoms, 1):
            row = self._rows.get(atom.id) if self.by_id else start + count - 1
            if row is None:
                missing, first = missing + 1, first or atom.id
                continue
            if self.by_id:
                self._used[row] = True
            if len(sample) < _SAMPLE:
                sample.append((row, atom))
            elif (place := draw.randrange(count)) < _SAMPLE:
                sample[place] = row, atom
        if missing:
            more = f" (and for {missing - 1:,} more)" if missing > 1 else ""
            raise InputError(
                f"expected a vector for each memory, got none for {first!r}{more} in "
                f"{', '.join(str(file.path) for file in self._files):.200}; add it",
                where=origins.get(first),
            )
        if not isinstance(embedder, DeferredEmbedder) and (
            self.by_id or self.count >= start + count
        ):
            self._expect_theirs(sample, embedder)
        return count

    def _warn_of_unused(self) -> None:
        """Warn of rows that are of no memory, by id."""
        left = np.flatnonzero(~self._used)
        if len(left):
            row = int(left[0])
            name = next(name for name, own in self._rows.items() if own == row)
            rows = "1 row is" if len(left) == 1 else f"{len(left):,} rows are"
            _log.warning(
                "%s: %s of no memory in these files, the first that of %r",
                self.where(row),
                rows,
                name,
            )

    def _expect_theirs(self, sample: Sequence[tuple[int, Atom]], embedder: Embedder) -> None:
        if not sample:
            return
        rows = [row for row, _ in sample]
        made = encode_checked(embedder, [atom.rendered for _, atom in sample]).pooled
        cosine = made @ self.take(rows).pooled.T
        own, best = cosine.diagonal(), cosine.amax(1)
        far = (own < rescaled(_LIKE, embedder)) | (best - own > _BETTER)
        wrong = far.nonzero().flatten().tolist()
        if len(wrong) >= max(1, _WRONG * len(sample)):
            row, atom = sample[wrong[0]]
            raise InputError(
                f"expected the vector of memory {atom.id!r} ({atom.text[:40]!r}), got one of "
                f"cosine {float(own[wrong[0]]):.2f} to what the encoder {embedder.name!r} makes "
                f"of it, as {len(wrong)} of {len(sample)} rows that were compared; put the rows in "
                "order, name them by id, or name the encoder that made them",
                where=self.where(row),
            )

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self.close()


@contextmanager
def opened_vectors(given: Any, *, normalise: bool) -> Iterator[FileVectors | None]:
    """Open files of vectors: one path or several, None, or what is open already.

    Raises:
        InputError: No path, or an unusable file.
    """
    if given is None or isinstance(given, FileVectors):
        yield given
        return
    paths = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(paths, (list, tuple)) or not all(
        isinstance(path, (str, os.PathLike)) for path in paths
    ):
        raise InputError(
            f"embeddings: expected files of vectors, got {type(given).__name__}; `add` takes arrays"
        )
    with FileVectors(paths, normalise=normalise) as vectors:
        yield vectors
