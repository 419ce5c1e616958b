"""Writer: encodes, links and stores new atoms in batches."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, Atom, EdgeType
from graphmem_torch.config import LinkConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError, StoreError, StoreLockedError, located
from graphmem_torch.memory.batch_checks import (
    check_kind,
    fresh_atoms,
    other_content,
    with_edges_of,
)
from graphmem_torch.memory.compatibility import (
    bind_concepts,
    bound_concepts,
    link_settings,
    load_extractor,
    namer,
)
from graphmem_torch.memory.intake import digest_of
from graphmem_torch.memory.known_vectors import (
    NOTHING_KNOWN,
    KnownVectors,
    encoded_atoms,
    joined,
    token_rows,
)
from graphmem_torch.memory.link import Linker
from graphmem_torch.memory.linked import Linked
from graphmem_torch.memory.lookup import waiting_meta, waiting_nodes
from graphmem_torch.memory.mentions import name_cosines
from graphmem_torch.memory.regime_watch import RegimeWatch
from graphmem_torch.memory.removal import NewVersion, Removal, unlink
from graphmem_torch.memory.similar_lists import load_lists, save_lists
from graphmem_torch.memory.split_names import SplitNames
from graphmem_torch.memory.text_finder import row_of
from graphmem_torch.results import RegimeSwitch
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.records import AtomRow
from graphmem_torch.store.schema import ORDERED_BY
from graphmem_torch.text.concepts import ConceptExtractor
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked

__all__ = ["Writer"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RENAMED = "link.renamed"  # key of a value that changes when names change without a deletion
_MEND = 64  # maximum number of an older release's names that one write decides again


@dataclass(eq=False)
class _Addition:
    """Atoms that one caller adds: checked and encoded, waiting to be stored, and the outcome.

    Attributes:
        atoms: Atoms, each id once, that were not stored when checked.
        rows: Their rows, from `row_of`.
        origins: File and line by id, as in `Writer.add`.
        encoded: Their vectors.
        names: Concepts by text.
        vectors: Vectors [d] of names that linking may not know yet.
        finder: Name of the finder of the concepts.
        when: Now, seconds since the epoch UTC.
        alone: Whether to store it separately, as a group with it failed.
        done: Whether it is stored or has an error.
        error: Error that prevents storing.
        stored: Atoms that were new.
        switches: Regime switches that the writer's watch found in them.
    """

    atoms: list[Atom]
    rows: list[AtomRow]
    origins: Mapping[str, str]
    encoded: Encoded
    names: dict[str, list[str]]
    vectors: dict[str, Tensor]
    finder: str | None
    when: float
    alone: bool = False
    done: bool = False
    error: Exception | None = None
    stored: list[Atom] = field(default_factory=list)
    switches: list[RegimeSwitch] = field(default_factory=list)


class Writer:
    """Adds atoms to a store; safe for threads and for several processes.

    Encoding needs no turn. The caller that gets the turn of the store first reads what others
    committed, then links and stores all waiting additions in one transaction.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder,
        config: LinkConfig,
        concepts: str | ConceptExtractor,
        regimes: RegimeWatch | None = None,
        device: str = "cpu",
    ) -> None:
        """Create without reading; the first batch reads.

        Args:
            store: Store, open for writing.
            embedder: Encoder that the store is bound to.
            config: Settings of linking.
            concepts: Finder of concepts for a store that has none yet; see `bind_concepts`.
            regimes: Watch that reads what is stored, in its turn.
            device: Device that searches for similar atoms.
        """
        self._store, self._embedder, self._given = store, embedder, config
        self._config = link_settings(config, embedder)
        self._concepts, self._regimes, self._device = concepts, regimes, device
        self._finder: str | None = None
        self._extractor: ConceptExtractor | None = None
        self._waiting: list[_Addition] = []
        self._queue = threading.Lock()  # guards the waiting additions
        self._linker: Linker | None = None
        self._sound = False  # whether the linker holds nothing that the store lacks
        self._warned: tuple[int, str | None] = 0, None  # edges whose targets are not stored
        # Counts and generation of the store as the linker knows it.
        self._next = self._nodes = self._aliases = self._generation = 0
        self._renamed: str | None = None
        self._unsettled: list[str] = []  # names that an older release put with others
        self._names: dict[str, list[str]] = {}  # from the current additions
        self._vectors: dict[str, Tensor] = {}
        self._ahead: tuple[dict[str, list[str]], dict[str, Tensor]] = {}, {}

    def warn_of_unresolved(self) -> None:
        """Warn once of stated edges to atoms that are not stored; they wait in their atoms."""
        if self._linker is None:
            return
        waiting, first = unresolved = self._linker.unresolved
        if waiting and unresolved != self._warned:
            _log.warning(
                "%d stated edges point to ids that are not stored, the first of them %r; they are "
                "made as soon as these atoms are added",
                waiting,
                first,
            )
        self._warned = unresolved

    def prepare(self, atoms: Sequence[Atom], names: Mapping[str, Tensor]) -> None:
        """Find the concepts of the next atoms, so that adding them takes less time.

        Args:
            atoms: The next atoms.
            names: Vectors [d] of names that may be new again by then.
        """
        self._begin()
        self._ahead = {}, dict(names)
        if self._config.batch_concepts == 1:
            found, vectors = self._mentions(atoms)
            self._ahead = found, {**names, **vectors}

    def add(
        self,
        atoms: Sequence[Atom],
        origins: Mapping[str, str],
        when: float,
        known: KnownVectors = NOTHING_KNOWN,
    ) -> tuple[list[Atom], list[RegimeSwitch]]:
        """Store one batch durably, and return the atoms that were new.

        Args:
            atoms: Atoms in the order of storing.
            origins: File and line that atoms came from by id, for messages.
            when: Now, seconds since the epoch UTC.
            known: Vectors that are not encoded.

        Raises:
            InputError, ConfigError, EmbedderError, StoreError: An error of this batch; nothing of
                it is stored.
        """
        fresh = fresh_atoms(atoms, self._store.known([atom.id for atom in atoms]), origins)
        if not fresh:
            return [], []
        self._store.expect_writable()
        own = self._addition(fresh, origins, when, known)
        with self._queue:
            self._waiting.append(own)
        try:
            while not own.done:
                with ExitStack() as stack:
                    try:
                        stack.enter_context(self._store.turn())
                    except StoreLockedError:
                        if own in self._waiting:
                            raise
                        continue  # the thread with the turn is about to store it
                    if not own.done:
                        self._lead(own)
        finally:
            with self._queue:
                self._waiting = [each for each in self._waiting if each is not own]
        if own.error is not None:
            raise own.error
        return own.stored, own.switches

    def put(
        self,
        atoms: Sequence[Atom],
        origins: Mapping[str, str],
        when: float,
        known: KnownVectors = NOTHING_KNOWN,
    ) -> tuple[list[Atom], list[RegimeSwitch]]:
        """Store one batch durably; an atom whose id is stored becomes its new version.

        Arguments, result and errors are those of `add`. Stated edges of stored atoms stay.

        Raises:
            InputError: Edges of a stored atom that differ from those stored.
        """
        store = self._store
        store.expect_writable()
        while True:
            with store.reading():
                there = store.known([atom.id for atom in atoms])
                nodes = [node for node, _ in there.values()]
                stored = dict(zip(there, store.atoms(nodes), strict=True))
            given = [with_edges_of(stored.get(atom.id), atom, origins) for atom in atoms]
            given = fresh_atoms(given, {}, origins)
            fresh = [atom for atom in given if atom.id not in there]
            again = [atom for atom in given if atom.id in there]
            changed = [atom for atom in again if not atom.is_of(there[atom.id][1])]
            lasting = [atom for atom in again if atom not in changed and atom != stored[atom.id]]
            if not (fresh or changed or lasting):
                return [], []
            own = self._addition([*changed, *fresh], origins, when, known)
            with store.turn():
                if store.known([atom.id for atom in atoms]) != there:
                    continue
                try:
                    with store.gathering():
                        for atom in lasting:  # of equal content: no version is made
                            store.expiry.put(there[atom.id][0], atom.expires, atom.ttl)
                        for i, atom in enumerate(changed):
                            old = there[atom.id][0], stored[atom.id]
                            self._replace(*old, self._part(own, [i]))
                        part = self._part(own, range(len(changed), len(own.atoms)))
                        self._store_all([part])
                except BaseException:
                    self._sound = False  # the linker may hold what was rolled back
                    raise
                return part.stored, part.switches

    def _part(self, own: _Addition, places: Sequence[int]) -> _Addition:
        """Return some atoms of an addition as one of their own."""
        atoms, rows = [own.atoms[i] for i in places], [own.rows[i] for i in places]
        encoded = self._joined([(own, list(places))])
        return replace(own, atoms=atoms, rows=rows, encoded=encoded, stored=[], switches=[])

    def remove(self, nodes: Sequence[int], write: Callable[[Batch, dict[str, str]], T]) -> T:
        """Remove atoms; in the turn in which their numbers were found.

        Args:
            nodes: Numbers of the atoms.
            write: Function that stores a batch and strings; its result is returned.

        Raises:
            StoreError: Read-only store or full disk; nothing has changed.
        """
        store, none = self._store, torch.empty(0, self._store.dim or 0)
        if not nodes or bound_concepts(store) is None:  # not filled by linking
            return write(Batch([], none, gone=nodes), {})
        self._ready()
        linker, atoms = self._following(), dict(zip(nodes, store.atoms(nodes), strict=True))
        self._sound = False
        changed = linker.hear([], [*atoms.items()], store.first_versions())
        plan = self._unlinked(linker, atoms, changed=changed)
        stated = self._forget(linker, plan, self._left(plan, atoms))
        batch = self._batch_of(plan, stated, [], Encoded(none), Linked.nothing(none.shape[1]))
        split, kept = SplitNames.of(store), linker.split_names()  # of those that are still said
        done = write(batch, {} if len(kept) == len(split.hashes) else linker.split(kept)[0].meta())
        self._wrote(batch)
        return done

    def _unlinked(
        self,
        linker: Linker,
        atoms: dict[int, Atom],
        heir: NewVersion | None = None,
        changed: Sequence[str] = (),
        first: int | None = None,
    ) -> Removal:
        config, finder, waiting = self._config, self._extractor, waiting_nodes(self._store)
        others = self._alias_vectors
        return unlink(
            self._store, atoms, config, finder, linker, others, heir, waiting, changed, first
        )

    def consolidate(self, when: float) -> int:
        """Link the concepts of all waiting atoms, and return their number.

        Args:
            when: Now, seconds since the epoch UTC.

        Raises:
            InputError, ConfigError, EmbedderError, StoreError: An error of linking or storing;
                nothing has changed.
        """
        self._store.expect_writable()
        self.load()
        with self._store.turn():
            count = len(waiting_nodes(self._store))
            if count:
                self._ready()
                self._link([], Encoded(torch.empty(0, self._embedder.dim)), [], when, count)
        return count

    def _alias_vectors(self, names: list[str]) -> Tensor:  # [n, d]
        """Return vectors of alias names, also of those that an older release stored without.

        Only the latter are encoded, once.
        """
        found = self._store.alias_vectors(names)
        if missing := [name for name in names if name not in found]:
            made = self._encode_names(missing)
            self._store.put_alias_vectors(made)
            found |= made
        return torch.stack([found[name] for name in names])

    def _forget(self, linker: Linker, plan: Removal, left: Sequence[tuple[int, Atom]]) -> EdgeBlock:
        """Update the linker with a removal; returns the stated edges to its new concepts."""
        linker.forget(left, plan.names)
        return linker.rename(plan.concepts, plan.embeddings, plan.first, plan.aliases)

    def _batch_of(
        self, plan: Removal, edges: EdgeBlock, atoms: Sequence[Atom], own: Encoded, linked: Linked
    ) -> Batch:
        """Return the batch of a removal, and of atoms with what linking adds, plus more edges."""
        concepts = [*plan.concepts, *linked.concepts]
        tokens = token_rows(own)
        if tokens is not None:  # concepts have no token vectors
            none = tokens.offsets[-1:].expand(len(concepts))
            tokens = tokens._replace(offsets=torch.cat([tokens.offsets, none]))
        return Batch(
            atoms=[*atoms, *concepts],
            embeddings=torch.cat([own.pooled, plan.embeddings, linked.embeddings]),
            tokens=tokens,
            edges=EdgeBlock.cat([plan.edges, edges, linked.edges]),
            cut=EdgeBlock.cat([plan.cut, linked.cut]),
            gone=plan.gone,
            connected=plan.moved,
            unnamed=plan.names,
            aliases=[*plan.aliases, *linked.aliases],
            alias_embeddings=torch.cat([plan.alias_embeddings, linked.alias_embeddings]),
        )

    def update(
        self,
        name: str,
        change: Callable[[Atom], Atom],
        when: float,
        known: KnownVectors = NOTHING_KNOWN,
    ) -> Atom:
        """Store a new version of an atom durably, and return it.

        Args:
            name: Id of the atom.
            change: Function from the present atom to the new one, of the same id and edges.
            when: Now, seconds since the epoch UTC.
            known: Vectors that are not encoded.

        Raises:
            InputError: No such atom, or a content that cannot be stored; nothing has changed.
            ConfigError, EmbedderError, StoreError: An error of linking or storing; nothing has
                changed.
        """
        store = self._store
        store.expect_writable()
        while True:
            with store.reading():
                there = store.known([name])
                if name not in there:
                    raise InputError(
                        f"id: expected that of a stored atom, got {name!r}, which is not in the "
                        "store; add the atom"
                    )
                node, digest = there[name]
                old = store.atoms([node])[0]
            atom = change(old)
            if not atom.text.strip():
                raise InputError(f"atom {name!r}: expected text, got none; delete the atom")
            check_kind(atom, None)
            if atom.kind == CONCEPT:
                raise InputError(
                    f"atom {name!r}: kind: expected another than {CONCEPT!r}, which is that of the "
                    "concepts that linking makes; choose one"
                )
            if digest_of(atom) == digest:
                return old
            own = self._addition([atom], {}, when, known)
            with store.turn():
                if store.known([name]) == there and store.atoms([node]) == [old]:
                    self._replace(node, old, own)
                    return atom

    def _replace(self, node: int, old: Atom, own: _Addition) -> None:
        """Store a new version of an atom; in the turn."""
        self._ready()
        if own.finder != self._finder:
            own.names, own.vectors = self._mentions(own.atoms)
        self._names, self._vectors = own.names, own.vectors
        store, (atom,), linker = self._store, own.atoms, self._following()
        first, new = store.first_versions().get(node, node), store.next_node
        waiting = waiting_nodes(self._store)
        if node in waiting:  # the new version waits instead
            self._names, self._vectors = {atom.whole: []}, {}
        elif atom.whole not in own.names:
            self._names, self._vectors = self._mentions([atom])
        names = self._names.get(atom.whole, ())
        heir = NewVersion(node, new, first, atom, names, linker.nodes_named(names))
        self._sound = False
        changed = linker.hear([(new, atom)], [(node, old)], {node: first, new: first})
        plan = self._unlinked(linker, {node: old}, heir, changed)
        left = [each for each in self._left(plan, {}) if each[0] != node]
        stated = self._forget(linker, plan, left)
        vector, behind = own.encoded.pooled, new + 1 + len(plan.concepts)
        linked = linker.link_again((node, old), atom, vector, new, first, plan.window, behind)
        batch = self._batch_of(plan, stated, [atom], own.encoded, linked)
        own.rows += map(row_of, batch.atoms[1:])  # concepts
        batch = replace(batch, versions=[(node, new)], rows=own.rows)
        waits = [new if each == node else each for each in waiting]
        store.append(batch, when=own.when, first=new, meta=waiting_meta(waits, waiting))
        self._wrote(batch)

    def _ready(self) -> None:
        """Bind and mend the store; in the turn."""
        self._store.unbound()  # it may have another encoder by now
        self._bind()
        if self._store.meta_get(ORDERED_BY) is None:
            self._order()

    def _left(self, plan: Removal, atoms: Mapping[int, Atom]) -> list[tuple[int, Atom]]:
        """Return the atoms of a removal, reading those that are not loaded yet."""
        others = [node for node in plan.gone if node not in atoms]
        return [*atoms.items(), *zip(others, self._store.atoms(others), strict=True)]

    def _wrote(self, batch: Batch) -> None:
        """Record that a batch, which the linker knows, is stored; in the turn."""
        self._follow(self._nodes + len(batch.atoms) - len(batch.gone))

    def _follow(self, nodes: int) -> None:
        """Record that the linker knows all that is stored, `nodes` nodes; in the turn."""
        self._next, self._nodes = self._store.next_node, nodes
        self._aliases = self._store.last_alias
        self._generation, self._sound = self._store.generation, True
        self._renamed = self._store.meta_get(_RENAMED)

    def _lead(self, own: _Addition) -> None:
        """Store all waiting additions, `own` included; in the turn."""
        with self._queue:
            group = [own] if own.alone else [each for each in self._waiting if not each.alone]
            self._waiting = [each for each in self._waiting if each not in group]
        try:
            self._store_all(group)
        except BaseException as error:
            others = [each for each in group if each is not own and not each.done]
            ours = isinstance(error, StoreError) or not isinstance(error, Exception)
            for each in others:
                # The faulty addition is not known, unless the error is the disk's.
                each.alone = not ours
            with self._queue:
                self._waiting = others + self._waiting
            if ours or not others:
                raise
            own.alone = True
            self._store_all([own])

    def _store_all(self, group: Sequence[_Addition]) -> None:
        """Link and store additions in one transaction, and set the outcome of each."""
        self._ready()
        self._names, self._vectors = {}, {}
        for each in group:
            if each.finder != self._finder and self._config.batch_concepts == 1:
                each.names, each.vectors = self._mentions(each.atoms)
            self._names |= each.names
            self._vectors |= each.vectors
        ids = [atom.id for each in group for atom in each.atoms]
        known = {name: digest for name, (_, digest) in self._store.known(ids).items()}
        parts = []
        for each in group:
            try:
                parts.append((each, self._fresh(each, known)))
            except InputError as error:
                each.error, each.done = error, True
        fresh = [each.atoms[i] for each, places in parts for i in places]
        rows = [each.rows[i] for each, places in parts for i in places]
        if fresh:
            encoded = self._joined(parts)
            first = self._link(fresh, encoded, rows, max(each.when for each in group))
        for each, places in parts:
            each.stored, each.done = [each.atoms[i] for i in places], True
        if fresh and self._regimes is not None:
            owner = {each.atoms[i].id: each for each, places in parts for i in places}
            for switch in self._regimes.observe(fresh, encoded.pooled, first):
                owner[switch.atom].switches.append(switch)

    def _link(
        self,
        atoms: Sequence[Atom],
        encoded: Encoded,
        rows: list[AtomRow],
        when: float,
        ready: int | None = None,
    ) -> int:
        """Link and store new atoms, and the concepts of waiting ones; in the turn.

        The first `ready` of all that wait are linked; by default as many as
        `link.batch_concepts` says. Returns the number of the first atom.
        """
        store, linker = self._store, self._following()
        nodes = waiting_nodes(store)
        waiting = list(zip(nodes, store.atoms(nodes), strict=True))
        first, every = store.next_node, self._config.batch_concepts
        if ready is None:
            ready = (len(nodes) + len(atoms)) // every * every
        if nodes or every > 1:
            said = [*(atom for _, atom in waiting), *atoms][:ready]
            self._names, self._vectors = self._mentions(said)
        # After an error the linker may hold more than the store.
        self._sound = False
        changed = linker.hear([*enumerate(atoms, first)])
        plan, stated = Removal.nothing(first, self._embedder.dim), EdgeBlock.empty()
        if changed:
            plan = self._unlinked(linker, {}, changed=changed, first=first + len(atoms))
            stated = self._forget(linker, plan, self._left(plan, {}))
        between = len(plan.concepts)
        linked = linker.link(atoms, encoded.pooled, first, waiting, ready, between)
        batch = self._batch_of(plan, stated, atoms, encoded, linked)
        batch = replace(batch, rows=[*rows, *map(row_of, batch.atoms[len(atoms) :])])
        waits = [*nodes, *range(first, first + len(atoms))][ready:]
        meta = waiting_meta(waits, nodes)
        if plan.names:
            meta[_RENAMED] = str(store.generation + 1)
        store.append(batch, when=when, first=first, meta=meta)
        self._wrote(batch)
        save_lists(store, linker)
        return first

    def _fresh(self, own: _Addition, known: dict[str, str]) -> list[int]:
        """Return the positions of the unknown atoms, and add these to `known`.

        Raises:
            InputError: An id is known with other content.
        """
        digests = [row.values[-1].hex() for row in own.rows]
        for atom, digest in zip(own.atoms, digests, strict=True):
            kept = known.get(atom.id, digest)
            if kept != digest and not atom.is_of(kept):
                raise other_content(atom, "is stored already", own.origins)
        places = [i for i, atom in enumerate(own.atoms) if atom.id not in known]
        known |= {own.atoms[i].id: digests[i] for i in places}
        return places

    def _joined(self, parts: Sequence[tuple[_Addition, list[int]]]) -> Encoded:
        """Return the vectors of the chosen atoms of several additions."""
        if len(parts) == 1 and len(parts[0][1]) == len(parts[0][0].atoms):
            return parts[0][0].encoded
        count = [0, *itertools.accumulate(len(each.atoms) for each, _ in parts)]
        pick = torch.tensor(
            [start + i for start, (_, places) in zip(count, parts, strict=False) for i in places],
            dtype=torch.int64,
        )
        return joined([each.encoded for each, _ in parts], pick)

    def _addition(
        self, atoms: list[Atom], origins: Mapping[str, str], when: float, known: KnownVectors
    ) -> _Addition:
        """Return atoms with all that linking and storing them needs from the encoder and finder."""
        rows = []
        for atom in atoms:
            with located(origins.get(atom.id)):
                rows.append(row_of(atom))
        self._begin()
        finder = self._finder
        encoded = encoded_atoms(atoms, known, self._store, self._embedder)
        told = atoms if self._config.batch_concepts == 1 else []  # else in their turn
        return _Addition(atoms, rows, origins, encoded, *self._mentions(told), finder, when)

    def _mentions(self, atoms: Sequence[Atom]) -> tuple[dict[str, list[str]], dict[str, Tensor]]:
        """Return concepts by text, and vectors of their names that linking may not know."""
        extractor, linker = self._extractor, self._linker
        if extractor is None:
            return {}, {}
        ahead, vectors = self._ahead
        texts = list(dict.fromkeys(atom.whole for atom in atoms))
        asked = [text for text in texts if text not in ahead]
        said = extractor.extract(asked)
        if len(said) != len(asked):
            raise InputError(
                f"concepts: expected a list of names for each of {len(asked)} texts, got "
                f"{len(said)} from {extractor.name!r}; mend its `extract`"
            )
        names = dict(zip(asked, said, strict=True))
        names = {text: ahead[text] if text in ahead else names[text] for text in texts}
        found = dict.fromkeys(name for each in names.values() for name in each)
        fresh = [name for name in found if linker is None or not linker.knows(name)]
        given = {name: vectors[name] for name in fresh if name in vectors}
        return names, given | self._encode_names([name for name in fresh if name not in given])

    def _encode_names(self, names: Sequence[str]) -> dict[str, Tensor]:
        if not names:
            return {}
        encoder = namer(self._store, self._embedder)
        return dict(zip(names, encode_checked(encoder, names).pooled, strict=True))

    def _vectors_of(self, names: Sequence[str]) -> Tensor:  # [n, d]
        """Return vectors of names, from the current additions where they have them."""
        # A linker that was rebuilt knows fewer names than the one asked before.
        self._vectors |= self._encode_names([name for name in names if name not in self._vectors])
        return torch.stack([self._vectors[name] for name in names])

    def load(self) -> None:
        """Load the finder of concepts before a turn, as others wait for the turn to end."""
        if self._finder is None:
            load_extractor(self._store, self._concepts)

    def _begin(self) -> None:
        """Bind the store the first time."""
        if self._finder is None:
            self.load()
            with self._store.turn():
                self._bind()

    def _bind(self) -> None:
        """Bind the store to the finder of its concepts, or this writer to the store's finder.

        Raises:
            ConfigError: The store is bound to another one.
        """
        if self._finder is None or bound_concepts(self._store) != self._finder:
            self._extractor = bind_concepts(self._store, self._concepts)
            self._finder = bound_concepts(self._store)
            self._sound = False

    def _order(self) -> None:
        """Mend the temporal edges of a store from before turns were ordered by time."""
        if not self._store.num_nodes:
            self._store.meta_set(ORDERED_BY, "time")
            return
        wrong, missing = self._store.misplaced_edges(by_time=True)
        if wrong.shape[1]:
            weight = DEFAULT_EDGE_WEIGHT[EdgeType.TEMPORAL]
            edges = EdgeBlock.of(missing[0], missing[1], EdgeType.TEMPORAL, weight)
            none = torch.empty(0, self._embedder.dim)
            cut = EdgeBlock.of(wrong[0], wrong[1], EdgeType.TEMPORAL, weight)
            self._store.append(Batch([], none, edges=edges, cut=cut), meta={ORDERED_BY: "time"})
        else:
            self._store.meta_set(ORDERED_BY, "time")

    def _following(self) -> Linker:
        """Return the linker, updated with what others have stored since; in the turn."""
        linker, store = self._linker, self._store
        sound = self._sound and self._renamed == store.meta_get(_RENAMED)
        if linker is not None and sound and self._generation != store.generation:
            fresh = store.columns(self._next).node.tolist()
            sound = self._nodes + len(fresh) == store.num_nodes
            if sound:
                self._take_in(linker, fresh)
        if linker is None or not sound:
            linker = self._made_anew()
        part, self._unsettled = self._unsettled[:_MEND], self._unsettled[_MEND:]
        if part:
            self._rename(linker, [name for name in part if linker.knows(name)])
        return linker

    def _made_anew(self) -> Linker:
        """Return a new linker: at first use, after an error, a deletion or a renaming."""
        store = self._store
        names = None if self._extractor is None else self._found
        dim, config = self._embedder.dim, self._config
        near = name_cosines(self._given, namer(store, self._embedder))
        self._linker = linker = Linker(dim, config, names, self._vectors_of, self._device, near)
        self._sound = False
        linker.take_up(store)
        load_lists(store, linker)
        self._follow(store.num_nodes)
        self._unsettled = linker.unsettled() if names is not None else []
        return linker

    def _rename(self, linker: Linker, names: Sequence[str], **meta: str) -> None:
        """Decide names again, and store the result with strings; in the turn."""
        store, dim = self._store, self._embedder.dim
        self._sound = False
        plan = self._unlinked(linker, {}, changed=names)
        stated = self._forget(linker, plan, self._left(plan, {}))
        none = Encoded(torch.empty(0, dim))
        batch = self._batch_of(plan, stated, [], none, Linked.nothing(dim))
        if plan.names or meta:
            store.append(batch, meta={_RENAMED: str(store.generation + 1), **meta})
        self._wrote(batch)

    def split(self, name: str, *, alone: bool) -> bool:
        """Make a name of a concept stand alone, or join others again; returns whether that is new.

        Args:
            name: The name, as stored.
            alone: Whether it stands alone from now on.

        Raises:
            StoreError: Read-only store or full disk; nothing has changed.
        """
        return self._keep_split({name}, alone=alone)

    def split_all(self, names: Collection[str]) -> None:
        """Split names, whether they are known yet or not."""
        self._keep_split(names, alone=True)

    def _keep_split(self, names: Collection[str], *, alone: bool) -> bool:
        self._store.expect_writable()
        self.load()
        with self._store.turn():
            split = SplitNames.of(self._store)
            change = [name for name in names if (name in split) != alone]
            if not change:
                return False
            self._ready()
            linker = self._following()
            kept, changed = linker.split(linker.split_names().symmetric_difference(change))
            self._rename(linker, changed, **kept.meta())
        return True

    def _take_in(self, linker: Linker, nodes: list[int]) -> None:
        store, self._sound = self._store, False
        aliases = store.aliases(self._aliases)
        if nodes or aliases:
            atoms = list(zip(nodes, store.atoms(nodes), strict=True))
            known = [(name, node) for _, name, node in aliases]
            linker.restore(atoms, store.embeddings(self._next), known, store.first_versions())
            linker.hear(atoms, first=store.first_versions())
        self._follow(self._nodes + len(nodes))

    def _found(self, texts: Sequence[str]) -> list[list[str]]:
        return [self._names[text] for text in texts]
