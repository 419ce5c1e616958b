"""Memory: the application object. A store on disk, an embedder, a configuration and the current index."""

from __future__ import annotations

import itertools
import os
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor

from graphmem_torch.assemble import Assembled, assemble, load_assembled, save_assembled
from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link, text_hash
from graphmem_torch.config import Config, load_config
from graphmem_torch.context import render, render_entry, select_by_density
from graphmem_torch.context.render import SEPARATOR
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.index import MemoryIndex, Retrieval
from graphmem_torch.link import Linker, concept_id
from graphmem_torch.rank.fit import fit_listwise
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.results import Context, Hit, PathStep, Result
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.text.concepts import load_concepts
from graphmem_torch.text.embed import Embedder, Encoded, encode_checked, load_embedder
from graphmem_torch.text.question import asks_when, named_dates, named_speakers
from graphmem_torch.text.read import document_atoms
from graphmem_torch.text.tokens import get_counter

__all__ = ["Added", "Memory"]

_FIT_TILE = 64  # questions whose signals are computed at once


@dataclass(frozen=True, slots=True)
class Added:
    """What an `add` did: atoms stored, and atoms that were there already with the same content."""

    new: int
    known: int

    def __add__(self, other: Added) -> Added:
        """Both together."""
        return Added(self.new + other.new, self.known + other.known)


class Memory:
    """Long-term memory: `add` atoms, `retrieve` for a batch of questions, `compile` a context.

    What `add` has returned for is on disk for good. Retrieval sees everything that was added before it.
    """

    def __init__(self, store: MemoryStore, embedder: Embedder | None, config: Config, device: str) -> None:
        """Use `Memory.open`."""
        self.store = store
        self.config = config
        self.device = device
        self._embedder = embedder
        self._linker: Linker | None = None
        self._assembled: Assembled | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        preset: str = "default",
        config: Config | None = None,
        embedder: Any = None,
        device: str = "auto",
        mode: Literal["w", "r"] = "w",
    ) -> Memory:
        """Opens the memory in a folder.

        Args:
            path: The folder of the store; None keeps it in the process.
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: A SentenceTransformer, its name, or an embedder; by default what the settings name.
            device: Where the index lives: `auto` (CUDA where there is one), `cpu`, `cuda`, ...
            mode: `w` to add (one process at a time), `r` to read.

        Raises:
            ConfigError, EmbedderError, StoreError: As they say; nothing is changed.
        """
        settings = load_config(preset) if config is None else config
        place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if mode == "r" and embedder is None:
            return cls(MemoryStore.open(path, mode="r"), None, settings, place)
        spec = settings.embedder.name if embedder is None else embedder
        loaded = load_embedder(spec, device, token_dim=settings.embedder.token_dim)
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
        return cls(store, loaded, settings, place)

    @property
    def embedder(self) -> Embedder:
        """The encoder; of a memory that is only read it is loaded when it is first needed."""
        if self._embedder is None:
            settings = self.config.embedder
            loaded = load_embedder(settings.name, self.device, token_dim=settings.token_dim)
            bound = self.store.fingerprint
            if bound is not None and bound != loaded.fingerprint:
                raise EmbedderError(
                    f"{self.store.path}: expected the embedder that filled this store ({bound}), got "
                    f"{loaded.name!r} ({loaded.fingerprint}); set embedder.name to the store's own, or index "
                    "the original files into a new folder"
                )
            self._embedder = loaded
        return self._embedder

    @property
    def index(self) -> MemoryIndex:
        """The index of everything that is stored now; rebuilt where the store has changed."""
        return self._current().index

    def add(
        self, atoms: Atom | str | Mapping[str, Any] | Iterable[Atom | str | Mapping[str, Any]], *, progress: bool = False
    ) -> Added:
        """Stores and links atoms. Each batch is one transaction; after an error the batches before it are kept.

        Args:
            atoms: Atoms, texts, or mappings with the attributes of `Atom`. An id that is stored already with the
                same content is passed over, so that an interrupted run can be repeated.
            progress: Shows a bar on stderr.

        Raises:
            InputError: Empty text, an id that is stored with other content, an unknown attribute.
            EmbedderError, StoreError: As they say.
        """
        if isinstance(atoms, (Atom, str, Mapping)):
            atoms = [atoms]
        from tqdm import tqdm

        done = Added(0, 0)
        stream = map(_as_atom, atoms)
        with tqdm(desc="index", unit=" atoms", disable=None if progress else True) as bar:
            for batch in _batched(stream, self.config.link.batch):
                done += self._add_batch(batch)
                bar.update(len(batch))
        return done

    def add_document(self, text: str, *, name: str, time: float | None = None) -> Added:
        """Cuts a document into chunks and stores them; `name` is its session and begins the ids of its chunks."""
        return self.add(
            document_atoms(
                text,
                name=name,
                tokenizer=self.embedder.tokenizer,
                max_tokens=self.config.embedder.max_tokens,
                time=time,
            )
        )

    def retrieve(
        self,
        questions: str | Sequence[str],
        *,
        k: int | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[float, float] | None = None,
        as_of: float | None = None,
    ) -> list[Result]:
        """Ranked memories for each question, with reasons and a confidence.

        Args:
            questions: B questions, answered as one batch.
            k: Hits a question; the preset's number by default.
            kinds: Only atoms of these kinds.
            between: Only atoms whose time is in this span, seconds since the epoch UTC, both ends included.
            as_of: Only atoms whose time is known and not later.

        Raises:
            InputError: An empty question, an unknown kind, k below 1.
        """
        asked = _checked_questions(questions)
        if k is not None and k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        current = self._current()
        if not asked:
            return []
        if current.index.num_atoms == 0:
            return [Result(question, (), 0.0, False) for question in asked]
        query = self._query(current, asked)
        allowed = self._allowed(current, kinds, between, as_of)
        with torch.inference_mode():
            found = current.index(**_forward_arguments(query, allowed), k=k, paths=True)
        results = self._results(asked, current, found)
        if not self.store.readonly:
            used = torch.unique(found.rows[found.rows >= 0]).cpu()
            self.store.log_access(current.node[used].tolist(), clock.time())
        return results

    def compile(
        self, question: str, *, budget: int, k: int | None = None, tokenizer: str = "cl100k_base"
    ) -> Context:
        """The memories that fit a token budget, in the order in which they were stored, with their sources.

        Args:
            question: One question.
            budget: Tokens of the whole rendered context.
            k: Memories to choose from; by default as many as could fit.
            tokenizer: Name of the tokenizer that counts.

        Raises:
            InputError: An empty question, a negative budget, an unknown tokenizer.
        """
        if budget < 0:
            raise InputError(f"budget must be at least 0 tokens, got {budget}")
        count = get_counter(tokenizer)
        pool = max(self.config.rank.k, budget // 16) if k is None else k
        result = self.retrieve([question], k=pool)[0]
        entries = [render_entry(hit) for hit in result.hits]
        costs = torch.tensor([count(entry + SEPARATOR) for entry in entries], dtype=torch.int64)
        scores = torch.tensor([hit.score for hit in result.hits])
        values = scores - scores.min() if len(scores) else scores
        chosen = select_by_density(values, costs, budget).nonzero().squeeze(1).tolist()
        # Tokens merge across a seam, so the parts do not add up exactly: the whole is counted and has the last word.
        while chosen and count(render([entries[i] for i in self._in_order(result, chosen)])) > budget:
            chosen.remove(min(chosen, key=lambda i: float(values[i] / costs[i])))
        ordered = self._in_order(result, chosen)
        text = render([entries[i] for i in ordered])
        return Context(
            question=result.question,
            text=text,
            tokens=count(text),
            budget=budget,
            tokenizer=tokenizer,
            sources=tuple(result.hits[i].id for i in ordered),
            omitted=tuple(hit.id for i, hit in enumerate(result.hits) if i not in set(chosen)),
            confidence=result.confidence,
            known=result.known,
        )

    def fit(
        self, questions: Sequence[str], evidence: Sequence[Sequence[str]], *, penalty: float = 1e-2
    ) -> dict[str, float]:
        """Learns the weights of the signals from questions whose evidence is known; see `fit_weights`.

        The memory uses them from then on; they are also returned, to be kept in a preset.

        Raises:
            InputError: Lengths that differ, an evidence id that is not stored, no evidence at all.
        """
        weights = fit_weights([(self, questions, evidence)], penalty=penalty)
        self.use_weights(weights)
        return weights

    def use_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the weights of the signals."""
        self.config = replace(self.config, rank=replace(self.config.rank, weights=dict(weights)))
        if self._assembled is not None:
            old = self._assembled.index
            tensors = {name: t for name, t in old.state_dict().items() if name != "weights"}
            index = MemoryIndex(tensors, self.config).to(old.embeddings.device)
            self._assembled = replace(self._assembled, index=index)

    def query(self, questions: Sequence[str]) -> QueryBatch:
        """Questions as the tensors that the index reads, on its device."""
        return self._query(self._current(), questions)

    def _query(self, current: Assembled, questions: Sequence[str]) -> QueryBatch:
        """The same for an index that is at hand: a reader's store may have gone on since."""
        encoded = encode_checked(self.embedder, list(questions))
        tokens, pieces = _padded_tokens(encoded)
        months, days = named_dates(questions)
        batch = QueryBatch(
            embedding=encoded.pooled,
            terms=current.vocabulary.encode_padded(list(questions)),
            tokens=tokens,
            pieces=pieces,
            speakers=named_speakers(questions, current.speaker_words, len(current.speakers)),
            months=months,
            days=days,
            asks_when=asks_when(questions),
        )
        return batch.to(current.index.embeddings.device)

    def rows_of(self, ids: Sequence[str]) -> Tensor:  # [n] int64
        """Index rows of stored atoms.

        Raises:
            InputError: An id that is not stored.
        """
        known = self.store.known(list(ids))
        missing = [i for i in ids if i not in known]
        if missing:
            raise InputError(f"expected ids of stored atoms, got {missing[0]!r}, which is not in the store")
        node = self._current().node
        ordered, order = node.sort()
        wanted = torch.tensor([known[i][0] for i in ids], dtype=torch.int64)
        return order[torch.searchsorted(ordered, wanted)]

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and bindings of the store."""
        return self.store.stats()

    def check(self) -> list[str]:
        """Problems of the store; empty where it is sound."""
        return self.store.check()

    def close(self) -> None:
        """Writes the snapshot if it is stale, and gives the store back; a second call does nothing."""
        try:
            if not self.store.closed and not self.store.readonly and self.store.path is not None:
                self._save_snapshot()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        """The memory itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an error without taking the time for a snapshot."""
        if kind is None:
            self.close()
        else:
            self.store.close()

    def _save_snapshot(self) -> None:
        if self.store.num_nodes and not self.store.snapshot_is_current:
            save_assembled(self.store, self._current())

    def _current(self) -> Assembled:
        """The index of the store's present state."""
        if self._assembled is None or self._assembled.state != self.store.state:
            fresh = load_assembled(self.store, self.config)
            if fresh is None:
                packed = self.store.token_dim is not None
                fresh = assemble(self.store, self.config, self.embedder.num_pieces if packed else 0)
            fresh.index.to(self.device)
            self._assembled = fresh
        return self._assembled

    def _add_batch(self, atoms: list[Atom]) -> Added:
        fresh = self._unknown(atoms)
        if not fresh:
            return Added(0, len(atoms))
        if self._linker is None:
            self._linker = self._new_linker()
        linker, self._linker = self._linker, None  # after an error it would be ahead of the store
        encoded = self._encoded(fresh)
        linked = linker.link(fresh, encoded.pooled, self.store.next_node)
        tokens, pieces, offsets = encoded.tokens, encoded.pieces, encoded.offsets
        if offsets is not None:
            offsets = torch.cat([offsets, offsets[-1:].expand(len(linked.concepts))])
        self.store.append(
            Batch(
                atoms=[*fresh, *linked.concepts],
                embeddings=torch.cat([encoded.pooled, linked.embeddings]),
                tokens=tokens,
                pieces=pieces,
                offsets=offsets,
                edges=linked.edges,
            )
        )
        self._linker = linker
        return Added(len(fresh), len(atoms) - len(fresh))

    def _unknown(self, atoms: Sequence[Atom]) -> list[Atom]:
        """The atoms that are not stored yet, each id once.

        Raises:
            InputError: An id that is stored, or comes twice, with different content.
        """
        digests = {i: digest for i, (_, digest) in self.store.known([a.id for a in atoms]).items()}
        fresh = []
        for atom in atoms:
            if atom.kind == CONCEPT or atom.id.startswith(concept_id("")):
                raise InputError(
                    f"atom {atom.id!r}: the kind {CONCEPT!r} and ids that begin with "
                    f"{concept_id('')!r} belong to the concepts that linking makes; choose others"
                )
            if not atom.text.strip():
                raise InputError(f"atom {atom.id!r}: expected text, got none")
            digest, kept = _digest(atom), digests.get(atom.id)
            if kept is None:
                digests[atom.id] = digest
                fresh.append(atom)
            elif kept != digest:
                raise InputError(
                    f"atom {atom.id!r} is stored already with other content; give the new one an id of its own"
                )
        return fresh

    def _encoded(self, atoms: Sequence[Atom]) -> Encoded:
        """Vectors of the atoms; a text that is stored already, or comes twice, is not encoded again."""
        hashes = [text_hash(atom.rendered) for atom in atoms]
        stored = self.store.cached(hashes)
        new = {h: a.rendered for h, a in zip(hashes, atoms, strict=True) if h not in stored}
        encoded = encode_checked(self.embedder, list(new.values()))
        if not stored and len(new) == len(atoms):
            return encoded
        old_hashes = list(stored)
        old = self.store.rows([stored[h] for h in old_hashes])
        place = {h: i for i, h in enumerate([*new, *old_hashes])}
        pick = torch.tensor([place[h] for h in hashes], dtype=torch.int64)
        joined = Encoded(torch.cat([encoded.pooled, old.embeddings]))
        if encoded.offsets is not None:
            joined = Encoded(
                joined.pooled,
                _cat(encoded.tokens, old.tokens),
                _cat(encoded.pieces, old.pieces),
                encoded.offsets
                if old.offsets is None
                else torch.cat([encoded.offsets, encoded.offsets[-1] + old.offsets[1:]]),
            )
        return _take(joined, pick)

    def _new_linker(self) -> Linker:
        settings = self.config.link
        extract = None if settings.concepts == "none" else load_concepts(settings.concepts).extract
        linker = Linker(
            self.embedder.dim,
            settings,
            extract,
            lambda names: encode_checked(self.embedder, list(names)).pooled,
        )
        if self.store.num_nodes:
            nodes = self.store.columns().node.tolist()
            stored = itertools.chain.from_iterable(
                self.store.atoms(part) for part in _batched(iter(nodes), 4096)
            )
            linker.restore(zip(nodes, stored, strict=True), self.store.embeddings())
        return linker

    def _allowed(
        self,
        current: Assembled,
        kinds: Sequence[str] | None,
        between: tuple[float, float] | None,
        as_of: float | None,
    ) -> Tensor | None:
        if kinds is None and between is None and as_of is None:
            return None
        index = current.index
        allowed = torch.ones(index.num_atoms, dtype=torch.bool, device=index.kind.device)
        if kinds is not None:
            codes = [current.kinds.index(kind) for kind in kinds if kind in current.kinds]
            unknown = sorted(set(kinds) - set(current.kinds))
            if unknown:
                raise InputError(
                    f"unknown kind {unknown[0]!r}; the store has {', '.join(sorted(current.kinds))}"
                )
            allowed &= torch.isin(index.kind.long(), torch.tensor(codes, device=index.kind.device))
        if between is not None:
            start, end = between
            if start > end:
                raise InputError(f"between: expected a start before the end, got {start} and {end}")
            allowed &= (index.time >= start) & (index.time <= end)  # an unknown time is NaN
        if as_of is not None:
            allowed &= index.time <= as_of
        return allowed[None]

    def _results(
        self, questions: Sequence[str], current: Assembled, found: Retrieval
    ) -> list[Result]:
        names = current.index.signal_names
        rows, edges = found.rows.cpu(), found.paths.cpu()
        graph = current.index.graph
        source, target = graph.source.cpu().long(), graph.target.cpu().long()
        on_paths = edges[edges >= 0]
        nodes = torch.cat([rows[rows >= 0], source[on_paths], target[on_paths]]).unique()
        atoms = dict(
            zip(nodes.tolist(), self.store.atoms(current.node[nodes].tolist()), strict=True)
        )

        def step(edge: int) -> PathStep:
            return PathStep(
                atoms[int(source[edge])].id,
                atoms[int(target[edge])].id,
                EdgeType(int(graph.type[edge])).name.lower(),
                round(float(graph.weight[edge]), 4),
            )

        def hit(row: int, score: float, shares: list[float], path: list[int]) -> Hit:
            atom = atoms[row]
            return Hit(
                id=atom.id,
                text=atom.rendered,
                score=score,
                signals=dict(zip(names, shares, strict=True)),
                path=tuple(step(edge) for edge in path if edge >= 0),
                kind=atom.kind,
                speaker=atom.speaker,
                session=atom.session,
                time=atom.time,
            )

        results = []
        threshold = self.config.gate.threshold
        columns = (rows, found.scores, found.shares, edges)
        lists = zip(*(c.tolist() for c in columns), found.confidence.tolist(), strict=True)
        for question, (row, score, shares, paths, sure) in zip(questions, lists, strict=True):
            ranked = zip(row, score, shares, paths or [[]] * len(row), strict=True)
            hits = tuple(hit(*each) for each in ranked if each[0] >= 0)
            results.append(Result(question, hits, sure, bool(hits) and sure >= threshold))
        return results

    def _in_order(self, result: Result, chosen: Sequence[int]) -> list[int]:
        """Hits in the order in which they were stored."""
        known = self.store.known([result.hits[i].id for i in chosen])
        return sorted(chosen, key=lambda i: known[result.hits[i].id][0])


def fit_weights(
    sources: Sequence[tuple[Memory, Sequence[str], Sequence[Sequence[str]]]],
    *,
    penalty: float = 1e-2,
) -> dict[str, float]:
    """Learns the weights of the signals from one or several memories with questions and the ids of their evidence.

    Listwise softmax (`rank.fit`). Twice: activation starts at anchors that the weights choose, so the second pass
    learns from the activation of the first pass's anchors.

    Raises:
        InputError: Lengths that differ, an evidence id that is not stored, no evidence at all.
    """
    original = [memory.config for memory, _, _ in sources]
    weights: dict[str, float] = {}
    try:
        for _ in range(2):
            batches = [part for source in sources for part in _fit_batches(*source)]
            fitted = fit_listwise(batches, penalty=penalty).tolist()
            weights = dict(zip(sources[0][0].index.signal_names, fitted, strict=True))
            for memory, _, _ in sources:
                memory.use_weights(weights)
    finally:
        for (memory, _, _), config in zip(sources, original, strict=True):
            memory.use_weights(config.rank.weights)
    return weights


def _fit_batches(
    memory: Memory, questions: Sequence[str], evidence: Sequence[Sequence[str]]
) -> Iterator[tuple[Tensor, Tensor]]:
    if len(questions) != len(evidence):
        raise InputError(
            f"expected evidence for each question, got {len(questions)} questions and {len(evidence)} lists of ids"
        )
    for start in range(0, len(questions), _FIT_TILE):
        part = slice(start, start + _FIT_TILE)
        query = memory.query(list(questions[part]))
        with torch.inference_mode():
            rows, signals, scope = memory.index.features(query)
            signals = signals.masked_fill(~scope.valid[:, :, None], -torch.inf)
        count = memory.index.num_atoms
        gold = torch.zeros(len(query), count, dtype=torch.bool)
        for line, ids in zip(gold, evidence[part], strict=True):
            line[memory.rows_of(list(ids))] = True
        if rows is not None:
            gold = gold.gather(1, rows.clamp(min=0).cpu()) & (rows >= 0).cpu()
        yield signals.cpu().clone(), gold


def _as_atom(value: Atom | str | Mapping[str, Any]) -> Atom:
    if isinstance(value, Atom):
        return _checked_atom(value)
    if isinstance(value, str):
        return Atom(id=f"text:{text_hash(value)[:16]}", text=value)
    unknown = set(value) - {f.name for f in fields(Atom)}
    if unknown:
        raise InputError(
            f"unknown attribute {sorted(unknown)[0]!r} of an atom; see graphmem_torch.Atom for the known ones"
        )
    if "text" not in value:
        raise InputError(f"expected an atom with a text, got {dict(value)!r}")
    return _checked_atom(Atom(**{"id": f"text:{text_hash(str(value['text']))[:16]}", **value}))


def _checked_atom(atom: Atom) -> Atom:
    """What is looked at before the store, which checks the rest, sees the atom."""
    for name in ("id", "text"):
        if not isinstance(getattr(atom, name), str):
            raise InputError(
                f"atom {atom.id!r}: {name}: expected a string, got {getattr(atom, name)!r}"
            )
    if not all(isinstance(link, Link) for link in atom.edges):
        raise InputError(
            f"atom {atom.id!r}: edges: expected Link(target, type, weight), got {atom.edges!r}"
        )
    return atom


def _digest(atom: Atom) -> str:
    try:
        return atom.digest
    except (TypeError, ValueError) as error:
        raise InputError(
            f"atom {atom.id!r}: expected what JSON can hold, got another value ({error})"
        ) from error


def _batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while part := list(itertools.islice(items, size)):
        yield part


def _checked_questions(questions: str | Sequence[str]) -> list[str]:
    asked = [questions] if isinstance(questions, str) else list(questions)
    for place, question in enumerate(asked):
        if not isinstance(question, str) or not question.strip():
            raise InputError(f"expected a question, got {question!r} at place {place}; leave it out")
    return asked


def _padded_tokens(encoded: Encoded) -> tuple[Tensor | None, Tensor | None]:
    """Packed token vectors as [B, Q, m] float32 and [B, Q] pieces, -1 = padding."""
    if encoded.tokens is None or encoded.pieces is None or encoded.offsets is None:
        return None, None
    counts = encoded.offsets.diff()
    width = max(1, int(counts.max()) if len(counts) else 0)
    filled = torch.arange(width) < counts[:, None]
    pieces = torch.full(filled.shape, -1, dtype=torch.int64)
    pieces[filled] = encoded.pieces.long()
    tokens = torch.zeros(*filled.shape, encoded.tokens.shape[1])
    tokens[filled] = torch.nn.functional.normalize(encoded.tokens.float(), dim=1)
    return tokens, pieces


def _forward_arguments(query: QueryBatch, allowed: Tensor | None) -> dict[str, Any]:
    return {
        "query_embeddings": query.embedding,
        "query_terms": query.terms,
        "query_tokens": query.tokens,
        "query_pieces": query.pieces,
        "speakers": query.speakers,
        "months": query.months,
        "days": query.days,
        "asks_when": query.asks_when,
        "allowed": allowed,
    }


def _cat(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if one is None or other is None else torch.cat([one, other])


def _take(encoded: Encoded, pick: Tensor) -> Encoded:
    """Some texts of an encoding, in the given order."""
    if encoded.offsets is None or encoded.tokens is None or encoded.pieces is None:
        return Encoded(encoded.pooled[pick])
    counts = encoded.offsets.diff()[pick]
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(counts)
    rows = (encoded.offsets[:-1][pick] - offsets[:-1])[owner] + torch.arange(int(offsets[-1]))
    return Encoded(encoded.pooled[pick], encoded.tokens[rows], encoded.pieces[rows], offsets)
