"""Checksums of blocks: no number of a database is trusted before they were found right."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

__all__ = ["checksum", "is_sound", "seal", "verify"]


def is_sound(expected: int, blobs: Iterable[bytes], start: int, count: int) -> bool:
    """Whether a block matches its checksum: over its blobs, in newer blocks over its place too."""
    plain = checksum(blobs)
    return expected in (plain, checksum((), start, count, before=plain))


def checksum(blobs: Iterable[bytes | bytearray], *place: int, before: int = 0) -> int:
    """CRC-32 over blobs in a row, then over the numbers of a place."""
    for blob in blobs:
        before = zlib.crc32(blob, before)
    return zlib.crc32(struct.pack(f"<{len(place)}q", *place), before)


def verify(
    database: Database,
    table: str,
    key: int,
    expected: int,
    blobs: Sequence[bytes],
    start: int,
    count: int,
) -> None:
    """Check a block against its checksum, unless this process has done so before.

    Args:
        database: Database of the block.
        table: Its table.
        key: Its key there.
        expected: The checksum that is stored with it.
        blobs: All of its blobs.
        start: Node number that it starts at.
        count: Number of its rows.

    Raises:
        StoreDamagedError: It does not match.
    """
    if database.sound.get((table, key)) == expected:
        return
    if not is_sound(expected, blobs, start, count):
        what = f"{table}: the block that starts at node {start} does not match its checksum"
        raise damaged(database.place, what)
    database.sound[table, key] = expected


def seal(
    database: Database,
    table: str,
    key: int,
    blobs: Sequence[bytes | bytearray],
    start: int,
    count: int,
) -> int:
    """Return the checksum of a block that is written; reading it again needs no check."""
    database.sound[table, key] = number = checksum(blobs, start, count)
    return number
