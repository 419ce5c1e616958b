"""Files that a store follows, as they are found, and the settings that they are read with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count
from graphmem_torch.memory.file_diff import stamp_of
from graphmem_torch.memory.stages import default_workers
from graphmem_torch.memory.state import State
from graphmem_torch.readers.proofs import edges_beside
from graphmem_torch.readers.read import Source, source_name
from graphmem_torch.readers.slack import slack_tables
from graphmem_torch.readers.source import raw_parts, says_nothing
from graphmem_torch.store.followed_files import SourceRow
from graphmem_torch.text.tokens import Tokenizer

__all__ = [
    "FollowedFile",
    "ReadSettings",
    "content_digest",
    "file_stamp",
    "found_files",
    "parts_of",
]


@dataclass(frozen=True)
class ReadSettings:
    """Settings for reading files as memories.

    Attributes:
        tokenizer: Counter of tokens.
        tokenizer_name: Name of the tokenizer in the settings, if any.
        max_tokens: Maximum tokens of a chunk.
        format: Name of the format of every file, whatever its suffix.
        input: Parts of LoCoMo to read.
        batch: Memories stored per batch.
        workers: Maximum number of worker processes; 0 makes nothing ahead of the writer.
        takes: Whether a store takes a memory, as a shard does; None: all.
        normalise: Whether to divide vectors in lines by their lengths.
        pays: Bytes of files from which workers pay; None: as measured (`stages.WORTH`).
    """

    tokenizer: Tokenizer
    tokenizer_name: str | None
    max_tokens: int
    format: str | None
    input: str
    batch: int
    workers: int
    takes: Callable[[Atom], bool] | None = None
    normalise: bool = False
    pays: int | None = None

    @classmethod
    def of(cls, state: State, *, workers: int | None = None, **given: Any) -> ReadSettings:
        """Return the settings of a memory, with other fields as given."""
        own, batch = state.config.embedder, state.config.link.batch_atoms
        number = default_workers() if workers is None else workers
        check_count("workers", number, 0)
        chunks = state.chunker, own.chunk_tokenizer, own.max_tokens
        return cls(*chunks, batch=batch, workers=number, **given)


@dataclass
class FollowedFile:
    """File that was found.

    Attributes:
        source: Path and format.
        name: Name in the store.
        row: Row of the store, if it was followed before.
        reading: Settings it is read with.
        stamp: Sizes and times of it and the files read with it; empty: unknown.
        digest: SHA-256 of its content, if it had to be read.
        lines, size: Number of its lines and bytes, if it had to be read.
    """

    source: Source
    name: str
    row: SourceRow | None
    reading: dict[str, object] = field(default_factory=dict)
    stamp: str = ""
    digest: str = ""
    lines: int = 0
    size: int = 0

    @property
    def path(self) -> Path:
        """Return its path."""
        assert self.source.path is not None
        return self.source.path

    @property
    def proofs(self) -> bool:
        """Return whether it is read as a proof library."""
        return self.reading["as"] == "proofs"

    @property
    def settings(self) -> str:
        """Return the settings as the store keeps them."""
        return json.dumps(self.reading, sort_keys=True)


def found_files(
    found: Sequence[Source], base: Path, rows: Mapping[str, SourceRow]
) -> list[FollowedFile]:
    """Return each file once, however often and by whichever links it was found."""
    files: dict[str, FollowedFile] = {}
    for source in found:
        if source.path is None:
            continue
        name = source_name(source.path, base)
        if source.path.is_symlink() and name not in rows:
            name = source_name(source.path.resolve(), base)
        file = files.setdefault(name, FollowedFile(source, name, rows.get(name)))
        # A file named by the caller counts as named, even if also found otherwise.
        if source.named and not file.source.named:
            file.source = source
    return list(files.values())


def parts_of(file: FollowedFile) -> list[Path]:
    """Return the files that are read for a file, with tables beside it."""
    table = file.proofs and file.path.suffix.lower() == ".jsonl"
    beside = [edges_beside(file.path)] if table else slack_tables(file.path)
    return [file.path, *beside]


def file_stamp(file: FollowedFile) -> str:
    """Return sizes and times of a file, and of those read with it; see `stamp_of`."""
    return stamp_of(parts_of(file))


def content_digest(file: FollowedFile) -> str:
    """Return the SHA-256 of the files read for a file, and count its lines; empty without content.

    Raises:
        InputError: A file cannot be read.
    """
    digest, blank, file.lines = hashlib.sha256(), True, 0
    for path in parts_of(file):
        digest.update(b"\0")
        for part in raw_parts(path):
            digest.update(part)
            file.lines += part.count(b"\n")
            file.size += len(part)
            blank = blank and says_nothing([part])
    return "" if blank else digest.hexdigest()
