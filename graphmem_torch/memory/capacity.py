"""Capacity: memory, disk and time that a number of memories will take (`docs/scaling.md`).

`estimate` measures rates on a small sample and multiplies them. `expect_room` only adds up the
sizes of files, and refuses what cannot fit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.memory.compatibility import bind_concepts, namer, usable_device
from graphmem_torch.memory.memory import Memory
from graphmem_torch.ops import knn_graph
from graphmem_torch.readers.read import SUFFIXES
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.shard_folder import ShardFolder
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME
from graphmem_torch.text.deferred import DeferredEmbedder
from graphmem_torch.text.embedder import Embedder

__all__ = ["Estimate", "Sizes", "estimate", "expect_room"]

_SHARD = 1_000_000  # memories a shard, as advised
_MOST_SHARDS = 4096
_TEXTS = 32  # texts that the encoder and the finder of concepts read
_MADE = 1024  # memories that are really indexed
_ROWS, _NEW = 8192, 256  # rows that are searched for similar ones, and new ones
_FIXED = 430 << 20  # bytes of the program with its libraries
_LINKED, _INDEXED = 1.5, 1.5  # bytes in memory by bytes of vectors, and by those of the snapshot
_SURE = 0.5  # share of an estimate that is needed in any case
_DIM = 384  # width of the vectors of an encoder that is not loaded yet
_LINE, _CHUNK = 1 << 16, 1100  # bytes of JSON lines to measure; maximum bytes of a chunk of text
_SAMPLE = """
river morning bridge letter garden winter teacher window market station yellow quietly walked
answered remembered the a of and in with before after under from Lisbon Ada Monday May twenty
harbour silver library music village paper evening carried opened listened between against
"""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one memory.

    Attributes:
        database, snapshot: Bytes on the disk.
        vectors: Bytes of its vectors and those of its concepts in memory while it is linked.
    """

    database: float
    snapshot: float
    vectors: float

    @classmethod
    def of(cls, text: float, dim: int, tokens: float, concepts: float) -> Sizes:
        """Return the sizes of a memory.

        Args:
            text: Bytes of the text.
            dim: Width of its vector.
            tokens: Bytes of its token vectors.
            concepts: New concepts that it brings.
        """
        vectors = 4 * dim * (1 + concepts)
        pieces = tokens / 32  # 4 bytes for each vector of 128
        rest = 400 + 500 * concepts  # ids, hashes, edges and rows of tables
        return cls(
            2.2 * text + vectors + tokens + pieces + rest, 500 + text + 4 * dim + tokens, vectors
        )

    @property
    def disk(self) -> float:
        """Bytes on the disk."""
        return self.database + self.snapshot

    def memory(self, atoms: int, shards: int) -> float:
        """Return the peak of memory while memories are indexed, in bytes."""
        return _FIXED + atoms * (_LINKED * self.vectors + _INDEXED * self.snapshot / shards)


@dataclass(frozen=True)
class Estimate:
    """Estimate for a number of memories.

    Attributes:
        atoms: Number of memories.
        device: Device of the encoder.
        seconds: CPU or device seconds of each stage, one process.
        disk: Bytes of the database and of the snapshot.
        memory: Bytes at the peak of indexing, and of the files that questions map.
        free: Bytes of disk and memory here.
        shards: Advised number of shards.
        misfits: Reasons why it does not fit here, each with a setting that would.
    """

    atoms: int
    device: str
    seconds: dict[str, float]
    disk: dict[str, int]
    memory: dict[str, int]
    free: dict[str, int]
    shards: int
    misfits: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def estimate(
    atoms: int,
    folder: Path,
    config: Config,
    *,
    embedder: Embedder | str | None = None,
    device: str = "auto",
    like: Path | None = None,
) -> Estimate:
    """Return what a number of memories will take, from rates measured here in a few seconds.

    Args:
        atoms: Number of memories.
        folder: Where they are to be stored; its disk counts.
        config: Settings.
        embedder: Encoder or its name; None: that of the settings.
        device: Device of the encoder.
        like: Store whose texts and sizes are taken; None: paragraphs of 63 words.

    Raises:
        InputError: Fewer than one memory, or an empty store `like`.
    """
    if atoms < 1:
        raise InputError(f"atoms: expected at least 1, got {atoms}; name the number of memories")
    texts = _made_texts(_TEXTS) if like is None else _texts_of(like)
    seconds, sizes, used = _measured(texts, config, embedder, device)
    if like is not None:
        sizes = _sizes_of(like, sizes)
    free = _free(folder)
    shards = -(-atoms // _SHARD)
    while sizes.memory(atoms, shards) > free["memory"] and shards < _MOST_SHARDS:
        shards *= 2
    if sizes.memory(atoms, _MOST_SHARDS) > free["memory"]:
        shards = -(-atoms // _SHARD)  # more of them are no help
    pairs = seconds.pop("pair") * atoms * (atoms / shards) / 2
    whole = {name: rate * atoms for name, rate in seconds.items()} | {"similar memories": pairs}
    disk = {"database": sizes.database * atoms, "snapshot": sizes.snapshot * atoms}
    memory = {"indexing": sizes.memory(atoms, shards), "mapped": sizes.snapshot * atoms}
    return Estimate(
        atoms=atoms,
        device=used,
        seconds={name: round(value, 3) for name, value in whole.items()},
        disk={name: int(value) for name, value in disk.items()},
        memory={name: int(value) for name, value in memory.items()},
        free=free,
        shards=shards,
        misfits=_misfits(atoms, sizes, shards, free, folder),
    )


def expect_room(
    files: Sequence[str | os.PathLike[str]],
    folder: Path,
    config: Config,
    *,
    vectors: bool = False,
    shards: int | None = None,
) -> None:
    """Refuse files that cannot fit on the disk or in memory, from their sizes alone.

    Half of the estimate must fit, so that a wrong guess refuses nothing.

    Args:
        files: Files and folders to be indexed.
        folder: Folder of the store.
        config: Settings.
        vectors: Whether vectors are given, so that no text gets token vectors.
        shards: Number of shards of a new memory.

    Raises:
        InputError: They cannot fit; names what would.
    """
    count = size = 0.0
    for path in _files(files):
        own = path.stat().st_size
        each, text = _bytes_each(path)
        count += own / each
        size += own * text
    atoms = int(count)
    if atoms < _MADE:
        return
    there = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    # Half of the pieces keep a vector.
    tokens = 0.0 if vectors else size / atoms / 10 * config.embedder.token_dim
    sizes = Sizes.of(size / atoms, _DIM, tokens, 0.0)
    free = _free(folder)
    free["disk"] += there  # memories that are stored already need no more
    sure = Sizes(*(_SURE * each for each in (sizes.database, sizes.snapshot, sizes.vectors)))
    stores = ShardFolder.open(folder).stores if ShardFolder.is_one(folder) else []
    misfits = _misfits(atoms, sure, shards or max(1, len(stores)), free, folder)
    if misfits:
        raise InputError(
            f"expected room for about {atoms:,} memories, got {'. And '.join(misfits)}"
        )


def _misfits(
    atoms: int, sizes: Sizes, shards: int, free: dict[str, int], folder: Path
) -> list[str]:
    """Return why memories do not fit, each with a setting that would."""
    found = []
    disk, memory = sizes.disk * atoms, sizes.memory(atoms, shards)
    if disk > free["disk"]:
        fits = int(free["disk"] / sizes.disk)
        found.append(
            f"{_gb(free['disk'])} of disk at {folder}, where they take {_gb(disk)} or more; choose "
            f"another disk, index at most {fits:,}, or keep no token vectors "
            "(--config.embedder.token-dim 0)"
        )
    if memory > free["memory"]:
        fits = int(max(0, free["memory"] - _FIXED) / (sizes.memory(1, shards) - _FIXED))
        more = shards
        while sizes.memory(atoms, more) > free["memory"] and more < _MOST_SHARDS:
            more *= 2
        helps = sizes.memory(atoms, more) <= free["memory"]
        do = f"--shards {more}" if helps else f"index at most {fits:,} on this machine"
        found.append(
            f"{_gb(free['memory'])} of memory, where indexing takes {_gb(memory)} or more; {do}"
        )
    return found


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def _free(folder: Path) -> dict[str, int]:
    """Return the free bytes of the disk of a folder, and the bytes of memory that may be used."""
    there = next(each for each in (folder, *folder.resolve().parents) if each.is_dir())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"disk": shutil.disk_usage(there).free, "memory": memory}


def _files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    """Yield the files that may be read; what cannot be is told by the run itself."""
    for path in map(Path, paths):
        if path.is_dir():
            found = (each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
            yield from (each for each in found if each.is_file())
        elif path.is_file():
            yield path


def _bytes_each(path: Path) -> tuple[float, float]:
    """Return the bytes of a file for each memory that it holds, and the share that is text."""
    if path.suffix != ".jsonl":
        return _CHUNK, 1.0
    with path.open("rb") as file:
        head = file.read(_LINE)
    lines = head.splitlines()
    text = 0
    for line in lines:
        try:
            text += _letters(json.loads(line))
        except (ValueError, RecursionError):  # no JSON, cut off, or too deep
            text += len(line) if len(lines) == 1 else 0
    return max(1, len(head)) / max(1, head.count(b"\n")), text / max(1, len(head))


def _letters(value: object) -> int:
    """Return the letters of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = [*value.values()]
    return sum(map(_letters, value)) if isinstance(value, list) else 0


def _made_texts(count: int) -> list[str]:
    """Return made paragraphs of 63 words."""
    draw, words = random.Random(0), _SAMPLE.split()
    return [" ".join(draw.choices(words, k=63)).capitalize() + "." for _ in range(count)]


def _stores_of(path: Path) -> list[Path]:
    return ShardFolder.open(path).stores if ShardFolder.is_one(path) else [path]


def _texts_of(path: Path) -> list[str]:
    """Return some texts of a store."""
    texts = list[str]()
    for place in _stores_of(path):
        with StoreReader.open_to_read(place) as store:
            texts += [text for *_, text in islice(store.spoken(), _TEXTS - len(texts))]
    if not texts:
        raise InputError(f"like: expected a store with memories, got {path}, which has none")
    return texts


def _sizes_of(path: Path, sizes: Sizes) -> Sizes:
    """Return the sizes of the memories of a store; without a snapshot, its size is estimated."""
    count = database = snapshot = 0
    for place in _stores_of(path):
        with StoreReader.open_to_read(place) as store:
            count += store.num_atoms
        database += sum(each.stat().st_size for each in place.glob(DATABASE_NAME))
        snapshot += sum(each.stat().st_size for each in place.glob(SNAPSHOT_NAME))
    return Sizes(database / count, snapshot / count or sizes.snapshot, sizes.vectors)


def _measured(
    texts: Sequence[str], config: Config, embedder: Embedder | str | None, device: str
) -> tuple[dict[str, float], Sizes, str]:
    """Return seconds a memory of each stage (a pair of memories: `pair`), sizes, and the device."""
    seconds: dict[str, float] = {}
    used = usable_device(device)
    # Other programs do not count, unless a device works while the process waits.
    now = time.process_time if used == "cpu" else time.perf_counter

    def clock(stage: str, count: int, work: Callable[[], Any]) -> Any:
        start = now()
        done = work()
        seconds[stage] = (now() - start) / count
        return done

    with TemporaryDirectory(prefix="graphmem-estimate-") as place:
        opening: dict[str, Any] = {"config": config, "device": device}
        with Memory.open(Path(place, "encoder"), embedder=embedder, **opening) as memory:
            encoder, store = memory.embedder, memory.store
            encoder.encode(texts[:1])
            encoded = clock("encoder", len(texts), lambda: encoder.encode(texts))
            extractor = bind_concepts(store, config.link.concepts)
            names: list[str] = []
            if extractor is not None:
                extractor.extract(texts[:1])
                told = clock("concepts", len(texts), lambda: extractor.extract(texts))
                names = list(dict.fromkeys(name for each in told for name in each))
                namer_of = namer(store, encoder)
                clock("names of concepts", len(texts), lambda: namer_of.encode(names))
        # Everything else is measured without an encoder, on vectors at random.
        rows = torch.nn.functional.normalize(torch.randn(_MADE, encoder.dim), dim=1)
        plain = DeferredEmbedder("estimate", encoder.dim)
        made = [
            Atom(f"a{i}", f"{texts[i % len(texts)]} {i}", session=f"s{i // 32}")
            for i in range(_MADE)
        ]
        opening["config"] = replace(config, link=replace(config.link, concepts="none"))
        with Memory.open(Path(place, "store"), embedder=plain, **opening) as memory:
            memory.add(made[:1], embeddings=rows[:1])
            clock("link and store", _MADE, lambda: memory.add(made[1:], embeddings=rows[1:]))
            clock("index", _MADE, lambda: memory.index)
        other = torch.nn.functional.normalize(torch.randn(_ROWS, encoder.dim), dim=1).to(used)

        def search() -> None:
            knn_graph(other, config.link.similarity_k, start=_ROWS - _NEW, earlier=True)

        search()
        clock("pair", _NEW * _ROWS, search)
    tokens = 0 if encoded.tokens is None else encoded.tokens.numel() / len(texts)
    text = sum(len(each.encode()) for each in texts) / len(texts)
    return seconds, Sizes.of(text, encoder.dim, tokens, len(names) / len(texts)), used
