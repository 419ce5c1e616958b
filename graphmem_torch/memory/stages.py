"""Stages of indexing: concepts in worker processes and vectors in a thread, ahead of the writer.

The writer asks its encoder and its finder of concepts for one batch after the other. `IndexStages`
puts fronts before both. It is told the next batches, has their vectors and concepts made, and the
fronts answer from these. What is not made ahead is made when the writer asks, by the same
functions: the result is that of a run without stages, whatever fails and however much is read
ahead.
"""

from __future__ import annotations

import os
import time
from collections import ChainMap, deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.memory.compatibility import load_extractor
from graphmem_torch.memory.encoder_thread import EncoderThread, Unit
from graphmem_torch.memory.file_reading import ReadingNotes
from graphmem_torch.memory.known_vectors import joined
from graphmem_torch.memory.state import State
from graphmem_torch.memory.writer import Writer
from graphmem_torch.text.concepts import ConceptExtractor
from graphmem_torch.text.deferred import DeferredEmbedder
from graphmem_torch.text.embedder import Embedder, Encoded
from graphmem_torch.text.findings import TextFindings, finder_spec
from graphmem_torch.text.worker_pool import WorkerPool

__all__ = ["WORTH", "IndexStages", "default_workers"]

_CHUNK = 128  # texts of one task of a worker, as many as spaCy parses at once
_BATCHES = 4  # minimum number of batches ahead of the writer

WORTH = {"pattern": 1 << 22, "spacy": 1 << 17}
"""Bytes of files from which workers pay, by the finder of concepts.

Starting one takes 0.3 CPU seconds for `pattern`, which takes 0.1 ms for a paragraph of 400 bytes,
and 1.5 for spaCy, which takes 12 ms.
"""


def default_workers() -> int:
    """Return the number of cores that this process may use, without that of the encoder."""
    return max(1, len(os.sched_getaffinity(0)) if _AFFINITY else os.cpu_count() or 1) - 1 or 1


_AFFINITY = hasattr(os, "sched_getaffinity")


class IndexStages:
    """Vectors and concepts made ahead of a writer, which is in the thread that calls this.

    Attributes:
        encoder: Encoder that answers from what is ahead; set by `writer`.
    """

    encoder: Embedder

    def __init__(self, state: State, *, workers: int, batch: int, pays: int | None = None) -> None:
        """Load and start nothing yet.

        Args:
            state: State of the memory that is written to.
            workers: Maximum number of worker processes; 0 makes nothing ahead.
            batch: Atoms of a batch of the writer.
            pays: Bytes of files from which workers pay; None: `WORTH` of the finder.
        """
        self._pays = pays
        self._state, self._store, self._workers, self._batch = state, state.store, workers, batch
        self._units: deque[Unit] = deque()
        self._size = 0  # atoms in them
        self._texts: dict[str, Unit] = {}  # by text that is encoded
        self._bodies: dict[str, list[Unit]] = {}  # by text whose concepts are found
        self._pool: WorkerPool | None = None
        self._worth = False
        self._thread: EncoderThread | None = None
        self._finder: ConceptExtractor | None = None
        self._spec: str | None = None
        self._window = 0  # maximum number of atoms ahead
        self._waited, self._told = dict[str, float](), time.monotonic()

    def writer(self) -> Writer:
        """Return a writer behind the fronts; loads the encoder and the finder of concepts."""
        self.encoder = self._inner = embedder = self._state.embedder
        concepts = self._state.concepts
        if not self._workers:
            return self._state.writer_with(embedder)
        self._window = max(_BATCHES * self._batch, 2 * _CHUNK * (self._workers + 1))
        finder = load_extractor(self._store, concepts)
        self._spec = finder_spec(finder)
        if finder is not None and self._spec is not None:
            self._finder, concepts = finder, _ConceptsAhead(finder, self)
        if not isinstance(embedder, DeferredEmbedder):
            self._thread = EncoderThread(embedder)
            self._window = max(self._window, 2 * self._thread.group_texts)
            self.encoder = _EncoderAhead(embedder, self)
        return self._state.writer_with(self.encoder, concepts)

    def expect(self, size: int) -> None:
        """Decide whether workers pay for the concepts in files of `size` bytes."""
        if self._spec is not None:
            own = WORTH[self._spec.partition(":")[0]]
            self._worth = size >= (own if self._pays is None else self._pays)

    @property
    def full(self) -> bool:
        """Return whether enough is ahead."""
        return self._size >= self._window

    def submit(self, atoms: Sequence[Atom], given: Container[str], *, encode: bool = True) -> Unit:
        """Have the vectors and concepts of a batch made.

        Args:
            atoms: A batch that the writer gets later.
            given: Ids of atoms whose vectors are known.
            encode: Whether vectors are made.
        """
        texts, bodies = list[str](), list[str]()
        if self._thread is not None and encode:
            texts = list(dict.fromkeys(atom.rendered for atom in atoms if atom.id not in given))
            hashes = {text: text_hash(text) for text in texts}
            stored = self._store.cached(list(hashes.values())) if texts else {}
            texts = [
                text for text in texts if hashes[text] not in stored and text not in self._texts
            ]
        if self._finder is not None:
            bodies = list(dict.fromkeys(atom.whole for atom in atoms))
        unit = Unit(len(atoms), texts, bodies, self._found(bodies))
        if self._window:
            self._units.append(unit)
            self._size += unit.size
            self._texts |= dict.fromkeys(texts, unit)
            for body in bodies:
                self._bodies.setdefault(body, []).append(unit)
        if self._thread is not None:
            self._thread.submit(unit)
        return unit

    def _found(self, bodies: list[str]) -> list[Future[list[TextFindings]]]:
        """Return the findings of texts, from workers if these pay."""
        if not bodies or self._finder is None or self._spec is None:
            return []
        if not self._worth:
            future: Future[list[TextFindings]] = Future()
            try:
                made = [TextFindings(names) for names in self._finder.extract(bodies)]
            except Exception:  # raised again when the writer asks
                made = []
            future.set_result(made)
            return [future]
        if self._pool is None:
            self._pool = WorkerPool(self._spec, self._workers)
        parts = range(0, len(bodies), _CHUNK)
        return [self._pool.submit(bodies[start : start + _CHUNK]) for start in parts]

    def over(
        self,
        batches: Iterator[list[Atom]],
        fresh: ReadingNotes,
        notes: ReadingNotes,
        *,
        encode: bool,
        begun: Sequence[Unit] = (),
        busy: Callable[[], bool] = lambda: False,
        more: Callable[[], None] = lambda: None,
    ) -> Iterator[list[Atom]]:
        """Yield batches in order, with later ones ahead.

        Args:
            batches: Batches, read when they are asked for.
            fresh: Notes that reading a batch adds to.
            notes: Notes that they are moved into when the batch is due.
            encode: Whether vectors are made.
            begun: Units of the first batches, if they are ahead already.
            busy: Whether batches that were yielded are not stored yet.
            more: Function that reads what comes after these batches, while there is room.

        Raises:
            Exception: Reading a batch has failed; raised when the batch is due.
        """
        ahead = deque[tuple[list[Atom], Unit, ReadingNotes]]()
        early, error, ended = deque(begun), None, False
        try:
            while True:
                while not ended and not (ahead and self.full):
                    batch, error = _read(batches)
                    own = fresh.taken()
                    ended = not batch
                    given = ChainMap(own.inline, notes.inline)
                    unit = early.popleft() if early else self.submit(batch, given, encode=encode)
                    ahead.append((batch, unit, own))
                if ended:
                    more()
                batch, unit, own = ahead.popleft()
                own.move_into(notes)
                if not batch:
                    unit.ended = True
                    break
                yield batch
                unit.ended = True
                if not busy():
                    self._drop()
            if error is not None:
                raise error
        finally:
            self.end([*early, *(unit for _, unit, _ in ahead)])

    def end(self, units: Sequence[Unit]) -> None:
        """Forget what is ahead of batches that do not come any more."""
        for unit in units:
            unit.ended = True

    def _drop(self) -> None:
        """Forget the batches that are stored."""
        ended = [unit for unit in self._units if unit.ended]
        if not ended:
            return
        self._units = deque(unit for unit in self._units if not unit.ended)
        for unit in ended:
            self._size -= unit.size
            for text in unit.texts:
                del self._texts[text]
            for body in unit.bodies:
                self._bodies[body].remove(unit)
                if not self._bodies[body]:
                    del self._bodies[body]

    def waits(self) -> str:
        """Say in words which stage was waited for since the last call."""
        now = time.monotonic()
        seconds, self._told = max(now - self._told, 1e-9), now
        waited, self._waited = self._waited, {}
        if not self._window:
            return ""
        name = max(waited, key=lambda each: waited[each], default="")
        if not name or waited[name] < seconds / 4:
            return "the encoder waits for the writer"
        return f"the writer waits for {name}"

    @contextmanager
    def _waiting(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - start
            self._waited[name] = self._waited.get(name, 0.0) + spent

    def encoded(self, texts: Sequence[str]) -> Encoded:
        """Return the vectors of texts, made ahead or now."""
        parts, first, place = list[Encoded](), dict[int, int](), list[int]()
        missing, count = dict[str, int](), 0
        for text in texts:
            unit = self._texts.get(text)
            if unit is not None and id(unit) not in first:
                with self._waiting("the encoder"):
                    made = unit.encoded.result()
                first[id(unit)] = -1 if made is None else count
                if made is not None:
                    parts.append(made)
                    count += len(made.pooled)
            start = -1 if unit is None else first[id(unit)]
            if unit is None or start < 0:
                place.append(-1 - missing.setdefault(text, len(missing)))
            else:
                place.append(start + unit.rows[text])
        if len(parts) == 1 and not missing and place == list(range(count)):
            return parts[0]
        if missing or not parts:
            parts.append(self._now(list(missing)))
        pick = [count - 1 - each if each < 0 else each for each in place]
        return joined(parts, torch.tensor(pick, dtype=torch.int64))

    def _now(self, texts: list[str]) -> Encoded:
        thread = self._thread
        return self._inner.encode(texts) if thread is None else thread.encode_now(texts)

    def concepts_of(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the names in texts, found ahead or now.

        Raises:
            WorkerError: A worker has ended.
        """
        assert self._finder is not None
        found = dict[str, list[str]]()
        for text in texts:
            if text in found or text not in self._bodies:
                continue
            unit = self._bodies[text][0]
            with self._waiting("concepts"):
                parts = [future.result() for future in unit.found]
            made = [each for part in parts for each in part]
            if len(made) == len(unit.bodies):  # else the finder raised, and does so again
                own = zip(unit.bodies, made, strict=True)
                found |= {body: each.names for body, each in own}
        missing = [text for text in texts if text not in found]
        if missing:
            found |= zip(missing, self._finder.extract(missing), strict=True)
        return [found[text] for text in texts]

    def close(self) -> None:
        """End the processes and the thread; what is ahead is lost."""
        if self._pool is not None:
            self._pool.close()
        if self._thread is not None:
            self._thread.close()
        for held in (self._units, self._texts, self._bodies):
            held.clear()


def _read(batches: Iterator[list[Atom]]) -> tuple[list[Atom], Exception | None]:
    """Return the next batch, empty at the end, or the error of reading it."""
    try:
        return next(batches, []), None
    except Exception as error:
        return [], error


class _EncoderAhead:
    """Encoder of a writer that answers from what is ahead; else as the encoder itself."""

    def __init__(self, inner: Embedder, stages: IndexStages) -> None:
        self._inner, self._stages = inner, stages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        return self._stages.encoded(texts)


class _ConceptsAhead:
    """Finder of concepts of a writer that answers from what is ahead."""

    def __init__(self, inner: ConceptExtractor, stages: IndexStages) -> None:
        self._inner, self._stages, self.name = inner, stages, inner.name

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """See `ConceptExtractor.extract`."""
        return self._stages.concepts_of(texts)

    def forms(self, word: str) -> frozenset[str]:
        """See `ConceptExtractor.forms`."""
        return self._inner.forms(word)
