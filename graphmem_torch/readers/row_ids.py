"""Row ids: the ids of the rows of a file of vectors, and the rows by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphmem_torch.errors import InputError, first_line

__all__ = ["read_ids", "rows_by_id"]


def read_ids(path: Path) -> list[str]:
    """Return the ids in a text file, one a line."""
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            return [line.rstrip("\r\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"expected ids, one a line, got: {first_line(error)}; write UTF-8", where=str(path)
        ) from error


def rows_by_id(ids: Sequence[str], count: int, where: str) -> dict[str, int]:
    """Return the row of each id.

    Raises:
        InputError: Another number of ids than rows, an empty id, or one that comes twice.
    """
    if len(ids) != count:
        raise InputError(
            f"expected {count:,} ids, one for each row, got {len(ids):,}; write them again",
            where=where,
        )
    found: dict[str, int] = {}
    for row, name in enumerate(ids):
        first = found.setdefault(name, row)
        if first != row or not name.strip():
            why = f"{name!r} again, which row {first} has" if name.strip() else "none"
            raise InputError(
                f"expected an id of its own, got {why}; mend it", where=f"{where}, row {row}"
            )
    return found
