"""Memory of shards: a folder of stores with the verbs of one memory."""

# A text is a sequence of texts: the overloads for one come first.
# mypy: disable-error-code="override"

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.memory.memory import Memory
from graphmem_torch.text.times import TimeLike

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.memory.shards import Group, Shards
    from graphmem_torch.memory.state import State
    from graphmem_torch.results import Indexed, Page
    from graphmem_torch.store.shard_folder import ShardFolder

__all__ = ["ShardedMemory", "create_shards", "open_shards"]


def create_shards(path: str | os.PathLike[str], shards: int) -> None:
    """Make a folder whose memories lie in S stores, which `Memory.open` opens as one memory.

    Does nothing if the folder is one of S shards already.

    Args:
        path: A new or empty folder.
        shards: Number of shards S; it is fixed.

    Raises:
        InputError: No number of shards, another one than the folder has, or a folder that holds
            one store.
        StoreError: The folder cannot be written.
    """
    from graphmem_torch.store.shard_folder import ShardFolder

    ShardFolder.create(path, shards)


class ShardedMemory(Memory):
    """Memory whose atoms lie in S stores; `Memory.open` returns it for a folder of shards.

    All shards answer a question together: the background of the signals, the anchors and the
    ranking are those of all, while edges and concepts stay inside a shard. What works on one store
    only is refused by name, and works on the memory of each shard (`shards`).

    Attributes:
        shards: Memory of each shard, in order. Add to the whole memory only: a shard takes
            whatever it is given.
    """

    def __init__(self, shards: Shards) -> None:
        """Take the shards; callers use `Memory.open`."""
        self._shards = shards
        self.device, self.name = shards.first.device, shards.first.name
        self.shards = tuple(Memory(state) for state in shards.states)

    # Parts.

    @cached_property
    def _state(self) -> State:
        """State of the first shard, which has what all share."""
        return self._shards.first

    @cached_property
    def _asking(self) -> Any:
        from graphmem_torch.memory.sharded_asking import ShardedAsking

        return ShardedAsking(self._shards)

    @cached_property
    def _writing(self) -> Any:
        from graphmem_torch.memory.sharded_writing import ShardedWriting

        return ShardedWriting(self._shards)

    @cached_property
    def namespaces(self) -> Any:
        """Memories inside this one by name, each with its part in every shard."""
        from graphmem_torch.memory.sharded_namespaces import ShardedNamespaces

        return ShardedNamespaces(self._shards, type(self))

    @property
    def store(self) -> NoReturn:
        """Refused: a memory of shards has several stores."""
        self._refuse("store")

    @property
    def index(self) -> NoReturn:
        """Refused: each shard has an index."""
        self._refuse("index")

    @cached_property
    def facts(self) -> Any:
        """Validity, versions and contradictions inside each shard."""
        from graphmem_torch.memory.sharded_parts import ShardedFacts

        return ShardedFacts(self._shards)

    @cached_property
    def graph(self) -> Any:
        """Edges between memories of one shard."""
        from graphmem_torch.memory.sharded_parts import ShardedGraph

        return ShardedGraph(self._shards)

    @cached_property
    def upkeep(self) -> Any:
        """Refinement and archive of each shard in turn."""
        from graphmem_torch.memory.sharded_parts import ShardedUpkeep

        return ShardedUpkeep(self._shards, type(self))

    @property
    def themes(self) -> NoReturn:
        """Refused: themes are found in one store."""
        self._refuse("themes")

    @property
    def learning(self) -> NoReturn:
        """Refused: weights are learned in one store."""
        self._refuse("learning")

    @property
    def tensors(self) -> NoReturn:
        """Refused: each shard has rows of its own."""
        self._refuse("tensors")

    def _refuse(self, name: str) -> NoReturn:
        raise self._shards.refused(name)

    # Looking up and changing.

    def __len__(self) -> int:
        """Return the number of atoms in all shards; concepts and what has expired do not count."""
        return sum(len(shard) for shard in self.shards)

    def __contains__(self, id: object) -> bool:
        """Return whether an atom of this id is stored and has not expired."""
        return any(id in shard for shard in self.shards)

    def __iter__(self) -> Iterator[Atom]:
        """Iterate over the atoms, shard by shard, in the order of adding."""
        for shard in self.shards:
            yield from shard

    def __repr__(self) -> str:
        """Return its place, numbers of atoms and shards, preset, and whether it is open."""
        folder = self._shards.folder
        place = f"namespace {self.name!r}" if folder is None else repr(str(folder.path))
        store = self._state.store
        if store.closed:
            return f"Memory({place}, {len(self.shards)} shards, closed)"
        mode = "read" if store.readonly else "write"
        return (
            f"Memory({place}, {len(self):,} atoms in {len(self.shards)} shards, preset "
            f"{self.config.name!r}, embedder {self._state.encoder_name!r}, open to {mode})"
        )

    def add_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        format: Literal["text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"] | None = None,
        input: Literal["raw", "observations"] = "raw",
        prune: bool = False,
        dry_run: bool = False,
        skip_bad: bool = False,
        embeddings: Any = None,
        normalise: bool = False,
        progress: bool = False,
        workers: int | None = None,
    ) -> Indexed:
        """Synchronize the memory with files and folders; see `Memory.add_files`.

        Each shard reads all files in turn and takes its own memories, so an interrupted call can be
        repeated. Standard input is refused, as it can be read only once.
        """
        from graphmem_torch.memory.sharded_writing import joined_files

        if embeddings is not None:
            raise InputError(
                "embeddings: expected none for files of a memory of shards, got some; give them to "
                "`add`, or as `embedding` in lines of JSON"
            )
        given: Any = {"format": format, "input": input, "prune": prune, "dry_run": dry_run}
        given |= {"skip_bad": skip_bad, "progress": progress}
        given |= {"normalise": normalise, "workers": workers}
        return joined_files([index(paths, **given) for index in self.indexers()])

    def indexers(self) -> list[Callable[..., Indexed]]:
        """Return for each shard the function that brings it up to date with files.

        Each has the arguments of `add_files`.
        """
        return [partial(_index_shard, self, number) for number in self._shards.group.numbers]

    def count(self) -> None:
        """Count the terms and names of all shards for the statistics file, which `close` writes."""
        self._shards.count()

    def get(self, ids: str | Sequence[str], *, refresh: bool = False) -> Any:
        """Return atoms by id, in the order given; see `Memory.get`."""
        from graphmem_torch.memory.lookup import listed_ids

        found: dict[str, Atom] = {}
        for shard, own in zip(self.shards, self._shards.holding(ids), strict=True):
            if own:
                found |= zip(own, shard.get(own, refresh=refresh), strict=True)
        atoms = [found[name] for name in listed_ids(self._state.store, ids)]
        return atoms[0] if isinstance(ids, str) else atoms

    def forget(  # one receipt for each shard
        self,
        ids: Any = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        question: str | None = None,
        k: int | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Erase atoms for good in their shards; see `Memory.forget`.

        Returns:
            A list of receipts, one for each shard that erased any; with `dry_run` the atoms.
        """
        from graphmem_torch.memory.sharded_forgetting import forget_in_shards

        if question is not None or k is not None:
            raise InputError(
                "question: expected other conditions for a memory of shards, got a question; "
                "`retrieve` the hits and give their ids"
            )
        where_: Any = {"session": session, "speaker": speaker, "before": before, "where": where}
        return forget_in_shards(self._shards, self.shards, ids, where_, dry_run=dry_run)

    def pin(self, ids: str | Sequence[str]) -> None:
        """Pin atoms; see `Memory.pin`. All ids are checked first."""
        self._each(ids, lambda shard, own: shard.pin(own))

    def unpin(self, ids: str | Sequence[str]) -> None:
        """Remove pins; see `Memory.unpin`. All ids are checked first."""
        self._each(ids, lambda shard, own: shard.unpin(own))

    def pinned(self) -> list[str]:
        """Return the ids of the pinned atoms, shard by shard, in the order of storing."""
        return [name for shard in self.shards for name in shard.pinned()]

    def touch(self, ids: str | Sequence[str], *, when: TimeLike | None = None) -> None:
        """Record that atoms were used; see `Memory.touch`. All ids are checked first."""
        self._each(ids, lambda shard, own: shard.touch(own, when=when))

    def _each(self, ids: str | Sequence[str], change: Callable[[Memory, list[str]], None]) -> None:
        for shard, own in zip(self.shards, self._shards.holding(ids), strict=True):
            if own:
                change(shard, own)

    # The stores.

    def report(self, path: Any, **given: Any) -> NoReturn:
        """Refuse: a page shows one store."""
        self._refuse("report")

    def stats(self) -> dict[str, Any]:
        """Return the statistics of all shards; see `stored_shards.shard_stats`."""
        from graphmem_torch.memory.stored_shards import shard_stats

        each = [shard.stats() for shard in self.shards]
        sizes = [*map(len, self.shards)]
        return shard_stats(each, [shard.store for shard in self.shards], sizes)

    def check(self) -> list[str]:
        """Return the problems of all shards; none if all are sound."""
        from graphmem_torch.store.shard_folder import ids_in_several

        each = zip(self._shards.group.numbers, self.shards, strict=True)
        problems = [f"shard {number}: {own}" for number, shard in each for own in shard.check()]
        listed = ((row[2] for row in shard.store.listed()) for shard in self.shards)
        return problems + ids_in_several(listed)

    def close(self) -> None:
        """Save statistics and snapshots, and close all shards."""
        self._end(save=True)

    def __enter__(self) -> Self:
        """Return the memory."""
        for shard in self.shards:
            shard.store.expect_there()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the memory; after an error without saving."""
        self._end(save=kind is None)

    def _end(self, *, save: bool) -> None:
        if save and not self._state.store.closed:
            self._shards.save()
        with ExitStack() as stack:
            for state in self._shards.states:
                stack.callback(state.close, save=save)

    def list(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order: str = "added",
        limit: int | None = None,
        after: str | None = None,
        expired: bool = False,
    ) -> Page:
        """Return atoms in an order, page by page; see `Memory.list`.

        In the order `added`, the shards follow each other. `importance` is refused, as each shard
        has its own. `after` is `next` of the page before.
        """
        from graphmem_torch.memory.sharded_listing import listed_in_shards

        asked: Any = {"where": where, "order": order, "expired": expired}
        return listed_in_shards(self.shards, limit, after, asked)


def _index_shard(
    memory: ShardedMemory,
    number: int,
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    prune: bool,
    skip_bad: bool,
    progress: bool,
    dry_run: bool,
    **reading: Any,
) -> Indexed:
    """Bring one shard up to date with files; arguments as in `Memory.add_files`."""
    from graphmem_torch.memory.file_sync import FileSync
    from graphmem_torch.memory.found_files import ReadSettings
    from graphmem_torch.memory.writing import Writing
    from graphmem_torch.store.shard_folder import shard_of

    group = memory._shards.group
    state = memory._shards.states[list(group.numbers).index(number)]
    several = [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]
    if "-" in map(str, several):
        raise InputError(
            f"files: expected files for {group.shards} shards, got standard input, which can be "
            "read only once; write it to a file first"
        )
    shards = group.shards
    settings = ReadSettings.of(
        state, takes=lambda atom: shard_of(atom, shards) == number, **reading
    )
    sync = FileSync(Writing(state), settings, dry_run=dry_run)
    return sync.run(several, prune=prune, skip_bad=skip_bad, progress=progress)


def open_shards(
    path: str | os.PathLike[str],
    mode: Literal["w", "r"],
    embedder: Any,
    create: bool,
    shared: Mapping[str, Any],
    processes: Group | None = None,
) -> ShardedMemory:
    """Open a folder of shards.

    Args:
        path: The folder.
        mode: `w` to add, `r` to read.
        embedder: Encoder, its name, or None.
        create: Whether to make stores that are missing, with mode `w`.
        shared: Other arguments of `State`: settings, device and clock.
        processes: The processes that hold the shards; None: this one holds all.

    Raises:
        EmbedderError, StoreError: A shard is missing or of another encoder; names it.
    """
    from graphmem_torch.memory.compatibility import copy_binding, open_bound
    from graphmem_torch.memory.shards import LocalGroup, Shards
    from graphmem_torch.memory.state import State
    from graphmem_torch.store import MemoryStore
    from graphmem_torch.store.shard_folder import SHARD_KEY, ShardFolder

    folder = ShardFolder.open(path)
    group = LocalGroup(folder.shards) if processes is None else processes
    if create and mode == "w":
        _expect_none_lost(folder)
    else:
        folder.expect_all()
    states: list[State] = []
    with ExitStack() as undo:
        for number in group.numbers:
            place = folder.stores[number]
            if not states:
                own = shared["config"].embedder
                store, loaded = open_bound(
                    place, mode, embedder, own, shared["device"], create=create
                )
            else:
                first = states[0]
                known: Any = {} if mode == "r" else {"dim": first.embedder.dim}
                if mode == "w":
                    known["fingerprint"] = first.embedder.fingerprint
                try:
                    store = MemoryStore.open(place, mode=mode, create=create, **known)
                except EmbedderError as error:
                    raise EmbedderError(f"shard {number}: {error}") from error
                bound, other = first.store.fingerprint, store.fingerprint
                undo.callback(store.close)
                if None not in (bound, other) and bound != other:
                    raise EmbedderError(
                        f"shard {number}: expected the encoder of shard {group.numbers[0]} "
                        f"({bound}), got {other}; index the files into a new folder"
                    )
                if mode == "w":
                    copy_binding(first.store, store)
            undo.callback(store.close)
            kept = store.meta_get(SHARD_KEY)
            mark = folder.expect_own(number, kept)
            if mode == "w" and kept is None:
                store.meta_set(SHARD_KEY, mark)
            encoder = {"embedder": loaded} if not states else {"embedder": None}
            sibling = states[0] if states else None
            states.append(State(store, sibling=sibling, **encoder, **shared))
        shards = Shards(states, group, folder)
        undo.pop_all()
    return ShardedMemory(shards)


def _expect_none_lost(folder: ShardFolder) -> None:
    """Check that no shard is missing while others hold memories.

    Raises:
        StoreError: One is missing; names it.
    """
    from graphmem_torch.store.reader import StoreReader

    missing = {*folder.missing}
    there = [place for number, place in enumerate(folder.stores) if number not in missing]
    for place in there if missing else ():
        with StoreReader.open_to_read(place) as store:
            if store.next_node:
                folder.expect_all()
