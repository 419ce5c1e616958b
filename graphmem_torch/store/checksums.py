"""Checksums of blocks, verified before any number of a block is used."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

__all__ = ["checksum", "is_sound", "seal", "verify"]


def is_sound(expected: int, blobs: Iterable[bytes], start: int, count: int) -> bool:
    """Return whether a block matches its checksum; in newer blocks it covers start and count."""
    plain = checksum(blobs)
    return expected in (plain, checksum((), start, count, before=plain))


def checksum(blobs: Iterable[bytes | bytearray], *place: int, before: int = 0) -> int:
    """Return the CRC-32 over concatenated blobs, then over the numbers of a place."""
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
    """Check a block against its checksum, unless this process has already done so.

    Args:
        database: Database of the block.
        table: Table of the block.
        key: Key of the block in its table.
        expected: The stored checksum.
        blobs: All blobs of the block.
        start: Node number of the first row.
        count: Number of rows.

    Raises:
        StoreDamagedError: The block does not match.
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
    """Return the checksum of a block about to be written, and mark it as verified."""
    database.sound[table, key] = number = checksum(blobs, start, count)
    return number
