"""Memory as a long-term store of LangGraph: `graph.compile(store=GraphMemStore("agent.mem"))`.

An item is an atom. Its id is derived from namespace and key, its text comes from the indexed
fields, and `meta` holds the value and what else the store must give back. Listing and filters read
a mirror of these items in the process, which follows the store by its log of changes.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.integrations.framework import MemoryOwner, given_memory, importing
from graphmem_torch.integrations.json_values import json_copy
from graphmem_torch.memory import Memory
from graphmem_torch.memory.lookup import refresh_expiry
from graphmem_torch.readers.langgraph_items import item_fields, item_id, value_text

with importing("langgraph", "langgraph-checkpoint", ">=4.3,<5", "langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )

    from graphmem_torch.integrations.langchain_embeddings import as_embedder
    from graphmem_torch.integrations.langgraph_arguments import (
        checked_config,
        checked_expiry,
        checked_minutes,
        checked_paths,
        expect_types,
    )

__all__ = ["FilterTypeError", "GraphMemStore"]

_WHOLE = "$"  # path of the whole value
_MINUTE = 60.0
_ORDERED: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": lambda own, other: own > other,
    "$gte": lambda own, other: own >= other,
    "$lt": lambda own, other: own < other,
    "$lte": lambda own, other: own <= other,
}
_OPERATORS = ("$eq", "$ne", *_ORDERED)

_Namespace = tuple[str, ...]


class FilterTypeError(InputError, TypeError):
    """Value of an item that a filter cannot compare with a number."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One item.

    Attributes:
        id: Id of the atom.
        node: Node number of the atom.
        namespace, key, value: Parts of the item; the value is never given away, only copies.
        indexed: Whether the item has a text to find.
        created, updated: Times in ISO 8601.
        order: Number of the item that began its namespace, and its own number, in the order of
            putting. An overwritten item keeps its number.
    """

    id: str
    node: int
    namespace: _Namespace
    key: str
    value: dict[str, Any]
    indexed: bool
    created: str
    updated: str
    order: tuple[int, int]

    def item(self) -> Item:
        """Return the item, whose value the caller may change."""
        return Item(**self._parts())

    def found(self, score: float | None = None) -> SearchItem:
        """Return the item as a search result."""
        return SearchItem(**self._parts(), score=score)

    def _parts(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "key": self.key,
            "value": json_copy(self.value, self.key),
            "created_at": datetime.fromisoformat(self.created),
            "updated_at": datetime.fromisoformat(self.updated),
        }


class GraphMemStore(MemoryOwner, BaseStore):
    """Store of LangGraph on a memory; safe to share between threads and processes.

    Searches without a query, filters and listings answer as LangGraph's `InMemoryStore` does,
    except that a namespace exists as long as it has an item. A query ranks items as
    `Memory.retrieve` does, with its probability as `score`; items without text follow, without
    a score. Expired items are never given back, whatever `omit_expired` says.

    Attributes:
        memory: The memory. It may hold other atoms; the store neither shows nor changes them.
        index_config: Configuration of the index as given.
        ttl_config: Configuration of expiry as given.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: str | os.PathLike[str] | Memory | None = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        """Open or take the memory.

        Args:
            memory: Folder of a store, or an open `Memory`; None keeps the items in the process.
            index: LangGraph's `IndexConfig`: `fields`, the paths of the indexed texts (by default
                the whole value), `embed`, the encoder, as `embedder` of `Memory.open`, and `dims`,
                which must be its width.
            ttl: LangGraph's `TTLConfig`: `default_ttl` in minutes, `refresh_on_read`,
                `omit_expired`, and `sweep_interval_minutes`: the first put after that time deletes
                expired items.
            clock: Function that returns now, in seconds since the epoch UTC; not with an open
                memory, which has its own.
            options: Arguments of `Memory.open`, such as `preset` or `mode`.

        Raises:
            InputError: Unusable `index` or `ttl`, options with an open memory, or unknown ones.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        config = checked_config("index", index, ("dims", "embed", "fields"))
        self._paths = checked_paths(config.get("fields") or [_WHOLE])
        if config.get("embed") is not None:
            options["embedder"] = as_embedder(config["embed"])
        interval = checked_expiry(ttl).get("sweep_interval_minutes")
        if not isinstance(memory, Memory):
            options["clock"] = clock
        self.index_config, self.ttl_config = index, ttl
        self.memory, self._owned = given_memory(memory, options)
        self._clock = self.memory.store.expiry.clock
        self._interval = math.inf if interval is None else interval * _MINUTE
        self._swept = self._clock()
        self._expect_width(config.get("dims"))
        self._lock = threading.RLock()  # guards the mirror; taken before a lock of the database
        self._reset()

    def _expect_width(self, dims: object) -> None:
        if dims is None or dims == (width := self.memory.embedder.dim):
            return
        self.close()
        raise InputError(
            f"index: dims: expected {width}, the width of the encoder's vectors, got {dims!r}; "
            "leave it out"
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: all reads see the state before, then the writes are one transaction.

        Of several puts to one key the last counts.

        Raises:
            InvalidNamespaceError: A label is empty, has a dot, or is no string.
            InputError: Unknown operation or operator, or a value that JSON cannot hold.
            StoreError: The store is read-only, locked or full; nothing is written.
        """
        results: list[Result] = []
        read: list[_Entry] = []  # items whose expiry is refreshed
        searches: list[tuple[int, SearchOp, list[_Entry]]] = []
        puts: dict[tuple[_Namespace, str], PutOp] = {}
        with self._lock, self.memory.store.reading():
            self._follow()
            for place, op in enumerate(ops):
                expect_types(op)
                validate_op_namespace(op)
                results.append(None)
                if isinstance(op, GetOp):
                    entry = self._item(tuple(op.namespace), op.key)
                    results[place] = None if entry is None else entry.item()
                    read += [entry] if entry is not None and op.refresh_ttl else []
                elif isinstance(op, SearchOp):
                    searches.append((place, op, self._candidates(op)))
                elif isinstance(op, ListNamespacesOp):
                    results[place] = self._listed(op)
                elif isinstance(op, PutOp):
                    puts[_checked_names(op)] = op
                else:
                    raise InputError(
                        f"ops: expected GetOp, SearchOp, PutOp or ListNamespacesOp, got "
                        f"{type(op).__name__}; give one of these"
                    )
        for place, op, entries in searches:
            scores = self._scores(op, entries) if _asks(op) else {}
            page = _page(op, entries, scores)
            results[place] = [entry.found(scores.get(entry.id)) for entry in page]
            read += page if op.refresh_ttl else []
        if read and not self.memory.store.readonly:
            refresh_expiry(self.memory.store, [entry.node for entry in read])
        if puts:
            self._write(puts)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in a thread, as `batch`; cancelling does not stop a write."""
        return await asyncio.to_thread(self.batch, list(ops))

    # Reading.

    def _reset(self) -> None:
        """Empty the mirror, which follows nothing yet."""
        self._state: str | None = None
        self._start = 0  # number of the first node that was not read
        self._number = 0  # number of the next item
        self._entries: dict[int, _Entry] = {}  # by node
        self._spaces: dict[_Namespace, dict[str, _Entry]] = {}
        self._begun: dict[_Namespace, int] = {}  # numbers of the items that began namespaces
        self._hidden: Collection[int] = ()  # nodes that have expired

    def _follow(self) -> None:
        """Bring the mirror to the state of the store; inside the lock and `reading`."""
        store = self.memory.store
        state = store.state
        if state != self._state:
            self._take_in(state)
        self._hidden = store.expiry.hidden()

    def _take_in(self, state: str) -> None:
        """Read what was stored and deleted since the state of the mirror."""
        store = self.memory.store
        changes = None if self._state is None else store.changes(self._state, 0)
        if changes is None:
            self._reset()
        gone = [] if changes is None else changes.gone.tolist()
        stop = store.next_node
        ids = dict(store.fields("id", self._start))
        read = [_entry(ids[node], node, meta) for node, meta in store.fields("meta", self._start)]
        fresh = [entry for entry in read if entry is not None]
        fresh.sort(key=lambda entry: entry.order)
        left = [self._entries.pop(node) for node in gone if node in self._entries]
        kept = {(entry.id, entry.order) for entry in fresh}  # new versions keep their places
        for entry in left:
            if (entry.id, entry.order) not in kept:
                del self._spaces[entry.namespace][entry.key]
        unsorted = set[_Namespace]()  # an import or another process may give earlier numbers
        for entry in fresh:
            self._entries[entry.node] = entry
            items = self._spaces.setdefault(entry.namespace, {})
            if items and entry.key not in items:
                last = items[next(reversed(items))]
                unsorted |= {entry.namespace} if entry.order < last.order else set()
            items[entry.key] = entry
            self._number = max(self._number, entry.order[1] + 1)
        for name in unsorted:
            items = self._spaces[name]
            self._spaces[name] = dict(sorted(items.items(), key=lambda pair: pair[1].order))
        self._arrange(dict.fromkeys(entry.namespace for entry in (*left, *fresh)))
        self._state, self._start = state, stop

    def _arrange(self, changed: Iterable[_Namespace]) -> None:
        """Put changed namespaces in the order of their beginnings, and drop empty ones."""
        sound = True
        for name in changed:
            items, before = self._spaces[name], self._begun.get(name)
            begun = next((entry.order[0] for entry in items.values()), None)
            if begun == before:
                continue
            del self._spaces[name]
            self._begun.pop(name, None)
            if begun is not None:
                sound &= begun > self._begun.get(next(reversed(self._spaces), ()), -1)
                self._spaces[name], self._begun[name] = items, begun
        if not sound:  # several processes began namespaces at once
            order = sorted(self._spaces, key=self._begun.__getitem__)
            self._spaces = {name: self._spaces[name] for name in order}

    def _item(self, namespace: _Namespace, key: str) -> _Entry | None:
        """Return an item; None if there is none, or it has expired."""
        entry = self._spaces.get(namespace, {}).get(key)
        return None if entry is None or entry.node in self._hidden else entry

    def _candidates(self, op: SearchOp) -> list[_Entry]:
        """Return the items that a search may give, in order; without a query only its page."""
        prefix = tuple(op.namespace_prefix)
        among: Iterator[_Entry] = chain.from_iterable(
            items.values()
            for namespace, items in self._spaces.items()
            if namespace[: len(prefix)] == prefix
        )
        if self._hidden:
            among = (entry for entry in [*among] if entry.node not in self._hidden)
        if op.filter:
            among = (entry for entry in [*among] if _meets_all(entry, op.filter))
        elif not _asks(op) and min(op.offset, op.limit) >= 0:
            among = islice(among, op.offset + op.limit)
        return list(among)

    def _scores(self, op: SearchOp, entries: list[_Entry]) -> dict[str, float]:
        """Return the scores of the best items for a query by id, best first."""
        ids = {entry.id for entry in entries if entry.indexed}
        wanted = op.offset + op.limit if min(op.offset, op.limit) >= 0 else len(ids)
        if not ids or not wanted:
            return {}
        where: dict[str, Any] = {"id": {"$in": list(ids)}}
        if not op.filter:
            within = ".".join(op.namespace_prefix)
            where = {"meta.indexed": True, "meta.within": {"$contains": within}}
        assert op.query is not None
        result = self.memory.retrieve(op.query, k=min(wanted, len(ids)), where=where)
        return {hit.id: hit.score for hit in result.hits if hit.id in ids}

    def _listed(self, op: ListNamespacesOp) -> list[_Namespace]:
        """Return the page of a listing of namespaces."""
        conditions = op.match_conditions or ()
        found = [name for name in self._spaces if all(_fits(each, name) for each in conditions)]
        if self._hidden:
            found = [name for name in found if any(self._item(name, k) for k in self._spaces[name])]
        if op.max_depth is not None:
            found = list({name[: op.max_depth] for name in found})
        return sorted(found)[op.offset : op.offset + op.limit]

    # Writing.

    def _write(self, puts: Mapping[tuple[_Namespace, str], PutOp]) -> None:
        """Store the puts of a batch, and delete where the value is None, in one transaction."""
        store = self.memory.store
        atoms, gone = list[Atom](), list[str]()
        now = self._clock()
        with self._lock, store.reading():
            self._follow()
            begun: dict[_Namespace, int] = {}
            for (namespace, key), op in puts.items():
                entry = self._item(namespace, key)
                if op.value is None:
                    gone += [] if entry is None else [entry.id]
                    continue
                number = self._number if entry is None else entry.order[1]
                self._number += entry is None
                first = self._begun.get(namespace, number)
                order = begun.setdefault(namespace, first), number
                atoms.append(self._atom(op, namespace, key, order, now, entry))
        if not gone:
            self.memory.add(atoms, replace=True)
        else:
            with store.gathering():
                self.memory.delete([*store.known(gone)])
                self.memory.add(atoms, replace=True)
        if now - self._swept >= self._interval:
            self.sweep_ttl()

    def sweep_ttl(self) -> int:
        """Delete expired items, and return their number.

        Raises:
            StoreError: The store is read-only, locked or full.
        """
        store = self.memory.store
        with self._lock, store.reading():
            self._follow()
            ids = [self._entries[node].id for node in self._hidden if node in self._entries]
            self._swept = self._clock()
        with store.gathering():
            hidden = store.expiry.hidden()
            gone = [name for name, (node, _) in store.known(ids).items() if node in hidden]
            return self.memory.delete(gone)

    def _atom(
        self,
        op: PutOp,
        namespace: _Namespace,
        key: str,
        order: tuple[int, int],
        now: float,
        earlier: _Entry | None,
    ) -> Atom:
        """Return the atom of a put, which may overwrite an earlier item."""
        place = f"value of {key!r:.60}"
        if not isinstance(op.value, Mapping):
            raise InputError(f"{place}: expected a mapping, got {op.value!r:.80}; give one")
        value = json_copy(op.value, place)
        text = self._text(value, op.index)
        moment = datetime.fromtimestamp(now, UTC).isoformat()
        fields = item_fields(
            namespace,
            key,
            value,
            text,
            created=moment if earlier is None else earlier.created,
            updated=moment,
            order=order,
        )
        ttl = None if op.ttl is None else checked_minutes("ttl", op.ttl) * _MINUTE
        return Atom(**fields, time=now, ttl=ttl)

    def _text(self, value: dict[str, Any], index: object) -> str:
        """Return the text of the indexed fields; empty if there is none."""
        if index is False:
            return ""
        paths = self._paths if index is None else checked_paths(index)
        texts = dict[str, None]()
        for path in paths:
            whole = path == _WHOLE
            texts |= dict.fromkeys(
                [value_text(value)] if whole else get_text_at_path(value, tokenize_path(path))
            )
        return "\n".join(text for text in texts if text.strip())


def _asks(op: SearchOp) -> bool:
    """Return whether a search has a query."""
    return bool(op.query and op.query.strip())


def _page(op: SearchOp, entries: list[_Entry], scores: Mapping[str, float]) -> list[_Entry]:
    """Return the page of a search: ranked items, then those without a score, in order."""
    by_id = {entry.id: entry for entry in entries}
    rest = [entry for entry in entries if entry.id not in scores]
    rest.sort(key=lambda entry: bool(scores) and not entry.indexed)
    return [*(by_id[name] for name in scores), *rest][op.offset : op.offset + op.limit]


def _entry(id: str, node: int, meta: Mapping[str, Any]) -> _Entry | None:
    """Return the item of an atom; None if the atom is none."""
    namespace, key = meta.get("namespace"), meta.get("key")
    if not isinstance(namespace, list) or not isinstance(key, str):
        return None
    if id != item_id(tuple(namespace), key):
        return None
    first, number = meta["order"]
    times = meta["created"], meta["updated"]
    order = first, number
    value, indexed = meta["value"], meta["indexed"]
    return _Entry(id, node, tuple(namespace), key, value, indexed, *times, order)


def _checked_names(op: PutOp) -> tuple[_Namespace, str]:
    """Return namespace and key of a put."""
    if not isinstance(op.key, str):
        raise InputError(f"key: expected a string, got {op.key!r:.80}; give str(key)")
    return tuple(json_copy(list(op.namespace), "namespace")), json_copy(op.key, "key")


def _fits(condition: MatchCondition, namespace: _Namespace) -> bool:
    """Return whether a namespace begins or ends with a path, in which `*` is any label."""
    kind, path = condition.match_type, condition.path
    if kind not in ("prefix", "suffix"):
        raise InputError(unknown("match_type", kind, ("prefix", "suffix")))
    if len(namespace) < len(path):
        return False
    own = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(label in ("*", name) for label, name in zip(path, own, strict=True))


def _meets_all(entry: _Entry, conditions: Mapping[str, Any]) -> bool:
    """Return whether an item meets a filter, as `InMemoryStore` decides."""
    return all(
        _meets(entry.value.get(field), wanted, entry, field) for field, wanted in conditions.items()
    )


def _meets(value: Any, wanted: Any, entry: _Entry, field: str) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(
                _compares(value, name, other, entry, field) for name, other in wanted.items()
            )
        return isinstance(value, dict) and all(
            _meets(value.get(name), other, entry, f"{field}.{name}")
            for name, other in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(
                _meets(own, other, entry, field) for own, other in zip(value, wanted, strict=True)
            )
        )
    return value == wanted


def _compares(value: Any, operator: str, other: Any, entry: _Entry, field: str) -> bool:
    """Return whether an operator of a filter holds.

    Raises:
        InputError: Unknown operator, or no numbers to compare.
    """
    if operator in ("$eq", "$ne"):
        return (value == other) == (operator == "$eq")
    if operator not in _ORDERED:
        raise InputError(unknown(f"filter: {field}", operator, _OPERATORS))
    try:
        return _ORDERED[operator](float(value), float(other))
    except (TypeError, ValueError, OverflowError) as error:
        raise FilterTypeError(
            f"filter: {field}: {operator}: expected numbers, got {value!r:.60} in the item "
            f"{entry.key!r:.60} of {entry.namespace} and {other!r:.60}; for items without it write "
            f'{{"$ne": None, "{operator}": ...}}'
        ) from error
