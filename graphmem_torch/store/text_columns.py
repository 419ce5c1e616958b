"""Columns of texts: what an index needs to know of each text, found once and kept in blocks.

A block has the rows of consecutive nodes. Each row names the version of the finder that wrote it,
so another version finds it again. Blocks are derived from the texts: missing and damaged ones are
found anew, and older releases ignore them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, compress, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmem_torch.store.checksums import is_sound, seal
from graphmem_torch.store.database import Database

if TYPE_CHECKING:
    from graphmem_torch.store.arrays import Array

__all__ = ["NUMBERS", "KeptTexts", "TextColumns", "TextRow", "put_texts", "rewrite_texts"]

_log = logging.getLogger(__name__)

NUMBERS = np.dtype(
    [
        ("version", "<u4"),
        ("terms", "<i4"),
        ("title", "<i4"),
        ("log_words", "<f4"),
        ("asked_key", "<i8"),
        ("asked_bits", "<i8"),
        ("asked_words", "<i2"),
        ("asked_form", "i1"),
        ("is_question", "?"),
        ("tells_time", "?"),
        ("told_start", "<i4"),
        ("told_stop", "<i4"),
        ("lot", "<u4"),
    ]
)
"""Numbers of one text: version of the finder (0: none), number of its terms, then the columns of
`IndexInput` with these names. `told_start` and `told_stop` are `told`."""

_MOST = 1024  # nodes of a part without blocks


class TextRow(NamedTuple):
    """Columns of one text.

    Attributes:
        numbers: Values of `NUMBERS`, in order.
        terms: Terms of the text, without line feeds.
    """

    numbers: tuple[Any, ...]
    terms: list[str]


class TextColumns(NamedTuple):
    """Columns of the texts of n consecutive nodes.

    Attributes:
        first: Number of the first node.
        numbers: [n] of `NUMBERS`.
        terms: Terms of all texts, in order.
    """

    first: int
    numbers: Array
    terms: list[str]

    @classmethod
    def of(cls, first: int, rows: Sequence[TextRow]) -> TextColumns:
        """Return the rows of texts from a node on."""
        numbers = np.array([row.numbers for row in rows], NUMBERS)
        return cls(first, numbers, [term for row in rows for term in row.terms])

    @classmethod
    def blank(cls, first: int, count: int) -> TextColumns:
        """Return rows of which nothing was found."""
        return cls(first, np.zeros(count, NUMBERS), [])

    @property
    def offsets(self) -> Array:  # [n + 1] int64
        """Start of each text in `terms`, and the end of the last."""
        ends = np.zeros(len(self.numbers) + 1, np.int64)
        self.numbers["terms"].cumsum(out=ends[1:])
        return ends

    def only(self, rows: Array) -> TextColumns:  # [n] bool
        """Return the columns with all other rows blank."""
        if rows.all():
            return self
        numbers = np.where(rows, self.numbers, np.zeros(1, NUMBERS))
        places = np.repeat(rows, self.numbers["terms"]).tolist()
        return TextColumns(self.first, numbers, list(compress(self.terms, places)))

    def with_rows(self, rows: Sequence[int], found: Sequence[TextRow]) -> TextColumns:
        """Return the columns with some rows replaced."""
        numbers, terms = self.numbers.copy(), self.lists()
        for row, own in zip(rows, found, strict=True):
            numbers[row], terms[row] = own.numbers, own.terms
        return TextColumns(self.first, numbers, list(chain.from_iterable(terms)))

    def lists(self) -> list[list[str]]:
        """Return the terms text by text."""
        return [self.terms[begin:end] for begin, end in pairwise(self.offsets.tolist())]


class KeptTexts:
    """The stored columns of texts."""

    def __init__(self, database: Database, hidden: Collection[int] = ()) -> None:
        """Read nothing yet; the rows of the nodes `hidden` are left out."""
        self._database, self._hidden = database, np.array(sorted(hidden), np.int64)

    def read(self, start: int, stop: int) -> Iterator[TextColumns]:
        """Yield the columns of the nodes `start` to `stop - 1`, part by part.

        Rows that are not stored are blank: their version is 0.
        """
        for first, count in [*self._blocks(start, stop), (stop, 0)]:
            while start < min(first, stop):
                gap = TextColumns.blank(start, min(first - start, _MOST))
                yield gap
                start += len(gap.numbers)
            if start < (end := min(first + count, stop)):
                own = _cut(_block(self._database, first, count), start, end)
                shown = np.ones(len(own.numbers), bool)
                hidden = self._hidden[(self._hidden >= start) & (self._hidden < end)]
                shown[hidden - start] = False
                yield own.only(shown)
                start = end

    def keep(self, parts: Sequence[TextColumns]) -> None:
        """Store parts of `read` whose blank rows were found since; in the writer's turn.

        Skips parts that another writer has changed, and rows of nodes that were deleted.

        Raises:
            StoreError: The store is read-only, or the disk is full; nothing has changed.
        """

        def work() -> None:
            sql = "SELECT node FROM atom WHERE node >= ? AND node < ?"
            for part in parts:
                span = part.first, part.first + len(part.numbers)
                if self._blocks(*span) not in ([], [(part.first, len(part.numbers))]):
                    continue
                there = np.zeros(len(part.numbers), bool)
                there[[node - part.first for (node,) in self._database.query(sql, span)]] = True
                put_texts(self._database, part.only(there))

        self._database.write(work)

    def _blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return start and count of the blocks with nodes from `start` to `stop - 1`."""
        if not self._database.has("text_block"):
            return []
        sql = (
            "SELECT start, count FROM text_block WHERE start < ? AND start >= coalesce((SELECT "
            "max(start) FROM text_block WHERE start <= ?), 0) AND start + count > ? ORDER BY start"
        )
        return self._database.query(sql, (stop, start, start))


def put_texts(database: Database, own: TextColumns) -> None:
    """Write a block; only inside a write."""
    first, count = own.first, len(own.numbers)
    blobs = [own.numbers.tobytes(), "".join(f"{term}\n" for term in own.terms).encode()]
    row = first, count, seal(database, "text_block", first, blobs, first, count), *blobs
    database.execute_many("INSERT OR REPLACE INTO text_block VALUES (?, ?, ?, ?, ?)", [row])


def rewrite_texts(database: Database, start: int, rows: Sequence[int]) -> None:
    """Blank rows of the block that starts at a node; only inside a write."""
    count = database.query("SELECT count FROM text_block WHERE start = ?", (start,))[0][0]
    kept = np.ones(count, bool)
    kept[[row for row in rows if row < count]] = False
    if not kept.all():
        put_texts(database, _block(database, start, count).only(kept))


def _block(database: Database, first: int, count: int) -> TextColumns:
    """Return a stored block; blank if it is damaged."""
    sql = "SELECT checksum, numbers, terms FROM text_block WHERE start = ?"
    expected, numbers, terms = database.query(sql, (first,))[0]
    sound = database.sound.get(("text_block", first)) == expected
    if sound or is_sound(expected, (numbers, terms), first, count):
        database.sound["text_block", first] = expected
        own = TextColumns(first, np.frombuffer(numbers, NUMBERS), terms.decode().split("\n")[:-1])
        if len(own.numbers) == count and own.offsets[-1] == len(own.terms):
            return own
    _log.warning("%s: the columns of texts from node %d on are found anew", database.place, first)
    return TextColumns.blank(first, count)


def _cut(own: TextColumns, start: int, stop: int) -> TextColumns:
    """Return the columns of the nodes `start` to `stop - 1`."""
    begin, end = start - own.first, stop - own.first
    if begin == 0 and end == len(own.numbers):
        return own
    ends = own.offsets
    return TextColumns(start, own.numbers[begin:end], own.terms[ends[begin] : ends[end]])
