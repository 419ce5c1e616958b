"""Thread that encodes batches ahead of their writer; torch releases the interpreter meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from graphmem_torch.memory.known_vectors import joined
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked
from graphmem_torch.text.findings import TextFindings

__all__ = ["EncoderThread", "Unit"]

_PASSES = 8  # forward passes of a call of the encoder
_LETTERS = 4  # characters of a piece
_TEXTS = 256  # texts of a call of an encoder that does not state the pieces of a pass


@dataclass(eq=False)
class Unit:
    """Batch ahead of its writer.

    Attributes:
        size: Number of its atoms.
        texts: Texts to encode, each once.
        bodies: Texts to find concepts in, each once.
        found: Findings of `bodies`, in parts; an empty part could not be made.
        rows: Row of each of `texts`.
        encoded: Vectors of `texts`; None if they could not be made.
        ended: Whether the writer is done with the batch.
    """

    size: int
    texts: list[str]
    bodies: list[str]
    found: list[Future[list[TextFindings]]]
    rows: dict[str, int] = field(init=False)
    encoded: Future[Encoded | None] = field(default_factory=Future)
    ended: bool = False

    def __post_init__(self) -> None:
        """Number the texts."""
        self.rows = {text: row for row, text in enumerate(self.texts)}


class EncoderThread:
    """Encodes the texts of units, in order.

    Attributes:
        group_texts: Number of texts that are encoded together, about.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Start nothing yet."""
        self._using, self._urgent = threading.Lock(), 0
        self._embedder = embedder
        pieces = getattr(embedder, "batch_pieces", None)
        self._letters = None if pieces is None else _PASSES * pieces * _LETTERS
        self.group_texts = _TEXTS if self._letters is None else self._letters // 320
        self._units: list[Unit] = []
        self._changed, self._stop = threading.Condition(), False
        self._thread: threading.Thread | None = None

    def submit(self, unit: Unit) -> None:
        """Encode a unit after those before it."""
        with self._changed:
            self._units.append(unit)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def encode_now(self, texts: list[str]) -> Encoded:
        """Encode texts in the thread of the caller, between two calls of this one."""
        with self._changed:
            self._urgent += 1
        try:
            with self._using:
                return self._embedder.encode(texts)
        finally:
            with self._changed:
                self._urgent -= 1
                self._changed.notify()

    def close(self) -> None:
        """End after the pass that is running."""
        with self._changed:
            self._stop = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stop or self._units)
                if self._stop:
                    return
                group = self._group()
            self._encode(group)
            with self._changed:
                self._units = self._units[len(group) :]

    def _group(self) -> list[Unit]:
        """Return the next units, which fill the passes of a call."""
        group, letters = list[Unit](), 0
        for unit in self._units:
            group.append(unit)
            letters += sum(map(len, unit.texts))
            if self._letters is None or letters >= self._letters:
                break
        return group

    def _encode(self, units: Sequence[Unit]) -> None:
        """Encode the texts of units; they have no vectors if the encoder fails or is to stop."""
        texts = [text for unit in units for text in unit.texts]
        made: Encoded | None = None
        # Texts of one length together: a pass has hardly any padding.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]), reverse=True)
        try:
            parts = self._parts([texts[row] for row in order]) if texts else []
            given = [each for part in parts if (each := self._part(part)) is not None]
            if texts and len(given) == len(parts):
                made = joined(given, torch.tensor(order).argsort())
        except Exception:  # raised again when the writer asks
            made = None
        start = 0
        for unit in units:
            end = start + len(unit.texts)
            unit.encoded.set_result(None if made is None else _cut(made, start, end))
            start = end

    def _part(self, texts: list[str]) -> Encoded | None:
        """Return the vectors of texts; None if the thread is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stop or not self._urgent)
        if self._stop:
            return None
        with self._using:
            return encode_checked(self._embedder, texts)

    def _parts(self, texts: list[str]) -> list[list[str]]:
        """Return texts in parts of a few passes, after each of which the thread can stop."""
        parts, letters = [list[str]()], 0
        for text in texts:
            full = letters >= self._letters if self._letters else len(parts[-1]) >= _TEXTS
            if full:
                parts.append([])
                letters = 0
            parts[-1].append(text)
            letters += len(text)
        return parts


def _cut(made: Encoded, start: int, end: int) -> Encoded:
    """Return the vectors of the texts from `start` to `end`."""
    pooled = made.pooled[start:end]
    if made.tokens is None or made.pieces is None or made.offsets is None:
        return Encoded(pooled)
    low, high = int(made.offsets[start]), int(made.offsets[end])
    offsets = made.offsets[start : end + 1] - low
    return Encoded(pooled, made.tokens[low:high], made.pieces[low:high], offsets)
