"""MemoryStore: the source of truth for all memories."""

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
from graphmem_torch.store.records import AtomRow, atom_to_row
from graphmem_torch.store.replacement import EdgesAgain, put_alias_vectors, put_edges, put_vectors
from graphmem_torch.store.schema import ATOM, ATOM_COLUMNS, RESERVED, own_key
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME, drop_snapshot, expect_no_orphan
from graphmem_torch.store.stats import store_stats
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["REEMBED_NAME", "MemoryStore"]

REEMBED_NAME = "reembed.sqlite"
"""Name of the file for another encoder's vectors, until all of them are computed."""

_log = logging.getLogger(__name__)


_MARKS = ", ".join("?" * len(ATOM))
_INSERT = f"INSERT INTO atom ({ATOM_COLUMNS}, text_hash, digest) VALUES ({_MARKS})"
_INSERT_ALIAS = "INSERT OR IGNORE INTO alias (name, node) VALUES (?, ?)"


class MemoryStore(TensorReader):
    """Atoms, vectors and edges in SQLite, with one writer at a time and many readers.

    Every write is one transaction. After `append` returns, a killed process or a power failure
    loses nothing of the batch; before that, none of it is visible. `TensorReader` has the queries.
    """

    wipe_wait = 2.0
    """Seconds that wiping waits for readers; after that, the next opening wipes."""

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
        """Open the store in a folder; mode "w" creates a missing one.

        Args:
            path: The store's folder (`store_folder`); None: a store in memory.
            mode: "w" waits for the writer's lock while it opens, and at every write. "r" needs no
                lock and, after a clean close, no writable folder.
            fingerprint: Fingerprint of the embedder. An empty store is bound to it; any other store
                must match it.
            dim: Width of the embeddings; bound and matched in the same way.
            create: Whether mode "w" creates a missing store.
            woken: Called after the files are opened again after `rest`.

        Raises:
            EmbedderError: Another embedder filled the store.
            StoreLockedError: Another process has kept the writer's lock for `WriterLock.wait`.
            StoreDamagedError: The database is damaged.
            StoreError: There is no store to read, the folder cannot be written, the schema version
                is unknown, or the disk is full.
            InputError: The mode is unknown.
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
                changed = store.unbound()
                if changed and mode == "w":
                    store._database.write(lambda: store._set(changed))
                if mode == "w":
                    store.finish_erasing()
            except BaseException:
                store.close()
                raise
        return store

    def turn(self) -> AbstractContextManager[None]:
        """Hold the writer's lock inside the `with` block, against threads and processes; nests.

        Values read inside stay valid until they are written. Keep it short: other writers wait.

        Raises:
            StoreLockedError: Another writer keeps the lock for `WriterLock.wait` seconds.
            StoreError: The store cannot be written, or this thread is inside `reading()`.
        """
        # Checked before the wait: a thread inside `reading()` would block the holder of the lock.
        self.expect_writable()
        return self._lock

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """Collect all writes inside the `with` block in one transaction; nests.

        Keep it short: other writers wait, and so do readers in this process.

        Raises:
            StoreLockedError, StoreError: The lock or a write failed (`turn`); nothing has changed.
        """
        with self.turn():
            try:
                with self._database.gathering():
                    yield
            except BaseException:
                self.uses.reread()  # the transaction may have dropped some
                raise

    def lay_aside(self, nodes: Iterable[int]) -> None:
        """Set aside the records about atoms while the atoms are replaced; see `take_up`.

        Covers pins, types, uses, validity, importance and feedback. Only inside `gathering`.
        """

        def work() -> None:
            for node in nodes:
                pass_on(self, node, -1 - node, same=True)

        self.uses.flush()
        self._database.write(work)

    def take_up(self, nodes: Iterable[int], heirs: Mapping[int, int], same: Container[int]) -> None:
        """Move the records set aside by `lay_aside` to new nodes, and delete the rest.

        Args:
            nodes: Nodes given to `lay_aside`.
            heirs: New nodes by old nodes.
            same: Old nodes with unchanged text. Found types, feedback and statements of an oracle
                move for these only.
        """

        def work() -> None:
            for old, new in heirs.items():
                pass_on(self, -1 - old, new, same=old in same)
            remove_facts(self, json.dumps([-1 - node for node in nodes]))

        self._database.write(work)

    def following(self) -> AbstractContextManager[None]:
        """Hold the lock for following files inside the `with` block; other writers may go on.

        Waits without limit, and logs the holder.

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

        Removals of the batch come first, in the same transaction.

        Args:
            batch: Atoms, vectors and edges.
            when: Storing time, seconds since the epoch UTC; now by default.
            first: Required number of the first atom, which the edges assume.
            meta: Strings to store with it, like `meta_set`.
            within: Called at the end of the transaction with the state before it.
            deleted: Whether removed atoms count as deleted; False: they move to another store.

        Raises:
            InputError: An id is stored already or twice in the batch, a number to remove belongs to
                no atom, or the batch's parts do not fit.
            EmbedderError: An embedding is not finite.
            StoreError: The store is read-only, the disk is full, or another program writes without
                the lock; the store is unchanged.
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
            start, changes = self.next_node, self.unbound()
            if first is not None and first != start:
                raise StoreError(
                    f"{self._database.place}: expected {first} nodes, got {start}; another program "
                    "writes to this store without its lock: stop it, and try again"
                )
            for edges in (batch.connected, batch.edges):
                edges.validate(start + len(batch.atoms))
            take_away(self, batch, now, deleted=deleted)
            rows = batch.rows or [AtomRow(atom_to_row(0, atom)) for atom in batch.atoms]
            self._database.execute_many(
                _INSERT, [(start + i, *row.values[1:]) for i, row in enumerate(rows)]
            )
            cut = write_blocks(self._database, start, batch, self.adjacency)
            if batch.aliases:
                self._database.execute_many(_INSERT_ALIAS, batch.aliases)
                if batch.alias_embeddings is not None:
                    named = [name for name, _ in batch.aliases]
                    put_alias_vectors(self._database, named, batch.alias_embeddings)
            if batch.atoms:
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
        """Return the index of this state's edges by their ends; only inside `turn`.

        It is built once and updated by each write, unless another object writes.
        """
        if self._adjacency is None or self._adjacency.state != self.state:
            self._adjacency = None  # so that only one is in memory
            self._adjacency = Adjacency(self.edges(), self.state)
        return self._adjacency

    def sources_of(self, nodes: Sequence[int], kind: EdgeType) -> list[int]:
        """Return the source nodes of edges of a type into any of the nodes; only inside `turn`."""
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
        """Write a batch, and erase every byte of its `gone` atoms from the folder.

        Args:
            batch: The batch to append.
            when: Current time, seconds since the epoch UTC.
            forgotten: Names of `meta_set` strings to delete with them.
            meta: Strings to store with the batch, like `meta_set`.
            archived: The archive, and the nodes to erase there too.

        Returns:
            The receipt of the erasure.

        Raises:
            InputError, StoreError: The batch cannot be written; see `append`.
        """
        database, receipts = self._database, list[Receipt]()
        with self.turn():
            self.uses.flush()
            erased = erased_content(self, batch.gone, batch.unnamed, archived)

            def within(before: str) -> None:
                erase_rows(database, batch.gone)
                self.learned.erase(erased.first)
                self.sources.drop_empty(erased.sources)
                self._remembered.forget_changes(database)  # its edges identify erased atoms
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

            # Deleted before too, because after a kill nothing else would delete these files.
            self._drop_derived()
            self.append(batch, when=when, meta=meta, within=within)
            self.finish_erasing()
        return receipts[0]

    @property
    def unwiped(self) -> bool:
        """Return whether bytes of deleted atoms may remain."""
        return bool(self._database.query("SELECT 1 FROM unwiped LIMIT 1"))

    def finish_erasing(self) -> None:
        """Wipe erased content from files and logs, if that is still pending.

        If a reader holds them or the disk is full, the next opening wipes them.
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
        """Return free space of the database to the disk; returns the freed bytes.

        That is 0 while a reader holds the old pages; the file shrinks at a later checkpoint.

        Raises:
            StoreError: The disk has no room for a temporary second copy, or the call is inside
                `reading` or `gathering`; nothing has changed.
        """
        if self.path is None:
            return 0
        file = self.path / DATABASE_NAME
        with self.turn():
            before = file.stat().st_size
            self._database.compact(self.wipe_wait)
            return max(0, before - file.stat().st_size)

    def _drop_derived(self) -> None:
        """Delete the snapshots, another encoder's pending vectors, and leftovers of both."""
        if self.path is None:
            return
        with WriterLock(self.path, "snapshot.lock"):
            drop_snapshot(self.path)
        for left in self.path.glob(f"{REEMBED_NAME}*"):
            left.unlink(missing_ok=True)

    def remove_edges(self, keep: Callable[[EdgeBlock], Tensor]) -> int:
        """Delete the edges that `keep` rejects, in one transaction; return their number.

        Args:
            keep: Returns the mask [E] bool of the edges to keep, of a block of E edges.

        Raises:
            StoreError: The store is read-only or the disk is full; the store is unchanged.
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
        """Replace all vectors by those of another embedder, in one transaction.

        Args:
            pooled: [N, d] float32 by node number, zeros for deleted atoms.
            tokens: Token vectors by node number; None: the embedder makes none.
            fingerprint: Fingerprint of the new embedder, which the store is then bound to.
            edges: Edges that replace others.
            meta: Strings to store with them; None deletes a string.
            aliases: Vectors [d] of concept aliases, by name.

        Raises:
            StoreError: The store is read-only or the disk is full; the store is unchanged.
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
            run("DELETE FROM change", [()])  # no earlier state can catch up
            self._advance(CutEdges.cat([]))

        with self.turn():
            self._database.write(work)

    def put_alias_vectors(self, vectors: Mapping[str, Tensor]) -> None:
        """Store the vectors [d] of aliases that an older release stored without one."""
        rows = torch.stack([*vectors.values()])
        self._database.write(lambda: put_alias_vectors(self._database, vectors, rows))

    def meta_set(self, key: str, value: str | None) -> None:
        """Store a string under a name, or delete it (None); durable, and keeps the generation."""
        name, run = own_key(key), self._database.execute_many
        if value is None:
            self._database.write(lambda: run("DELETE FROM meta WHERE key = ?", [(name,)]))
        else:
            self._database.write(lambda: self._set({name: value}))

    def save_snapshot(
        self,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, str],
        *,
        state: str | None = None,
        name: str = SNAPSHOT_NAME,
    ) -> None:
        """Write the snapshot of this store; does nothing for a store in memory.

        Args:
            tensors: Derived tensors by name.
            meta: Strings to store with them.
            state: `state` at the time the tensors' sources were read; None: the current state.
            name: Name of the file.

        Raises:
            StoreError: The store is read-only or the disk is full; store and old snapshot are
                unchanged.
        """
        self.expect_writable()
        if self.path is not None:
            stamp = self.state if state is None else state
            # A separate lock: a large file takes longer than a commit may.
            with WriterLock(self.path, "snapshot.lock", create=False):
                erased = int(self._database.value("store.erased") or 0)
                if int(stamp.partition("-")[0]) >= erased:  # else it holds content erased since
                    snapshot.save_snapshot(self.path, tensors, meta, stamp, name)
                if self.gone:  # a store dropped meanwhile leaves no file
                    (self.path / name).unlink(missing_ok=True)

    def load_snapshot(
        self, name: str = SNAPSHOT_NAME, *, verify: bool = False, stale: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Return the saved tensors, memory-mapped, and strings; see `snapshot.load_snapshot`."""
        if self.path is None:
            return None
        return snapshot.load_snapshot(self.path, self.state, name, verify=verify, stale=stale)

    def stats(self) -> dict[str, Any]:
        """Return counts, sizes (bytes) and bindings, as plain JSON values."""
        return store_stats(self)

    def check(self) -> list[str]:
        """Return sentences about what is wrong with the store; see `check_store`."""
        return check_store(self)

    def rest(self) -> None:
        """Close the files until the next use; only inside `idle`."""
        if not self.readonly:
            self.uses.settle()
        self._database.rest()

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        # A resting store has only uses to write that the last attempt could not.
        if not (self.closed or self.readonly or (self._database.resting and not self.uses.pending)):
            self.uses.settle()
        self.closed = True
        self._database.close()
        self._lock.close()

    def unbound(self) -> dict[str, str]:
        """Return the meta strings that bind the store to its embedder; an empty store accepts any.

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
        """Name the state after a change, and log its removals."""
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
