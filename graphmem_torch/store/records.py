"""Atoms as rows of the `atom` table, whole columns of it, and what changes once they are stored.

What changes are pins and memory types that were found. None of it is part of an atom's content, so
none of it changes the state of the store, and no index is rebuilt for it. Uses: `store.uses`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.exact import DigitsError, dump_json, load_json
from graphmem_torch.store.database import Database
from graphmem_torch.text.times import FIRST_SECOND, LAST_SECOND
from graphmem_torch.text.unicode_forms import composed

__all__ = [
    "ATOM_COLUMNS",
    "Coded",
    "Columns",
    "PinsAndTypes",
    "atom_from_row",
    "atom_to_row",
    "columns_from_rows",
]

ATOM_COLUMNS = (
    "node, id, text, kind, speaker, session, time, event_time, type, meta, links, event_end, title"
)
"""What `atom_from_row` reads; `atom_to_row` appends text_hash and digest."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of words as numbers.

    Attributes:
        codes: [N] int32 index into `names`, -1 where there is no value.
        names: Distinct values, in the order of their first node.
    """

    codes: Tensor
    names: list[str]

    def values(self) -> list[str | None]:
        """The column spelled out, one value a node."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    def equals(self, name: str) -> Tensor:  # [N] bool
        """Where the value is this one, in any form of Unicode."""
        name = composed(name)
        same = [code for code, each in enumerate(self.names) if composed(each) == name]
        return torch.isin(self.codes, torch.tensor(same, dtype=torch.int32))


@dataclass(frozen=True, eq=False)
class Columns:
    """What an index needs to know of every atom but its text, in the order of node numbers.

    Attributes:
        node: [N] int64 node numbers.
        kind, speaker, session, type: As in `Atom`.
        time: [N] float64 seconds since the epoch, UTC; NaN where there is none.
    """

    node: Tensor
    kind: Coded
    speaker: Coded
    session: Coded
    type: Coded
    time: Tensor

    @property
    def is_concept(self) -> Tensor:  # [N] bool
        """Which are concepts that linking made, and no memories."""
        return self.kind.equals(CONCEPT)


def atom_to_row(node: int, atom: Atom) -> tuple[Any, ...]:
    """The values of an atom's row.

    Raises:
        InputError: The atom holds something that the store could not give back unchanged.
    """
    for name in ("id", "text", "kind", "speaker", "session", "type", "title"):
        _check_text(atom, name, optional=name in ("speaker", "session", "type", "title"))
    for name, value in (("id", atom.id), ("session", atom.session)):
        _check_name(atom, name, value)
    for link in atom.edges:
        _check_name(atom, "edges", link.target)
    if not atom.id:
        raise InputError("id: expected a non-empty string, got ''. Leave it out to have one made")
    for name in ("time", "event_time", "event_end"):
        _check_seconds(atom, name)
    begun = -math.inf if atom.event_time is None else atom.event_time
    if atom.event_end is not None and atom.event_end < begun:
        raise InputError(
            f"atom {atom.id!r}: event_end: expected no time before event_time "
            f"({atom.event_time!r}), got {atom.event_end!r}; swap the two, or leave one out"
        )
    links = [[link.target, int(link.type), link.weight] for link in atom.edges]
    return (
        node,
        atom.id,
        atom.text,
        atom.kind,
        atom.speaker,
        atom.session,
        atom.time,
        atom.event_time,
        atom.type,
        _json(atom, "meta", dict(atom.meta)) if atom.meta else "{}",
        _json(atom, "edges", links) if links else "[]",
        atom.event_end,
        atom.title,
        bytes.fromhex(text_hash(atom.rendered)),
        bytes.fromhex(atom.digest),
    )


def atom_from_row(row: tuple[Any, ...]) -> Atom:
    """The atom of a row with the columns `ATOM_COLUMNS`."""
    # Most atoms have neither: parsing "{}" and "[]" is a tenth of the time of an answer.
    meta = {} if row[9] == "{}" else load_json(row[9])
    stated = () if row[10] == "[]" else load_json(row[10])
    links = tuple(Link(target, EdgeType(kind), weight) for target, kind, weight in stated)
    id_, text, kind, speaker, session, time, event_time, type_ = row[1:9]
    end, title = row[11:13]
    own = (id_, text, kind, speaker, session, time, event_time, type_)
    return Atom(*own, meta, links, end, title)


def columns_from_rows(rows: list[tuple[Any, ...]]) -> Columns:
    """Columns of rows `(node, kind, speaker, session, type, time)`."""
    node, kind, speaker, session, type_, time = zip(*rows, strict=True) if rows else ((),) * 6
    return Columns(
        node=torch.tensor(node, dtype=torch.int64),
        kind=_coded(kind),
        speaker=_coded(speaker),
        session=_coded(session),
        type=_coded(type_),
        time=torch.tensor([math.nan if t is None else t for t in time], dtype=torch.float64),
    )


def _check_text(atom: Atom, name: str, *, optional: bool) -> None:
    value = getattr(atom, name)
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise InputError(
            f"atom {atom.id!r}: {name}: expected a string, got {value!r}. Use str(...)"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected text that UTF-8 can hold, got a lone surrogate at "
            f"position {error.start}. Decode the input with errors='replace'"
        ) from None


def _check_name(atom: Atom, what: str, value: object) -> None:
    # SQLite cuts a string there when it takes it from a list.
    if isinstance(value, str) and "\0" in value:
        raise InputError(
            f"atom {atom.id!r}: {what}: expected a name without NUL characters, got {value!r:.80}; "
            "leave them out"
        )


def _check_seconds(atom: Atom, name: str) -> None:
    value = getattr(atom, name)
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # What no calendar shows could not be rendered later. NaN fails the comparison.
    if not number or not FIRST_SECOND <= value < LAST_SECOND:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected finite seconds since the epoch in the years 1 "
            f"to 9999, got {value!r:.60}. Leave it out when it is unknown"
        )


def _json(atom: Atom, name: str, value: Any) -> str:
    try:
        text = dump_json(value, allow_nan=False)
        dump_json(value, ensure_ascii=False).encode()  # half a surrogate pair: no export holds it
        # Keys that are not strings come back as strings, in another order: the digest would change.
        unchanged = dump_json(load_json(text), sort_keys=True) == dump_json(value, sort_keys=True)
    except DigitsError as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: {error}; give a shorter one, or a string"
        ) from None
    except UnicodeEncodeError:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected what JSON can hold, got text with a lone "
            "surrogate; decode it anew"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected what JSON can hold, got an error: {error}"
        ) from None
    if not unchanged:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected keys that are strings, got others. Use str(key)"
        )
    return text


def _coded(values: Iterable[str | None]) -> Coded:
    number: dict[str | None, int] = {None: -1}
    names: list[str] = []
    codes = []
    for value in values:
        code = number.get(value)
        if code is None:
            code = number[value] = len(names)
            names.append(str(value))
        codes.append(code)
    return Coded(torch.tensor(codes, dtype=torch.int32), names)


_VERSION = "store.types"
_REMOVALS = "store.removals"
_FOUND = """
INSERT INTO found_type SELECT own.* FROM (SELECT ? AS node, ?, ?, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE
SET type = excluded.type, decay_factor = excluded.decay_factor, source = excluded.source
WHERE source IS NOT ?"""
_PIN = """
INSERT INTO pin SELECT own.* FROM (SELECT ? AS node, ?) AS own
WHERE EXISTS (SELECT 1 FROM atom WHERE atom.node = own.node)
ON CONFLICT DO UPDATE SET pinned = excluded.pinned"""


class PinsAndTypes:
    """Pins, found types and times of storing, read and written by node number.

    A reader of a store from before these tables finds nothing in them.
    """

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.life`."""
        self._database = database
        self._scanned: tuple[object, list[int]] | None = None

    def pinned(self) -> list[str]:
        """Ids of the atoms that are pinned, and of the procedural ones that are not unpinned."""
        sql = "SELECT id FROM atom WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(self.pinned_nodes()),))]

    def pinned_nodes(self) -> list[int]:
        """Their node numbers, ascending."""
        named = self.pins()
        pinned = {node for node, value in named if value}.union(self._procedural())
        return sorted(pinned.difference(node for node, value in named if not value))

    def _procedural(self) -> Iterable[int]:
        """Nodes of stated type `procedural`; where no index knows them one scan a state does."""
        if not self._database.readonly:
            return self._scan()
        state = self._database.query("SELECT value FROM meta WHERE key = 'store.state'")
        if self._scanned is None or self._scanned[0] != state:
            self._scanned = state, list(self._scan())
        return self._scanned[1]

    def _scan(self) -> Iterable[int]:
        sql = "SELECT node FROM atom WHERE type = 'procedural'"
        return (row[0] for row in self._database.query(sql))

    def pins(self) -> list[tuple[int, int]]:
        """Nodes that were pinned (1) or unpinned (0) by name."""
        return (
            self._database.query("SELECT node, pinned FROM pin")
            if self._database.has("pin")
            else []
        )

    def set_pins(self, nodes: Iterable[int], pinned: bool) -> None:
        """Pins or unpins those nodes that are there still; on the disk when it returns."""
        rows = [(node, int(pinned)) for node in nodes]
        if rows:
            self._database.write(lambda: self._database.execute_many(_PIN, rows))

    @property
    def types_version(self) -> int:
        """Changes whenever `set_found_types` did something."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_VERSION,))
        return int(rows[0][0]) if rows else 0

    @property
    def removals(self) -> int:
        """How often atoms were taken away."""
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (_REMOVALS,))
        return int(rows[0][0]) if rows else 0

    def note_removal(self, when: float, atoms: int) -> None:
        """Counts one, with how many atoms went for good; only inside a write of the database."""
        row, run = (_REMOVALS, str(self.removals + 1)), self._database.execute_many
        run("INSERT OR REPLACE INTO meta VALUES (?, ?)", [row])
        if atoms:
            run("INSERT INTO removal (time, atoms) VALUES (?, ?)", [(when, atoms)])

    def removed(self, since: float) -> list[tuple[float, int]]:
        """When atoms went for good, from a moment on, and how many; as an older release did not."""
        if not self._database.has("removal"):
            return []
        sql = "SELECT time, atoms FROM removal WHERE time >= ? ORDER BY entry"
        return self._database.query(sql, (since,))

    def keep_version(self, old: int, new: int, until: float) -> None:
        """Puts an atom aside as it was up to a moment; only inside a write of the database."""
        run, query = self._database.execute_many, self._database.query
        # A clock may go backwards, the order of versions may not.
        last = query("SELECT max(until) FROM version WHERE current = ?", (old,))[0][0]
        until = until if last is None else max(until, last)
        run("UPDATE version SET current = ? WHERE current = ?", [(new, old)])
        columns = f"{ATOM_COLUMNS.removeprefix('node, ')}, digest"
        run(
            f"INSERT INTO version (node, current, until, {columns}) "
            f"SELECT node, ?, ?, {columns} FROM atom WHERE node = ?",
            [(new, until, old)],
        )

    def pass_on(self, old: int, new: int, *, same: bool) -> None:
        """Makes the pin of a node that of another; only inside a write of the database.

        Its found type goes along where the text is the same.
        """
        for table in ("pin", "found_type") if same else ("pin",):
            self._database.execute_many(f"UPDATE {table} SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, listed: str) -> None:
        """Takes away pins, types and uses of nodes (a JSON list); only inside a write."""
        for table in ("pin", "found_type", "use"):
            sql = f"DELETE FROM {table} WHERE node IN (SELECT value FROM json_each(?))"
            self._database.execute_many(sql, [(listed,)])

    def latest(self, stop: int) -> float:
        """The latest time of the nodes below `stop`; -inf where none has one."""
        rows = self._database.query("SELECT max(time) FROM atom WHERE node < ?", (stop,))
        return -math.inf if rows[0][0] is None else float(rows[0][0])

    def found_types(self, start: int = 0) -> list[tuple[int, str, float | None, str]]:
        """Memory types that were found for atoms that state none, from node `start` on.

        Node number, type, decay factor per hour (None: that of the type), and who found it.
        """
        if not self._database.has("found_type"):
            return []
        sql = "SELECT node, type, decay_factor, source FROM found_type WHERE node >= ?"
        return self._database.query(sql, (start,))

    def set_found_types(
        self,
        found: Mapping[int, tuple[str, float | None]],
        source: str,
        *,
        keep: str | None = None,
        durable: bool = True,
    ) -> None:
        """Keeps types that `source` found.

        Args:
            found: Type and decay factor per hour (None: that of the type) by node.
            source: Who found them.
            keep: Whose finds stay as they are; None: no one's.
            durable: On the disk when it returns; False for what can be found again.
        """
        rows = [(node, kind, factor, source, keep) for node, (kind, factor) in found.items()]

        def work() -> None:
            version = [(_VERSION, str(self.types_version + 1))]
            put = self._database.execute_many
            put(_FOUND, rows)
            put("INSERT OR REPLACE INTO meta VALUES (?, ?)", version)

        if rows:
            self._database.write(work, durable=durable)

    def stored_at(self, node: Tensor) -> Tensor:  # [N] int64 -> [N] float64
        """When nodes were stored, seconds since the epoch UTC; NaN where an old version did it."""
        sql = "SELECT start, count, time FROM stored_at ORDER BY start"
        rows = self._database.query(sql) if self._database.has("stored_at") else []
        if not rows or not len(node):
            return torch.full(node.shape, torch.nan, dtype=torch.float64)
        columns = torch.tensor(rows, dtype=torch.float64)  # seconds do not fit into float32
        start, count, time = columns[:, 0].long(), columns[:, 1].long(), columns[:, 2]
        place = torch.searchsorted(start, node, right=True) - 1
        inside = (place >= 0) & (node < (start + count)[place.clamp(min=0)])
        return torch.where(inside, time[place.clamp(min=0)], torch.nan)

    def note_stored(self, start: int, count: int, when: float) -> None:
        """Notes when a batch is stored; only inside a write of the database."""
        if count:
            row = (start, count, when)
            self._database.execute_many("INSERT OR REPLACE INTO stored_at VALUES (?, ?, ?)", [row])
