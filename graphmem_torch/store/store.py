"""MemoryStore: the only truth about what is remembered."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError, StoreDamagedError, StoreError
from graphmem_torch.results import Receipt
from graphmem_torch.store import snapshot
from graphmem_torch.store.adjacency import Adjacency
from graphmem_torch.store.batches import Batch, TokenRows
from graphmem_torch.store.blocks import thin_edges, write_blocks
from graphmem_torch.store.changes import CutEdges, note_change
from graphmem_torch.store.database import Database
from graphmem_torch.store.erasure import erase_rows
from graphmem_torch.store.folder import DATABASE_NAME, has_namespaces, store_folder
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.store.node_facts import pass_on, remove_facts, take_away
from graphmem_torch.store.problems import check_store
from graphmem_torch.store.receipts import erased_content, new_receipt
from graphmem_torch.store.records import atom_to_row
from graphmem_torch.store.replacement import EdgesAgain, put_alias_vectors, put_edges, put_vectors
from graphmem_torch.store.schema import ATOM, ATOM_COLUMNS, RESERVED, own_key
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME, drop_snapshot, expect_no_orphan
from graphmem_torch.store.stats import store_stats
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["REEMBED_NAME", "MemoryStore"]

REEMBED_NAME = "reembed.sqlite"
"""The file beside a store that holds vectors of another encoder until all are there."""

_log = logging.getLogger(__name__)


_MARKS = ", ".join("?" * len(ATOM))
_INSERT = f"INSERT INTO atom ({ATOM_COLUMNS}, text_hash, digest) VALUES ({_MARKS})"
_INSERT_ALIAS = "INSERT OR IGNORE INTO alias (name, node) VALUES (?, ?)"


class MemoryStore(TensorReader):
    """Atoms, vectors and edges in SQLite: writers in turn, many readers, one transaction a write.

    After `append` returns, a killed process or a power failure loses nothing of the batch; before
    it returns, nothing of it is there. What can be asked is in `TensorReader`.
    """

    wipe_wait = 2.0
    """Seconds that wiping what was erased waits for readers; beyond, the next opening does it."""

    def __init__(
        self, database: Database, path: Path | None, lock: WriterLock, bound: dict[str, str | None]
    ) -> None:
        """Use `MemoryStore.open`."""
        super().__init__(database, path)
        self._lock, self._bound = lock, bound
        self._adjacency: Adjacency | None = None
        self._following = WriterLock(
            None if database.readonly else path, "sources.lock", create=False, wait=math.inf
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        mode: Literal["w", "r"] = "w",
        fingerprint: str | None = None,
        dim: int | None = None,
        create: bool = True,
        woken: Callable[[], object] | None = None,
    ) -> MemoryStore:
        """Open the store in a folder; with mode "w" it is created when it is missing.

        Args:
            path: The store's folder (`store_folder`); None: a store in memory that ends with the
                object.
            mode: "w" waits for the writer's lock while it opens, and at every write; "r" needs no
                lock and, after a clean close, no folder that can be written.
            fingerprint: Of the embedder; an empty store is bound to it, another must have it.
            dim: Width of the embeddings; likewise.
            create: Whether a missing store is made, with mode "w".
            woken: Called whenever its files were opened again after `rest`.

        Raises:
            EmbedderError: Another embedder filled the store.
            StoreLockedError: Another process has written to the store for `WriterLock.wait`.
            StoreDamagedError: The database is damaged.
            StoreError: No store to read, a folder that cannot be written, an unknown schema
                version, a full disk.
            InputError: An unknown mode.
        """
        if mode not in ("w", "r") or (path is None and mode == "r"):
            raise InputError(
                f"mode: expected 'w' or, for a store on disk, 'r', got {mode!r}. Use mode='w'"
            )
        bound = {"fingerprint": fingerprint, "dim": None if dim is None else str(dim)}
        folder = None if path is None else store_folder(path)
        lock = WriterLock(folder if mode == "w" else None, create=create)
        with lock:
            if folder is not None:
                expect_no_orphan(folder)
            database = Database(folder, readonly=mode == "r", create=create, woken=woken)
            store = cls(database, folder, lock, bound)
            try:
                changed = store._unbound()
                if changed and mode == "w":
                    store._database.write(lambda: store._set(changed))
                if mode == "w":
                    store.finish_erasing()
            except BaseException:
                store.close()
                raise
        return store

    def expect_embedder(self) -> None:
        """Raises EmbedderError where vectors of another embedder than this object's are stored."""
        self._unbound()

    def turn(self) -> AbstractContextManager[None]:
        """Nobody else, in this process or in another, appends inside the `with` block; nests.

        What is read inside to be written on holds until it is written. Keep it short: other writers
        wait.

        Raises:
            StoreLockedError: Another writer keeps its turn for `WriterLock.wait` seconds.
            StoreError: The store cannot be written, or this thread is inside `reading()`.
        """
        # Before the wait: a thread that reads a pinned moment keeps others from ending theirs.
        self.expect_writable()
        return self._lock

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """All that is written inside the `with` block is there whole or not at all; nests.

        Keep it short: others wait, those of this process also with what they read.

        Raises:
            StoreLockedError, StoreError: As `turn`; nothing has changed then.
        """
        with self.turn():
            try:
                with self._database.gathering():
                    yield
            except BaseException:
                self.uses.reread()  # some were taken for gone
                raise

    def lay_aside(self, nodes: Iterable[int]) -> None:
        """Keeps what is said of atoms, but their content, while they are put anew (`take_up`).

        Their pins, types, uses, validity, importance, and feedback. Only inside `gathering`.
        """

        def work() -> None:
            for node in nodes:
                pass_on(self, node, -1 - node, same=True)

        self.uses.flush()
        self._database.write(work)

    def take_up(self, nodes: Iterable[int], heirs: Mapping[int, int], same: Container[int]) -> None:
        """Makes what was laid aside that of other nodes; what has no heir is said no more.

        Args:
            nodes: Those of `lay_aside`.
            heirs: New nodes by old ones.
            same: Old nodes whose text is that of the new one: only that of these found types,
                feedback and what an oracle said go along.
        """

        def work() -> None:
            for old, new in heirs.items():
                pass_on(self, -1 - old, new, same=old in same)
            remove_facts(self, json.dumps([-1 - node for node in nodes]))

        self._database.write(work)

    def following(self) -> AbstractContextManager[None]:
        """Nobody else brings the store to what files say inside the `with` block; atoms come in.

        Waits for as long as somebody else does so, and says for whom.

        Raises:
            StoreError: The store cannot be written.
        """
        self.expect_writable()
        return self._following

    def append(
        self,
        batch: Batch,
        *,
        when: float | None = None,
        first: int | None = None,
        meta: Mapping[str, str] | None = None,
        within: Callable[[str], None] | None = None,
        deleted: bool = True,
    ) -> None:
        """Write a batch in one transaction; its atoms get the numbers from `next_node` on.

        What it takes away goes in the same transaction, before anything is written.

        Args:
            batch: Atoms, vectors and edges.
            when: The time to note for it, seconds since the epoch UTC; now by default.
            first: Number that its first atom must get, for which its edges were made.
            meta: Strings to keep with it, as `meta_set` does.
            within: Called at the end of the transaction with the state before it.
            deleted: Whether what goes is deleted; False: another store has it from now on.

        Raises:
            InputError: An id is already in the store or twice in the batch, no atom has a number
                that is to go, or the batch's parts do not fit.
            EmbedderError: An embedding is not finite.
            StoreError: Read-only store, a full disk, or a writer that did not wait for its turn;
                the store is as it was before.
        """
        edges = len(batch.edges) + len(batch.connected)
        held = batch.atoms or batch.gone or edges or len(batch.cut)
        if not held and not meta and within is None:
            return
        self.expect_writable()
        kept = self._kept("store.dim", "store.token_dim")
        dim, token_dim = (
            self._whole(key, kept.get(key)) for key in ("store.dim", "store.token_dim")
        )
        batch.validate(dim=dim, token_dim=token_dim)
        now = time.time() if when is None else when

        def work() -> tuple[str, CutEdges, str]:
            before = self.state
            start, changes = self.next_node, self._unbound()
            if first is not None and first != start:
                raise StoreError(
                    f"{self._database.place}: expected {first} nodes, got {start}; another program "
                    "writes to this store without its lock: stop it, and try again"
                )
            for edges in (batch.connected, batch.edges):
                edges.validate(start + len(batch.atoms))
            take_away(self, batch, now, deleted=deleted)
            rows = batch.rows or [atom_to_row(0, atom) for atom in batch.atoms]
            self._database.execute_many(
                _INSERT, [(start + i, *row[1:]) for i, row in enumerate(rows)]
            )
            cut = write_blocks(self._database, start, batch, self.adjacency)
            if batch.aliases:
                self._database.execute_many(_INSERT_ALIAS, batch.aliases)
                if batch.alias_embeddings is not None:
                    named = [name for name, _ in batch.aliases]
                    put_alias_vectors(self._database, named, batch.alias_embeddings)
            self.life.note_stored(start, len(batch.atoms), now)
            if batch.atoms and dim is None:
                changes["store.dim"] = str(batch.embeddings.shape[1])
            if batch.tokens is not None and token_dim is None:
                changes["store.token_dim"] = str(batch.tokens.tokens.shape[1])
            self._set(changes | {own_key(key): value for key, value in (meta or {}).items()})
            self._advance(cut, batch.gone)
            if within is not None:
                within(before)
            return before, cut, self.state

        try:
            with self.turn():
                before, cut, after = self._database.write(work)
                if self._adjacency is not None and self._adjacency.state == before:
                    self._adjacency.remove(cut.edges)
                    self._adjacency.append(EdgeBlock.cat([batch.connected, batch.edges]))
                    self._adjacency.state = after
            self.uses.drop(batch.gone, dict(batch.versions))
        except sqlite3.IntegrityError as error:
            raise self._duplicate(batch.atoms, error) from error

    def adjacency(self) -> Adjacency:
        """The edges of this state by their ends, for as long as the turn lasts; only inside it.

        They are read once, and followed from then on, unless somebody else writes.
        """
        if self._adjacency is None or self._adjacency.state != self.state:
            self._adjacency = None  # lest both are held
            self._adjacency = Adjacency(self.edges(), self.state)
        return self._adjacency

    def sources_of(self, nodes: Sequence[int], kind: EdgeType) -> list[int]:
        """Where the edges of a type come from that lead to any of some nodes; inside the turn."""
        edges = self.adjacency().edges(torch.tensor(list(nodes)), "target")
        return edges.source[edges.type == int(kind)].unique().tolist()

    def erase(
        self,
        batch: Batch,
        *,
        when: float,
        forgotten: Sequence[str] = (),
        meta: Mapping[str, str] | None = None,
        archived: tuple[MemoryStore, Sequence[int]] | None = None,
    ) -> Receipt:
        """Writes a batch whose `gone` leave no byte in the folder; what says so.

        Args:
            batch: As in `append`.
            when: Now, seconds since the epoch UTC.
            forgotten: Names of strings of `meta_set` that go with them.
            meta: Strings to keep with it, as in `append`.
            archived: The archive, and the nodes that are to be erased there with them.

        Raises:
            InputError, StoreError: As `append`.
        """
        database, receipts = self._database, list[Receipt]()
        with self.turn():
            self.uses.flush()
            erased = erased_content(self, batch.gone, batch.unnamed, archived)

            def within(before: str) -> None:
                erase_rows(database, batch.gone)
                self.learned.erase(erased.first)
                self.sources.drop_empty(erased.sources)
                self._remembered.forget_changes(database)  # whose edges tell of what is gone
                drop = "DELETE FROM meta WHERE key = ?"
                database.execute_many(drop, [(own_key(name),) for name in forgotten])
                self._set({"store.erased": str(self.generation)})
                if self.path is not None:
                    self._set({"store.wiping": "1"})
                receipts.append(
                    new_receipt(
                        self,
                        state=(before, self.state),
                        when=when,
                        erased=erased,
                        archived=archived,
                    )
                )

            # Before as well, lest a kill in between leaves a file that nobody looks for.
            self._drop_derived()
            self.append(batch, when=when, meta=meta, within=within)
            self.finish_erasing()
        return receipts[0]

    @property
    def unwiped(self) -> bool:
        """Whether bytes may be left of what was deleted."""
        return bool(self._database.query("SELECT 1 FROM unwiped LIMIT 1"))

    def finish_erasing(self) -> None:
        """Wipes what was erased from files and logs, where that is still to be done.

        Where a reader holds them, or the disk is full, the next opening does it.
        """
        if not self._database.query("SELECT 1 FROM meta WHERE key = 'store.wiping'"):
            return
        why = "a reader holds it"
        try:
            with self.turn():
                self._drop_derived()
                if self._database.wipe(self.wipe_wait):
                    return
        except StoreDamagedError:
            raise
        except StoreError as error:
            why = str(error)
        _log.warning(
            "%s: what was erased is still in the write-ahead log (%s); it is wiped when the store "
            "is next opened to write alone",
            self._database.place,
            why,
        )

    def compact(self) -> int:
        """Gives back to the disk what was freed in the database; bytes that its file has lost.

        None, where a reader holds the old ones: its log then shrinks when it next can.

        Raises:
            StoreError: A full disk, which for a while needs room for a second copy, or a store that
                is read or gathers writes; nothing has changed.
        """
        if self.path is None:
            return 0
        file = self.path / DATABASE_NAME
        with self.turn():
            before = file.stat().st_size
            self._database.compact(self.wipe_wait)
            return max(0, before - file.stat().st_size)

    def _drop_derived(self) -> None:
        """Deletes the snapshot, vectors of another encoder, and what writing one left behind."""
        if self.path is None:
            return
        with WriterLock(self.path, "snapshot.lock"):
            drop_snapshot(self.path)
        for left in self.path.glob(f"{REEMBED_NAME}*"):
            left.unlink(missing_ok=True)

    def remove_edges(self, keep: Callable[[EdgeBlock], Tensor]) -> int:
        """Delete the edges that `keep` leaves out, in one transaction; how many there were.

        Args:
            keep: From a block of E edges to the mask [E] bool of those that stay.

        Raises:
            StoreError: Read-only store or full disk; the store is as it was before.
        """

        def work() -> int:
            removed = thin_edges(self._database, keep)
            if len(removed.edges):
                self._advance(removed)
            return len(removed.edges)

        with self.turn():
            return self._database.write(work)

    def put_vectors(
        self,
        pooled: Tensor,
        tokens: TokenRows | None,
        fingerprint: str,
        edges: EdgesAgain,
        meta: Mapping[str, str | None],
        aliases: Mapping[str, Tensor],
    ) -> None:
        """Puts vectors of another embedder in place of all, in one transaction.

        Args:
            pooled: [N, d] float32 by node number, zeros where there is no atom any more.
            tokens: Token vectors likewise; None: the embedder gives none.
            fingerprint: Of the embedder, which the store is bound to from then on.
            edges: Edges that come with the vectors in place of others.
            meta: Strings to keep with them; None: to keep no more.
            aliases: [d] of names of concepts other than their own.

        Raises:
            StoreError: Read-only store or full disk; the store is as it was before.
        """
        values = {"store.fingerprint": fingerprint, "store.dim": str(pooled.shape[1])}
        if tokens is not None:
            values["store.token_dim"] = str(tokens.tokens.shape[1])
        kept = {own_key(key): value for key, value in meta.items()}
        dropped = [key for key, value in kept.items() if value is None]
        dropped += ["store.token_dim"] if tokens is None else []

        def work() -> None:
            run = self._database.execute_many
            put_vectors(self._database, pooled, tokens)
            put_edges(self._database, edges)
            run("DELETE FROM alias_vector", [()])
            if aliases:
                put_alias_vectors(self._database, aliases, torch.stack([*aliases.values()]))
            run("DELETE FROM meta WHERE key = ?", [(key,) for key in dropped])
            self._set(values | {key: value for key, value in kept.items() if value is not None})
            run("DELETE FROM change", [()])  # nothing of an earlier state is of use
            self._advance(CutEdges.cat([]))

        with self.turn():
            self._database.write(work)

    def put_alias_vectors(self, vectors: Mapping[str, Tensor]) -> None:
        """Keeps vectors [d] of names that an older release stored without."""
        rows = torch.stack([*vectors.values()])
        self._database.write(lambda: put_alias_vectors(self._database, vectors, rows))

    def meta_set(self, key: str, value: str | None) -> None:
        """Keep a string under a name, or None: no more; durable, and no change of generation."""
        name, run = own_key(key), self._database.execute_many
        if value is None:
            self._database.write(lambda: run("DELETE FROM meta WHERE key = ?", [(name,)]))
        else:
            self._database.write(lambda: self._set({name: value}))

    def save_snapshot(
        self, tensors: Mapping[str, Tensor], meta: Mapping[str, str], *, state: str | None = None
    ) -> None:
        """Write the snapshot of this store; in memory: nothing.

        Args:
            tensors: Derived tensors by name.
            meta: Strings to keep beside them.
            state: `state` when the tensors' sources were read; None: now.

        Raises:
            StoreError: The store is read-only or the disk is full; store and old snapshot are
                untouched.
        """
        self.expect_writable()
        if self.path is not None:
            stamp = self.state if state is None else state
            # A lock of its own: a large file takes longer than a commit may.
            with WriterLock(self.path, "snapshot.lock", create=False):
                erased = int(self._meta("store.erased") or 0)
                if int(stamp.partition("-")[0]) >= erased:  # else it holds what was erased since
                    snapshot.save_snapshot(self.path, tensors, meta, stamp)
                if self.gone:  # nothing of a store that was dropped meanwhile may stay
                    (self.path / SNAPSHOT_NAME).unlink(missing_ok=True)

    def load_snapshot(
        self, *, verify: bool = False, stale: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Tensors and strings as saved, the tensors memory-mapped; see `snapshot.load_snapshot`."""
        if self.path is None:
            return None
        return snapshot.load_snapshot(self.path, self.state, verify=verify, stale=stale)

    def stats(self) -> dict[str, Any]:
        """Counts, sizes (bytes) and bindings, as plain JSON values."""
        return store_stats(self)

    def check(self) -> list[str]:
        """Sentences about what is wrong with the store; see `check_store`."""
        return check_store(self)

    def rest(self) -> None:
        """Gives the files back until the next use; only inside `idle`."""
        if not self.readonly:
            self.uses.settle()
        self._database.rest()

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        # One that rests has nothing to write but what the last try could not.
        if not (self.closed or self.readonly or (self._database.resting and not self.uses.pending)):
            self.uses.settle()
        self.closed = True
        self._database.close()
        self._lock.close()

    def _unbound(self) -> dict[str, str]:
        """What to set to bind the store to the embedder it was opened with; an empty one takes any.

        Raises:
            EmbedderError: Another embedder filled the store.
        """
        changed = {}
        there = self._kept(*(RESERVED + name for name in self._bound))
        for name, value in self._bound.items():
            kept = there.get(RESERVED + name)
            if value is None or value == kept:
                continue
            if kept is not None and (self.next_node > 0 or has_namespaces(self.path)):
                raise EmbedderError(
                    f"{self._database.place}: expected the embedder that filled this store "
                    f"({name} {kept}), got one with {name} {value}. Open the store with its own "
                    "embedder, or give it this one: `graphmem store reembed`"
                )
            changed[RESERVED + name] = value
        return changed

    def _advance(self, cut: CutEdges, gone: Sequence[int] = ()) -> None:
        """Gives the content after a change a name, and notes what is gone with it."""
        number, word = self.generation + 1, uuid.uuid4().hex
        self._set({"store.generation": str(number), "store.state": word})
        note_change(self._database, f"{number}-{word}", cut, gone)

    def _set(self, values: Mapping[str, str]) -> None:
        sql = (
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self._database.execute_many(sql, list(values.items()))

    def _duplicate(self, atoms: Sequence[Atom], error: Exception) -> InputError:
        ids = [atom.id for atom in atoms]
        stored = self.known(ids)
        twice = next((id_ for i, id_ in enumerate(ids) if id_ in stored or id_ in ids[:i]), None)
        where = "the store" if twice in stored else "the batch"
        return InputError(
            f"id: expected ids that are new, got {twice!r}, which {where} already has ({error}). "
            "Leave out atoms that are `known`"
        )
