"""Shard folder: a folder of S stores that are one memory, and its manifest.

The folder holds `shards.json` and a store for each shard: `0000`, `0001`, ... The number of shards
is fixed when the folder is made. The shard of an atom follows from its session, else its document,
else its id, so a session is never split.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError, StoreDamagedError, StoreError
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import DATABASE_NAME, store_folder, sync_folder
from graphmem_torch.text.unicode_forms import composed

__all__ = [
    "MANIFEST_NAME",
    "MOST_SHARDS",
    "SHARD_KEY",
    "STATISTICS_NAME",
    "ShardFolder",
    "ids_in_several",
    "shard_of",
]

MANIFEST_NAME = "shards.json"
STATISTICS_NAME = "statistics.safetensors"
SHARD_KEY = "shard"
"""Key in a store for the memory and the number of the shard that it is."""
MOST_SHARDS = 4096
_FORMAT = 1
_RULE = "blake2b-64 of the session, else the document, else the id"


def shard_of(atom: Atom, shards: int) -> int:
    """Return the shard of an atom: a hash of its session, else its document, else its id.

    The document of a chunk is what stands before the `#` and the number at the end of its id.
    """
    name = atom.session
    if name is None:
        document, mark, number = atom.id.rpartition("#")
        name = document if mark and document and number.isdecimal() else atom.id
    data = composed(name).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") % shards


@dataclass(frozen=True)
class ShardFolder:
    """A folder of shards.

    Attributes:
        path: The folder.
        shards: Number of shards S.
        id: Name of the memory, made with the folder; the same in every copy.
    """

    path: Path
    shards: int
    id: str

    @staticmethod
    def is_one(path: str | os.PathLike[str] | None) -> bool:
        """Return whether a folder is one of shards."""
        return path is not None and (store_folder(path) / MANIFEST_NAME).is_file()

    @classmethod
    def open(cls, path: str | os.PathLike[str], shards: int | None = None) -> ShardFolder:
        """Read the manifest of a folder.

        Args:
            path: The folder.
            shards: Number of shards that it must have; None: any.

        Raises:
            InputError: It has another number of shards.
            StoreError: It has no manifest, or one that cannot be read.
        """
        folder = store_folder(path)
        file = folder / MANIFEST_NAME
        try:
            said: Any = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            raise StoreError(
                f"{folder}: expected a memory of shards, got no {MANIFEST_NAME} there; make one "
                "with `graphmem index FILES --store DIR --shards S`"
            ) from None
        except OSError as error:
            raise store_error(error, file) from error
        except ValueError as error:
            raise _damaged(file, f"no JSON ({error})") from error
        if not isinstance(said, dict) or not isinstance(said.get("format"), int):
            raise _damaged(file, f"{said!r:.80}")
        if said["format"] != _FORMAT or said.get("rule") != _RULE:
            raise StoreError(
                f"{file}: expected format {_FORMAT}, got {said['format']!r:.20} with the rule "
                f"{said.get('rule')!r:.80}; open it with the release that wrote it"
            )
        count: Any = said.get("shards")
        id = said.get("id")
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= count <= MOST_SHARDS or not isinstance(id, str):
            raise _damaged(file, f"{said!r:.80}")
        if shards is not None and shards != count:
            raise InputError(
                f"shards: expected {count}, with which {folder} was made, got {shards!r:.20}; the "
                "number is fixed: leave it out, or index the files into a new folder"
            )
        return cls(folder, count, id)

    @classmethod
    def create(cls, path: str | os.PathLike[str], shards: int) -> ShardFolder:
        """Make a folder of shards, or open the one that is there.

        Args:
            path: The folder.
            shards: Number of shards.

        Raises:
            InputError: No number of shards, another one than the folder has, or a folder that
                holds a store or other files.
            StoreError: The folder cannot be written.
        """
        check_count("shards", shards)
        if shards > MOST_SHARDS:
            raise InputError(f"shards: expected at most {MOST_SHARDS}, got {shards}; give fewer")
        folder = store_folder(path)
        others = _others(folder)
        if (folder / MANIFEST_NAME).is_file():  # looked for last: another process may be faster
            return cls.open(folder, shards)
        if DATABASE_NAME in others:
            raise InputError(
                f"shards: expected a new folder, got {folder}, which holds one store; export it "
                "and import it into a new folder"
            )
        if others:
            raise InputError(
                f"shards: expected a new or empty folder, got {folder}, which holds "
                f"{others[0]!r:.80}; name another folder"
            )
        said = {"format": _FORMAT, "shards": shards, "rule": _RULE, "id": uuid.uuid4().hex}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"{MANIFEST_NAME}.{os.getpid()}.new"
            with open(new, "w", encoding="utf-8") as file:
                file.write(json.dumps(said, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(new, folder / MANIFEST_NAME)  # fails if another process was faster
            except FileExistsError:
                return cls.open(folder, shards)
            finally:
                new.unlink()
            sync_folder(folder)
        except OSError as error:
            raise store_error(error, folder) from error
        return cls.open(folder, shards)

    @property
    def stores(self) -> list[Path]:
        """Folders of the stores, by number."""
        return [self.path / f"{number:04d}" for number in range(self.shards)]

    @property
    def missing(self) -> list[int]:
        """Numbers of the shards without a store."""
        there = enumerate(self.stores)
        return [number for number, each in there if not (each / DATABASE_NAME).is_file()]

    def expect_all(self) -> None:
        """Check that every shard has a store.

        Raises:
            StoreError: One is missing; names it.
        """
        missing = self.missing
        if missing:
            named = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            do = "index something first"
            if len(missing) < self.shards:
                do = f"restore {self.stores[missing[0]].name} from a backup"
            raise StoreError(
                f"{self.path}: expected the stores of {self.shards} shards, got none for shard "
                f"{named}; {do}"
            )

    def expect_own(self, number: int, kept: str | None) -> str:
        """Return the mark that the store of a shard keeps (`SHARD_KEY`).

        Args:
            number: Number of the shard.
            kept: Mark in its store; None if it has none yet.

        Raises:
            StoreError: The store is of another memory, or another shard of this one.
        """
        mark = f"{self.id} {number} of {self.shards}"
        if kept not in (None, mark):
            raise StoreError(
                f"shard {number}: expected the store of this memory ({mark}), got another ({kept}) "
                f"in {self.stores[number]}; restore the right one from a backup"
            )
        return mark

    def drop_statistics(self) -> None:
        """Delete the statistics file, which is rebuilt from the shards.

        Raises:
            StoreError: It cannot be deleted.
        """
        try:
            (self.path / STATISTICS_NAME).unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, self.path / STATISTICS_NAME) from error


def _others(folder: Path) -> list[str]:
    """Return the names in a folder, but for manifests that are being written."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith(MANIFEST_NAME))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise InputError(
            f"shards: expected a folder, got {folder}, which is or lies in a file; name another"
        ) from error
    except OSError as error:
        raise store_error(error, folder) from error


def ids_in_several(ids: Iterable[Iterable[str]]) -> list[str]:
    """Return a problem for each id that several shards hold.

    Args:
        ids: Ids of each shard.
    """
    first: dict[str, int] = {}
    problems = []
    for number, own in enumerate(ids):
        for name in own:
            if (other := first.setdefault(name, number)) != number:
                problems.append(f"id {name!r:.80} is in the shards {other} and {number}")
    return problems


def _damaged(file: Path, got: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{file}: expected the manifest of a memory of shards, got {got}; restore it from a backup"
    )
