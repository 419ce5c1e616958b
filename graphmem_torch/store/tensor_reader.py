"""Queries of a store that return tensors: vectors, edges and whole columns of atoms."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, BUILT, CONCEPT, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.arrays import (
    read_alias_vectors,
    read_edges,
    read_embeddings,
    read_last_edges,
    read_linked_edges,
    read_tokens,
)
from graphmem_torch.store.atom_columns import Columns, columns_from_rows
from graphmem_torch.store.batches import (
    NodeVectors,
    TokenRows,
    edges_of,
    join_tokens,
    pick_tokens,
    tokens_of,
)
from graphmem_torch.store.changes import Changes, Remembered, commits_since, read_changes
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.schema import VERSION_COLUMNS
from graphmem_torch.store.text_columns import KeptTexts
from graphmem_torch.store.turn_order import misplaced_edges

__all__ = ["TensorReader"]

_BUILT = "(kind = ? AND id GLOB ?)"  # an aggregate that a consolidation made
_NEAR = 256  # nodes: about one block, which is read completely anyway


class TensorReader(StoreReader):
    """A `StoreReader` with queries that return tensors.

    Rows of `embeddings`, `tokens`, `columns`, `ids` and `texts` are aligned: one row an atom, by
    node number. If nothing was deleted, row i is node `start + i`.
    """

    def __init__(self, database: Database, path: Path | None) -> None:
        """Use `MemoryStore.open`."""
        super().__init__(database, path)
        self._remembered = Remembered()

    def columns(self, start: int = 0) -> Columns:
        """Return kinds, speakers, sessions, types and times of the atoms from node `start` on."""
        columns = f"SELECT node, kind, speaker, session, type, time FROM {self._table}"
        rows = self._database.query(f"{columns} WHERE node >= ? ORDER BY node", (start,))
        return columns_from_rows(rows)

    def events(self, start: int = 0) -> Tensor:  # [n, 3] float64
        """Return node number, `event_time` and `event_end` of atoms from `start` on with either.

        Seconds since the epoch UTC; NaN if missing. Aggregates made by a consolidation are left
        out, because their span bounds nothing.
        """
        rows = self._database.query(
            f"SELECT node, event_time, event_end FROM {self._table} WHERE node >= ? "
            f"AND (event_time IS NOT NULL OR event_end IS NOT NULL) AND NOT {_BUILT} ORDER BY node",
            (start, AGGREGATE, f"{BUILT}*"),
        )
        values = [[math.nan if each is None else each for each in row] for row in rows]
        return torch.tensor(values, dtype=torch.float64).view(-1, 3)

    def times(self, nodes: Sequence[int]) -> Tensor:  # [n, 4] float64
        """Return node number, time, `event_time` and `event_end` of the nodes that are stored.

        Units and missing values are those of `events`.
        """
        rows = self._database.query(
            f"SELECT node, time, iif({_BUILT}, NULL, event_time), iif({_BUILT}, NULL, event_end) "
            f"FROM {self._table} WHERE node IN (SELECT value FROM json_each(?)) ORDER BY node",
            (*2 * (AGGREGATE, f"{BUILT}*"), json.dumps(list(nodes))),
        )
        values = [[math.nan if each is None else each for each in row] for row in rows]
        return torch.tensor(values, dtype=torch.float64).view(-1, 4)

    def nodes(self, start: int = 0, *, concepts: bool = True) -> Tensor:  # [n] int64
        """Return the node numbers from `start` on, ascending, with or without concepts."""
        own, values = ("", ()) if concepts else (" AND kind != ?", (CONCEPT,))
        sql = f"SELECT node FROM atom WHERE node >= ?{own} ORDER BY node"
        rows = self._database.query(sql, (start, *values))
        return torch.tensor([row[0] for row in rows], dtype=torch.int64)

    def first_nodes(self, start: int = 0) -> Tensor:  # [n] int64
        """Return, for each atom from `start` on, the first atom with its text; no concepts."""
        sql = (
            "SELECT (SELECT min(node) FROM atom WHERE text_hash = own.text_hash AND kind != ?) "
            "FROM atom AS own WHERE node >= ? AND kind != ? ORDER BY node"
        )
        rows = self._database.query(sql, (CONCEPT, start, CONCEPT))
        return torch.tensor([row[0] for row in rows], dtype=torch.int64)

    def stated(self, kind: EdgeType) -> Tensor:  # [2, S] int64
        """Return the ends of edges of a type that atoms state, if both ends are stored."""
        return torch.tensor(self.stated_pairs(kind), dtype=torch.int64).reshape(-1, 2).T

    def embeddings(self, start: int = 0) -> Tensor:  # [N, d] float32
        """Return the embeddings of the atoms from node `start` on."""
        with self.reading():
            stop = self.next_node
            rows = torch.from_numpy(read_embeddings(self._database, start, stop, self.dim or 0))
            live = self._live(start, stop)
            return rows if live is None else rows[live]

    def tokens(self, start: int = 0) -> TokenRows | None:
        """Return the token vectors of the atoms from `start` on; None if the store holds none.

        Atoms stored without token vectors own no rows.
        """
        with self.reading():
            width, stop = self.token_dim, self.next_node
            if width is None:
                if self._database.query("SELECT 1 FROM token_block LIMIT 1"):
                    raise damaged(self._database.place, "the width of its token vectors is gone")
                return None
            rows = tokens_of(read_tokens(self._database, start, stop, width))
            live = self._live(start, stop)
            return rows if live is None else pick_tokens(rows, live)

    def edges(self, start: int = 0) -> EdgeBlock:
        """Return the edges of all batches that began at node `start` or later, in write order.

        An index of all nodes below n reads the edges appended since with `edges(start=n)`. A batch
        of only edges begins at the `next_node` of its time.
        """
        return edges_of(read_edges(self._database, start))

    def connected_edges(self) -> EdgeBlock:
        """Return the edges that callers connected."""
        return edges_of(read_linked_edges(self._database, linked=False))

    def last_edges(self, count: int) -> EdgeBlock:
        """Return the last `count` edges, in write order."""
        return edges_of(read_last_edges(self._database, count))

    def changes(self, state: str, num_edges: int) -> Changes | None:
        """Return the removals since a state with `num_edges` edges; None if not known."""
        return read_changes(self._database, state, num_edges, self._remembered)

    def commits_since(self, state: str) -> int | None:
        """Return the number of commits since a state; None if not known."""
        return commits_since(self._database, state)

    def alias_vectors(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the vectors [d] float32 of concept aliases; those of older releases have none."""
        if not self._database.has("alias_vector"):
            return {}
        found = read_alias_vectors(self._database, names, self.dim or 0)
        return {name: torch.from_numpy(vector) for name, vector in found.items()}

    def vectors(self, nodes: Sequence[int], *, tokens: bool = True) -> NodeVectors:
        """Return the vectors of single nodes, in the given order; numbers may repeat.

        Args:
            nodes: Node numbers.
            tokens: Whether to read token vectors too.

        Raises:
            InputError: A number never belonged to an atom.
        """
        with self.reading():
            stop = self.next_node
            unknown = next((node for node in nodes if not 0 <= node < stop), None)
            if unknown is not None:
                raise self._unknown_node(unknown)
            width = self.token_dim if tokens else None
            return _read_vectors(self._database, nodes, self.dim or 0, width)

    def misplaced_edges(self, *, by_time: bool) -> tuple[Tensor, Tensor]:
        """Find wrong and missing temporal edges of linking.

        Turns of a session are ordered by time; a turn without a time follows the turn stored before
        it. Edges that atoms or callers state are not checked.

        Args:
            by_time: Whether turns are ordered by time; False: in stored order.

        Returns:
            [2, W] int64, edges that do not join neighbours of a session; [2, M] int64, neighbours
            without an edge. The latter cover the sessions of the wrong edges, or all sessions if a
            wrong edge does not stay within one session.
        """
        wrong, missing = misplaced_edges(self, by_time=by_time)
        return torch.from_numpy(wrong), torch.from_numpy(missing)

    def with_versions(self, replaced: Mapping[int, int]) -> TensorReader:
        """Return a view of this store with earlier versions of some nodes (`replaced`)."""
        return _Past(self, replaced)

    def _live(self, start: int, stop: int) -> Tensor | None:
        """Return the rows of the range that are still atoms; None: all of them."""
        nodes = self._database.query("SELECT count(*) FROM atom WHERE node >= ?", (start,))
        if nodes[0][0] == max(stop - start, 0):
            return None
        if nodes[0][0] > max(stop - start, 0):
            raise damaged(self._database.place, f"atoms behind number {stop - 1}, the last given")
        return self.nodes(start) - start


class _Past(TensorReader):
    """View of a store with earlier versions of some nodes, under their current numbers."""

    def __init__(self, store: TensorReader, replaced: Mapping[int, int]) -> None:
        super().__init__(store._database, None)
        self._replaced = dict(replaced)
        self.kept_texts = KeptTexts(self._database, hidden=self._replaced)
        then, now = (",".join(map(str, each)) for each in zip(*replaced.items(), strict=True))
        self._table = (
            f"(SELECT node, {VERSION_COLUMNS} FROM atom WHERE node NOT IN ({then}) UNION ALL "
            f"SELECT current AS node, {VERSION_COLUMNS} FROM version WHERE node IN ({now}))"
        )

    def embeddings(self, start: int = 0) -> Tensor:  # [N, d] float32
        """Return the embeddings of the versions."""
        with self.reading():
            rows, place, old = super().embeddings(start), *self._places(start)
            rows[place] = self.vectors(old, tokens=False).embeddings
        return rows

    def tokens(self, start: int = 0) -> TokenRows | None:
        """Return the token vectors of the versions."""
        with self.reading():
            rows, (place, old) = super().tokens(start), self._places(start)
            own = self.vectors(old).tokens
        if rows is None or own is None:
            return rows
        count = len(rows.offsets) - 1
        pick = torch.arange(count).index_put((place,), count + torch.arange(len(old)))
        return pick_tokens(join_tokens([rows, own], rows.tokens.shape[1]), pick)

    def first_nodes(self, start: int = 0) -> Tensor:  # [n] int64
        """Return, for each atom from `start` on, the first one with its version's text."""
        columns, first = self.columns(), dict[str, int]()
        pairs = list(zip(columns.node.tolist(), self.texts(), strict=True))
        own = [pair for pair, concept in zip(pairs, columns.is_concept, strict=True) if not concept]
        found = [(node, first.setdefault(text, node)) for node, text in own]
        return torch.tensor([of for node, of in found if node >= start], dtype=torch.int64)

    def _places(self, start: int) -> tuple[Tensor, list[int]]:
        """Return the rows of the nodes from `start` on with another version, and its number."""
        node = self.columns(start).node
        there = [now for now in self._replaced if now >= start]
        place = torch.searchsorted(node, torch.tensor(there, dtype=torch.int64))
        return place, [self._replaced[now] for now in there]


def _read_vectors(
    database: Database, nodes: Sequence[int], dim: int, token_dim: int | None
) -> NodeVectors:
    """Read the vectors of nodes, all of which must once have been atoms; inside `reading`.

    Raises:
        StoreDamagedError: A block is missing or has the wrong length.
    """
    spans = _ranges(sorted(set(nodes)))
    covered = [node for first, last in spans for node in range(first, last)]
    place = {node: row for row, node in enumerate(covered)}
    pick = torch.tensor([place[node] for node in nodes], dtype=torch.int64)
    embeddings = [torch.from_numpy(read_embeddings(database, *span, dim)) for span in spans]
    chosen = torch.cat([torch.empty(0, dim), *embeddings])[pick]
    if token_dim is None:
        return NodeVectors(chosen, None)
    tokens = [tokens_of(read_tokens(database, *span, token_dim)) for span in spans]
    return NodeVectors(chosen, pick_tokens(join_tokens(tokens, token_dim), pick))


def _ranges(nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Return half-open ranges that cover ascending node numbers; near nodes share a range."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        if found and node - found[-1][1] < _NEAR:
            found[-1] = (found[-1][0], node + 1)
        else:
            found.append((node, node + 1))
    return found
