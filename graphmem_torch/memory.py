"""Memory: the application object, a store on disk with an embedder and the current index."""

from __future__ import annotations

import json
import os
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor

from graphmem_torch.ask import (
    atom_masks,
    checked_questions,
    forward_arguments,
    query_batch,
    to_results,
)
from graphmem_torch.assemble import Assembled, assemble, load_assembled, save_assembled
from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.context import compile_context
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.following import ModeFollower
from graphmem_torch.index import MemoryIndex
from graphmem_torch.judging import JudgedEdges, checked_pairs, judge_pairs, similar_pairs
from graphmem_torch.learn import FitReport, fit_and_report
from graphmem_torch.missing import MissingLink, missing_links
from graphmem_torch.oracle import Judge, Oracle, judge_of
from graphmem_torch.rank.gate import conformal_threshold
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.regimes import RegimeWatch
from graphmem_torch.report import Report, write_report
from graphmem_torch.results import (
    Context,
    Mode,
    ModeAlignment,
    ModeSummary,
    RegimeSwitch,
    Result,
)
from graphmem_torch.stated import Connected, connect_all, disconnect
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.database import DATABASE_NAME
from graphmem_torch.structure import Structure
from graphmem_torch.survey import Survey, survey
from graphmem_torch.text.embed import Embedder, load_embedder
from graphmem_torch.text.entailment import LexicalJudge
from graphmem_torch.text.read import document_atoms
from graphmem_torch.text.records import parse_edge_type
from graphmem_torch.themes import aligned, listed, summarised
from graphmem_torch.writer import Added, Writer, as_atom

__all__ = ["Added", "Memory"]

_EMBEDDER = "embedder"  # under which the store keeps the embedder's name


class Memory:
    """Long-term memory: `add` atoms, `retrieve` for a batch of questions, `compile` a context.

    What `add` has returned for is on disk for good. Retrieval sees everything that was added before
    it.
    """

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None, config: Config, device: str
    ) -> None:
        """Use `Memory.open`."""
        self.store = store
        self.config = config
        self.device = device
        self._embedder = embedder
        self._writer: Writer | None = None
        self._assembled: Assembled | None = None
        self._survey: Survey | None = None
        self._watch: RegimeWatch | None = None
        self._follower = ModeFollower()
        self._saved = False  # whether the snapshot holds what is assembled

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
            embedder: A SentenceTransformer, its name, or an embedder; by default the store's own,
                and for a new store what the settings name.
            device: Where the index lives: `auto` (CUDA where there is one), `cpu`, `cuda`, ...
            mode: `w` to add (one process at a time), `r` to read.

        Raises:
            ConfigError, EmbedderError, StoreError: As they say; nothing is changed.
        """
        settings = load_config(preset) if config is None else config
        place = _usable_device(device)
        if mode == "r" and embedder is None:
            return cls(MemoryStore.open(path, mode="r"), None, settings, place)
        own = settings.embedder
        remembered = None if embedder is not None else _remembered_embedder(path)
        spec, token_dim = remembered or (embedder or own.name, own.token_dim)
        loaded = load_embedder(spec, place, token_dim=token_dim)
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
        if mode == "w" and isinstance(spec, str):
            _remember_embedder(store, spec, token_dim)
        return cls(store, loaded, settings, place)

    @property
    def embedder(self) -> Embedder:
        """The encoder; of a memory that is only read it is loaded when it is first needed."""
        if self._embedder is None:
            own = self.config.embedder
            spec, token_dim = _recall_embedder(self.store) or (own.name, own.token_dim)
            loaded = load_embedder(spec, self.device, token_dim=token_dim)
            bound = self.store.fingerprint
            if bound is not None and bound != loaded.fingerprint:
                raise EmbedderError(
                    f"{self.store.path}: expected the embedder that filled this store ({bound}), "
                    f"got {loaded.name!r} ({loaded.fingerprint}); open the store with its own "
                    "embedder, or index the original files into a new folder"
                )
            self._embedder = loaded
        return self._embedder

    @property
    def index(self) -> MemoryIndex:
        """The index of everything that is stored now; rebuilt where the store has changed."""
        return self._current().index

    def add(
        self,
        atoms: Atom | str | Mapping[str, Any] | Iterable[Atom | str | Mapping[str, Any]],
        *,
        progress: bool = False,
        origins: Mapping[str, str] | None = None,
    ) -> Added:
        """Stores and links atoms, a batch at a time.

        Each batch is one transaction; after an error the ones before stay.

        Args:
            atoms: Atoms, texts, or mappings with the fields of a line of JSON lines. An id that is
                stored already with the same content is passed over, so that an interrupted run can
                be repeated.
            progress: Shows a bar on stderr.
            origins: For ids of atoms, where they came from, for messages; may be filled while the
                atoms are read.

        Raises:
            InputError: Empty text, an id that is stored with other content, an unusable field.
            EmbedderError, StoreError: As they say.
        """
        from tqdm import tqdm

        if isinstance(atoms, (Atom, str, Mapping)):
            atoms = [atoms]
        if not isinstance(atoms, Iterable):
            raise InputError(f"expected atoms, texts or mappings, got {atoms!r}")
        if self._writer is None:
            self._writer = Writer(self.store, self.embedder, self.config.link)
            self._writer.stored = self._watched
        places = {} if origins is None else origins  # it may be filled as the atoms are read
        done = Added(0, 0)
        with tqdm(desc="index", unit=" atoms", disable=None if progress else True) as bar:
            for added in self._writer.batches(map(as_atom, atoms), places):
                done += added
                bar.update(added.new + added.known)
        self._writer.warn_of_unresolved()
        return done

    def add_document(self, text: str, *, name: str, time: float | None = None) -> Added:
        """Cuts a document into chunks and stores them in the session `name`, ids `name#0`, ..."""
        return self.add(
            document_atoms(
                text,
                name=name,
                tokenizer=self.embedder.tokenizer,
                max_tokens=self.config.embedder.max_tokens,
                time=time,
            )
        )

    def connect(
        self,
        source: str | Iterable[Any],
        target: str | None = None,
        type: str | EdgeType = EdgeType.RELATED_TO,
        weight: float | None = None,
    ) -> Connected:
        """Connects stored atoms: `connect("a", "b", "supports")`, or many edges at once.

        On disk for good when it returns, and seen by the next question. Of the edges of one
        (source, target, type) the strongest counts; one that is not stronger than what is stored is
        passed over. To weaken an edge, `disconnect` it first.

        Args:
            source: Id of an atom; or an iterable of (source, target), (source, target, type),
                (source, target, type, weight) or (source, Link), stored in one transaction.
            target: Id of another atom.
            type: Name of an `EdgeType`.
            weight: Its strength, by default that of the type. Contradictions are stored negative
                whatever its sign, for other types it must be positive.

        Raises:
            InputError: An id that is not stored, an unknown type (naming the nearest), a weight
                that does not fit; nothing is stored then.
            StoreError: Read-only store or full disk; likewise.
        """
        if isinstance(source, str):
            return connect_all(self.store, [(source, target, type, weight)])
        if target is not None or weight is not None or type != EdgeType.RELATED_TO:
            raise InputError(
                "target, type, weight: expected none beside many edges; write them into each edge"
            )
        return connect_all(self.store, source)

    def disconnect(self, source: str, target: str, type: str | EdgeType | None = None) -> int:
        """Deletes the edges from one atom to another, of one type or of all; how many there were.

        Raises:
            InputError: An id that is not stored, or an unknown type.
            StoreError: Read-only store or full disk; nothing is deleted then.
        """
        return disconnect(self.store, source, target, type)

    def judge_edges(
        self,
        oracle: Oracle | Judge | None = None,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        k: int = 4,
        least: float = 0.6,
        progress: bool = False,
    ) -> JudgedEdges:
        """Adds implications and contradictions between atoms, as an oracle judges them.

        `mathematics.md` 2.1: an implication weighs 0.5 to 1 by the verdict's confidence, a
        contradiction -0.5. An oracle that fails or answers nonsense costs its pairs their edges and
        nothing else; a warning says so.

        Args:
            oracle: An object with `judge(premises, hypotheses)`, or that function; by default the
                local rule (`text.entailment.LexicalJudge`).
            pairs: (premise, hypothesis) ids; by default each atom with its `k` most similar earlier
                ones, both ways round.
            k: Of the default pairs.
            least: Cosine from which an atom counts as similar.
            progress: Shows a bar on stderr.

        Raises:
            InputError: An id that is not stored, or something that is no pair or no oracle.
        """
        from tqdm import tqdm

        judge = judge_of(LexicalJudge(self.embedder) if oracle is None else oracle)
        asked = self._similar_ids(k, least) if pairs is None else checked_pairs(pairs)
        done = JudgedEdges()
        with tqdm(
            total=len(asked), desc="judge", unit=" pairs", disable=None if progress else True
        ) as bar:
            for done in judge_pairs(self.store, judge, asked):
                bar.update(done.judged - bar.n)
        return done

    def _similar_ids(self, k: int, least: float) -> list[tuple[str, str]]:
        """Ids of similar atoms, both ways round."""
        current = self._current()
        rows = similar_pairs(current.index.embeddings.float(), k=k, least=least).cpu()
        atoms = self.store.atoms(current.node[rows.unique()].tolist())
        name = dict(zip(rows.unique().tolist(), [atom.id for atom in atoms], strict=True))
        ends = [(name[a], name[b]) for a, b in rows.T.tolist()]
        return [pair for a, b in ends for pair in ((a, b), (b, a))]

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
            kinds: Only hits of these kinds; other atoms still lead to them.
            between: Only atoms whose time is in this span, seconds since the epoch UTC, both ends
                included.
            as_of: Only atoms whose time is known and not later.

        Raises:
            InputError: An empty question, an unknown kind, k below 1.
        """
        asked = checked_questions(questions)
        if k is not None and (not isinstance(k, int) or k < 1):
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        current = self._current()
        if not asked:
            return []
        if current.index.num_atoms == 0:
            return [Result(question, (), 0.0, False) for question in asked]
        query = query_batch(asked, self.embedder, current)
        query = replace(query, **atom_masks(current, kinds, between, as_of))
        with torch.inference_mode():
            found = current.index(**forward_arguments(query), k=k, paths=True)
        results = to_results(asked, current, found, self.store, self.config.gate.threshold)
        if not self.store.readonly:
            used = torch.unique(found.rows[found.rows >= 0]).cpu()
            self.store.log_access(current.node[used].tolist(), clock.time())
        return results

    def compile(
        self, question: str, *, budget: int, k: int | None = None, tokenizer: str = "cl100k_base"
    ) -> Context:
        """The memories that fit a token budget, with their sources, in the order of storing.

        Args:
            question: One question.
            budget: Tokens of the whole rendered context.
            k: Memories to choose from; by default as many as could fit.
            tokenizer: Name of the tokenizer that counts.

        Raises:
            InputError: An empty question, a negative budget, an unknown tokenizer.
        """
        if not isinstance(budget, int) or budget < 0:
            raise InputError(f"budget must be a whole number of tokens, at least 0, got {budget!r}")
        pool = max(self.config.rank.k, budget // 16) if k is None else k
        result = self.retrieve([question], k=pool)[0]
        known = self.store.known([hit.id for hit in result.hits])
        order = [known[hit.id][0] for hit in result.hits]
        return compile_context(result, order, budget=budget, tokenizer=tokenizer)

    def modes(self) -> list[Mode]:
        """The themes that the memories gather around, the largest first.

        `mathematics.md` 1.3, as the settings `modes` say, whether the preset's index keeps them or
        not. Modes follow what is added, and are found anew where they have drifted by `modes.drift`
        or a regime has switched (1.8).
        """
        return listed(self._current(), self.store)

    def summary(
        self, question: str | None = None, *, modes: int | None = None
    ) -> list[ModeSummary]:
        """A claim, a piece of evidence and a question of each mode, one sentence each.

        `mathematics.md` 1.6: the smallest thing to send to a model that says what is remembered.

        Args:
            question: Only the modes that matter to it, the best first; by default all modes.
            modes: At most so many; for a question by default as many as `modes.look` says.

        Raises:
            InputError: An empty question, or `modes` below 1.
        """
        if modes is not None and (not isinstance(modes, int) or modes < 1):
            raise InputError(f"modes must be a whole number of at least 1, got {modes!r}")
        asked = [] if question is None else checked_questions([question])
        current = self._current()
        query = query_batch(asked, self.embedder, current).embedding.float() if asked else None
        return summarised(current, self.store, query, modes)

    def align_modes(
        self, first: str = "episodic", second: str = "semantic", *, by: str = "type"
    ) -> ModeAlignment:
        """Which modes of one part of the memory are those of another.

        See `spectral.align_modes` for what it is good for.

        Args:
            first: A value of `by`: the atoms that have it are the first part.
            second: Another.
            by: `type`, `kind`, `speaker` or `session`.

        Raises:
            InputError: A value that no atom has.
        """
        return aligned(self._current(), self.store, first, second, by)

    def fit(
        self,
        questions: Sequence[str],
        evidence: Sequence[Sequence[str]],
        *,
        penalty: float = 1e-2,
        held_out: float = 0.0,
        seed: int = 0,
    ) -> FitReport:
        """Learns the weights of the signals from questions whose evidence is known.

        Routing included: `proximity` and `bridge` are signals like the others. See
        `learn.fit_weights`. The memory uses the weights from then on.

        Args:
            questions: Never those on which figures will be reported: keep a test half back.
            evidence: Ids of the atoms that answer each question.
            penalty: Of the squared weights of signals of unit variance.
            held_out: Share of the questions that is not learned from but tells what was gained.
            seed: Of the choice of these questions and of the interval.

        Returns:
            The weight of each signal, as a mapping, to be kept in a preset; with `held_out` also
            the recall@10 of the held-out questions before and after, and their difference with its
            interval.

        Raises:
            InputError: Lengths that differ, an evidence id that is not stored, no evidence at all,
                a share outside [0, 1), or too few questions to hold some back.
        """
        report = fit_and_report(
            self, questions, evidence, penalty=penalty, held_out=held_out, seed=seed
        )
        self.use_weights(report)
        return report

    def calibrate(self, questions: Sequence[str], *, refused: float = 0.05) -> float:
        """Sets the gate so that it refuses at most this share of answerable questions.

        `mathematics.md` 7: a conformal threshold, valid for questions exchangeable with these,
        which must be answerable and must not have been used to fit the weights.

        Args:
            questions: Answerable questions, at least 1 / refused of them or the gate never closes.
            refused: Share of answerable questions that may be refused, in [0, 1).

        Returns:
            The threshold, which the memory uses from then on; to be kept as `gate.threshold`.

        Raises:
            InputError: No questions, or a share outside [0, 1).
        """
        sure = torch.tensor([result.confidence for result in self.retrieve(questions, k=1)])
        threshold = conformal_threshold(sure, refused)
        self.config = replace(self.config, gate=replace(self.config.gate, threshold=threshold))
        return threshold

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
        return query_batch(questions, self.embedder, self._current())

    def rows_of(self, ids: Sequence[str]) -> Tensor:  # [n] int64
        """Index rows of stored atoms.

        Raises:
            InputError: An id that is not stored.
        """
        known = self.store.known(list(ids))
        missing = [i for i in ids if i not in known]
        if missing:
            raise InputError(
                f"expected ids of stored atoms, got {missing[0]!r}, which is not in the store"
            )
        node = self._current().node
        ordered, order = node.sort()
        wanted = torch.tensor([known[i][0] for i in ids], dtype=torch.int64)
        return order[torch.searchsorted(ordered, wanted)]

    def structure(self, *, refresh: bool = False) -> Structure:
        """Spectrum, communities, bridges, frontiers and frustration of the graph of memories.

        `mathematics.md` 2. Kept until the store changes, and then brought up to date where it did.

        Args:
            refresh: Analyses everything anew, as after a regime switch.

        Raises:
            InputError: If the library for communities is not installed.
        """
        known = None if refresh else self._survey
        if known is not None and known.structure.settings != self.config.structure:
            known = None
        self._survey = survey(self.store, self.config.structure, self.device, known)
        return self._survey.structure

    def missing_links(
        self, k: int = 10, *, type: str | EdgeType = EdgeType.DEPENDENCY
    ) -> list[MissingLink]:
        """The k likeliest edges of a type that are not there, by the pattern of those that are.

        Raises:
            InputError: Fewer than 2 such edges, more than 20,000 memories, or k below 1.
        """
        kind = parse_edge_type(type) if isinstance(type, str) else type
        return missing_links(self.store, k, type=kind)

    def on_regime_switch(
        self, function: Callable[[RegimeSwitch], object]
    ) -> Callable[[RegimeSwitch], object]:
        """Calls a function whenever what is added turns to something else; also as a decorator.

        It is called by `add`, once the atoms are stored for good, and gets a `RegimeSwitch`; where
        it raises, that is logged and the adding goes on. What the detector has learned stays in the
        store; the first call after opening catches up with at most the last 4,096 atoms.

        Returns:
            The function.

        Raises:
            InputError: Nothing that can be called, a memory that is only read, or a preset whose
                `regime.detector` is `none`.
        """
        if self.store.readonly:
            raise InputError(
                "on_regime_switch: expected a memory that can be added to, got one opened with "
                "mode='r'; open it with mode='w'"
            )
        if self._watch is None:
            self._watch = RegimeWatch(self.store, self.config.regime, self.embedder.dim)
            self._watch.call(self._switched)
        self._watch.call(function)
        return function

    def _watched(self, atoms: Sequence[Atom], embeddings: Tensor) -> None:
        """A batch is stored."""
        if self._watch is not None:
            self._watch.observe(atoms, embeddings)

    def _switched(self, switch: RegimeSwitch) -> None:
        """The first to be called: the others find communities and modes that are fresh."""
        self._survey = None
        self._follower.renew()

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and bindings of the store.

        `modes_found` and `modes_followed` say how often this object has found modes in full, and
        how often it only counted new atoms in.
        """
        follower = self._follower
        counts = {"modes_found": follower.found, "modes_followed": follower.followed}
        return self.store.stats() | counts

    def report(self, path: str | os.PathLike[str], *, limit: int = 50_000) -> Report:
        """Writes one self-contained HTML page about the memory; see `report.write_report`."""
        return write_report(self, path, limit=limit)

    def check(self) -> list[str]:
        """Problems of the store; empty where it is sound."""
        return self.store.check()

    def close(self) -> None:
        """Writes a stale snapshot anew and gives the store back; a second call does nothing."""
        try:
            if not self.store.closed and not self.store.readonly and self.store.path is not None:
                if self._watch is not None:
                    self._watch.save()
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
        if self.store.num_nodes:
            current = self._current()
            if not self._saved:
                save_assembled(self.store, current)
                self._saved = True

    def _current(self) -> Assembled:
        """The index of the store's present state."""
        if self._assembled is None or self._assembled.state != self.store.state:
            fresh = load_assembled(self.store, self.config, self._follower)
            self._saved = fresh is not None
            if fresh is None:
                packed = self.store.token_dim is not None
                pieces = self.embedder.num_pieces if packed else 0
                fresh = assemble(self.store, self.config, pieces, self._follower)
            fresh.index.to(self.device)
            self._assembled = fresh
        return self._assembled


def _remember_embedder(store: MemoryStore, name: str, token_dim: int) -> None:
    """Keeps how the embedder was loaded, a folder by its absolute path."""
    name = str(Path(name).resolve()) if Path(name).is_dir() else name
    value = json.dumps([name, token_dim])
    if store.meta_get(_EMBEDDER) != value:
        store.meta_set(_EMBEDDER, value)


def _recall_embedder(store: MemoryStore) -> tuple[str, int] | None:
    """Name and token width of the embedder of a store that was opened with a named one."""
    kept = store.meta_get(_EMBEDDER)
    return None if kept is None else tuple(json.loads(kept))


def _remembered_embedder(path: str | os.PathLike[str] | None) -> tuple[str, int] | None:
    """The same for a folder, where there is a store in it."""
    if path is None or not (Path(path) / DATABASE_NAME).exists():
        return None
    with MemoryStore.open(path, mode="r") as store:
        return _recall_embedder(store) if store.num_nodes else None


def _usable_device(device: str) -> str:
    """The device that `device` names; `auto` is CUDA where there is one.

    Raises:
        InputError: No such device here.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"expected a device of this machine (auto, cpu, cuda, ...), got {device!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return device
