"""Queries of a store that need neither tensors nor the writer's lock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, FieldName, titled
from graphmem_torch.errors import InputError, MissingNodeError
from graphmem_torch.exact import load_json
from graphmem_torch.store.arrays import EdgeArrays, read_edges
from graphmem_torch.store.database import Database
from graphmem_torch.store.expiry import ExpiryRows
from graphmem_torch.store.failures import damaged
from graphmem_torch.store.folder import store_folder
from graphmem_torch.store.followed_files import Sources
from graphmem_torch.store.insights import InsightRows
from graphmem_torch.store.keyed import KeyedRows
from graphmem_torch.store.learned import LearnedRows
from graphmem_torch.store.pins_and_types import PinsAndTypes
from graphmem_torch.store.records import atom_from_row
from graphmem_torch.store.schema import ATOM_COLUMNS, own_key
from graphmem_torch.store.snapshot_file import expect_no_orphan
from graphmem_torch.store.text_columns import KeptTexts
from graphmem_torch.store.unicode_names import StoredForms
from graphmem_torch.store.uses import Uses
from graphmem_torch.store.validity_log import ValidityRows

__all__ = ["TURNS", "StoreReader"]

_LISTED = "(SELECT value FROM json_each(?))"
_DIGITS = 16  # chunk numbers have fewer; longer ones are names given by callers
_TEXTS = 4096  # texts read at once
_LIKE = 1024  # maximum number of ids similar to an unknown one
_MANY = 500  # values in one IN (...) list; SQLite allows more, a longer statement is not faster


TURNS = """
SELECT node, kind, speaker, session, type, time FROM atom
WHERE kind != ? AND session IS NOT NULL AND (links = '[]' OR NOT EXISTS (
    SELECT 1 FROM json_each(links) WHERE json_extract(value, '$[1]') = ?
))"""
"""Node, kind, speaker, session, type and time of all turns; derived atoms are no turns."""


class StoreReader:
    """Queries of a store without tensors; needs no writer's lock.

    Nothing is cached in Python, so every acknowledged batch is visible at once. Use `reading()` for
    several queries of one snapshot.
    """

    _table = "atom"  # source of atoms

    def __init__(self, database: Database, path: Path | None) -> None:
        """Use `StoreReader.open_to_read`, or `MemoryStore.open`."""
        self._database = database
        self.path = path
        self.closed = False
        self.life = PinsAndTypes(database)
        self.sources = Sources(database)
        self.learned = LearnedRows(database)
        self._sound: set[tuple[int, bytes]] = set()  # atoms with a verified digest
        self.validity = ValidityRows(database)
        self.insights = InsightRows(database)
        self.forms = StoredForms(self)
        self.expiry = ExpiryRows(database)
        self.keyed = KeyedRows(database)
        self.kept_texts = KeptTexts(database)
        self.uses = Uses(database, deferred=path is not None and not database.readonly)

    @classmethod
    def open_to_read(cls, path: str | os.PathLike[str]) -> Self:
        """Open the store in a folder for reading only, without a lock and without tensors.

        Raises:
            StoreDamagedError: The database is damaged.
            StoreError: There is no store, or its schema version is unknown.
        """
        folder = store_folder(path)
        expect_no_orphan(folder)
        return cls(Database(folder, readonly=True, create=False), folder)

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self.closed = True
        self._database.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    @property
    def readonly(self) -> bool:
        """Return whether the store was opened with mode "r"."""
        return self._database.readonly

    def expect_writable(self) -> None:
        """Raise StoreError if the store cannot be written, to fail before expensive work."""
        self._database.expect_writable()

    def expect_there(self) -> None:
        """Raise StoreError if it was closed, or its files were moved, removed or replaced."""
        self._database.expect_there()

    @property
    def gone(self) -> bool:
        """Return whether the store's files were removed or replaced since it was opened."""
        return self._database.gone

    @property
    def asked(self) -> float:
        """Time of the last use, on a monotonic clock."""
        return self._database.asked

    def idle(self) -> AbstractContextManager[bool]:
        """Yield whether the store is unused; if so, block other threads inside the block."""
        return self._database.idle()

    @property
    def generation(self) -> int:
        """Number of acknowledged batches; uses and meta strings do not count."""
        return self._whole("store.generation", self._database.value("store.generation")) or 0

    @property
    def state(self) -> str:
        """Exact name of the content: the generation, and a random word that changes with it."""
        kept = self._kept("store.generation", "store.state")
        number = self._whole("store.generation", kept.get("store.generation"))
        return f"{number or 0}-{kept.get('store.state')}"

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the embedder that the store is bound to."""
        return self._database.value("store.fingerprint")

    @property
    def dim(self) -> int | None:
        """Width of the embeddings; None while it is unknown."""
        return self._whole("store.dim", self._database.value("store.dim"))

    @property
    def token_dim(self) -> int | None:
        """Width of the token vectors; None if there are none."""
        return self._whole("store.token_dim", self._database.value("store.token_dim"))

    @property
    def num_nodes(self) -> int:
        """Number of atoms, concepts included."""
        return int(self._database.query("SELECT count(*) FROM atom")[0][0])

    @property
    def num_atoms(self) -> int:
        """Number of atoms, without concepts."""
        # The condition is that of an index (`atom_said`), which SQLite counts instead of all rows.
        sql = f"SELECT count(*) FROM atom WHERE kind != '{CONCEPT}'"
        return int(self._database.query(sql)[0][0])

    @property
    def next_node(self) -> int:
        """Number of the next atom; numbers are consecutive and never reused."""
        rows = self._database.query("SELECT seq FROM sqlite_sequence WHERE name = 'atom'")
        return int(rows[0][0]) + 1 if rows else 0

    def reading(self) -> AbstractContextManager[None]:
        """Read one snapshot inside the `with` block, whatever a writer commits.

        Writing inside is an error. Keep it short: it delays checkpoints of the write-ahead log.
        """
        return self._database.reading()

    def known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return node number and digest by id; ids that are not stored are left out."""
        rows = self._select_in("SELECT id, node, digest FROM atom WHERE id", ids)
        return {id_: (node, digest.hex()) for id_, node, digest in rows}

    def saying(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return (text, node) for each node with one of the texts; a concept has its name."""
        found = self._database.query(_SAYING, (json.dumps(texts),))
        named = self._select_in(
            "SELECT id, node FROM atom WHERE id", [f"{CONCEPT}:{text}" for text in texts]
        )
        return found + [(name.removeprefix(f"{CONCEPT}:"), node) for name, node in named]

    def numbered(self, label: str) -> list[tuple[str, int]]:
        """Return the stored ids `<label>#<number>` with their numbers, by number."""
        # "$" is the character after "#".
        rows = self._database.query(
            "SELECT id FROM atom WHERE id >= ? AND id < ?", (f"{label}#", f"{label}$")
        )
        found = [(id_, id_[len(label) + 1 :]) for (id_,) in rows]
        # Longer numbers are names given by callers, not chunk numbers.
        named = [(id_, int(n)) for id_, n in found if n.isdecimal() and len(n) < _DIGITS]
        return sorted(named, key=lambda each: each[1])

    def cached(self, text_hashes: Sequence[str]) -> dict[str, int]:
        """Return the first atom of each rendered text, by `text_hash`; `vectors` reads vectors."""
        try:
            keys = [bytes.fromhex(key) for key in text_hashes]
        except ValueError:
            raise InputError(
                "text_hashes: expected hex digits, got something else. Make them with `text_hash`"
            ) from None
        rows = self._select_in("SELECT text_hash, node FROM atom WHERE text_hash", keys)
        found: dict[str, int] = {}
        for key, node in rows:
            found[key.hex()] = min(node, found.get(key.hex(), node))
        return found

    def atoms(self, nodes: Sequence[int]) -> list[Atom]:
        """Return atoms by node number, in the given order; numbers may repeat.

        Raises:
            MissingNodeError: A number belongs to no atom.
        """
        rows = self._select_in(
            f"SELECT {ATOM_COLUMNS}, digest FROM {self._table} WHERE node",
            list(dict.fromkeys(nodes)),
        )
        found = {row[0]: self._checked(row, row[-1]) for row in rows}
        try:
            return [found[node] for node in nodes]
        except KeyError as error:
            raise self._unknown_node(error.args[0]) from None

    def contents(self, nodes: Sequence[int]) -> tuple[list[str], set[str]]:
        """Return the ids and all texts of nodes, earlier versions included."""
        listed = (json.dumps(list(nodes)),)
        rows = self._database.query(f"SELECT id, text FROM atom WHERE node IN {_LISTED}", listed)
        if self._database.has("version"):
            sql = f"SELECT id, text FROM version WHERE current IN {_LISTED}"
            rows += self._database.query(sql, listed)
        return sorted({id_ for id_, _ in rows}), {text for _, text in rows}

    def texts_of(self, nodes: Sequence[int]) -> list[str]:
        """Return the texts of atoms, each below its title, by node number."""
        rows = self._select_in("SELECT title, text FROM atom WHERE node", sorted(nodes))
        return [titled(*row) for row in rows]

    def fields(self, name: FieldName, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield node number and a field of the atoms from `start` on that have it; no concepts."""
        there = "meta != '{}'" if name == "meta" else f"{name} IS NOT NULL"
        sql = (
            f"SELECT node, {name} FROM {self._table} WHERE node >= ? AND kind != ? AND {there} "
            "ORDER BY node LIMIT 4096"
        )
        while rows := self._database.query(sql, (start, CONCEPT)):
            start = rows[-1][0] + 1
            if name == "meta":
                nodes, texts = zip(*rows, strict=True)
                try:  # one parse is faster than many
                    rows = list(zip(nodes, load_json(f"[{','.join(texts)}]"), strict=True))
                except (TypeError, ValueError) as error:
                    raise damaged(self._database.place, f"meta cannot be read: {error}") from error
            yield from rows

    def origins(self) -> list[tuple[int, str | None, str | None, float | None]]:
        """Return node number, speaker, session and time of every atom; no concepts."""
        sql = "SELECT node, speaker, session, time FROM atom WHERE kind != ? ORDER BY node"
        return self._database.query(sql, (CONCEPT,))

    def edge_arrays(self) -> EdgeArrays:
        """Return all edges, in write order."""
        return read_edges(self._database, 0)

    def sources_of(self, nodes: Sequence[int], kind: EdgeType) -> list[int]:
        """Return the source nodes of edges of a type into any of the nodes."""
        edges = self.edge_arrays()
        there = np.isin(edges.target, list(nodes)) & (edges.type == int(kind))
        return np.unique(edges.source[there]).tolist()

    def listed(self) -> list[tuple[int, int, str, float | None]]:
        """Return node number, first version's number, id and time of every atom; no concepts."""
        first = self.first_versions()
        sql = f"SELECT node, id, time FROM {self._table} WHERE kind != ? ORDER BY node"
        rows = self._database.query(sql, (CONCEPT,))
        return [(node, first.get(node, node), id_, time) for node, id_, time in rows]

    def ids(self, start: int = 0) -> list[str]:
        """Return the ids of the atoms from node `start` on, by node number."""
        sql = "SELECT id FROM atom WHERE node >= ? ORDER BY node"
        return [row[0] for row in self._database.query(sql, (start,))]

    def ids_like(self, name: str) -> list[str]:
        """Return some ids that may be misspelled as `name`: either half is equal, ignoring case.

        Case is ignored for ASCII only. The query reads only the index of ids, not the texts.
        """
        half = max(1, len(name) // 2)
        given = (f"{CONCEPT}:*", len(name), half, name[:half], -half, name[-half:], _LIKE)
        return [row[0] for row in self._database.query(_IDS_LIKE, given)]

    def beyond_ascii(self, name: Literal["id", "session"], start: int = 0) -> list[str]:
        """Return the non-ASCII ids or sessions of memories from node `start` on, by node number."""
        rows = self._database.query(
            f"SELECT {name} FROM atom WHERE node >= ? AND kind != ? "
            f"AND length({name}) < length(CAST({name} AS BLOB)) ORDER BY node",
            (start, CONCEPT),
        )
        return [row[0] for row in rows]

    def texts(self, start: int = 0, kind: str | None = None) -> Iterator[str]:
        """Yield rendered texts (`Atom.rendered`) from node `start` on, of one kind if given."""
        own, asked = ("", ()) if kind is None else (" AND kind = ?", (kind,))
        rows = f"SELECT node, speaker, text, title FROM {self._table} WHERE node >= ?{own}"
        sql = f"{rows} ORDER BY node LIMIT {_TEXTS}"
        while True:
            found = self._database.query(sql, (start, *asked))
            yield from (
                Atom(id="", text=text, speaker=speaker, title=title).rendered
                for _, speaker, text, title in found
            )
            if len(found) < _TEXTS:
                return
            start = found[-1][0] + 1

    def rendered(self) -> list[tuple[int, str, bool]]:
        """Return number, rendered text and whether it is a concept, of every node and version."""
        sql = "SELECT node, speaker, text, title, kind FROM atom"
        if self._database.has("version") and self._database.query(
            "SELECT 1 FROM sqlite_master WHERE name = 'version'"
        ):
            sql += " UNION ALL SELECT node, speaker, text, title, kind FROM version"
        return [
            (node, Atom("", text, speaker=speaker, title=title).rendered, kind == CONCEPT)
            for node, speaker, text, title, kind in self._database.query(f"{sql} ORDER BY node")
        ]

    def stated_pairs(self, kind: EdgeType) -> list[tuple[int, int]]:
        """Return the ends of edges of a type that atoms state, if both ends are stored."""
        return self._database.query(_STATED, (int(kind),))

    def stating(self, kind: EdgeType, ids: Iterable[str]) -> list[int]:
        """Return the atoms that state an edge of a type to any of the ids, stored or not."""
        rows = self._database.query(_STATING, (int(kind), json.dumps(list(ids))))
        return [row[0] for row in rows]

    @property
    def num_edges(self) -> int:
        """Number of edges, of all types."""
        return int(self._database.query("SELECT coalesce(sum(count), 0) FROM edge_block")[0][0])

    def turns(self, sessions: Iterable[str]) -> dict[str, list[tuple[int, int, float | None]]]:
        """Return first version, node number and time of each session's turns, in stored order."""
        found = {session: list[tuple[int, int, float | None]]() for session in sessions}
        first = self.first_versions()
        values = CONCEPT, int(EdgeType.DERIVED_FROM), json.dumps(list(found))
        for node, _, _, session, _, time in self._database.query(_TURNS_OF, values):
            found[session].append((first.get(node, node), node, time))
        return {session: sorted(turns) for session, turns in found.items()}

    def spoken(self) -> Iterator[tuple[int, str | None, str | None, str]]:
        """Yield node number, speaker, session and whole text of every atom; no concepts."""
        sql = (
            "SELECT node, speaker, session, title, text FROM atom WHERE node > ? AND kind != ? "
            f"ORDER BY node LIMIT {_TEXTS}"
        )
        last = -1
        while found := self._database.query(sql, (last, CONCEPT)):
            yield from ((*row[:3], titled(*row[3:])) for row in found)
            last = found[-1][0]

    def concepts(self, names: Sequence[str]) -> dict[str, int]:
        """Return the concept of each name or alias; names without a concept are left out."""
        prefix = f"{CONCEPT}:"
        own = self._select_in("SELECT id, node FROM atom WHERE id", [prefix + n for n in names])
        aliases = []
        if self._database.has("alias"):
            aliases = self._select_in("SELECT name, node FROM alias WHERE name", names)
        return dict(aliases) | {id_.removeprefix(prefix): node for id_, node in own}

    def namesakes(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return all names of the concept of each name."""
        nodes = self.concepts(names)
        wanted = list({*nodes.values()})
        named = {node: [name] for node, name in self._select_in(_OWN_NAMES, wanted)}
        if self._database.has("alias"):
            for name, node in self._select_in("SELECT name, node FROM alias WHERE node", wanted):
                named[node].append(name)
        return {name: named[node] for name, node in nodes.items()}

    def outline(self, *, stating: bool = False) -> list[tuple[int, str | None, bool]]:
        """Return each node's number, name if it is a concept, and whether it states edges.

        `stating` leaves out the nodes that state none.
        """
        sql = "SELECT node, CASE kind WHEN ? THEN text END, links != '[]' FROM atom"
        where = " WHERE links != '[]'" if stating else ""
        return self._database.query(f"{sql}{where} ORDER BY node", (CONCEPT,))

    def alias_names(self, names: Iterable[str]) -> list[str]:
        """Return the names that are aliases of a concept."""
        rows = self._select_in("SELECT name FROM alias WHERE name", list(names))
        return [row[0] for row in rows]

    def first_versions(self) -> dict[int, int]:
        """Return the number of the first version, by each node with earlier versions."""
        sql = "SELECT current, min(node) FROM version GROUP BY current"
        return dict(self._database.query(sql)) if self._database.has("version") else {}

    def versions(self, node: int) -> list[tuple[Atom, float]]:
        """Return the earlier versions of an atom, oldest first, and the end time of each."""
        return [(atom, until) for _, until, atom in self._versions("current = ?", (node,))]

    def ids_of_kind(self, kind: str) -> list[str]:
        """Return the ids of the atoms of a kind, by node number."""
        sql = "SELECT id FROM atom WHERE kind = ? ORDER BY node"
        return [row[0] for row in self._database.query(sql, (kind,))]

    def present(self, nodes: Sequence[int]) -> list[int]:
        """Return the nodes that are still stored, ascending."""
        sql = f"SELECT node FROM atom WHERE node IN {_LISTED} ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def earlier_nodes(self, nodes: Sequence[int]) -> list[int]:
        """Return the node numbers of earlier versions of some atoms."""
        if not self._database.has("version"):
            return []
        sql = "SELECT node FROM version WHERE current IN (SELECT value FROM json_each(?))"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def stored_since(self, since: float) -> list[tuple[float, int, str]]:
        """Return time, node number and id of the first versions stored from `since` on, in order.

        Atoms whose time an older release did not note are left out.
        """
        if not self._database.has("stored_at"):
            return []
        versions = self._database.has("version")
        later = "AND node NOT IN (SELECT current FROM version)" if versions else ""
        sql = _STORED.format(f"SELECT node, id FROM atom WHERE kind != ? {later}")
        found = self._database.query(sql, (CONCEPT, since))
        if versions:
            first = "SELECT min(node) FROM version GROUP BY current"
            sql = _STORED.format(f"SELECT node, id FROM version WHERE node IN ({first})")
            found += self._database.query(sql, (since,))
        return sorted(found, key=lambda row: row[1])

    def replaced_since(self, since: float) -> list[tuple[float, int, str]]:
        """Return time, node number and id of the versions replaced from `since` on."""
        if not self._database.has("version"):
            return []
        sql = "SELECT until, node, id FROM version WHERE until >= ? ORDER BY node"
        return self._database.query(sql, (since,))

    def earlier(self) -> list[tuple[int, float, Atom]]:
        """Return node number, end time and content of all earlier versions."""
        return self._versions("TRUE", ())

    def replaced(self, when: float) -> dict[int, int]:
        """Return the node number of the version at a time, by each node that had another then."""
        if not self._database.has("version"):
            return {}
        sql = "SELECT current, node FROM version WHERE until > ? ORDER BY until DESC, node DESC"
        return dict(self._database.query(sql, (when,)))

    def begun(self, nodes: Sequence[int]) -> dict[int, float]:
        """Return when the current version began, for each of the nodes with earlier versions."""
        if not self._database.has("version"):
            return {}
        return dict(self._database.query(_BEGUN, (json.dumps(list(nodes)),)))

    def version_ends(self) -> list[float]:
        """Return the times at which versions were replaced, ascending.

        `replaced` is the same for two times if no end lies after the first and up to the second.
        """
        if not self._database.has("version"):
            return []
        return [row[0] for row in self._database.query("SELECT until FROM version ORDER BY until")]

    def _versions(self, where: str, values: Sequence[Any]) -> list[tuple[int, float, Atom]]:
        """Return node number, end time and content of versions, by end time."""
        if not self._database.has("version"):
            return []
        rows = self._database.query(
            f"SELECT until, digest, {ATOM_COLUMNS} FROM version WHERE {where} ORDER BY until, node",
            values,
        )
        found = []
        for until, digest, *row in rows:
            atom = self._checked(tuple(row), digest)
            found.append((row[0], until, atom))
        return found

    def aliases(self, after: int = 0) -> list[tuple[int, str, int]]:
        """Return entry number, name and concept of each alias after the entry number `after`."""
        if not self._database.has("alias"):
            return []
        sql = "SELECT entry, name, node FROM alias WHERE entry > ? ORDER BY entry"
        return self._database.query(sql, (after,))

    @property
    def last_alias(self) -> int:
        """Largest entry number of `aliases`; the number of a deleted entry may be reused."""
        if not self._database.has("alias"):
            return 0
        return int(self._database.query("SELECT coalesce(max(entry), 0) FROM alias")[0][0])

    def meta_get(self, key: str) -> str | None:
        """Return a string stored by `MemoryStore.meta_set`, or None."""
        return self._database.value(own_key(key))

    def _checked(self, row: tuple[Any, ...], digest: bytes) -> Atom:
        """Return the atom of a row; its digest is verified once."""
        try:
            atom = atom_from_row(row)
        except (TypeError, ValueError) as error:
            raise damaged(self._database.place, f"an atom cannot be read: {error}") from error
        if (row[0], digest) not in self._sound and atom.digest != digest.hex():
            what = f"the digest of atom {atom.id!r} does not match its content"
            raise damaged(self._database.place, what)
        self._sound.add((row[0], digest))
        return atom

    def _kept(self, *keys: str) -> dict[str, str]:
        """Return the meta strings of several keys in one query; missing keys are left out."""
        marks = ", ".join("?" * len(keys))
        return dict(self._database.query(f"SELECT * FROM meta WHERE key IN ({marks})", keys))

    def _whole(self, key: str, value: str | None) -> int | None:
        try:
            return None if value is None else int(value)
        except ValueError:
            raise damaged(self._database.place, f"{key} is {value!r:.40}") from None

    def _select_in(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        try:
            for first in range(0, len(values), _MANY):
                part = values[first : first + _MANY]
                rows += self._database.query(f"{sql} IN ({', '.join('?' * len(part))})", part)
        except UnicodeEncodeError:
            raise InputError(
                "ids: expected text that UTF-8 can hold, got a lone surrogate. Decode it anew"
            ) from None
        return rows

    def _unknown_node(self, node: int) -> MissingNodeError:
        return MissingNodeError(
            f"nodes: expected numbers of stored atoms, got {node}. They run from 0 to "
            f"{self.next_node - 1}, but for deleted ones; `columns().node` lists them"
        )


_IDS_LIKE = """
SELECT id FROM atom WHERE id NOT GLOB ? AND abs(length(id) - ?) <= 2
AND (substr(id, 1, ?) = ? COLLATE NOCASE OR substr(id, ?) = ? COLLATE NOCASE) LIMIT ?"""
_SAYING = f"""
SELECT text, node FROM json_each(?) CROSS JOIN atom
ON length(text) = length(value) AND substr(text, 1, 8) = substr(value, 1, 8) AND text = value
WHERE kind != '{CONCEPT}'"""
_BEGUN = """
SELECT current, max(until) FROM version WHERE current IN (SELECT value FROM json_each(?))
GROUP BY current"""
_STORED = """
SELECT time, node, id FROM ({0}) JOIN stored_at ON node >= start AND node < start + count
WHERE time >= ?"""
_OWN_NAMES = "SELECT node, text FROM atom WHERE node"
_TURNS_OF = f"{TURNS} AND session IN (SELECT value FROM json_each(?))"
_STATED = """
SELECT source.node, target.node FROM atom AS source, json_each(source.links) AS link
JOIN atom AS target ON target.id = json_extract(link.value, '$[0]')
WHERE source.links != '[]' AND json_extract(link.value, '$[1]') = ?"""
_STATING = """
SELECT DISTINCT node FROM atom, json_each(links) AS link
WHERE links != '[]' AND json_extract(link.value, '$[1]') = ?
AND json_extract(link.value, '$[0]') IN (SELECT value FROM json_each(?)) ORDER BY node"""
