"""What can be asked of a store: everything that needs no writer's lock."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from graphmem_torch.atoms import (
    AGGREGATE,
    BUILT,
    CONCEPT,
    Atom,
    EdgeType,
    FieldName,
    text_hash,
    titled,
)
from graphmem_torch.coo import isin_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError, MissingNodeError, StoreDamagedError
from graphmem_torch.exact import load_json
from graphmem_torch.store.atom_columns import Columns, columns_from_rows
from graphmem_torch.store.blocks import (
    NodeVectors,
    TokenRows,
    is_sound,
    join_tokens,
    pick_tokens,
    read_alias_vectors,
    read_edges,
    read_embeddings,
    read_last_edges,
    read_linked_edges,
    read_tokens,
    read_vectors,
)
from graphmem_torch.store.changes import Changes, Remembered, commits_since, read_changes
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged
from graphmem_torch.store.followed_files import Sources
from graphmem_torch.store.insights import InsightRows
from graphmem_torch.store.keyed import KeyedRows
from graphmem_torch.store.learned import LearnedRows
from graphmem_torch.store.pins_and_types import PinsAndTypes
from graphmem_torch.store.records import atom_from_row
from graphmem_torch.store.schema import ATOM_COLUMNS
from graphmem_torch.store.unicode_names import StoredForms
from graphmem_torch.store.uses import Uses
from graphmem_torch.store.validity_log import ValidityRows

__all__ = ["LINKED_BY", "RESERVED", "StoreReader", "own_key"]

LINKED_BY = "concepts"
"""Key of what finds the concepts of a store; only a store that linking fills has it."""

ORDERED_BY = "turns"
"""Key of what orders the turns of a session: "time", in an older store nothing says it."""

RESERVED = "store."
"""Prefix of the meta strings that belong to the store itself."""

_BLOCKS = {
    "embedding_block": ("data",),
    "token_block": ("counts", "pieces", "data"),
    "edge_block": ("source", "target", "type", "weight"),
}
_BUILT = "(kind = ? AND id GLOB ?)"  # an aggregate that a consolidation made
_SHOWN = 5  # of each kind of problem; one damaged disk sector can break thousands of rows
_DIGITS = 16  # of numbers that no label reaches, and that SQLite and Python still hold
_TEXTS = 4096  # texts that are read at once
_LIKE = 1024  # ids that are compared with one that is none
_MANY = 500  # values in one IN (...) list; SQLite allows more, a longer statement is not faster


class StoreReader:
    """The reading half of `MemoryStore`.

    Nothing is cached in Python, so each batch is seen as soon as it is acknowledged; whoever needs
    several answers about one moment asks inside `reading()`.

    Rows of `embeddings`, `tokens`, `columns`, `ids` and `texts` belong together: one for every
    atom, in the order of node numbers. As long as nothing was deleted, row i is node `start + i`.
    """

    _table = "atom"  # what atoms are read from

    def __init__(self, database: Database, path: Path | None) -> None:
        """Use `MemoryStore.open`."""
        self._database = database
        self.path = path
        self.life = PinsAndTypes(database)
        self.sources = Sources(database)
        self.learned = LearnedRows(database)
        self._remembered = Remembered()
        self._sound: set[tuple[int, bytes]] = set()  # atoms whose digest was right
        self.validity = ValidityRows(database)
        self.insights = InsightRows(database)
        self.forms = StoredForms(self)
        self.keyed = KeyedRows(database)
        self.uses = Uses(database, deferred=path is not None and not database.readonly)

    @property
    def readonly(self) -> bool:
        """Whether the store was opened with mode "r"."""
        return self._database.readonly

    def expect_writable(self) -> None:
        """Raises StoreError where a write would, before work is in vain."""
        self._database.expect_writable()

    def expect_there(self) -> None:
        """Raises StoreError if the store's files were moved, removed or replaced."""
        self._database.expect_there()

    @property
    def gone(self) -> bool:
        """Whether the store's files were removed or replaced since it was opened."""
        return self._database.gone

    @property
    def asked(self) -> float:
        """When the store was last used, of a clock that never goes back."""
        return self._database.asked

    def idle(self) -> AbstractContextManager[bool]:
        """Whether nobody is using the store; if so, others wait until the end of the block."""
        return self._database.idle()

    @property
    def generation(self) -> int:
        """Number of batches acknowledged so far; uses and meta strings do not count."""
        return self._number("store.generation") or 0

    @property
    def state(self) -> str:
        """Names the content exactly: the generation and a random word that changes with it."""
        kept = self._kept("store.generation", "store.state")
        number = self._whole("store.generation", kept.get("store.generation"))
        return f"{number or 0}-{kept.get('store.state')}"

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the embedder that the store is bound to."""
        return self._meta("store.fingerprint")

    @property
    def dim(self) -> int | None:
        """Width of the embeddings; None while nothing has said it."""
        return self._number("store.dim")

    @property
    def token_dim(self) -> int | None:
        """Width of the token vectors; None while there are none."""
        return self._number("store.token_dim")

    @property
    def num_nodes(self) -> int:
        """Number of atoms, concepts included."""
        return int(self._database.query("SELECT count(*) FROM atom")[0][0])

    @property
    def num_atoms(self) -> int:
        """Number of atoms that are no concepts."""
        # In the words of an index (`atom_said`), which is counted in place of all rows.
        sql = f"SELECT count(*) FROM atom WHERE kind != '{CONCEPT}'"
        return int(self._database.query(sql)[0][0])

    @property
    def next_node(self) -> int:
        """Number that the next atom gets; numbers are consecutive and never given twice."""
        rows = self._database.query("SELECT seq FROM sqlite_sequence WHERE name = 'atom'")
        return int(rows[0][0]) + 1 if rows else 0

    def reading(self) -> AbstractContextManager[None]:
        """Everything read inside the `with` block belongs to one moment, whatever a writer does.

        Keep it short: while it lasts, the write-ahead log cannot be folded into the database. No
        writes inside.
        """
        return self._database.reading()

    def known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Node number and digest of those ids that are in the store."""
        rows = self._select_in("SELECT id, node, digest FROM atom WHERE id", ids)
        return {id_: (node, digest.hex()) for id_, node, digest in rows}

    def saying(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Which of some texts are those of nodes, with their numbers; concepts say their names."""
        found = self._database.query(_SAYING, (json.dumps(texts),))
        named = self._select_in(
            "SELECT id, node FROM atom WHERE id", [f"{CONCEPT}:{text}" for text in texts]
        )
        return found + [(name.removeprefix(f"{CONCEPT}:"), node) for name, node in named]

    def numbered(self, label: str) -> list[tuple[str, int]]:
        """The stored ids `<label>#<number>`, with their numbers, in the order of these."""
        # "$" is the character behind "#".
        rows = self._database.query(
            "SELECT id FROM atom WHERE id >= ? AND id < ?", (f"{label}#", f"{label}$")
        )
        found = [(id_, id_[len(label) + 1 :]) for (id_,) in rows]
        # What callers call by longer numbers is none of those that are given.
        named = [(id_, int(n)) for id_, n in found if n.isdecimal() and len(n) < _DIGITS]
        return sorted(named, key=lambda each: each[1])

    def cached(self, text_hashes: Sequence[str]) -> dict[str, int]:
        """The first atom of each rendered text, by `text_hash`; `vectors` has its vectors."""
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
        """Atoms by node number, in the order asked for; numbers may repeat.

        Raises:
            MissingNodeError: No atom has one of these numbers.
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

    def texts_of(self, nodes: Sequence[int]) -> list[str]:
        """The texts of atoms below their titles, in the order of their numbers."""
        rows = self._select_in("SELECT title, text FROM atom WHERE node", sorted(nodes))
        return [titled(*row) for row in rows]

    def columns(self, start: int = 0) -> Columns:
        """Kinds, speakers, sessions, types and times of the atoms from node `start` on."""
        columns = f"SELECT node, kind, speaker, session, type, time FROM {self._table}"
        rows = self._database.query(f"{columns} WHERE node >= ? ORDER BY node", (start,))
        return columns_from_rows(rows)

    def fields(self, name: FieldName, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Node number and one field of the atoms from node `start` on that have it; no concepts."""
        there = "meta != '{}'" if name == "meta" else f"{name} IS NOT NULL"
        sql = (
            f"SELECT node, {name} FROM {self._table} WHERE node >= ? AND kind != ? AND {there} "
            "ORDER BY node LIMIT 4096"
        )
        while rows := self._database.query(sql, (start, CONCEPT)):
            start = rows[-1][0] + 1
            if name == "meta":
                nodes, texts = zip(*rows, strict=True)
                try:  # in one go, faster than one by one
                    rows = list(zip(nodes, load_json(f"[{','.join(texts)}]"), strict=True))
                except (TypeError, ValueError) as error:
                    raise damaged(self._database.place, f"meta cannot be read: {error}") from error
            yield from rows

    def listed(self) -> list[tuple[int, int, str, float | None]]:
        """Node number, number of the first version, id and time of every atom but concepts."""
        first = self.first_versions()
        sql = f"SELECT node, id, time FROM {self._table} WHERE kind != ? ORDER BY node"
        rows = self._database.query(sql, (CONCEPT,))
        return [(node, first.get(node, node), id_, time) for node, id_, time in rows]

    def events(self, start: int = 0) -> Tensor:  # [n, 3] float64
        """Node number, `event_time` and `event_end` of the atoms from `start` on that have one.

        Seconds since the epoch UTC, NaN where there is none; in the order of node numbers. Without
        aggregates that a consolidation made, whose span bounds nothing.
        """
        rows = self._database.query(
            f"SELECT node, event_time, event_end FROM {self._table} WHERE node >= ? "
            f"AND (event_time IS NOT NULL OR event_end IS NOT NULL) AND NOT {_BUILT} ORDER BY node",
            (start, AGGREGATE, f"{BUILT}*"),
        )
        values = [[math.nan if each is None else each for each in row] for row in rows]
        return torch.tensor(values, dtype=torch.float64).view(-1, 3)

    def times(self, nodes: Sequence[int]) -> Tensor:  # [n, 4] float64
        """Node number, time, `event_time` and `event_end` of those of some atoms that are stored.

        As in `events`.
        """
        rows = self._database.query(
            f"SELECT node, time, iif({_BUILT}, NULL, event_time), iif({_BUILT}, NULL, event_end) "
            f"FROM {self._table} WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node",
            (*2 * (AGGREGATE, f"{BUILT}*"), json.dumps(list(nodes))),
        )
        values = [[math.nan if each is None else each for each in row] for row in rows]
        return torch.tensor(values, dtype=torch.float64).view(-1, 4)

    def nodes(self, start: int = 0, *, concepts: bool = True) -> Tensor:  # [n] int64
        """Numbers of the atoms from node `start` on, ascending; without `concepts` of memories."""
        own, values = ("", ()) if concepts else (" AND kind != ?", (CONCEPT,))
        sql = f"SELECT node FROM atom WHERE node >= ?{own} ORDER BY node"
        rows = self._database.query(sql, (start, *values))
        return torch.tensor([row[0] for row in rows], dtype=torch.int64)

    def ids(self, start: int = 0) -> list[str]:
        """Ids of the atoms from node `start` on, in the order of node numbers."""
        sql = "SELECT id FROM atom WHERE node >= ? ORDER BY node"
        return [row[0] for row in self._database.query(sql, (start,))]

    def ids_like(self, name: str) -> list[str]:
        """Ids of some memories that one slip may tell from a name: one half of it is the same.

        In whatever case of ASCII. Of the index of ids alone, which holds no texts.
        """
        half = max(1, len(name) // 2)
        given = (f"{CONCEPT}:*", len(name), half, name[:half], -half, name[-half:], _LIKE)
        return [row[0] for row in self._database.query(_IDS_LIKE, given)]

    def beyond_ascii(self, name: Literal["id", "session"], start: int = 0) -> list[str]:
        """Ids or sessions that are not ASCII, of the memories from node `start` on, in order."""
        rows = self._database.query(
            f"SELECT {name} FROM atom WHERE node >= ? AND kind != ? "
            f"AND length({name}) < length(CAST({name} AS BLOB)) ORDER BY node",
            (start, CONCEPT),
        )
        return [row[0] for row in rows]

    def texts(self, start: int = 0, kind: str | None = None) -> Iterator[str]:
        """Rendered texts (`Atom.rendered`) from node `start` on, in the order of node numbers.

        With `kind` only those of one kind.
        """
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

    def first_nodes(self, start: int = 0) -> Tensor:  # [n] int64
        """For each atom from node `start` on the first one of its text; no concepts."""
        sql = (
            "SELECT (SELECT min(node) FROM atom WHERE text_hash = own.text_hash AND kind != ?) "
            "FROM atom AS own WHERE node >= ? AND kind != ? ORDER BY node"
        )
        rows = self._database.query(sql, (CONCEPT, start, CONCEPT))
        return torch.tensor([row[0] for row in rows], dtype=torch.int64)

    def rendered(self) -> list[tuple[int, str, bool]]:
        """Number and rendered text of every node, earlier versions too; whether it is a concept."""
        sql = "SELECT node, speaker, text, title, kind FROM atom"
        if self._database.has("version") and self._database.query(
            "SELECT 1 FROM sqlite_master WHERE name = 'version'"
        ):
            sql += " UNION ALL SELECT node, speaker, text, title, kind FROM version"
        return [
            (node, Atom("", text, speaker=speaker, title=title).rendered, kind == CONCEPT)
            for node, speaker, text, title, kind in self._database.query(f"{sql} ORDER BY node")
        ]

    def stated(self, kind: EdgeType) -> Tensor:  # [2, S] int64
        """Ends of the edges of a type that atoms state, as far as they are stored."""
        found = self._database.query(_STATED, (int(kind),))
        return torch.tensor(found, dtype=torch.int64).reshape(-1, 2).T

    def stating(self, kind: EdgeType, ids: Iterable[str]) -> list[int]:
        """Nodes of the atoms that state an edge of a type to any of these ids, stored or not."""
        rows = self._database.query(_STATING, (int(kind), json.dumps(list(ids))))
        return [row[0] for row in rows]

    def embeddings(self, start: int = 0) -> Tensor:  # [N, d] float32
        """Embeddings of the atoms from node `start` on."""
        with self.reading():
            stop = self.next_node
            rows = read_embeddings(self._database, start, stop, self.dim or 0)
            live = self._live(start, stop)
            return rows if live is None else rows[live]

    def tokens(self, start: int = 0) -> TokenRows | None:
        """Token vectors of the atoms from node `start` on; None when the store holds none at all.

        Atoms that were stored without token vectors own no rows.
        """
        with self.reading():
            width, stop = self.token_dim, self.next_node
            if width is None:
                if self._database.query("SELECT 1 FROM token_block LIMIT 1"):
                    raise damaged(self._database.place, "the width of its token vectors is gone")
                return None
            rows = read_tokens(self._database, start, stop, width)
            live = self._live(start, stop)
            return rows if live is None else pick_tokens(rows, live)

    def edges(self, start: int = 0) -> EdgeBlock:
        """Edges of all batches whose first atom has a number of `start` or more, as written.

        An index that has read everything up to node n reads what was appended since with
        `edges(start=n)`. A batch of edges alone counts as beginning at the `next_node` of its time.
        """
        return read_edges(self._database, start)

    def connected_edges(self) -> EdgeBlock:
        """Edges that came without atoms: those that callers connected."""
        return read_linked_edges(self._database, linked=False)

    @property
    def num_edges(self) -> int:
        """Number of edges, of any kind."""
        return int(self._database.query("SELECT coalesce(sum(count), 0) FROM edge_block")[0][0])

    def last_edges(self, count: int) -> EdgeBlock:
        """The edges that were written last, in that order."""
        return read_last_edges(self._database, count)

    def changes(self, state: str, num_edges: int) -> Changes | None:
        """What was taken away since a state of so many edges; None where that is not known."""
        return read_changes(self._database, state, num_edges, self._remembered)

    def commits_since(self, state: str) -> int | None:
        """How many commits there were since a state; None where that is not known."""
        return commits_since(self._database, state)

    def alias_vectors(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Vectors [d] float32 of names of concepts other than their own.

        Those that an older release stored have none.
        """
        if not self._database.has("alias_vector"):
            return {}
        return read_alias_vectors(self._database, names, self.dim or 0)

    def vectors(self, nodes: Sequence[int], *, tokens: bool = True) -> NodeVectors:
        """Vectors of single nodes, in the order asked for; numbers may repeat.

        Args:
            nodes: Their numbers.
            tokens: Whether their token vectors are read too.

        Raises:
            InputError: No atom ever had one of these numbers.
        """
        with self.reading():
            stop = self.next_node
            unknown = next((node for node in nodes if not 0 <= node < stop), None)
            if unknown is not None:
                raise self._unknown_node(unknown)
            width = self.token_dim if tokens else None
            return read_vectors(self._database, nodes, self.dim or 0, width)

    def misplaced_edges(self, *, by_time: bool) -> tuple[Tensor, Tensor]:
        """What is wrong about the temporal edges of linking.

        A turn belongs behind those of its session whose time is not later; one without a time
        directly behind the turn that was stored before it. What an atom or a caller states is none
        of linking's.

        Args:
            by_time: False: each turn belongs behind the one stored before it, whatever the times.

        Returns:
            [2, W] int64, edges that join others than neighbours of a session; [2, M] int64, pairs
            of neighbours without an edge in the sessions that these belong to, in all of them
            where these tie one session to another.
        """
        with self.reading():
            first = self.first_versions()
            rows = self._database.query(_TURNS, (CONCEPT, int(EdgeType.DERIVED_FROM)))
            rows.sort(key=lambda row: first.get(row[0], row[0]))
            edges = read_linked_edges(self._database)
            stated = self.stated(EdgeType.TEMPORAL)
        turns = columns_from_rows(rows)
        pairs = _neighbours(turns, by_time)
        edges = edges.take(edges.type == int(EdgeType.TEMPORAL))
        made = torch.stack([edges.source, edges.target])
        own = isin_pairs(made, stated)
        wrong = made[:, ~isin_pairs(made, pairs) & ~own]
        missing = pairs[:, ~isin_pairs(pairs, made)]
        last = int(torch.cat([turns.node, *made, torch.zeros(1, dtype=torch.int64)]).max())
        session = torch.full((last + 1,), -1)  # of the turns, by node
        session[turns.node] = turns.session.codes.long()
        one, other = session[wrong]
        if bool(((one == other) & (one >= 0)).all()):
            missing = missing[:, torch.isin(session[missing[0]], one)]
        return wrong, missing

    def turns(self, sessions: Iterable[str]) -> dict[str, list[tuple[int, int, float | None]]]:
        """The turns of sessions in the order of storing: first version, node number and time."""
        found = {session: list[tuple[int, int, float | None]]() for session in sessions}
        first = self.first_versions()
        values = CONCEPT, int(EdgeType.DERIVED_FROM), json.dumps(list(found))
        for node, _, _, session, _, time in self._database.query(_TURNS_OF, values):
            found[session].append((first.get(node, node), node, time))
        return {session: sorted(turns) for session, turns in found.items()}

    def spoken(self) -> Iterator[tuple[int, str | None, str | None, str]]:
        """Node number, speaker, session and whole text of every atom, by node number."""
        sql = (
            "SELECT node, speaker, session, title, text FROM atom WHERE node > ? AND kind != ? "
            f"ORDER BY node LIMIT {_TEXTS}"
        )
        last = -1
        while found := self._database.query(sql, (last, CONCEPT)):
            yield from ((*row[:3], titled(*row[3:])) for row in found)
            last = found[-1][0]

    def concepts(self, names: Sequence[str]) -> dict[str, int]:
        """Node numbers of the concepts of those names that have one, aliases included."""
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

    def outline(self) -> list[tuple[int, str | None, bool]]:
        """Of every node its number, its name if it is a concept, and whether it states edges."""
        sql = "SELECT node, CASE kind WHEN ? THEN text END, links != '[]' FROM atom ORDER BY node"
        return self._database.query(sql, (CONCEPT,))

    def alias_names(self, names: Iterable[str]) -> list[str]:
        """Those names that are of a concept of another name."""
        rows = self._select_in("SELECT name FROM alias WHERE name", list(names))
        return [row[0] for row in rows]

    def first_versions(self) -> dict[int, int]:
        """The number of the first version of each node that has earlier ones."""
        sql = "SELECT current, min(node) FROM version GROUP BY current"
        return dict(self._database.query(sql)) if self._database.has("version") else {}

    def versions(self, node: int) -> list[tuple[Atom, float]]:
        """Earlier versions of an atom, the first one first, and until when each was current."""
        return [(atom, until) for _, until, atom in self._versions("current = ?", (node,))]

    def ids_of_kind(self, kind: str) -> list[str]:
        """Ids of the atoms of a kind, in the order of storing."""
        sql = "SELECT id FROM atom WHERE kind = ? ORDER BY node"
        return [row[0] for row in self._database.query(sql, (kind,))]

    def present(self, nodes: Sequence[int]) -> list[int]:
        """Those of some atoms that are stored still, ascending."""
        sql = "SELECT node FROM atom WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def earlier_nodes(self, nodes: Sequence[int]) -> list[int]:
        """Node numbers of the earlier versions of some atoms."""
        if not self._database.has("version"):
            return []
        sql = "SELECT node FROM version WHERE current IN (SELECT value FROM json_each(?))"
        return [row[0] for row in self._database.query(sql, (json.dumps(list(nodes)),))]

    def stored_since(self, since: float) -> list[tuple[float, int, str]]:
        """When atoms came, from a moment on, with node number and id, in the order of storing.

        Of their first versions; without those of which an older release noted no time.
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
        """When versions were replaced, from a moment on, with the number of each and its id."""
        if not self._database.has("version"):
            return []
        sql = "SELECT until, node, id FROM version WHERE until >= ? ORDER BY node"
        return self._database.query(sql, (since,))

    def earlier(self) -> list[tuple[int, float, Atom]]:
        """Node number, end and content of all earlier versions."""
        return self._versions("TRUE", ())

    def replaced(self, when: float) -> dict[int, int]:
        """Nodes that had another version at a moment, with the node number of that one."""
        if not self._database.has("version"):
            return {}
        sql = "SELECT current, node FROM version WHERE until > ? ORDER BY until DESC, node DESC"
        return dict(self._database.query(sql, (when,)))

    def begun(self, nodes: Sequence[int]) -> dict[int, float]:
        """When those of some nodes that have earlier versions became what they are."""
        if not self._database.has("version"):
            return {}
        return dict(self._database.query(_BEGUN, (json.dumps(list(nodes)),)))

    def version_ends(self) -> list[float]:
        """When versions were replaced, ascending.

        At two moments, none of these behind the first and up to the second, `replaced` is the same.
        """
        if not self._database.has("version"):
            return []
        return [row[0] for row in self._database.query("SELECT until FROM version ORDER BY until")]

    def with_versions(self, replaced: Mapping[int, int]) -> StoreReader:
        """This store with earlier versions of nodes (`replaced`) in their place."""
        return _Past(self, replaced)

    def _versions(self, where: str, values: Sequence[Any]) -> list[tuple[int, float, Atom]]:
        """Node number, end and content of versions, in the order of their ends."""
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
        """Names of concepts other than their own, behind the entry number `after`.

        Entry number, name, and node number of the concept.
        """
        if not self._database.has("alias"):
            return []
        sql = "SELECT entry, name, node FROM alias WHERE entry > ? ORDER BY entry"
        return self._database.query(sql, (after,))

    @property
    def last_alias(self) -> int:
        """The largest entry number of `aliases`; that of one that is gone may be given again."""
        if not self._database.has("alias"):
            return 0
        return int(self._database.query("SELECT coalesce(max(entry), 0) FROM alias")[0][0])

    def meta_get(self, key: str) -> str | None:
        """A string that `MemoryStore.meta_set` kept, or None."""
        return self._meta(own_key(key))

    def counts(self) -> dict[str, Any]:
        """How much of everything there is."""
        query = self._database.query
        return {
            "nodes": self.num_nodes,
            "next_node": self.next_node,
            "kinds": dict(query("SELECT kind, count(*) FROM atom GROUP BY kind ORDER BY kind")),
            "sessions": query("SELECT count(DISTINCT session) FROM atom")[0][0],
            "edges": self.num_edges,
            "tokens": query("SELECT coalesce(sum(length(pieces)), 0) / 4 FROM token_block")[0][0],
            "uses": self.uses.total(),
        }

    def problems(self) -> list[str]:
        """Sentences about everything that does not fit, an empty list when all is well.

        SQLite's own integrity check, checksums and lengths of the blocks, embeddings that are not
        finite, edges to unknown nodes or of unknown types, temporal edges that linking made between
        others than neighbours of a session, aliases of what is no concept, versions of what is no
        atom, text hashes and digests recomputed, validity of what is no atom, what was learned.
        """
        database, found = self._database, list[str]()
        with self.reading():
            try:
                rows = [row[0] for row in database.query("PRAGMA integrity_check")]
                if rows != ["ok"]:
                    _add(found, "database", rows)
                _add(found, "atoms", _atom_problems(database))
                _add(found, "versions", _version_problems(self))
                for table, columns in _BLOCKS.items():
                    _add(found, table, _checksum_problems(database, table, columns))
                _add(found, "vectors", _vector_problems(self))
                _add(found, "edges", _edge_problems(self))
                _add(found, "aliases", _alias_problems(self))
                _add(found, "temporal edges", _temporal_problems(self))
                _add(found, "validity", self.validity.problems())
                found += self.learned.problems()
            except StoreDamagedError as error:
                # Damage that stops the reading: what was found before it is still worth knowing.
                found.append(str(error))
        return found

    def _checked(self, row: tuple[Any, ...], digest: bytes) -> Atom:
        """The atom of a row, whose digest is looked at once."""
        try:
            atom = atom_from_row(row)
        except (TypeError, ValueError) as error:
            raise damaged(self._database.place, f"an atom cannot be read: {error}") from error
        if (row[0], digest) not in self._sound and atom.digest != digest.hex():
            what = f"the digest of atom {atom.id!r} does not match its content"
            raise damaged(self._database.place, what)
        self._sound.add((row[0], digest))
        return atom

    def _meta(self, key: str) -> str | None:
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def _kept(self, *keys: str) -> dict[str, str]:
        """The meta strings of several keys that are there, in one look."""
        marks = ", ".join("?" * len(keys))
        return dict(self._database.query(f"SELECT * FROM meta WHERE key IN ({marks})", keys))

    def _number(self, key: str) -> int | None:
        return self._whole(key, self._meta(key))

    def _whole(self, key: str, value: str | None) -> int | None:
        try:
            return None if value is None else int(value)
        except ValueError:
            raise damaged(self._database.place, f"{key} is {value!r:.40}") from None

    def _live(self, start: int, stop: int) -> Tensor | None:
        """Rows of the range that are still atoms; None: all of them."""
        nodes = self._database.query("SELECT count(*) FROM atom WHERE node >= ?", (start,))
        if nodes[0][0] == max(stop - start, 0):
            return None
        if nodes[0][0] > max(stop - start, 0):
            raise damaged(self._database.place, f"atoms behind number {stop - 1}, the last given")
        return self.nodes(start) - start

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


class _Past(StoreReader):
    """A store with earlier versions of some nodes, under the numbers of today."""

    def __init__(self, store: StoreReader, replaced: Mapping[int, int]) -> None:
        super().__init__(store._database, None)
        self._replaced = dict(replaced)
        columns = f"{ATOM_COLUMNS.removeprefix('node, ')}, digest"
        then, now = (",".join(map(str, each)) for each in zip(*replaced.items(), strict=True))
        self._table = (
            f"(SELECT node, {columns} FROM atom WHERE node NOT IN ({then}) UNION ALL "
            f"SELECT current AS node, {columns} FROM version WHERE node IN ({now}))"
        )

    def embeddings(self, start: int = 0) -> Tensor:  # [N, d] float32
        """As of the versions."""
        with self.reading():
            rows, place, old = super().embeddings(start), *self._places(start)
            rows[place] = self.vectors(old, tokens=False).embeddings
        return rows

    def tokens(self, start: int = 0) -> TokenRows | None:
        """As of the versions."""
        with self.reading():
            rows, (place, old) = super().tokens(start), self._places(start)
            own = self.vectors(old).tokens
        if rows is None or own is None:
            return rows
        count = len(rows.offsets) - 1
        pick = torch.arange(count).index_put((place,), count + torch.arange(len(old)))
        return pick_tokens(join_tokens([rows, own], rows.tokens.shape[1]), pick)

    def first_nodes(self, start: int = 0) -> Tensor:  # [n] int64
        """As of the versions."""
        columns, first = self.columns(), dict[str, int]()
        pairs = list(zip(columns.node.tolist(), self.texts(), strict=True))
        own = [pair for pair, concept in zip(pairs, columns.is_concept, strict=True) if not concept]
        found = [(node, first.setdefault(text, node)) for node, text in own]
        return torch.tensor([of for node, of in found if node >= start], dtype=torch.int64)

    def _places(self, start: int) -> tuple[Tensor, list[int]]:
        """Rows of the nodes from `start` on that have another version, and its number."""
        node = self.columns(start).node
        there = [now for now in self._replaced if now >= start]
        place = torch.searchsorted(node, torch.tensor(there, dtype=torch.int64))
        return place, [self._replaced[now] for now in there]


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
_TURNS = """
SELECT node, kind, speaker, session, type, time FROM atom
WHERE kind != ? AND session IS NOT NULL AND (links = '[]' OR NOT EXISTS (
    SELECT 1 FROM json_each(links) WHERE json_extract(value, '$[1]') = ?
))"""
_TURNS_OF = f"{_TURNS} AND session IN (SELECT value FROM json_each(?))"
_STATED = """
SELECT source.node, target.node FROM atom AS source, json_each(source.links) AS link
JOIN atom AS target ON target.id = json_extract(link.value, '$[0]')
WHERE source.links != '[]' AND json_extract(link.value, '$[1]') = ?"""
_STATING = """
SELECT DISTINCT node FROM atom, json_each(links) AS link
WHERE links != '[]' AND json_extract(link.value, '$[1]') = ?
AND json_extract(link.value, '$[0]') IN (SELECT value FROM json_each(?)) ORDER BY node"""


def own_key(key: str) -> str:
    """A key for `meta_get` and `meta_set`; InputError where it is one of the store's own."""
    if key.startswith(RESERVED):
        raise InputError(
            f"key: expected one without the prefix {RESERVED!r}, got {key!r}. Rename it"
        )
    return key


def _atom_problems(database: Database) -> list[str]:
    found = []
    for *row, hashed, digest in database.stream(
        f"SELECT {ATOM_COLUMNS}, text_hash, digest FROM atom ORDER BY node"
    ):
        try:
            atom = atom_from_row(tuple(row))
        except (ValueError, TypeError) as error:
            found.append(f"node {row[0]} cannot be read ({error})")
            continue
        if text_hash(atom.rendered) != hashed.hex():
            found.append(f"the text hash of atom {atom.id!r} does not match its text")
        if atom.digest != digest.hex():
            found.append(f"the digest of atom {atom.id!r} does not match its content")
    return found


def _version_problems(store: StoreReader) -> list[str]:
    nodes = set(store.columns().node.tolist())
    store._versions("1", ())  # raises where a digest does not match
    current = store.first_versions()
    return [f"{node} is no atom, but has earlier versions" for node in current if node not in nodes]


def _checksum_problems(database: Database, table: str, columns: tuple[str, ...]) -> list[str]:
    sql = f"SELECT start, count, checksum, {', '.join(columns)} FROM {table}"
    return [
        f"the block that starts at node {start} does not match its checksum"
        for start, count, expected, *blobs in database.stream(sql)
        if not is_sound(expected, blobs, start, count)
    ]


def _vector_problems(store: StoreReader) -> list[str]:
    # Reading raises StoreDamagedError where blocks are missing or have the wrong length.
    embeddings = store.embeddings()
    store.tokens()
    bad = (~torch.isfinite(embeddings).all(1)).nonzero().flatten()
    nodes = store.columns().node[bad] if len(bad) else bad
    return [f"the embedding of node {node} is not finite" for node in nodes.tolist()]


def _edge_problems(store: StoreReader) -> list[str]:
    edges = store.edges()
    read_linked_edges(store._database)  # raises where it cannot be told what they came with
    nodes = store.columns().node
    found = []
    for name, column in (("source", edges.source), ("target", edges.target)):
        unknown = column[~torch.isin(column, nodes)].unique().tolist()
        found += [f"{name} {node} is not a node" for node in unknown]
    types = edges.type[~torch.isin(edges.type, torch.tensor(list(EdgeType), dtype=torch.uint8))]
    found += [f"type {number} is unknown" for number in types.unique().tolist()]
    if not bool(torch.isfinite(edges.weight).all()):
        found.append("some weights are not finite")
    return found


def _alias_problems(store: StoreReader) -> list[str]:
    columns, aliases = store.columns(), store.aliases()
    # Raises where one does not match its checksum.
    store.alias_vectors(name for _, name, _ in aliases)
    concepts = set(columns.node[columns.is_concept].tolist())
    return [
        f"{name!r} leads to node {node}, which is no concept"
        for _, name, node in aliases
        if node not in concepts
    ]


def _temporal_problems(store: StoreReader) -> list[str]:
    if store.meta_get(LINKED_BY) is None:
        return []  # whoever fills it without linking may mean anything by these edges
    wrong, _ = store.misplaced_edges(by_time=store.meta_get(ORDERED_BY) == "time")
    if not wrong.shape[1]:
        return []
    source, target = wrong[:, 0].tolist()
    return [
        f"{wrong.shape[1]} join others than neighbours of one session, the first of them node "
        f"{source} with node {target}"
    ]


def _neighbours(turns: Columns, by_time: bool) -> Tensor:  # [2, P] int64
    """Each turn with the next one of its session; `turns` are in the order of storing."""
    order = turns.session.codes.sort(stable=True).indices
    node, session, time = turns.node[order], turns.session.codes[order], turns.time[order]
    if by_time and len(node):
        first = torch.ones(len(node), dtype=torch.bool)
        first[1:] = session[1:] != session[:-1]
        # Without a time of its own a turn has that of the turn stored before it.
        known = torch.where(first | ~time.isnan(), torch.arange(len(node)), 0).cummax(0).values
        order = time[known].nan_to_num(nan=-torch.inf).sort(stable=True).indices
        order = order[session[order].sort(stable=True).indices]
        node, session = node[order], session[order]
    return torch.stack([node[:-1], node[1:]])[:, session[1:] == session[:-1]]


def _add(problems: list[str], part: str, found: list[str]) -> None:
    problems += [f"{part}: {text}" for text in found[:_SHOWN]]
    if len(found) > _SHOWN:
        problems.append(f"{part}: and {len(found) - _SHOWN} more of this kind")
