"""Transfer: exports, imports, and copies of atoms from one store to another."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TextIO, cast

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, located
from graphmem_torch.memory.archive import ArchiveLinks, keep_ties, state_validity
from graphmem_torch.memory.edge_writes import connect_all, unlinked_edges
from graphmem_torch.memory.exchange import (
    ExportedPart,
    check_export,
    exported_atoms,
    exported_edges,
    exported_splits,
    exported_validity,
    is_export_file,
    restore_learned,
    restore_life,
    versions_apart,
)
from graphmem_torch.memory.exporting import Exported, stored_entries, write_export
from graphmem_torch.memory.intake import batched, checked
from graphmem_torch.memory.known_vectors import KnownVectors, stored_rows
from graphmem_torch.memory.lookup import NamedEdge
from graphmem_torch.memory.namespace_folders import (
    archive_of,
    checked_name,
    is_archive,
    owner_of,
)
from graphmem_torch.memory.placing import places_of
from graphmem_torch.memory.state import State
from graphmem_torch.memory.validity import named_statements, restore_statements
from graphmem_torch.memory.writer import Writer
from graphmem_torch.memory.writing import Writing
from graphmem_torch.progress import Progress
from graphmem_torch.readers.moved import MovedMemories
from graphmem_torch.readers.moving import read_moved
from graphmem_torch.results import Added
from graphmem_torch.store.records import atom_to_row
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["copy_atoms", "export", "import_file"]

_log = logging.getLogger(__name__)

_EDGES = 1 << 17  # edges imported in one transaction


def export(
    states: Sequence[State],
    path: str | os.PathLike[str] | TextIO,
    *,
    vectors: bool,
    namespaces: bool,
) -> int:
    """Write what callers put into the stores of a memory as JSON lines; see `Memory.export`."""

    @contextmanager
    def within(name: str) -> Iterator[list[TensorReader]]:
        yield [
            _within(state, name).store  # it stays open
            for state in states
            if name in _names_within(state)
        ]

    def names() -> list[str]:
        return sorted({name for state in states for name in _names_within(state)})

    folder = states[0].root.store.path
    return write_export(
        path,
        [state.store for state in states],
        within,
        names if namespaces else list,
        own=folder.parent if folder is not None and len(states) > 1 else folder,
        vectors=stored_rows if vectors else None,
    )


def _names_within(state: State) -> list[str]:
    """Return the names of the namespaces and archives that an export holds."""
    if state.parent is None:
        return state.spaces.names()
    return [] if state.archive() is None else [archive_of(None)]


def _within(state: State, name: str, *, create: bool = False) -> State:
    """Return the namespace or archive of a name of `_names_within`."""
    if not is_archive(name):
        return state.expect_root().open_space(name, create=create)
    owner = owner_of(name)
    found = state if owner is None else state.space(owner, create=create)
    return cast(State, found.archive(create=create))


def import_file(
    states: Sequence[State], path: str | os.PathLike[str], *, format: str | None, progress: bool
) -> Added:
    """Add what `export` wrote, or the memories of another program; see `Memory.import_`."""
    for state in states:
        state.store.expect_writable()
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path: expected the path of a file, got {path!r:.60}; give one")
    source = Path(path)
    if format is None and is_export_file(source):
        return _import_export(states, source, progress)
    return _import_moved(states, source, read_moved(source, format), progress)


def _import_moved(
    states: Sequence[State], path: Path, moved: MovedMemories, progress: bool
) -> Added:
    """Add the memories of another program, all checked before the first is stored."""
    root = states[0]
    if any(name is not None for name in moved.spaces):
        root.expect_root()
    done, now = Added(0, 0, losses=dict(moved.losses)), root.clock()
    places: list[tuple[str | None, list[Atom]]] = []
    for name, atoms in moved.spaces.items():
        with located(str(path)):
            if name is not None:
                checked_name(name)
            whole = [checked(atom) for atom in atoms]
            for atom in whole:
                atom_to_row(0, atom)  # raises what storing it would
            there = [
                state if name is None else state.space(name)
                for state in states
                if name is None or name in (state.spaces.names() if state.parent is None else ())
            ]
            _expect_same(there, whole)
        fresh = [atom for atom in whole if atom.expires is None or atom.expires > now]
        if gone := len(whole) - len(fresh):
            done += Added(0, 0, losses={"expired memory": gone})
        places.append((name, fresh))
    ends = [(end.id, None, end.stop, None, end.known) for end in moved.ends]
    for name, atoms in places:
        into = states if name is None else [state.space(name, create=True) for state in states]
        where = places_of(into, atoms)
        for place, state in enumerate(into):
            own = [atom for at, atom in zip(where, atoms, strict=True) if at == place]
            with located(str(path)):
                done += Writing(state).add(own, progress=progress)
            stated = {*named_statements(state.store)}
            restore_statements(state.store, [each for each in ends if each not in stated])
    return done


def _expect_same(states: Sequence[State], atoms: Sequence[Atom]) -> None:
    """Raise InputError if an id has other content, in the file or the memory, before storing."""
    digests: dict[str, str] = {}
    for state in states:
        known, hidden = state.store.known([atom.id for atom in atoms]), state.store.expiry.hidden()
        digests |= {name: digest for name, (node, digest) in known.items() if node not in hidden}
    before = {*digests}
    for atom in atoms:
        if not atom.is_of(digests.setdefault(atom.id, atom.digest)):
            met, do = "is given twice,", "delete one of the two from the file"
            if atom.id in before:
                met, do = "is stored already", "import into a new memory"
            raise InputError(f"atom {atom.id!r} {met} with other content; {do}")


def _import_export(states: Sequence[State], path: Path, progress: bool) -> Added:
    parts, done = check_export(path), Added(0, 0)
    within = [part.namespace for part in parts[1:] if part.namespace is not None]
    if states[0].parent is not None and within:  # before anything is stored
        if within != [archive_of(None)]:
            states[0].expect_root()
        for state in states:
            state.archive(create=True)
    for part in parts:
        name = part.namespace
        into = states if name is None else [_within(each, name, create=True) for each in states]
        done += _import_part(into, part, progress)
    return done


def _import_part(states: Sequence[State], part: ExportedPart, progress: bool) -> Added:
    """Add the contents of one part of an export, each memory to the store that it belongs to."""
    file, header = part.path, part.header
    embedder, brought = states[0].embedder, bool(header["vectors"])
    if brought and header["fingerprint"] != embedder.fingerprint:
        _log.warning(
            "%s: its vectors are of the encoder %s and not of %s: the texts are encoded anew",
            file,
            header["fingerprint"],
            embedder.fingerprint,
        )
        brought = False
    imports = [_Import(state, state.writer_with(embedder)) for state in states]
    for each in imports:
        each.writer.split_all(exported_splits(part))
    entries = exported_atoms(part, embedder if brought else None)
    done = Added(0, 0)
    with Progress(what="import", unit="atoms", total=header["atoms"], shown=progress) as bar:
        for batch in batched(versions_apart(entries), states[0].config.link.batch_atoms):
            where = places_of(states, [entry.atom for entry, _ in batch])
            if len(states) > 1:  # so that no shard stores its part of a batch that another refuses
                _expect_usable(states, batch)
            for place, one in enumerate(imports):
                own = [pair for at, pair in zip(where, batch, strict=True) if at == place]
                if own:
                    done += _import_batch(one.state, own, one.writer, one.pinned)
            bar.update(sum(entry.until is None for entry, _ in batch))
    apart = 0
    for edges_of in batched(exported_edges(part), _EDGES):
        with located(str(file)):
            apart += _connect(states, edges_of)
    if apart:
        done += Added(0, 0, losses={"edge between shards": apart})
    for one in imports:
        _restore(one, part)
    # In a memory with other atoms it may not apply.
    whole = sum(state.store.num_atoms for state in states) == header["atoms"]
    if whole and not any(state.store.learned.rows() for state in states):
        for state in states:
            restore_learned(state.store, part)
            state.follow()
    return done


def _expect_usable(
    states: Sequence[State], batch: Sequence[tuple[Exported, Exported | None]]
) -> None:
    """Raise InputError for a memory that cannot be stored, or is stored with other content."""
    for entry, before in batch:
        atom = _read(entry)
        if before is None and entry.until is None:
            with located(entry.where):
                _expect_same(states, [atom])


class _Import:
    """Import into one store.

    Attributes:
        state: State of the store.
        writer: Writer to it.
        pinned: Nodes that were pinned or unpinned before.
        stated: Nodes with a validity of their own.
    """

    def __init__(self, state: State, writer: Writer) -> None:
        """Remember what the store says before."""
        self.state, self.writer = state, writer
        self.pinned = {node for node, _ in state.store.life.pins()}
        self.stated = {row.node for row in state.store.validity.stated()}


def _connect(states: Sequence[State], edges: Sequence[NamedEdge]) -> int:
    """Store edges where both ends are, and return the number of those between shards.

    Raises:
        InputError: An end that no store has.
    """
    if len(states) == 1:
        connect_all(states[0].store, unlinked_edges(states[0].store, edges))
        return 0
    ends = list(dict.fromkeys(end for edge in edges for end in edge[:2]))
    known = [{*state.store.known(ends)} for state in states]
    lost = [end for end in ends if not any(end in own for own in known)]
    if lost:  # raises the error of one store
        states[0].resolve_ids(lost, "edge", hidden=())
    left = len(edges)
    for state, own in zip(states, known, strict=True):
        inside = [edge for edge in edges if edge[0] in own and edge[1] in own]
        connect_all(state.store, unlinked_edges(state.store, inside))
        left -= len(inside)
    return left


def _restore(one: _Import, part: ExportedPart) -> None:
    """Restore the validity of the memories of one store, and what its archive keeps of others."""
    state, store = one.state, one.state.store
    restore_statements(store, list(exported_validity(part)), one.stated)
    ties = ArchiveLinks(
        tuple(exported_edges(part, "tied_edge")),
        tuple(exported_validity(part, "tied_validity")),
    )
    if ties.ids and state.is_archive:
        keep_ties(store, ties)
        state_validity(store)
    one.writer.warn_of_unresolved()


def _import_batch(
    state: State,
    batch: Sequence[tuple[Exported, Exported | None]],
    writer: Writer,
    pinned: Container[int],
) -> Added:
    """Add memories of `versions_apart`; the pins of `pinned` nodes stay."""
    done = Added(0, 0)
    Writing(state).make_room([entry.atom.id for entry, _ in batch])
    for kept, run in groupby(batch, key=lambda pair: pair[1]):
        done += _import_run(state, [entry for entry, _ in run], kept, writer)
    restore_life(state.store, [e for e, _ in batch if e.until is None], pinned)
    return done


def _import_run(
    state: State, entries: Sequence[Exported], before: Exported | None, writer: Writer
) -> Added:
    """Add memories of an export, or one of them as a new version."""
    known = state.store.known([entry.atom.id for entry in entries])
    brought = {e.atom.id: e.vectors for e in entries if e.vectors is not None}
    vectors = KnownVectors.listed(brought)
    if before is None:
        # Skip old versions of atoms that an interrupted import has already stored.
        entries = [e for e in entries if e.until is None or e.atom.id not in known]
        atoms = [_read(entry) for entry in entries]
        places = {e.atom.id: e.where for e in entries}
        added, switches = Writing(state).add_batch(atoms, places, writer, vectors)
        state.regimes.notify(switches)
        return replace(added, new=added.new - sum(e.until is not None for e in entries))
    (entry,) = entries
    atom, last = _read(entry), int(entry.until is None)
    stored = known[atom.id][1] if atom.id in known else None
    if stored == _read(before).digest:
        writer.update(atom.id, lambda _: atom, cast(float, before.until), vectors)
        return Added(last, 0)
    if last and stored != atom.digest:
        raise InputError(
            f"atom {atom.id!r} is stored already with other content; import into a new memory",
            where=entry.where,
        )
    return Added(0, last)


def copy_atoms(state: State, nodes: Sequence[int], to: State) -> None:
    """Copy atoms with all their versions to another memory; in the turn of both.

    Args:
        state: Memory of the atoms.
        nodes: Numbers of the atoms.
        to: Memory that receives them.
    """
    earlier = state.store.earlier_nodes(nodes)
    entries = stored_entries(state.store, sorted([*nodes, *earlier]), stored_rows)
    writer = to.writer_with(state.embedder)
    pinned = {node for node, _ in to.store.life.pins()}
    for batch in batched(versions_apart(entries), state.config.link.batch_atoms):
        _import_batch(to, batch, writer, pinned)


def _read(entry: Exported) -> Atom:
    """Return the atom of an export, checked."""
    with located(entry.where or None):
        return checked(entry.atom)
